"""Who may reach into which pod."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.admission import admits, is_concerned
from svc.compartments.compartment import Compartment

ALPHA = Compartment.parse("DE", "S", "AL-PHA")


class AdmissionTests(SynchronousTestCase):
    """Groups of a user, label of a pod."""

    def test_own_compartment(self) -> None:
        """All three parts are needed; further groups do not matter, nor does case."""
        self.assertTrue(admits(ALPHA.label, ("system:authenticated", *ALPHA.groups)))
        self.assertTrue(admits(ALPHA.label.lower(), [each.upper() for each in ALPHA.groups]))
        for left in ALPHA.groups:
            self.assertFalse(admits(ALPHA.label, [each for each in ALPHA.groups if each != left]))

    def test_pod_without_compartment(self) -> None:
        """It is in none, and admits everybody; a label that is none admits nobody."""
        self.assertTrue(admits(None, ()))
        for label in ("", "DE", "DE-S"):
            self.assertFalse(admits(label, ALPHA.groups), label)

    def test_who_is_concerned(self) -> None:
        """One group of a compartment is enough."""
        self.assertFalse(is_concerned(("system:masters", "svcs")))
        self.assertTrue(is_concerned(("system:authenticated", "svc:country:de")))
