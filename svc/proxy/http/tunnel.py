"""
Two connections joined after a granted upgrade: octets pass both ways, with back-pressure.

The protocol is opaque. When one side ends, what it sent is delivered and the other side is closed; one that breaks off
breaks off the other side, so that neither can take a part for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from svc.proxy.http.upstream import UpstreamConnection


@implementer(IPushProducer)
class Tunnel:
    """
    Relays octets; ``moved`` is called with the octets passed to the application, and with 0 for any to the client.

    It is the producer of the application's transport, which would otherwise end the client's transport with itself.
    """

    def __init__(self, client: Any, upstream: UpstreamConnection, moved: Callable[[int], None]) -> None:
        self._client = client
        self._upstream = upstream
        self._moved = moved
        self._client_open = True
        self._upstream_open = True
        #: Octets that each side sent.
        self.from_client_octets = 0
        self.from_upstream_octets = 0

    @property
    def ended(self) -> bool:
        """Whether the application has ended it."""
        return not self._upstream_open

    def start(self, from_client: bytes) -> None:
        """Join the two."""
        from_upstream = self._upstream.tunnel(self)
        # First, since the client's transport may ask for a pause as soon as a producer is registered.
        self._upstream.resumeProducing()
        self._client.registerProducer(self._upstream, True)
        if from_upstream:
            self.from_upstream(from_upstream)
        if self._upstream.dead:
            self.upstream_gone(complete=self._upstream.complete)
            return
        self._upstream.transport.registerProducer(self, True)
        if from_client:
            self.from_client(from_client)

    def from_client(self, data: bytes) -> None:
        """Pass octets on to the application."""
        if self._upstream_open:
            self._moved(len(data))
            self.from_client_octets += len(data)
            self._upstream.write(data)

    def from_upstream(self, data: bytes) -> None:
        """Pass octets on to the client."""
        if self._client_open:
            self._moved(0)
            self.from_upstream_octets += len(data)
            self._client.write(data)

    def upstream_gone(self, *, complete: bool) -> None:
        """The application's connection ended; ``complete`` where it ended in order."""
        self._upstream_open = False
        if not self._client_open:
            return
        if not complete:
            self._client.abortConnection()
        else:
            # A paused client would not see that the connection is closed.
            self._client.resumeProducing()
            self._client.unregisterProducer()
            self._client.loseConnection()

    def client_gone(self, *, complete: bool) -> None:
        """The client's connection ended; ``complete`` where it ended in order."""
        self._client_open = False
        if self._upstream_open:
            self._upstream_open = False
            if not self._upstream.dead:
                self._upstream.transport.unregisterProducer()
            if complete:
                self._upstream.close()
            else:
                self._upstream.abort()

    # The producer of the application's transport.

    def pauseProducing(self) -> None:
        """The application reads slower than the client sends."""
        if self._client_open:
            self._client.pauseProducing()

    def resumeProducing(self) -> None:
        """The application caught up."""
        if self._client_open:
            self._client.resumeProducing()

    def stopProducing(self) -> None:
        """The application's connection ended; its own protocol is called."""
