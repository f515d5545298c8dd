"""Rules that never decide, and ports that differ, over several policies."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.manager.policies.overlap import conflicts, own_findings
from tests.manager.policies.objects import policy, rules

WEB = {"matchLabels": {"app": "web"}}
DENY: dict[str, Any] = rules(action="Deny")


class ShadowTests(SynchronousTestCase):
    """Rules of one policy that another one takes the effect from."""

    def test_own(self) -> None:
        """A rule behind one that matches the same, and a policy without rules."""
        found = policy(authorization=rules("/a/*", "/a/b"))
        self.assertEqual(
            ["the rule rule-2 never decides: rule-1 of p matches all that it matches"], list(own_findings(found))
        )
        self.assertIn("nobody is allowed", next(own_findings(policy(authorization={"rules": []}))))
        self.assertIn("matches nothing", next(own_findings(policy(authorization={"action": "Audit"}))))
        self.assertEqual([], list(own_findings(policy(proxy={"notarization": "workload"}))))

    def test_others(self) -> None:
        """One that is about all pods of the policy, and comes before it."""
        mine = policy("m", "shop", podSelector=WEB, authorization=rules("/a"))
        same = ["the rule rule-1 never decides: rule-1 of {} matches all that it matches"]
        for other, expected in (
            (policy("d", authorization=DENY), "d"),
            (policy("d", "shop", authorization=DENY), "shop/d"),
            (policy("d", "shop", podSelector=WEB, authorization=DENY), "shop/d"),
            (policy("a", "shop", authorization=rules()), "shop/a"),
            # About others, behind it, of another rank, of another mode or action.
            (policy("d", "pay", authorization=DENY), None),
            (policy("d", namespaceSelector=WEB, authorization=DENY), None),
            (policy("d", podSelector={"matchLabels": {"app": "db"}}, authorization=DENY), None),
            (policy("z", "shop", authorization=rules()), None),
            (policy("a", authorization=rules()), None),
            (policy("d", authorization=rules(action="Deny", mode="DryRun")), None),
            (policy("d", authorization=rules(action="Audit")), None),
            (policy("d", proxy={}), None),
        ):
            wanted = [] if expected is None else [each.format(expected) for each in same]
            self.assertEqual(wanted, conflicts(mine, [mine, other]), other)

    def test_all_namespaces(self) -> None:
        """A policy of the cluster is shadowed by one with a wider selector of namespaces."""
        mine = policy("m", namespaceSelector={"matchLabels": {"a": "1", "b": "2"}}, authorization=rules())
        wide = policy("d", namespaceSelector={"matchLabels": {"a": "1"}}, authorization=DENY)
        self.assertEqual([1, 0], [len(conflicts(*each)) for each in ((mine, [wide]), (wide, [mine]))])


class PortTests(SynchronousTestCase):
    """Ports of the proxy."""

    def proxy(self, port: int) -> dict[str, Any]:
        """What a policy says of them."""
        return {"inbound": [{"port": port, "targetPort": 80, "protocol": "http"}]}

    def test_differ(self) -> None:
        """Of two policies of one kind that can be about one pod; the first by name counts."""
        a, b = policy("a", proxy=self.proxy(8443)), policy("b", podSelector=WEB, proxy=self.proxy(9443))
        self.assertIn("of this policy", conflicts(a, [b])[0])
        self.assertIn("of SvcClusterPolicy a", conflicts(b, [a])[0])
        for other in (
            policy("b", proxy=self.proxy(8443)),
            policy("b", "shop", proxy=self.proxy(9443)),
            policy("b", proxy={"notarization": "workload"}),
        ):
            self.assertEqual([], conflicts(a, [other]))
        db = policy("c", podSelector={"matchLabels": {"app": "db"}}, proxy=self.proxy(1024))
        self.assertEqual([], conflicts(b, [db]))
        self.assertEqual(
            [], conflicts(policy("a", "x", proxy=self.proxy(1024)), [policy("a", "y", proxy=self.proxy(1025))])
        )
