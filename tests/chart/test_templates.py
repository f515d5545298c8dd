"""The objects of the chart: they fit together, and to what the documentation says of them."""

from __future__ import annotations

import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc import __version__, strictyaml
from svc.agent.config import AgentSettings
from svc.authority.config import AuthoritySettings
from svc.chart.hooks import TrustDomainChanged
from svc.data import FOLDER
from svc.manager.config import ClusterSettings, ManagerSettings
from svc.manager.tap import Options as ManagerOptions
from svc.naming import (
    ANNOTATION_TRUST_DOMAIN,
    AUTHORITY,
    CSI_DRIVER,
    DOMAIN,
    LABEL_INJECTED,
    MANAGER,
    MANAGER_CONFIG,
    METRICS_PORT,
)
from svc.registrar.config import RegistrarSettings
from svc.settings import HostPort, parse
from tests.chart.rendering import CHART, Document, Rendered
from tests.peers.pages import page

#: What has all that a node has, and why.
OUTSIDE = {"spire-agent": "hostPID", "svc-agent": "privileged"}
SCRAPE = f"{DOMAIN}/prometheus-scrape"
#: What the chart makes for the Prometheus Operator.
MONITORING = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


class ObjectTests(SynchronousTestCase):
    """With default values, and with others."""

    def setUp(self) -> None:
        """Render the defaults."""
        self.chart = Rendered()

    def test_names(self) -> None:
        """Each object is there once, in the namespace of the release, with the labels of the platform."""
        seen: set[tuple[str, str, str | None]] = set()
        for each in self.chart.objects:
            metadata = each["metadata"]
            key = (each["kind"], metadata["name"], metadata.get("namespace"))
            self.assertNotIn(key, seen)
            seen.add(key)
            self.assertEqual("svc-core", metadata["labels"]["app.kubernetes.io/part-of"], key)
            self.assertIn(metadata.get("namespace"), (None, "svc-system", "default"), key)

    def test_selectors(self) -> None:
        """Services, budgets and workloads select the pods of exactly one workload, and Services ports of it."""
        pods = {name: self.chart.pod(name) for name in self.chart.workloads}
        for each in self.chart.of("Service", "PodDisruptionBudget", "Deployment", "DaemonSet", "StatefulSet"):
            selector = each["spec"]["selector"]
            labels = selector.get("matchLabels", selector)
            found = [pod for pod in pods.values() if labels.items() <= pod["metadata"]["labels"].items()]
            self.assertEqual(1, len(found), each["metadata"]["name"])
            if each["kind"] == "Service":
                ports = {
                    port["name"] for container in found[0]["spec"]["containers"] for port in container.get("ports", ())
                }
                self.assertLessEqual({port["targetPort"] for port in each["spec"]["ports"]}, ports)

    def test_roles(self) -> None:
        """The manager may do what its page says, and nothing else."""
        [text] = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```", page("manager.md"), re.MULTILINE | re.DOTALL)
        wanted = [each for each in strictyaml.loads_all(text) if isinstance(each, dict)]
        found = []
        for each in self.chart.of("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
            if each["metadata"]["name"].startswith(MANAGER):
                each["metadata"].pop("labels")
                found.append(each)
        self.assertEqual(_sorted(wanted), _sorted(found))

    def test_reasons(self) -> None:
        """Each rule of a role has its reason above it."""
        for name in ("svc-manager-rbac", "spire-server", "spire-agent", "hooks"):
            text = (CHART / "templates" / f"{name}.yaml").read_text()
            for rules in re.findall(r"^rules:\n(.*?)^(?:---|\S)", text, re.MULTILINE | re.DOTALL):
                self.assertRegex(rules, r"\A  #", name)

    def test_other_license_namespaces(self) -> None:
        """In each further namespace the manager may read Secrets, and nothing else."""
        chart = Rendered({"manager": {"licenseNamespaces": ["svc-system", "billing"]}})
        role = chart.one("Role", MANAGER, "billing")
        self.assertEqual([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}], role["rules"])
        binding = chart.one("RoleBinding", MANAGER, "billing")
        self.assertEqual([{"kind": "ServiceAccount", "name": MANAGER, "namespace": "svc-system"}], binding["subjects"])
        self.assertEqual(("svc-system", "billing"), cluster(chart).licenseNamespaces)

    def test_restricted(self) -> None:
        """All pods but the two of each node are within the profile restricted of Pod Security."""
        for name in self.chart.workloads:
            spec = self.chart.pod(name)["spec"]
            if name in OUTSIDE:
                self.assertIn(OUTSIDE[name], str(spec))
                continue
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertEqual({"type": "RuntimeDefault"}, spec["securityContext"]["seccompProfile"])
            for unwanted in ("hostPID", "hostNetwork", "hostIPC"):
                self.assertNotIn(unwanted, spec)
            self.assertFalse([each for each in spec.get("volumes", ()) if "hostPath" in each])
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                context = container["securityContext"]
                self.assertEqual({"drop": ["ALL"]}, context["capabilities"])
                self.assertIs(False, context["allowPrivilegeEscalation"])
                self.assertIs(True, context["readOnlyRootFilesystem"])

    def test_every_container_has_resources(self) -> None:
        """Each container of what goes on running has a request and a limit of memory."""
        for name, workload in self.chart.workloads.items():
            if workload["kind"] != "Job":
                for container in self.chart.pod(name)["spec"]["containers"]:
                    self.assertTrue(container["resources"]["requests"]["memory"], name)
                    self.assertTrue(container["resources"]["limits"]["memory"], name)


class ImageTests(SynchronousTestCase):
    """Where the images are."""

    def images(self, chart: Rendered) -> set[str]:
        """The images of all containers, and of injected proxies."""
        found = {
            container["image"]
            for name in chart.workloads
            for part in ("containers", "initContainers")
            for container in chart.pod(name)["spec"].get(part, ())
        }
        injection = cluster(chart).injection
        assert injection is not None
        return found | {injection.image}

    def test_defaults(self) -> None:
        """They are the four of the release, as ``bin/image`` names them."""
        names = ("svc", "svc-manager", "spire-server", "spire-agent")
        self.assertEqual({f"svc.internal/{name}:{__version__}" for name in names}, self.images(Rendered()))

    def test_elsewhere(self) -> None:
        """Registry with port and prefix, names, tags and digests are those of the values; a digest is above a tag."""
        digest = f"sha256:{'0' * 64}"
        images: Document = {
            "registry": "registry.example.org:5000/mirror/svc",
            "svc": {"repository": "a/b", "tag": "x"},
            "svcManager": {"tag": "y", "digest": digest},
            "spireServer": {"digest": digest},
        }
        prefix = images["registry"]
        self.assertEqual(
            {
                f"{prefix}/a/b:x",
                f"{prefix}/svc-manager@{digest}",
                f"{prefix}/spire-server@{digest}",
                f"{prefix}/spire-agent:{__version__}",
            },
            self.images(Rendered({"images": images})),
        )

    def test_policy_and_secrets(self) -> None:
        """Every pod pulls with the policy and the Secrets of the values, an injected proxy with the policy."""
        chart = Rendered({"images": {"pullPolicy": "Never", "pullSecrets": ["one", "two"]}})
        for name in chart.workloads:
            spec = chart.pod(name)["spec"]
            self.assertEqual([{"name": "one"}, {"name": "two"}], spec["imagePullSecrets"])
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                self.assertEqual("Never", container["imagePullPolicy"])
        injection = cluster(chart).injection
        assert injection is not None
        self.assertEqual("Never", injection.imagePullPolicy)
        self.assertEqual(("one", "two"), injection.imagePullSecrets)


class ConfigurationTests(SynchronousTestCase):
    """Each process accepts its configuration, and it is that of the values."""

    def test_accepted(self) -> None:
        """The configurations are valid, and name each other."""
        chart = Rendered()
        agent = parse(chart.variable("svc-agent"), AgentSettings)
        authority = parse(chart.variable("svc-authority"), AuthoritySettings)
        registrar = parse(chart.variable("spire-server", "svc-registrar"), RegistrarSettings)
        manager = parse(chart.variable(MANAGER), ManagerSettings)
        found = cluster(chart)
        assert agent.pqBundle is not None and authority.pqIssuer is not None and authority.pqIssuer.listen is not None
        assert found.spire is not None and found.injection is not None and manager.webhook is not None
        self.assertFalse(authority.problems())
        self.assertEqual(
            ["/node", "/svc/agent", "/svc/authority", "/svc/manager"], [e.spiffeID for e in registrar.entries]
        )
        self.assertEqual([False, False, False, True], [each.admin for each in registrar.entries])
        service = chart.one("Service", AUTHORITY)
        self.assertEqual(authority.pqIssuer.listen.port, service["spec"]["ports"][0]["port"])
        issuer = HostPort("svc-authority.svc-system.svc", 8444)
        self.assertEqual([issuer] * 2, [agent.pqBundle.issuer, found.injection.pqIssuer])
        self.assertEqual(
            ["spiffe://example.org/svc/authority"] * 2, [agent.pqBundle.issuerID, found.injection.pqIssuerID]
        )
        self.assertEqual(HostPort("spire-server.svc-system.svc", 8081), found.spire.server)
        self.assertEqual("svc-system", manager.namespace)
        self.assertEqual(manager.webhook.service, chart.one("Service", MANAGER)["metadata"]["name"])
        port = manager.webhook.listen.port
        self.assertIn({"name": "webhook", "containerPort": port}, chart.container(MANAGER)["ports"])
        address = manager.controlPlaneAddr
        assert address is not None
        self.assertEqual(HostPort("svc-control-plane.svc-system.svc", address.port), found.injection.controlPlane)
        [port] = chart.one("Service", "svc-control-plane")["spec"]["ports"]
        self.assertEqual((address.port, "control-plane"), (port["port"], port["targetPort"]))
        self.assertIn({"name": "control-plane", "containerPort": address.port}, chart.container(MANAGER)["ports"])
        secrets = {each["secret"]["secretName"] for each in chart.pod(AUTHORITY)["spec"]["volumes"] if "secret" in each}
        assert found.issuer is not None
        self.assertEqual({found.issuer.secret}, secrets)
        self.assertEqual(CSI_DRIVER, chart.of("CSIDriver")[0]["metadata"]["name"])

    def test_values(self) -> None:
        """Values of proxies, of the issuer and of the webhook reach the configurations."""
        chart = Rendered(
            {
                "proxy": {"notarization": "signRequest", "metricsAddr": "", "resources": {"limits": {"cpu": "1"}}},
                "authority": {"rootTtl": "90d"},
                "spire": {"x509SvidTtl": "15m"},
                "manager": {"failurePolicy": "Ignore"},
                "agent": {"kubeletDir": "/var/snap/kubelet"},
            }
        )
        injection = cluster(chart).injection
        manager = parse(chart.variable(MANAGER), ManagerSettings)
        agent = parse(chart.variable("svc-agent"), AgentSettings)
        authority = parse(chart.variable(AUTHORITY), AuthoritySettings)
        assert injection is not None and manager.webhook is not None and authority.pqIssuer is not None
        assert agent.csi is not None
        self.assertEqual("signRequest", injection.notarization)
        self.assertIsNone(injection.metricsAddr)
        self.assertEqual({"cpu": "1", "memory": "256Mi"}, injection.limits.amounts())
        issuer = cluster(chart).issuer
        assert issuer is not None
        spire = cluster(chart).spire
        assert spire is not None
        self.assertEqual(15 * 60, spire.x509SvidTtl)
        self.assertEqual([90 * 86400] * 2, [authority.pqIssuer.rootTtl, issuer.rootTtl])
        self.assertEqual("Ignore", manager.webhook.failurePolicy)
        self.assertEqual("/var/snap/kubelet/pods", agent.csi.pods)
        mounts = {each["mountPath"] for each in chart.container("svc-agent")["volumeMounts"]}
        paths = {each["hostPath"]["path"] for each in chart.pod("svc-agent")["spec"]["volumes"] if "hostPath" in each}
        for path in ("pods", "plugins_registry", "plugins/csi.svc.internal"):
            self.assertIn(f"/var/snap/kubelet/{path}", mounts)
            self.assertIn(f"/var/snap/kubelet/{path}", paths)

    def test_restart(self) -> None:
        """Another configuration of SPIRE changes the pods that read it."""
        for name in ("spire-server", "spire-agent"):
            first, second = (Rendered({"trustDomain": each}).pod(name) for each in ("example.org", "example.net"))
            self.assertNotEqual(first["metadata"]["annotations"], second["metadata"]["annotations"])

    def test_purge(self) -> None:
        """The volume of SPIRE goes with its StatefulSet only where it was asked for."""
        for purge, what in ((False, "Retain"), (True, "Delete")):
            chart = Rendered({"purge": purge})
            policy = chart.one("StatefulSet", "spire-server")["spec"]["persistentVolumeClaimRetentionPolicy"]
            self.assertEqual({"whenDeleted": what, "whenScaled": "Retain"}, policy)

    def test_storage(self) -> None:
        """The claim has size and class of the values, and no class by default."""
        for storage, wanted in (({}, None), ({"className": "fast", "size": "2Gi"}, "fast")):
            chart = Rendered({"spire": {"storage": storage}})
            [claim] = chart.one("StatefulSet", "spire-server")["spec"]["volumeClaimTemplates"]
            self.assertEqual(wanted, claim["spec"].get("storageClassName"))
            self.assertEqual(storage.get("size", "1Gi"), claim["spec"]["resources"]["requests"]["storage"])

    def test_trust_domain(self) -> None:
        """The hook reads from the claim of SPIRE what the claim is made with, and compares it with the values."""
        for name in ("example.org", "123"):
            chart = Rendered({"trustDomain": name})
            [claim] = chart.one("StatefulSet", "spire-server")["spec"]["volumeClaimTemplates"]
            self.assertEqual({ANNOTATION_TRUST_DOMAIN: name}, claim["metadata"]["annotations"])
            command = chart.container("svc-prepare", "hook")["command"]
            self.assertEqual(["prepare", "--namespace", "svc-system", "--trust-domain", name], command[3:])
        [rule] = chart.workloads["svc-prepare"]["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(("FailJob", [TrustDomainChanged.exit_status]), (rule["action"], rule["onExitCodes"]["values"]))


class MetricsTests(SynchronousTestCase):
    """The endpoints of the parts, and who finds them."""

    #: Workload, its port, and the value of its address.
    PARTS = (
        ("spire-server", 9998, ("spire", "server")),
        ("spire-agent", 9988, ("spire", "agent")),
        ("svc-agent", 9091, ("agent",)),
        (MANAGER, 9090, ("manager",)),
    )

    def test_services(self) -> None:
        """Each part has a Service with the label, whose port is named prometheus and leads to its endpoint."""
        chart = Rendered()
        services = {
            each["metadata"]["name"]: each["spec"]["ports"]
            for each in chart.of("Service")
            if each["metadata"]["labels"].get(SCRAPE) == "true"
        }
        wanted = {
            f"{name}-metrics": [{"name": "prometheus", "port": port, "targetPort": "prometheus"}]
            for name, port, _path in self.PARTS
        }
        self.assertEqual(wanted, services)
        for name, port, _path in self.PARTS:
            self.assertIn({"name": "prometheus", "containerPort": port}, chart.container(name)["ports"])
        self.assertIn('Prometheus { host = "0.0.0.0" port = 9998 }', server_conf(chart))

    def test_addresses(self) -> None:
        """Another address moves the endpoint, its port and its Service; 0 and "" remove all three."""
        for name, _port, path in self.PARTS:
            for address, port in (("127.0.0.1:7000", 7000), ("[::1]:7001", 7001), ("", None), ("0", None), (0, None)):
                values: Any = {"metricsAddr": address}
                for key in reversed(path):
                    values = {key: values}
                chart = Rendered(values)
                ports = [each["containerPort"] for each in named(chart.container(name), "prometheus")]
                self.assertEqual([] if port is None else [port], ports)
                services = [each for each in chart.of("Service") if each["metadata"]["name"] == f"{name}-metrics"]
                self.assertEqual(len(ports), len(services))
                disabled = port is None and name.startswith("spire")
                self.assertEqual("" if disabled else str(address), self.configured(chart, name))

    def configured(self, chart: Rendered, name: str) -> str:
        """The address that a part is given, as in the values."""
        if name == MANAGER:
            [given] = [each for each in chart.container(name)["command"] if each.startswith("--metrics-bind-address=")]
            return str(given.partition("=")[2])
        if name == "svc-agent":
            command = chart.container(name)["command"]
            return str(command[command.index("--metrics-addr") + 1])
        key = "server.conf" if name == "spire-server" else "agent.conf"
        found = re.search(r'Prometheus \{ host = "(.*)" port = (\d+)', chart.one("ConfigMap", name)["data"][key])
        if found is None:
            return ""
        host = f"[{found[1]}]" if ":" in found[1] else found[1]
        return f"{host}:{found[2]}"

    def test_statsd(self) -> None:
        """With StatsD SPIRE has no endpoint, and no Service for it."""
        chart = Rendered({"spire": {"statsd": {"enabled": True, "address": "statsd.example.org:8125"}}})
        wanted = 'telemetry { Statsd = [ { address = "statsd.example.org:8125" } ] }'
        for name, key in (("spire-server", "server.conf"), ("spire-agent", "agent.conf")):
            self.assertIn(wanted, chart.one("ConfigMap", name)["data"][key])
            self.assertEqual([], named(chart.container(name), "prometheus"))
        names = {each["metadata"]["name"] for each in chart.of("Service")}
        self.assertFalse(names & {"spire-server-metrics", "spire-agent-metrics"})

    def test_manager_options(self) -> None:
        """The manager accepts its options: plain HTTP, unless the values say otherwise."""
        for given, secure in (({}, False), ({"metricsSecure": True}, True)):
            chart = Rendered({"manager": given})
            command = chart.container(MANAGER)["command"]
            options = ManagerOptions()
            self.patch(options, "postOptions", lambda: None)
            options.parseOptions(command[command.index("svc-manager") + 1 :])
            self.assertEqual(str(secure).lower(), options["metrics-secure"])
            self.assertEqual(":9090", options["metrics-bind-address"])

    def test_monitors(self) -> None:
        """Monitors select what is rendered, at the interval of the values; by default there are none."""
        self.assertEqual([], Rendered().of(*MONITORING))
        chart = Rendered({"monitoring": {"enabled": True, "interval": "15s"}})
        [monitor] = chart.of("ServiceMonitor")
        labels = monitor["spec"]["selector"]["matchLabels"].items()
        selected = [each for each in chart.of("Service") if labels <= each["metadata"]["labels"].items()]
        self.assertEqual(4, len(selected))
        [endpoint] = monitor["spec"]["endpoints"]
        self.assertEqual(("prometheus", "15s"), (endpoint["port"], endpoint["interval"]))
        for service in selected:
            self.assertEqual([endpoint["port"]], [each["name"] for each in service["spec"]["ports"]])
        [pods] = chart.of("PodMonitor")
        self.assertEqual("15s", pods["spec"]["podMetricsEndpoints"][0]["interval"])
        self.assertEqual({LABEL_INJECTED: "true"}, pods["spec"]["selector"]["matchLabels"])
        self.assertEqual([METRICS_PORT], [each["port"] for each in pods["spec"]["podMetricsEndpoints"]])

    def test_jobs(self) -> None:
        """The operator makes the jobs that the alerts name: of Services by a label, of proxies by a constant."""
        chart = Rendered({"monitoring": {"enabled": True}, "manager": {"metricsSecure": True}})
        jobs = set()
        for monitor in chart.of("ServiceMonitor"):
            self.assertEqual("app.kubernetes.io/name", monitor["spec"]["jobLabel"])
            for service in chart.of("Service"):
                if selects(monitor["spec"]["selector"], service["metadata"]["labels"]):
                    jobs.add(service["metadata"]["labels"]["app.kubernetes.io/name"])
        self.assertEqual({name for name, _port, _path in self.PARTS}, jobs)
        [pods] = chart.of("PodMonitor")
        [endpoint] = pods["spec"]["podMetricsEndpoints"]
        self.assertEqual([{"targetLabel": "job", "replacement": "svc-proxy"}], endpoint["relabelings"])

    def test_rules(self) -> None:
        """The rules of the operator are those of the file, expressions and templates included."""
        [rule] = Rendered({"monitoring": {"enabled": True}}).of("PrometheusRule")
        self.assertEqual(strictyaml.loads((FOLDER / "alerts" / "alerts.yaml").read_text()), rule["spec"])

    def test_labels_of_monitors(self) -> None:
        """Labels of the values are beside those of the chart, and replace none."""
        given = {"release": "stack", "example.org/team": "", "app.kubernetes.io/managed-by": "somebody"}
        for monitor in Rendered({"monitoring": {"enabled": True, "labels": given}}).of(*MONITORING):
            labels = monitor["metadata"]["labels"]
            self.assertEqual(("stack", "", "Helm"), tuple(labels[each] for each in given))
            self.assertEqual("svc-core", labels["app.kubernetes.io/part-of"])

    def test_disabled_parts(self) -> None:
        """A monitor is made where it selects something: it goes with the last endpoint."""
        off: Document = {"metricsAddr": "0"}
        monitoring = {"monitoring": {"enabled": True}}
        others = {"agent": off, "spire": {"server": off, "agent": off}}
        statsd = {"agent": off, "spire": {"statsd": {"enabled": True, "address": "a:8125"}}}
        secure = {"metricsSecure": True}
        cases: list[tuple[Document, set[str]]] = [
            ({}, {"svc-core", "svc-proxy"}),
            ({"proxy": off}, {"svc-core"}),
            ({"proxy": {"metricsAddr": ""}}, {"svc-core"}),
            (others, {"svc-core", "svc-proxy"}),
            (statsd, {"svc-core", "svc-proxy"}),
            ({**others, "manager": off}, {"svc-proxy"}),
            ({**statsd, "manager": off}, {"svc-proxy"}),
            ({**others, "manager": secure}, {"svc-manager", "svc-proxy"}),
            ({"manager": {**off, **secure}}, {"svc-core", "svc-proxy"}),
            ({**others, "manager": {**off, **secure}, "proxy": off}, set()),
        ]
        for values, wanted in cases:
            found = Rendered({**values, **monitoring}).of("ServiceMonitor", "PodMonitor")
            self.assertEqual(wanted, {each["metadata"]["name"] for each in found}, values)

    def test_secure_monitor(self) -> None:
        """A manager with HTTPS has a monitor of its own, which alone sends a token; every Service has one monitor."""
        chart = Rendered({"monitoring": {"enabled": True}, "manager": {"metricsSecure": True}})
        found: dict[str, tuple[str | None, bool]] = {}
        for monitor in chart.of("ServiceMonitor"):
            [endpoint] = monitor["spec"]["endpoints"]
            for service in chart.of("Service"):
                if selects(monitor["spec"]["selector"], service["metadata"]["labels"]):
                    name = service["metadata"]["name"]
                    self.assertNotIn(name, found)
                    found[name] = (endpoint.get("scheme"), "bearerTokenFile" in endpoint)
        plain = {f"{name}-metrics": (None, False) for name in ("spire-server", "spire-agent", "svc-agent")}
        self.assertEqual({**plain, "svc-manager-metrics": ("https", True)}, found)


def selects(selector: Document, labels: Document) -> bool:
    """Whether a selector with expressions of the kind NotIn selects an object."""
    refused = [each for each in selector.get("matchExpressions", ()) if labels.get(each["key"]) in each["values"]]
    return not refused and selector["matchLabels"].items() <= labels.items()


def named(container: Document, name: str) -> list[Document]:
    """The ports of a container with a name."""
    return [each for each in container.get("ports", ()) if each["name"] == name]


def cluster(chart: Rendered) -> ClusterSettings:
    """The section ``cluster`` of the manager."""
    return parse(chart.one("ConfigMap", MANAGER_CONFIG)["data"]["cluster.yaml"], ClusterSettings)


def server_conf(chart: Rendered) -> str:
    """The configuration of the SPIRE server."""
    return str(chart.one("ConfigMap", "spire-server")["data"]["server.conf"])


def _sorted(documents: list[Document]) -> list[Document]:
    return sorted(documents, key=lambda each: (each["kind"], each["metadata"]["name"]))


class RenderedAloneTests(SynchronousTestCase):
    """What another program than Helm applies."""

    def test_removal_is_suspended(self) -> None:
        """Without a cluster the Job that removes does nothing; the one that prepares does its work."""
        chart = Rendered()
        suspended = {name: chart.workloads[name]["spec"]["suspend"] for name in ("svc-prepare", "svc-remove")}
        self.assertEqual({"svc-prepare": False, "svc-remove": True}, suspended)


class VariantTests(SynchronousTestCase):
    """What differs from a cluster without a variant, object by object."""

    def changed(self, variant: str, **values: Any) -> dict[str, tuple[Document | None, Document]]:
        """The objects that differ, by kind and name: as they are by default, and with the variant."""
        before, after = (
            {f"{each['kind']}/{each['metadata']['name']}": each for each in Rendered(given).objects}
            for given in (values, {"kubernetesVariant": variant, **values})
        )
        self.assertEqual(set(), set(before) - set(after))
        return {name: (before.get(name), each) for name, each in after.items() if each != before.get(name)}

    def test_eks_and_kind(self) -> None:
        """Nothing differs: what they lack, a StorageClass, is found before an installation."""
        for variant in ("default", "eks", "kind"):
            self.assertEqual({}, self.changed(variant))

    def test_microk8s(self) -> None:
        """The folder of the kubelet is another one, unless one was named."""
        [(before, after)] = self.changed("microk8s").values()
        moved = str(before).replace("/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
        self.assertEqual(moved, str(after))
        self.assertEqual({}, self.changed("microk8s", agent={"kubeletDir": "/data/kubelet"}))

    def test_openshift(self) -> None:
        """Pods run as the user that the cluster chooses, those of each node may do more, and volumes are let in."""
        changed = self.changed("openshift")
        bindings = {name for name, (before, _after) in changed.items() if before is None}
        self.assertEqual({"RoleBinding/svc-agent-privileged", "RoleBinding/spire-agent-privileged"}, bindings)
        for name in bindings:
            self.assertEqual("system:openshift:scc:privileged", changed[name][1]["roleRef"]["name"])
        labels = changed["CSIDriver/csi.svc.internal"][1]["metadata"]["labels"]
        self.assertEqual("restricted", labels["security.openshift.io/csi-ephemeral-volume-profile"])
        chart = Rendered({"kubernetesVariant": "openshift"})
        for name in set(chart.workloads) - set(OUTSIDE):
            self.assertNotIn("65532", str(chart.pod(name)["spec"]["securityContext"]), name)
        config = chart.one("ConfigMap", "svc-manager-config")["data"]["cluster.yaml"]
        self.assertIs(False, parse(config, ClusterSettings).injection.fixedUser)
