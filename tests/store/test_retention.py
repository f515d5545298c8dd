"""The store forgets on time."""

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
    """Pruning follows an injected clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.store.init()
        self.counts: list[int] = []
        self.service = RetentionService(
            self.store,
            retention=100.0,
            clock=self.clock,
            now=lambda: datetime.fromtimestamp(NOW + self.clock.seconds(), UTC),
            interval=30.0,
            pruned=self.counts.append,
        )

    def test_forgets_what_is_older_than_retention(self) -> None:
        """A record is there until it is older than the retention at a pruning, then gone."""
        self.successResultOf(self.store.put_receipt(receipt("r1", issued_at=NOW - 80)))
        self.service.startService()
        self.addCleanup(self.service.stopService)
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("r1")))
        self.clock.advance(30)
        self.assertIsNone(self.successResultOf(self.store.get_receipt("r1")))
        self.assertEqual([1], self.counts)

    def test_goes_on_after_an_error(self) -> None:
        """A pruning that fails is kept as the last error and tried again."""
        refusal = StoreUnavailable(path="notary.db", detail="broken")
        answers: list[Deferred[int]] = [fail(refusal)]
        prune = self.store.prune
        self.store.prune = lambda before: answers.pop() if answers else prune(before)  # type: ignore[method-assign]
        self.service.startService()
        self.addCleanup(self.service.stopService)
        self.assertIs(refusal, self.service.last_error)
        self.clock.advance(30)
        self.assertIsNone(self.service.last_error)

    def test_stops(self) -> None:
        """A stopped service leaves no timer, and waits for a pruning that runs."""
        running: Deferred[int] = Deferred()
        self.store.prune = lambda before: running  # type: ignore[method-assign]
        self.service.startService()
        stopped = self.service.stopService()
        self.assertNoResult(stopped)
        running.callback(0)
        self.successResultOf(stopped)
        self.assertEqual([], self.clock.getDelayedCalls())
