"""Policies as a manager publishes them, and which of them are about a pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.policyfiles import published
from svc.policyfiles.files import PolicyFiles, PolicyFilesRefused
from svc.policyfiles.published import PublishedPolicies, PublishedRefused, read_published
from svc.settings import ConfigInvalid

ORIGIN = "manager.svc:8443"


def document(name: str, **spec: Any) -> dict[str, object]:
    """A policy that allows everything."""
    return {
        "apiVersion": "svc.internal/v1alpha1",
        "kind": "SvcClusterPolicy",
        "metadata": {"name": name},
        "spec": {"authorization": {"rules": [{}]}, **spec},
    }


API, WEB = ({"matchLabels": {"app": name}} for name in ("api", "web"))


class PublishedTests(SynchronousTestCase):
    """Writing and reading of one namespace."""

    def read(self, *documents: Mapping[str, object], labels: dict[str, str] | None = None) -> PolicyFiles:
        """Publish and read."""
        found = PublishedPolicies.of("shop", documents)
        return read_published(found.data, found.version, ORIGIN, lambda: labels)

    def test_read(self) -> None:
        """All policies and deny lists are read, under the version; their origin is the manager."""
        denied = {
            "apiVersion": "svc.internal/v1alpha1",
            "kind": "SvcDenyList",
            "metadata": {"name": "stolen"},
            "spec": {"spiffeIDs": ["spiffe://x.org/a"]},
        }
        read = self.read(document("a"), denied, document("b"))
        self.assertEqual(["a", "b"], [each.name for each in read.policies])
        self.assertEqual(("stolen", ORIGIN, ()), (read.denied[0].name, read.origin, read.paths))
        self.assertEqual(PublishedPolicies.of("", [document("a"), denied, document("b")]).version, read.digest)

    def test_selected(self) -> None:
        """Policies that are not about the pod are left out, and what is left out is part of the digest."""
        documents = (document("all"), document("api", podSelector=API), document("web", podSelector=WEB))
        api = self.read(*documents, labels={"app": "api"})
        web = self.read(*documents, labels={"app": "web"})
        both = [document("all"), document("api", podSelector={})]
        self.assertEqual(["all", "api"], [each.name for each in api.policies])
        self.assertEqual(["all", "web"], [each.name for each in web.policies])
        self.assertEqual(["all", "api"], [each.name for each in self.read(*both, labels={}).policies])
        self.assertNotEqual(api.digest, web.digest)

    def test_labels_unknown(self) -> None:
        """With a selector and without labels all is refused: nothing could be left out safely."""
        self.assertEqual(1, len(self.read(document("all")).policies))
        error = self.assertRaises(PolicyFilesRefused, self.read, document("all"), document("api", podSelector=API))
        self.assertEqual("policy_labels_unknown", error.reason)

    def test_whole_or_nothing(self) -> None:
        """One document that is not valid refuses all; so do two of one name, whatever pods they are about."""
        error = self.assertRaises(ConfigInvalid, self.read, document("a"), document("Not A Name"))
        self.assertIn(f"{ORIGIN}, document 2", error.path)
        twice = (document("a", podSelector=API), document("a", podSelector=WEB))
        self.assertRaises(PolicyFilesRefused, self.read, *twice, labels={"app": "api"})

    def test_version(self) -> None:
        """The version is of the octets."""
        one, same, other = (PublishedPolicies.of("shop", [document(name)]).version for name in ("a", "a", "b"))
        self.assertEqual((43, True, False), (len(one), one == same, one == other))

    def test_size(self) -> None:
        """At the limit of octets, and one above it, for both sides."""
        size = len(PublishedPolicies.of("shop", [document("a")]).data)
        self.patch(published, "MAX_PUBLISHED", size)
        found = PublishedPolicies.of("shop", [document("a")])
        read_published(found.data, "1", ORIGIN, lambda: None)
        self.patch(published, "MAX_PUBLISHED", size - 1)
        error = self.assertRaises(PublishedRefused, PublishedPolicies.of, "shop", [document("a")])
        self.assertEqual(("policies_large", "shop"), (error.reason, error.evidence["namespace"]))
        self.assertRaises(PublishedRefused, read_published, found.data, "1", ORIGIN, lambda: None)

    def test_other_format(self) -> None:
        """Another version, another shape or no JSON is refused by name."""
        for data in (b"", b"[]", b"{}", b'{"v":2,"documents":[]}', b'{"v":1,"documents":{}}', b'{"v":1}'):
            error = self.assertRaises(PublishedRefused, read_published, data, "1", ORIGIN, lambda: None)
            self.assertIn(ORIGIN, str(error))

    @given(st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=5))
    def test_any_document(self, found: object) -> None:
        """Any documents are refused with an error of their own, or have no policies."""
        try:
            data = json.dumps({"v": 1, "documents": found}).encode()
            self.assertEqual((), read_published(data, "1", ORIGIN, dict).policies)
        except SvcError:
            pass
