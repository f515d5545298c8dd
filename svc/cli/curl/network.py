"""
The network of one exchange: the local trust, connections to the server, and the reactor that runs them.

Owns the errors of a connection that cannot be opened, in the words of the command line, and that a connection which
follows another one goes to the same address and to no other identity. TLS is :mod:`svc.transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

from twisted.internet import error as twisted_errors
from twisted.internet.defer import Deferred

from svc.cli.curl.plan import CurlPlan
from svc.cli.errors import NetworkError, ServerIdentityUnexpected, ServerTrustDomainUnexpected
from svc.cli.logs import begin_logging
from svc.cli.output import Console
from svc.cli.reactor import run_until_done
from svc.cli.trust import LocalTrust
from svc.client import debug_log
from svc.client.connection import ChannelFactory, HttpChannel, OpenConnection, address_of
from svc.client.exchange import ExchangeContext
from svc.client.target import BrokerTarget, Target
from svc.client.verification import Trust
from svc.errors import SvcError
from svc.identity.matchers import ExactID, Matcher
from svc.process.clock import use_monotonic_clock
from svc.transport import errors as transport_errors
from svc.transport.creators import client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint, PlainClientEndpoint, TcpAddress
from svc.transport.evidence import PeerEvidence, peer_evidence

#: Long enough for three SYN retransmissions; a user does not wait longer for an address that does not answer.
CONNECT_SECONDS: Final = 10.0


_T = TypeVar("_T")


def run_on_network(plan: CurlPlan, console: Console, work: Callable[[ExchangeContext], Coroutine[Any, Any, _T]]) -> _T:
    """Run the work of an exchange on the global reactor, once per process."""
    from twisted.internet import reactor

    use_monotonic_clock(reactor)
    begin_logging(plan.options, console)
    context = NetworkContext(reactor, plan)
    return run_until_done(reactor, lambda: Deferred.fromCoroutine(work(context)), context.close)


class NetworkContext:
    """Implements :class:`svc.client.exchange.ExchangeContext` with a reactor."""

    def __init__(self, reactor: Any, plan: CurlPlan) -> None:
        self.clock = reactor
        self._demands = plan.demands
        self._target = plan.request.target
        self._trust = LocalTrust(reactor, plan.options.spiffe_socket, plan.demands.profile, plan.pq_bundle)

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def trust(self) -> Trust:
        return await self._trust.trust()

    async def dial(self, previous: OpenConnection | None) -> OpenConnection:
        address = address_of(self._target, previous)
        return await (self._dial_tls if self._target.secure else self._dial_plain)(address, previous)

    def release(self, connection: OpenConnection) -> None:
        connection.channel.close()

    async def close(self) -> None:
        """Stop the stream of the Workload API."""
        await self._trust.close()

    async def _dial_plain(self, address: TcpAddress, _previous: OpenConnection | None) -> OpenConnection:
        debug_log.connecting(self._target.server, None)
        endpoint = PlainClientEndpoint(self.clock, address, timeout=CONNECT_SECONDS)
        try:
            channel = cast(HttpChannel, await endpoint.connect(ChannelFactory(self._target)))
        except transport_errors.TransportError as error:
            raise connect_error(error, self._target) from error
        return _opened(channel, None)

    async def _dial_tls(self, address: TcpAddress, previous: OpenConnection | None) -> OpenConnection:
        source = await self._trust.source()
        expected: Matcher = self._demands.accepted_servers(source.svid.spiffe_id.trust_domain)
        pinned = bool(self._demands.expected)
        if previous is not None and previous.peer is not None:
            expected, pinned = ExactID(previous.peer.svid.spiffe_id), True
        creator = client_creator(source, clock=self.now, expected=expected, server_name=self._target.server_name)
        debug_log.connecting(self._target.server, expected)
        endpoint = MutualTlsClientEndpoint(self.clock, address, creator, connect_timeout=CONNECT_SECONDS)
        try:
            channel = cast(HttpChannel, await endpoint.connect(ChannelFactory(self._target)))
        except transport_errors.TransportError as error:
            raise connect_error(error, self._target, pinned=pinned) from error
        return _opened(channel, peer_evidence(channel.transport))


def _opened(channel: HttpChannel, peer: PeerEvidence | None) -> OpenConnection:
    debug_log.connected(None if channel.transport is None else channel.transport.getPeer(), peer)
    return OpenConnection(channel, peer)


def connect_error(error: SvcError, target: Target | BrokerTarget, *, pinned: bool = False) -> SvcError:
    """
    The error of the command line for one of the transport; one without better words is returned as it is.

    Args:
        pinned: whether the expected identity was named.
    """
    cause = error.__cause__
    if isinstance(cause, twisted_errors.DNSLookupError):
        return NetworkError("name_unresolved", host=target.host)
    if isinstance(cause, twisted_errors.ConnectionRefusedError):
        return NetworkError("connection_refused", server=target.server)
    if isinstance(error, transport_errors.ConnectTimeout):
        return NetworkError("connect_timeout", server=target.server, seconds=f"{CONNECT_SECONDS:g}")
    if isinstance(error, transport_errors.ConnectFailed):
        return NetworkError("connect_failed", server=target.server, detail=error.detail)
    if isinstance(error, transport_errors.PeerIdentityUnexpected):
        unexpected = ServerIdentityUnexpected if pinned else ServerTrustDomainUnexpected
        return unexpected(**error.evidence)
    if isinstance(error, transport_errors.PeerSvidInvalid):
        return NetworkError("svid_invalid", **error.evidence, detail_reason=error.detail or error.reason)
    if isinstance(error, transport_errors.HandshakeTimeout):
        return NetworkError("handshake_timeout", **error.evidence)
    if type(error) is transport_errors.HandshakeFailed:
        return NetworkError("handshake_failed", **error.evidence, server=target.server)
    return error
