"""Runs of the real Helm that ask nothing of a cluster, and of programs that are none."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.kubernetes import ToolMissing, folder_of
from svc.data import FOLDER
from svc.install.deployment.errors import DeploymentError
from svc.install.deployment.helm import Helm, find_helm

NEEDS_TOOLS = ("helm",)
CHART: Final = str(FOLDER / "chart")


class HelmTests(SynchronousTestCase):
    """Values and manifests as the real Helm makes them."""

    def setUp(self) -> None:
        """Find Helm."""
        try:
            program = str(folder_of("helm") / "helm")
        except ToolMissing as missing:
            raise SkipTest(str(missing)) from missing
        self.folder = Path(self.enterContext(TemporaryDirectory()))
        self.helm = Helm(find_helm({"SVC_HELM": program}), {"HELM_NAMESPACE": "elsewhere", **os.environ})

    def test_values(self) -> None:
        """The grammar is that of Helm; of several flags --set counts more than a file, and null stays."""
        file = self.folder / "values.yaml"
        file.write_text("a: {b: 1, c: 2}\nx: on\n")
        flags = ["--values", str(file), "--set", r"a.b=3,l={x,y},m[1]=z,n=null,o=p\,q", "--set-string", "v=1"]
        wanted = {"a": {"b": 3, "c": 2}, "x": True, "l": ["x", "y"], "m": [None, "z"], "n": None, "o": "p,q"}
        self.assertEqual({**wanted, "v": "1"}, self.helm.values(flags))
        self.assertEqual({}, self.helm.values([]))

    def test_refused_values(self) -> None:
        """What Helm does not read is refused with its sentence."""
        for flags in (["--set", "a"], ["--set", "a[=1"], ["--values", str(self.folder / "missing")]):
            error = self.assertRaises(DeploymentError, self.helm.values, flags)
            self.assertEqual("values_refused", error.reason)

    def _file(self, values: dict[str, Any]) -> list[str]:
        (self.folder / "own.json").write_text(json.dumps(values))
        return [str(self.folder / "own.json")]

    def test_rendered_chart(self) -> None:
        """The chart is rendered with hooks, for its namespace whatever the environment says."""
        files = self._file({"trustDomain": "a.example", "images": {"registry": "registry.example/svc"}})
        text = self.helm.rendered(CHART, files, upgrade=False, cluster=False)
        self.assertIn("registry.example/svc/svc-manager", text)
        self.assertIn("kind: Job", text)
        self.assertNotIn("elsewhere", text)

    def test_schema_refuses(self) -> None:
        """A value of another type is refused with its path."""
        files = self._file({"trustDomain": "a.example", "images": {"registry": "r"}, "manager": {"replicas": "two"}})
        error = self.assertRaises(DeploymentError, self.helm.rendered, CHART, files, upgrade=False, cluster=False)
        self.assertEqual("chart_not_rendered", error.reason)
        self.assertIn("replicas", str(error))


class ProgramTests(SynchronousTestCase):
    """Programs in the place of Helm."""

    def _program(self, body: str) -> str:
        path = Path(self.enterContext(TemporaryDirectory())) / "helm"
        version = 'if sys.argv[1] == "version":\n    print("v4.1.0")\n    sys.exit()\n'
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{version}{body}\n")
        path.chmod(0o755)
        return str(path)

    def test_no_helm(self) -> None:
        """The error names both places where one is looked for; one of a package comes last."""
        error = self.assertRaises(DeploymentError, find_helm, {"PATH": "/nonexistent"})
        self.assertIn("SVC_HELM", error.hint)
        self.assertEqual("/tools/helm", find_helm({"PATH": "/nonexistent"}, "/tools/helm"))

    def test_other_programs(self) -> None:
        """A program that is missing, fails or is another one is refused with its name."""
        for program in ("/nonexistent/helm", "/bin/false", "/bin/echo"):
            error = self.assertRaises(DeploymentError, Helm, program, {})
            self.assertEqual("helm_unusable", error.reason)
            self.assertIn(program, str(error))

    def test_flags(self) -> None:
        """Cluster, namespace and values are passed on, and the revision of a rollback."""
        helm = Helm(self._program("sys.exit(' '.join([*sys.argv[1:], os.environ['KUBECONFIG']]))"), {}, "/k", "prod")
        error = self.assertRaises(DeploymentError, helm.deploy, "c.tgz", ["v"], 30.0)
        for part in ("--kube-context prod", "--namespace svc-system", "--values v", "--timeout 30s", "/k"):
            self.assertIn(part, str(error))
        error = self.assertRaises(DeploymentError, helm.roll_back, 7, 30.0)
        self.assertIn("rollback svc-core 7 --namespace svc-system --kube-context prod", str(error))

    def test_error_behind_output_of_hooks(self) -> None:
        """What hooks wrote before its error is left out."""
        body = 'sys.exit("applied a\\n" * 300 + "Error: UPGRADE FAILED: context deadline exceeded")'
        error = self.assertRaises(DeploymentError, Helm(self._program(body), {}).deploy, "c", [], 30.0)
        self.assertEqual("helm upgrade failed: UPGRADE FAILED: context deadline exceeded", str(error))

    def test_rollback_is_not_interrupted(self) -> None:
        """Helm gets no interrupt while it rolls back; the interrupt counts afterwards."""
        body = """
signal.signal(signal.SIGINT, lambda *_: sys.exit("it was interrupted"))
os.kill(os.getppid(), signal.SIGINT)
time.sleep(0.5)
sys.exit(0)
"""
        error = self.assertRaises(DeploymentError, Helm(self._program(body), {}).roll_back, 7, 30.0)
        self.assertEqual("helm_interrupted", error.reason)
        self.assertNotIn("it was interrupted", str(error))

    def test_interrupt_is_passed_on_once(self) -> None:
        """Helm gets one interrupt and is waited for; the error says that it was interrupted, and what it said."""
        body = """
def ended(*_):
    time.sleep(0.2)
    sys.exit("release svc-core failed: context canceled")
signal.signal(signal.SIGINT, ended)
os.kill(os.getppid(), signal.SIGINT)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
"""
        self.assertIs(threading.current_thread(), threading.main_thread())
        before = signal.getsignal(signal.SIGINT)
        error = self.assertRaises(DeploymentError, Helm(self._program(body), {}).deploy, "c", [], 30.0)
        self.assertEqual("helm_interrupted", error.reason)
        self.assertIn("context canceled", str(error))
        self.assertIs(before, signal.getsignal(signal.SIGINT))
