"""Tests of writes that wait for the end of a round of the reactor."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.eager import EagerServer
from svc.transport.rounds import MOST_OCTETS, SendRound
from tests.transport.pairs import Application, Producer
from tests.transport.test_eager import EAGAIN, PIPE, Descriptors, ScriptedSocket


class Rounds(Descriptors):
    """A reactor that is in a round when the test says so."""

    send_round: SendRound | None = None

    def begin(self, most: int = 32) -> None:
        """A round begins."""
        self.send_round = SendRound(most)

    def end(self) -> None:
        """It ends."""
        ended, self.send_round = self.send_round, None
        if ended is not None:
            ended.end()


class RoundsTests(SynchronousTestCase):
    """Small writes within a round are sent at its end."""

    def setUp(self) -> None:
        """A reactor in a round."""
        self.reactor = Rounds()
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
        """Nothing is sent before the end of the round, then everything at once, without asking the reactor."""
        transport, socket = self.connect()
        transport.write(b"hello")
        transport.writeSequence([b" ", b"world"])
        self.assertEqual((socket.sent, transport.unsent), (b"", 11))
        self.reactor.end()
        self.assertEqual((socket.sent, socket.sends, transport.unsent), (b"hello world", 1, 0))
        self.assertEqual(self.reactor.writers, set())

    def test_between_rounds_nothing_waits(self) -> None:
        """What timers and threads write is sent at once."""
        transport, socket = self.connect()
        self.reactor.end()
        transport.write(b"hello")
        self.assertEqual(socket.sent, b"hello")

    def test_connections_are_sent_in_order_of_their_first_write(self) -> None:
        """Each connection is sent once, and all of them when as many wait as may."""
        self.reactor.begin(most=2)
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

    def test_large_writes_do_not_wait(self) -> None:
        """A write of one octet too many is sent at once, behind what waited."""
        transport, socket = self.connect()
        transport.write(b"x" * MOST_OCTETS)
        self.assertEqual(socket.sends, 0)
        transport.write(b"y")
        self.assertEqual((len(socket.sent), socket.sent[:1], socket.sends), (MOST_OCTETS, b"x", 1))
        self.reactor.end()
        self.assertEqual(socket.sent, b"x" * MOST_OCTETS + b"y")
        self.reactor.begin()
        transport.write(b"z" * (MOST_OCTETS + 1))
        self.assertEqual(socket.sent[-1:], b"z")

    def test_what_the_socket_does_not_take_is_buffered(self) -> None:
        """The rest of a partial send goes Twisted's way, also where nothing was taken."""
        for taken in (3, EAGAIN):
            with self.subTest(taken):
                self.setUp()
                transport, socket = self.connect([taken])
                transport.write(b"hello")
                self.reactor.end()
                transport.write(b" world")
                self.assertIsNone(self.reactor.turn())
                self.assertEqual((socket.sent, transport.unsent), (b"hello world", 0))

    def test_broken_socket_is_reported_by_the_reactor(self) -> None:
        """The end of a round calls no protocol."""
        transport, _ = self.connect([PIPE, PIPE])
        transport.write(b"hello")
        self.reactor.end()
        self.assertIs(self.reactor.turn(), CONNECTION_LOST)

    def assert_done(self, transport: Any, socket: ScriptedSocket) -> None:
        """The connection has ended in order, once, and the reactor knows nothing of it any more."""
        transport.protocol_seen.lost.trap(ConnectionDone)
        self.assertEqual((socket.shut, socket.closed), ([2], True))
        self.assertNotIn(transport, self.reactor.readers | self.reactor.writers)

    def test_close_in_the_same_round(self) -> None:
        """What was written before loseConnection is sent before the end, which comes with the end of the round."""
        transport, socket = self.connect()
        transport.write(b"bye")
        transport.loseConnection()
        self.assertEqual((self.reactor.readers, socket.closed), (set(), False))
        transport.loseConnection()
        self.reactor.end()
        self.assertEqual((socket.sent, socket.sends), (b"bye", 1))
        self.assert_done(transport, socket)

    def test_close_between_rounds(self) -> None:
        """Outside of a round the end comes when the reactor turns."""
        transport, _ = self.connect()
        self.reactor.end()
        transport.loseConnection()
        self.assertIs(self.reactor.turn(), CONNECTION_DONE)

    def test_close_while_others_are_read(self) -> None:
        """However many connections wait for the end of the round, no protocol is called before it."""
        self.reactor.begin(most=1)
        (first, one), (second, two) = self.connect(), self.connect()
        first.loseConnection()
        second.write(b"hello")
        self.assertEqual((one.closed, two.sent), (False, b"hello"))
        self.reactor.end()
        self.assert_done(first, one)
        self.assertFalse(two.closed)

    def test_close_with_a_full_socket(self) -> None:
        """What the socket does not take is sent first, as the reactor turns."""
        transport, socket = self.connect([EAGAIN])
        transport.write(b"bye")
        transport.loseConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)
        self.assertIs(self.reactor.turn(), CONNECTION_DONE)
        self.assertEqual(socket.sent, b"bye")

    def test_write_after_close(self) -> None:
        """What is written behind loseConnection in the same round is sent, as by Twisted."""
        transport, socket = self.connect()
        transport.loseConnection()
        transport.write(b"late")
        self.reactor.end()
        self.assertIs(self.reactor.turn(), CONNECTION_DONE)
        self.assertEqual(socket.sent, b"late")

    def test_close_with_a_producer(self) -> None:
        """A producer is waited for."""
        transport, socket = self.connect()
        transport.registerProducer(Producer(), True)
        transport.loseConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)

    def test_close_and_abort(self) -> None:
        """An abort in the same round ends the connection once, as an abort."""
        transport, socket = self.connect()
        transport.loseConnection()
        transport.abortConnection()
        self.reactor.end()
        self.assertFalse(socket.closed)
        self.reactor.advance(0)
        transport.protocol_seen.lost.trap(ConnectionAborted)

    def test_lost_before_the_end_of_the_round(self) -> None:
        """A connection that is lost while it waits for its end is not ended twice."""
        transport, _ = self.connect()
        transport.loseConnection()
        transport.connectionLost(Failure(CONNECTION_LOST))
        self.reactor.end()
        transport.protocol_seen.lost.trap(ConnectionLost)

    def test_protocol_that_fails_at_its_end(self) -> None:
        """A defect in one protocol's end is logged and leaves the others theirs."""
        (first, _), (second, two) = self.connect(), self.connect()
        first.protocol.connectionLost = lambda reason: 1 / 0
        first.loseConnection()
        second.loseConnection()
        self.reactor.end()
        self.assert_done(second, two)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_half_close_in_the_same_round(self) -> None:
        """What was written before loseWriteConnection is sent before the socket is shut."""
        transport, socket = self.connect()
        transport.write(b"bye")
        transport.loseWriteConnection()
        self.reactor.end()
        self.reactor.turn()
        self.assertEqual((socket.sent, socket.shut), (b"bye", [1]))

    def test_abort_in_the_same_round(self) -> None:
        """What was written before abortConnection, an alert perhaps, is sent; nothing after it."""
        transport, socket = self.connect()
        transport.write(b"alert")
        transport.abortConnection()
        transport.write(b"late")
        self.reactor.end()
        self.reactor.advance(0)
        self.assertEqual((socket.sent, socket.closed), (b"alert", True))

    def test_lost_in_the_same_round(self) -> None:
        """A connection that is gone is left alone."""
        transport, socket = self.connect()
        transport.write(b"late")
        transport.connectionLost(Failure(CONNECTION_DONE))
        self.reactor.end()
        self.assertEqual(socket.sent, b"")

    def test_pull_producer(self) -> None:
        """A pull producer that is registered within a round is driven to its end, behind what waited."""
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
            self.reactor.turn()
        self.assertEqual(socket.sent, b"onetwothree")

    def test_streaming_producer_is_paused_when_the_rest_is_large(self) -> None:
        """Many small writes that the socket does not take pause the producer as ever."""
        transport, _ = self.connect([EAGAIN] * 20)
        producer = Producer()
        transport.registerProducer(producer, True)
        for _ in range(10):
            transport.write(b"x" * MOST_OCTETS)
        self.reactor.end()
        self.assertEqual(producer.calls[:1], ["pause"])

    def test_wrong_type(self) -> None:
        """Text is a TypeError at once, and does not disturb what waits."""
        transport, socket = self.connect()
        self.assertRaises(TypeError, transport.write, "text")
        transport.write(b"hello")
        self.assertRaises(TypeError, transport.write, "text")
        self.reactor.end()
        self.assertEqual(socket.sent, b"hello")

    @given(
        st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(["turn", "begin", "end"])), max_size=30),
        st.lists(st.one_of(st.integers(0, 8), st.just("again")), max_size=20),
    )
    def test_any_interleaving_sends_what_was_written(self, steps: list[Any], takes: list[Any]) -> None:
        """Whatever the socket takes and whenever rounds end and the reactor turns, nothing is lost or out of order."""
        self.reactor = Rounds()
        transport, socket = self.connect([EAGAIN if take == "again" else take for take in takes])
        written = b""
        for step in steps:
            if step == "turn":
                if self.reactor.writers:
                    self.assertIsNone(self.reactor.turn())
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
            self.reactor.turn()
        self.assertEqual(socket.sent, written)
