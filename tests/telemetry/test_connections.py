"""Counts of denials."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.connections import MAX_REASONS, DenialCounts


class DenialCountsTests(SynchronousTestCase):
    """:class:`DenialCounts`."""

    def test_bound(self) -> None:
        """As many reasons as the limit says are counted apart; those beyond it together, and those known go on."""
        counts = DenialCounts()
        for number in range(MAX_REASONS + 3):
            counts.add(f"reason_{number}")
        counts.add("reason_0")
        self.assertEqual((MAX_REASONS + 1, 3, 2), (len(counts), counts["other"], counts["reason_0"]))
