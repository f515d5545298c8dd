"""``bin/quickstart`` from the checkout: what a newcomer sees, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

from twisted.trial.unittest import SynchronousTestCase

from svc.quickstart.processes import port_taken
from tests.peers import webapp
from tests.peers.daemon import environment
from tests.peers.programs import find, svc
from tests.peers.waiting import TOP, answers, end_process, free_port

#: Output that differs from run to run, and its placeholder.
_VARYING = (
    (r"[A-Za-z0-9+/]{43}=", "ID"),
    (r"(?m)^quickstart +[0-9.]+ s", "quickstart TIME"),
    (r"127\.0\.0\.1:[0-9]+", "ADDRESS"),
    # The claims of a receipt are shown up to its time.
    (r'"iat":[0-9]+,.*', '"iat":TIME'),
)


def uniform(text: str) -> str:
    """Replace what differs from run to run."""
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return text


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of a page of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", (TOP / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def transcript(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with its documented output."""
    parts = [text.partition("\n") for text in re.split(r"(?m)^\$ ", block)[1:]]
    return [(line, output) for line, _end, output in parts]


#: Runs the quickstart with the default action of its signals: a shell ignores SIGINT for a command in the background.
_INTERRUPTIBLE = (
    "import runpy, signal\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
    "runpy.run_module('svc.quickstart', run_name='__main__')\n"
)


class QuickstartTests(SynchronousTestCase):
    """Whole runs."""

    def run_it(self, *arguments: str, status: int = 0) -> CompletedProcess[str]:
        """Run the script of the checkout, in which it leaves nothing."""
        return self._ended([str(TOP / "bin" / "quickstart"), *arguments], status)

    def run_module(self, *arguments: str, status: int = 0) -> CompletedProcess[str]:
        """Run it without the script, which looks at the virtual environment first."""
        return self._ended([sys.executable, "-m", "svc.quickstart", *arguments], status)

    def _ended(self, command: list[str], status: int) -> CompletedProcess[str]:
        # A state folder of its own, so that no other run is stopped; its log files are removed with the test.
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**environment(), "TMPDIR": str(self.folder), "SVC_CHECKOUT": str(self.folder)},
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

    def assert_nothing_left(self) -> None:
        """Neither a process nor a file of the runs of this test is there; a folder of reports may be."""
        left = subprocess.run(["pgrep", "-af", str(self.folder)], capture_output=True, text=True, check=False)
        self.assertEqual("", left.stdout)
        self.assertEqual(set(), {path.name for path in self.folder.iterdir()} - {".quickstart"})
        self.assertFalse(answers(self.port))

    def test_main_job(self) -> None:
        """It shows a verified request on about 40 lines, writes the whole reports, and leaves nothing else."""
        ran = self.run_module("--port", str(self.port))
        self.assert_reports(ran)
        self.assertIn("This page came through a verified connection.", ran.stdout)
        self.assertLess(len((ran.stdout + ran.stderr).splitlines()), 50)
        self.assertNotIn("Raw Claims", ran.stderr)
        [path] = re.findall(r"the whole reports: (/\S+)", ran.stderr)
        reports = Path(path).read_text()
        self.assertEqual(2, reports.count("Raw Claims (JSON):\n"))
        self.assertEqual(0o600, Path(path).stat().st_mode & 0o777)
        self.assert_nothing_left()

    def test_from_a_checkout(self) -> None:
        """The command of README.md prints what README.md shows."""
        ran = self.run_it("--port", str(self.port))
        [shown] = [block for block in blocks("README.md", "text") if "svc-authority" in block]
        answer, rest = ran.stdout, ran.stderr.partition("\n\n")
        self.assert_shown(shown, f"{rest[0]}\n{answer}{rest[2]}")

    def assert_shown(self, shown: str, output: str) -> None:
        """The output has the lines of a page in their order; an ellipsis stands for any text, or for any lines."""
        lines = iter(uniform(output).splitlines())
        for line in uniform(shown).splitlines():
            if line != "…":
                pattern = ".*".join(re.escape(part) for part in line.split("…"))
                self.assertTrue(any(re.fullmatch(pattern, found) for found in lines), line)

    def test_commands_of_pages(self) -> None:
        """The commands of README.md ("Look closer") and docs/receipts.md print the output shown below them."""
        self.addCleanup(self.run_module, "--stop")
        kept = self.run_module("--keep", "--port", str(self.port)).stderr
        folder_path = re.findall(r"reports: (/\S+)", kept)[0]
        [look_closer] = [block for block in blocks("README.md", "console") if "--keep" in block]
        self.assert_shown(dict(transcript(look_closer))["bin/quickstart --keep"], kept)
        older, verify = blocks("docs/receipts.md", "console")
        shutil.copy(Path(folder_path) / "bundle-archive.json", self.programs(self.folder / "work"))
        receipt = ""
        for block in (look_closer, verify, older):
            lines = [(line, output) for line, output in transcript(block) if not line.startswith("bin/quickstart")]
            shown = self.shell([line for line, _said in lines], folder_path, receipt)
            expected = [(line, uniform(output)) for line, output in lines]
            self.assertEqual(expected, [(line, uniform(text)) for line, text in shown])
            [receipt, *_others] = [*re.findall(r"(?m)^receipt (\S+): verified", str(shown[-1][1])), receipt]

    def programs(self, folder: Path) -> Path:
        """Make a folder whose ``bin/svc`` and ``bin/quickstart`` are those of this checkout, with its own state."""
        (folder / "bin").mkdir(parents=True)
        for name, module in (("svc", "svc.cli.main"), ("quickstart", "svc.quickstart")):
            path = folder / "bin" / name
            path.write_text(f'#!/bin/sh\nSVC_CHECKOUT="{folder}" exec "{sys.executable}" -m {module} "$@"\n')
            path.chmod(0o755)
        return folder

    def shell(self, lines: list[str], folder_path: str, receipt: str) -> list[tuple[str, str]]:
        """Run lines in one shell; each with what it wrote to either stream."""
        script = "".join(f"{line}\nprintf '\\036'\n" for line in lines).replace("8443", str(self.port))
        script = re.sub(r"[A-Za-z0-9+/]{43}=", receipt, script)
        folder = self.folder / "work"
        ran = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            stdin=subprocess.DEVNULL,
            env={
                **environment(),
                "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
                "DIR": folder_path,
                "SPIFFE_ENDPOINT_SOCKET": f"unix://{folder_path}/agent.sock",
            },
        )
        return list(zip(lines, ran.stdout.split("\x1e"), strict=False))

    def interrupted(self, number: int, after: str, *arguments: str) -> str:
        """Send a signal as soon as the output has a line with this word; return the output until the end."""
        process = subprocess.Popen(
            [sys.executable, "-c", _INTERRUPTIBLE, "--port", str(self.port), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), "TMPDIR": str(self.folder), "SVC_CHECKOUT": str(self.folder)},
        )
        self.addCleanup(end_process, process)
        assert process.stderr is not None
        output = ""
        while after not in output:
            line = process.stderr.readline()
            self.assertNotEqual("", line, output)
            output += line
        process.send_signal(number)
        output += process.communicate(timeout=120)[1]
        self.assertEqual(1, process.returncode, output)
        self.assertTrue(output.endswith("quickstart: interrupted\n"), output)
        return output

    def test_interrupted(self) -> None:
        """Ctrl-C, kill and the end of the terminal leave neither a process nor a file."""
        for number, after in (
            (signal.SIGTERM, "application:"),
            (signal.SIGINT, "identities:"),
            (signal.SIGHUP, "request:"),
        ):
            self.interrupted(number, after)
            self.assert_nothing_left()
            self.assertFalse((self.folder / ".quickstart").exists())

    def test_interrupted_with_keep(self) -> None:
        """With --keep an interrupt ends the processes, and the folder stays and is named."""
        output = self.interrupted(signal.SIGTERM, "identities:", "--keep")
        [folder_path] = re.findall(r"are kept in (/\S+)", output)
        self.assertTrue((Path(folder_path) / "authority.log").exists())
        self.assertFalse(answers(self.port))
        shutil.rmtree(folder_path)
        self.assert_nothing_left()

    def test_failure(self) -> None:
        """After an error nothing runs, and the folder with the logs stays and is named."""
        with ExitStack() as stack:
            upstream = f"localhost:{webapp.start(stack)}"
            # The state of an earlier run cannot be read, which is seen last.
            (self.folder / ".quickstart").mkdir()
            (self.folder / ".quickstart" / "state.json").write_text("{")
            ran = self.run_module("--keep", "--upstream", upstream, "--port", str(self.port), status=1)
        [folder_path] = re.findall(r"are kept in (/\S+)", ran.stderr)
        records = [json.loads(line) for line in (Path(folder_path) / "proxy.log").read_text().splitlines()]
        self.assertIn("svc.process.stopped", [each["event"]["name"] for each in records])
        shutil.rmtree(folder_path)
        self.assert_nothing_left()

    def test_keep_and_stop(self) -> None:
        """With --keep it keeps running for more requests, and --stop ends exactly that run."""
        self.addCleanup(self.run_module, "--stop")
        ran = self.run_module("--keep", "--port", str(self.port))
        self.assert_reports(ran)
        self.assertIn("--stop", ran.stderr)
        [socket_path] = set(re.findall(r"--spiffe-socket-path (\S+)", ran.stderr))
        [folder_path] = re.findall(r"reports: (/\S+)", ran.stderr)
        self.assertIn("Raw Claims (JSON):\n", (Path(folder_path) / "reports.txt").read_text())
        again = svc("curl", "--spiffe-socket-path", socket_path, f"https://127.0.0.1:{self.port}/")
        self.assertEqual(0, again.returncode, again.stderr)
        stopped = self.run_module("--stop")
        for name in ("proxy", "authority", "application"):
            self.assertIn(name, stopped.stderr)
        self.assertFalse(answers(self.port))
        self.assertIn("nothing was running", self.run_module("--stop").stderr)

    def test_next_commands(self) -> None:
        """With --port 0 and --keep the last lines are three commands, which work when pasted, and the URLs open."""
        find("curl")
        self.programs(self.folder)
        self.addCleanup(self.run_module, "--stop")
        output = self.run_module("--keep", "--port", "0").stderr
        _before, _next, commands = output.partition("to paste (the folder stays until you remove it):\n")
        ran = [
            subprocess.run(
                ["bash", "-c", line],
                cwd="/",
                capture_output=True,
                text=True,
                timeout=300,
                check=True,
                env=environment(),
            )
            for line in [*(f"curl -sf {url}" for url in re.findall(r"http://\S+", _before)), *commands.splitlines()]
        ]
        self.assertEqual(6, len(ran))
        metrics, ready, page, receipt, status, stopped = ran
        self.assertTrue(metrics.stdout.startswith("# HELP svc_proxy_"), metrics.stdout[:200])
        self.assertTrue(json.loads(ready.stdout)["ready"])
        self.assertIn("svc-proxy", page.stdout)
        self.assertIn("svc-proxy", status.stdout)
        self.assertIn("This page came through a verified connection.", receipt.stdout)
        self.assertIn("Signed Request Receipt ", receipt.stderr)
        self.assertEqual("quickstart: stopped proxy, authority, application\n", stopped.stderr)

    def test_own_application(self) -> None:
        """The user's own application replaces the built-in one."""
        with ExitStack() as stack:
            upstream = f"127.0.0.1:{webapp.start(stack)}"
            ran = self.run_module("--upstream", upstream, "--port", str(self.port))
        self.assertIn("there is no such page", ran.stdout)
        self.assertIn("Signed Request Receipt ", ran.stderr)

    def test_errors(self) -> None:
        """A taken port, an absent application and nonsense are a line and a hint each, and nothing is left running."""
        with socket.create_server(("127.0.0.1", self.port)):
            output = self.run_it("--port", str(self.port), status=1).stderr.splitlines()
        taken = f"quickstart: 127.0.0.1:{self.port} is taken: --port PORT uses another one, --port 0 any free one"
        hint = "            an earlier run with --keep is ended by bin/quickstart --stop"
        self.assertEqual([taken, hint], output)
        nobody = f"127.0.0.1:{free_port()}"
        output = self.run_module("--upstream", nobody, "--port", str(self.port), status=1).stderr.splitlines()
        self.assertEqual(f"quickstart: nothing answers at {nobody}", output[0])
        self.assertEqual(2, len(output))
        self.assertIn("expected 0 to 65535", self.run_module("--port", "65536", status=2).stderr)
        output = self.run_module(
            *("--spire-socket", "/no/such.sock", "--port", str(self.port)), status=1
        ).stderr.splitlines()
        self.assertTrue(any("/no/such.sock" in line for line in output), output)
        self.assertFalse(os.path.exists(self.folder / ".quickstart"))


class PortTests(SynchronousTestCase):
    """Which ports of this machine count as taken."""

    def test_listened_at(self) -> None:
        """A port with a listener is taken, at this address or at every one; after its end it is free."""
        for address in ("127.0.0.1", "0.0.0.0"):
            with socket.create_server((address, 0)) as server:
                port = server.getsockname()[1]
                self.assertTrue(port_taken(port), address)
            self.assertFalse(port_taken(port), address)

    def test_reserved(self) -> None:
        """A port that a socket has and that accepts no connections yet is taken too."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            self.assertTrue(port_taken(other.getsockname()[1]))

    def test_connections_of_an_ended_listener(self) -> None:
        """What the kernel remembers of closed connections does not make a port taken."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as client:
                server.accept()[0].close()
                self.assertEqual(b"", client.recv(1))
        self.assertFalse(port_taken(port))

    def test_free(self) -> None:
        """A port that the quickstart chose is free."""
        self.assertFalse(port_taken(free_port()))
