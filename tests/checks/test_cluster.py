"""What is wrong between the pods of a cluster and their identities."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.checks.cluster import CHECKS, RESOURCES
from svc.checks.facts import ClusterFacts, ServerFacts
from svc.checks.model import Level, make_checks
from svc.data import FOLDER
from svc.kube.errors import KubernetesError
from svc.kube.kinds import (
    CLUSTER_POLICIES,
    CSI_DRIVERS,
    CSI_NODES,
    CUSTOM_RESOURCES,
    DAEMON_SETS,
    DEPLOYMENTS,
    FOREIGN_CLUSTERS,
    LICENSE_STATUSES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    Kind,
)
from svc.kube.times import to_time
from svc.manager.admission.authorities import Authorities, CertificateAuthority
from svc.manager.admission.configuration import (
    connections_configuration,
    policies_configuration,
    webhook_configuration,
)
from svc.manager.config import WebhookSettings
from svc.naming import POLICIES_CONFIGURATION
from tests.checks.kit import Case, findings, problems, uncovered
from tests.checks.test_preflight import NOW, named, node, objects

LIFE = timedelta(days=90)
BEGAN = NOW - timedelta(days=1)
REFUSED = KubernetesError("kubernetes_forbidden", action="read secrets", detail="User cannot get secrets")


@functools.cache
def authority(age_days: int = 1) -> CertificateAuthority:
    """An authority of the webhook that was made so long ago."""
    return CertificateAuthority.make(NOW - timedelta(days=age_days), LIFE)


def pem(made: CertificateAuthority) -> str:
    """Its certificate."""
    return made.certificate.public_bytes(Encoding.PEM).decode()


def hooks(bundle: str, **changes: Any) -> Callable[[ClusterFacts], ClusterFacts]:
    """The configurations of the webhooks as the manager makes them; the first hook of the injection is changed."""
    settings, namespace = WebhookSettings(service="svc-manager"), "svc-system"
    injection = webhook_configuration(settings, namespace, bundle)
    injection["webhooks"][0] |= changes
    others = (make(settings, namespace, bundle) for make in (connections_configuration, policies_configuration))
    changed = {MUTATING_WEBHOOKS: [injection], VALIDATING_WEBHOOKS: [*others]}
    return lambda facts: replace(facts, objects={**facts.objects, **changed})


def signed_by(made: CertificateAuthority) -> Callable[[ClusterFacts], ClusterFacts]:
    """Configurations and Secret with another authority."""
    return lambda facts: replace(hooks(Authorities(made).bundle)(facts), authorities=[pem(made)])


def conditions(generation: int = 2, **truths: str) -> dict[str, Any]:
    """A status."""
    return {
        "conditions": [
            {
                "type": kind,
                "status": truth,
                "reason": "Some",
                "message": f"{kind} it is",
                "observedGeneration": generation,
            }
            for kind, truth in truths.items()
        ]
    }


def resource(name: str, *, served: bool = True, established: str = "True") -> dict[str, Any]:
    """A custom resource."""
    versions = [{"name": "v1alpha1", "served": served}]
    return named(name, spec={"versions": versions}, status=conditions(Established=established))


def pod(
    name: str, *, injected: bool = True, ready: str = "True", minutes: int = 60, proxy: Any = None, **more: Any
) -> dict[str, Any]:
    """A pod of an enabled namespace; ``proxy`` is the state of its container."""
    labels = {"svc.internal/proxy-injected": "true"} if injected else {"app": "old"}
    made = to_time(NOW - timedelta(minutes=minutes))
    about = {"namespace": "shop", "labels": labels, "creationTimestamp": made, **more.pop("metadata", {})}
    running = ready == "True" or proxy == "running"
    states = [{"name": "svc-proxy", "ready": running, "state": {"running": {}} if running else proxy or {}}]
    status = {
        "phase": "Running",
        "initContainerStatuses": states,
        "containerStatuses": [{"name": "web", "ready": ready == "True", "state": {}}],
        **conditions(Ready=ready),
        **more,
    }
    return named(name, metadata=about, status=status)


def workload(name: str, wanted: int = 1, ready: int = 1) -> dict[str, Any]:
    """A Deployment or StatefulSet."""
    return named(name, spec={"replicas": wanted}, status={"readyReplicas": ready} if ready else {})


def on_nodes(name: str, wanted: int = 1, ready: int = 1) -> dict[str, Any]:
    """A DaemonSet."""
    return named(name, status={"desiredNumberScheduled": wanted, "numberReady": ready})


def policy(name: str = "one", *, kind: Kind = POLICIES, generation: int = 2, **truths: str) -> dict[str, Any]:
    """A policy that the manager has judged; without truths one that it has not."""
    truths = {"Accepted": "True", "Programmed": "True", "Conflicted": "False"} | truths if truths else {}
    namespace = {"namespace": "shop"} if kind is POLICIES else {}
    return named(name, metadata={"generation": 2, **namespace}, status=conditions(generation, **truths))


def license_status(state: str, minutes: int = 1, **more: str) -> Callable[[ClusterFacts], ClusterFacts]:
    """The status of licenses."""
    status = {"observedTime": to_time(NOW - timedelta(minutes=minutes)), "state": state, **more}
    return objects(LICENSE_STATUSES, named("license", status=status))


def well() -> ClusterFacts:
    """Facts of a cluster in which all is well."""
    facts = ClusterFacts(
        NOW,
        ServerFacts({"gitVersion": "v1.36.3"}, timedelta()),
        {
            CUSTOM_RESOURCES: [resource(name) for name in RESOURCES],
            DEPLOYMENTS: [workload("svc-manager", 2, 2), workload("svc-authority")],
            STATEFUL_SETS: [workload("spire-server")],
            DAEMON_SETS: [on_nodes("spire-agent"), on_nodes("svc-agent")],
            CSI_DRIVERS: [named("csi.svc.internal")],
            NODES: [node(), node("windows", operatingSystem="windows"), node("away", ready="Unknown")],
            CSI_NODES: [named("one", spec={"drivers": [{"name": "csi.svc.internal"}]}), named("away", spec={})],
            NAMESPACES: [
                *(
                    named(name, metadata={"labels": {"svc.internal/injection": "enabled"}})
                    for name in ("shop", "svc-system", "kube-system", "kube-public", "kube-node-lease")
                ),
                named("other"),
            ],
            PODS: [
                pod("good"),
                pod("left-out", injected=False, metadata={"annotations": {"svc.internal/inject": "false"}}),
                pod("done", injected=False, phase="Succeeded"),
                pod("ends", ready="False", metadata={"deletionTimestamp": to_time(NOW)}),
            ],
            LICENSE_STATUSES: [named("license", status={"observedTime": to_time(NOW), "state": "Valid"})],
            CLUSTER_POLICIES: [policy(kind=CLUSTER_POLICIES, Accepted="True")],
            POLICIES: [policy(Accepted="True")],
            FOREIGN_CLUSTERS: [named("partner", status=conditions(Ready="True", Reachable="True"))],
        },
    )
    return signed_by(authority())(facts)


def pods(*found: dict[str, Any]) -> Callable[[ClusterFacts], ClusterFacts]:
    """Replace the pods."""
    return objects(PODS, *found)


def state(reason: str, message: str = "", kind: str = "waiting") -> dict[str, Any]:
    """The state of a container that does not run."""
    return {kind: {"reason": reason, "message": message}}


def _daemons(*found: dict[str, Any]) -> Callable[[ClusterFacts], ClusterFacts]:
    return objects(DAEMON_SETS, *found)


BUNDLE = Authorities(authority()).bundle
SELECTOR = webhook_configuration(WebhookSettings(service="svc-manager"), "svc-system", "")["webhooks"][0][
    "namespaceSelector"
]
MANAGER_RUNS, ISSUER_RUNS = workload("svc-manager", 2, 2), workload("svc-authority")
CASES: list[Case[ClusterFacts]] = [
    Case("clock", "off", lambda facts: replace(facts, server=ServerFacts({}, timedelta(hours=1))), "3600 s ahead"),
    Case(
        "clock", "drifting", lambda facts: replace(facts, server=ServerFacts({}, timedelta(seconds=-30))), "30 s behind"
    ),
    Case("clock", "unknown", lambda facts: replace(facts, server=ServerFacts({}, None))),
    Case("custom-resources", "missing", objects(CUSTOM_RESOURCES, *map(resource, RESOURCES[1:])), RESOURCES[0]),
    Case(
        "custom-resources",
        "not_served",
        objects(CUSTOM_RESOURCES, resource(RESOURCES[0], served=False), *map(resource, RESOURCES[1:])),
    ),
    Case(
        "custom-resources",
        "not_established",
        objects(CUSTOM_RESOURCES, resource(RESOURCES[0], established="False"), *map(resource, RESOURCES[1:])),
    ),
    Case("svc-manager", "missing", objects(DEPLOYMENTS, ISSUER_RUNS)),
    Case("svc-manager", "none_wanted", objects(DEPLOYMENTS, ISSUER_RUNS, workload("svc-manager", 0, 0))),
    Case(
        "svc-manager", "none_ready", objects(DEPLOYMENTS, ISSUER_RUNS, workload("svc-manager", 2, 0)), "none of the 2"
    ),
    Case("svc-manager", "some_ready", objects(DEPLOYMENTS, ISSUER_RUNS, workload("svc-manager", 2, 1)), "1 of the 2"),
    Case("svc-authority", "missing", objects(DEPLOYMENTS, MANAGER_RUNS)),
    Case("svc-authority", "none_wanted", objects(DEPLOYMENTS, MANAGER_RUNS, workload("svc-authority", 0, 0))),
    Case("svc-authority", "none_ready", objects(DEPLOYMENTS, MANAGER_RUNS, workload("svc-authority", 1, 0))),
    Case("svc-authority", "some_ready", objects(DEPLOYMENTS, MANAGER_RUNS, workload("svc-authority", 2, 1))),
    Case("spire-server", "missing", objects(STATEFUL_SETS)),
    Case("spire-server", "none_wanted", objects(STATEFUL_SETS, workload("spire-server", 0, 0))),
    Case("spire-server", "none_ready", objects(STATEFUL_SETS, workload("spire-server", 1, 0))),
    Case("spire-server", "some_ready", objects(STATEFUL_SETS, workload("spire-server", 3, 2))),
    Case("spire-agent", "missing", _daemons(on_nodes("svc-agent"))),
    Case("spire-agent", "none_wanted", _daemons(on_nodes("svc-agent"), on_nodes("spire-agent", 0, 0))),
    Case("spire-agent", "none_ready", _daemons(on_nodes("svc-agent"), on_nodes("spire-agent", 3, 0))),
    Case("spire-agent", "some_ready", _daemons(on_nodes("svc-agent"), on_nodes("spire-agent", 3, 2))),
    Case("svc-agent", "missing", _daemons(on_nodes("spire-agent"))),
    Case("svc-agent", "none_wanted", _daemons(on_nodes("spire-agent"), on_nodes("svc-agent", 0, 0))),
    Case("svc-agent", "none_ready", _daemons(on_nodes("spire-agent"), on_nodes("svc-agent", 3, 0))),
    Case("svc-agent", "some_ready", _daemons(on_nodes("spire-agent"), on_nodes("svc-agent", 3, 2))),
    Case("csi-driver", "missing", objects(CSI_DRIVERS)),
    Case("csi-driver", "not_registered", objects(NODES, node(), node("two")), "the node two"),
    Case(
        "webhook",
        "missing",
        lambda facts: objects(MUTATING_WEBHOOKS)(facts),
        "MutatingWebhookConfiguration svc-injection",
    ),
    Case(
        "webhook",
        "missing",
        lambda facts: objects(VALIDATING_WEBHOOKS, facts.of(VALIDATING_WEBHOOKS)[0])(facts),
        "svc-policies",
    ),
    Case("webhook", "no_bundle", hooks(BUNDLE, clientConfig={"caBundle": base64.b64encode(b"none").decode()})),
    Case("webhook", "no_bundle", hooks(BUNDLE, clientConfig={"caBundle": "%"})),
    Case("webhook", "no_bundle", hooks(BUNDLE, clientConfig={})),
    Case(
        "webhook",
        "mismatch",
        hooks(BUNDLE, clientConfig={"caBundle": Authorities(authority(2)).bundle}),
        "the caBundle of svc-injection",
    ),
    Case("webhook", "no_authority", lambda facts: replace(facts, authorities=[])),
    Case("webhook", "no_authority", lambda facts: replace(facts, authorities=["damaged"])),
    Case("webhook", "not_compared", lambda facts: replace(facts, authorities=REFUSED), "cannot get secrets"),
    Case("webhook", "narrowed", hooks(BUNDLE, objectSelector={"matchLabels": {"a": "b"}}), "objectSelector"),
    Case(
        "webhook", "narrowed", hooks(BUNDLE, matchConditions=[{"name": "no", "expression": "false"}]), "matchConditions"
    ),
    Case("webhook", "narrowed", hooks(BUNDLE, rules=[]), "no rules"),
    Case(
        "webhook",
        "narrowed",
        hooks(BUNDLE, namespaceSelector={**SELECTOR, "matchLabels": {**SELECTOR["matchLabels"], "a": "b"}}),
        "leaves out namespaces",
    ),
    Case(
        "webhook",
        "narrowed",
        hooks(BUNDLE, namespaceSelector={**SELECTOR, "matchLabels": {"svc.internal/injection": "on"}}),
        "another value",
    ),
    Case(
        "webhook",
        "narrowed",
        hooks(
            BUNDLE,
            namespaceSelector={
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop"]}]
            },
        ),
        "namespace shop is excluded",
    ),
    Case("pods-without-proxy", "no_proxy", pods(pod("good"), pod("old", injected=False)), "shop/old"),
    Case(
        "injected-pods",
        "proxy_failed",
        pods(pod("p", ready="False", proxy=state("CrashLoopBackOff", "back-off"))),
        "back-off",
    ),
    Case(
        "injected-pods",
        "proxy_failed",
        pods(pod("p", ready="False", proxy=state("ErrImagePull"), minutes=1)),
        "ErrImagePull",
    ),
    Case("injected-pods", "proxy_failed", pods(pod("p", ready="False", proxy=state("Error", kind="terminated")))),
    Case("injected-pods", "not_started", pods(pod("p", ready="False", proxy=state("PodInitializing"))), "for 1 h"),
    Case("injected-pods", "starting", pods(pod("p", ready="False", proxy=state("PodInitializing"), minutes=1))),
    Case("injected-pods", "application", pods(pod("p", ready="False", proxy="running")), "web"),
    Case(
        "injected-pods",
        "proxy_not_ready",
        pods(
            pod(
                "p",
                ready="False",
                initContainerStatuses=[{"name": "svc-proxy", "ready": False, "state": {"running": {}}}],
            )
        ),
    ),
    Case(
        "injected-pods",
        "not_scheduled",
        pods(pod("p", **conditions(Ready="False", PodScheduled="False"), ready="False")),
        "PodScheduled it is",
    ),
    Case("license", "unknown", objects(LICENSE_STATUSES)),
    Case("license", "unknown", objects(LICENSE_STATUSES, named("license"))),
    Case("license", "stale", license_status("Valid", minutes=4), "4 min"),
    *(Case("license", "ending", license_status(each), each) for each in ("ExpiringSoon", "Grace", "OverLimit")),
    *(
        Case("license", "not_valid", license_status(each, reason="some"), f"{each} (some)")
        for each in ("NotYetValid", "ClockSuspect", "Expired", "WrongTrustDomain", "Invalid", "Missing", "Other")
    ),
    Case("policies", "not_seen", objects(POLICIES, policy()), "SvcPolicy shop/one"),
    Case("policies", "not_seen", objects(POLICIES, policy(generation=1, Accepted="True"))),
    Case("policies", "not_accepted", objects(POLICIES, policy(Accepted="False", Programmed="False")), "Accepted it is"),
    Case("policies", "not_programmed", objects(POLICIES, policy(Programmed="False")), "Programmed it is"),
    Case(
        "policies",
        "conflicted",
        objects(CLUSTER_POLICIES, policy(kind=CLUSTER_POLICIES, Conflicted="True")),
        "SvcClusterPolicy one",
    ),
    Case("foreign-clusters", "not_seen", objects(FOREIGN_CLUSTERS, named("partner"))),
    Case(
        "foreign-clusters",
        "degraded",
        objects(FOREIGN_CLUSTERS, named("partner", status=conditions(Ready="True", EndpointReachable="False"))),
        "EndpointReachable it is",
    ),
    Case(
        "foreign-clusters",
        "not_ready",
        objects(FOREIGN_CLUSTERS, named("partner", status=conditions(EndpointReachable="False"))),
        "not known",
    ),
    Case(
        "foreign-clusters",
        "not_ready",
        objects(FOREIGN_CLUSTERS, named("partner", status=conditions(Ready="False"))),
        "Ready it is",
    ),
]


class ClusterTests(SynchronousTestCase):
    """The checks of a cluster."""

    def test_well(self) -> None:
        """Nothing is found where all is well."""
        results = make_checks(CHECKS, well())
        self.assertEqual([], findings(results))
        self.assertEqual((Level.OK, len(CHECKS)), (results.level, len(results.results)))

    def test_connections_not_guarded(self) -> None:
        """A manager that does not guard connections to pods makes no configuration for them."""
        facts = well()
        [policies] = [
            each for each in facts.of(VALIDATING_WEBHOOKS) if each["metadata"]["name"] == POLICIES_CONFIGURATION
        ]
        self.assertEqual([], findings(make_checks(CHECKS, objects(VALIDATING_WEBHOOKS, policies)(facts))))

    def test_cases(self) -> None:
        """Each case is found by its check alone."""
        self.assertEqual([], problems(CHECKS, well, CASES))

    def test_all_covered(self) -> None:
        """There is a case for each defect of each check; an authority's age is one of all configurations."""
        others = {("webhook", "expired"), ("webhook", "not_renewed")}
        self.assertEqual(others, uncovered(CHECKS, CASES))

    def test_authority_ages(self) -> None:
        """An authority that the manager should have followed by another one, and one that has ended or not begun."""
        for days, code in ((67, ""), (68, "not_renewed"), (89, "not_renewed"), (90, "expired"), (-1, "expired")):
            results = make_checks(CHECKS, signed_by(authority(days))(well()))
            # Two hooks are in the configuration of policies.
            self.assertEqual([("webhook", code)] * 4 if code else [], findings(results), str(days))

    def test_successor(self) -> None:
        """While a new authority waits beside the old one, all is well."""
        both = Authorities(authority(70), authority(1))
        facts = replace(hooks(both.bundle)(well()), authorities=[pem(authority(70)), pem(authority(1))])
        self.assertEqual([], findings(make_checks(CHECKS, facts)))

    def test_not_read(self) -> None:
        """What could not be read fails each check that needs it, and the others are made."""
        facts = well()
        refused = replace(facts, objects={**facts.objects, PODS: REFUSED})
        expected = [(name, "kubernetes_forbidden") for name in ("pods-without-proxy", "injected-pods")]
        self.assertEqual(expected, findings(make_checks(CHECKS, refused)))

    def test_resources(self) -> None:
        """The custom resources are those of the package."""
        self.assertEqual(
            sorted(f"{path.stem}.svc.internal" for path in (FOLDER / "crds").glob("*.yaml")), list(RESOURCES)
        )
