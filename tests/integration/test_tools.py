"""``bin/tools``, as far as it builds nothing, and the programs that it has built."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from clusters.kubernetes import TOOLS
from tests.peers.apiserver import programs
from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import TOP

NEEDS_TOOLS = ("kubernetes", "containerd", "coredns", "helm")


class ToolsTests(SynchronousTestCase):
    """The command line and the cache."""

    def tools(self, *arguments: str, **settings: Any) -> tuple[int, str, list[str]]:
        """Run it."""
        ran = run([TOP / "bin" / "tools", *arguments], **settings)
        return ran.returncode, ran.stdout.decode().strip(), ran.stderr.decode().splitlines()

    def test_missing(self) -> None:
        """
        What is not built is reported in one line and a hint, without building it; without a compiler there is none.
        """
        with ExitStack() as stack:
            empty = str(short_folder(stack))
            missing = (1, "", ["svc: spire 1.13.0 is not there", "     bin/tools spire builds it"])
            self.assertEqual(missing, self.tools("--check", "spire", SVC_TOOLS=empty))
            status, out, lines = self.tools("spire", SVC_TOOLS=empty, CC="no-such-compiler")
            self.assertEqual((1, "", 2), (status, out, len(lines)), lines)
            self.assertTrue(lines[0].startswith("svc: spire needs "), lines)

    def test_without_npm(self) -> None:
        """What installs a tool and is not there is named."""
        with ExitStack() as stack:
            empty, programs = short_folder(stack), short_folder(stack)
            for name in ("bash", "dirname", "readlink", "sed"):
                (programs / name).symlink_to(find(name))
            missing = ["svc: mqttjs needs npm, and it was not found", "     as root: apt-get install nodejs npm"]
            self.assertEqual((1, "", missing), self.tools("mqttjs", SVC_TOOLS=str(empty), PATH=str(programs)))

    def test_names(self) -> None:
        """A name that is none and no name at all are refused."""
        self.assertEqual((1, "svc: there is no tool named other"), self._first(self.tools("other")))
        self.assertEqual((2, "usage: bin/tools [--check] NAME..."), self._first(self.tools()))

    def test_there(self) -> None:
        """An installed tool is found in the XDG cache folder, by its version."""
        with ExitStack() as stack:
            cache = short_folder(stack)
            folder = cache / "svc-tools" / "spire-1.13.0"
            folder.mkdir(parents=True)
            self.assertEqual((0, str(folder), []), self.tools("spire", XDG_CACHE_HOME=str(cache)))

    def test_check(self) -> None:
        """Each tool that is asked for is looked for by its version; the first that is missing is named."""
        with ExitStack() as stack:
            cache = short_folder(stack)
            (cache / "coredns-1.12.4").mkdir()
            there = str(cache / "coredns-1.12.4")
            missing = ["svc: helm 3.22.0 is not there", "     bin/tools helm builds it"]
            self.assertEqual((1, there, missing), self.tools("--check", "coredns", "helm", SVC_TOOLS=str(cache)))

    def _first(self, ran: tuple[int, str, list[str]]) -> tuple[int, str]:
        return ran[0], ran[2][0]


class ProgramTests(SynchronousTestCase):
    """What the tools of Kubernetes have built."""

    VERSIONS = {
        "etcd": "3.6.8",
        "kubelet": "Kubernetes v1.36.3",
        "kube-apiserver": "Kubernetes v1.36.3",
        "kube-controller-manager": "Kubernetes v1.36.3",
        "kube-scheduler": "Kubernetes v1.36.3",
        "kube-proxy": "Kubernetes v1.36.3",
        "kubectl": "v1.36.3",
        "containerd": "2.4.2",
        "containerd-shim-runc-v2": "2.4.2",
        "ctr": "2.4.2",
        "coredns": "CoreDNS-1.12.4",
        "helm": "v3.22.0",
    }
    FLAGS = {"kubectl": ("version", "--client"), "helm": ("version",), "containerd-shim-runc-v2": ("-v",)}

    def check(self, tool: str) -> None:
        """Run each program of a tool; it states its version."""
        folder = programs(tool)
        for name in TOOLS[tool]:
            if name in self.VERSIONS:
                ran = run(
                    [folder / name, *self.FLAGS.get(name, ("-version",) if name == "coredns" else ("--version",))]
                )
                self.assertEqual(0, ran.returncode, ran.stderr)
                self.assertIn(self.VERSIONS[name], ran.stdout.decode(), name)

    def test_kubernetes(self) -> None:
        """The programs of Kubernetes and etcd."""
        self.check("kubernetes")

    def test_containerd(self) -> None:
        """Those of containerd."""
        self.check("containerd")

    def test_coredns(self) -> None:
        """CoreDNS."""
        self.check("coredns")

    def test_helm(self) -> None:
        """Helm renders for the Kubernetes of the cluster where it has none to ask."""
        self.check("helm")
        with ExitStack() as stack:
            chart = short_folder(stack)
            (chart / "templates").mkdir()
            (chart / "Chart.yaml").write_text("apiVersion: v2\nname: x\nversion: 0.0.1\nkubeVersion: '>=1.36.0'\n")
            ran = run([programs("helm") / "helm", "template", chart])
            self.assertEqual(0, ran.returncode, ran.stderr)
