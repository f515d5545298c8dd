"""Tests of :mod:`svc.kube.status`: conditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.status import MAX_MESSAGE, with_condition

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


class ConditionTests(SynchronousTestCase):
    """One condition among others."""

    def test_new(self) -> None:
        """A new condition begins now; conditions are sorted by their types, and others stay as they are."""
        other = {"type": "Valid", "status": "True", "since": "ever"}
        found = with_condition([other], "Ready", "False", "Starting", "it starts", NOW, generation=3)
        wanted: dict[str, Any] = {
            "type": "Ready",
            "status": "False",
            "reason": "Starting",
            "message": "it starts",
            "lastTransitionTime": "2026-03-01T12:00:00Z",
            "observedGeneration": 3,
        }
        self.assertEqual([wanted, other], found)

    def test_transition(self) -> None:
        """The time is that of the last change of the status; another reason or message is none."""
        first = with_condition([], "Ready", "False", "Starting", "", NOW)
        same = with_condition(first, "Ready", "False", "Waiting", "x", LATER)
        self.assertEqual("2026-03-01T12:00:00Z", same[0]["lastTransitionTime"])
        self.assertEqual(("Waiting", "x"), (same[0]["reason"], same[0]["message"]))
        other = with_condition(same, "Ready", "True", "Waiting", "x", LATER)
        self.assertEqual("2026-03-01T12:01:00Z", other[0]["lastTransitionTime"])
        self.assertNotIn("observedGeneration", other[0])
        self.assertEqual(1, len(other))

    def test_long_message(self) -> None:
        """A message is cut to what schemas accept."""
        for length in (MAX_MESSAGE, MAX_MESSAGE + 1):
            (found,) = with_condition([], "Ready", "True", "Ok", "x" * length, NOW)
            self.assertEqual(MAX_MESSAGE, len(found["message"]))
