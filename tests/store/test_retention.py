"""Records are pruned by age."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.store.errors import StoreUnavailable
from svc.store.retention import RetentionService
from svc.testing.store import MemoryStore
from tests.store.doubles import NOW, receipt


class RetentionTests(SynchronousTestCase):
    """Pruning uses an injected clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.store.init()
        self.counts: list[int] = []
        self.set = 0.0
        self.service = RetentionService(
            self.store,
            retention=100.0,
            clock=self.clock,
            now=lambda: datetime.fromtimestamp(NOW + self.clock.seconds() + self.set, UTC),
            interval=30.0,
            pruned=self.counts.append,
        )

    def test_deletes_what_is_older_than_retention(self) -> None:
        """A record is kept until it is older than the retention time at a run, then it is deleted."""
        self.successResultOf(self.store.put_receipt(receipt("r1", issued_at=NOW - 80)))
        self.service.startService()
        self.addCleanup(self.service.stopService)
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("r1")))
        self.clock.advance(30)
        self.assertIsNone(self.successResultOf(self.store.get_receipt("r1")))
        self.assertEqual([1], self.counts)

    def test_goes_on_after_an_error(self) -> None:
        """An error of a run is kept as the last error, and the next run tries again."""
        refusal = StoreUnavailable(path="notary.db", detail="broken")
        answers: list[Deferred[int]] = [fail(refusal)]
        prune = self.store.prune
        self.store.prune = lambda before: answers.pop() if answers else prune(before)
        self.service.startService()
        self.addCleanup(self.service.stopService)
        self.clock.advance(30)
        self.assertIs(refusal, self.service.last_error)
        self.clock.advance(30)
        self.assertIsNone(self.service.last_error)

    def test_stops(self) -> None:
        """A stopped service leaves no timer, and waits for a run in progress."""
        running: Deferred[int] = Deferred()
        self.store.prune = lambda before: running
        self.service.startService()
        self.clock.advance(30)
        stopped = self.service.stopService()
        self.assertNoResult(stopped)
        running.callback(0)
        self.successResultOf(stopped)
        self.assertEqual([], self.clock.getDelayedCalls())


class ClockTests(SynchronousTestCase):
    """The clock of the machine is set while daily records are kept for ten days."""

    DAY = 86400.0

    def setUp(self) -> None:
        self.clock = Clock()
        self.set = 0.0
        self.store = MemoryStore()
        self.store.init()
        self.service = RetentionService(
            self.store,
            retention=10 * self.DAY,
            clock=self.clock,
            now=lambda: datetime.fromtimestamp(NOW + self.clock.seconds() + self.set, UTC),
            interval=600.0,
        )
        for name, age in (("old", 10 * self.DAY + 1), ("fresh", self.DAY)):
            self.successResultOf(self.store.put_receipt(receipt(name, issued_at=int(NOW - age))))

    def start(self) -> None:
        """Start the service."""
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def run_for(self, seconds: float) -> None:
        """Advance the clock, check by check."""
        for _turn in range(int(seconds // 600)):
            self.clock.advance(600)

    def kept(self) -> set[str]:
        """Return the records that are left."""
        return {name for name in ("old", "fresh") if self.successResultOf(self.store.get_receipt(name)) is not None}

    def test_start(self) -> None:
        """In the first hour nothing is deleted, since the clock may still be set."""
        self.start()
        self.run_for(3000)
        self.assertEqual({"old", "fresh"}, self.kept())
        self.run_for(600)
        self.assertEqual({"fresh"}, self.kept())

    def test_wrong_at_start(self) -> None:
        """A clock that is a year ahead and corrected within the hour deletes nothing."""
        self.set = 365 * self.DAY
        self.start()
        self.run_for(3000)
        self.set = 0.0
        self.run_for(3000)
        self.assertEqual({"old", "fresh"}, self.kept())
        self.run_for(1200)
        self.assertEqual({"fresh"}, self.kept())

    def test_forward_for_a_moment(self) -> None:
        """A clock that jumps a year ahead and is corrected within a day deletes no recent record."""
        self.start()
        self.run_for(3600)
        self.set = 365 * self.DAY
        self.run_for(self.DAY - 600)
        self.assertEqual({"fresh"}, self.kept())
        self.set = 0.0
        self.run_for(2 * self.DAY)
        self.assertEqual({"fresh"}, self.kept())

    def test_forward_for_good(self) -> None:
        """The new time is used after a day; after a smaller step, after as long as the step was."""
        self.start()
        self.run_for(3600)
        self.set = 20 * self.DAY
        self.run_for(self.DAY)
        self.assertEqual({"fresh"}, self.kept())
        self.run_for(600)
        self.assertEqual(set(), self.kept())

    def test_slow_correction(self) -> None:
        """A clock that is slewed as time services do stays reliable."""
        self.start()
        for _turn in range(6):
            self.set += 600 * 0.0005
            self.clock.advance(600)
        self.assertEqual({"fresh"}, self.kept())
