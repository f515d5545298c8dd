"""The worker processes: each takes the next module when it has finished one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.runner.report import Module
from tests.runner.worker import EVENTS

#: In seconds, for one module; a hanging one is ended then.
MODULE_TIMEOUT = 900.0
LONG_MODULE_TIMEOUT = 4 * 3600.0
#: Names the folder of Hypothesis, which is below the working directory otherwise; fuzzed processes inherit it.
_HYPOTHESIS = "HYPOTHESIS_STORAGE_DIRECTORY"


class Pool:
    """
    Runs modules in several processes.

    Args:
        processes: how many.
        report: called with each module that has ended, never twice at once.
        ready: called with a module before it runs; waits for what it needs.
        timeout: seconds that a module may take.
        environment: further variables of the processes.
    """

    def __init__(
        self,
        processes: int,
        report: Callable[[Module], None],
        ready: Callable[[str], None] = lambda _module: None,
        *,
        timeout: float = MODULE_TIMEOUT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._processes = processes
        self._report = report
        self._ready = ready
        self._timeout = timeout
        self._environment = {**os.environ, **(environment or {})}
        self._lock = threading.Lock()

    def run(self, modules: list[str]) -> None:
        """Run modules, in their order as far as several processes have one."""
        left = iter(modules)
        threads = [threading.Thread(target=self._work, args=(left,)) for _ in range(self._processes)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            # The processes of the workers have been interrupted as well; no new module is begun.
            with self._lock:
                for _module in left:
                    pass
            for thread in threads:
                thread.join()
            raise

    def _work(self, left: Iterator[str]) -> None:
        worker: _Worker | None = None
        with tempfile.TemporaryDirectory(prefix="svc-tests-") as folder:
            while (name := self._next(left)) is not None:
                self._ready(name)
                if worker is None:
                    worker = _Worker(Path(folder), self._timeout, self._environment)
                module = worker.run(name)
                if worker.ended:
                    worker.close()
                    worker = None
                with self._lock:
                    self._report(module)
            if worker is not None:
                worker.close()

    def _next(self, left: Iterator[str]) -> str | None:
        with self._lock:
            return next(left, None)


class _Worker:
    """One process of :mod:`tests.runner.worker`."""

    def __init__(self, folder: Path, timeout: float, environment: dict[str, str]) -> None:
        reader, writer = os.pipe()
        output = folder / "output"
        with output.open("wb") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.runner.worker", str(folder / "trial"), str(timeout)],
                env={**environment, EVENTS: str(writer), _HYPOTHESIS: str(folder / "hypothesis")},
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
            )
        self._output = output.open("rb")
        os.close(writer)
        self._events = os.fdopen(reader, "rb")
        self.ended = False

    def run(self, name: str) -> Module:
        """Run a module; where the process ends instead, that is a failure of the module."""
        module = Module(name)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n".encode())
        self._process.stdin.flush()
        for line in self._events:
            event = json.loads(line)
            if "module" in event:
                module.seconds = event["seconds"]
                break
            module.tests.append(event)
        else:
            self.ended = True
            module.failed("process", f"the process that ran it ended with status {self._process.wait()}")
        module.output = self._output.read().decode(errors="replace")
        return module

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._events.close()
        self._process.wait()
        self._output.close()
