"""
A process that runs test modules one after the other: ``python -m tests.runner.worker FOLDER SECONDS``.

Names of modules are read line by line from standard input. What happens is written as lines of JSON to the descriptor
that ``SVC_TEST_EVENTS`` names: ``{"test", "result", "seconds", "detail"}`` for each test that has ended, and
``{"module", "seconds"}`` for each module.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from typing import Any
from unittest import TestResult, TestSuite

from hypothesis import HealthCheck, settings
from twisted.trial.reporter import Reporter
from twisted.trial.runner import TestLoader, TrialRunner

from tests.peers.folders import begin_test, written_logs
from tests.peers.waiting import Shared

EVENTS = "SVC_TEST_EVENTS"
FAST = "SVC_TEST_FAST"
#: What starts a process, as the interpreter's audit hooks name it (PEP 578).
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"})


class JsonReporter(Reporter):
    """Writes one event for each test."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._began = 0.0
        self._result, self._detail = "passed", ""

    def startTest(self, test: Any) -> None:
        """Note when it begins."""
        super().startTest(test)
        begin_test()
        self._began = time.monotonic()
        self._result, self._detail = "passed", ""

    def addFailure(self, test: Any, fail: Any) -> None:
        """An assertion does not hold."""
        super().addFailure(test, fail)
        self._failed(fail)

    def addError(self, test: Any, error: Any) -> None:
        """An error; a module that cannot be imported is a test that fails so."""
        super().addError(test, error)
        self._failed(error)

    def addSkip(self, test: Any, reason: Any) -> None:
        """Something is missing."""
        super().addSkip(test, reason)
        self._result, self._detail = "skipped", str(reason)

    def addUnexpectedSuccess(self, test: Any, todo: Any = None) -> None:
        """A test that was to fail does not."""
        super().addUnexpectedSuccess(test, todo)
        self._result, self._detail = "failed", "it was expected to fail"

    def stopTest(self, test: Any) -> None:
        """Report it."""
        super().stopTest(test)
        seconds = time.monotonic() - self._began
        emit(test=test.id(), result=self._result, seconds=seconds, detail=self._detail)

    def done(self) -> None:
        """Print no summary."""

    def _failed(self, failure: Any) -> None:
        self._result = "failed"
        self._detail += self._getFailure(failure).getTraceback() + _logs()


class _Modules(TestSuite):
    """The modules that are ordered while it runs."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def run(self, result: TestResult, debug: bool = False) -> TestResult:
        """Run each module when it is ordered."""
        for line in sys.stdin:
            name = line.strip()
            began = time.monotonic()
            # A module that hangs ends the process, with the stack of each thread on standard error.
            faulthandler.dump_traceback_later(self._seconds, exit=True)
            TestLoader().loadByName(name).run(result)
            faulthandler.cancel_dump_traceback_later()
            emit(module=name, seconds=time.monotonic() - began)
        Shared.end()
        return result


def emit(**event: object) -> None:
    """Write an event."""
    os.write(int(os.environ[EVENTS]), json.dumps(event).encode() + b"\n")


def _logs() -> str:
    return "".join(f"\n--- {path.parent.name}/{path.name}\n{text}" for path, text in written_logs())


def refuse_processes(event: str, _arguments: object) -> None:
    """An audit hook that makes each start of a process fail."""
    if event in _STARTS:
        raise AssertionError(
            f"a fast test starts a process ({event}): it belongs in tests/programs or tests/integration"
        )


def main(folder: str, seconds: str) -> None:
    """Run modules until standard input ends."""
    if os.environ.get(FAST):
        sys.addaudithook(refuse_processes)
    # A shell starts what runs in the background with SIGINT ignored, which every process of a test inherits.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes says how busy the machine is, and nothing of the code.
    settings.register_profile("runner", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.load_profile("runner")
    with open(os.devnull, "w") as stream:
        runner = TrialRunner(JsonReporter, stream=stream, workingDirectory=folder)
        runner.run(_Modules(float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
