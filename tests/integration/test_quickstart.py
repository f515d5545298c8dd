"""``bin/quickstart`` from the checkout: what a newcomer sees, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.programs import svc
from tests.peers.proxy import environment
from tests.peers.waiting import TOP, answers, free_port


class QuickstartTests(SynchronousTestCase):
    """Whole runs."""

    def run_it(self, *arguments: str, status: int = 0) -> CompletedProcess[str]:
        """Run it; what it leaves for its logs goes with the test."""
        return self._ended([str(TOP / "bin" / "quickstart"), *arguments], status)

    def run_module(self, *arguments: str, status: int = 0) -> CompletedProcess[str]:
        """Run it with a folder of its own for what it remembers, so that nobody else's run is stopped."""
        return self._ended([sys.executable, "-m", "svc.quickstart", *arguments], status, SVC_CHECKOUT=str(self.folder))

    def _ended(self, command: list[str], status: int, **settings: str) -> CompletedProcess[str]:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**environment(), "TMPDIR": str(self.folder), **settings},
        )
        self.assertEqual(status, ran.returncode, ran.stderr)
        self.assertNotIn("Traceback", ran.stderr)
        return ran

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="svc-qs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.port = free_port()

    def assert_reports(self, ran: CompletedProcess[str]) -> None:
        """Both reports were shown, verified and post-quantum, with the answer."""
        for words in (
            "Workload Identity Statement ",
            "Signed Request Receipt ",
            "SPIFFE ID: spiffe://quickstart.example/ns/demo/sa/web\n",
            "Signatures: ES256 valid, ML-DSA-65 valid\n",
            "Bound To Connection: yes\n",
            "Compared With Own Exchange: yes\n",
            "X25519MLKEM768 (post-quantum)",
        ):
            self.assertIn(words, ran.stderr)
        self.assertTrue(ran.stdout.startswith("HTTP/1.1 200 OK\r\n".replace("\r\n", "\n")), ran.stdout[:100])

    def test_main_job(self) -> None:
        """It shows a verified request and says where the logs are; afterwards nothing runs any more."""
        ran = self.run_it("--port", str(self.port))
        self.assert_reports(ran)
        self.assertIn("This page came through a verified connection.", ran.stdout)
        [logs] = re.findall(r"logs: (/\S+)", ran.stderr)
        records = [json.loads(line) for line in (Path(logs) / "proxy.log").read_text().splitlines()]
        self.assertIn("svc.process.stopped", [each["event"]["name"] for each in records])
        self.assertFalse(answers(self.port))
        left = subprocess.run(["pgrep", "-f", logs], capture_output=True, text=True, check=False)
        self.assertEqual("", left.stdout)

    def test_keep_and_stop(self) -> None:
        """With --keep it goes on running for more requests, and --stop ends exactly that."""
        self.addCleanup(self.run_module, "--stop")
        ran = self.run_module("--keep", "--port", str(self.port))
        self.assert_reports(ran)
        self.assertIn("--stop", ran.stderr)
        [socket_path] = re.findall(r"--spiffe-socket-path (\S+)", ran.stderr)
        again = svc("curl", "--spiffe-socket-path", socket_path, f"https://127.0.0.1:{self.port}/")
        self.assertEqual(0, again.returncode, again.stderr)
        stopped = self.run_module("--stop")
        for name in ("proxy", "authority", "application"):
            self.assertIn(name, stopped.stderr)
        self.assertFalse(answers(self.port))
        self.assertIn("nothing was running", self.run_module("--stop").stderr)

    def test_own_application(self) -> None:
        """The user's own application takes the place of the built-in one."""
        with ExitStack() as stack:
            upstream = f"127.0.0.1:{webapp.start(stack)}"
            ran = self.run_module("--upstream", upstream, "--port", str(self.port))
        self.assertIn("there is no such page", ran.stdout)
        self.assertIn("Signed Request Receipt ", ran.stderr)

    def test_troubles(self) -> None:
        """A taken port, an absent application and nonsense are a line and a hint each, and nothing is left running."""
        with socket.create_server(("127.0.0.1", self.port)):
            said = self.run_it("--port", str(self.port), status=1).stderr.splitlines()
        self.assertEqual(f"quickstart: the port {self.port} on 127.0.0.1 is taken", said[0])
        self.assertEqual((2, True), (len(said), "--port" in said[1]))
        nobody = f"127.0.0.1:{free_port()}"
        said = self.run_module("--upstream", nobody, "--port", str(self.port), status=1).stderr.splitlines()
        self.assertEqual(f"quickstart: nothing answers at {nobody}", said[0])
        self.assertEqual(2, len(said))
        self.assertIn("expected 1 to 65535", self.run_module("--port", "0", status=2).stderr)
        said = self.run_module(
            *("--spire-socket", "/no/such.sock", "--port", str(self.port)), status=1
        ).stderr.splitlines()
        self.assertTrue(any("/no/such.sock" in line for line in said), said)
        self.assertFalse(os.path.exists(self.folder / ".quickstart"))
