"""Tests of ``svc.transport.fair_limiter``."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.errors import HandshakeLimitReached, TransportError, WaitingLimitReached
from svc.transport.fair_limiter import FairLimiter, release_slot, source_network


class Connection:
    """Holds a slot and records why it was evicted."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.error: TransportError | None = None

    def evicted(self, error: TransportError) -> None:
        self.error = error


class LimitedTransport:
    """A transport that holds a slot under its listener's limit."""

    slots = 1

    def release_slot(self) -> None:
        self.slots -= 1


class ReleaseSlotTests(SynchronousTestCase):
    """Tests of ``release_slot``."""

    def test_slot(self) -> None:
        """A transport with a slot frees it at once; any other object is left alone."""
        limited = LimitedTransport()
        for transport in (limited, object(), None):
            release_slot(transport)
        self.assertEqual(0, limited.slots)


class WithoutGraceTests(SynchronousTestCase):
    """Without a grace period every new connection gets a slot."""

    def setUp(self) -> None:
        self.limiter = FairLimiter(4, WaitingLimitReached)

    def acquire(self, source: str, now: float = 0.0) -> Connection:
        connection = Connection(source)
        self.limiter.acquire(connection, source, now)
        return connection

    def test_up_to_the_limit_and_one_more(self) -> None:
        """At the limit one more connection evicts the oldest of the same source, with the limit in the error."""
        connections = [self.acquire("a") for _ in range(4)]
        self.assertEqual((4, [None] * 4), (self.limiter.held, [each.error for each in connections]))
        self.acquire("a")
        self.assertEqual(4, self.limiter.held)
        self.assertIsInstance(connections[0].error, WaitingLimitReached)
        self.assertEqual(4, connections[0].error.limit)
        self.assertEqual([None] * 3, [each.error for each in connections[1:]])

    def test_largest_source_is_evicted(self) -> None:
        """A source that holds all slots loses one to each other source, the oldest first; the others lose none."""
        many = [self.acquire("many") for _ in range(4)]
        others = [self.acquire(f"other-{number}") for number in range(3)]
        self.assertEqual([True, True, True, False], [each.error is not None for each in many])
        more = [self.acquire("many") for _ in range(10)]
        self.assertEqual([None] * 3, [each.error for each in others])
        self.assertIsNone(more[-1].error)
        self.assertEqual(4, self.limiter.held)

    def test_equal_sources(self) -> None:
        """Where every source holds one slot the oldest connection is evicted."""
        connections = [self.acquire(f"{number}") for number in range(5)]
        self.assertEqual([True, False, False, False, False], [each.error is not None for each in connections])

    def test_release(self) -> None:
        """A released slot is free; a second release has no effect."""
        first = self.acquire("a")
        rest = [self.acquire("a") for _ in range(3)]
        self.limiter.release(first)
        self.limiter.release(first)
        self.assertEqual(3, self.limiter.held)
        self.acquire("a")
        self.assertEqual([None] * 4, [each.error for each in (first, *rest)])

    def test_evict(self) -> None:
        """``evict`` closes the oldest connection of the source with most; without connections it returns False."""
        self.assertFalse(self.limiter.evict())
        other, *many = self.acquire("other"), self.acquire("many"), self.acquire("many")
        self.assertTrue(self.limiter.evict())
        self.assertEqual([False, True, False], [each.error is not None for each in (other, *many)])
        self.assertEqual(2, self.limiter.held)

    def test_misuse(self) -> None:
        """A limit is at least one."""
        self.assertRaises(ValueError, FairLimiter, 0, WaitingLimitReached)


class GraceTests(SynchronousTestCase):
    """With a grace period connections that have cost work are not evicted at once."""

    def setUp(self) -> None:
        self.limiter = FairLimiter(3, HandshakeLimitReached, grace=1.0)

    def acquire(self, source: str, now: float) -> Connection:
        connection = Connection(source)
        self.limiter.acquire(connection, source, now)
        return connection

    def test_within_the_grace_period(self) -> None:
        """A new connection does not evict a recent one of the same source: it is refused."""
        connections = [self.acquire("a", 0.0) for _ in range(3)]
        error = self.assertRaises(HandshakeLimitReached, self.acquire, "a", 0.9)
        self.assertEqual((3, "handshake_limit"), (error.limit, error.reason))
        self.assertEqual([None] * 3, [each.error for each in connections])

    def test_stalled(self) -> None:
        """After the grace period the oldest connection is evicted, of the same source first."""
        self.acquire("b", 0.0)
        own = self.acquire("a", 0.5)
        self.acquire("c", 0.6)
        self.acquire("a", 1.5)
        self.assertIsNotNone(own.error)

    def test_stalled_elsewhere(self) -> None:
        """While those of the same source are recent, the oldest of all is evicted after its grace period."""
        stalled = self.acquire("b", 0.0)
        self.acquire("a", 0.9)
        self.acquire("a", 0.9)
        self.assertRaises(HandshakeLimitReached, self.acquire, "a", 0.95)
        self.acquire("a", 1.0)
        self.assertIsNotNone(stalled.error)

    def test_evict_stalled(self) -> None:
        """``evict_stalled`` closes the oldest connection after its grace period, and not before."""
        self.assertFalse(self.limiter.evict_stalled(9.0))
        first, second = self.acquire("a", 0.0), self.acquire("b", 0.5)
        self.assertFalse(self.limiter.evict_stalled(0.99))
        self.assertTrue(self.limiter.evict_stalled(1.0))
        self.assertIsNotNone(first.error)
        self.assertFalse(self.limiter.evict_stalled(1.4))
        self.assertIsNone(second.error)
        self.assertEqual(1, self.limiter.held)

    def test_share(self) -> None:
        """A source with more than its share is evicted for another at once, however recent its connections are."""
        first, *_rest = [self.acquire("a", 0.0) for _ in range(3)]
        self.acquire("b", 0.0)
        self.assertIsNotNone(first.error)
        # Two and one: a second slot for b would only exchange the shares.
        self.assertRaises(HandshakeLimitReached, self.acquire, "b", 0.0)

    def test_many_addresses(self) -> None:
        """As many sources as slots keep others out while they renew each connection within the grace period."""
        for second in range(3):
            for number in range(3):
                self.acquire(f"{second}.{number}", second + number / 10)
            self.assertRaises(HandshakeLimitReached, self.acquire, "client", second + 0.9)
        self.acquire("client", 3.0)
        self.assertEqual(3, self.limiter.held)


class AnyOrderTests(SynchronousTestCase):
    """Any order of connections that come and end."""

    @given(
        st.integers(1, 6),
        st.sampled_from([0.0, 1.0]),
        st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 2), st.integers(0, 9)), max_size=60),
    )
    def test_never_more_than_the_maximum(self, maximum: int, grace: float, steps: list[tuple[str, float, int]]) -> None:
        """
        At most the maximum is held, by exactly those that acquired and neither released nor were evicted; within its
        grace period none is evicted for a source that holds more.
        """
        limiter, held, now = FairLimiter(maximum, HandshakeLimitReached, grace=grace), [], 0.0
        acquired: dict[Connection, float] = {}
        for source, pause, choice in steps:
            now += pause
            if choice < 3 and held:
                limiter.release(held.pop(choice % len(held)))
            else:
                before = Counter(each.source for each in held)
                connection = Connection(source)
                try:
                    limiter.acquire(connection, source, now)
                except HandshakeLimitReached:
                    self.assertEqual((maximum, 1.0), (len(held), grace))
                    self.assertLessEqual(max(before.values()), before[source] + 1)
                else:
                    held.append(connection)
                    acquired[connection] = now
                evicted = [each for each in held if each.error is not None]
                self.assertLessEqual(len(evicted), 1)
                for each in evicted:
                    if grace == 0 or now - acquired[each] < grace:
                        self.assertGreaterEqual(before[each.source] + 1, before[source])
                    held.remove(each)
            self.assertEqual(len(held), limiter.held)
            self.assertLessEqual(limiter.held, maximum)
        while held:
            self.assertTrue(limiter.evict())
            held = [each for each in held if each.error is None]
        self.assertFalse(limiter.evict())


class SourceNetworkTests(SynchronousTestCase):
    """Tests of ``source_network``."""

    def test_addresses(self) -> None:
        """An IPv4 address, also mapped into IPv6, is its own source; IPv6 counts by /64; the rest together."""
        for address, expected in (
            (IPv4Address("TCP", "192.0.2.7", 1), "192.0.2.7"),
            (IPv6Address("TCP", "::ffff:192.0.2.7", 1), "192.0.2.7"),
            (IPv6Address("TCP", "2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "2001:db8:1:2::1", 2), "2001:db8:1:2::/64"),
            (IPv6Address("TCP", "fe80::1%eth0", 2), "fe80::/64"),
            (UNIXAddress("/run/x"), "local"),
            (None, "local"),
        ):
            self.assertEqual(expected, source_network(address))
