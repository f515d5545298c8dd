"""
Opening connections to one server: plain, or mutual TLS with a judged peer.

Owns what is told where no connection comes about, and that a connection which follows another one goes to the same
address and to no other identity. TLS itself is :mod:`svc.transport`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from twisted.internet import error as twisted_errors
from twisted.internet.protocol import Factory

from svc.cli.exchange.channel import HttpChannel
from svc.cli.exchange.demands import Demands
from svc.cli.exchange.errors import ConnectFailed, ConnectionRefused, ConnectTimeout, NameUnresolved
from svc.cli.exchange.judgement import acceptable_server
from svc.cli.exchange.line import Connected
from svc.cli.exchange.target import Target
from svc.errors import SvcError
from svc.identity.matchers import AnyOf, ExactID, Matcher
from svc.transport import errors as transport_errors
from svc.transport.creators import client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, PlainClientEndpoint, TcpAddress
from svc.transport.evidence import peer_evidence
from svc.workload.interface import CredentialSource

#: Three SYN retransmissions fit in; a person does not wait longer for a silent address.
CONNECT_SECONDS: Final = 10.0


class PlainDialer:
    """
    Opens plain connections.

    Args:
        reactor: the reactor.
        target: the server.
    """

    def __init__(self, reactor: Any, target: Target) -> None:
        self._reactor = reactor
        self._target = target

    async def dial(self, before: Connected | None) -> Connected:
        """See :meth:`svc.cli.exchange.line.Dialer.dial`."""
        address = _address(self._target, before)
        endpoint = PlainClientEndpoint(self._reactor, address, timeout=CONNECT_SECONDS)
        try:
            channel = await endpoint.connect(_ChannelFactory(self._target))
        except transport_errors.TransportError as error:
            raise explained(error, self._target) from error
        return Connected(_channel(channel), None)


class TlsDialer:
    """
    Opens mutual TLS connections.

    Args:
        reactor: the reactor.
        target: the server.
        demands: say who may answer.
        source: gives our own credentials and the bundles, once they are there.
        now: tells the time.
    """

    def __init__(
        self,
        reactor: Any,
        target: Target,
        demands: Demands,
        source: Callable[[], Awaitable[CredentialSource]],
        now: Callable[[], datetime],
    ) -> None:
        self._reactor = reactor
        self._target = target
        self._demands = demands
        self._source = source
        self._now = now

    async def dial(self, before: Connected | None) -> Connected:
        """See :meth:`svc.cli.exchange.line.Dialer.dial`."""
        source = await self._source()
        expected: Matcher = acceptable_server(self._demands, source.svid.spiffe_id.trust_domain)
        if before is not None and before.peer is not None:
            expected = ExactID(before.peer.svid.spiffe_id)
        creator = client_creator(source, clock=self._now, expected=expected, server_name=self._target.server_name)
        address = _address(self._target, before)
        endpoint = MutualTlsClientEndpoint(self._reactor, address, creator, connect_timeout=CONNECT_SECONDS)
        try:
            channel = _channel(await endpoint.connect(_ChannelFactory(self._target)))
        except transport_errors.TransportError as error:
            raise explained(error, self._target, pinned=isinstance(expected, ExactID | AnyOf)) from error
        return Connected(channel, peer_evidence(channel.transport))


class HandshakeRefused(transport_errors.HandshakeFailed):
    """the TLS handshake with {address} failed: {detail}"""

    hint = "{server} must speak mutual TLS 1.3 with SPIFFE identities, and accept ours"


class ServerSvidInvalid(transport_errors.PeerSvidInvalid):
    """the SVID of {address} is not valid: {cause}"""

    hint = "the server's trust domain must be ours or federated, its certificate current, and both clocks right"

    @property
    def detail_reason(self) -> str:
        """The reason below ``svid_invalid``."""
        return self.detail or self.reason


class HandshakeSlow(transport_errors.HandshakeTimeout):
    """the TLS handshake with {address} was not complete after {seconds} s"""

    hint = (
        "something listens there and does not answer TLS: is it the port of an https listener, and is svc-proxy stuck?"
    )


class ServerUnexpected(transport_errors.PeerIdentityUnexpected):
    """the server at {address} is {spiffe_id}; expected {expected}"""

    hint = "is the address right? if this server is the one you mean, correct --expect-id or SVC_EXPECT_ID"


class ServerForeign(ServerUnexpected):
    """the server at {address} is {spiffe_id}; expected any workload of the own trust domain: {expected}"""

    hint = "a server of another trust domain is accepted only where --expect-id names it: --expect-id {spiffe_id}"


def explained(error: SvcError, target: Target, *, pinned: bool = False) -> SvcError:
    """
    Say in the words of the command line why no connection came about.

    Args:
        error: what the transport raised.
        target: the server.
        pinned: whether the expected identity was named.

    Returns:
        The error to raise in its place; one without better words comes back as it is.
    """
    cause = error.__cause__
    if isinstance(cause, twisted_errors.DNSLookupError):
        return NameUnresolved(host=target.host, server=target.server)
    if isinstance(cause, twisted_errors.ConnectionRefusedError):
        return ConnectionRefused(server=target.server)
    if isinstance(error, transport_errors.ConnectTimeout):
        return ConnectTimeout(server=target.server, seconds=f"{CONNECT_SECONDS:g}")
    if isinstance(error, transport_errors.ConnectFailed):
        return ConnectFailed(server=target.server, detail=error.detail)
    unexpected = ServerUnexpected if pinned else ServerForeign
    if isinstance(error, transport_errors.PeerIdentityUnexpected):
        return unexpected(**{**error.evidence, "server": target.server})
    for ours in (HandshakeRefused, HandshakeSlow, ServerSvidInvalid):
        if type(error) is ours.__base__:
            return ours(**{**error.evidence, "server": target.server})
    return error


class _ChannelFactory(Factory):
    noisy = False

    def __init__(self, target: Target) -> None:
        self._target = target

    def buildProtocol(self, addr: object) -> HttpChannel:
        return HttpChannel(self._target.server, secure=self._target.secure)


def _channel(protocol: object) -> HttpChannel:
    if not isinstance(protocol, HttpChannel):
        raise TypeError(f"the endpoint gave a {type(protocol).__name__}")
    return protocol


def _address(target: Target, before: Connected | None) -> TcpAddress:
    """Give the address to connect to: that of the connection before, so that a name with several stays at one."""
    if before is not None and before.channel.transport is not None:
        host = getattr(before.channel.transport.getPeer(), "host", target.host)
        return TcpAddress(host, target.port)
    return TcpAddress(target.host, target.port)
