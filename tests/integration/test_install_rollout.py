"""What brings a release onto a cluster, with a real API server and the real Helm; no kubelet runs what was applied."""

from __future__ import annotations

import io
import json
import os
from contextlib import ExitStack
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.kubernetes import ToolMissing, folder_of
from svc import strictyaml
from svc.cli.cluster import Choice
from svc.cli.errors import CommandFailed
from svc.cli.globals import Invocation
from svc.cli.install.rollout import Release, Wishes, roll_out
from svc.cli.output import Console
from svc.install.deployment.errors import DeploymentError
from tests.install.test_deployment import packaged, secret
from tests.peers.apiserver import ApiServer

NEEDS_TOOLS = ("kubernetes", "helm")
NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "one", "labels": {"microk8s.io/cluster": "true"}},
}
STATUS: Final = {
    "nodeInfo": {
        **dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"), "x"
        ),
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "v1.36.3",
        "operatingSystem": "linux",
        "architecture": "amd64",
    },
    "conditions": [{"type": "Ready", "status": "True"}],
}
CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "example.org/none",
}
DIGEST: Final = "sha256:" + 64 * "5"


def ready_server(stack: ExitStack) -> ApiServer:
    """Start an API server whose cluster looks ready for an installation."""
    server = stack.enter_context(ApiServer())
    for each in (NODE, CLASS):
        server.kubectl("apply", "-f", "-", data=json.dumps(each))
    patch = json.dumps({"status": STATUS})
    server.kubectl("patch", "node", "one", "--subresource=status", "--type=merge", "-p", patch)
    return server


class RolloutTests(SynchronousTestCase):
    """Installations of the chart of the tree."""

    def setUp(self) -> None:
        """Start a server: a namespace that is deleted stays where no controller runs."""
        try:
            helm = folder_of("helm") / "helm"
        except ToolMissing as missing:
            raise SkipTest(str(missing)) from missing
        self.server = ready_server(self.enterContext(ExitStack()))
        self.environ = {**os.environ, "SVC_HELM": str(helm)}
        self.release = Release("0.2.0", packaged(), "registry.example/svc", {"svc": {"digest": DIGEST}})

    def run_it(self, **wishes: Any) -> tuple[str, str]:
        """Run it with the release; returns both streams."""
        stdout, stderr = io.BytesIO(), io.BytesIO()
        invocation = Invocation(Console(stdout, stderr, {}), self.environ)
        values = wishes.pop("values", ("--set", "trustDomain=a.example"))
        choice = Choice(str(self.server.kubeconfig), "", self.environ)
        roll_out(self.release, Wishes(choice, values, **wishes), invocation)
        return stdout.getvalue().decode(), stderr.getvalue().decode()

    def refused(self, reason: str, **wishes: Any) -> tuple[str, ...]:
        """Run it where it is refused; returns the further lines."""
        try:
            self.run_it(**wishes)
        except CommandFailed as failed:
            self.assertEqual(reason, failed.error.reason, str(failed.error))
            return failed.remarks
        except DeploymentError as error:
            self.assertEqual(reason, error.reason, str(error))
            return (str(error),)
        self.fail("it was not refused")

    def test_dry_run(self) -> None:
        """Manifests go to standard output, with the digests of the release; the plan to standard error."""
        stdout, stderr = self.run_it(dry_run=True)
        self.assertIn(f"registry.example/svc/svc@{DIGEST}", stdout)
        for line in (
            "install: svc-core 0.2.0 in svc-system",
            "make: namespace svc-system, with pod-security.kubernetes.io/enforce=privileged",
            "nodes pull without credentials: no user and password are known to give them",
            "kubernetes variant: microk8s (detected)",
        ):
            self.assertIn(line, stderr)
        self.assertNotIn("namespace/svc-system", self.server.kubectl("get", "namespaces", "-o", "name"))
        objects = [each for each in strictyaml.loads_all(stdout) if isinstance(each, dict)]
        jobs = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Job"}
        self.assertIs(False, jobs["svc-remove"]["spec"]["suspend"], "it runs where Helm uninstalls")

    def test_refused_before_anything_is_written(self) -> None:
        """Values, missing releases and flags are refused, and no namespace is made."""
        for reason, wishes in (
            ("value_unknown", {"values": ("--set", "trustdomain=a.example")}),
            ("value_owned", {"values": ("--set", "images.registry=b")}),
            ("trust_domain_missing", {"values": ()}),
            ("chart_not_rendered", {"values": ("--set", "trustDomain=a.example,manager.replicas=many")}),
            ("release_absent", {"upgrade": True}),
        ):
            with self.subTest(reason=reason):
                self.refused(reason, **wishes)
        self.assertNotIn("namespace/svc-system", self.server.kubectl("get", "namespaces", "-o", "name"))

    def test_cluster_is_not_ready(self) -> None:
        """What the preflight finds stops the installation, with each finding."""
        self.server.kubectl("delete", "storageclass", "local")
        self.addCleanup(self.server.kubectl, "apply", "-f", "-", data=json.dumps(CLASS))
        found = self.refused("cluster_not_ready")
        self.assertIn("no StorageClass is the default one", found[0])

    def test_failure_names_what_is_not_ready(self) -> None:
        """An installation that does not become ready ends with what svc check finds; it can be repeated."""
        self.release = Release("0.2.0", packaged(), "registry.example/svc", {}, ("user", "password"))
        found = self.refused("helm_failed", timeout=2.0)
        self.assertTrue(any("custom-resources" in line for line in found), found)
        made = json.loads(self.server.kubectl("get", "namespace", "svc-system", "-o", "json"))
        self.assertEqual("privileged", made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"])
        kept = self.server.kubectl("get", "secret", "svc-registry", "-n", "svc-system", "-o", "jsonpath={.type}")
        self.assertEqual("kubernetes.io/dockerconfigjson", kept)
        _stdout, stderr = self.run_it(dry_run=True)
        self.assertIn("install: svc-core 0.2.0", stderr)

    def test_release_that_is_there(self) -> None:
        """Its values are kept by an upgrade, those that the chart has not are left out by name."""
        self.server.kubectl("apply", "-f", "-", data=json.dumps(_NAMESPACE))
        there = secret(4, "deployed", "0.1.0", trustDomain="kept.example", old=1)
        labels = {**there["metadata"]["labels"], "owner": "helm", "name": "svc-core"}
        there["metadata"].update(namespace="svc-system", labels=labels)
        body = {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", **there}
        self.server.kubectl("apply", "-f", "-", data=json.dumps(body))
        self.assertIn("0.1.0", self.refused("release_there")[0])
        stdout, stderr = self.run_it(upgrade=True, dry_run=True, values=())
        self.assertIn("kept.example", stdout)
        self.assertIn("upgrade: svc-core 0.2.0 (now 0.1.0)", stderr)
        self.assertIn("the value old of the release that is there is left out", stderr)


_NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "svc-system"}}
