"""Tests of svc.workload.pqwatch."""

from __future__ import annotations

from twisted.internet import error
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.workload.errors import PqIssuerError
from svc.workload.pqwatch import LOST_EVERY, WATCH_EVERY, WATCH_TIMEOUT, IssuerWatch


class IssuerWatchTests(SynchronousTestCase):
    """A watch over a reactor in memory."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.reports: list[str | None] = []
        self.watch = IssuerWatch("unix:///run/pq.sock", self.reactor, self.reached)
        self.watch.startService()

    def reached(self, why: PqIssuerError | None) -> None:
        self.reports.append(None if why is None else str(why))

    def refuse(self, why: error.ConnectError) -> None:
        """Let the newest attempt fail."""
        self.reactor.unixClients[-1][1].clientConnectionFailed(None, Failure(why))

    def take(self) -> StringTransport:
        """Let the newest attempt succeed."""
        transport = StringTransport()
        protocol = self.reactor.unixClients[-1][1].buildProtocol(None)
        protocol.makeConnection(transport)
        return transport

    def stop(self) -> None:
        """Stop, and assert that no timer remains."""
        self.watch.stopService()
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_each_interval(self) -> None:
        """It connects at the start and after each interval, without waiting for an answer."""
        self.assertTrue(self.take().disconnected)
        self.reactor.advance(WATCH_EVERY)
        self.refuse(error.ConnectionRefusedError())
        self.reactor.advance(LOST_EVERY)
        self.take()
        unreachable = "the PQ issuer at unix:///run/pq.sock cannot be reached: connection refused"
        self.assertEqual(self.reports, [None, unreachable, None])
        self.assertEqual([each[2] for each in self.reactor.unixClients], [WATCH_TIMEOUT] * 3)
        self.stop()

    def test_while_it_is_away(self) -> None:
        """While it cannot be reached the intervals are short, from start to start; then they are long again."""
        for _number in range(3):
            self.reactor.advance(0.5)
            self.refuse(error.ConnectionRefusedError())
            self.reactor.advance(LOST_EVERY - 0.75)
            before = len(self.reactor.unixClients)
            self.reactor.advance(0.25)
            self.assertEqual(before + 1, len(self.reactor.unixClients))
        self.take()
        self.reactor.advance(WATCH_EVERY - 0.25)
        self.assertEqual(4, len(self.reactor.unixClients))
        self.reactor.advance(0.25)
        self.assertEqual(5, len(self.reactor.unixClients))
        self.stop()

    def test_look_soon(self) -> None:
        """On request the next attempt is made within a second, and never later than it would have been."""
        self.watch.look_soon()
        self.take()
        self.reactor.advance(1.0)
        self.watch.look_soon()
        self.reactor.advance(LOST_EVERY)
        self.assertEqual(2, len(self.reactor.unixClients))
        self.watch.look_soon()
        self.take()
        self.reactor.advance(WATCH_EVERY - 0.5)
        self.watch.look_soon()
        self.reactor.advance(0.5)
        self.assertEqual(3, len(self.reactor.unixClients))
        self.stop()

    def test_one_attempt_at_a_time(self) -> None:
        """Attempts do not overlap; stopping the service ends one without a report."""
        self.reactor.advance(WATCH_EVERY * 3)
        self.assertEqual(len(self.reactor.unixClients), 1)
        self.stop()
        self.assertEqual(self.reports, [])
