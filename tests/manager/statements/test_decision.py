"""Which pod a token proves, and which facts a statement has."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.manager.statements.decision import Account, BoundPod, StatementDenied, pod_facts, proved_pod
from svc.notary.facts import Container, FactsInvalid, WorkloadFacts
from tests.manager.statements.objects import DIGEST, POD, USER, changed, review

API = Account("pay", "api")
BOUND = BoundPod("pay", "api-1", "u-1")


class ProvedPodTests(SynchronousTestCase):
    """A token, and the account of the identity over TLS."""

    def test_bound_pod(self) -> None:
        """It is the pod of the token, in the namespace of the account."""
        self.assertEqual(BOUND, proved_pod(review(), API))
        several = review(audiences=["other", "svc-manager"])
        self.assertEqual(BOUND, proved_pod(several, API))

    def test_refused(self) -> None:
        """Every other answer is refused by name."""
        unbound = {"username": USER, "extra": {}}
        twice = {"username": USER, "extra": {f"authentication.kubernetes.io/pod-{each}": ["a", "b"] for each in
                                             ("name", "uid")}}  # fmt: skip
        for reason, answer, account in (
            ("statement_token_refused", {}, API),
            ("statement_token_refused", review(authenticated=False, error="token has expired"), API),
            ("statement_token_refused", review(audiences=["https://kubernetes.default.svc"]), API),
            ("statement_token_refused", review(audiences=None), API),
            ("statement_token_account", review("system:serviceaccount:pay:web"), API),
            ("statement_token_account", review("system:serviceaccount:shop:api"), API),
            ("statement_token_account", review(), Account("shop", "api")),
            ("statement_token_account", review("pay:api"), API),
            ("statement_token_account", review(user={}), API),
            ("statement_token_unbound", review(user=unbound), API),
            ("statement_token_unbound", review(user={"username": USER}), API),
            ("statement_token_unbound", review(user=twice), API),
        ):
            error = self.assertRaises(StatementDenied, proved_pod, answer, account)
            self.assertEqual((reason, 403), (error.reason, error.http_status), answer)


class PodFactsTests(SynchronousTestCase):
    """A pod, and what its statement contains."""

    def facts(self, **changes: Any) -> WorkloadFacts:
        """The facts of the pod with other values."""
        return pod_facts(changed(POD, **changes), BOUND, API)

    def test_facts(self) -> None:
        """All are those of the API server; labels and annotations are those that self-issued statements have."""
        facts = self.facts()
        self.assertEqual(
            ("pay", "api", "api-1", "u-1", "n1"),
            (facts.namespace, facts.service_account, facts.pod_name, facts.pod_uid, facts.node),
        )
        proxy, api = Container("svc-proxy", "reg/svc:1", DIGEST, True), Container("api", "reg/api:1", DIGEST)
        self.assertEqual((proxy, api), facts.containers)
        self.assertEqual({naming.LABEL_COMPARTMENT: "DE-S-ALPHA"}, facts.labels)
        self.assertEqual({naming.ANNOTATION_LEVEL: "de:s"}, facts.annotations)
        self.assertEqual(("labels/app", "annotations/note"), facts.truncated)

    def test_images(self) -> None:
        """The digest is that of the image that runs; what is no digest is absent, and named."""
        for image, digest in (
            (f"reg:5000/a/b@{DIGEST}", DIGEST),
            (DIGEST, DIGEST),
            ("sha512:" + "0" * 128, "sha512:" + "0" * 128),
            ("", None),
            ("reg/api:1", None),
            ("sha256:abc", None),
            (f"reg/api@{DIGEST}@x", None),
            (f"{DIGEST}\n", None),
        ):
            statuses = [{"name": "api", "imageID": image}]
            facts = self.facts(status__containerStatuses=statuses)
            self.assertEqual(digest, facts.containers[1].image_digest, image)
            self.assertEqual(digest is None, "containers/api/imageDigest" in facts.truncated)

    def test_sidecar_before_its_neighbours(self) -> None:
        """Digests that are not known yet are absent, as is the status of a new pod."""
        facts = self.facts(status=None)
        self.assertEqual([None, None], [each.image_digest for each in facts.containers])
        named = [f"containers/{each}/imageDigest" for each in ("svc-proxy", "api")]
        self.assertEqual(named, [each for each in facts.truncated if each.startswith("containers")])

    def test_container_for_debugging(self) -> None:
        """What somebody attaches to the pod is in its statement."""
        facts = self.facts(
            spec__ephemeralContainers=[{"name": "sh", "image": "busybox"}],
            status__ephemeralContainerStatuses=[{"name": "sh", "imageID": f"busybox@{DIGEST}"}],
        )
        self.assertEqual(Container("sh", "busybox", DIGEST), facts.containers[-1])

    def test_refused(self) -> None:
        """A pod that is gone, another one of its name, of another account, or one that has ended."""
        for reason, pod in (
            ("statement_pod_unknown", None),
            ("statement_pod_unknown", changed(POD, metadata__uid="u-2")),
            ("statement_pod_account", changed(POD, spec__serviceAccountName="web")),
            ("statement_pod_account", changed(POD, spec__serviceAccountName=None)),
            ("statement_pod_account", changed(POD, metadata__namespace="shop")),
            ("statement_pod_ended", changed(POD, status__phase="Succeeded")),
            ("statement_pod_ended", changed(POD, status__phase="Failed")),
        ):
            error = self.assertRaises(StatementDenied, pod_facts, pod, BOUND, API)
            self.assertEqual((reason, 403), (error.reason, error.http_status))

    def test_values_of_no_statement(self) -> None:
        """Too many containers, or a value that is too long."""
        many = [{"name": f"c{number}", "image": "i"} for number in range(64)]
        self.assertRaises(FactsInvalid, self.facts, spec__containers=many)
        self.assertRaises(FactsInvalid, self.facts, metadata__annotations={naming.ANNOTATION_LEVEL: "x" * 1025})
