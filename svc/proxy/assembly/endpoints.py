"""The endpoints of a listener by its configuration: where its clients connect, and the way to its upstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint, IStreamServerEndpoint

from svc.identity import SvidEvidence
from svc.identity.matchers import parse_matcher
from svc.process.clock import utc_now
from svc.proxy.config import ListenerSettings
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.observers import ListenerObserver
from svc.settings import HostPort
from svc.transport.addresses import TcpAddress, UnixAddress, parse_address
from svc.transport.creators import HTTP_1_1, MQTT, client_creator, server_creator
from svc.transport.endpoints import (
    MutualTlsClientEndpoint,
    MutualTlsServerEndpoint,
    PlainClientEndpoint,
    PlainServerEndpoint,
)
from svc.transport.limits import Timeouts, connection_limit, handshake_limit, waiting_limit


class Endpoints:
    """Makes endpoints; ``authorize`` raises for a verified peer that is on a deny list."""

    def __init__(self, reactor: Any, rotation: CredentialRotation, authorize: Callable[[SvidEvidence], None]) -> None:
        self._reactor = reactor
        self._rotation = rotation
        self._authorize = authorize

    def server(
        self,
        settings: ListenerSettings,
        observer: ListenerObserver,
        first: tuple[Callable[[], bool], ...] = (),
        last: tuple[Callable[[], bool], ...] = (),
    ) -> IStreamServerEndpoint:
        """Listen; ``first`` and ``last`` evict a connection of a client, before and after those without a handshake."""
        address = TcpAddress(settings.listen.host, settings.listen.port)
        limits = settings.limits
        # With `tcp` and `mqtt` a full inbound listener still needs handshakes, to know whose connections come.
        relays_inbound = settings.protocol != "http" and settings.direction == "inbound"
        connections = connection_limit(limits.connections + (limits.handshakes if relays_inbound else 0))
        waiting, handshakes = waiting_limit(limits.waiting), handshake_limit(limits.handshakes)

        def evict() -> bool:
            return (
                any(each() for each in first)
                or waiting.evict()
                or handshakes.evict_stalled(self._reactor.seconds())
                or any(each() for each in last)
            )

        if settings.direction == "outbound":
            return PlainServerEndpoint(self._reactor, address, connections=connections, observer=observer, evict=evict)
        creator = server_creator(
            self._rotation, clock=utc_now, alpn=_alpn(settings), groups=settings.keyExchange, observer=observer
        )
        return MutualTlsServerEndpoint(
            self._reactor,
            address,
            creator,
            connections=connections,
            handshakes=handshakes,
            waiting=waiting,
            timeouts=Timeouts(handshake=settings.timeouts.handshake),
            observer=observer,
            proxy_protocol=settings.proxyProtocol == "v2",
            evict=evict,
        )

    def client(self, settings: ListenerSettings, observer: ListenerObserver) -> IStreamClientEndpoint:
        """Connect to the upstream."""
        upstream, timeout = settings.upstream, settings.timeouts.connect
        address: TcpAddress | UnixAddress
        if isinstance(upstream, HostPort):
            address = TcpAddress(upstream.host, upstream.port)
        else:
            address = parse_address(upstream)
        if settings.direction == "inbound":
            return PlainClientEndpoint(self._reactor, address, timeout=timeout)
        creator = client_creator(
            self._rotation,
            clock=utc_now,
            expected=parse_matcher(settings.peer or ""),
            authorize=self._authorize,
            server_name=upstream.host if isinstance(upstream, HostPort) else None,
            alpn=_alpn(settings),
            groups=settings.keyExchange,
            observer=observer,
        )
        return MutualTlsClientEndpoint(
            self._reactor,
            address,
            creator,
            connect_timeout=timeout,
            timeouts=Timeouts(handshake=settings.timeouts.handshake),
            observer=observer,
        )


def _alpn(settings: ListenerSettings) -> tuple[bytes, ...]:
    if settings.protocol == "tcp":
        return tuple(each.encode("ascii") for each in settings.alpn)
    return HTTP_1_1 if settings.protocol == "http" else MQTT


def upstream_name(settings: ListenerSettings) -> str:
    """What errors call the upstream of a listener."""
    own = "the broker" if settings.protocol == "mqtt" else "the application"
    return f"{own if settings.direction == 'inbound' else 'the peer'} at {settings.upstream}"


def upstream_host(settings: ListenerSettings) -> bytes:
    """Host of requests of the proxy's own, and of those that have none."""
    return str(settings.upstream).encode("ascii") if isinstance(settings.upstream, HostPort) else b"localhost"
