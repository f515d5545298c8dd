"""``svc status`` against a real proxy, broker and authority, also on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import ExitStack
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.status.rendering import columns
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import MonitoredDaemon, environment
from tests.peers.folders import short_folder
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, Shared, free_port

_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
WIDTH = 70
#: What is left of an hour that began a moment ago.
HOUR = r"(?:1h|59m(?: \d+s)?)"


def _platform(stack: ExitStack) -> SimpleNamespace:
    entries = [entry("/ns/shop/sa/api")]
    authority = stack.enter_context(RunningAuthority(entries=entries))
    proxy = stack.enter_context(RunningProxy(authority, "127.0.0.1:1"))
    broker = stack.enter_context(RunningBroker(persistence={"path": str(short_folder(stack) / "broker.db")}))
    return SimpleNamespace(proxy=proxy, broker=broker, authority=authority)


PLATFORM = Shared(_platform)


def _take_terminal() -> None:
    """Let Ctrl-C of the terminal reach this process, also where who started the tests ignores interrupts."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class StatusTests(SynchronousTestCase):
    """The command as a process."""

    def setUp(self) -> None:
        found = PLATFORM.get()
        self.processes: list[MonitoredDaemon] = [found.proxy, found.broker, found.authority]
        self.addresses = [f"127.0.0.1:{each.admin_port}" for each in self.processes]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "svc.cli.main", "status", *words]

    def run_status(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def test_text(self) -> None:
        """Each process has its title, and what only its kind shows."""
        ran = self.run_status(*self.addresses)
        self.assertEqual((0, ""), (ran.returncode, ran.stderr), ran.stdout)
        proxy, broker, authority = ran.stdout.split("\n\n")
        for text, kind, address in zip(
            (proxy, broker, authority), ("proxy", "broker", "authority"), self.addresses, strict=True
        ):
            self.assertRegex(text, rf"\Asvc-{kind} \S+  ready  {address}  up \S+.*  pid \d+")
        self.assertRegex(
            proxy, rf"\n  spiffe://example.org/ns/shop/sa/api +in {HOUR} +in {HOUR} +for 5[89]m(?: \d+s)? +hybrid\n"
        )
        self.assertRegex(
            proxy, r"\n  web +http +inbound +127.0.0.1:\d+ +127.0.0.1:1 +workload..signRequest +0 +0 +0 +0\n"
        )
        self.assertRegex(proxy, r"\n  store  \S+  writable  \d+ written since the start")
        self.assertRegex(broker, r"\n  plain +mqtt +inbound +127.0.0.1:\d+ +0\n")
        self.assertIn("  broker  clients 0  sessions 0", broker)
        self.assertRegex(authority, r"\n  post-quantum +in (?:30d|29d 23h) +yes +ML-DSA-65\n")
        self.assertRegex(authority, rf"\n  spiffe://example.org/ns/shop/sa/api +1 +in {HOUR}\n")
        self.assertIn("post-quantum leaves 1", authority)

    def test_json(self) -> None:
        """The documents are those of the pages; the addresses may come from configurations."""
        files = [word for each in self.processes for word in ("--config", str(each.config_path))]
        ran = self.run_status("-o", "json", *files)
        self.assertEqual((0, ""), (ran.returncode, ran.stderr))
        found = json.loads(ran.stdout)
        self.assertEqual(["proxy", "broker", "authority"], [each["process"] for each in found])
        for document, process in zip(found, self.processes, strict=True):
            page = process.page("/status")[1]
            self.assertEqual(
                [page[name] for name in ("pid", "started")], [document[name] for name in ("pid", "started")]
            )
            self.assertEqual(set(page) - {"rates"}, set(document) - {"rates"})

    def test_not_there(self) -> None:
        """Another service, and a port where nothing listens, are named beside the process that answers."""
        closed, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{self.processes[0].metrics_port}"
        ran = self.run_status(self.addresses[0], closed, metrics)
        self.assertEqual((1, ""), (ran.returncode, ran.stderr))
        lines = ran.stdout.splitlines()
        self.assertIn(f"{closed} cannot be reached: connection refused", lines)
        self.assertIn(f"what listens at {metrics} shows no status", lines[-1])
        ran = self.run_status(closed)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        self.assertIn(f"svc: no proxy, broker or authority answers at {closed}", ran.stderr)

    def test_watch(self) -> None:
        """On a terminal two frames come in the same place and fit; Ctrl-C ends it in order."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        variables = {
            name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        process = subprocess.Popen(
            self.command("--watch=0.2", *self.addresses),
            env={**variables, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        os.close(theirs)
        received = ""
        while received.count("\x1b[J") < 2:
            received += os.read(ours, 65536).decode()
        os.write(ours, b"\x03")
        self.assertEqual(0, process.wait(PATIENCE))
        cleared, first, second = received.split("\x1b[H")[:3]
        self.assertEqual("\x1b[2J", cleared)
        for frame in (first, second):
            lines = _CONTROL.sub("", frame).replace("\r\n", "\n").splitlines()
            self.assertRegex(lines[0], r"\Aevery 0.2 s, \S+\Z")
            self.assertEqual(
                3, len([line for line in lines if re.match(r"svc-(proxy|broker|authority) ", line)]), frame
            )
            self.assertLessEqual(max(map(columns, lines)), WIDTH)
            self.assertIn("\x1b[32mready\x1b[0m", frame)
