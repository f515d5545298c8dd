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


class Holder:
    """Holds a place."""

    told: TransportError | None = None

    def give_way(self, error: TransportError) -> None:
        """Remember why."""
        self.told = error


class LimitTests(SynchronousTestCase):
    """Tests of ``Limit``."""

    def test_at_the_limit_and_one_more(self) -> None:
        """The last place can be taken, one more is refused with the limit, and a released place can be taken again."""
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
        handshakes, holder = handshake_limit(1), Holder()
        handshakes.enter(holder, "a", 0.0)
        self.assertRaises(HandshakeLimitReached, handshakes.enter, Holder(), "a", 0.0)
        waiting = waiting_limit(1)
        waiting.enter(holder, "a", 0.0)
        waiting.enter(Holder(), "a", 0.0)
        self.assertIsInstance(holder.told, WaitingLimitReached)

    def test_misuse(self) -> None:
        """A limit below one, and giving back what was not taken, are errors of the caller."""
        self.assertRaises(ValueError, connection_limit, 0)
        self.assertRaises(RuntimeError, connection_limit(1).release)

    @given(st.integers(1, 5), st.lists(st.booleans()))
    def test_never_more_than_the_maximum(self, maximum: int, steps: list[bool]) -> None:
        """Whatever the order of takes and returns, the count stays between zero and the maximum."""
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
