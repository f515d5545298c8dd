"""Whether a cluster is ready for an installation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.checks.facts import ClusterFacts, Object, ServerFacts
from svc.checks.model import Level, make_checks
from svc.checks.preflight import CHECKS, OLDEST, needed_rights
from svc.data import FOLDER
from svc.kube.errors import KubernetesError
from svc.kube.kinds import (
    CSI_DRIVERS,
    CUSTOM_RESOURCES,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    STORAGE_CLASSES,
    Kind,
)
from tests.checks.kit import Case, findings, problems, uncovered

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
REFUSED = KubernetesError("kubernetes_forbidden", action="list nodes", detail="User cannot list nodes")


def named(name: str, **more: Any) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, **more.pop("metadata", {})}, **more}


def node(name: str = "one", *, ready: str = "True", **about: str) -> dict[str, Any]:
    """A node."""
    info = {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "v1.36.3", **about}
    return named(name, status={"nodeInfo": info, "conditions": [{"type": "Ready", "status": ready}]})


def well() -> ClusterFacts:
    """Facts of a cluster that is ready for an installation."""
    return ClusterFacts(
        NOW,
        ServerFacts({"gitVersion": "v1.36.3"}, timedelta(seconds=0.5)),
        {
            NODES: [node()],
            CUSTOM_RESOURCES: [
                named("probes.probe.svc.internal", spec={"group": "probe.svc.internal", "versions": []})
            ],
            NAMESPACES: [named("svc-system", metadata={"labels": PRIVILEGED})],
            STORAGE_CLASSES: [named("fast", metadata={"annotations": DEFAULT}), named("slow")],
            CSI_DRIVERS: [],
            DEPLOYMENTS: [],
            MUTATING_WEBHOOKS: [],
        },
    )


def server(**changes: Any) -> Callable[[ClusterFacts], ClusterFacts]:
    """Change what the API server says of itself."""
    return lambda facts: replace(facts, server=replace(facts.server, **changes))  # type: ignore[type-var]


def version(text: str) -> Callable[[ClusterFacts], ClusterFacts]:
    """Give the API server a version."""
    return server(version={"gitVersion": text})


def objects(kind: Kind, *found: Object) -> Callable[[ClusterFacts], ClusterFacts]:
    """Replace the objects of a kind."""
    return lambda facts: replace(facts, objects={**facts.objects, kind: found})


def namespace(**metadata: Any) -> Callable[[ClusterFacts], ClusterFacts]:
    """Replace the namespace of the installation."""
    return objects(NAMESPACES, named("svc-system", metadata=metadata))


def resource(*versions: str, **metadata: Any) -> Callable[[ClusterFacts], ClusterFacts]:
    """Add one of our custom resources."""
    spec = {"group": "svc.internal", "versions": [{"name": each, "served": True} for each in versions]}
    return objects(CUSTOM_RESOURCES, named("svcpolicies.svc.internal", spec=spec, metadata=metadata))


def driver(**annotations: str) -> Callable[[ClusterFacts], ClusterFacts]:
    """Add the CSI driver of an installation."""
    release = {f"meta.helm.sh/release-{name}": value for name, value in annotations.items()}
    return objects(CSI_DRIVERS, named("csi.svc.internal", metadata={"annotations": release}))


def both(*changes: Callable[[ClusterFacts], ClusterFacts]) -> Callable[[ClusterFacts], ClusterFacts]:
    """Make several changes."""

    def changed(facts: ClusterFacts) -> ClusterFacts:
        for change in changes:
            facts = change(facts)
        return facts

    return changed


def on_kind() -> Callable[[ClusterFacts], ClusterFacts]:
    """Make the node one of kind."""
    return objects(NODES, {**node(), "spec": {"providerID": "kind://docker/kind/kind-control-plane"}})


def on_microk8s() -> Callable[[ClusterFacts], ClusterFacts]:
    """Make the node one of MicroK8s."""
    return objects(NODES, {**node(), "metadata": {"name": "one", "labels": {"microk8s.io/cluster": "true"}}})


CASES: list[Case[ClusterFacts]] = [
    Case("kubernetes-version", "no_sidecars", version("v1.28.9"), "v1.28.9"),
    Case("kubernetes-version", "old", version("v1.32.99-eks-1"), "v1.32.99-eks-1"),
    Case("kubernetes-version", "unreadable", version("latest"), "latest"),
    Case("clock", "off", server(ahead=timedelta(seconds=61)), "61 s ahead of"),
    Case("clock", "off", server(ahead=timedelta(seconds=-61)), "61 s behind"),
    Case("clock", "drifting", server(ahead=timedelta(seconds=6)), "6 s ahead"),
    Case("clock", "unknown", server(ahead=None)),
    Case("nodes", "none", objects(NODES), "none of the 0"),
    Case("nodes", "system", objects(NODES, node(), node("two", operatingSystem="windows")), "two runs windows"),
    Case("nodes", "architecture", objects(NODES, node(), node("two", architecture="s390x")), "s390x"),
    Case("nodes", "kubelet", objects(NODES, node(), node("two", kubeletVersion="v1.28.1")), "v1.28.1"),
    Case("nodes", "kubelet", objects(NODES, node(), node("two", kubeletVersion="")), "not known"),
    Case("nodes", "not_ready", objects(NODES, node(), node("two", ready="Unknown")), "two"),
    Case("nodes", "kubernetes_forbidden", lambda facts: replace(facts, objects={**facts.objects, NODES: REFUSED})),
    Case(
        "rights",
        "missing",
        lambda facts: replace(facts, missing_rights=needed_rights()[:1]),
        "may not create customresourcedefinitions.apiextensions.k8s.io",
    ),
    Case("rights", "missing", lambda facts: replace(facts, missing_rights=needed_rights()[-1:]), "svc-system"),
    Case("custom-resources", "there", resource("v1alpha1")),
    Case("custom-resources", "version", resource("v1", "v1beta1"), "v1, v1beta1"),
    Case("custom-resources", "ending", resource("v1alpha1", deletionTimestamp="2026-11-21T08:00:00Z")),
    Case("namespace", "missing", objects(NAMESPACES, named("default"))),
    Case("namespace", "ending", namespace(labels=PRIVILEGED, deletionTimestamp="2026-11-21T08:00:00Z")),
    Case(
        "namespace", "restricted", namespace(labels={**PRIVILEGED, **dict.fromkeys(PRIVILEGED, "baseline")}), "baseline"
    ),
    Case("namespace", "not_labelled", namespace(labels={"a": "b"})),
    Case("storage-class", "no_default", objects(STORAGE_CLASSES, named("slow")), "slow"),
    Case("storage-class", "no_default", objects(STORAGE_CLASSES), "none at all"),
    *(
        Case("storage-class", f"no_default_{name}", both(objects(STORAGE_CLASSES), change), "none at all")
        for name, change in (("eks", version("v1.33.1-eks-595af52")), ("kind", on_kind()), ("microk8s", on_microk8s()))
    ),
    Case(
        "storage-class",
        "several",
        objects(STORAGE_CLASSES, *(named(each, metadata={"annotations": DEFAULT}) for each in "ba")),
        "a, b",
    ),
    Case("release", "installed", driver(name="svc", namespace="svc-system"), "the release svc"),
    Case("release", "elsewhere", driver(name="svc", namespace="other"), "other"),
    Case("release", "not_of_helm", driver()),
    Case("release", "not_of_helm", objects(DEPLOYMENTS, named("svc-manager"))),
    Case("release", "left_over", objects(MUTATING_WEBHOOKS, named("svc-injection"))),
]


class PreflightTests(SynchronousTestCase):
    """The checks before an installation."""

    def test_well(self) -> None:
        """Nothing is found where all is well; at the bounds too."""
        for change in (lambda facts: facts, version("v1.33.0"), version("v1.33+"), server(ahead=timedelta(seconds=-5))):
            results = make_checks(CHECKS, change(well()))
            self.assertEqual([], findings(results))
            self.assertEqual((Level.OK, len(CHECKS), ()), (results.level, len(results.results), results.not_made))

    def test_cases(self) -> None:
        """Each case is found by its check alone."""
        self.assertEqual([], problems(CHECKS, well, CASES))

    def test_all_covered(self) -> None:
        """There is a case for each defect of each check."""
        self.assertEqual(set(), uncovered(CHECKS, CASES))

    def test_one_at_the_bound(self) -> None:
        """Several of one kind are all found."""
        facts = replace(well(), missing_rights=needed_rights())
        self.assertEqual([("rights", "missing")] * len(needed_rights()), findings(make_checks(CHECKS, facts)))

    def test_unreachable(self) -> None:
        """Where the API server does not answer, no other check is made."""
        error = KubernetesError("kubernetes_unreachable", server="https://a", detail="refused")
        results = make_checks(CHECKS, replace(well(), server=error))
        self.assertEqual([("api-server", "kubernetes_unreachable")], findings(results))
        self.assertEqual(tuple(each.name for each in CHECKS[1:]), results.not_made)

    def test_chart(self) -> None:
        """The oldest version is that of the chart, and the rights are about all kinds that it makes."""
        chart = (FOLDER / "chart" / "Chart.yaml").read_text()
        self.assertIn(f'kubeVersion: ">={OLDEST[0]}.{OLDEST[1]}.0-0"', chart)
        kinds = {
            kind
            for path in (FOLDER / "chart" / "templates").glob("*.yaml")
            for kind in re.findall(r"^kind: (\w+)$", path.read_text(), re.MULTILINE)
        }
        # Those of an operator are made where its custom resources are there alone.
        kinds -= {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
        plurals = {right.resource for right in needed_rights()}
        self.assertEqual(
            set(), {each for each in kinds if not plurals & {f"{each.lower()}s", f"{each.lower()[:-1]}ies"}}
        )
