"""Tests of ``svc.transport.limits``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.errors import ConnectionLimitReached, HandshakeLimitReached, TransportError, WaitingLimitReached
from svc.transport.limits import (
    MAX_CONNECTIONS,
    MAX_HANDSHAKES,
    MAX_WAITING,
    connection_limit,
    handshake_limit,
    waiting_limit,
)


class Connection:
    """Holds a slot and records why it was evicted."""

    error: TransportError | None = None

    def evicted(self, error: TransportError) -> None:
        self.error = error


class LimitTests(SynchronousTestCase):
    """Tests of ``Limit``."""

    def test_at_the_limit_and_one_more(self) -> None:
        """At the maximum one more is refused with the limit; after a release one more is accepted."""
        limit = connection_limit(3)
        for _ in range(3):
            limit.acquire()
        error = self.assertRaises(ConnectionLimitReached, limit.acquire)
        self.assertEqual((error.limit, error.reason), (3, "connection_limit"))
        limit.release()
        limit.acquire()
        self.assertEqual(limit.held, 3)

    def test_defaults_and_classes(self) -> None:
        """The named constructors raise their own errors and have defaults."""
        limits = connection_limit(), handshake_limit(), waiting_limit()
        self.assertEqual([each.maximum for each in limits], [MAX_CONNECTIONS, MAX_HANDSHAKES, MAX_WAITING])
        handshakes, connection = handshake_limit(1), Connection()
        handshakes.acquire(connection, "a", 0.0)
        self.assertRaises(HandshakeLimitReached, handshakes.acquire, Connection(), "a", 0.0)
        waiting = waiting_limit(1)
        waiting.acquire(connection, "a", 0.0)
        waiting.acquire(Connection(), "a", 0.0)
        self.assertIsInstance(connection.error, WaitingLimitReached)

    def test_misuse(self) -> None:
        """A maximum below one, and a release without an acquire, are errors of the caller."""
        self.assertRaises(ValueError, connection_limit, 0)
        self.assertRaises(RuntimeError, connection_limit(1).release)

    @given(st.integers(1, 5), st.lists(st.booleans()))
    def test_never_more_than_the_maximum(self, maximum: int, steps: list[bool]) -> None:
        """In any order of acquires and releases the count stays between zero and the maximum."""
        limit, held = connection_limit(maximum), 0
        for take in steps:
            if take and held < maximum:
                limit.acquire()
                held += 1
            elif take:
                self.assertRaises(ConnectionLimitReached, limit.acquire)
            elif held:
                limit.release()
                held -= 1
            self.assertEqual(limit.held, held)
