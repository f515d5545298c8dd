"""Tests of ``svc.transport.fast.reactor`` with eager transports."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.fast.reactor import MAX_OCTETS, WriteBatch
from svc.transport.tcp import EagerServer
from tests.transport.fast.test_eager import EAGAIN, PIPE, Descriptors, ScriptedSocket
from tests.transport.pairs import Application, Producer


class BatchingReactor(Descriptors):
    """A reactor whose iterations a test begins and ends."""

    write_batch: WriteBatch | None = None

    def begin(self, maximum: int = 32) -> None:
        """Begin an iteration."""
        self.write_batch = WriteBatch(maximum)

    def end(self) -> None:
        """End it."""
        ended, self.write_batch = self.write_batch, None
        if ended is not None:
            ended.end()


class WriteBatchTests(SynchronousTestCase):
    """Small writes within an iteration are sent at its end."""

    def setUp(self) -> None:
        """A reactor in an iteration."""
        self.reactor = BatchingReactor()
        self.reactor.begin()

    def connect(self, takes: list[Any] | None = None) -> tuple[Any, ScriptedSocket]:
        """One connection."""
        socket = ScriptedSocket(takes)
        application = Application()
        transport = EagerServer(socket, application, ("192.0.2.1", 1), None, 0, self.reactor)
        application.makeConnection(transport)
        transport.protocol_seen = application  # type: ignore[attr-defined]
        return transport, socket

    def test_several_writes_are_one_send(self) -> None:
        """Nothing is sent before the end of the iteration, then everything at once, without a writer."""
        transport, socket = self.connect()
        transport.write(b"hello")
        transport.writeSequence([b" ", b"world"])
        self.assertEqual((socket.sent, transport.unsent), (b"", 11))
        self.reactor.end()
        self.assertEqual((socket.sent, socket.sends, transport.unsent), (b"hello world", 1, 0))
        self.assertEqual(self.reactor.writers, set())

    def test_writes_between_iterations(self) -> None:
        """Data that timers and threads write is sent at once."""
        transport, socket = self.connect()
        self.reactor.end()
        transport.write(b"hello")
        self.assertEqual(socket.sent, b"hello")

    def test_connections_are_sent_in_order_of_their_first_write(self) -> None:
        """Each connection is sent once, and all of them when the batch is full."""
        self.reactor.begin(maximum=2)
        (first, one), (second, two), (third, three) = self.connect(), self.connect(), self.connect()
        first.write(b"1")
        first.write(b"1")
        self.assertEqual(one.sends, 0)
        second.write(b"2")
        self.assertEqual((one.sent, two.sent), (b"11", b"2"))
        third.write(b"3")
        first.write(b"4")
        self.assertEqual((three.sent, one.sent), (b"3", b"114"))
        first.write(b"5")
        self.reactor.end()
        self.assertEqual(one.sent, b"1145")

    def test_large_writes_are_not_batched(self) -> None:
        """A write of one octet too many is sent at once, after the batched data."""
        transport, socket = self.connect()
        transport.write(b"x" * MAX_OCTETS)
        self.assertEqual(socket.sends, 0)
        transport.write(b"y")
        self.assertEqual((len(socket.sent), socket.sent[:1], socket.sends), (MAX_OCTETS, b"x", 1))
        self.reactor.end()
        self.assertEqual(socket.sent, b"x" * MAX_OCTETS + b"y")
        self.reactor.begin()
        transport.write(b"z" * (MAX_OCTETS + 1))
        self.assertEqual(socket.sent[-1:], b"z")

    def test_partial_sends_are_buffered(self) -> None:
        """The rest of a partial send is buffered by Twisted, also where nothing was sent."""
        for taken in (3, EAGAIN):
            with self.subTest(taken):
                self.setUp()
                transport, socket = self.connect([taken])
                transport.write(b"hello")
                self.reactor.end()
                transport.write(b" world")
                self.assertIsNone(self.reactor.run_writer())
                self.assertEqual((socket.sent, transport.unsent), (b"hello world", 0))

    def test_broken_socket_is_reported_by_the_reactor(self) -> None:
        """The end of an iteration calls no protocol with an error."""
        transport, _ = self.connect([PIPE, PIPE])
        transport.write(b"hello")
        self.reactor.end()
        self.assertIs(self.reactor.run_writer(), CONNECTION_LOST)

    def assert_done(self, transport: Any, socket: ScriptedSocket) -> None:
        """The connection has ended cleanly, once, and the reactor no longer has it."""
        transport.protocol_seen.lost.trap(ConnectionDone)
        self.assertEqual((socket.shut, socket.closed), ([2], True))
        self.assertNotIn(transport, self.reactor.readers | self.reactor.writers)

    def test_close_in_the_same_iteration(self) -> None:
        """Data written before loseConnection is sent before the close at the end of the iteration."""
        transport, socket = self.connect()
        transport.write(b"bye")
        transport.loseConnection()
        self.assertEqual((self.reactor.readers, socket.closed), (set(), False))
        transport.loseConnection()
        self.reactor.end()
        self.assertEqual((socket.sent, socket.sends), (b"bye", 1))
        self.assert_done(transport, socket)

    def test_close_between_iterations(self) -> None:
        """Outside an iteration the writer closes."""
        transport, _ = self.connect()
        self.reactor.end()
        transport.loseConnection()
        self.assertIs(self.reactor.run_writer(), CONNECTION_DONE)

    def test_close_while_others_are_read(self) -> None:
        """No protocol is closed before the end of the iteration, also when the batch is full."""
        self.reactor.begin(maximum=1)
        (first, one), (second, two) = self.connect(), self.connect()
        first.loseConnection()
        second.write(b"hello")
        self.assertEqual((one.closed, two.sent), (False, b"hello"))
        self.reactor.end()
        self.assert_done(first, one)
        self.assertFalse(two.closed)

    def test_close_with_a_full_socket(self) -> None:
        """Data that the socket does not take is sent by the writer before the close."""
        transport, socket = self.connect([EAGAIN])
        transport.write(b"bye")
        transport.loseConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)
        self.assertIs(self.reactor.run_writer(), CONNECTION_DONE)
        self.assertEqual(socket.sent, b"bye")

    def test_write_after_close(self) -> None:
        """Data written after loseConnection in the same iteration is sent, as by Twisted."""
        transport, socket = self.connect()
        transport.loseConnection()
        transport.write(b"late")
        self.reactor.end()
        self.assertIs(self.reactor.run_writer(), CONNECTION_DONE)
        self.assertEqual(socket.sent, b"late")

    def test_close_with_a_producer(self) -> None:
        """The close waits for a producer."""
        transport, socket = self.connect()
        transport.registerProducer(Producer(), True)
        transport.loseConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)

    def test_close_and_abort(self) -> None:
        """An abort in the same iteration ends the connection once, as an abort."""
        transport, socket = self.connect()
        transport.loseConnection()
        transport.abortConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)
        self.reactor.advance(0)
        transport.protocol_seen.lost.trap(ConnectionAborted)

    def test_lost_before_the_end_of_the_iteration(self) -> None:
        """A connection that is lost before its batched close is not closed twice."""
        transport, _ = self.connect()
        transport.loseConnection()
        transport.connectionLost(Failure(CONNECTION_LOST))
        self.reactor.end()
        transport.protocol_seen.lost.trap(ConnectionLost)

    def test_protocol_that_fails_in_connection_lost(self) -> None:
        """An error in one protocol is logged, and the others are still closed."""
        (first, _), (second, two) = self.connect(), self.connect()
        first.protocol.connectionLost = lambda reason: 1 / 0
        first.loseConnection()
        second.loseConnection()
        self.reactor.end()
        self.assert_done(second, two)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_half_close_in_the_same_iteration(self) -> None:
        """Data written before loseWriteConnection is sent before the socket is shut down."""
        transport, socket = self.connect()
        transport.write(b"bye")
        transport.loseWriteConnection()
        self.reactor.end()
        self.reactor.run_writer()
        self.assertEqual((socket.sent, socket.shut), (b"bye", [1]))

    def test_abort_in_the_same_iteration(self) -> None:
        """Data written before abortConnection, such as an alert, is sent; nothing after it."""
        transport, socket = self.connect()
        transport.write(b"alert")
        transport.abortConnection()
        transport.write(b"late")
        self.reactor.end()
        self.reactor.advance(0)
        self.assertEqual((socket.sent, socket.closed), (b"alert", True))

    def test_lost_in_the_same_iteration(self) -> None:
        """A connection that has ended is ignored."""
        transport, socket = self.connect()
        transport.write(b"late")
        transport.connectionLost(Failure(CONNECTION_DONE))
        self.reactor.end()
        self.assertEqual(socket.sent, b"")

    def test_pull_producer(self) -> None:
        """A pull producer that is registered within an iteration runs to its end, after the batched data."""
        transport, socket = self.connect()
        pieces = [b"two", b"three"]

        class Pull:
            def resumeProducing(self) -> None:
                if pieces:
                    transport.write(pieces.pop(0))
                else:
                    transport.unregisterProducer()

            def stopProducing(self) -> None:
                pieces.clear()

        transport.write(b"one")
        transport.registerProducer(Pull(), False)
        self.reactor.end()
        while self.reactor.writers:
            self.reactor.run_writer()
        self.assertEqual(socket.sent, b"onetwothree")

    def test_streaming_producer_is_paused_when_the_rest_is_large(self) -> None:
        """Many small writes that the socket does not take pause the producer."""
        transport, _ = self.connect([EAGAIN] * 20)
        producer = Producer()
        transport.registerProducer(producer, True)
        for _ in range(10):
            transport.write(b"x" * MAX_OCTETS)
        self.reactor.end()
        self.assertEqual(producer.calls[:1], ["pause"])

    def test_wrong_type(self) -> None:
        """Text is a TypeError at once, and does not change the batched data."""
        transport, socket = self.connect()
        self.assertRaises(TypeError, transport.write, "text")
        transport.write(b"hello")
        self.assertRaises(TypeError, transport.write, "text")
        self.reactor.end()
        self.assertEqual(socket.sent, b"hello")

    @given(
        st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(["run", "begin", "end"])), max_size=30),
        st.lists(st.one_of(st.integers(0, 8), st.just("again")), max_size=20),
    )
    def test_any_interleaving_sends_what_was_written(self, steps: list[Any], takes: list[Any]) -> None:
        """Whatever the socket takes and whenever iterations end, all octets are sent once and in order."""
        self.reactor = BatchingReactor()
        transport, socket = self.connect([EAGAIN if take == "again" else take for take in takes])
        written = b""
        for step in steps:
            if step == "run":
                if self.reactor.writers:
                    self.assertIsNone(self.reactor.run_writer())
            elif step == "begin":
                self.reactor.end()
                self.reactor.begin()
            elif step == "end":
                self.reactor.end()
            else:
                transport.write(step)
                written += step
            self.assertTrue(written.startswith(socket.sent))
            self.assertEqual(transport.unsent, len(written) - len(socket.sent))
        self.reactor.end()
        socket.takes.clear()
        while self.reactor.writers:
            self.reactor.run_writer()
        self.assertEqual(socket.sent, written)
