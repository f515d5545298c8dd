"""Tests of :mod:`svc.kube.times`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.times import from_time, to_micro_time, to_time


class TimesTests(SynchronousTestCase):
    """Both formats."""

    def test_written(self) -> None:
        """In UTC, with as many digits as the API server accepts."""
        moment = datetime(2026, 3, 1, 0, 30, 5, 42, tzinfo=timezone(timedelta(hours=2)))
        self.assertEqual("2026-02-28T22:30:05Z", to_time(moment))
        self.assertEqual("2026-02-28T22:30:05.000042Z", to_micro_time(moment))
        self.assertEqual("2026-03-01T00:00:00.000000Z", to_micro_time(datetime(2026, 3, 1, tzinfo=UTC)))

    def test_read(self) -> None:
        """Both are read back; a time without a zone, and what is none, is none."""
        moment = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
        for text in (to_time(moment), to_micro_time(moment), "2026-03-01T14:00:00+02:00"):
            self.assertEqual(moment, from_time(text))
        for wrong in ("2026-03-01T12:00:00", "tomorrow", "", None, 5):
            self.assertIsNone(from_time(wrong))
