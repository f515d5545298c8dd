"""Reviews of the API server and their responses."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.injection import ReviewOutcome, review
from tests.injection.documents import SETTINGS, TRUST_DOMAIN, Document, golden, patched

UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review_of(name: str, **changes: object) -> Document:
    """A review of the pod of a file, with the keys that an API server sends."""
    request: Document = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["a"]},
        "object": golden()[name]["pod"],
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {**request, **changes}}


def answer(document: object, **namespaces: str) -> tuple[Document, ReviewOutcome]:
    """The response of a review, as it is sent."""
    whole, outcome = review(document, SETTINGS, TRUST_DOMAIN, namespaces)
    whole = json.loads(json.dumps(whole))
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Any = whole["response"]
    return response, outcome


class ReviewTests(SynchronousTestCase):
    """What is answered, and what the caller gets to know."""

    def test_injected(self) -> None:
        """Each pod that is accepted becomes what its file says."""
        for name, document in golden().items():
            response, outcome = answer(review_of(name))
            self.assertEqual(("injected" in document, UID), (response["allowed"], response["uid"]), name)
            if "injected" not in document:
                continue
            patch = json.loads(base64.b64decode(response.get("patch", "W10="), validate=True))
            self.assertEqual(document["injected"], patched(document["pod"], patch), name)
            self.assertEqual(document.get("warnings"), response.get("warnings"), name)
            self.assertEqual("JSONPatch" if patch else None, response.get("patchType"), name)
            self.assertEqual(("allowed", bool(patch), None), (outcome.result, outcome.injected, outcome.error), name)

    def test_outcome(self) -> None:
        """Who, what and where; a pod without a name has the beginning of one."""
        user = "system:serviceaccount:kube-system:replicaset-controller"
        expected = ReviewOutcome("allowed", "CREATE", "pods", "shop", "web-6c9f-", user, injected=True)
        self.assertEqual(expected, answer(review_of("deployment"))[1])
        _response, outcome = answer(review_of("init-containers", dryRun=True, userInfo={}))
        self.assertEqual(("web", "", True), (outcome.name, outcome.user, outcome.dry_run))

    def test_denied(self) -> None:
        """The message has the sentence and what to do; the pod is not changed."""
        response, outcome = answer(review_of("host-network", dryRun=True))
        message = (
            "the pod has hostNetwork: true, and the ports of its proxy would be those of the node; remove it; the"
            ' annotation svc.internal/inject: "false" leaves a pod without the proxy'
        )
        self.assertEqual({"uid": UID, "allowed": False, "status": {"code": 403, "message": message}}, response)
        reason = outcome.error and outcome.error.reason
        self.assertEqual(("denied", "injection_shared", True), (outcome.result, reason, outcome.dry_run))
        self.assertEqual(("CREATE", "pods", "shop", "web"), (*self._labels(outcome), outcome.namespace, outcome.name))

    def test_namespaces(self) -> None:
        """A namespace with a SPIRE instance of its own gets the folder of that one."""
        for namespace, source in (("shop", "second"), ("other", "5f0c3b7a")):
            response, _outcome = answer(review_of("deployment"), **{namespace: "second"})
            self.assertIn(f'"source":"{source}"', base64.b64decode(response["patch"]).decode())

    def test_unexpected(self) -> None:
        """Only the creation of pods is answered; the words for the metric are of a fixed set."""
        deployments = {"group": "apps", "version": "v1", "resource": "deployments"}
        for changes, labels, what in (
            ({"operation": "UPDATE"}, ("UPDATE", "pods"), "UPDATE of v1/pods"),
            ({"operation": "DELETE", "object": None}, ("DELETE", "pods"), "DELETE of v1/pods"),
            ({"resource": deployments}, ("CREATE", "other"), "CREATE of apps/v1/deployments"),
            ({"subResource": "eviction"}, ("CREATE", "other"), "CREATE of v1/pods/eviction"),
            ({"object": None}, ("CREATE", "pods"), "CREATE of v1/pods"),
            ({"operation": "CREATE\n"}, ("other", "other"), "request.operation"),
        ):
            response, outcome = answer(review_of("deployment", **changes))
            self.assertEqual((False, 400), (response["allowed"], response["status"]["code"]))
            self.assertIn(what, response["status"]["message"])
            self.assertEqual(("error", labels), (outcome.result, self._labels(outcome)))

    def test_shapes(self) -> None:
        """What is not a review is an error that names the first place."""
        whole = review_of("deployment")
        beta = {**whole, "apiVersion": "admission.k8s.io/v1beta1"}
        for document, place in (
            (None, "review"),
            ([], "review"),
            ({}, "apiVersion"),
            (beta, "apiVersion"),
            ({**whole, "kind": "Review"}, "kind"),
            ({**whole, "request": None}, "request"),
            (review_of("deployment", uid=""), "request.uid"),
            (review_of("deployment", uid="u" * 129), "request.uid"),
            (review_of("deployment", dryRun="false"), "request.dryRun"),
            (review_of("deployment", object="pod"), "request.object"),
            (review_of("deployment", resource="pods"), "request.resource"),
            (review_of("deployment", object={"metadata": {"name": 7}, "spec": {}}), "metadata.name"),
        ):
            response, outcome = answer(document)
            self.assertEqual((False, 400), (response["allowed"], response["status"]["code"]), place)
            self.assertIn(f"answered: {place}: ", response["status"]["message"])
            self.assertEqual(("error", "review_invalid"), (outcome.result, outcome.error and outcome.error.reason))

    @given(st.data())
    def test_any_document(self, data: st.DataObject) -> None:
        """A review with any value in any place is answered, and what is not understood is never allowed."""
        document: Any = copy.deepcopy(review_of("init-containers"))
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
                break
            place = place[key]
        place[key] = data.draw(
            st.none() | st.booleans() | st.integers() | st.text() | st.just([{}]) | st.just({"a": []})
        )
        response, outcome = answer(document)
        self.assertEqual(response["allowed"], outcome.result == "allowed")
        self.assertEqual(response["allowed"], outcome.error is None)
        self.assertEqual("patch" in response, outcome.injected)

    @staticmethod
    def _labels(outcome: ReviewOutcome) -> tuple[str, str]:
        return outcome.operation, outcome.resource
