"""The content of policies: what is read of an object, and the schema that the API server has of it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.data import FOLDER
from svc.manager.policies.resource import SvcClusterPolicySpec, SvcPolicySpec, defects, read_policy
from svc.policyfiles.document import AuthorizationDocument
from svc.settings import ConfigInvalid
from svc.strictyaml import loads, loads_all
from tests.manager.policies.objects import policy, policy_object, rules
from tests.peers.pages import page


@cache
def shipped(plural: str) -> Any:
    """The schema of ``spec`` in the custom resource."""
    found: Any = loads((FOLDER / "crds" / f"{plural}.yaml").read_text())
    (version,) = found["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


class ReadTests(SynchronousTestCase):
    """Objects."""

    def refused(self, found: dict[str, Any]) -> str:
        """The defects of an object."""
        return defects(self.assertRaises(ConfigInvalid, read_policy, found))

    def test_document(self) -> None:
        """What proxies read has the selector of pods and the authorization, as they were written."""
        selector = {"matchLabels": {"app": "web"}}
        found = policy("web", "shop", podSelector=selector, authorization=rules("/a"), proxy={"notarization": "none"})
        self.assertEqual(
            {
                "apiVersion": "svc.internal/v1alpha1",
                "kind": "SvcPolicy",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"podSelector": selector, "authorization": rules("/a")},
            },
            found.document,
        )
        self.assertEqual(("shop/web", 2), (found.policy.qualified_name, found.policy.rank))
        self.assertEqual("SvcPolicy shop/web", str(found))
        self.assertIsNone(policy(proxy={"notarization": "workload"}).document)

    def test_unknown_keys(self) -> None:
        """Each is a defect, at every depth, with the key that was perhaps meant."""
        for spec, expected in (
            ({"authorisation": {}, "proxy": {}}, "spec.authorisation: a mapping: expected no such key, perhaps auth"),
            (
                {"authorization": rules(), "podSelectr": {}},
                "spec.podSelectr: a mapping: expected no such key, perhaps pod",
            ),
            (
                {"authorization": {"rules": [{"to": [{"mqttClientIds": ["a"]}]}]}},
                "spec.authorization.rules[0].to[0].mqttClientIds: a list: expected no such key, perhaps mqttClientIDs",
            ),
            ({"proxy": {"inbond": []}}, "spec.proxy.inbond: a list: expected no such key, perhaps inbound"),
        ):
            self.assertIn(expected, self.refused(policy_object(**spec)))
        of_cluster = self.refused(policy_object("p", "shop", namespaceSelector={}, authorization=rules()))
        self.assertIn("spec.namespaceSelector: a mapping: expected no such key", of_cluster)

    def test_defects(self) -> None:
        """A value that is none, names twice, ports that meet, and nothing at all."""
        inbound = [{"port": 8443, "targetPort": 8080, "protocol": "http"}]
        for spec, expected in (
            ({}, "authorization, or proxy, or both"),
            ({"authorization": {"action": "Permit"}}, "spec.authorization.action: 'Permit': expected 'Allow'"),
            ({"authorization": {"rules": [{"name": "a"}, {"name": "a"}]}}, "'a' appears twice"),
            ({"proxy": {"inbound": inbound * 2}}, "8443 appears twice"),
            ({"proxy": {"inbound": [{**inbound[0], "targetPort": 8443}]}}, "8443 is both"),
            ({"proxy": {"inbound": [{**inbound[0], "port": 1023}]}}, "greater than or equal to 1024"),
            ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "proxy": {}}, "In and NotIn"),
        ):
            self.assertIn(expected, self.refused(policy_object(**spec)))

    def test_selection(self) -> None:
        """A policy of the cluster selects namespaces by labels, one of a namespace is about its own."""
        labels = {"team": "pay"}
        cluster = policy(namespaceSelector={"matchLabels": labels}, authorization=rules())
        self.assertEqual([True, False], [cluster.selects_namespace("shop", each) for each in (labels, {})])
        own = policy("p", "shop", authorization=rules(), podSelector={"matchLabels": {"app": "web"}})
        self.assertEqual([True, False], [own.selects_namespace(each, labels) for each in ("shop", "pay")])
        self.assertEqual([True, False], [own.selects_pod(each) for each in ({"app": "web", "x": ""}, {})])


#: Single values of each kind, of which most are in the form that the model wants.
_TEXTS = st.sampled_from(["a", "/a/*", "GET", "spiffe://x.org/a", "x.org", "DE:S", "a/#", "*.x.org", "[::1]", "", "é"])
_SCALARS = st.one_of(_TEXTS, st.integers(-1, 70000), st.booleans(), st.sampled_from(["Connect", "workload", "h2"]))


def _drawn(model: Any, draw: st.DrawFn) -> dict[str, Any]:
    """A mapping with some of the keys of a model."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if not draw(st.integers(0, 3)):
            inner = _models(field.annotation)
            lists = "tuple" in str(field.annotation)
            value = _drawn(inner[0], draw) if inner else draw(_SCALARS)
            found[field.alias or name] = [value] if lists else value
    return found


def _models(annotation: Any) -> list[Any]:
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for each in getattr(annotation, "__args__", ()) for model in _models(each)]


@st.composite
def authorizations(draw: st.DrawFn) -> dict[str, Any]:
    """Authorizations, of which many are valid."""
    return _drawn(AuthorizationDocument, draw)


class SchemaTests(SynchronousTestCase):
    """What the API server validates, against what the webhook does."""

    def keys(self, part: Any, model: Any, where: str = "spec") -> None:
        """The keys of a mapping, and below it, are those of the model, and no other is removed."""
        self.assertTrue(part["x-kubernetes-preserve-unknown-fields"], where)
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        self.assertEqual(set(fields), set(part["properties"]), where)
        for name, field in fields.items():
            below = part["properties"][name]
            for inner in _models(field.annotation):
                self.keys(below.get("items", below), inner, f"{where}.{name}")

    def test_keys(self) -> None:
        """Of both kinds."""
        self.keys(shipped("svcclusterpolicies"), SvcClusterPolicySpec)
        self.keys(shipped("svcpolicies"), SvcPolicySpec)

    def test_examples(self) -> None:
        """The policies of docs/policy.md are accepted."""
        count = 0
        for block in re.findall(r"^```yaml\n(apiVersion:.*?)^```", page("policy.md"), re.MULTILINE | re.DOTALL):
            for document in loads_all(block):
                if isinstance(document, dict) and document["kind"] in ("SvcClusterPolicy", "SvcPolicy"):
                    jsonschema.validate(document["spec"], shipped("svcclusterpolicies"))
                    read_policy(document)
                    count += 1
        self.assertGreater(count, 10)

    @given(authorizations())
    def test_accepts_what_the_model_accepts(self, authorization: dict[str, Any]) -> None:
        """The API server refuses no policy that is valid."""
        try:
            read_policy(policy_object(authorization=authorization))
        except ConfigInvalid:
            return
        jsonschema.Draft202012Validator(shipped("svcclusterpolicies")).validate({"authorization": authorization})
