"""
The chart on a real cluster: installed, used, upgraded, removed with and without ``purge``, by the commands of its page.

One cluster for all tests, in the order of their names.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clusters.kubernetes import folder_of
from svc import strictyaml
from svc.manager.networkpolicies.policies import policy_spec
from tests.e2e.faults import Faults
from tests.e2e.platform import Platform
from tests.peers.pages import Command, page, steps
from tests.peers.waiting import TOP, Shared, eventually

NEEDS_TOOLS = ("helm",)
WEB = "spiffe://prod.example.org/ns/shop/sa/web"
_COMMANDS = [each.text for each in steps(page("chart.md")) if isinstance(each, Command)]
#: What a reader of docs/chart.md runs; the images are imported here, not pushed, and no Prometheus Operator runs.
(_PUSH, CREATE, PRIVILEGED, INSTALL, ENABLE, UPGRADE, _OPERATOR) = _COMMANDS[:7]
#: Those between them are for what was rendered without Helm.
(MONITORING, DISABLE, RESTART, UNINSTALL) = _COMMANDS[-4:]
KEPT = {
    *(
        f"customresourcedefinitions.apiextensions.k8s.io/{name}.svc.internal"
        for name in (
            "spireinstances",
            "svcclusterpolicies",
            "svcclusters",
            "svcforeignclusters",
            "svclicensestatuses",
            "svcpolicies",
        )
    ),
    "persistentvolumeclaims/data-spire-server-0",
    "secrets/svc-authority-keys",
    "secrets/svc-federation-keys",
    "secrets/svc-webhook-ca",
}
#: An ordinary application and a client, in a namespace that is enabled and of the profile restricted.
SHOP = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: client, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: svc-policies, namespace: shop}
data:
  web.yaml: |
    apiVersion: svc.internal/v1alpha1
    kind: SvcClusterPolicy
    metadata: {name: web}
    spec: {authorization: {rules: [{from: [{serviceAccounts: [client]}]}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 8443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {svc.internal/ports: "8443:8080/http"}}
    spec:
      serviceAccountName: web
      terminationGracePeriodSeconds: 10
      securityContext:
        {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: web
          image: svc.internal/svc:0.2.0
          workingDir: /etc
          command: [python3, -m, http.server, --bind, 127.0.0.1, "8080"]
          securityContext:
            {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: shop, annotations: {svc.internal/inject: "false"}}
spec:
  serviceAccountName: client
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: client
      image: svc.internal/svc:0.2.0
      command: [sleep, infinity]
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: workload-api, mountPath: /spiffe-workload-api, readOnly: true}]
  volumes: [{name: workload-api, csi: {driver: csi.svc.internal, readOnly: true}}]
"""


class Story:
    """A cluster, what there was on it, and Helm."""

    def __init__(self, stack: ExitStack) -> None:
        self.platform = Platform(stack, "chart")
        self.platform.shell.run(f"PATH={folder_of('helm')}:{Path(sys.executable).parent}:$PATH")
        for command in (CREATE, PRIVILEGED):
            self.run(command)
        # The chart makes its own.
        self.platform.kubectl("delete", "customresourcedefinitions", "--all", "--wait")
        self.platform.kubectl("create", "namespace", "shop")
        self.before = self.objects()
        self.keys_before: dict[str, str] = {}
        self.installed = self.run(INSTALL)
        self.run(ENABLE)
        self.platform.kubectl("apply", "-f", "-", data=SHOP)
        self.platform.kubectl("-n", "shop", "rollout", "status", "deployment/web", "--timeout=120s")
        self.platform.kubectl("-n", "shop", "wait", "pod/client", "--for=condition=Ready", "--timeout=60s")

    def run(self, command: str, *values: str, fails: bool = False) -> str:
        """Run a command of the page, with the images of this checkout and further values; gives what it printed."""
        command = command.replace("registry.example.org/svc", "svc.internal")
        if command.startswith("helm"):
            command = " ".join((command, "--timeout 150s", *(f"--set {each}" for each in values)))
        status, output = self.platform.shell.run(command)
        if (status != 0) != fails:
            raise AssertionError(f"{command}: {output}\n{self.state()}")
        return output

    def objects(self) -> set[str]:
        """All objects by kind, namespace and name; without events, the Leases of nodes, and what the shop has."""
        listed = self.platform.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = sorted(set(listed) - {"events", "events.events.k8s.io"})
        found = self.platform.kubectl(
            *("get", ",".join(kinds), "-A", "--ignore-not-found", "-o"),
            "jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{'\\n'}{end}",
        )
        return {each for each in found.splitlines() if not re.match("Lease/kube-node-lease/|[^/]+/shop/", each)}

    def policies(self, namespace: str) -> dict[str, Any]:
        """The NetworkPolicies of a namespace, what they say by name."""
        found = self.platform.json("-n", namespace, "networkpolicies")["items"]
        return {each["metadata"]["name"]: each["spec"] for each in found}

    def until_shop_has(self, policies: dict[str, Any]) -> None:
        """Wait until the shop has these NetworkPolicies."""
        eventually(lambda: self.policies("shop") == policies, what=f"{sorted(policies)} in the shop")

    def ready(self) -> bool:
        """Whether each pod of the platform is; those of hooks that have failed stay for a look at their logs."""
        pods = self.platform.json("-n", "svc-system", "pods", "-l", "!job-name")["items"]
        states = [each["ready"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
        return len(pods) == 6 and all(states)

    def keys(self) -> dict[str, str]:
        """The private keys of issuer and webhook."""
        names = ("svc-authority-keys", "svc-webhook-ca")
        return {name: str(self.platform.json("-n", "svc-system", "secret", name)["data"]) for name in names}

    def state(self) -> str:
        """What an engineer would look at."""
        pods = self.platform.kubectl("get", "pods", "-A", "-o", "wide")
        return pods + self.platform.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")[-3000:]


STORY = Shared(Story)


class ChartTests(Faults):
    """From an empty cluster to an empty cluster."""

    def setUp(self) -> None:
        """Install it once."""
        self.story: Story = STORY.get()
        self.platform = self.story.platform
        self.domain = "prod.example.org"
        self.kubectl = self.platform.kubectl

    def test_1_installed(self) -> None:
        """All pods are ready; the hook said what it made, and account and rights of the hook are gone."""
        self.assertTrue(self.story.ready(), self.story.state())
        self.assertIn("applied customresourcedefinitions", self.story.installed)
        ended = ("/svc-hooks", "/svc-prepare")
        self.assertEqual([], [each for each in self.story.objects() if each.endswith(ended)])

    def test_1_restricted(self) -> None:
        """If the namespace were of the profile restricted, the pods of the two DaemonSets alone would violate it."""
        label = (
            "label",
            "namespace",
            "svc-system",
            "pod-security.kubernetes.io/enforce=restricted",
            "--dry-run=server",
            "--overwrite",
        )
        command = self.platform.cluster.kubectl_command(*label)
        warned = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        found = set(re.findall(r"^Warning: ([\w-]+)-\w+(?: \(.*\))?: ", warned, re.MULTILINE))
        self.assertEqual({"spire-agent", "svc-agent"}, found, warned)

    def test_2_verified(self) -> None:
        """An ordinary Deployment got the proxy; a client verifies statement and receipt of a request to it."""
        [pod] = self.platform.json("-n", "shop", "pods", "-l", "app=web")["items"]
        self.assertEqual("true", pod["metadata"]["labels"]["svc.internal/proxy-injected"])
        command = ("svc", "curl", "-n", "signRequest", "--print-receipt", "--expect-id", WEB, "https://web.shop:8443/")
        said = self.kubectl("-n", "shop", "exec", "client", "--", "sh", "-c", f"{' '.join(command)} 2>&1")
        self.assertIn("hostname", said)
        self.assertIn("Signatures: ES256 valid, ML-DSA-65 valid", said)

    def test_3_metrics(self) -> None:
        """Each endpoint that the labels of Services and pods lead to answers with metrics of its part."""
        found = {}
        for part in ("spire-server", "spire-agent", "svc-manager", "svc-agent"):
            [service] = [
                each
                for each in self.platform.json(
                    "-n", "svc-system", "services", "-l", "svc.internal/prometheus-scrape=true"
                )["items"]
                if each["spec"]["selector"]["app"] == part
            ]
            [port] = [each["port"] for each in service["spec"]["ports"] if each["name"] == "prometheus"]
            found[part] = self.metrics(self.address("svc-system", f"app={part}"), port)
        proxy = self.address("shop", "svc.internal/proxy-injected=true")
        self.assertIn("svc_proxy_connections_total", self.metrics(proxy, 9092))
        self.assertIn("svc_manager_webhook_requests_total", found["svc-manager"])
        self.assertIn("svc_agent_workload_api_connected 1.0", found["svc-agent"])
        for part in ("server", "agent"):
            self.assertIn(f"spire_{part}", found[f"spire-{part}"])

    def test_3_network_policies(self) -> None:
        """The manager has closed the metrics of proxies in the shop to all but the monitoring."""
        self.story.until_shop_has({"svc-proxy-metrics": policy_spec(9092, "monitoring")})

    def address(self, namespace: str, label: str) -> str:
        """The address of a pod."""
        return str(self.platform.json("-n", namespace, "pods", "-l", label)["items"][0]["status"]["podIP"])

    def metrics(self, address: str, port: int) -> str:
        """What is exposed there."""
        with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=30) as answer:
            return str(answer.read(), "utf-8")

    def test_3_no_failed_request(self) -> None:
        """
        No request fails while SVIDs are renewed, leader and issuer are replaced, and SPIRE loses all entries.

        The entries of service accounts are the manager's, which makes them again.
        """
        # Longer than the issuer is away on a busy machine: post-quantum leaves live as long.
        self.story.run(UPGRADE, "spire.x509SvidTtl=45s")
        injected = (TOP / "docs" / "examples" / "kubernetes" / "injected.yaml").read_text()
        self.kubectl("apply", "-f", "-", data=injected.replace("spiffe://example.org/", f"spiffe://{self.domain}/"))
        self.rolled_out("mall", "deployment/web")
        self.kubectl("-n", "mall", "wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
        self.under_load(
            *("mall", self.agent_deleted, self.server_killed, self.driver_restarted),
            *(self.leader_killed, self.issuer_deleted, self.entries_lost, self.pod_deleted, self.rolled),
        )

    def test_3_spire_lost(self) -> None:
        """A SPIRE server that has lost all its data has another root; all is verified again without hands."""
        for each in self.spire_data().iterdir():
            each.unlink()
        before = self.certificates("mall")
        self.server_killed("svc-system")
        eventually(lambda: not before & self.certificates("mall"), 120, what="SVIDs under the new root")
        web = f"spiffe://{self.domain}/ns/mall/sa/web"
        curl = f"kubectl -n mall exec client -- svc curl -s -n signRequest https://web.mall:8443/ --expect-id {web}"
        eventually(lambda: self.platform.shell.run(curl)[0] == 0, what="a verified request")
        self.kubectl("delete", "namespace", "mall", "--wait")

    def test_4_upgraded(self) -> None:
        """An upgrade takes other values over, and keeps the keys; another one keeps the values."""
        keys = self.story.keys()
        self.story.run(MONITORING, "manager.replicas=1", "proxy.notarization=workload")
        self.assertEqual(keys, self.story.keys())
        self.assertEqual("workload", self.cluster_settings()["injection"]["notarization"])
        self.assertEqual(1, self.platform.json("-n", "svc-system", "deployment", "svc-manager")["spec"]["replicas"])
        self.assertIn("'observability'", str(self.story.policies("svc-system")["svc-core-metrics"]))
        self.story.until_shop_has({"svc-proxy-metrics": policy_spec(9092, "observability")})
        self.story.run(UPGRADE, "manager.replicas=2")
        self.assertEqual("workload", self.cluster_settings()["injection"]["notarization"])

    def cluster_settings(self) -> Any:
        """The section ``cluster`` of the manager."""
        found = self.platform.json("-n", "svc-system", "configmap", "svc-manager-config")
        return strictyaml.loads(found["data"]["cluster.yaml"])

    def test_4_trust_domain(self) -> None:
        """An upgrade to another trust domain is refused with both names, and changes nothing."""
        said = self.story.run(UPGRADE, "trustDomain=prod.example.net", fails=True)
        self.assertIn("is of the trust domain prod.example.org and cannot become one of prod.example.net", said)
        self.assertEqual("prod.example.org", self.cluster_settings()["trustDomain"])
        self.assertTrue(self.story.ready(), self.story.state())
        self.test_2_verified()
        self.story.run(UPGRADE)

    def test_5_refused(self) -> None:
        """While pods have a volume of the platform it stays as it is, and they are named."""
        said = self.story.run(UNINSTALL, fails=True)
        [web] = self.kubectl("-n", "shop", "get", "pods", "-l", "app=web", "-o", "name").split()
        self.assertIn("2 pod(s) have a volume of the platform", said)
        self.assertIn(f"shop/client, shop/{web.removeprefix('pod/')}", said)
        self.assertIn("svc.internal/injection", said)
        self.assertTrue(self.story.ready(), self.story.state())
        self.test_2_verified()

    def test_6_kept(self) -> None:
        """Without purge the keys, the volume and the custom resources stay, and are named; all else is gone."""
        # The address of a Service is an object of the cluster.
        self.kubectl("-n", "shop", "delete", "pod/client", "service/web", "--wait=false")
        for command in (DISABLE, RESTART):
            self.story.run(command)
        self.kubectl("-n", "shop", "wait", "pod", "--for=delete", "-l", "svc.internal/proxy-injected=true")
        self.story.until_shop_has({})
        self.story.keys_before = self.story.keys()
        said = self.story.run(UNINSTALL)
        self.assertEqual(KEPT, set(re.findall(r"^kept (\S+)$", said, re.MULTILINE)))
        left = {
            "APIService//v1alpha1.svc.internal",
            "CustomResourceDefinition//spireinstances.svc.internal",
            "CustomResourceDefinition//svcclusterpolicies.svc.internal",
            "CustomResourceDefinition//svcclusters.svc.internal",
            "CustomResourceDefinition//svcforeignclusters.svc.internal",
            "CustomResourceDefinition//svclicensestatuses.svc.internal",
            "CustomResourceDefinition//svcpolicies.svc.internal",
            "PersistentVolumeClaim/svc-system/data-spire-server-0",
            "Secret/svc-system/svc-authority-keys",
            "Secret/svc-system/svc-federation-keys",
            "SpireInstance/svc-system/spire",
            "SvcCluster//cluster",
            "Secret/svc-system/svc-webhook-ca",
            "SvcLicenseStatus//license",
        }
        self.until_left(left)

    def test_7_purged(self) -> None:
        """Another installation goes on with the same keys; with purge its removal leaves nothing, nor on the node."""
        self.story.run(INSTALL, "purge=true")
        self.assertEqual(self.story.keys_before, self.story.keys())
        self.story.run(ENABLE)
        self.story.until_shop_has({"svc-proxy-metrics": policy_spec(9092, "monitoring")})
        self.story.run(UNINSTALL)
        self.until_left(set())
        self.assertEqual({}, self.story.policies("shop"))
        mounts = self.platform.cluster.node_exec("cat", "/proc/mounts")
        self.assertNotIn("kubernetes.io~csi", mounts)
        registry = self.platform.cluster.node_exec("ls", "/var/lib/kubelet/plugins_registry")
        self.assertEqual("", registry.strip())

    def until_left(self, wanted: set[str]) -> None:
        """Wait until nothing but this is there that was not there before."""
        found: set[str] = set()

        def reached() -> bool:
            nonlocal found
            found = self.story.objects() - self.story.before
            return found == wanted

        try:
            eventually(reached, what="the removal")
        except Exception as error:
            raise AssertionError(f"left: {sorted(found - wanted)}, missing: {sorted(wanted - found)}") from error
        self.assertEqual(set(), self.story.before - self.story.objects())
