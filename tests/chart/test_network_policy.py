"""Who reaches which port of the pods of the platform, where the network enforces the policy of the chart."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.chart.rendering import Document, Rendered, template
from tests.chart.test_templates import cluster
from tests.peers.flows import Pod, allowed

METRICS = {9090, 9091, 9092, 9988, 9998}
#: Both sides of each end of a range, and some between.
PORTS = {*range(1, 65535, 211), *range(1, 5), *range(9080, 9100), *range(9980, 10000), 65534, 65535}
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})
#: Other namespaces, the own one, and an address that is no pod: the API server, a node, a load balancer.
OTHERS = (Pod("shop", {"app": "web"}), Pod("svc-system", {"app": "svc-agent"}), None)


def policies(values: Document | None = None) -> list[Document]:
    """The policies of the chart."""
    return Rendered(values).of("NetworkPolicy")


def closed(found: list[Document], source: Pod | None, target: Pod) -> set[int]:
    """The ports of TCP that a source does not reach."""
    return {port for port in PORTS if not allowed(found, source, target, port)}


class NetworkPolicyTests(SynchronousTestCase):
    """Of ``svc-system``."""

    def setUp(self) -> None:
        """Render the defaults."""
        self.chart = Rendered()
        self.policies = self.chart.of("NetworkPolicy")
        self.pods = {
            name: Pod("svc-system", self.chart.pod(name)["metadata"]["labels"]) for name in self.chart.workloads
        }

    def test_metrics(self) -> None:
        """The ports of metrics alone are closed, to all but the namespace of the monitoring."""
        target = self.pods["svc-manager"]
        self.assertEqual(set(), closed(self.policies, PROMETHEUS, target))
        for source in OTHERS:
            self.assertEqual(METRICS, closed(self.policies, source, target))

    def test_every_pod(self) -> None:
        """Each pod of the platform is concerned, and each port that it declares is open, but that of its metrics."""
        for name, target in self.pods.items():
            self.assertFalse(allowed(self.policies, None, target, 9090), name)
            for container in self.chart.pod(name)["spec"]["containers"]:
                for port in container.get("ports", ()):
                    for source in OTHERS:
                        reached = allowed(self.policies, source, target, port["containerPort"])
                        self.assertEqual(port["name"] != "prometheus", reached, (name, port))
                    self.assertTrue(allowed(self.policies, PROMETHEUS, target, port["containerPort"]))

    def test_webhook(self) -> None:
        """The API server, whose address is that of no pod, reaches the webhook."""
        self.assertTrue(allowed(self.policies, None, self.pods["svc-manager"], 9443))

    def test_probes(self) -> None:
        """The ports of probes are open even where the network treats the node as any address."""
        for name, target in self.pods.items():
            for container in self.chart.pod(name)["spec"]["containers"]:
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    if probe in container:
                        port = container[probe]["httpGet"]["port"]
                        self.assertTrue(allowed(self.policies, None, target, port), (name, probe))

    def test_other_protocols(self) -> None:
        """UDP and SCTP stay open, on the same numbers too."""
        for protocol in ("UDP", "SCTP"):
            for port in (1, 9090, 9998, 65535):
                for source in (PROMETHEUS, *OTHERS):
                    self.assertTrue(allowed(self.policies, source, self.pods["svc-agent"], port, protocol))

    def test_other_pods(self) -> None:
        """Pods in the namespace that are not of the platform, and pods elsewhere, are not concerned."""
        for target in (Pod("svc-system", {"app": "other"}), Pod("shop", self.pods["svc-agent"].labels)):
            self.assertEqual(set(), closed(self.policies, None, target))

    def test_values(self) -> None:
        """Namespace and ports are those of the values; an address that is off closes nothing, nor does StatsD."""
        target = self.pods["svc-manager"]
        values: Document = {
            "monitoring": {"namespace": "observability"},
            "manager": {"metricsAddr": "127.0.0.1:1"},
            "agent": {"metricsAddr": "0"},
            "proxy": {"metricsAddr": ":65535"},
            "spire": {"server": {"metricsAddr": ":2"}, "agent": {"metricsAddr": ":2"}},
        }
        found = policies(values)
        self.assertEqual({1, 2, 65535}, closed(found, PROMETHEUS, target))
        self.assertEqual(set(), closed(found, Pod("observability"), target))
        statsd = {"spire": {"statsd": {"enabled": True, "address": "statsd.example.org:8125"}}}
        self.assertEqual({9090, 9091, 9092}, closed(policies(statsd), None, target))

    def test_enabled_namespaces(self) -> None:
        """The manager keeps those of enabled namespaces, for the same namespace of the monitoring."""
        for values, monitoring in (
            ({}, "monitoring"),
            ({"monitoring": {"namespace": "0800"}}, "0800"),
            ({"networkPolicies": {"enabled": False}}, None),
        ):
            settings = cluster(Rendered(values)).networkPolicies
            self.assertEqual(monitoring, settings and settings.monitoringNamespace)

    def test_off(self) -> None:
        """There is no policy where it is turned off, nor where there are no metrics."""
        off: dict[str, Any] = {"metricsAddr": ""}
        for values in (
            {"networkPolicies": {"enabled": False}},
            {"manager": off, "agent": off, "proxy": off, "spire": {"server": off, "agent": off}},
        ):
            self.assertEqual([], policies(values))

    def test_taken_port(self) -> None:
        """A port for metrics that closed another part of the platform is refused, unless nothing is closed."""
        ports = {
            port["containerPort"]
            for name in self.chart.workloads
            for container in self.chart.pod(name)["spec"]["containers"]
            for port in container.get("ports", ())
            if port["name"] != "prometheus"
        }
        probes = {8080, 9910, 9982}
        for port in ports | probes:
            values: Document = {"agent": {"metricsAddr": f":{port}"}}
            said = str(self.assertRaises(AssertionError, template, values))
            self.assertIn(f"use port {port}", said)
            self.assertTrue(template({**values, "networkPolicies": {"enabled": False}}))


class FlowTests(SynchronousTestCase):
    """The rules by which these tests decide."""

    def policy(self, **spec: Any) -> Document:
        """A policy of the namespace shop."""
        return {"metadata": {"namespace": "shop"}, "spec": {"podSelector": {}, **spec}}

    def test_nothing_selected(self) -> None:
        """A pod that no policy for ingress selects gets everything."""
        others = (
            self.policy(podSelector={"matchLabels": {"app": "db"}}),
            self.policy(policyTypes=["Egress"]),
            {"metadata": {"namespace": "other"}, "spec": {"podSelector": {}}},
        )
        self.assertTrue(allowed(others, None, Pod("shop", {"app": "web"}), 80))

    def test_selected(self) -> None:
        """One that is selected gets what a rule of any of the policies admits, and nothing else."""
        here, there, target = Pod("shop"), Pod("other"), Pod("shop", {"app": "web"})
        closing = self.policy()
        self.assertFalse(allowed([closing], here, target, 80))
        opening = self.policy(ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}])
        self.assertTrue(allowed([closing, opening], here, target, 80))
        for source, port, protocol in ((there, 80, "TCP"), (None, 80, "TCP"), (here, 81, "TCP"), (here, 80, "UDP")):
            self.assertFalse(allowed([closing, opening], source, target, port, protocol))

    def test_ranges(self) -> None:
        """A range has both its ends; a rule without ports has all."""
        target = Pod("shop")
        ranged = self.policy(ingress=[{"ports": [{"port": 10, "endPort": 12}]}])
        self.assertEqual([10, 11, 12], [port for port in range(1, 20) if allowed([ranged], None, target, port)])
        self.assertTrue(allowed([self.policy(ingress=[{}])], None, target, 1, "SCTP"))

    def test_unknown_fields(self) -> None:
        """What is not evaluated is an error."""
        found = self.policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])
        self.assertRaises(AssertionError, allowed, [found], None, Pod("shop"), 80)
