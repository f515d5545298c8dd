"""The hooks of the chart on a real API server, with no more rights than the chart gives them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.chart.hooks import custom_resources
from svc.manager.policies.compiled import compiled_map
from tests.chart.rendering import Rendered
from tests.peers.apiserver import ApiServer, ApiServerFailed
from tests.peers.waiting import TOP, Shared, eventually

ACCOUNT: Final = "system:serviceaccount:svc-system:svc-hooks"
CRD: Final = "customresourcedefinitions.apiextensions.k8s.io/svclicensestatuses.svc.internal"
CRDS: Final = tuple(
    f"customresourcedefinitions.apiextensions.k8s.io/{each['metadata']['name']}" for each in custom_resources()
)
SECRETS: Final = ("svc-authority-keys", "svc-federation-keys", "svc-webhook-ca")
PREPARE: Final = ("prepare", "--namespace", "svc-system", "--trust-domain")
VOLUME: Final = {"name": "workload-api", "csi": {"driver": "csi.svc.internal", "readOnly": True}}


def _server(stack: ExitStack) -> ApiServer:
    """A server with the rights of the chart for the account of the hooks."""
    server = stack.enter_context(ApiServer())
    server.kubectl("create", "namespace", "svc-system")
    server.kubectl("create", "namespace", "shop")
    roles = Rendered().of("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    mine = [each for each in roles if each["metadata"]["name"] == "svc-hooks"]
    server.kubectl("apply", "-f", "-", data=json.dumps({"apiVersion": "v1", "kind": "List", "items": mine}))
    return server


SERVER: Final = Shared(_server)


def network_policy(namespace: str, **metadata: Any) -> dict[str, Any]:
    """A policy of the manager."""
    labels = {"app.kubernetes.io/managed-by": "svc-manager"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "svc-proxy-metrics", "namespace": namespace, "labels": labels, **metadata},
        "spec": {"podSelector": {}},
    }


class HooksTests(SynchronousTestCase):
    """Each hook as a process of its own."""

    def setUp(self) -> None:
        """Take the server without what another test left."""
        self.server = SERVER.get().start()
        self.kubeconfig = self.server.credentials(ACCOUNT)
        kubectl = self.server.kubectl
        # While storage is made anew kubectl may miss the event that it waits for: a second attempt finds nothing then.
        with contextlib.suppress(ApiServerFailed):
            kubectl("delete", "crd", "--all", "--wait", "--timeout=30s")
        kubectl("delete", "crd", "--all", "--wait", "--timeout=60s")
        kubectl("delete", "mutatingwebhookconfigurations", "--all")
        kubectl("delete", "secrets,leases,deployments,persistentvolumeclaims", "--all", "-n", "svc-system")
        kubectl("delete", "networkpolicies", "--all", "-A")
        for namespace in ("svc-system", "shop"):
            kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a hook."""
        return subprocess.Popen(
            [sys.executable, "-m", "svc.chart.hooks", *arguments],
            cwd=TOP,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_hook(self, *arguments: str, status: int = 0) -> str:
        """Run a hook to its end; gives what it printed."""
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=120)
        self.assertEqual(status, process.returncode, stderr)
        return stdout + stderr

    def prepare(self, trust_domain: str = "example.org", *, status: int = 0) -> str:
        """Run the hook before an installation or upgrade."""
        return self.run_hook(*PREPARE, trust_domain, status=status)

    def remove(self, *arguments: str, status: int = 0) -> str:
        """Run the hook before the removal."""
        return self.run_hook("remove", *arguments, "--namespace", "svc-system", status=status)

    def json(self, *arguments: str) -> Any:
        """What ``kubectl get`` finds, parsed."""
        return json.loads(self.server.kubectl("get", *arguments, "-o", "json"))

    def names(self, kind: str, *arguments: str) -> list[str]:
        """The objects of a kind."""
        return [each["metadata"]["name"] for each in self.json(kind, *arguments)["items"]]

    def apply(self, *documents: dict[str, Any]) -> None:
        """Make objects."""
        data = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self.server.kubectl("apply", "-f", "-", data=data)

    def pod(self, name: str, namespace: str, *, volume: bool = True) -> None:
        """Make a pod."""
        spec: dict[str, Any] = {"containers": [{"name": "a", "image": "a"}], "volumes": [VOLUME] if volume else []}
        metadata = {"name": name, "namespace": namespace}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def platform(self) -> None:
        """Make what an installation and its manager have made."""
        self.prepare()
        kubectl = self.server.kubectl
        for name in SECRETS:
            kubectl("-n", "svc-system", "create", "secret", "generic", name)
        for name in ("svc-manager", "svc-authority"):
            kubectl("-n", "svc-system", "create", "deployment", name, "--image=a", "--replicas=2")
        metadata: dict[str, Any] = {"name": "svc-manager", "namespace": "svc-system"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        api = "admissionregistration.k8s.io/v1"
        webhook = {"apiVersion": api, "kind": "MutatingWebhookConfiguration", "metadata": {"name": "svc-injection"}}
        connections = {**webhook, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "svc-compartments"}}
        policies = {**connections, "metadata": {"name": "svc-policies"}}
        self.apply(lease, webhook, connections, policies, *map(network_policy, ("shop", "default")))
        self.apply(compiled_map("shop", ""))

    def replicas(self) -> list[int]:
        """How many there should be of each Deployment."""
        return [each["spec"]["replicas"] for each in self.json("-n", "svc-system", "deployments")["items"]]

    def test_rights(self) -> None:
        """The rights name the custom resources that there are."""
        names = [each["metadata"]["name"] for each in custom_resources()]
        rules = Rendered().one("ClusterRole", "svc-hooks")["rules"]
        [found] = [
            each["resourceNames"]
            for each in rules
            if each["apiGroups"] == ["apiextensions.k8s.io"]
            if "resourceNames" in each
        ]
        self.assertEqual(names, found)

    def test_prepared(self) -> None:
        """The custom resources are served when the hook ends."""
        self.assertEqual("".join(f"applied {each}\n" for each in CRDS), self.prepare())
        self.assertEqual([], self.names("svclicensestatuses"))

    def test_prepared_again(self) -> None:
        """A changed custom resource is put right."""
        self.prepare()
        change = json.dumps([{"op": "replace", "path": "/spec/names/shortNames", "value": ["other"]}])
        self.server.kubectl("patch", CRD, "--type=json", "-p", change)
        self.prepare()
        [wanted] = [each for each in custom_resources() if CRD.endswith(each["metadata"]["name"])]
        self.assertEqual(wanted["spec"]["names"]["shortNames"], self.json(CRD)["spec"]["names"]["shortNames"])

    def claim(self, trust_domain: str) -> None:
        """Make the claim of the chart's SPIRE server, as a StatefulSet makes it."""
        [claim] = Rendered({"trustDomain": trust_domain}).one("StatefulSet", "spire-server")["spec"][
            "volumeClaimTemplates"
        ]
        metadata = {**claim["metadata"], "name": "data-spire-server-0", "namespace": "svc-system"}
        self.apply({**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})
        # Nobody removes it here when the claim is deleted.
        unprotected = json.dumps({"metadata": {"finalizers": None}})
        kubectl = self.server.kubectl
        kubectl("-n", "svc-system", "patch", "pvc", "data-spire-server-0", "--type=merge", "-p", unprotected)

    def test_same_trust_domain(self) -> None:
        """An upgrade, or another installation on the data of the former one, keeps the trust domain."""
        self.claim("example.org")
        self.assertEqual("".join(f"applied {each}\n" for each in CRDS), self.prepare("example.org"))

    def test_other_trust_domain(self) -> None:
        """Data of another trust domain is named, with both, and nothing is changed; the Job is not repeated."""
        self.claim("example.org")
        said = self.prepare("example.net", status=2)
        words = "is of the trust domain example.org and cannot become one of example.net"
        self.assertIn(f"svc: persistentvolumeclaims/data-spire-server-0 {words}\n", said)
        self.assertIn("keep trustDomain, or uninstall with purge: true", said)
        self.assertEqual([], self.names("crd"))

    def test_refused(self) -> None:
        """While pods of others have the volume nothing is changed; twenty of them are named."""
        self.platform()
        for number in range(20):
            self.pod(f"web-{number:02}", "shop")
        self.pod("without", "shop", volume=False)
        said = self.remove(status=1)
        names = ", ".join(f"shop/web-{number:02}" for number in range(20))
        self.assertIn(f"svc: 20 pod(s) have a volume of the platform and could not end without it: {names}\n", said)
        self.pod("web-20", "shop")
        self.assertIn(
            f"21 pod(s) have a volume of the platform and could not end without it: {names} and 1 more\n",
            self.remove(status=1),
        )
        self.assertEqual([2, 2], self.replicas())
        self.assertEqual(["svc-injection"], self.names("mutatingwebhookconfigurations"))

    def test_kept(self) -> None:
        """What the manager has made is removed; keys and custom resources stay, and are named."""
        self.platform()
        # Another name, and without the label: both are of users.
        self.apply(network_policy("shop", name="theirs"), network_policy("svc-system", labels={}))
        said = self.remove()
        policies = self.json("networkpolicies", "-A")["items"]
        maps = [each["metadata"]["name"] for each in self.json("configmaps", "-A")["items"]]
        self.assertNotIn("svc-policies-compiled", maps)
        left = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in policies]
        self.assertEqual([("shop", "theirs"), ("svc-system", "svc-proxy-metrics")], left)
        self.assertEqual([0, 0], self.replicas())
        self.assertEqual([], self.names("mutatingwebhookconfigurations,validatingwebhookconfigurations"))
        self.assertEqual([], self.names("leases", "-n", "svc-system"))
        self.assertEqual(sorted(SECRETS), sorted(self.names("secrets", "-n", "svc-system")))
        for each in CRDS:
            self.assertIn(f"kept {each}\n", said)
        for name in SECRETS:
            self.assertIn(f"kept secrets/{name}\n", said)
        self.assertIn("kept persistentvolumeclaims/data-spire-server-0\n", said)

    def test_purged(self) -> None:
        """With purge, keys and custom resources go too; twice is no error."""
        self.platform()
        said = self.remove("--purge")
        self.assertNotIn("kept", said)
        self.assertEqual([], self.names("secrets", "-n", "svc-system"))
        eventually(lambda: not self.names("crd"), what="the end of the custom resources")
        self.assertEqual("", self.remove("--purge"))

    def test_own_pods_end_first(self) -> None:
        """The configuration is removed when no pod of the platform has the volume any more."""
        self.platform()
        self.pod("svc-manager-1", "svc-system")
        process = self.start("remove", "--namespace", "svc-system")
        eventually(lambda: self.replicas() == [0, 0], what="the end of the Deployments")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.communicate(timeout=2)
        self.assertEqual(["svc-injection"], self.names("mutatingwebhookconfigurations"))
        self.server.kubectl("delete", "pod", "svc-manager-1", "-n", "svc-system", "--grace-period=0", "--force")
        _stdout, stderr = process.communicate(timeout=60)
        self.assertEqual((0, ""), (process.returncode, stderr))

    def test_ended_pods(self) -> None:
        """A pod of a Job that has ended has no volume any more."""
        self.platform()
        self.pod("job-1", "shop")
        status = json.dumps({"status": {"phase": "Succeeded"}})
        self.server.kubectl("patch", "pod", "job-1", "-n", "shop", "--subresource=status", "-p", status)
        self.remove()
        self.assertEqual([0, 0], self.replicas())
