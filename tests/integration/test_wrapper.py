"""Commands of kubectl through ``svc``, with the real kubectl and a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.commands import COMMANDS
from svc.compartments.verbs import VERBS
from tests.integration.kube_rig import SERVER
from tests.peers.apiserver import programs
from tests.peers.waiting import end_process

#: What both have: the words of svc win.
_BOTH = {"completion", "help", "version"}


class WrapperCase(SynchronousTestCase):
    """A server, two namespaces, and a kubeconfig without a current context."""

    def setUp(self) -> None:
        """Make them, and a context that works in the first namespace."""
        self.server = SERVER.get()
        self.kubectl = str(programs() / "kubectl")
        self.first, self.second = (f"t-{uuid4().hex[:8]}" for _each in range(2))
        for namespace in (self.first, self.second):
            self.server.kubectl("create", "namespace", namespace)
        self.home = Path(self.mktemp()).absolute()
        self.home.mkdir()
        self.kubeconfig = self.home / "kubeconfig"
        self.kubeconfig.write_bytes(self.server.kubeconfig.read_bytes())
        self.plain("config", "rename-context", self.plain("config", "current-context").stdout.strip(), "prod")
        self.plain("config", "unset", "current-context")
        (self.home / ".svc").mkdir()
        self.config = self.home / ".svc" / "config.yaml"
        self.config.write_text(f"kubeconfig: {self.kubeconfig}\n")
        words = ("--country=DE", "--sensitivity=S", "--compartment=ALPHA", "--kube-context=prod")
        self.ran("context", "create", "de-s-alpha", *words, f"--namespace={self.first}")
        self.ran("context", "use", "de-s-alpha")

    @property
    def environ(self) -> dict[str, str]:
        """The environment of ``svc``."""
        return {"HOME": str(self.home), "SVC_KUBECTL": self.kubectl, "PATH": os.defpath}

    def plain(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run kubectl itself."""
        environ = {"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [self.kubectl, *words], env=environ, capture_output=True, text=True, check=True, timeout=120
        )

    def svc(self, *words: str, data: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """Run ``svc``."""
        command = [sys.executable, "-m", "svc.cli.entry", *words]
        return subprocess.run(
            command,
            env={**self.environ, **environ},
            input=data,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def ran(self, *words: str, data: str = "") -> str:
        """Run ``svc`` with success; returns what it printed."""
        ran = self.svc(*words, data=data)
        self.assertEqual(0, ran.returncode, ran.stderr)
        return ran.stdout


class PassedTests(WrapperCase):
    """What goes through."""

    def test_namespace(self) -> None:
        """A command works in the namespace of the context, and in another one that it names."""
        self.ran("create", "configmap", "one")
        self.ran("create", "configmap", "two", "-n", self.second)
        self.assertEqual("configmap/one\n", self.ran("get", "configmap", "-o", "name"))
        self.assertEqual("configmap/two\n", self.ran("get", "configmap", "-o", "name", "-n", self.second))
        both = self.ran("get", "configmaps", "-A", "-o", "json", "--field-selector=metadata.name!=kube-root-ca.crt")
        found = {each["metadata"]["name"]: each["metadata"]["namespace"] for each in json.loads(both)["items"]}
        self.assertEqual({"one": self.first, "two": self.second}, {name: found.get(name) for name in ("one", "two")})

    def test_standard_input(self) -> None:
        """Standard input is kubectl's."""
        manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "read"}}
        self.assertEqual("configmap/read created\n", self.ran("create", "-f", "-", data=json.dumps(manifest)))

    def test_subcommands(self) -> None:
        """Commands of two words, those without a cluster, and what kubectl refuses."""
        self.assertEqual("yes\n", self.ran("auth", "can-i", "create", "pods"))
        self.assertEqual("prod\n", self.ran("config", "get-contexts", "-o", "name"))
        for words in (("rollout", "status", "deploy/none"), ("get", "--no-such-flag"), ("nonsense",)):
            passed = self.svc(*words)
            with_context = [*words, "--context=prod", f"--namespace={self.first}"]
            direct = subprocess.run(
                [self.kubectl, *with_context],
                env={**self.environ, "KUBECONFIG": str(self.kubeconfig)},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(
                (direct.returncode, direct.stdout, direct.stderr), (passed.returncode, passed.stdout, passed.stderr)
            )
            self.assertNotEqual(0, passed.returncode)

    def test_process(self) -> None:
        """The process is kubectl: a watch shows each line at once, and a signal ends it as it ends kubectl."""
        process = subprocess.Popen(
            [sys.executable, "-m", "svc.cli.entry", "get", "configmaps", "--watch", "-o", "name"],
            env=self.environ,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(end_process, process)
        self.ran("create", "configmap", "watched")
        assert process.stdout is not None
        self.assertEqual(b"configmap/watched\n", process.stdout.readline())
        self.assertEqual(os.path.realpath(self.kubectl), os.readlink(f"/proc/{process.pid}/exe"))
        process.terminate()
        # kubectl has a handler from the time on at which its watch is open, which ends it with 1.
        self.assertIn(process.wait(60), (-15, 1))

    def test_who(self) -> None:
        """The user is the one that the API server names."""
        shown = self.ran("identity")
        name = json.loads(self.server.kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"]
        self.assertIn(f"\nKube Context: prod\nUser: {name}\n", shown)


class PluginTests(WrapperCase):
    """The plugin of kubectl."""

    def test_plugin(self) -> None:
        """``kubectl mls`` is ``svc``, with the streams and the exit status of what it runs."""
        self.ran("create", "configmap", "one")
        environ = {**self.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"}
        for line in (
            "get cm one -o custom-columns=N:.metadata.name",
            "get cm -oname",
            "get cm gone",
            "context list",
            "identity",
            "nonsense -x",
        ):
            ours = self.svc(*line.split())
            plugin = subprocess.run(
                [self.kubectl, "mls", *line.split()],
                env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            self.assertEqual(
                (ours.returncode, ours.stdout, ours.stderr), (plugin.returncode, plugin.stdout, plugin.stderr), line
            )


class WordsTests(WrapperCase):
    """The words of kubectl and ours."""

    def commands(self) -> set[str]:
        """The commands of kubectl, by its completion."""
        lines = self.plain("__complete", "").stdout.splitlines()
        return {line.partition("\t")[0] for line in lines if not line.startswith(":")}

    def test_no_command_is_hidden(self) -> None:
        """No command of ours has the name of one of kubectl but those that both must have, and all are known."""
        found = self.commands()
        self.assertEqual(_BOTH, found & set(COMMANDS))
        self.assertEqual(set(), found - VERBS - _BOTH)

    def test_completion(self) -> None:
        """Commands of both, and names of objects of the context."""
        self.ran("create", "configmap", "complete-me")
        offered = [line.partition("\t")[0] for line in self.ran("__complete", "co").splitlines()]
        self.assertEqual(["completion", "config", "context", "cordon", ":4"], offered)
        self.assertEqual(["complete-me", ":4"], self.ran("__complete", "get", "configmap", "compl").splitlines())
        self.assertEqual([":4"], self.ran("__complete", "get", "cm", "-n", self.second, "compl").splitlines())
        self.assertIn("--output", self.ran("__complete", "get", "--outp"))
