"""Label selectors decide as those of Kubernetes do."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from twisted.trial.unittest import SynchronousTestCase

from svc.policyfiles.selector import MAX_REQUIREMENTS, PodSelector

LABELS = {"app": "api", "tier": "", "svc.internal/compartment": "DE-S-ALPHA"}


def selects(**keys: Any) -> bool:
    """Whether a selector with these keys selects the labels."""
    return PodSelector.model_validate(keys).matches(LABELS)


def requires(key: str, operator: str, *values: str) -> bool:
    """The same, with one requirement."""
    requirement = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return selects(matchExpressions=[requirement])


class SelectorTests(SynchronousTestCase):
    """A selector and the labels of one pod."""

    def test_labels(self) -> None:
        """All labels must be there with their values; without any every pod is selected."""
        self.assertTrue(selects())
        self.assertTrue(selects(matchLabels={"app": "api", "tier": ""}))
        self.assertFalse(selects(matchLabels={"app": "api", "tier": "front"}))
        self.assertFalse(selects(matchLabels={"absent": ""}))
        self.assertTrue(PodSelector().matches({}))

    def test_requirements(self) -> None:
        """In and Exists need the label; NotIn and DoesNotExist hold without it."""
        for key, operator, values, expected in (
            ("app", "In", ("web", "api"), True),
            ("app", "In", ("web",), False),
            ("tier", "In", ("",), True),
            ("absent", "In", ("",), False),
            ("app", "NotIn", ("web",), True),
            ("app", "NotIn", ("api",), False),
            ("absent", "NotIn", ("api",), True),
            ("tier", "Exists", (), True),
            ("absent", "Exists", (), False),
            ("tier", "DoesNotExist", (), False),
            ("absent", "DoesNotExist", (), True),
        ):
            self.assertEqual(expected, requires(key, operator, *values), (key, operator, values))

    def test_all_hold(self) -> None:
        """Labels and requirements hold together."""
        both = {"matchLabels": {"app": "api"}, "matchExpressions": [{"key": "absent", "operator": "Exists"}]}
        self.assertFalse(selects(**both))

    def test_refused(self) -> None:
        """Values without In and NotIn, or In without values, are refused; so is one requirement too many."""
        for key, operator, values in (("a", "Exists", ("x",)), ("a", "In", ()), ("a", "Equals", ("x",))):
            self.assertRaises(ValidationError, requires, key, operator, *values)
        one = {"key": "absent", "operator": "DoesNotExist"}
        self.assertTrue(selects(matchExpressions=[one] * MAX_REQUIREMENTS))
        self.assertRaises(ValidationError, lambda: selects(matchExpressions=[one] * (MAX_REQUIREMENTS + 1)))
