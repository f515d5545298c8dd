"""
TLS with a server certificate, without SPIFFE identities of clients.

Owns the listener's context made from PEM files, and whether the files have changed since (the caller decides when to
check); and the client that verifies such a server by the roots of the system and the host name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cryptography import x509
from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.internet.ssl import CertificateOptions, TLSVersion, platformTrust
from zope.interface import implementer

from svc.errors import SvcError
from svc.identity.svid import X509Svid
from svc.transport.addresses import is_ip_literal
from svc.transport.binding import ffi, lib
from svc.transport.client_certificates import (
    ClientAuthorities,
    ClientCertificate,
    ClientCertificateConnection,
    ClientTrust,
    file_stamp,
    read_certificates,
)
from svc.transport.creators import Creator, configure_context, use_svid
from svc.transport.errors import (
    ClientCertificateInvalid,
    OwnCredentialsMissing,
    ServerCertificateInvalid,
    TransportError,
)
from svc.transport.groups import iana_name, is_hybrid
from svc.transport.observer import ConnectionObserver
from svc.transport.verification import TlsIdentity

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol

_T = TypeVar("_T")


class CertificateUnusable(TransportError):
    """the certificate {certificate} or the key {key} cannot be used: {what}"""

    reason = "certificate_unusable"
    hint = "both are PEM files; the key belongs to the first certificate of the file, its chain follows"
    certificate: str
    key: str
    what: str


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of all files at one time; without own files ``chain`` is empty."""

    stamps: tuple[object, ...]
    chain: tuple[crypto.X509, ...] = ()
    key: crypto.PKey | None = None
    not_after: datetime | None = None
    clients: ClientTrust | None = None


@implementer(IOpenSSLServerConnectionCreator)
class CertificateCreator(Creator):
    """
    Creates the server side of TLS 1.2 and 1.3 with a certificate; clients present none, or an ordinary one.

    Args:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with its private key.
        source: its SVID is presented in place of files, which are empty then.
        clients: by which authorities clients are verified; None requests no certificate.
        observer: receives the handshakes.

    Raises:
        CertificateUnusable: a file is absent, not readable, no PEM, or the key belongs to another certificate.
        ClientAuthoritiesUnusable: the same for files of ``clients``.
    """

    role = "server"
    #: The context in use, and the SVID that it presents where there is no file.
    _cached: tuple[X509Svid | None, SSL.Context] | None = None
    _content: _Content

    def __init__(
        self,
        certificate: str = "",
        key: str = "",
        *,
        source: TlsIdentity | None = None,
        clients: ClientAuthorities | None = None,
        observer: ConnectionObserver | None = None,
    ) -> None:
        super().__init__("default", observer)
        self._files = () if source is not None else (certificate, key)
        self._source = source
        self._clients = clients
        self._use(self._read(self._stamps()))

    @property
    def verifies_clients(self) -> bool:
        """Whether clients present certificates."""
        return self._clients is not None

    @property
    def not_after(self) -> datetime | None:
        """When the certificate of the file ends, aware UTC; None where there is no file."""
        return self._content.not_after

    def check_ready(self) -> None:
        """
        See :meth:`svc.transport.creators.Creator.check_ready`.

        Raises:
            OwnCredentialsMissing: the source has no SVID.
            TransportError: ``credentials_unusable`` where OpenSSL refuses it.
        """
        self._current_context()

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one accepted connection."""
        context, trust = self._current_context(), self._content.clients
        return SSL.Connection(context, None) if trust is None else ClientCertificateConnection(context, trust)

    def verified_peer(self, connection: SSL.Connection, address: str) -> None:
        """
        Accept every client whose certificate was verified, or that needs none.

        The result is on the connection: see :func:`svc.transport.client_certificates.client_certificate`.
        """
        if isinstance(connection, ClientCertificateConnection):
            connection.verified(address)

    def verify_again(self, certificate: ClientCertificate) -> None:
        """
        Verify a client's certificate by the files that are in use now.

        Raises:
            ClientCertificateInvalid: it would be refused now.
        """
        trust = self._content.clients
        if trust is None:
            raise ClientCertificateInvalid(address="a client", alert="", cause="no certificates are accepted")
        trust.verify_again(certificate)

    def renew(self) -> bool:
        """
        Read the files again if they have changed since they were last read; returns whether new ones are in use.

        Raises:
            CertificateUnusable: the files cannot be used; the old ones stay, and the next call tries again.
            ClientAuthoritiesUnusable: the same for files of client authorities.
        """
        stamps = self._stamps()
        if stamps == self._content.stamps:
            return False
        self._use(self._read(stamps))
        return True

    def _stamps(self) -> tuple[object, ...]:
        """Values that change when one of the files is written, replaced or linked to another."""
        own = self._tried(lambda: tuple(file_stamp(path) for path in self._files))
        return own if self._clients is None else own + self._clients.stamps()

    def _read(self, stamps: tuple[object, ...]) -> _Content:
        # The stamps are older than the content: a file that is written meanwhile differs at the next check.
        content = self._tried(lambda: _read_pair(stamps, *self._files)) if self._files else _Content(stamps)
        return content if self._clients is None else replace(content, clients=ClientTrust.read(self._clients))

    def _use(self, content: _Content) -> None:
        """Use the content of files from now on, if contexts can be made of it."""
        self._cached = (None, self._new_context(content)) if content.chain else None
        self._content = content

    def _current_context(self) -> SSL.Context:
        if self._source is None:
            assert self._cached is not None  # noqa: S101 (made when the files were read)
            return self._cached[1]
        try:
            svid = self._source.svid
        except SvcError as error:
            raise OwnCredentialsMissing(detail=error.reason) from error
        if self._cached is None or self._cached[0] is not svid:
            context = self._new_context(self._content)
            use_svid(context, svid)
            self._cached = (svid, context)
        return self._cached[1]

    def _new_context(self, content: _Content) -> SSL.Context:
        def make() -> SSL.Context:
            own: dict[str, Any] = {}
            if content.chain:
                own = {
                    "privateKey": content.key,
                    "certificate": content.chain[0],
                    "extraCertChain": content.chain[1:],
                }
            context: SSL.Context = CertificateOptions(raiseMinimumTo=TLSVersion.TLSv1_2, **own).getContext()
            if content.chain:
                context.check_privatekey()
            configure_context(context, self.groups)
            return context

        context = self._tried(make)
        if content.clients is not None:
            content.clients.require(context)
        return context

    def _tried(self, make: Callable[[], _T]) -> _T:
        certificate, key = self._files or ("of the SVID", "of the SVID")
        try:
            return make()
        except OSError as error:
            what = error.strerror or "unreadable"
            raise CertificateUnusable(certificate=certificate, key=key, what=what) from error
        except Exception as error:
            # Each of three parsers has its own errors for a malformed file.
            what = "it is no PEM or they do not match"
            raise CertificateUnusable(certificate=certificate, key=key, what=what) from error


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

    The chain must lead to a trusted root, and the certificate must name the host (RFC 9525).

    Args:
        host: a DNS name in ASCII, which is sent as SNI, or an IP address.
        observer: receives the handshakes.
        roots: certificates of authorities that are trusted.
        system_roots: whether the roots of the system are trusted.
    """

    role = "client"

    def __init__(
        self,
        host: str,
        *,
        observer: ConnectionObserver | None = None,
        roots: Sequence[x509.Certificate] = (),
        system_roots: bool = True,
    ) -> None:
        super().__init__("default", observer)
        # A certificate names no zone.
        self._host = host.partition("%")[0].removesuffix(".")
        trusted = platformTrust() if system_roots else None
        options = CertificateOptions(trustRoot=trusted, raiseMinimumTo=TLSVersion.TLSv1_2)
        self._context: SSL.Context = options.getContext()
        store: Any = self._context.get_cert_store()
        for each in roots:
            store.add_cert(crypto.X509.from_cryptography(each))
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


@implementer(IOpenSSLClientConnectionCreator)
class UnverifiedClientCreator(Creator):
    """
    Creates the client side of TLS 1.3 to a server that nobody verifies and to which no certificate is shown.

    For what is verified by itself once it is received, where nothing is known yet by which a server could be.

    Args:
        server_name: a DNS name in ASCII, which is sent as SNI; None for none.
    """

    role = "client"

    def __init__(self, server_name: str | None) -> None:
        super().__init__("default", None)
        self._server_name = server_name
        self._context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_3_VERSION)
        self._context.set_verify(SSL.VERIFY_NONE)
        configure_context(self._context, self.groups)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one outgoing connection."""
        connection = SSL.Connection(self._context, None)
        if self._server_name is not None:
            connection.set_tlsext_host_name(self._server_name.encode("ascii"))
        return connection

    def verified_peer(self, connection: SSL.Connection, address: str) -> None:
        """Accept every server."""


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


def _read_pair(stamps: tuple[object, ...], certificate: str, key: str) -> _Content:
    chain = tuple(read_certificates(certificate))
    private_key = crypto.load_privatekey(crypto.FILETYPE_PEM, Path(key).read_bytes(), lambda _rw: b"")
    return _Content(stamps, chain, private_key, chain[0].to_cryptography().not_valid_after_utc)
