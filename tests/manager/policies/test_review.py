"""The decision on policies that somebody makes, changes or deletes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.injection.review import ReviewOutcome
from svc.manager.policies.resource import PolicyResource
from svc.manager.policies.review import MAX_WARNINGS, LicenseEffect, review_policy
from tests.manager.policies.objects import policy, policy_object, rules

SOFT, HARD = LicenseEffect("the license has ended", refuses=False), LicenseEffect("the license has ended", refuses=True)

_KEYS = st.sampled_from(["metadata", "spec", "name", "authorization", "rules"])
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner)),
    max_leaves=12,
)


def request(found: dict[str, Any] | None, operation: str = "CREATE", **more: Any) -> dict[str, Any]:
    """A review of an object of the cluster."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": operation,
            "resource": {"group": "svc.internal", "version": "v1alpha1", "resource": "svcclusterpolicies"},
            "name": "p",
            "userInfo": {"username": "anna"},
            "object": found,
            **more,
        },
    }


class ReviewTests(SynchronousTestCase):
    """Allowed, with warnings, or refused."""

    def reviewed(
        self, document: Any, *policies: PolicyResource, effect: LicenseEffect | None = None
    ) -> tuple[Any, ReviewOutcome]:
        """The response and the outcome."""
        body, outcome = review_policy(document, policies, effect)
        response: Any = body["response"]
        self.assertEqual(outcome.result == "allowed", response["allowed"])
        return response, outcome

    def test_allowed(self) -> None:
        """A valid policy, and the outcome says who has made what."""
        response, outcome = self.reviewed(request(policy_object("web", authorization=rules())))
        self.assertEqual({"uid": "u-1", "allowed": True}, response)
        self.assertEqual(
            ("allowed", "CREATE", "svcclusterpolicies", "web", "anna"),
            (outcome.result, outcome.operation, outcome.resource, outcome.name, outcome.user),
        )

    def test_of_a_namespace(self) -> None:
        """The namespace is that of the request, as for an object that has none yet; a name may come later."""
        found = policy_object(authorization=rules("/a"))
        found["metadata"] = {"generateName": "web-"}
        resource = {"group": "svc.internal", "version": "v1alpha1", "resource": "svcpolicies"}
        shadowing = policy("a", "shop", authorization=rules())
        response, outcome = self.reviewed(request(found, resource=resource, namespace="shop", name=""), shadowing)
        self.assertIn("rule-1 of shop/a matches all", response["warnings"][0])
        self.assertEqual("web-", outcome.name)

    def test_refused(self) -> None:
        """What is not valid, with every defect and what was perhaps meant."""
        for operation in ("CREATE", "UPDATE"):
            found = policy_object(authorization={"rules": [{"to": [{"path": ["/a"]}]}], "mode": "dry"})
            response, outcome = self.reviewed(request(found, operation))
            self.assertEqual((422, "denied"), (response["status"]["code"], outcome.result))
            message = response["status"]["message"]
            self.assertIn("SvcClusterPolicy p is not valid: ", message)
            self.assertIn(
                "spec.authorization.rules[0].to[0].path: a list: expected no such key, perhaps paths", message
            )
            self.assertIn("spec.authorization.mode: 'dry'", message)

    def test_deleted(self) -> None:
        """Whatever it says, also while its finalizers are removed."""
        found = policy_object(nothing=1)
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        for document in (request(None, "DELETE"), request(found, "UPDATE")):
            self.assertEqual("allowed", self.reviewed(document, effect=HARD)[1].result)

    def test_license(self) -> None:
        """A hard one refuses new policies alone; every other effect is a warning."""
        found = policy_object(authorization=rules())
        for operation, effect, result, warnings in (
            ("CREATE", HARD, "denied", None),
            ("UPDATE", HARD, "allowed", ["the license has ended"]),
            ("CREATE", SOFT, "allowed", ["the license has ended"]),
            ("CREATE", None, "allowed", None),
        ):
            response, outcome = self.reviewed(request(found, operation), effect=effect)
            self.assertEqual((result, warnings), (outcome.result, response.get("warnings")))
        self.assertEqual(403, self.reviewed(request(found), effect=HARD)[0]["status"]["code"])

    def test_warnings(self) -> None:
        """Rules of its own, of others that it shadows; not too many, and none too long."""
        mine = policy_object("d", authorization=rules(action="Deny"))
        others = [policy(f"p{number:02}", authorization=rules("/a")) for number in range(MAX_WARNINGS + 4)]
        response, _outcome = self.reviewed(request(mine), *others)
        self.assertEqual(MAX_WARNINGS + 1, len(response["warnings"]))
        self.assertIn("SvcClusterPolicy p00: the rule rule-1 never decides: rule-1 of d", response["warnings"][0])
        self.assertEqual("and 4 more", response["warnings"][-1])
        long = policy("x" * 250, authorization=rules("/a"))
        self.assertEqual(240, len(self.reviewed(request(mine), long)[0]["warnings"][0]))
        # The one that is changed is not compared with itself.
        self.assertNotIn("warnings", self.reviewed(request(mine, "UPDATE"), policy("d", authorization=rules()))[0])

    def test_others(self) -> None:
        """Another resource, and what is no review."""
        pods = {"group": "", "version": "v1", "resource": "pods"}
        for document in (None, {}, request(None), request({}), request({"metadata": 1}), request({}, resource=pods)):
            self.assertEqual("error", self.reviewed(document)[1].result)

    @settings(max_examples=40)
    @given(_VALUES)
    def test_any_object(self, found: Any) -> None:
        """Whatever the object is there is a response."""
        body, outcome = review_policy(request(found), (), None)
        json.dumps(body)
        self.assertNotEqual("other", outcome.resource if isinstance(found, dict | None) else "")
