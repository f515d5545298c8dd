"""A proxy whose standard output is not read, whose log file has no room, and one that others write beside."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment, twistd
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, runs
from tests.telemetry.schema import log_defects

#: The proxy as twistd runs it, in an interpreter in which others print and write.
CARELESS = """
import atexit, logging, os, sys, threading, warnings
print("printed before anything runs")
from twisted.scripts.twistd import run
from twisted.internet import task
import svc.proxy.tap as tap
make = tap.makeService
def makeService(options):
    service = make(options)
    os.write(1, b"written past Python\\n")
    from twisted.internet import reactor
    def later():
        print("printed", end="")
        print(" in pieces")
        print("two\\nlines", file=sys.stderr)
        os.write(1, b"written past Python\\n")
        warnings.warn("warned")
        logging.getLogger("library").warning("logged")
        threading.Thread(target=lambda: 1 / 0).start()
        reactor.callLater(0, lambda: {}["missing"])
    reactor.callWhenRunning(later)
    return service
tap.makeService = makeService
run()
"""


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    application = f"127.0.0.1:{webapp.start(stack)}"
    credentials = Credentials.fetch(authority, short_folder(stack))
    return SimpleNamespace(authority=authority, application=application, credentials=credentials)


SHARED = Shared(_make)


class LogWriterTests(SynchronousTestCase):
    """One application, and one proxy for each test."""

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        found = SHARED.get()
        self.credentials: Credentials = found.credentials
        self.proxy = RunningProxy(found.authority, found.application, settings={"accessLog": "on"})
        stack.callback(self.proxy.stop)

    def launch(self, command: list[str] | None = None, **streams: Any) -> subprocess.Popen[bytes]:
        """Start it with streams of our own, and wait until it is ready."""
        self.proxy.write_config()
        process = subprocess.Popen(command or self.proxy.command(), cwd=self.proxy.folder, env=environment(), **streams)
        self.proxy.process = process
        eventually(self.proxy.is_ready, 60, "readiness")
        return process

    def serve(self, count: int) -> float:
        """Send so many requests; return the seconds of the slowest response."""
        slowest = 0.0
        with RawConnection(self.proxy.port, self.credentials) as connection:
            for _number in range(count):
                began = time.monotonic()
                self.assertEqual(200, connection.request("/bytes/1").status)
                slowest = max(slowest, time.monotonic() - began)
        return slowest

    def records(self, data: bytes) -> list[dict[str, Any]]:
        """Verify what was written; return the records."""
        self.assertEqual([], log_defects(data))
        return [json.loads(line) for line in data.splitlines()]

    def named(self, records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        """Choose the records of an event."""
        return [each for each in records if each["event"]["name"] == name]

    def test_reader_stops(self) -> None:
        """
        The reader of a pipe stops reading: requests are answered as before, and the process drains in time.

        When it reads again, waiting lines are whole, then the number of missing lines is logged, then the log
        continues.
        """
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.addCleanup(os.close, reader)
        process = self.launch(stdout=writer, stderr=subprocess.DEVNULL)
        os.close(writer)
        count = 2600
        # Records that wait for the reader wait for ever.
        self.assertLess(self.serve(count), 20)
        self.assertTrue(self.proxy.is_ready())
        data = b""
        while b"svc.runtime.logs_dropped" not in data:
            data += os.read(reader, 65536)
        self.serve(1)
        process.send_signal(signal.SIGTERM)
        while piece := os.read(reader, 65536):
            data += piece
        self.assertEqual(0, process.wait(60))
        records = self.records(data)
        served = len(self.named(records, "svc.proxy.request.served"))
        [dropped] = self.named(records, "svc.runtime.logs_dropped")
        self.assertEqual(count + 1, served + dropped["attributes"]["count"])
        self.assertGreater(dropped["attributes"]["count"], 100)
        self.assertEqual("svc.process.stopped", self.named(records, "svc.process.stopped")[0]["event"]["name"])

    def test_reader_never_comes_back(self) -> None:
        """A pipe that stays full, and one whose reader is gone, keep no process from its end."""
        for gone in (False, True):
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            process = self.launch(stdout=writer, stderr=subprocess.DEVNULL)
            os.close(writer)
            if gone:
                os.close(reader)
            self.serve(30)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            self.assertEqual(0, process.wait(60))
            self.assertLess(time.monotonic() - began, 45)
            if not gone:
                os.close(reader)

    def test_no_room(self) -> None:
        """A log file that cannot grow blocks no caller; with room again every line is there, and none is cut."""
        with self.proxy.log_path.open("wb") as log:
            process = self.launch(stdout=log, stderr=subprocess.DEVNULL)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (self.proxy.log_path.stat().st_size + 1000, hard))
        self.assertLess(self.serve(20), 20)
        before = self.proxy.log_path.stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        eventually(lambda: len(self.proxy.records("svc.proxy.request.served")) == 20, 60, "every line")
        self.assertGreater(self.proxy.log_path.stat().st_size, before)

    def test_others_write(self) -> None:
        """Everything printed, warned, logged or raised is a record; output written past Python goes to stderr."""
        python, _flag, _run, *rest = self.proxy.command()
        with self.proxy.log_path.open("wb") as log, self.proxy.error_path.open("wb") as errors:
            process = self.launch([python, "-c", CARELESS, *rest], stdout=log, stderr=errors)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(60))
        # The rig would validate the first line too, whose printing cannot be prevented.
        self.proxy.process = None
        first, _, data = self.proxy.log_path.read_bytes().partition(b"\n")
        self.assertEqual(b"printed before anything runs", first)
        logged = [each["message"] for each in self.records(data)]
        for text in ("printed in pieces", "two", "lines", "logged", "ZeroDivisionError: division by zero"):
            self.assertIn(text, logged)
        self.assertIn("warned", "\n".join(logged))
        kinds = {each.get("attributes", {}).get("exception.type") for each in self.records(data)}
        self.assertIn("KeyError", kinds)
        self.assertEqual("written past Python\n" * 2, self.proxy.errors)

    def test_closed(self) -> None:
        """Without any standard stream it serves; no file that it opens gets their numbers."""
        process = self.launch(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *self.proxy.command()])
        self.serve(1)
        links = {number: os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)}
        self.assertEqual({0: "/dev/null", 1: "/dev/null", 2: "/dev/null"}, links)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(60))

    def test_daemon(self) -> None:
        """A daemon logs to its file, in the same records, before and after it has forked."""
        log = self.proxy.folder / "daemon.log"
        pid = self.proxy.folder / "daemon.pid"
        options = [f"--pidfile={pid}", f"--logfile={log}"]
        self.proxy.write_config()
        command = [*twistd(), *options, *self.proxy.arguments()]
        ran = subprocess.run(
            command, cwd=self.proxy.folder, env=environment(), capture_output=True, timeout=180, check=False
        )
        self.assertEqual((0, b"", b""), (ran.returncode, ran.stdout, ran.stderr))
        eventually(self.proxy.is_ready, 60, "readiness")
        number = int(pid.read_text())
        self.serve(1)
        os.kill(number, signal.SIGTERM)
        eventually(lambda: not runs(number), 60, "its end")
        names = [each["event"]["name"] for each in self.records(log.read_bytes())]
        self.assertEqual(1, names.count("svc.process.started"))
        self.assertEqual(1, names.count("svc.process.stopped"))
