"""What a process does to its memory while it begins."""

from __future__ import annotations

import gc

from twisted.trial.unittest import SynchronousTestCase

from svc.workload.process import resting_collector


class CollectorTests(SynchronousTestCase):
    """The collector of cycles, of this very process."""

    def setUp(self) -> None:
        """What these tests freeze thaws at the end."""
        self.assertTrue(gc.isenabled())
        self.addCleanup(gc.enable)
        self.addCleanup(gc.unfreeze)

    def test_rests(self) -> None:
        """It rests meanwhile, and what was made then is no work for it any more."""
        frozen = gc.get_freeze_count()
        with resting_collector():
            self.assertFalse(gc.isenabled())
            kept = [[number] for number in range(1000)]
        self.assertTrue(gc.isenabled())
        self.assertGreaterEqual(gc.get_freeze_count() - frozen, len(kept))

    def test_works_again_after_a_failure(self) -> None:
        """A start that fails leaves it as it was."""
        with self.assertRaises(KeyError), resting_collector():
            raise KeyError("a failure")
        self.assertTrue(gc.isenabled())

    def test_stays_as_it_was(self) -> None:
        """Where somebody has turned it off, it stays off."""
        gc.disable()
        with resting_collector():
            pass
        self.assertFalse(gc.isenabled())
