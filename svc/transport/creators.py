"""
Connection creators: Twisted's factories of TLS connections, under a SPIFFE identity.

Owns the TLS settings of every context and one OpenSSL context per SVID, replaced when the source has another SVID or
other bundles. TLS 1.3 only, no tickets, no session cache, no key log. Peers are verified in ``verification``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from zope.interface import implementer

from svc.errors import SvcError
from svc.identity.matchers import Matcher
from svc.identity.svid import X509Svid
from svc.transport.addresses import TcpAddress
from svc.transport.binding import lib
from svc.transport.errors import (
    OwnCredentialsEnded,
    OwnCredentialsMissing,
    PeerSvidInvalid,
    TransportError,
)
from svc.transport.evidence import PeerEvidence
from svc.transport.groups import GroupPolicy, apply_groups, check_groups, iana_name, is_hybrid
from svc.transport.observer import ConnectionObserver, NullObserver, Role
from svc.transport.verification import (
    Authorize,
    PeerRules,
    PeerVerification,
    TlsIdentity,
    VerifiedConnection,
    require_verified_peer,
)

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol

__all__ = [
    "ClientCreator",
    "Creator",
    "IdentityCreator",
    "ServerCreator",
    "TlsIdentity",
    "client_creator",
    "server_creator",
]

HTTP_1_1 = (b"http/1.1",)
MQTT = (b"mqtt",)


class NoProtocolInCommon(SSL.Error):
    """Raised inside the ALPN callback, so that OpenSSL sends ``no_application_protocol`` (RFC 7301, 3.2)."""


def configure_context(context: SSL.Context, groups: GroupPolicy) -> None:
    """
    Apply the settings of every TLS listener and client to a context that has no connection yet.

    Raises:
        TransportError: ``pq_unavailable``, where ``groups`` is ``require`` and OpenSSL has no hybrid groups.
    """
    # Tickets cost up to a third of a handshake, and a resumed session would skip the verification of the peer.
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    # Without it OpenSSL still sends two tickets without a session; not every binding has the call.
    set_num_tickets = getattr(lib, "SSL_CTX_set_num_tickets", None)
    if set_num_tickets is not None:
        set_num_tickets(context._context, 0)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    # The fast path writes whole chunks: SSL_write then takes all or reports an error.
    context.clear_mode(lib.SSL_MODE_ENABLE_PARTIAL_WRITE)
    apply_groups(context, groups)


class Creator:
    """
    Creates the TLS connections of one side and returns the evidence of their peers.

    Args:
        groups: the key agreement policy.
        observer: receives the handshakes of this creator.

    Attributes:
        role: ``server`` or ``client``.

    Raises:
        TransportError: ``pq_unavailable``, where ``groups`` is ``require`` and OpenSSL has no hybrid groups.
    """

    role: ClassVar[Role]

    def __init__(self, groups: GroupPolicy, observer: ConnectionObserver | None) -> None:
        check_groups(groups)
        self.groups = groups
        self.observer: ConnectionObserver = observer if observer is not None else NullObserver()

    def check_ready(self) -> None:
        """
        Verify that a connection can be created now.

        Raises:
            TransportError: it cannot; the class is the reason.
        """

    def verified_peer(self, connection: SSL.Connection, address: str) -> PeerEvidence | None:
        """
        Return the evidence of a completed handshake, or None where clients present no certificate.

        Args:
            connection: one that this creator has made.
            address: the peer's address, for the error.

        Raises:
            TransportError: the peer is not accepted.
        """
        raise NotImplementedError


class IdentityCreator(Creator):
    """
    What server and client creators under an identity share: settings, and the context of the current SVID.

    The source of ``rules`` gives the own credentials too; ``alpn`` are the application protocols, best first.
    """

    _method: ClassVar[int]

    def __init__(
        self, rules: PeerRules, *, alpn: Sequence[bytes], groups: GroupPolicy, observer: ConnectionObserver | None
    ) -> None:
        super().__init__(groups, observer)
        self.alpn = tuple(alpn)
        self._rules = rules
        self._cached: tuple[X509Svid, object, SSL.Context] | None = None

    def check_ready(self) -> None:
        """
        See :meth:`Creator.check_ready`.

        Raises:
            OwnCredentialsMissing: the source has no SVID or bundles yet.
            TransportError: ``credentials_unusable`` where OpenSSL refuses the chain or the key of the SVID.
        """
        self._current()

    def verified_peer(self, connection: SSL.Connection, address: str) -> PeerEvidence:
        """See :meth:`Creator.verified_peer`; the connection keeps the evidence."""
        if not isinstance(connection, VerifiedConnection):
            raise PeerSvidInvalid(address=address, alert="", detail="internal_error", cause="it was not verified")
        verification = connection.verification
        if verification.evidence is None or verification.refusal is not None:
            raise verification.error(address)
        group = iana_name(connection.get_group_name())
        if self.groups == "require" and not is_hybrid(group):
            raise TransportError("pq_required", address=address, alert="")
        connection.peer_evidence = PeerEvidence(
            svid=verification.evidence,
            group=group,
            cipher=connection.get_cipher_name() or "unknown",
            tls_version=connection.get_protocol_version_name().removeprefix("TLSv"),
            post_quantum=is_hybrid(group),
            own_svid=connection.own_svid,
            server_name=_server_name(connection),
            alpn=connection.get_alpn_proto_negotiated().decode("ascii", "backslashreplace"),
        )
        return connection.peer_evidence

    def _current(self) -> tuple[X509Svid, SSL.Context]:
        source = self._rules.source
        try:
            svid, bundles = source.svid, source.bundles
        except SvcError as error:
            raise OwnCredentialsMissing(detail=error.reason) from error
        if self._cached is None or self._cached[0] is not svid or self._cached[1] is not bundles:
            self._cached = (svid, bundles, self._build(svid))
        return svid, self._cached[2]

    def _build(self, svid: X509Svid) -> SSL.Context:
        context = SSL.Context(self._method)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_max_proto_version(SSL.TLS1_3_VERSION)
        configure_context(context, self.groups)
        require_verified_peer(context)
        self._set_alpn(context)
        use_svid(context, svid)
        return context

    def _set_alpn(self, context: SSL.Context) -> None:
        raise NotImplementedError

    def _connection(self) -> VerifiedConnection:
        svid, context = self._current()
        return VerifiedConnection(context, PeerVerification(self._rules), svid, self.alpn)


@implementer(IOpenSSLServerConnectionCreator)
class ServerCreator(IdentityCreator):
    """Creates the server side of mutual TLS; a client must present an SVID."""

    role = "server"
    _method = SSL.TLS_SERVER_METHOD

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one accepted connection."""
        return self._connection()

    def _set_alpn(self, context: SSL.Context) -> None:
        if not self.alpn:
            return
        accepted = self.alpn

        def select(connection: SSL.Connection, offered: list[bytes]) -> bytes:
            for protocol in accepted:
                if protocol in offered:
                    return protocol
            if isinstance(connection, VerifiedConnection):
                connection.alpn_offered = tuple(offered)
            raise NoProtocolInCommon()

        context.set_alpn_select_callback(select)


@implementer(IOpenSSLClientConnectionCreator)
class ClientCreator(IdentityCreator):
    """Creates the client side of mutual TLS; ``server_name`` is the DNS name for SNI, or None."""

    role = "client"
    _method = SSL.TLS_CLIENT_METHOD

    def __init__(
        self,
        rules: PeerRules,
        *,
        alpn: Sequence[bytes],
        groups: GroupPolicy,
        observer: ConnectionObserver | None,
        server_name: str | None,
    ) -> None:
        super().__init__(rules, alpn=alpn, groups=groups, observer=observer)
        self._server_name = _sni_name(server_name)

    def check_ready(self) -> None:
        """
        See :meth:`IdentityCreator.check_ready`.

        Raises:
            OwnCredentialsEnded: a certificate of the SVID's chain has ended, so every server would refuse it.
        """
        svid, _context = self._current()
        if self._rules.clock() > svid.chain_not_after:
            raise OwnCredentialsEnded(
                spiffe_id=svid.spiffe_id, ended=svid.chain_not_after.isoformat(timespec="seconds")
            )

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one outgoing connection."""
        connection = self._connection()
        if self._server_name is not None:
            connection.set_tlsext_host_name(self._server_name)
        return connection

    def _set_alpn(self, context: SSL.Context) -> None:
        if self.alpn:
            context.set_alpn_protos(list(self.alpn))


def server_creator(
    source: TlsIdentity,
    *,
    clock: Callable[[], datetime],
    authorize: Authorize | None = None,
    alpn: Sequence[bytes] = HTTP_1_1,
    groups: GroupPolicy = "default",
    observer: ConnectionObserver | None = None,
) -> ServerCreator:
    """
    Create the server side of mutual TLS under the identity of a source.

    Args:
        source: gives SVID and bundles; read for each new connection.
        clock: the time at which peers are verified, aware UTC.
        authorize: decides on the verified client; raises an ``SvcError`` to refuse it in the handshake.
        alpn: the accepted protocols, best first. A client that offers only others is refused; one that offers none is
            accepted. Empty: ALPN is ignored.
        groups: ``default`` prefers hybrid key agreement, ``require`` accepts nothing else.
        observer: receives each handshake.

    Raises:
        TransportError: ``pq_unavailable``, where ``groups`` is ``require`` and OpenSSL has no hybrid groups.
    """
    return ServerCreator(PeerRules(source, clock, None, authorize), alpn=alpn, groups=groups, observer=observer)


def client_creator(
    source: TlsIdentity,
    *,
    clock: Callable[[], datetime],
    expected: Matcher,
    server_name: str | None = None,
    authorize: Authorize | None = None,
    alpn: Sequence[bytes] = HTTP_1_1,
    groups: GroupPolicy = "default",
    observer: ConnectionObserver | None = None,
) -> ClientCreator:
    """
    Create the client side of mutual TLS under the identity of a source.

    Args:
        source: gives SVID and bundles; read for each new connection.
        clock: the time at which peers are verified, aware UTC.
        expected: the identities that the server may have.
        server_name: the name for SNI; an IP literal is not sent (RFC 6066, section 3).
        authorize: a further decision on the verified server; raises an ``SvcError`` to refuse it.
        alpn: the offered protocols; empty offers none.
        groups: ``default`` offers hybrid and classical key agreement, ``require`` hybrid alone.
        observer: receives each handshake.

    Raises:
        TransportError: ``pq_unavailable``, where ``groups`` is ``require`` and OpenSSL has no hybrid groups.
    """
    rules = PeerRules(source, clock, expected, authorize)
    return ClientCreator(rules, alpn=alpn, groups=groups, observer=observer, server_name=server_name)


def _server_name(connection: SSL.Connection) -> str:
    """What the client asked for, without the dot of the root; octets that are no name match no pattern."""
    return (connection.get_servername() or b"").decode("ascii", "backslashreplace").lower().removesuffix(".")


def _sni_name(server_name: str | None) -> bytes | None:
    name = TcpAddress(server_name, 0).server_name if server_name else None
    return name.removesuffix(".").encode("ascii") if name else None


def use_svid(context: SSL.Context, svid: X509Svid) -> None:
    """
    Make a new context present an SVID.

    Raises:
        TransportError: ``credentials_unusable`` where OpenSSL refuses its chain or key.
    """
    pem = svid.private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        context.use_certificate(svid.chain[0])
        for certificate in svid.chain[1:]:
            context.add_extra_chain_cert(certificate)
        # pyOpenSSL takes ML-DSA keys only as its own PKey objects, which are deprecated.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, pem))
        context.check_privatekey()
    except (SSL.Error, crypto.Error) as error:
        raise TransportError("credentials_unusable", spiffe_id=svid.spiffe_id, detail=_openssl_text(error)) from error


def _openssl_text(error: Exception) -> str:
    queue = error.args[0] if error.args else ()
    return "; ".join(entry[-1] for entry in queue if entry) or "no reason given"
