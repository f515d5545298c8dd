"""``svc license install`` and ``status`` with a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.kinds import LICENSE_STATUS_NAME, LICENSE_STATUSES
from svc.kube.times import to_micro_time, to_time
from tests.integration.kube_rig import SERVER
from tests.integration.test_crds import STATUS
from tests.license.material import envelope, text_of
from tests.peers.apiserver import ApiServer


class LicenseCase(SynchronousTestCase):
    """A server, a namespace and a license file."""

    def setUp(self) -> None:
        """Take the server, and make the others."""
        self.server = SERVER.get()
        self.namespace = f"t-{uuid4().hex[:8]}"
        self.server.kubectl("create", "namespace", self.namespace)
        self.path = Path(self.mktemp()).absolute()
        self.path.write_text(text_of(envelope()))

    def svc(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command below ``svc license`` as a process."""
        environment = {"KUBECONFIG": str(kubeconfig or self.server.kubeconfig), "HOME": "/proc/nonexistent"}
        command = [sys.executable, "-m", "svc.cli.main", "license", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def refused(self, reason: str, *words: str, kubeconfig: Path | None = None) -> str:
        """Run a command that is refused with one line, a hint and the cluster; returns them."""
        ran = self.svc(*words, kubeconfig=kubeconfig)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout), ran.stderr)
        lines = ran.stderr.splitlines()
        self.assertIn(f"({reason})", lines[0])
        cluster = "" if reason == "kubeconfig_unusable" else "     the cluster is https://"
        self.assertTrue("".join(lines[2:]).startswith(cluster), ran.stderr)
        self.assertEqual(3 if cluster else 2, len(lines), ran.stderr)
        return ran.stderr


class InstallTests(LicenseCase):
    """``svc license install``."""

    def install(self, *words: str) -> str:
        """Install the license; returns what was printed."""
        ran = self.svc("install", "--namespace", self.namespace, *words, str(self.path))
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn("the manager will not see this license", ran.stderr)
        return ran.stdout

    def secrets(self) -> Any:
        """The Secrets of the namespace."""
        return json.loads(self.server.kubectl("get", "secrets", "-n", self.namespace, "-o", "json"))["items"]

    def test_twice(self) -> None:
        """A Secret is made once; the same license, damaged by e-mail, is no change."""
        installed = self.install()
        self.assertIn(": installed: Secret", installed)
        self.assertTrue(installed.endswith(f", {self.server.url} (context svc)\n"), installed)
        (made,) = self.secrets()
        self.assertEqual("svc.internal/license", made["type"])
        self.assertEqual({"svc.internal/license": "true"}, made["metadata"]["labels"])
        self.path.write_text("".join(f"> {line}\r\n" for line in self.path.read_text().splitlines()))
        self.assertIn("installed already, nothing was changed", self.install())
        self.assertEqual([made], self.secrets())

    def test_dry_run(self) -> None:
        """kubectl takes what a dry run prints; installing it afterwards is no change."""
        printed = self.install("--dry-run")
        self.assertEqual([], self.secrets())
        self.assertIn(" created", self.server.kubectl("apply", "-f", "-", data=printed))
        self.assertIn(" unchanged", self.server.kubectl("apply", "-f", "-", data=printed))
        self.assertIn("installed already", self.install())
        self.assertEqual(1, len(self.secrets()))

    def test_other_secret(self) -> None:
        """A Secret of that name that is something else is left as it is."""
        self.install()
        (made,) = self.secrets()
        name = made["metadata"]["name"]
        self.server.kubectl("label", "secret", "-n", self.namespace, name, "svc.internal/license-")
        before = self.secrets()
        shown = self.refused("license_secret_other", "install", "--namespace", self.namespace, str(self.path))
        self.assertIn(f"kubectl delete secret -n {self.namespace} {name}", shown)
        self.assertEqual(before, self.secrets())

    def test_refused(self) -> None:
        """No permission, no namespace, no credentials, no server and no kubeconfig are told apart."""
        path, stranger = str(self.path), self.server.credentials("license-stranger", "strangers")
        shown = self.refused("kubernetes_forbidden", "install", path, kubeconfig=stranger)
        self.assertIn('"license-stranger" cannot create resource "secrets"', shown)
        shown = self.refused("kubernetes_no_namespace", "install", "--namespace", "nowhere", path)
        self.assertIn("kubectl create namespace nowhere", shown)
        content = json.loads(self.server.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": "e30.e30.e30"}
        ended = self.path.with_suffix(".kubeconfig")
        ended.write_text(json.dumps(content))
        self.refused("kubernetes_credentials", "install", path, kubeconfig=ended)
        absent = ApiServer()
        self.addCleanup(absent.stop)
        shown = self.refused("kubernetes_unreachable", "install", path, kubeconfig=absent.kubeconfig)
        self.assertIn(absent.url, shown)
        self.refused("kubeconfig_unusable", "install", path, kubeconfig=self.path.with_suffix(".none"))


class StatusTests(LicenseCase):
    """``svc license status``."""

    def setUp(self) -> None:
        """Have the custom resource, and the namespace of the manager."""
        super().setUp()
        self.server.apply_crds()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "svc-system"}}
        self.server.kubectl("apply", "-f", "-", data=json.dumps(namespace))
        self.addCleanup(self.server.kubectl, "delete", "svclic", "--all")
        self.addCleanup(self.server.kubectl, "delete", "lease", "-n", "svc-system", "--all")

    def store(self, age: timedelta) -> dict[str, Any]:
        """Write the status as of some time ago; returns it."""
        kind, status = LICENSE_STATUSES, {**STATUS, "observedTime": to_time(datetime.now(UTC) - age)}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": LICENSE_STATUS_NAME}}
        self.server.kubectl("apply", "-f", "-", data=json.dumps(body))
        patch = json.dumps({"status": status})
        self.server.kubectl("patch", "svclic", LICENSE_STATUS_NAME, "--subresource=status", "--type=merge", "-p", patch)
        return status

    def hold(self, age: timedelta, duration: int) -> None:
        """Write the Lease as it was renewed some time ago."""
        renewed = to_micro_time(datetime.now(UTC) - age)
        spec = {"holderIdentity": "pod-1", "renewTime": renewed, "leaseDurationSeconds": duration}
        metadata = {"name": "svc-manager", "namespace": "svc-system"}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        self.server.kubectl("apply", "-f", "-", data=json.dumps(body))

    def test_current(self) -> None:
        """A status is printed; of a user who may read it alone it is not known whether the manager runs."""
        status = self.store(timedelta(seconds=5))
        self.hold(timedelta(), 3600)
        ran = self.svc("status", "-o", "json")
        self.assertEqual((0, ""), (ran.returncode, ran.stderr))
        cluster = {"server": self.server.url, "context": "svc"}
        self.assertEqual({"cluster": cluster, "problem": None, "status": status}, json.loads(ran.stdout))
        self.assertIn("Licensee: ACME GmbH", self.svc("status").stdout)
        reader, rule = self.server.credentials("license-reader", "readers"), "license-reader"
        self.refused("kubernetes_forbidden", "status", kubeconfig=reader)
        self.server.kubectl("create", "clusterrole", rule, "--verb=get", "--resource=svclicensestatuses.svc.internal")
        self.addCleanup(self.server.kubectl, "delete", "clusterrole,clusterrolebinding", rule)
        self.server.kubectl("create", "clusterrolebinding", rule, f"--clusterrole={rule}", "--user=license-reader")
        ran = self.svc("status", kubeconfig=reader)
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn("whether a manager runs is not known", ran.stderr)

    def test_not_current(self) -> None:
        """No object, a stale status and a manager that is away are told apart."""
        self.refused("license_status_missing", "status")
        self.store(timedelta(minutes=4))
        self.hold(timedelta(), 3600)
        ran = self.svc("status")
        self.assertEqual((1, 1), (ran.returncode, ran.stderr.count("4 minutes ago, and")))
        self.assertIn("(license_status_stale)", ran.stderr)
        self.hold(timedelta(minutes=1), 15)
        ran = self.svc("status")
        self.assertEqual((1, 1), (ran.returncode, ran.stderr.count("has expired, it was renewed 1 minute ago")))
        self.assertIn("(manager_away)", ran.stderr)
