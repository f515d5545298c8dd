"""The documents of a namespace, and what a proxy that reads them decides."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.manager.policies import compiled
from svc.manager.policies.compiled import (
    CompiledTooLarge,
    compiled_map,
    compiled_text,
    documents_for,
    order,
    published_list,
    read_compiled,
)
from svc.manager.policies.resource import PolicyResource, read_policy
from svc.policy.engine import PolicySet
from svc.policy.rules import ConnectionFacts, RequestFacts
from svc.policyfiles.files import KINDS, policy_files, with_own
from svc.settings import parse_all
from svc.strictyaml import MAX_DOCUMENTS
from tests.manager.policies.objects import policy, policy_object, rules

CLIENT = SpiffeID.parse("spiffe://x.org/ns/a/sa/b")
PATHS = ("/a", "/b", "/c")


class DocumentsTests(SynchronousTestCase):
    """Which policies are about a namespace."""

    def test_selected(self) -> None:
        """Those of the cluster come first, each in the order of their names; without authorization there is nothing."""
        policies = [
            policy("z", authorization=rules()),
            policy("b", "shop", authorization=rules()),
            policy("a", namespaceSelector={"matchLabels": {"team": "x"}}, authorization=rules()),
            policy("c", "pay", authorization=rules()),
            policy("d", proxy={"notarization": "workload"}),
        ]
        for labels, expected in (({"team": "x"}, ["a", "z", "b"]), ({}, ["z", "b"])):
            found = documents_for(policies, "shop", labels, {})
            self.assertEqual(expected, [each["metadata"]["name"] for each in found])

    def test_kept(self) -> None:
        """A policy that is no longer valid stays as it was, as the ConfigMap has it."""
        policies = [policy("a", authorization=rules("/a")), policy("b", "shop", authorization=rules("/b"))]
        text = compiled_text("shop", documents_for(policies, "shop", {}, {}))
        former = read_compiled(compiled_map("shop", text))
        self.assertEqual([each.key for each in policies], list(former))
        kept = {policies[0].key: former[policies[0].key]}
        again = documents_for([policy("b", "shop", authorization=rules("/c"))], "shop", {}, kept)
        self.assertEqual([rules("/a"), rules("/c")], [each["spec"]["authorization"] for each in again])

    def test_unreadable(self) -> None:
        """Of a ConfigMap that somebody has changed nothing is kept."""
        for data in (None, {}, {"policies.yaml": "a: ["}, {"policies.yaml": "kind: x"}, {"policies.yaml": "- 1"}):
            self.assertEqual({}, read_compiled({"data": data}))

    def test_limits(self) -> None:
        """What proxies would not read is refused, at one more than they do."""
        documents = documents_for([policy(f"p{n}", authorization=rules("/a", "/b")) for n in range(3)], "shop", {}, {})
        size = len(compiled_text("shop", documents).encode())
        for name, limit, reason in (
            ("MAX_DOCUMENTS", 3, "policies_too_many"),
            ("MAX_ALL_RULES", 6, "policy_rules_too_many"),
            ("MAX_TEXT", size, "policies_too_large"),
        ):
            self.patch(compiled, name, limit)
            compiled_text("shop", documents)
            self.patch(compiled, name, limit - 1)
            self.assertEqual(reason, self.assertRaises(CompiledTooLarge, compiled_text, "shop", documents).reason)
            self.patch(compiled, name, limit)


_SELECTORS = st.sampled_from([None, {}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}])


@st.composite
def policies_of(draw: st.DrawFn, namespaces: tuple[str, ...]) -> list[dict[str, Any]]:
    """Objects with different names."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        authorization = {
            "action": draw(st.sampled_from(["Allow", "Allow", "Deny", "Audit"])),
            "mode": draw(st.sampled_from(["Enforce", "Enforce", "DryRun"])),
            "rules": [{"to": [{"paths": [path]}]} for path in draw(st.sets(st.sampled_from(PATHS)))],
        }
        selector = draw(_SELECTORS)
        spec = {"authorization": authorization, **({} if selector is None else {"podSelector": selector})}
        found.append(policy_object(f"p{number}", draw(st.sampled_from(namespaces)), **spec))
    return found


def naive(cluster: list[PolicyResource], own: list[PolicyResource], objects: list[PolicyResource], path: str) -> bool:
    """Decide by the rule of the page: a deny refuses, and of each kind that allows anything one has to allow it."""

    def matches(each: PolicyResource) -> bool:
        assert each.document is not None
        return any(path in rule.get("to")[0]["paths"] for rule in each.document["spec"]["authorization"]["rules"])

    def those(found: list[PolicyResource], action: str) -> list[PolicyResource]:
        return [
            each
            for each in found
            if each.policy.enforced and each.policy.action.value == action and each.selects_pod({"app": "web"})
        ]

    if any(matches(each) for each in those([*cluster, *own, *objects], "Deny")):
        return False
    local = [each for each in own if each.key[0] == "SvcClusterPolicy"]
    narrowing = [*objects, *(each for each in own if each.key[0] == "SvcPolicy")]
    ranks = [allowing for each in (cluster, local, narrowing) if (allowing := those(each, "Allow"))]
    return bool(ranks) and all(any(matches(each) for each in allowing) for allowing in ranks)


class PublishedListTests(SynchronousTestCase):
    """What proxies get from the manager."""

    def test_list(self) -> None:
        """The documents that the ConfigMap has, read back or not; those in it where others are too many."""
        found = [read_policy(policy_object(name, authorization=rules())) for name in ("a", "b")]
        documents = documents_for(found, "shop", {}, {})
        published = published_list("shop", documents, dict)
        written = read_compiled(compiled_map("shop", compiled_text("shop", documents)))
        again = published_list("shop", [written[key] for key in sorted(written, key=order)], dict)
        self.assertEqual(published, again)
        self.assertEqual(documents, json.loads(published.data)["documents"])
        self.assertEqual(published, published_list("shop", documents * (MAX_DOCUMENTS // 2 + 1), lambda: written))


class DecisionTests(SynchronousTestCase):
    """Policies of the cluster, of a namespace, and what the namespace has written for itself."""

    @given(policies_of(("",)), policies_of(("shop",)), policies_of(("", "shop")), st.sampled_from(PATHS))
    def test_as_documented(
        self, cluster: list[dict[str, Any]], objects: list[dict[str, Any]], own: list[dict[str, Any]], path: str
    ) -> None:
        """A proxy with these files decides by the rule, whatever policies there are."""
        policies = [read_policy(each) for each in (*cluster, *objects)]
        text = compiled_text("shop", documents_for(policies, "shop", {}, {}))
        local = [read_policy(each) for each in own]
        compiled = [("compiled", each) for each in parse_all(text, KINDS, "compiled")]
        written = [("own", KINDS[each.key[0]].model_validate(each.document)) for each in local]
        labels = lambda: {"app": "web"}  # noqa: E731
        beside = policy_files(compiled, (), "", labels)
        files = with_own(beside, lambda: policy_files(written, (), "", labels, local=True))
        connection = PolicySet(files.policies).connection(ConnectionFacts("web", 1, CLIENT))
        expected = naive([read_policy(each) for each in cluster], local, [read_policy(each) for each in objects], path)
        self.assertIs(expected, connection.decide(RequestFacts("GET", path, "h", "none")).allowed)
