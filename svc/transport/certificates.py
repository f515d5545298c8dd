"""
TLS with a server certificate alone, without SPIFFE identities.

Owns the listener's context made from two PEM files, and whether the files have changed since (the caller decides when
to check); and the client that verifies such a server by the roots of the system and the host name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion, platformTrust
from zope.interface import implementer

from svc.transport.addresses import is_ip_literal
from svc.transport.binding import ffi, lib
from svc.transport.creators import Creator, configure_context
from svc.transport.errors import ServerCertificateInvalid, TransportError
from svc.transport.groups import iana_name, is_hybrid
from svc.transport.observer import ConnectionObserver

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol

_MARKER: Final = b"-----BEGIN CERTIFICATE-----"


class CertificateUnusable(TransportError):
    """the certificate {certificate} or the key {key} cannot be used: {what}"""

    reason = "certificate_unusable"
    hint = "both are PEM files; the key belongs to the first certificate of the file, its chain follows"
    certificate: str
    key: str
    what: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """The content of both files at one time."""

    stamps: tuple[object, ...]
    context: SSL.Context
    not_after: datetime


@implementer(IOpenSSLServerConnectionCreator)
class CertificateCreator(Creator):
    """
    Creates the server side of TLS 1.2 and 1.3 with a certificate; clients present none.

    Args:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with its private key.
        observer: receives the handshakes.

    Raises:
        CertificateUnusable: a file is absent, not readable, no PEM, or the key belongs to another certificate.
    """

    role = "server"

    def __init__(self, certificate: str, key: str, *, observer: ConnectionObserver | None = None) -> None:
        super().__init__("default", observer)
        self._certificate = certificate
        self._key = key
        self._pair = self._read(self._stamps())

    @property
    def not_after(self) -> datetime:
        """When the certificate in use ends, aware UTC."""
        return self._pair.not_after

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one accepted connection."""
        return SSL.Connection(self._pair.context, None)

    def verified_peer(self, connection: SSL.Connection, address: str) -> None:
        """Accept every client, without evidence; see :meth:`svc.transport.creators.Creator.verified_peer`."""

    def renew(self) -> bool:
        """
        Read the files again if they have changed since they were last read; returns whether a new pair is in use.

        Raises:
            CertificateUnusable: the files cannot be used; the old pair stays, and the next call tries again.
        """
        stamps = self._stamps()
        if stamps == self._pair.stamps:
            return False
        self._pair = self._read(stamps)
        return True

    def _stamps(self) -> tuple[object, ...]:
        """Values that change when one of the files is written, replaced or linked to another."""
        try:
            return tuple(_stamp(os.stat(path)) for path in (self._certificate, self._key))
        except OSError as error:
            raise self._unusable(error.strerror or "unreadable") from error

    def _read(self, stamps: tuple[object, ...]) -> _Pair:
        # The stamps are older than the content: a file that is written meanwhile differs at the next check.
        try:
            chain = _certificates(Path(self._certificate).read_bytes())
            key = crypto.load_privatekey(crypto.FILETYPE_PEM, Path(self._key).read_bytes(), lambda _rw: b"")
            options = CertificateOptions(
                privateKey=key, certificate=chain[0], extraCertChain=chain[1:], raiseMinimumTo=TLSVersion.TLSv1_2
            )
            context = options.getContext()
            context.check_privatekey()
            configure_context(context, self.groups)
            return _Pair(stamps, context, chain[0].to_cryptography().not_valid_after_utc)
        except OSError as error:
            raise self._unusable(error.strerror or "unreadable") from error
        except Exception as error:
            # Each of three parsers has its own errors for a malformed file.
            raise self._unusable("it is no PEM or they do not match") from error

    def _unusable(self, what: str) -> CertificateUnusable:
        return CertificateUnusable(certificate=self._certificate, key=self._key, what=what)


class CertificateConnection(SSL.Connection):
    """
    The client side of a connection to a server with a certificate.

    Attributes:
        name: whom the certificate must name.
        defect: what OpenSSL found wrong with the chain; empty for nothing.
    """

    def __init__(self, context: SSL.Context, name: str) -> None:
        super().__init__(context, None)
        self.name = name
        self.defect = ""


@implementer(IOpenSSLClientConnectionCreator)
class CertificateClientCreator(Creator):
    """
    Creates the client side of TLS 1.2 and 1.3 to servers that have a certificate and no SPIFFE identity.

    The chain must lead to a root of the system, and the certificate must name the host (RFC 9525).

    Args:
        host: a DNS name in ASCII, which is sent as SNI, or an IP address.
        observer: receives the handshakes.
    """

    role = "client"

    def __init__(self, host: str, *, observer: ConnectionObserver | None = None) -> None:
        super().__init__("default", observer)
        self._host = host.removesuffix(".")
        options = CertificateOptions(trustRoot=platformTrust(), raiseMinimumTo=TLSVersion.TLSv1_2)
        self._context: SSL.Context = options.getContext()
        self._context.set_verify(SSL.VERIFY_PEER, _keep_defect)
        configure_context(self._context, self.groups)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one outgoing connection."""
        connection = CertificateConnection(self._context, self._host)
        if not is_ip_literal(self._host):
            connection.set_tlsext_host_name(self._host.encode("ascii"))
        return connection

    def verified_peer(self, connection: SSL.Connection, address: str) -> None:
        """Verify the name in the certificate; OpenSSL has verified its chain in the handshake."""
        try:
            (verify_ip_address if is_ip_literal(self._host) else verify_hostname)(connection, self._host)
        except (VerificationError, CertificateError) as error:
            raise ServerCertificateInvalid(
                address=address, alert="bad_certificate", name=self._host, cause="it names another host"
            ) from error


@dataclass(frozen=True, slots=True)
class TlsParameters:
    """What a handshake negotiated."""

    version: str
    group: str
    cipher: str

    @property
    def post_quantum(self) -> bool:
        """Whether the key agreement is."""
        return is_hybrid(self.group)


def tls_parameters(transport: object) -> TlsParameters | None:
    """The parameters of an established connection; None where the transport is not TLS."""
    get_handle = getattr(transport, "getHandle", None)
    handle = None if get_handle is None else get_handle()
    if not isinstance(handle, SSL.Connection):
        return None
    return TlsParameters(
        handle.get_protocol_version_name().removeprefix("TLSv"),
        iana_name(handle.get_group_name()),
        handle.get_cipher_name() or "unknown",
    )


def _keep_defect(
    connection: SSL.Connection, _certificate: crypto.X509, number: int, _depth: int, accepted: int
) -> bool:
    if not accepted and isinstance(connection, CertificateConnection):
        connection.defect = ffi.string(lib.X509_verify_cert_error_string(number)).decode("ascii")
    return bool(accepted)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _certificates(pem: bytes) -> list[crypto.X509]:
    found = [crypto.load_certificate(crypto.FILETYPE_PEM, _MARKER + part) for part in pem.split(_MARKER)[1:]]
    if not found:
        raise ValueError("no certificate")
    return found
