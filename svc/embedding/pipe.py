"""
A connection inside one process: what is written to one transport is read from the other on a later reactor turn.

Order, back-pressure in both directions and the end of a connection are as with TCP. Nothing is delivered from inside
``write``, so no protocol is called while it writes.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    IStreamClientEndpoint,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.transport.errors import ConnectFailed

#: Unread octets at which the writer's producer is paused, as in Twisted's own transports.
HIGH_WATER: Final = 64 * 1024
_LOCAL: Final = IPv4Address("TCP", "127.0.0.1", 0)


@implementer(ISSLTransport, IConsumer, IPushProducer)
class PipeEnd:
    """One end. It provides ``ISSLTransport``, as the client's connection is TLS: a site then writes ``https`` links."""

    log = Logger()

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self.other: PipeEnd
        self.protocol: IProtocol
        self.disconnecting = False
        self._closed = False
        self._reading = True
        self._outgoing: list[bytes] = []
        self._size = 0
        self._producer: Any = None
        self._streaming = False
        self._paused = False
        self._scheduled: IDelayedCall | None = None

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed

    # -- Writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """See ``ITransport.write``."""
        if self._closed or not data:
            return
        self._outgoing.append(bytes(data))
        self._size += len(data)
        if self._producer is not None and self._streaming and self._size >= HIGH_WATER and not self._paused:
            self._paused = True
            self._producer.pauseProducing()
        self._schedule()

    def writeSequence(self, data: Any) -> None:
        """See ``ITransport.writeSequence``."""
        self.write(b"".join(data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """See ``IConsumer.registerProducer``."""
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        if self._closed:
            producer.stopProducing()
            return
        self._producer, self._streaming, self._paused = producer, streaming, False
        if not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """See ``IConsumer.unregisterProducer``."""
        self._producer = None
        if self.disconnecting:
            self._schedule()

    # -- Reading -----------------------------------------------------------------------------------------------------

    def pauseProducing(self) -> None:
        """Deliver nothing to this end's protocol for now."""
        self._reading = False

    def resumeProducing(self) -> None:
        """Deliver again."""
        if not self._closed and not self.disconnecting:
            self._reading = True
            self.other._schedule()

    def stopProducing(self) -> None:
        """End the connection."""
        self.loseConnection()

    # -- Closing -----------------------------------------------------------------------------------------------------

    def loseConnection(self) -> None:
        """Close when everything written is read; data received meanwhile is dropped."""
        if not self._closed and not self.disconnecting:
            self.disconnecting = True
            self._schedule()
            self.other._schedule()

    def abortConnection(self) -> None:
        """Close now and drop all data that is not delivered."""
        if not self._closed:
            self._end(ConnectionAborted(), ConnectionLost())

    def getPeer(self) -> IPv4Address:
        """An address of this machine."""
        return _LOCAL

    def getHost(self) -> IPv4Address:
        """An address of this machine."""
        return _LOCAL

    def loseWriteConnection(self) -> None:
        """Close both directions; HTTP does not use one alone."""
        self.loseConnection()

    def getTcpNoDelay(self) -> bool:
        """Always; nothing is delayed."""
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Without effect."""

    def getTcpKeepAlive(self) -> bool:
        """Never."""
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Without effect."""

    def getPeerCertificate(self) -> object:
        """None: the proxy has verified the client; :func:`svc.embedding.site.caller_id` returns its identity."""
        return None

    # -- Delivery ----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._scheduled is None and not self._closed:
            self._scheduled = self._reactor.callLater(0, self._deliver)

    def _deliver(self) -> None:
        self._scheduled = None
        other = self.other
        if self._outgoing and (other._reading or other.disconnecting):
            data = b"".join(self._outgoing)
            self._outgoing, self._size = [], 0
            if not other.disconnecting:
                self._deliver_data(data)
        if self._closed or self._outgoing:
            return
        if self._producer is not None:
            self._resume_producer()
        elif self.disconnecting:
            self._end(ConnectionDone(), ConnectionDone())

    def _resume_producer(self) -> None:
        """Resume a pull producer, or a push producer that was paused."""
        if not self._paused and self._streaming:
            return
        self._paused = False
        try:
            self._producer.resumeProducing()
        except Exception:  # noqa: BLE001 (as below)
            self.log.failure("a producer failed")
            self.abortConnection()

    def _deliver_data(self, data: bytes) -> None:
        try:
            self.other.protocol.dataReceived(data)
        except Exception:  # noqa: BLE001 (as the reactor does with a protocol that fails: logged, and closed)
            self.log.failure("a protocol failed in dataReceived")
            self.other.abortConnection()

    def _end(self, own: Exception, theirs: Exception) -> None:
        for end in (self, self.other):
            end._closed = True
            if end._scheduled is not None:
                end._scheduled.cancel()
                end._scheduled = None
            end._outgoing, end._size = [], 0
        for end, reason in ((self, own), (self.other, theirs)):
            end._report_end(Failure(reason))

    def _report_end(self, reason: Failure) -> None:
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                producer.stopProducing()
            self.protocol.connectionLost(reason)
        except Exception:  # noqa: BLE001 (the other side is still notified)
            self.log.failure("a protocol failed in connectionLost")


@implementer(IStreamClientEndpoint)
class PipeEndpoint:
    """
    Connects to a factory of this process.

    Args:
        factory: builds the protocol at the other end, such as a ``twisted.web`` site.
        reactor: the reactor.
    """

    def __init__(self, factory: IProtocolFactory, reactor: IReactorTime) -> None:
        self._factory = factory
        self._reactor = reactor

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Connect; the Deferred has fired with the protocol, or with ``ConnectFailed``.

        It fails where a factory builds no protocol, or the other protocol closes the connection at once.
        """
        theirs, ours = self._factory.buildProtocol(_LOCAL), protocolFactory.buildProtocol(_LOCAL)
        if theirs is None or ours is None:
            return fail(ConnectFailed(address="this process", detail="it takes no connection"))
        near, far = PipeEnd(self._reactor), PipeEnd(self._reactor)
        near.other, near.protocol, far.other, far.protocol = far, ours, near, theirs
        ours.makeConnection(near)
        try:
            theirs.makeConnection(far)
        except Exception:  # noqa: BLE001 (as with a protocol that fails in dataReceived)
            near.log.failure("a protocol failed in connectionMade")
            far.abortConnection()
        if near.closed:
            return fail(ConnectFailed(address="this process", detail="it ended the connection at once"))
        return succeed(ours)
