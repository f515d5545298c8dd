"""The objects that a command is aimed at."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import Compartment
from svc.compartments.targets import MAX_NAMED, Target, best_pod, comparison, copied_pod, foreign

CURRENT = Compartment("DE", "S", "ALPHA")


def target(name: str = "web", label: str = "", kind: str = "Pod", created: str = "", **document: Any) -> Target:
    """An object."""
    labels = {"svc.internal/compartment": label} if label else None
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "labels": labels, "creationTimestamp": created}
    return Target.of(
        {"apiVersion": "apps/v1", "kind": kind, **document, "metadata": {**metadata, **document.get("metadata", {})}}
    )


class ComparisonTests(SynchronousTestCase):
    """Compartments that differ."""

    def test_foreign(self) -> None:
        """Another label is another compartment, in whatever case; none is none."""
        targets = [target(label=label) for label in ("DE-S-ALPHA", "de-s-alpha", "", "US-TS-BRAVO", "DE-S-ALPHA2")]
        self.assertEqual(targets[3:], foreign(targets, CURRENT))

    def test_sentences(self) -> None:
        """Each object has a sentence, up to a limit, and nothing of it gets at the terminal."""
        targets = [target(f"p{number}", "US-TS-BRAVO") for number in range(MAX_NAMED + 2)]
        lines = comparison(targets, CURRENT)
        self.assertEqual('pod "p0" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA', lines[0])
        self.assertEqual((MAX_NAMED + 1, "2 more are in other compartments"), (len(lines), lines[-1]))
        self.assertEqual(MAX_NAMED, len(comparison(targets[:MAX_NAMED], CURRENT)))
        self.assertEqual(MAX_NAMED + 1, len(comparison(targets[: MAX_NAMED + 1], CURRENT)))
        self.assertEqual([], comparison([], CURRENT))
        self.assertIn(r'"a\x1b[m"', comparison([target("a\x1b[m", "X")], CURRENT)[0])

    def test_references(self) -> None:
        """Group and version belong to the kind."""
        self.assertEqual("deployment.v1.apps/web", target(kind="Deployment").reference)
        self.assertEqual("pod.v1./a", Target("v1", "Pod", "", "a", "", {}).reference)


class PodTests(SynchronousTestCase):
    """Pods of workloads."""

    def test_selectors(self) -> None:
        """Labels and expressions; of kinds that have pods."""
        expressions = [
            {"key": "a", "operator": "In", "values": ["x", "y"]},
            {"key": "b", "operator": "NotIn", "values": ["z"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ]
        for selector, wanted in (
            ({"matchLabels": {"app": "web", "tier": "x"}}, "app=web,tier=x"),
            ({"matchExpressions": expressions}, "a in (x,y),b notin (z),c,!d"),
            ({"matchLabels": {"app": "web"}, "matchExpressions": expressions[2:]}, "app=web,c,!d"),
            ({"app": "web"}, "app=web"),
            (None, ""),
        ):
            self.assertEqual(wanted, target(kind="Deployment", spec={"selector": selector}).selector)
        self.assertEqual("", target(kind="Backup", spec={"selector": "x"}).selector)
        self.assertEqual("", target(kind="Service", spec=None).selector)

    def test_best(self) -> None:
        """Running and ready is better than assigned, which is better than the oldest; one that leaves is the last."""
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        node = {"nodeName": "n"}
        pods = [
            target("leaving", spec=node, status=ready, metadata={"deletionTimestamp": "x"}),
            target("new", created="2026-02"),
            target("old", created="2026-01"),
            target("strange", spec=node, status={"phase": "Odd"}),
            target("ended", spec=node, status={"phase": "Succeeded"}),
            target("running", spec=node, status=running),
            target("younger", spec=node, status=ready, created="2026-02"),
            target("ready", spec=node, status=ready, created="2026-01"),
        ]
        order = ["ready", "younger", "running", "ended", "strange", "old", "new", "leaving"]
        for name in order:
            best = best_pod(pods)
            assert best is not None
            self.assertEqual(name, best.name)
            pods.remove(best)
        self.assertIsNone(best_pod([]))

    def test_copied(self) -> None:
        """Where ``kubectl cp`` copies from and to."""
        for word, wanted in (
            ("web:/x", ("", "web")),
            ("n/web:/x:y", ("n", "web")),
            ("./file", ("", "")),
            ("/a/b", ("", "")),
            (":/x", ("", "")),
        ):
            self.assertEqual(wanted, copied_pod(word))
