"""The files of ``twistd svc-agent`` beside an authority: a web server that reloads them, crashes, disks, commands."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.trial.unittest import SynchronousTestCase

from svc.agent import versions
from svc.agent.notifying import NotifyFailed, run_command
from svc.agent.versions import DATA, VersionedFile, VersionedFolder
from svc.identity.algorithms import spki_der
from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.spiffeid import TrustDomain
from svc.identity.verification import verify_svid
from svc.process.clock import utc_now
from svc.workload.pqfile import read_pq_bundles
from tests.integration.test_agent import RunningAgent
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment
from tests.peers.faulty_disk import fill, memory_disk
from tests.peers.folders import short_folder
from tests.peers.programs import find
from tests.peers.waiting import end_process, eventually, free_port, rounds, runs

NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {web}/svid.pem;
        ssl_certificate_key {web}/svid_key.pem;
        return 204;
    }}
}}
"""


def pinned(path: Path, *names: str) -> dict[str, bytes]:
    """Read files of one version, as docs/agent.md says."""
    while True:
        folder = os.open(path / DATA, os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = {}
            for name in names:
                with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
                    found[name] = file.read()
            return found
        except FileNotFoundError:
            continue
        finally:
            os.close(folder)


class FilesCase(SynchronousTestCase):
    """An authority, and an agent whose files a test chooses."""

    def begin(self, *files: dict[str, Any], ttl: str = "1h", **settings: Any) -> None:
        """Start both."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = RunningAuthority(ttl=ttl, **settings)
        self.stack.callback(self.authority.stop)
        self.authority.start()
        self.agent = RunningAgent(self.authority.address, csi=False)
        self.stack.callback(self.agent.stop)
        self.web = self.agent.folder / "web"
        self.agent.config["files"] = [{"folder": str(self.web), **each} for each in files]

    def serial(self, path: Path | None = None, chain: str = "svid.pem", key: str = "svid_key.pem") -> int:
        """The serial number of the certificate, whose key it is."""
        found = pinned(path or self.web, chain, key)
        [leaf, *_above] = x509.load_pem_x509_certificates(found[chain])
        private: Any = load_pem_private_key(found[key], None)
        self.assertEqual(spki_der(leaf.public_key()), spki_der(private.public_key()))
        return leaf.serial_number

    def ready(self) -> bool:
        """Whether the files are as they should be."""
        return self.agent.page("/readyz")[0] == 200


class NginxTests(FilesCase):
    """A web server that knows files and signals alone."""

    def test_renewals(self) -> None:
        """It shows each new SVID soon after it was written, and no connection fails meanwhile."""
        program = find("nginx")
        self.begin(ttl="6s")
        folder = short_folder(self.stack, "svc-nginx-")
        folder.chmod(0o755)
        self.agent.config["files"] = [{"folder": str(self.web), "pidFile": str(folder / "nginx.pid")}]
        self.agent.start()
        eventually(self.ready)
        self.port = free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=self.port, web=self.web, user=user))
        command = [program, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.stack.callback(end_process, process)
        first = eventually(self.shown_or_none)
        shown = {first}
        deadline = time.monotonic() + 60
        while len(shown) < 4 and time.monotonic() < deadline:
            shown.add(self.shown())
            time.sleep(0.05)
        self.assertGreaterEqual(len(shown), 4)
        eventually(lambda: self.shown() == self.serial(), what="the SVID of the files")
        self.assertGreaterEqual(len(self.agent.records("svc.agent.files.notified")), 3)
        written = {int(each["attributes"]["serial"], 16) for each in self.agent.records("svc.agent.files.written")}
        self.assertLessEqual(shown, written)

    def shown(self) -> int:
        """The serial number of the certificate that the server shows to who connects now."""
        certificate = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=60)
        return x509.load_pem_x509_certificate(certificate.encode()).serial_number

    def shown_or_none(self) -> int | None:
        """The same; None while it does not serve."""
        try:
            return self.shown()
        except OSError:
            return None


class ContentTests(FilesCase):
    """What the files are."""

    def test_hints_and_leaves(self) -> None:
        """Two identities by their hints, one with leaf and roots, which verifies."""
        entries = [entry("/web", hint="web"), entry("/signer", hint="signer")]
        self.begin(entries=entries)
        signer = self.agent.folder / "signer"
        self.agent.config["files"] = [
            {"folder": str(self.web), "hint": "web"},
            {
                "folder": str(signer),
                "hint": "signer",
                "pqIssuer": self.authority.pq_address,
                "pqBundle": "pq-bundle.json",
                "mode": "0400",
            },
        ]
        self.agent.start()
        eventually(self.ready)
        self.assertNotEqual(self.serial(), self.serial(signer))
        for folder, path in ((self.web, "/web"), (signer, "/signer")):
            domain = TrustDomain("example.org")
            roots = x509.load_pem_x509_certificates((folder / "svid_bundle.pem").read_bytes())
            chain = x509.load_pem_x509_certificates((folder / "svid.pem").read_bytes())
            bundles = BundleSet.of(X509Bundle.from_certificates(domain, roots))
            self.assertEqual(path, verify_svid(chain, bundles, utc_now()).spiffe_id.path)
        self.serial(signer, "pq_svid.pem", "pq_svid_key.pem")
        leaf = x509.load_pem_x509_certificates((signer / "pq_svid.pem").read_bytes())
        evidence = verify_svid(leaf, read_pq_bundles(signer / "pq-bundle.json").bundle_set(), utc_now())
        self.assertEqual(("/signer", True), (evidence.spiffe_id.path, evidence.post_quantum))
        self.assertEqual(0o400, (signer / "pq_svid_key.pem").stat().st_mode & 0o777)

    def test_check_config(self) -> None:
        """``--check-config`` tests the folder without making it."""
        self.begin({}, {"folder": "/proc/svc-agent/web"})
        self.agent.write_config()
        command = [*self.agent.command(), "--check-config"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        self.assertIn(f"ok  files in {self.web}", ran.stdout)
        self.assertIn("no  files in /proc/svc-agent/web", ran.stdout)
        self.assertIn("the files in /proc/svc-agent/web could not be written", ran.stderr)
        self.assertFalse(self.web.exists())


class FaultTests(FilesCase):
    """What goes wrong, and what stays."""

    def test_killed(self) -> None:
        """Whenever the agent is killed, there is one whole renewal; the next start leaves nothing else."""
        self.begin({"pqIssuer": "", "command": ["/bin/true"]}, ttl="2s")
        self.agent.config["files"][0]["pqIssuer"] = self.authority.pq_address
        seen = set()
        for number in range(8):
            before = len(self.written())
            self.agent.launch()
            eventually(lambda before=before: len(self.written()) > before)
            time.sleep(number * 0.17)
            self.agent.kill()
            seen.add(self.serial())
            self.serial(None, "pq_svid.pem", "pq_svid_key.pem")
        self.assertEqual(8, len(seen))
        self.agent.start()
        eventually(self.ready)
        self.agent.halt()
        hidden = [each for each in os.listdir(self.web) if each.startswith("..")]
        self.assertEqual(sorted([DATA, os.readlink(self.web / DATA)]), sorted(hidden))

    def written(self) -> set[str]:
        """The serial numbers of all renewals, by the whole log."""
        return {each["attributes"]["serial"] for each in self.agent.records("svc.agent.files.written")}

    def test_full_disk(self) -> None:
        """On a full disk the last good files stay, and readiness and log say why; with room it goes on."""
        self.begin(ttl="20s")
        disk = memory_disk(self.stack, "1m")
        self.web = disk / "web"
        self.agent.config["files"] = [{"folder": str(self.web), "command": ["/bin/true"]}]
        self.agent.start()
        eventually(self.ready)
        before = self.serial()
        filler = fill(disk)
        eventually(lambda: not self.ready(), 120)
        self.assertEqual(before, self.serial())
        said = self.agent.readiness()["files"]
        self.assertEqual("files_unwritable", said["reason"])
        self.assertIn("No space left on device", said["message"])
        eventually(lambda: self.agent.records("svc.agent.files.failed"))
        filler.unlink()
        eventually(self.ready, 120)
        self.assertNotEqual(before, self.serial())

    def test_folder(self) -> None:
        """A folder that others can write is refused, until it is closed to them."""
        self.begin({})
        self.web.mkdir()
        self.web.chmod(0o777)
        self.agent.start()
        eventually(lambda: self.agent.readiness()["files"].get("reason") == "file_refused")
        self.assertEqual(503, self.agent.page("/readyz")[0])
        self.assertEqual([], os.listdir(self.web))
        self.web.chmod(0o755)
        eventually(self.ready)
        self.serial()

    def test_command(self) -> None:
        """A command that fails is run again; its arguments are no shell's."""
        self.begin()
        done, script = self.agent.folder / "done", self.agent.folder / "tell"
        script.write_text(f'#!/bin/sh\necho "$1" >> {done}.tried\n[ -e {done}.may ] && mv {done}.tried {done}\n')
        script.chmod(0o755)
        self.agent.config["files"] = [{"folder": str(self.web), "command": [str(script), "$(id); x"]}]
        self.agent.start()
        eventually(lambda: self.agent.readiness()["files"].get("reason") == "notify_failed")
        self.serial()
        eventually(lambda: self.agent.records("svc.agent.files.not_notified"))
        Path(f"{done}.may").touch()
        eventually(self.ready, 90)
        self.assertEqual({"$(id); x"}, set(done.read_text().splitlines()))


class KilledWriterTests(SynchronousTestCase):
    """The writer of a version, killed before each of its lines."""

    def test_each_line(self) -> None:
        """A reader finds the files of before or the new ones, with their modes; the next write removes the rest."""
        states: list[str] = []
        step = rounds(3, 1)
        while not states or states[-1] != "whole":
            with ExitStack() as stack:
                folder = short_folder(stack) / "web"
                self.write(folder, b"old")
                states.append(self.killed(folder, step * len(states) + 1))
        self.assertGreater(step * len(states), 60)
        self.assertEqual(["old", "new", "whole"], list(dict.fromkeys(states)))

    def killed(self, folder: Path, lines: int) -> str:
        """Kill a writer, look at what is there, and write again."""
        child = os.fork()
        if child == 0:
            try:
                sys.settrace(killing_before(lines))
                self.write(folder, b"new")
            finally:
                os._exit(0)
        _pid, status = os.waitpid(child, 0)
        found = pinned(folder, "chain.pem", "key.pem")
        self.assertEqual(found["chain.pem"], found["key.pem"])
        for path in folder.rglob("*key.pem*"):
            if not path.is_symlink():
                self.assertEqual(0o600, path.stat().st_mode & 0o777)
        self.write(folder, b"next")
        self.assertEqual({b"next"}, set(pinned(folder, "chain.pem", "key.pem").values()))
        self.assertEqual(2, len([each for each in os.listdir(folder) if each.startswith("..")]))
        return "whole" if status == 0 else found["key.pem"].decode()

    def write(self, folder: Path, data: bytes) -> None:
        """Write a version."""
        files = [VersionedFile("chain.pem", data), VersionedFile("key.pem", data, 0o600)]
        VersionedFolder(str(folder)).write(files)


def killing_before(lines: int) -> Callable[..., Any]:
    """A trace function that kills this process before it runs so many lines of the writer."""
    left = lines

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != versions.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


class CommandTests(SynchronousTestCase):
    """Commands as processes."""

    def setUp(self) -> None:
        """Have a folder for what they write."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)

    def failed(self, *command: str, seconds: float = 60.0) -> str:
        """Run a command that fails, and give the reason."""
        error = self.assertRaises(NotifyFailed, asyncio.run, run_command(command, seconds))
        return str(error)

    def test_success(self) -> None:
        """It has no input, PATH as its only variable, and a session of its own."""
        out = self.folder / "found"
        script = f'cat; env | grep -v "^\\(PWD\\|SHLVL\\|_\\)=" > {out}; ps -o sid= -p $$ >> {out}; echo $$ >> {out}'
        asyncio.run(run_command(("/bin/sh", "-c", script), 60.0))
        variable, *session = out.read_text().split()
        self.assertTrue(variable.startswith("PATH="), variable)
        self.assertEqual(session[0], session[1])

    def test_failure(self) -> None:
        """The reason says how it ended, or why it was not started."""
        self.assertIn("it ended with status 3", self.failed("/bin/sh", "-c", "exit 3"))
        self.assertIn("it was ended by signal 9", self.failed("/bin/sh", "-c", "kill -9 $$"))
        self.assertIn("No such file", self.failed("/proc/nonexistent"))
        (self.folder / "x").write_text("")
        self.assertIn("Permission denied", self.failed(str(self.folder / "x")))

    def test_timeout(self) -> None:
        """What takes too long is killed, with what it has started."""
        pid = self.folder / "pid"
        script = f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"
        self.assertIn("did not end within 2 s", self.failed("/bin/sh", "-c", script, seconds=2.0))
        started = int(pid.read_text())
        eventually(lambda: not runs(started), what="the end of what it started")
