"""
Ordinary certificates of clients, without SPIFFE identities: by which authorities they are verified, and their names.

OpenSSL builds and verifies the chains, by the system clock. The listener's own certificate is in ``certificates``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto

from svc.transport.binding import ffi, lib
from svc.transport.errors import ClientCertificateInvalid, PeerCredentialsEnded, PeerNotVerified, TransportError

NameSource = Literal["commonName", "dns", "uri", "email"]
#: Octets of a name.
MAX_NAME: Final = 256
#: Certificates of a client's chain, its own and the authority's included.
MAX_CHAIN: Final = 6
_KINDS: Final[dict[str, Any]] = {"dns": x509.DNSName, "uri": x509.UniformResourceIdentifier, "email": x509.RFC822Name}
_MARKER: Final = b"-----BEGIN CERTIFICATE-----"
_CRL_MARKER: Final = b"-----BEGIN X509 CRL-----"


class ClientAuthoritiesUnusable(TransportError):
    """the files {files} of client authorities cannot be used: {what}"""

    reason = "client_authorities_unusable"
    hint = "they are PEM files, one or more certificates in each, and the revocation lists in a file of their own"
    files: str
    what: str


@dataclass(frozen=True, slots=True)
class ClientAuthorities:
    """
    How the clients of a listener are verified and named.

    Args:
        files: PEM files; a client's chain must lead to one of their certificates.
        name: where the name is; a certificate must have exactly one there.
        revoked: PEM file of a revocation list of each authority that issues client certificates; empty for none.
    """

    files: tuple[str, ...]
    name: NameSource = "commonName"
    revoked: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """All files."""
        return (*self.files, self.revoked) if self.revoked else self.files

    def stamps(self) -> tuple[object, ...]:
        """
        Values that change when one of the files is written, replaced or linked to another.

        Raises:
            ClientAuthoritiesUnusable: one cannot be read.
        """
        try:
            return tuple(file_stamp(path) for path in self.paths)
        except OSError as error:
            raise self.unusable(error.strerror or "unreadable") from error

    def unusable(self, what: str) -> ClientAuthoritiesUnusable:
        """Make the error for files that cannot be used."""
        return ClientAuthoritiesUnusable(files=", ".join(self.paths), what=what)


@dataclass(frozen=True, eq=False, slots=True)
class ClientTrust:
    """The content of these files at one time."""

    name: NameSource
    certificates: tuple[crypto.X509, ...]
    revoked: tuple[x509.CertificateRevocationList, ...]

    @classmethod
    def read(cls, authorities: ClientAuthorities) -> ClientTrust:
        """
        Read all files.

        Raises:
            ClientAuthoritiesUnusable: a file cannot be read or is not valid.
        """
        try:
            found = tuple(each for path in authorities.files for each in read_certificates(path))
            revoked = tuple(_read_revocations(authorities.revoked)) if authorities.revoked else ()
            trust = cls(authorities.name, found, revoked)
            trust.fill(crypto.X509Store())
        except OSError as error:
            raise authorities.unusable(error.strerror or "unreadable") from error
        except Exception as error:
            # Each of two parsers has its own errors for a malformed file.
            raise authorities.unusable("one is no PEM, or has not what is expected in it") from error
        return trust

    def fill(self, store: crypto.X509Store) -> None:
        """Add the authorities and the revocation lists to a store that has none."""
        # An intermediate authority may be trusted without the root above it.
        flags = crypto.X509StoreFlags.PARTIAL_CHAIN
        for certificate in self.certificates:
            store.add_cert(certificate)
        for each in self.revoked:
            store.add_crl(each)
        store.set_flags(flags | crypto.X509StoreFlags.CRL_CHECK if self.revoked else flags)

    def require(self, context: SSL.Context) -> None:
        """Make a context, whose connections are ``ClientCertificateConnection``, request and verify certificates."""
        store = context.get_cert_store()
        assert store is not None  # noqa: S101 (every context has one)
        self.fill(store)
        for certificate in self.certificates:
            context.add_client_ca(certificate)
        context.set_verify_depth(MAX_CHAIN - 2)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _on_verify)

    def verify_again(self, certificate: ClientCertificate) -> None:
        """
        Verify what a handshake verified by other files.

        Raises:
            ClientCertificateInvalid: it would be refused now.
        """
        if certificate.accepted_by is self:
            return
        store = crypto.X509Store()
        self.fill(store)
        leaf, *others = certificate.chain
        try:
            crypto.X509StoreContext(store, leaf, others).verify_certificate()
        except crypto.X509StoreContextError as error:
            raise ClientCertificateInvalid(address="a client", alert="", cause=str(error)) from error
        object.__setattr__(certificate, "accepted_by", self)


@dataclass(frozen=True, eq=False, slots=True)
class ClientCertificate:
    """
    The verified certificate of one connection's client.

    Attributes:
        name: of the client.
        chain: the verified path, leaf first.
        accepted_by: by what it was verified last.
    """

    name: str
    chain: tuple[crypto.X509, ...] = field(repr=False)
    accepted_by: ClientTrust = field(repr=False)
    not_after: datetime

    def verify_peer_time(self, now: datetime) -> None:
        """
        Verify at an aware time that no certificate of the path has ended; cheap.

        Raises:
            PeerCredentialsEnded: one has.
        """
        if now > self.not_after:
            ended = self.not_after.isoformat(timespec="seconds")
            raise PeerCredentialsEnded(spiffe_id=f"the certificate name {self.name}", ended=ended)


class ClientCertificateConnection(SSL.Connection):
    """
    The server side of a connection whose client presents an ordinary certificate.

    Attributes:
        defect: why it was refused; empty where it was not.
        client_certificate: set when the handshake is complete.
    """

    def __init__(self, context: SSL.Context, trust: ClientTrust) -> None:
        super().__init__(context, None)
        self.defect = ""
        self.client_certificate: ClientCertificate | None = None
        self._trust = trust
        self._name = ""

    def read_name(self, certificate: crypto.X509) -> bool:
        """Read the name in a certificate that OpenSSL has verified; whether there is one."""
        try:
            self._name = certificate_name(certificate.to_cryptography(), self._trust.name)
        except Exception as error:  # noqa: BLE001 (OpenSSL calls it; what cannot be read is refused)
            self.defect = str(error) if isinstance(error, NameMissing) else "it cannot be read"
        return not self.defect

    def verified(self, address: str) -> ClientCertificate:
        """
        Return the certificate after the handshake.

        Raises:
            ClientCertificateInvalid: it was not verified.
        """
        chain = self.get_verified_chain()
        if self.defect or not self._name or not chain:
            cause = self.defect or "it was not verified"
            raise ClientCertificateInvalid(address=address, alert="", cause=cause)
        try:
            ends = min(each.to_cryptography().not_valid_after_utc for each in chain)
        except ValueError as error:
            raise ClientCertificateInvalid(address=address, alert="", cause="its chain cannot be read") from error
        self.client_certificate = ClientCertificate(self._name, tuple(chain), self._trust, ends)
        return self.client_certificate


class NameMissing(ValueError):
    """A certificate without a usable name."""


def certificate_name(certificate: x509.Certificate, source: NameSource) -> str:
    """
    Read the name of a client in its certificate.

    Raises:
        NameMissing: there is none, more than one, or it is no text of up to 256 printable octets.
        ValueError: the certificate is malformed.
    """
    found: Sequence[object]
    if source == "commonName":
        found = [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    else:
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            found = []
        else:
            found = names.get_values_for_type(_KINDS[source])
    if len(found) != 1:
        raise NameMissing(f"it has {len(found)} names of the kind {source}, and one is needed")
    (name,) = found
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > MAX_NAME:
        raise NameMissing(f"its {source} is not a printable text of up to {MAX_NAME} octets")
    return name


def client_certificate(transport: object) -> ClientCertificate:
    """
    Return the certificate of a connection's client.

    Raises:
        PeerNotVerified: the transport has no verified one.
    """
    get_handle = getattr(transport, "getHandle", None)
    handle = get_handle() if get_handle is not None else None
    found = getattr(handle, "client_certificate", None)
    if not isinstance(found, ClientCertificate):
        raise PeerNotVerified()
    return found


def read_certificates(path: str) -> list[crypto.X509]:
    """
    Read the certificates of a PEM file.

    Raises:
        OSError, ValueError, crypto.Error: it cannot be read, or has none or a malformed one.
    """
    parts = Path(path).read_bytes().split(_MARKER)[1:]
    if not parts:
        raise ValueError("no certificate")
    return [crypto.load_certificate(crypto.FILETYPE_PEM, _MARKER + part) for part in parts]


def _read_revocations(path: str) -> list[x509.CertificateRevocationList]:
    parts = Path(path).read_bytes().split(_CRL_MARKER)[1:]
    if not parts:
        raise ValueError("no revocation list")
    return [x509.load_pem_x509_crl(_CRL_MARKER + part) for part in parts]


def file_stamp(path: str) -> tuple[int, ...]:
    """
    Values that change when a file is written, replaced or linked to another.

    Raises:
        OSError: it cannot be read.
    """
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _on_verify(connection: SSL.Connection, certificate: crypto.X509, number: int, depth: int, accepted: int) -> bool:
    if not isinstance(connection, ClientCertificateConnection):
        return False
    if not accepted:
        connection.defect = ffi.string(lib.X509_verify_cert_error_string(number)).decode("ascii")
        return False
    return connection.read_name(certificate) if depth == 0 else True
