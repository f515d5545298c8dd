"""The status of policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.errors import KubernetesError
from svc.manager.policies.status import MAX_SENTENCES, Outcome, policy_status
from tests.manager.policies.objects import policy_object

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class PolicyStatusTests(SynchronousTestCase):
    """Conditions by what became of a policy."""

    def conditions(self, outcome: Outcome) -> dict[str, tuple[str, str]]:
        """Each condition with its reason."""
        found = policy_status(policy_object(), outcome, NOW)
        self.assertEqual({3}, {each["observedGeneration"] for each in found["conditions"]})
        self.assertEqual(3, found["observedGeneration"])
        return {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}

    def test_conditions(self) -> None:
        """Ready has the reason of the first condition that does not hold."""
        failure = KubernetesError("kubernetes_forbidden", action="a", detail="b")
        for outcome, accepted, programmed, conflicted, ready in (
            (Outcome(namespaces=2), "Valid", "Compiled", "NoConflict", ("True", "Compiled")),
            (Outcome(), "Valid", "NoNamespace", "NoConflict", ("True", "NoNamespace")),
            (Outcome(namespaces=1, authorizes=False), "Valid", "Injection", "NoConflict", ("True", "Injection")),
            (Outcome(namespaces=1, conflicts=["c"]), "Valid", "Compiled", "Overlap", ("True", "Compiled")),
            (Outcome("d", namespaces=1), "Invalid", "Invalid", "NoConflict", ("False", "Invalid")),
            (
                Outcome(namespaces=1, failure=failure),
                *("Valid", "KubernetesForbidden", "NoConflict"),
                ("False", "KubernetesForbidden"),
            ),
        ):
            found = self.conditions(outcome)
            reasons = {"Accepted": accepted, "Programmed": programmed, "Conflicted": conflicted}
            self.assertEqual(reasons, {name: found[name][1] for name in reasons})
            self.assertEqual(ready, found["Ready"])

    def test_kept(self) -> None:
        """Of a policy that is not valid it says what is in force."""
        for kept, text in ((True, "stays in force"), (False, "nothing of it is in force")):
            found = policy_status(policy_object(), Outcome("d", kept=kept), NOW)
            (programmed,) = [each for each in found["conditions"] if each["type"] == "Programmed"]
            self.assertIn(text, programmed["message"])

    def test_unchanged(self) -> None:
        """Later the same status is made, so that it is not written; a change has its own time."""
        found = policy_object()
        found["status"] = policy_status(found, Outcome(namespaces=1), NOW)
        later = NOW + timedelta(hours=1)
        self.assertEqual(found["status"], policy_status(found, Outcome(namespaces=1), later))
        changed = policy_status(found, Outcome("d"), later)
        times = {each["type"]: each["lastTransitionTime"] for each in changed["conditions"]}
        self.assertNotEqual(times["Accepted"], times["Conflicted"])

    def test_many_conflicts(self) -> None:
        """Not all are named."""
        found = policy_status(policy_object(), Outcome(conflicts=["c"] * (MAX_SENTENCES + 2)), NOW)
        (conflicted,) = [each for each in found["conditions"] if each["type"] == "Conflicted"]
        self.assertTrue(conflicted["message"].endswith("; and 2 more"))
