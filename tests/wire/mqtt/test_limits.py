"""Each limit at its bound and one above."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Connect,
    MqttError,
    PacketLimits,
    PacketRefused,
    PacketTooLarge,
    QuotaExceeded,
    Version,
    Will,
    encode,
)
from tests.wire.mqtt.building import opening, packet, read, text
from tests.wire.mqtt.rows import ONE, T, publish, subscribe, unsubscribe


class LimitTests(SynchronousTestCase):
    """What one packet may use."""

    def refusal(self, octets: bytes, limits: PacketLimits) -> MqttError | None:
        """Read a packet after CONNECT; return the error of the refusal, or None."""
        event = read(opening("client", 5) + octets, limits=limits)[1]
        return event.error if isinstance(event, PacketRefused) else None

    def at_bound(self, limits: PacketLimits, good: bytes, bad: bytes, items: str, limit: int) -> None:
        """Check that the one passes and the other does not."""
        self.assertIsNone(self.refusal(good, limits))
        error = self.refusal(bad, limits)
        self.assertIsInstance(error, QuotaExceeded)
        assert error is not None
        self.assertEqual((error.evidence["limit"], error.evidence["items"]), (limit, items))

    def test_properties(self) -> None:
        """User properties count like all others."""
        pair = b"\x26" + text("n") + text("v")

        def with_pairs(count: int) -> bytes:
            block = b"\x01\x01" + pair * count
            return publish(T, bytes((len(block),)) + block)

        self.at_bound(PacketLimits(properties=4), with_pairs(3), with_pairs(4), "properties", 4)

    def test_levels(self) -> None:
        """The levels of topic names and filters."""
        limits = PacketLimits(levels=3)
        good, bad = text("a/b/c"), text("a/b/c/")
        self.at_bound(limits, publish(good), publish(bad), "levels of a topic", 3)
        self.at_bound(limits, subscribe(good + b"\x00"), subscribe(bad + b"\x00"), "levels of a topic", 3)
        self.at_bound(limits, unsubscribe(good), unsubscribe(bad), "levels of a topic", 3)

    def test_filters(self) -> None:
        """The topic filters of SUBSCRIBE and UNSUBSCRIBE."""
        limits = PacketLimits(filters=2)
        self.at_bound(limits, subscribe(ONE * 2), subscribe(ONE * 3), "topic filters", 2)
        self.at_bound(limits, unsubscribe(T * 2), unsubscribe(T * 3), "topic filters", 2)

    def test_suback(self) -> None:
        """The reason codes in SUBACK are bounded like the topic filters."""
        octets = opening("server", 5) + packet(0x90, b"\x00\x01\x00", b"\x00" * 3)
        self.assertFalse(isinstance(read(octets, "server", limits=PacketLimits(filters=3))[1], PacketRefused))
        event = read(octets, "server", limits=PacketLimits(filters=2))[1]
        assert isinstance(event, PacketRefused)
        self.assertIsInstance(event.error, QuotaExceeded)

    def test_first_packet(self) -> None:
        """The first packet has its own limit, checked by its header; later packets have theirs."""
        connect = encode(Connect("c" * 50, will=Will("t", bytes(100))), Version.V5, "client")
        size, behind = len(connect), publish(T, bytes(1) + bytes(2 * len(connect)))
        for limits, limit in ((PacketLimits(first_packet=size), size), (PacketLimits(first_packet=size - 1), size - 1)):
            for octets in (connect + behind, connect[:3]):
                events = read(octets, limits=limits)
                if limit == size:
                    self.assertFalse(any(isinstance(each, PacketRefused) for each in events))
                    continue
                (event,) = events
                assert isinstance(event, PacketRefused)
                self.assertIsInstance(event.error, PacketTooLarge)
                self.assertEqual(event.error.evidence["limit"], limit)
        (event,) = read(connect, limits=PacketLimits(packet=size - 1))
        self.assertIsInstance(event, PacketRefused)
