"""
A connection inside one process: two transports, what one writes the other's protocol reads on a later turn.

Owns order, back-pressure both ways and how a connection ends, as TCP has them. Knows no protocol. No octet is delivered
from inside ``write``, so nobody is called back while it writes.
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

#: Unread octets at which the one who writes is asked to pause; what Twisted's own transports take.
HIGH_WATER: Final = 64 * 1024
_HERE: Final = IPv4Address("TCP", "127.0.0.1", 0)


@implementer(ISSLTransport, IConsumer, IPushProducer)
class PipeEnd:
    """
    One end. It passes for a TLS transport, since the client's connection is one: a site then writes ``https`` links.

    Args:
        reactor: gives the later turn.
    """

    log = Logger()

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self.other: PipeEnd
        self.protocol: IProtocol
        self.disconnecting = False
        self._closed = False
        self._reads = True
        self._outgoing: list[bytes] = []
        self._size = 0
        self._producer: Any = None
        self._streaming = False
        self._paused = False
        self._turn: IDelayedCall | None = None

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
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
        self._later()

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
            self._later()

    # -- Reading -----------------------------------------------------------------------------------------------------

    def pauseProducing(self) -> None:
        """Deliver nothing to this end's protocol for now."""
        self._reads = False

    def resumeProducing(self) -> None:
        """Deliver again."""
        if not self._closed and not self.disconnecting:
            self._reads = True
            self.other._later()

    def stopProducing(self) -> None:
        """End the connection."""
        self.loseConnection()

    # -- The end -----------------------------------------------------------------------------------------------------

    def loseConnection(self) -> None:
        """Close when everything written is read; what comes meanwhile is dropped."""
        if not self._closed and not self.disconnecting:
            self.disconnecting = True
            self._later()
            self.other._later()

    def abortConnection(self) -> None:
        """Close now and drop what is under way."""
        if not self._closed:
            self._end(ConnectionAborted(), ConnectionLost())

    def getPeer(self) -> IPv4Address:
        """Tell that the other end is on this machine."""
        return _HERE

    def getHost(self) -> IPv4Address:
        """Tell that this end is on this machine."""
        return _HERE

    def loseWriteConnection(self) -> None:
        """See ``ITCPTransport.loseWriteConnection``; HTTP has no use for one direction alone."""
        self.loseConnection()

    def getTcpNoDelay(self) -> bool:
        """Tell that nothing waits for more octets."""
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is nothing to delay."""

    def getTcpKeepAlive(self) -> bool:
        """Tell that nothing needs to be kept alive."""
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """There is nothing to keep alive."""

    def getPeerCertificate(self) -> object:
        """The client's certificate was judged before; :func:`svc.embedding.site.caller_id` tells whose it is."""
        return None

    # -- Turns -------------------------------------------------------------------------------------------------------

    def _later(self) -> None:
        if self._turn is None and not self._closed:
            self._turn = self._reactor.callLater(0, self._deliver)

    def _deliver(self) -> None:
        self._turn = None
        other = self.other
        if self._outgoing and (other._reads or other.disconnecting):
            data = b"".join(self._outgoing)
            self._outgoing, self._size = [], 0
            if not other.disconnecting:
                self._hand_over(data)
        if self._closed or self._outgoing:
            return
        if self._producer is not None:
            self._pull()
        elif self.disconnecting:
            self._end(ConnectionDone(), ConnectionDone())

    def _pull(self) -> None:
        """Let the producer go on, where it waits for that."""
        if not self._paused and self._streaming:
            return
        self._paused = False
        try:
            self._producer.resumeProducing()
        except Exception:  # noqa: BLE001 (as below)
            self.log.failure("a producer failed")
            self.abortConnection()

    def _hand_over(self, data: bytes) -> None:
        try:
            self.other.protocol.dataReceived(data)
        except Exception:  # noqa: BLE001 (as the reactor does with a protocol that fails: told, and cut off)
            self.log.failure("a protocol failed over what it read")
            self.other.abortConnection()

    def _end(self, own: Exception, theirs: Exception) -> None:
        for end in (self, self.other):
            end._closed = True
            if end._turn is not None:
                end._turn.cancel()
                end._turn = None
            end._outgoing, end._size = [], 0
        for end, reason in ((self, own), (self.other, theirs)):
            end._tell_end(Failure(reason))

    def _tell_end(self, reason: Failure) -> None:
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                producer.stopProducing()
            self.protocol.connectionLost(reason)
        except Exception:  # noqa: BLE001 (the other side learns of the end all the same)
            self.log.failure("a protocol failed at the end of its connection")


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
        Make a connection.

        Args:
            protocolFactory: builds the protocol at this end.

        Returns:
            Has fired with the connected protocol, or with ``ConnectFailed`` where a factory builds none, or what it
            builds takes no connection.
        """
        theirs, ours = self._factory.buildProtocol(_HERE), protocolFactory.buildProtocol(_HERE)
        if theirs is None or ours is None:
            return fail(ConnectFailed(address="this process", detail="it takes no connection"))
        near, far = PipeEnd(self._reactor), PipeEnd(self._reactor)
        near.other, near.protocol, far.other, far.protocol = far, ours, near, theirs
        ours.makeConnection(near)
        try:
            theirs.makeConnection(far)
        except Exception:  # noqa: BLE001 (as with a protocol that fails over what it reads)
            near.log.failure("a protocol failed at the beginning of its connection")
            far.abortConnection()
        if near.closed:
            return fail(ConnectFailed(address="this process", detail="it ended the connection at once"))
        return succeed(ours)
