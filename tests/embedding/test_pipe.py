"""Tests of ``svc.embedding.pipe``: order, back-pressure and the end of a connection."""

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


class Recorder(Protocol):
    """Records received data and the reason of the end."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: list[type[BaseException] | None] = []

    def dataReceived(self, data: bytes) -> None:
        self.received.append(data)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.lost.append(reason.type)


class FailingReader(Recorder):
    """Fails in dataReceived."""

    def dataReceived(self, data: bytes) -> None:
        raise ZeroDivisionError


class FailingAtEnd(Recorder):
    """Fails in connectionLost."""

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        raise ZeroDivisionError


class Source:
    """A producer that records its calls."""

    def __init__(self, end: PipeEnd, pieces: int = 0) -> None:
        self.calls: list[str] = []
        self._end = end
        self._pieces = pieces

    def resumeProducing(self) -> None:
        """Write a piece, as a pull producer does."""
        self.calls.append("resume")
        if self._pieces:
            self._pieces -= 1
            self._end.write(b"piece")
            if not self._pieces:
                self._end.unregisterProducer()

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def stopProducing(self) -> None:
        self.calls.append("stop")


class PipeTestCase(SynchronousTestCase):
    """A pair of ends."""

    def setUp(self) -> None:
        """Connect."""
        self.clock = Clock()
        self.near, self.far = self.connect(Recorder(), Recorder())

    def connect(self, near: Recorder, far: Recorder) -> tuple[Any, Any]:
        """Connect two protocols."""
        endpoint = PipeEndpoint(Factory.forProtocol(lambda: far), self.clock)
        connected = self.successResultOf(endpoint.connect(Factory.forProtocol(lambda: near)))
        self.assertIs(connected, near)
        return near, far

    def turn(self, times: int = 1) -> None:
        """Run the scheduled calls."""
        for _ in range(times):
            self.clock.advance(0)

    def assert_idle(self) -> None:
        """Assert that nothing is scheduled."""
        self.turn(3)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class InterfaceTests(PipeTestCase):
    """Interfaces and failed connections."""

    def test_interfaces(self) -> None:
        """Ends are TLS transports, consumers and producers; the endpoint is a client's."""
        for interface in (ISSLTransport, IConsumer, IPushProducer):
            verifyObject(interface, self.near.transport)
        verifyObject(IStreamClientEndpoint, PipeEndpoint(Factory(), self.clock))

    def test_addresses(self) -> None:
        """Both ends have an address of this machine."""
        transport = self.near.transport
        self.assertEqual((transport.getPeer().host, transport.getHost().host), ("127.0.0.1", "127.0.0.1"))
        self.assertEqual((transport.getTcpNoDelay(), transport.getTcpKeepAlive()), (True, False))
        self.assertIsNone(transport.getPeerCertificate())

    def test_no_protocol(self) -> None:
        """A factory that builds none makes the attempt fail."""

        class NoProtocol(Factory):
            """Builds nothing."""

            def buildProtocol(self, addr: object) -> None:
                return None

        failure = self.failureResultOf(PipeEndpoint(NoProtocol(), self.clock).connect(Factory.forProtocol(Recorder)))
        self.assertIsInstance(failure.value, ConnectFailed)

    def test_ends_at_once(self) -> None:
        """So does a protocol that aborts or fails in connectionMade; both sides are notified."""

        class Refusing(Recorder):
            """Aborts in connectionMade."""

            def connectionMade(self) -> None:
                self.transport.abortConnection()

        class Failing(Recorder):
            """Fails in connectionMade."""

            def connectionMade(self) -> None:
                raise ZeroDivisionError

        for far in (Refusing(), Failing()):
            near = Recorder()
            endpoint = PipeEndpoint(Factory.forProtocol(lambda far=far: far), self.clock)  # type: ignore[misc]
            failure = self.failureResultOf(endpoint.connect(Factory.forProtocol(lambda near=near: near)))  # type: ignore[misc]
            self.assertIsInstance(failure.value, ConnectFailed)
            self.assertEqual((near.lost, far.lost), ([ConnectionLost], [ConnectionAborted]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assert_idle()


class DeliveryTests(PipeTestCase):
    """Delivery of data."""

    @given(st.lists(st.tuples(st.booleans(), st.binary(max_size=20), st.booleans())))
    def test_order(self, steps: list[tuple[bool, bytes, bool]]) -> None:
        """Writes of any sizes arrive complete and in order, both ways."""
        self.setUp()
        sent: dict[bool, bytes] = {True: b"", False: b""}
        for near, data, turn in steps:
            (self.near if near else self.far).transport.write(data)
            sent[near] += data
            if turn:
                self.turn()
        self.turn(2)
        self.assertEqual((b"".join(self.far.received), b"".join(self.near.received)), (sent[True], sent[False]))

    def test_never_inside_write(self) -> None:
        """The reader is called on a later turn of the reactor."""
        self.near.transport.writeSequence([b"a", b"b"])
        self.assertEqual(self.far.received, [])
        self.turn()
        self.assertEqual(self.far.received, [b"ab"])

    def test_paused_reader(self) -> None:
        """Nothing is delivered until the reader resumes."""
        self.far.transport.pauseProducing()
        self.near.transport.write(b"wait")
        self.turn(3)
        self.assertEqual(self.far.received, [])
        self.far.transport.resumeProducing()
        self.turn()
        self.assertEqual(self.far.received, [b"wait"])

    def test_failing_reader(self) -> None:
        """Its connection is closed and the failure is logged."""
        near, far = self.connect(Recorder(), FailingReader())
        near.transport.write(b"x")
        self.turn()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((near.lost, far.lost), ([ConnectionLost], [ConnectionAborted]))


class ProducerTests(PipeTestCase):
    """Back-pressure."""

    def test_streaming(self) -> None:
        """A push producer is paused at the high-water mark and resumed when everything is read."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.far.transport.pauseProducing()
        self.near.transport.write(b"x" * (HIGH_WATER - 1))
        self.assertEqual(source.calls, [])
        self.near.transport.write(b"x")
        self.assertEqual(source.calls, ["pause"])
        self.near.transport.write(b"x")
        self.assertEqual(source.calls, ["pause"])
        self.far.transport.resumeProducing()
        self.turn()
        self.assertEqual(source.calls, ["pause", "resume"])
        self.assertEqual(sum(map(len, self.far.received)), HIGH_WATER + 1)

    def test_pulling(self) -> None:
        """A pull producer is resumed for each piece when the one before is read."""
        source = Source(self.near.transport, pieces=3)
        self.near.transport.registerProducer(source, False)
        self.turn(5)
        self.assertEqual(self.far.received, [b"piece"] * 3)
        self.assertEqual(source.calls, ["resume"] * 3)

    def test_failing_producer(self) -> None:
        """Its connection is closed and the failure is logged."""

        class Broken(Source):
            """Fails at its second piece."""

            def resumeProducing(self) -> None:
                """Write a piece, or fail."""
                if self.calls:
                    raise ZeroDivisionError
                super().resumeProducing()

        self.near.transport.registerProducer(Broken(self.near.transport, pieces=3), False)
        self.turn(2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionAborted], [ConnectionLost]))
        self.assert_idle()

    def test_one_at_a_time(self) -> None:
        """A second producer is an error."""
        self.near.transport.registerProducer(Source(self.near.transport), True)
        with self.assertRaises(RuntimeError):
            self.near.transport.registerProducer(Source(self.near.transport), True)

    def test_after_the_end(self) -> None:
        """A producer that is registered after the end is stopped."""
        self.near.transport.abortConnection()
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.assertEqual(source.calls, ["stop"])

    def test_at_the_end(self) -> None:
        """A producer is stopped when the other side aborts."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.far.transport.abortConnection()
        self.assertEqual(source.calls, ["stop"])
        self.assert_idle()


class EndTests(PipeTestCase):
    """How connections end."""

    def test_close(self) -> None:
        """Written data is read first; both sides get ConnectionDone, once."""
        self.near.transport.write(b"last")
        self.near.transport.loseConnection()
        self.near.transport.loseConnection()
        self.assertEqual(self.far.lost, [])
        self.turn(2)
        self.assertEqual(self.far.received, [b"last"])
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionDone], [ConnectionDone]))
        self.near.transport.write(b"late")
        self.near.transport.abortConnection()
        self.assert_idle()
        self.assertEqual(self.far.received, [b"last"])

    def test_close_waits_for_a_slow_reader(self) -> None:
        """A paused reader gets everything before the end."""
        self.far.transport.pauseProducing()
        self.near.transport.write(b"last")
        self.near.transport.loseConnection()
        self.turn(3)
        self.assertEqual(self.near.lost, [])
        self.far.transport.resumeProducing()
        self.turn(3)
        self.assertEqual((self.far.received, self.near.lost), ([b"last"], [ConnectionDone]))

    def test_close_waits_for_the_producer(self) -> None:
        """A producer may finish after ``loseConnection``."""
        source = Source(self.near.transport)
        self.near.transport.registerProducer(source, True)
        self.near.transport.loseConnection()
        self.turn(2)
        self.near.transport.write(b"rest")
        self.near.transport.unregisterProducer()
        self.turn(2)
        self.assertEqual((self.far.received, self.far.lost), ([b"rest"], [ConnectionDone]))

    def test_no_reads_after_close(self) -> None:
        """Data received after the close is dropped, and does not delay the end."""
        self.far.transport.write(b"too late")
        self.near.transport.stopProducing()
        self.turn(3)
        self.assertEqual((self.near.received, self.near.lost), ([], [ConnectionDone]))
        self.near.transport.resumeProducing()
        self.assert_idle()

    def test_both_close(self) -> None:
        """A close by both sides is one end."""
        for end in (self.near, self.far):
            end.transport.write(b"bye")
            end.transport.loseWriteConnection()
        self.turn(3)
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionDone], [ConnectionDone]))
        self.assert_idle()

    def test_abort(self) -> None:
        """Undelivered data is dropped; both sides are notified at once."""
        self.near.transport.write(b"never")
        self.near.transport.abortConnection()
        self.assertEqual((self.near.lost, self.far.lost), ([ConnectionAborted], [ConnectionLost]))
        self.assert_idle()
        self.assertEqual(self.far.received, [])

    def test_failure_in_connection_lost(self) -> None:
        """The other side is still notified of the end, and the failure is logged."""
        for close in ("loseConnection", "abortConnection"):
            near, far = self.connect(Recorder(), FailingAtEnd())
            getattr(far.transport, close)()
            self.turn(3)
            self.assertEqual(len(near.lost), 1)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assert_idle()
