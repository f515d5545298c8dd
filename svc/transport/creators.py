"""
TLS connections under a SPIFFE identity: what Twisted asks for one connection at a time.

Owns what every creator is asked, the TLS settings, and one OpenSSL context per SVID, kept until the source has another
object. TLS 1.3 only, no tickets, no session cache, no key log. Who the peer is, is judged in ``verification``.
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
from svc.transport.errors import CredentialsMissing, CredentialsUnusable, PeerSvidInvalid, PqRequired
from svc.transport.evidence import PeerEvidence
from svc.transport.groups import GroupPolicy, apply_groups, check_groups, iana_name, is_hybrid
from svc.transport.observer import ConnectionObserver, NullObserver, Role
from svc.transport.verification import (
    Authorize,
    PeerRules,
    TlsIdentity,
    Verification,
    VerifiedConnection,
    demand_verified_peer,
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


class NoProtocolInCommon(SSL.Error):
    """Raised inside the ALPN callback, so that OpenSSL sends ``no_application_protocol`` (RFC 7301, 3.2)."""


def settle(context: SSL.Context, groups: GroupPolicy) -> None:
    """
    Give a context what holds for every TLS connection here, whoever shows which certificate.

    Args:
        context: a context that has no connection yet.
        groups: the key agreement policy.

    Raises:
        HybridGroupsUnavailable: ``groups`` is ``require`` and this OpenSSL cannot keep it.
    """
    # Tickets cost up to a third of a handshake, and a resumed session would skip the judgement of the peer.
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    # Without it OpenSSL still sends two tickets that name no session; only some bindings can say "none".
    set_num_tickets = getattr(lib, "SSL_CTX_set_num_tickets", None)
    if set_num_tickets is not None:
        set_num_tickets(context._context, 0)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    # The fast path writes whole chunks: SSL_write then takes all or reports an error.
    context.clear_mode(lib.SSL_MODE_ENABLE_PARTIAL_WRITE)
    apply_groups(context, groups)


class Creator:
    """
    What makes the TLS connections of one side, and says who is at the other end of one.

    Args:
        groups: the key agreement policy.
        observer: told of this creator's handshakes.

    Attributes:
        role: ``server`` or ``client``.
        groups: the key agreement policy.
        observer: told of this creator's handshakes.

    Raises:
        HybridGroupsUnavailable: ``groups`` is ``require`` and this OpenSSL cannot keep it.
    """

    role: ClassVar[Role]

    def __init__(self, groups: GroupPolicy, observer: ConnectionObserver | None) -> None:
        check_groups(groups)
        self.groups = groups
        self.observer: ConnectionObserver = observer if observer is not None else NullObserver()

    def ready(self) -> None:
        """
        Make sure that a connection can be created now.

        Raises:
            TransportError: it cannot; the class says why.
        """

    def judged(self, connection: SSL.Connection, address: str) -> PeerEvidence | None:
        """
        Say what a complete handshake proved.

        Args:
            connection: one that this creator has made.
            address: the peer's address.

        Returns:
            The evidence, or None where peers show nothing.

        Raises:
            TransportError: the peer is not accepted.
        """
        raise NotImplementedError


class IdentityCreator(Creator):
    """
    What server and client creators under an identity share: settings, and the context of the current SVID.

    Args:
        rules: what the peer must satisfy; its source gives our credentials too.
        alpn: the protocols spoken, best first; none means that ALPN is ignored.
        groups: the key agreement policy.
        observer: told of this creator's handshakes.

    Attributes:
        alpn: the protocols spoken.

    Raises:
        HybridGroupsUnavailable: ``groups`` is ``require`` and this OpenSSL cannot keep it.
    """

    _method: ClassVar[int]

    def __init__(
        self, rules: PeerRules, *, alpn: Sequence[bytes], groups: GroupPolicy, observer: ConnectionObserver | None
    ) -> None:
        super().__init__(groups, observer)
        self.alpn = tuple(alpn)
        self._rules = rules
        self._cached: tuple[X509Svid, object, SSL.Context] | None = None

    def ready(self) -> None:
        """
        Make sure that a connection can be created now.

        Raises:
            CredentialsMissing: the source has no SVID or bundles yet.
            CredentialsUnusable: OpenSSL refuses the SVID's chain or key.
        """
        self._current()

    def judged(self, connection: SSL.Connection, address: str) -> PeerEvidence:
        """
        Say who the verified peer is; see :meth:`Creator.judged`.

        Args:
            connection: one that this creator has made, its handshake complete.
            address: the peer's address.

        Returns:
            The evidence, which the connection keeps.

        Raises:
            TransportError: there is none, or not of the key agreement that is required.
        """
        if not isinstance(connection, VerifiedConnection):
            raise PeerSvidInvalid(address=address, alert="", detail="internal_error", cause="it was never judged")
        verification = connection.verification
        if verification.evidence is None or verification.refusal is not None:
            raise verification.error(address)
        group = iana_name(connection.get_group_name())
        if self.groups == "require" and not is_hybrid(group):
            raise PqRequired(address=address, alert="")
        connection.peer_evidence = PeerEvidence(
            svid=verification.evidence,
            group=group,
            cipher=connection.get_cipher_name() or "unknown",
            tls_version=connection.get_protocol_version_name().removeprefix("TLSv"),
            post_quantum=is_hybrid(group),
            own_svid=connection.own_svid,
        )
        return connection.peer_evidence

    def _current(self) -> tuple[X509Svid, SSL.Context]:
        source = self._rules.source
        try:
            svid, bundles = source.svid, source.bundles
        except SvcError as error:
            raise CredentialsMissing(detail=error.reason) from error
        if self._cached is None or self._cached[0] is not svid or self._cached[1] is not bundles:
            self._cached = (svid, bundles, self._build(svid))
        return svid, self._cached[2]

    def _build(self, svid: X509Svid) -> SSL.Context:
        context = SSL.Context(self._method)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_max_proto_version(SSL.TLS1_3_VERSION)
        settle(context, self.groups)
        demand_verified_peer(context)
        self._set_alpn(context)
        _present(context, svid)
        return context

    def _set_alpn(self, context: SSL.Context) -> None:
        raise NotImplementedError

    def _connection(self) -> VerifiedConnection:
        svid, context = self._current()
        return VerifiedConnection(context, Verification(self._rules), svid, self.alpn)


@implementer(IOpenSSLServerConnectionCreator)
class ServerCreator(IdentityCreator):
    """Creates the server side of mutual TLS; a client must present an SVID."""

    role = "server"
    _method = SSL.TLS_SERVER_METHOD

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """
        Create the TLS state of one accepted connection.

        Args:
            tlsProtocol: the protocol that will drive it.

        Returns:
            The connection.
        """
        return self._connection()

    def _set_alpn(self, context: SSL.Context) -> None:
        if not self.alpn:
            return
        spoken = self.alpn

        def select(connection: SSL.Connection, offered: list[bytes]) -> bytes:
            for protocol in spoken:
                if protocol in offered:
                    return protocol
            if isinstance(connection, VerifiedConnection):
                connection.alpn_offered = tuple(offered)
            raise NoProtocolInCommon()

        context.set_alpn_select_callback(select)


@implementer(IOpenSSLClientConnectionCreator)
class ClientCreator(IdentityCreator):
    """
    Creates the client side of mutual TLS.

    Args:
        rules: what the server must satisfy.
        alpn: the protocols offered.
        groups: the key agreement policy.
        observer: told of this creator's handshakes.
        server_name: the DNS name to indicate, or None.
    """

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
        self._server_name = _indicated(server_name)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """
        Create the TLS state of one outgoing connection.

        Args:
            tlsProtocol: the protocol that will drive it.

        Returns:
            The connection.
        """
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
    Serve under the identity of a source.

    Args:
        source: gives SVID and bundles; read anew for each connection.
        clock: the time at which peers are judged, aware UTC.
        authorize: decides on the verified client; raises an ``SvcError`` to refuse it in the handshake.
        alpn: the protocols spoken, best first. A client that offers only others is refused; one that offers none is
            accepted. Empty: ALPN is ignored.
        groups: ``default`` prefers hybrid key agreement, ``require`` accepts nothing else.
        observer: told of each handshake.

    Returns:
        The creator, for ``MutualTlsServerEndpoint`` or Twisted's own TLS wrappers.

    Raises:
        HybridGroupsUnavailable: ``groups`` is ``require`` and this OpenSSL cannot keep it.
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
    Connect under the identity of a source.

    Args:
        source: gives SVID and bundles; read anew for each connection.
        clock: the time at which peers are judged, aware UTC.
        expected: the identities that the server may have.
        server_name: the name to indicate; an IP literal is not sent (RFC 6066, section 3).
        authorize: a further decision on the verified server; raises an ``SvcError`` to refuse it.
        alpn: the protocols offered; empty offers none.
        groups: ``default`` offers hybrid and classical key agreement, ``require`` hybrid alone.
        observer: told of each handshake.

    Returns:
        The creator, for ``MutualTlsClientEndpoint`` or Twisted's own TLS wrappers.

    Raises:
        HybridGroupsUnavailable: ``groups`` is ``require`` and this OpenSSL cannot keep it.
    """
    rules = PeerRules(source, clock, expected, authorize)
    return ClientCreator(rules, alpn=alpn, groups=groups, observer=observer, server_name=server_name)


def _indicated(server_name: str | None) -> bytes | None:
    name = TcpAddress(server_name, 0).server_name if server_name else None
    return name.removesuffix(".").encode("ascii") if name else None


def _present(context: SSL.Context, svid: X509Svid) -> None:
    pem = svid.private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        context.use_certificate(svid.chain[0])
        for certificate in svid.chain[1:]:
            context.add_extra_chain_cert(certificate)
        # pyOpenSSL takes ML-DSA keys only as its own PKey objects, which it calls deprecated.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, pem))
        context.check_privatekey()
    except (SSL.Error, crypto.Error) as error:
        raise CredentialsUnusable(spiffe_id=svid.spiffe_id, detail=_openssl_words(error)) from error


def _openssl_words(error: Exception) -> str:
    queue = error.args[0] if error.args else ()
    return "; ".join(entry[-1] for entry in queue if entry) or "no reason given"
