"""Tests of the data path of established connections, fast (``svc.transport.fast.tls``) and stock alike."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st
from OpenSSL._util import lib as _lib
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.errors import HandshakeFailed
from svc.transport.fast.tls import BUFFER_SIZE, WRITE_SIZE
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from tests.mixins import TestsMixin
from tests.transport.pairs import Application, Pair, Producer

PARTIAL_WRITE = _lib.SSL_MODE_ENABLE_PARTIAL_WRITE
SIZES = st.lists(st.sampled_from([0, 1, 2, 100, 16383, 16384, 16385, WRITE_SIZE, WRITE_SIZE + 1]), max_size=5)
CHUNKS = st.lists(st.sampled_from([1, 5, 21, 22, 1000, 16406, 70000, BUFFER_SIZE * 2]), min_size=1, max_size=5)


def pattern(size: int, seed: int = 0) -> bytes:
    """Octets that differ by position, so that swapped or missing ones are detected."""
    return bytes((index * 31 + (index >> 8) + seed) & 0xFF for index in range(min(size, 65521))) * (size // 65521 + 1)


class DataPathTestsMixin(TestsMixin):
    """What holds on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def pair(self, **options: Any) -> Pair:
        return Pair(self.tls, **options).connect()

    def check_split(self, to_server: list[int], to_client: list[int], chunks: list[int]) -> None:
        """Whatever the sizes of writes and of the pieces on the wire, both directions get exactly what was sent."""
        if sum(to_server) + sum(to_client) > 100_000:
            chunks = [max(chunk, 1000) for chunk in chunks]
        pair = self.pair()
        sizes = itertools.cycle(chunks)
        pair.chunk = lambda: next(sizes)
        sent_up = sent_down = b""
        for number, (up, down) in enumerate(itertools.zip_longest(to_server, to_client, fillvalue=0)):
            data_up, data_down = pattern(up, number)[:up], pattern(down, number + 7)[:down]
            pair.client_app.transport.write(data_up)
            pair.server_app.transport.writeSequence([data_down[:3], b"", data_down[3:]])
            sent_up, sent_down = sent_up + data_up, sent_down + data_down
        pair.pump()
        self.assertEqual(pair.server_app.received, sent_up)
        self.assertEqual(pair.client_app.received, sent_down)
        pair.client_app.transport.loseConnection()
        pair.pump()
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_megabytes_in_one_write_and_one_read(self) -> None:
        """A write of 5 MB, carried to the peer in a single read, arrives whole."""
        pair = self.pair()
        data = pattern(5_000_000)[:5_000_000]
        pair.client_app.transport.write(data)
        pair.pump()
        self.assertEqual(pair.server_app.received, data)

    def test_empty_writes_send_nothing(self) -> None:
        """An empty write sends no record."""
        pair = self.pair()
        pair.client_app.transport.write(b"")
        pair.client_app.transport.writeSequence([])
        self.assertEqual(pair.client_wire.buffer, b"")

    def test_streaming_producer_is_paused_and_resumed(self) -> None:
        """A producer is paused while the transport below is full and resumed when it has drained."""
        pair = self.pair()
        producer = Producer()
        transport = pair.server_app.transport
        transport.registerProducer(producer, True)
        transport.write(b"x" * 1000)
        self.assertEqual(producer.calls, [])
        transport.write(b"x" * 200_000)
        self.assertEqual(producer.calls, ["pause"])
        pair.pump()
        self.assertEqual(producer.calls, ["pause", "resume"])
        self.assertEqual(len(pair.client_app.received), 201_000)

    def test_write_by_the_paused_producer_still_arrives(self) -> None:
        """What is written after pauseProducing is kept in order."""
        pair = self.pair()
        producer = Producer()
        transport = pair.server_app.transport
        transport.registerProducer(producer, True)
        transport.write(b"a" * 200_000)
        transport.write(b"b" * 200_000)
        pair.pump()
        self.assertEqual(pair.client_app.received, b"a" * 200_000 + b"b" * 200_000)

    def test_pull_producer_is_served(self) -> None:
        """A pull producer is resumed until it is done."""
        pair = self.pair()
        transport = pair.server_app.transport
        pieces = [b"one", b"two", b"three"]

        class Pull:
            def resumeProducing(self) -> None:
                if pieces:
                    transport.write(pieces.pop(0))
                else:
                    transport.unregisterProducer()

            def stopProducing(self) -> None:
                pieces.clear()

        from twisted.internet import task
        from twisted.internet.task import Cooperator

        steps: list[Any] = []

        def later(call: Any) -> Any:
            steps.append(call)
            return _Scheduled()

        cooperator = Cooperator(scheduler=later)
        self.patch(task, "cooperate", cooperator.cooperate)
        import twisted.internet._producer_helpers as helpers

        self.patch(helpers, "cooperate", cooperator.cooperate)
        transport.registerProducer(Pull(), False)
        while steps:
            steps.pop(0)()
        pair.pump()
        self.assertEqual(pair.client_app.received, b"onetwothree")

    def test_pause_reaches_the_transport_below(self) -> None:
        """pauseProducing stops the reading of the socket; resumeProducing starts it again, nothing is lost."""
        pair = self.pair()
        pair.server_app.on_data = lambda data: pair.server_app.transport.pauseProducing()
        pair.client_app.transport.write(b"first")
        pair.pump()
        pair.client_app.transport.write(b"second")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"first")
        pair.server_app.on_data = None
        pair.server_app.transport.resumeProducing()
        pair.pump()
        self.assertEqual(pair.server_app.received, b"firstsecond")

    def test_changed_record_ends_the_connection(self) -> None:
        """One flipped bit ends the connection with a typed reason; the peer gets the alert; nothing is delivered."""
        pair = self.pair()
        pair.client_app.transport.write(b"good")
        pair.pump()
        pair.client_app.transport.write(b"tampered")
        wire = pair.client_wire
        wire.buffer = wire.buffer[:-1] + bytes([wire.buffer[-1] ^ 1])
        pair.pump()
        self.assertEqual(pair.server_app.received, b"good")
        pair.server_app.lost.trap(HandshakeFailed)
        self.assertEqual(pair.server_app.lost.value.alert, "bad_record_mac")
        pair.client_app.lost.trap(HandshakeFailed)
        self.assertEqual(pair.client_app.lost.value.alert, "bad_record_mac")
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_good_records_before_a_bad_one_are_delivered(self) -> None:
        """Of a read that holds good records and a bad one, the good ones arrive first."""
        pair = self.pair()
        pair.client_app.transport.write(b"good")
        pair.client_wire.buffer += b"\x17\x03\x03\x00\x20" + bytes(32)
        pair.pump()
        self.assertEqual(pair.server_app.received, b"good")
        pair.server_app.lost.trap(HandshakeFailed)

    def test_exception_from_data_received_reaches_the_transport(self) -> None:
        """An exception of the application is not swallowed: the reactor's transport logs it and closes."""
        pair = self.pair()

        def fail(data: bytes) -> None:
            raise ZeroDivisionError("a defect of the application")

        pair.server_app.on_data = fail
        pair.client_app.transport.write(b"x")
        self.assertRaises(ZeroDivisionError, pair.pump)

    def test_nested_delivery_keeps_the_order(self) -> None:
        """A protocol that makes more data arrive while it handles some sees every octet once and in order."""
        pair = self.pair()
        later = [b"second" * 10_000, b"third"]

        def more(data: bytes) -> None:
            if later:
                pair.client_app.transport.write(later.pop(0))
                data, pair.client_wire.buffer = pair.client_wire.buffer, b""
                pair.server.dataReceived(data)

        pair.server_app.on_data = more
        pair.client_app.transport.write(b"first")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"first" + b"second" * 10_000 + b"third")

    def test_two_connections_share_no_data(self) -> None:
        """A connection that is used from within another's dataReceived does not disturb it."""
        one, two = self.pair(), self.pair()

        def relay(data: bytes) -> None:
            two.client_app.transport.write(b"<" + data + b">")
            two.pump()
            one.server_app.transport.write(two.server_app.received[-10:])

        one.server_app.on_data = relay
        one.client_app.transport.write(b"a" * 300_000)
        one.pump()
        self.assertEqual(one.server_app.received, b"a" * 300_000)
        self.assertEqual(two.server_app.received.count(b"a"), 300_000)
        self.assertTrue(one.client_app.received.endswith(b"a" * 9 + b">"))

    def test_ping_pong(self) -> None:
        """Writing from dataReceived on both sides alternates without loss."""
        pair = self.pair()
        rounds = iter(range(50))

        def pong(data: bytes) -> None:
            pair.server_app.transport.write(data + b".")

        def ping(data: bytes) -> None:
            if next(rounds, None) is not None:
                pair.client_app.transport.write(data)

        pair.server_app.on_data, pair.client_app.on_data = pong, ping
        pair.client_app.transport.write(b"x")
        pair.pump()
        self.assertEqual(pair.client_app.chunks[-1], b"x" + b"." * 51)

    def test_wrapped_protocol_may_be_switched(self) -> None:
        """A protocol that replaces ``wrappedProtocol`` (an upgrade) passes the following data to the new one."""
        pair = self.pair()
        upgraded = Application()

        def switch(data: bytes) -> None:
            pair.server.wrappedProtocol = upgraded

        pair.server_app.on_data = switch
        pair.client_app.transport.write(b"upgrade")
        pair.pump()
        pair.client_app.transport.write(b"after")
        pair.pump()
        self.assertEqual((pair.server_app.received, upgraded.received), (b"upgrade", b"after"))
        pair.cut()
        self.assertIsNone(pair.server_app.lost)
        upgraded.lost.trap(ConnectionLost)

    def test_partial_writes_are_completed(self) -> None:
        """With a TLS connection that takes part of a write only, the rest follows in order."""
        pair = self.pair()
        handle = pair.client.getHandle()
        _lib.SSL_set_mode(handle._ssl, PARTIAL_WRITE)
        data = pattern(300_000)[:300_000]
        pair.client_app.transport.write(data)
        pair.pump()
        self.assertEqual(pair.server_app.received, data)

    def test_transport_that_pauses_in_the_middle_of_a_write(self) -> None:
        """A producer paused between the pieces of one write, which writes again from there, loses nothing."""
        pair = self.pair()
        transport = pair.client_app.transport

        class WritesWhenPaused(Producer):
            def pauseProducing(self) -> None:
                super().pauseProducing()
                transport.write(b"!")

        transport.registerProducer(WritesWhenPaused(), True)
        transport.write(b"x" * (WRITE_SIZE * 3))
        pair.pump()
        self.assertEqual(pair.server_app.received.count(b"x"), WRITE_SIZE * 3)
        self.assertEqual(pair.server_app.received.count(b"!"), 1)

    def test_addresses_pass_through(self) -> None:
        """getPeer and getHost are those of the connection below."""
        pair = self.pair()
        self.assertEqual(pair.server_app.transport.getPeer().port, 50000)
        self.assertEqual(pair.server_app.transport.getHost().port, 8443)


class _Scheduled:
    def cancel(self) -> None:
        """Nothing to cancel: the test runs each step itself."""


class FastDataPathTests(DataPathTestsMixin, SynchronousTestCase):
    """The fast data path."""

    tls = FastTlsProtocol

    @settings(max_examples=30, deadline=None)
    @given(to_server=SIZES, to_client=SIZES, chunks=CHUNKS)
    def test_any_split_arrives_intact_both_ways(
        self, to_server: list[int], to_client: list[int], chunks: list[int]
    ) -> None:
        """Whatever the sizes of writes and of the pieces on the wire, both directions get exactly what was sent."""
        self.check_split(to_server, to_client, chunks)

    def test_one_read_is_one_delivery(self) -> None:
        """All records of a read reach the protocol in one call, up to the size of the buffer."""
        pair = self.pair()
        for _ in range(5):
            pair.client_app.transport.write(b"x" * 16384)
        pair.pump()
        self.assertEqual([len(chunk) for chunk in pair.server_app.chunks], [5 * 16384])

    def test_one_write_is_one_write_below(self) -> None:
        """All records of a write go to the transport below in one call."""
        pair = self.pair()
        writes: list[int] = []
        original = pair.client_wire.write
        pair.client_wire.write = lambda data: (writes.append(len(data)), original(data))[1]
        pair.client_app.transport.write(b"x" * WRITE_SIZE)
        self.assertEqual(len(writes), 1)
        self.assertGreater(writes[0], WRITE_SIZE)

    def test_transport_that_closes_during_a_write(self) -> None:
        """A write of several pieces stops when the transport below reports the end in between."""
        pair = self.pair()
        wire = pair.client_wire
        original = wire.write

        def closing(data: bytes) -> None:
            original(data)
            wire.lose(ConnectionDone())

        wire.write = closing
        pair.client_app.transport.write(b"x" * (WRITE_SIZE * 3))
        pair.client_app.lost.trap(ConnectionLost)

    def test_text_is_a_type_error(self) -> None:
        """Text is a TypeError of the caller and has no other effect."""
        pair = self.pair()
        self.assertRaises(TypeError, pair.client_app.transport.write, "text")
        pair.client_app.transport.write(b"after")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"after")


class StockDataPathTests(DataPathTestsMixin, SynchronousTestCase):
    """Twisted's own data path."""

    tls = StockTlsProtocol

    @settings(max_examples=30, deadline=None)
    @given(to_server=SIZES, to_client=SIZES, chunks=CHUNKS)
    def test_any_split_arrives_intact_both_ways(
        self, to_server: list[int], to_client: list[int], chunks: list[int]
    ) -> None:
        """Whatever the sizes of writes and of the pieces on the wire, both directions get exactly what was sent."""
        self.check_split(to_server, to_client, chunks)
