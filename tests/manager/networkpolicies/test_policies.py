"""The NetworkPolicies of enabled namespaces: what they let through, and where they are."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.manager.config import ClusterSettings
from svc.manager.networkpolicies.policies import PolicyChanges, due_changes, policy_spec, wanted_spec
from svc.settings import parse
from tests.peers.flows import Pod, allowed

INJECTED = Pod("shop", {"app": "web", "svc.internal/proxy-injected": "true"})
PLAIN = Pod("shop", {"app": "web"})
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})
#: Another namespace, the own one, and an address that is no pod.
OTHERS = (Pod("mall", {"app": "prometheus"}), Pod("shop", {"app": "db"}), None)
SPEC = policy_spec(9092, "monitoring")
NOTHING = PolicyChanges([], [], [])


def namespace(name: str = "shop", **metadata: Any) -> dict[str, Any]:
    """A namespace that is enabled."""
    return {"metadata": {"name": name, **metadata}}


def policy(name: str = "other", place: str = "shop", **spec: Any) -> dict[str, Any]:
    """A policy of a user, which closes everything by default."""
    given = {"podSelector": {}, "policyTypes": ["Ingress"], **spec}
    return {"metadata": {"name": name, "namespace": place, "resourceVersion": "7"}, "spec": given}


def own(place: str = "shop", **spec: Any) -> dict[str, Any]:
    """A policy of the manager."""
    found = policy("svc-proxy-metrics", place, **(spec or SPEC))
    found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "svc-manager"}
    return found


def due(enabled: list[dict[str, Any]], *policies: dict[str, Any], spec: dict[str, Any] | None = SPEC) -> PolicyChanges:
    """What has to change in a cluster with these policies."""
    found = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in policies}
    return due_changes(enabled, found, spec)


class FlowTests(SynchronousTestCase):
    """What a policy lets through."""

    def test_metrics(self) -> None:
        """The port of the metrics alone is closed, to all but the namespace of the monitoring, in injected pods."""
        for port in (1, 2, 9092, 65534, 65535):
            policies = [own(**policy_spec(port, "monitoring"))]
            for tried in {1, 2, 80, 8443, 9091, 9092, 9093, 9910, 65533, 65534, 65535}:
                self.assertTrue(allowed(policies, PROMETHEUS, INJECTED, tried))
                for source in OTHERS:
                    self.assertEqual(tried != port, allowed(policies, source, INJECTED, tried), (port, tried))
                    self.assertTrue(allowed(policies, source, PLAIN, tried))

    def test_other_protocols(self) -> None:
        """UDP and SCTP stay open, on the same number too."""
        for protocol in ("UDP", "SCTP"):
            for source in (PROMETHEUS, *OTHERS):
                self.assertTrue(allowed([own()], source, INJECTED, 9092, protocol))

    def test_policies_of_users_decide(self) -> None:
        """What a policy of a user closes would be open beside that of the manager, and is closed after its changes."""
        theirs = policy()
        self.assertTrue(allowed([own(), theirs], None, INJECTED, 8443))
        todo = due([namespace()], own(), theirs)
        self.assertEqual(PolicyChanges([], [], ["shop"]), todo)
        self.assertFalse(allowed([theirs], None, INJECTED, 8443))
        self.assertFalse(allowed([theirs], None, INJECTED, 9092))


class DueChangesTests(SynchronousTestCase):
    """Where there is one."""

    def test_enabled_namespaces(self) -> None:
        """Each enabled namespace has one, with the label by which it is known again; then nothing is due."""
        todo = due([namespace("b"), namespace("a")])
        self.assertEqual((["a", "b"], [], []), ([each["metadata"]["namespace"] for each in todo.create], *todo[1:]))
        self.assertEqual(SPEC, todo.create[0]["spec"])
        made = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in todo.create}
        self.assertEqual(NOTHING, due_changes([namespace("b"), namespace("a")], made, SPEC))

    def test_other_policies(self) -> None:
        """Any other policy for ingress keeps it away, whatever it selects; one for egress alone does not."""
        egress = policy("egress", policyTypes=["Egress"])
        for theirs in (policy(), policy(podSelector={"matchLabels": {"app": "db"}}), policy(policyTypes=None)):
            if theirs["spec"]["policyTypes"] is None:
                del theirs["spec"]["policyTypes"]
            self.assertEqual(NOTHING, due([namespace()], theirs))
            self.assertEqual(["shop"], due([namespace()], theirs, own(), egress).delete)
        self.assertEqual(1, len(due([namespace()], egress, policy(place="mall")).create))
        self.assertEqual(NOTHING, due([namespace()], egress, own()))

    def test_name_is_taken(self) -> None:
        """A policy of that name without the label is of a user, who decides."""
        for theirs in (policy("svc-proxy-metrics"), policy("svc-proxy-metrics", policyTypes=["Egress"])):
            self.assertEqual(NOTHING, due([namespace()], theirs))
            self.assertEqual(NOTHING, due([], theirs))
        labeled = policy()
        labeled["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "svc-manager"}
        self.assertEqual(NOTHING, due([namespace()], labeled))

    def test_changed(self) -> None:
        """What it says is put right; its metadata stays, with the version by which nothing newer is overwritten."""
        for different in ({**SPEC, "egress": []}, {**SPEC, "ingress": SPEC["ingress"][:1]}, policy_spec(9093, "m")):
            found = own(**different)
            todo = due([namespace()], found)
            self.assertEqual(PolicyChanges([], [{**found, "spec": SPEC}], []), todo)
        self.assertEqual("7", todo.replace[0]["metadata"]["resourceVersion"])

    def test_not_enabled(self) -> None:
        """Without the label of the namespace, or without the setting, it is deleted."""
        self.assertEqual(PolicyChanges([], [], ["shop"]), due([], own()))
        self.assertEqual(PolicyChanges([], [], ["mall", "shop"]), due([namespace()], own(), own("mall"), spec=None))
        self.assertEqual(NOTHING, due([namespace()], spec=None))

    def test_terminating_namespaces(self) -> None:
        """In a namespace that ends nothing is made, changed or deleted."""
        ending = [namespace(deletionTimestamp="2026-01-01T00:00:00Z")]
        for theirs in ((), (own(),), (own(**policy_spec(1, "m")),), (own(), policy())):
            self.assertEqual(NOTHING, due(ending, *theirs))


class WantedSpecTests(SynchronousTestCase):
    """What the configuration of the cluster says."""

    def test_settings(self) -> None:
        """Port and namespace are those of the configuration; where metrics are off, or nothing is injected, none is."""
        monitored = "networkPolicies: {monitoringNamespace: observability}"
        injection = "injection: {image: svc, pqIssuer: 'a:1', pqIssuerID: 'spiffe://example.org/a'%s}"
        self.assertEqual(policy_spec(9092, "observability"), self.wanted(monitored, injection % ""))
        self.assertEqual(
            policy_spec(9100, "observability"), self.wanted(monitored, injection % ", metricsAddr: '127.0.0.1:9100'")
        )
        for off in ('"0"', '""'):
            self.assertIsNone(self.wanted(monitored, injection % f", metricsAddr: {off}"))
        self.assertIsNone(self.wanted(monitored))
        self.assertIsNone(self.wanted(injection % ""))

    def wanted(self, *settings: str) -> dict[str, Any] | None:
        """What policies say under these settings."""
        return wanted_spec(parse("\n".join(("trustDomain: example.org", *settings)), ClusterSettings))
