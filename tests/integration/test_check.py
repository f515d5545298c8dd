"""``svc check`` with a real API server, and on a machine with a real authority and proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.data import FOLDER
from tests.integration.kube_rig import SERVER
from tests.peers.apiserver import ApiServer
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, free_port


def svc_check(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, without a kubeconfig of its own."""
    environ = {**environment(), "HOME": "/proc/nonexistent", **variables}
    command = [sys.executable, "-m", "svc.cli.main", "check", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE)


def found(ran: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """Return the codes of each check that was made."""
    return {each["name"]: [f["code"] for f in each["findings"]] for each in json.loads(ran.stdout)["checks"]}


class ApiServerCase(SynchronousTestCase):
    """A server that others use too."""

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()

    def check(self, *words: str, status: int = 1, kubeconfig: Path | None = None) -> dict[str, list[str]]:
        """Run the command with JSON, which ends with a status; returns what it found."""
        ran = svc_check("-o", "json", "-K", str(kubeconfig or self.server.kubeconfig), *words)
        self.assertEqual((status, ""), (ran.returncode, ran.stderr), ran.stdout)
        return found(ran)

    def make(self, document: dict[str, Any], status: dict[str, Any] | None = None) -> None:
        """Make an object, with a status, until the test ends."""
        self.server.kubectl("apply", "-f", "-", data=json.dumps(document))
        metadata = document["metadata"]
        where = ["-n", metadata["namespace"]] if "namespace" in metadata else []
        named = [document["kind"], metadata["name"], *where]
        self.addCleanup(lambda: self.server.kubectl("delete", *named, "--wait=false", "--grace-period=0", "--force"))
        if status is not None:
            patch = json.dumps({"status": status})
            self.server.kubectl("patch", *named, "--subresource=status", "--type=merge", "-p", patch)


def _node(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    info = {"operatingSystem": "linux", "architecture": "amd64", "kubeletVersion": "v1.36.3"}
    keys = (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeProxyVersion",
    )
    ready = {"type": "Ready", "status": "True", "reason": "Some", "message": ""}
    status = {"nodeInfo": {**dict.fromkeys(keys, ""), **info}, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, status


class PreflightTests(ApiServerCase):
    """``svc check --pre``."""

    def test_ready(self) -> None:
        """An empty cluster lacks nodes and a StorageClass; with them it is ready, and all that is read can be."""
        before = self.check("--pre")
        self.assertEqual([["none"], ["no_default"]], [before["nodes"], before["storage-class"]])
        for name in ("api-server", "kubernetes-version", "clock", "rights", "release"):
            self.assertEqual([], before[name], name)
        self.make(*_node("check-one"))
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        storage = {
            "kind": "StorageClass",
            "metadata": {"name": "check", "annotations": default},
            "provisioner": "no/one",
        }
        self.make({"apiVersion": "storage.k8s.io/v1", **storage})
        after = self.check("--pre", status=0)
        self.assertEqual([[], []], [after["nodes"], after["storage-class"]])

    def test_rights(self) -> None:
        """A user without rights may do none of it, and what cannot be read fails too."""
        stranger = self.server.credentials("check-stranger", "strangers")
        seen = self.check("--pre", kubeconfig=stranger)
        self.assertEqual({"missing"}, set(seen["rights"]))
        self.assertEqual(["kubernetes_forbidden"], seen["nodes"])
        self.assertEqual([], seen["api-server"])

    def test_unreachable(self) -> None:
        """Where nothing answers, that is the one finding; text has its remedy and the cluster."""
        absent = ApiServer()
        self.addCleanup(absent.stop)
        ran = svc_check("--pre", "-K", str(absent.kubeconfig))
        self.assertEqual((1, ""), (ran.returncode, ran.stderr), ran.stdout)
        lines = ran.stdout.splitlines()
        self.assertEqual(f"cluster {absent.url} (context svc)", lines[0])
        self.assertTrue(lines[2].startswith("fail api-server: "), ran.stdout)
        self.assertIn("(kubernetes_unreachable)", lines[3])
        self.assertEqual("1 check: 0 ok, 0 with warnings, 1 failed; 8 were not made", lines[-1])


class ClusterTests(ApiServerCase):
    """``svc check`` of a cluster."""

    def test_nothing_installed(self) -> None:
        """Without an installation its parts are missing; an enabled namespace has a pod without proxy."""
        for path in sorted((FOLDER / "crds").glob("*.yaml")):
            self.server.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
        self.server.kubectl("wait", "--for=condition=Established", "crd/svcpolicies.svc.internal", "--timeout=60s")
        labels = {"svc.internal/injection": "enabled"}
        namespace = {"kind": "Namespace", "metadata": {"name": "check-shop", "labels": labels}}
        self.make({"apiVersion": "v1", **namespace})
        pod = {"kind": "Pod", "metadata": {"name": "old", "namespace": "check-shop"}}
        spec = {"containers": [{"name": "web", "image": "web"}], "automountServiceAccountToken": False}
        self.server.kubectl("create", "serviceaccount", "default", "-n", "check-shop")
        self.make({"apiVersion": "v1", **pod, "spec": spec})
        seen = self.check()
        for name in ("svc-manager", "svc-authority", "spire-server", "spire-agent", "svc-agent", "csi-driver"):
            self.assertEqual(["missing"], seen[name], name)
        self.assertEqual([], seen["custom-resources"])
        self.assertIn("no_proxy", seen["pods-without-proxy"])
        self.assertIn("missing", seen["webhook"])


class LocalTests(SynchronousTestCase):
    """``svc check`` on a machine without Kubernetes."""

    def setUp(self) -> None:
        """Start an authority and a proxy."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        self.proxy = stack.enter_context(RunningProxy(self.authority, "127.0.0.1:1"))
        self.words = ["--spiffe-socket-path", self.authority.address]
        for each in (self.authority, self.proxy):
            self.words += ["--config", str(each.config_path)]

    def test_well_then_not(self) -> None:
        """All is well by JSON and text; then the roots, a process and the authority go, one after the other."""
        ran = svc_check(*self.words)
        self.assertEqual((0, ""), (ran.returncode, ran.stderr), ran.stdout)
        lines = ran.stdout.splitlines()
        self.assertEqual(f"this machine, with the Workload API {self.authority.address}", lines[0])
        self.assertEqual("7 checks: 7 ok, 0 with warnings, 0 failed", lines[-1])
        self.assertEqual({()}, {tuple(codes) for codes in found(svc_check("-o", "json", *self.words)).values()})
        other = self.authority.folder / "none.json"
        seen = found(svc_check("-o", "json", "--pq-bundle", str(other), *self.words))
        self.assertEqual(["pq_bundle_missing"], seen["pq-bundle"])
        self.assertEqual(
            seen["pq-bundle"], found(svc_check("-o", "json", *self.words, SVC_PQ_BUNDLE=str(other)))["pq-bundle"]
        )
        self.assertEqual(
            ["no_status"], found(svc_check("-o", "json", *self.words, f"127.0.0.1:{free_port()}"))["processes"]
        )
        self.authority.kill()
        ran = svc_check("-o", "json", *self.words)
        self.assertEqual(1, ran.returncode, ran.stderr)
        seen = found(ran)
        self.assertEqual([["workload_api_unavailable"], ["none"]], [seen["workload-api"], seen["svid"]])
        self.assertIn("no_status", seen["processes"])

    def test_no_kubeconfig(self) -> None:
        """Without a kubeconfig this machine is checked, and without a socket that is what is wrong."""
        ran = svc_check("-o", "json", SPIFFE_ENDPOINT_SOCKET=f"unix://{self.authority.folder}/none.sock")
        self.assertEqual((1, ""), (ran.returncode, ran.stderr))
        self.assertEqual("machine", json.loads(ran.stdout)["target"]["kind"])
        self.assertEqual(["workload_api_unavailable"], found(ran)["workload-api"])
