"""Tests of :mod:`svc.kube.times`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.times import to_micro_time, to_time


class TimesTests(SynchronousTestCase):
    """Both formats."""

    def test_written(self) -> None:
        """In UTC, with as many digits as the API server accepts."""
        moment = datetime(2026, 3, 1, 0, 30, 5, 42, tzinfo=timezone(timedelta(hours=2)))
        self.assertEqual("2026-02-28T22:30:05Z", to_time(moment))
        self.assertEqual("2026-02-28T22:30:05.000042Z", to_micro_time(moment))
        self.assertEqual("2026-03-01T00:00:00.000000Z", to_micro_time(datetime(2026, 3, 1, tzinfo=UTC)))
