"""Tests of :mod:`svc.kube.election`: what it accepts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.election import Elector


class ElectorTests(SynchronousTestCase):
    """Arguments."""

    def test_periods(self) -> None:
        """A leader has to give up before the Lease expires, and to renew before it gives up; an identity is needed."""
        good: dict[str, Any] = {"identity": "a", "duration": 3, "deadline": 2.0, "renewal": 1.0}
        self.make(**good)
        for bad in ({"deadline": 3.0}, {"renewal": 2.0}, {"identity": ""}):
            with self.assertRaises(ValueError):
                self.make(**{**good, **bad})

    def make(self, identity: str, **seconds: Any) -> Elector:
        """An elector without a client."""
        return Elector(None, "ns", "lease", identity, lambda: datetime.now(UTC), self.fail, **seconds)  # type: ignore[arg-type]
