"""The conditions of a process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.health import PROXY_CONDITIONS, ConditionUnknown, Health

START = datetime(2026, 11, 21, tzinfo=UTC)


class HealthTests(SynchronousTestCase):
    """Named conditions."""

    def setUp(self) -> None:
        self.now = START
        self.changes: list[bool] = []
        self.health = Health(("a", "b"), now=lambda: self.now, changed=self.changes.append)

    def test_starts_unready(self) -> None:
        """No condition holds until it is set."""
        self.assertFalse(self.health.ready)
        self.assertEqual(["not_yet_known"] * 2, [condition.reason for condition in self.health.conditions])

    def test_changes_are_reported_once(self) -> None:
        """Readiness is reported when it changes, not at each condition."""
        self.health.holds("a")
        self.health.holds("b")
        self.health.holds("b")
        self.health.fails("a", "gone")
        self.health.fails("b", "gone")
        self.assertEqual([True, False], self.changes)

    def test_since(self) -> None:
        """A condition keeps the time of its last change."""
        self.health.fails("a", "first")
        self.now += timedelta(seconds=5)
        self.health.fails("a", "second")
        self.assertEqual(START, self.health.conditions[0].since)
        self.health.holds("a")
        self.assertEqual(self.now, self.health.conditions[0].since)

    def test_drain_is_final(self) -> None:
        """After a drain has begun nothing makes the process ready again."""
        for name in ("a", "b"):
            self.health.holds(name)
        self.health.drain()
        self.health.holds("a")
        self.assertFalse(self.health.ready)
        self.assertEqual([True, False], self.changes)

    def test_optional_conditions(self) -> None:
        """A condition that is not required is shown only, until the configuration makes it necessary."""
        health = Health(("a", "b"), optional=("b",), now=lambda: self.now, changed=self.changes.append)
        health.holds("a")
        self.assertEqual((True, [True]), (health.ready, self.changes))
        health.require("b", True)
        self.assertEqual((False, ("b",)), (health.ready, tuple(each.name for each in health.failing)))
        health.require("b", False)
        self.assertEqual([True, False, True], self.changes)

    def test_added(self) -> None:
        """A condition that is added later is shown and does not make the process less ready; once is enough."""
        self.health.holds("a")
        self.health.holds("b")
        self.health.add_optional("c")
        self.assertEqual((True, ["a", "b", "c"]), (self.health.ready, [each.name for each in self.health.conditions]))
        self.health.holds("c")
        self.health.add_optional("c")
        self.assertTrue(self.health.condition("c").holds)
        self.health.fails("c", "broken")
        self.assertTrue(self.health.ready)

    def test_unknown_names(self) -> None:
        """A name that the constructor was not given is an error, not a new condition."""
        self.assertRaises(ConditionUnknown, self.health.holds, "c")
        self.assertRaises(ConditionUnknown, self.health.condition, "c")
        self.assertRaises(ConditionUnknown, self.health.require, "c", True)
        self.assertEqual(2, len(self.health.conditions))
        self.assertEqual(("credentials", "workloadApi", "store", "listeners", "pqIssuer"), PROXY_CONDITIONS)
