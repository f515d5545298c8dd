"""A connection inside one process: order, back-pressure, and how it ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, IPushProducer, ISSLTransport, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.embedding.pipe import HIGH_WATER, PipeEnd, PipeEndpoint
from svc.transport.errors import ConnectFailed


class Ear(Protocol):
    """Remembers what happened to it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.lost: list[type[BaseException] | None] = []

    def dataReceived(self, data: bytes) -> None:
        """Remember."""
        self.heard.append(data)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Remember."""
        self.lost.append(reason.type)


class Deaf(Ear):
    """Fails over what it reads."""

    def dataReceived(self, data: bytes) -> None:
        """Fail."""
        raise ZeroDivisionError


class Restless(Ear):
    """Fails at its end too."""

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Fail."""
        raise ZeroDivisionError


class Source:
    """A producer that counts what it is told."""

    def __init__(self, end: PipeEnd, pieces: int = 0) -> None:
        self.told: list[str] = []
        self._end = end
        self._pieces = pieces

    def resumeProducing(self) -> None:
        """Write a piece, as a pull producer does."""
        self.told.append("resume")
        if self._pieces:
            self._pieces -= 1
            self._end.write(b"piece")
            if not self._pieces:
                self._end.unregisterProducer()

    def pauseProducing(self) -> None:
        """Remember."""
        self.told.append("pause")

    def stopProducing(self) -> None:
        """Remember."""
        self.told.append("stop")


class PipeTestCase(SynchronousTestCase):
    """A pair of ends."""

    def setUp(self) -> None:
        """Connect."""
        self.clock = Clock()
        self.near, self.far = self.connect(Ear(), Ear())

    def connect(self, near: Ear, far: Ear) -> tuple[Any, Any]:
        """Connect two protocols."""
        endpoint = PipeEndpoint(Factory.forProtocol(lambda: far), self.clock)
        connected = self.successResultOf(endpoint.connect(Factory.forProtocol(lambda: near)))
        self.assertIs(connected, near)
        return near, far

    def turn(self, times: int = 1) -> None:
        """Let the reactor turn."""
        for _ in range(times):
            self.clock.advance(0)

    def ended(self) -> None:
        """Assert that nothing is left to do."""
        self.turn(3)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class InterfaceTests(PipeTestCase):
    """What others rely on."""

    def test_interfaces(self) -> None:
        """Ends are TLS transports, consumers and producers; the endpoint is a client's."""
        for interface in (ISSLTransport, IConsumer, IPushProducer):
            verifyObject(interface, self.near.transport)
        verifyObject(IStreamClientEndpoint, PipeEndpoint(Factory(), self.clock))

    def test_both_ends_are_here(self) -> None:
        """Logs of a site name this machine."""
        transport = self.near.transport
        self.assertEqual((transport.getPeer().host, transport.getHost().host), ("127.0.0.1", "127.0.0.1"))
        self.assertEqual((transport.getTcpNoDelay(), transport.getTcpKeepAlive()), (True, False))
        self.assertIsNone(transport.getPeerCertificate())

    def test_no_protocol(self) -> None:
        """A factory that builds none makes the attempt fail."""

        class Nobody(Factory):
            """Builds nothing."""

            def buildProtocol(self, addr: object) -> None:
                """Build nothing."""

        failure = self.failureResultOf(PipeEndpoint(Nobody(), self.clock).connect(Factory.forProtocol(Ear)))
        self.assertIsInstance(failure.value, ConnectFailed)

    def test_ends_at_once(self) -> None:
        """So does a protocol that ends its connection when it gets it, or fails over it; both sides know of the end."""

        class Refusing(Ear):
            """Takes no connection."""

            def connectionMade(self) -> None:
                """Take none."""
                self.transport.abortConnection()  # type: ignore[union-attr]

        class Failing(Ear):
            """Fails over its connection."""

            def connectionMade(self) -> None:
                """Fail."""
                raise ZeroDivisionError

        for far in (Refusing(), Failing()):
            near = Ear()
            endpoint = PipeEndpoint(Factory.forProtocol(lambda far=far: far), self.clock)
            failure = self.failureResultOf(endpoint.connect(Factory.forProtocol(lambda near=near: near)))
            self.assertIsInstance(failure.value, ConnectFailed)
            self.assertEqual((near.lost, far.lost), ([ConnectionLost], [ConnectionAborted]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.ended()


class DeliveryTests(PipeTestCase):
    """Octets."""

    @given(st.lists(st.tuples(st.booleans(), st.binary(max_size=20), st.booleans())))
    def test_order(self, steps: list[tuple[bool, bytes, bool]]) -> None:
        """Whatever is written in whatever pieces arrives whole and in order, both ways."""
        self.setUp()
        sent: dict[bool, bytes] = {True: b"", False: b""}
        for near, data, turn in steps:
            (self.near if near else self.far).transport.write(data)
            sent[near] += data
            if turn:
                self.turn()
        self.turn(2)
        self.assertEqual((b"".join(self.far.heard), b"".join(self.near.heard)), (sent[True], sent[False]))

    def test_never_inside_write(self) -> None:
        """The reader is called on a later turn."""
        self.near.transport.writeSequence([b"a", b"b"])
        self.assertEqual(self.far.heard, [])
        self.turn()
        self.assertEqual(self.far.heard, [b"ab"])

    def test_a_paused_reader(self) -> None:
        """Nothing is delivered until the reader wants it."""
        self.far.transport.pauseProducing()
        self.near.transport.write(b"wait")
        self.turn(3)
        self.assertEqual(self.far.heard, [])
        self.far.transport.resumeProducing()
        self.turn()
        self.assertEqual(self.far.heard, [b"wait"])

    def test_a_reader_that_fails(self) -> None:
        """Its connection is cut and the failure is told."""
        near, far = self.connect(Ear(), Deaf())
        near.transport.write(b"x")
        self.turn()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((near.lost, far.lost), ([ConnectionLost], [ConnectionAborted]))


class ProducerTests(PipeTestCase):
    """Back-pressure."""

    def test_streaming(self) -> None:
        """A push producer pauses at the mark and resumes when the reader has caught up."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.far.transport.pauseProducing()
        self.near.transport.write(b"x" * (HIGH_WATER - 1))
        self.assertEqual(source.told, [])
        self.near.transport.write(b"x")
        self.assertEqual(source.told, ["pause"])
        self.near.transport.write(b"x")
        self.assertEqual(source.told, ["pause"])
        self.far.transport.resumeProducing()
        self.turn()
        self.assertEqual(source.told, ["pause", "resume"])
        self.assertEqual(sum(map(len, self.far.heard)), HIGH_WATER + 1)

    def test_pulling(self) -> None:
        """A pull producer is asked for each piece once the one before is read."""
        source = Source(self.near.transport, pieces=3)
        self.near.transport.registerProducer(source, False)
        self.turn(5)
        self.assertEqual(self.far.heard, [b"piece"] * 3)
        self.assertEqual(source.told, ["resume"] * 3)

    def test_a_producer_that_fails(self) -> None:
        """Its connection is cut and the failure is told."""

        class Broken(Source):
            """Fails at its second piece."""

            def resumeProducing(self) -> None:
                """Write a piece, or fail."""
                if self.told:
                    raise ZeroDivisionError
                super().resumeProducing()

        self.near.transport.registerProducer(Broken(self.near.transport, pieces=3), False)
        self.turn(2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionAborted], [ConnectionLost]))
        self.ended()

    def test_one_at_a_time(self) -> None:
        """A second producer is a mistake."""
        self.near.transport.registerProducer(Source(self.near.transport), True)
        with self.assertRaises(RuntimeError):
            self.near.transport.registerProducer(Source(self.near.transport), True)

    def test_after_the_end(self) -> None:
        """A producer that comes too late is stopped."""
        self.near.transport.abortConnection()
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.assertEqual(source.told, ["stop"])

    def test_at_the_end(self) -> None:
        """A producer whose reader is gone is stopped."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.far.transport.abortConnection()
        self.assertEqual(source.told, ["stop"])
        self.ended()


class EndTests(PipeTestCase):
    """How connections end."""

    def test_close(self) -> None:
        """What was written is read first; both sides learn of a clean end, once."""
        self.near.transport.write(b"last")
        self.near.transport.loseConnection()
        self.near.transport.loseConnection()
        self.assertEqual(self.far.lost, [])
        self.turn(2)
        self.assertEqual(self.far.heard, [b"last"])
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionDone], [ConnectionDone]))
        self.near.transport.write(b"late")
        self.near.transport.abortConnection()
        self.ended()
        self.assertEqual(self.far.heard, [b"last"])

    def test_close_waits_for_a_slow_reader(self) -> None:
        """A paused reader gets everything before the end."""
        self.far.transport.pauseProducing()
        self.near.transport.write(b"last")
        self.near.transport.loseConnection()
        self.turn(3)
        self.assertEqual(self.near.lost, [])
        self.far.transport.resumeProducing()
        self.turn(3)
        self.assertEqual((self.far.heard, self.near.lost), ([b"last"], [ConnectionDone]))

    def test_close_waits_for_the_producer(self) -> None:
        """A producer may finish."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.near.transport.loseConnection()
        self.turn(2)
        self.near.transport.write(b"rest")
        self.near.transport.unregisterProducer()
        self.turn(2)
        self.assertEqual((self.far.heard, self.far.lost), ([b"rest"], [ConnectionDone]))

    def test_who_closes_reads_no_more(self) -> None:
        """What comes after the close is dropped, and does not hold the end up."""
        self.far.transport.write(b"too late")
        self.near.transport.stopProducing()
        self.turn(3)
        self.assertEqual((self.near.heard, self.near.lost), ([], [ConnectionDone]))
        self.near.transport.resumeProducing()
        self.ended()

    def test_both_close(self) -> None:
        """Two closes are one end."""
        for end in (self.near, self.far):
            end.transport.write(b"bye")
            end.transport.loseWriteConnection()
        self.turn(3)
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionDone], [ConnectionDone]))
        self.ended()

    def test_abort(self) -> None:
        """What is under way is dropped; each side learns its part of it at once."""
        self.near.transport.write(b"never")
        self.near.transport.abortConnection()
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionAborted], [ConnectionLost]))
        self.ended()
        self.assertEqual(self.far.heard, [])

    def test_a_protocol_that_fails_at_the_end(self) -> None:
        """The other side learns of the end all the same, however it came, and the failure is told."""
        for close in ("loseConnection", "abortConnection"):
            near, far = self.connect(Ear(), Restless())
            getattr(far.transport, close)()
            self.turn(3)
            self.assertEqual(len(near.lost), 1)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.ended()
