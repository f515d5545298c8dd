"""The state file of the quickstart, and its errors about processes that do not start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import cast

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.quickstart.processes import Machine, Running, State
from tests.refusals import assert_refused


class FakeMachine(Machine):
    """A machine with the processes of a test; some do not end when asked."""

    patience = 0.0

    def __init__(self, **started: str) -> None:
        self.running = {int(pid[1:]): time for pid, time in started.items()}
        self.stubborn: set[int] = set()
        self.sent: list[tuple[int, signal.Signals]] = []

    def started(self, pid: int) -> str | None:
        """As the test said."""
        return self.running.get(pid)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """End it."""
        self.sent.append((pid, number))
        if number is signal.SIGKILL or pid not in self.stubborn:
            del self.running[pid]


class FakeProcess:
    """A process that has ended, or not."""

    def __init__(self, pid: int, status: int | None = None) -> None:
        self.pid = pid
        self._status = status

    def poll(self) -> int | None:
        """Its status."""
        return self._status


def running(name: str, pid: int, log: Path = Path("/proc/nonexistent"), status: int | None = None) -> Running:
    """A started process."""
    return Running(name, cast("subprocess.Popen[bytes]", FakeProcess(pid, status)), log)


class StateTests(SynchronousTestCase):
    """The file between two runs."""

    def setUp(self) -> None:
        """Three processes, two of them ours."""
        self.path = Path(self.mktemp()) / "folder" / "state.json"
        self.machine = FakeMachine(p10="100", p11="110", p12="120")
        self.state = State(self.path, self.machine)

    def keep(self, *processes: tuple[str, int]) -> None:
        """Write down."""
        self.state.keep(Path("/logs"), [running(name, pid) for name, pid in processes])

    def test_nothing(self) -> None:
        """Without a file nothing runs."""
        self.assertEqual(self.state.stop(), [])

    def test_last_first(self) -> None:
        """What was started last ends first; the file is gone then, and no other process is touched."""
        self.keep(("authority", 10), ("proxy", 11))
        self.assertEqual(self.state.stop(), ["proxy", "authority"])
        self.assertEqual(self.machine.sent, [(11, signal.SIGTERM), (10, signal.SIGTERM)])
        self.assertEqual((list(self.machine.running), self.path.exists()), ([12], False))
        self.assertEqual(self.state.stop(), [])

    def test_file(self) -> None:
        """The file says where the logs are."""
        self.keep(("proxy", 11))
        self.assertEqual(
            json.loads(self.path.read_text()),
            {"folder": "/logs", "processes": [{"name": "proxy", "pid": 11, "started": "110"}]},
        )

    def test_number_used_again(self) -> None:
        """A later process with the number of one of ours is not ours."""
        self.keep(("authority", 10), ("proxy", 11))
        self.machine.running[11] = "999"
        self.assertEqual(self.state.stop(), ["authority"])
        self.assertEqual(self.machine.sent, [(10, signal.SIGTERM)])

    def test_gone(self) -> None:
        """A process that is gone needs no end, also one that was gone when it was written down."""
        self.keep(("authority", 10), ("proxy", 13))
        del self.machine.running[10]
        self.assertEqual((self.state.stop(), self.machine.sent), ([], []))
        self.assertFalse(self.path.exists())

    def test_does_not_end(self) -> None:
        """A process that does not end when asked is ended by force."""
        self.keep(("authority", 10), ("proxy", 11))
        self.machine.stubborn = {10}
        self.assertEqual(self.state.stop(), ["proxy", "authority"])
        self.assertEqual(self.machine.sent[2:], [(10, signal.SIGKILL)])
        self.assertNotIn(10, self.machine.running)

    def test_second_run(self) -> None:
        """What an earlier run left and still runs stays written down beside the new one."""
        self.keep(("authority", 10), ("proxy", 11))
        del self.machine.running[10]
        self.keep(("proxy", 12))
        self.assertEqual(self.state.stop(), ["proxy", "proxy"])
        self.assertEqual(self.machine.sent, [(12, signal.SIGTERM), (11, signal.SIGTERM)])

    def test_malformed_file(self) -> None:
        """A file of another format is an error; it stays unchanged and no process is stopped."""
        self.path.parent.mkdir(parents=True)
        for text in ("", "{", "[]", "{}", '{"processes": 1}', '{"processes": [{"pid": 10}]}', '{"processes": [1]}'):
            self.path.write_text(text)
            assert_refused(self, "state_unreadable", self.state.stop)
            assert_refused(self, "state_unreadable", self.keep, ("proxy", 11))
            self.assertEqual((self.machine.sent, self.path.read_text()), ([], text))


class MachineTests(SynchronousTestCase):
    """The processes of this machine."""

    def test_started(self) -> None:
        """A running process has one start time; an unused number has none."""
        machine = Machine()
        own = machine.started(os.getpid())
        assert own is not None
        self.assertEqual(own, machine.started(os.getpid()))
        self.assertTrue(own.isdigit())
        self.assertIsNone(machine.started(2**22 + 1))

    def test_signal(self) -> None:
        """A running process receives the signal; a process that has ended is no error."""
        got: list[int] = []
        self.addCleanup(
            signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
        )
        machine = Machine()
        for pid in (2**22 + 1, os.getpid()):
            machine.signal(pid, signal.SIGUSR1)
        self.assertEqual([signal.SIGUSR1], got)


class RunningTests(SynchronousTestCase):
    """A process that does not get ready."""

    def setUp(self) -> None:
        """A log."""
        self.log = Path(self.mktemp())
        self.log.write_text("")

    def ended(self, *lines: str) -> SvcError:
        """The error of a process that wrote these lines and ended."""
        self.log.write_text("\n".join(lines))
        process = running("proxy", 1, self.log, status=1)
        return assert_refused(self, "process_ended", process.wait_until, lambda: False, 10.0)

    def test_ready(self) -> None:
        """A ready process is checked once, whether or not it has ended or the time has passed."""
        for process, seconds in (
            (running("proxy", 1, self.log, status=1), 10.0),
            (running("proxy", 1, self.log), -1.0),
        ):
            answers = [True]
            process.wait_until(answers.pop, seconds)
            self.assertEqual([], answers)

    def test_ended(self) -> None:
        """The error contains name, status and the last line of the log; the hint names the log."""
        error = self.ended("first", "Traceback", "ValueError: no")
        self.assertEqual(str(error), "proxy ended with status 1: ValueError: no")
        self.assertEqual(error.hint, f"the whole log is in {self.log}")

    def test_not_ready(self) -> None:
        """A process that runs and is not ready in time is an error of its own."""
        process = running("proxy", 1, self.log)
        error = assert_refused(self, "not_ready", process.wait_until, lambda: False, -1.0)
        self.assertEqual(str(error), "proxy was not ready within -1.0 s: it wrote nothing")

    def test_last_error_of_a_record(self) -> None:
        """Of records the last error counts, by its detail or its message; what comes after it does not."""
        records = [
            {"severity": "ERROR", "message": "old"},
            {"severity": "ERROR", "message": "could not start", "detail": "look there"},
            {"severity": "INFO", "message": "stopped"},
        ]
        self.assertIn("look there", str(self.ended(*map(json.dumps, records))))
        self.assertIn(
            "could not start", str(self.ended(json.dumps({"severity": "FATAL", "message": "could not start"})))
        )

    def test_records_without_an_error(self) -> None:
        """Without an error record the last line is shown, truncated."""
        line = json.dumps({"severity": "INFO", "message": "x" * 400})
        self.assertEqual(self.ended(line, "").evidence["last"], line[:300])
        self.assertEqual(self.ended("[1]").evidence["last"], "[1]")
        self.assertEqual(self.ended("", "  ").evidence["last"], "it wrote nothing")

    def test_no_text(self) -> None:
        """A log that is not UTF-8 is shown with replacement characters."""
        self.log.write_bytes(b"caf\xe9")
        process = running("proxy", 1, self.log, status=-9)
        error = assert_refused(self, "process_ended", process.wait_until, lambda: False, 10.0)
        self.assertEqual(str(error), "proxy ended with status -9: caf\ufffd")
