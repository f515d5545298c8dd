"""
Where the CPU time of a request goes: by part (kernel, OpenSSL, llhttp, interpreter) and by function.

The parts come from samples of ``perf`` where it is installed and allowed, else the kernel's share comes from the clocks
of the process. The functions come from cProfile in a second process: counts are exact, shares are rough, since the
profiler costs most where functions are small. Uses the command lines of these tools and no configuration.
"""

from __future__ import annotations

import pstats
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.configurations import SMALL, SMALL_SIZE
from benchmarks.load import Load, LoadGenerator, Result
from benchmarks.peers import Device, Stage

_SECONDS: Final = 4.0
_LOAD: Final = Load(SMALL, 32, SMALL_SIZE, _SECONDS)
_LEVEL: Final = "workload"
_FUNCTIONS: Final = 30
#: Parts by what the name of the program or library begins with; the first that fits counts.
_PARTS: Final = (
    ("[kernel", "kernel"),
    ("[vdso", "kernel"),
    ("_rust", "OpenSSL"),
    ("libssl", "OpenSSL"),
    ("libcrypto", "OpenSSL"),
    ("parser.", "llhttp and httptools"),
    ("_cffi", "cffi"),
    ("libc", "C library"),
    ("python", "interpreter"),
    ("libpython", "interpreter"),
)
_SHARE: Final = re.compile(r"\s*([0-9.]+)%\s+(\S+)")


class Profile:
    """
    One run.

    Args:
        stage: starts the proxy.
        load: the load generator.
        folder: where results of the tools are written.
        say: prints progress.
    """

    def __init__(self, stage: Stage, load: LoadGenerator, folder: Path, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._load = load
        self._folder = folder
        self._say = say

    def run(self) -> str:
        """
        Measure one level of the proxy.

        Returns:
            Both tables.
        """
        self._say("parts")
        device = self._stage.proxy()[_LEVEL]
        lines = self._parts(device)
        self._stage.end(device)
        self._say("functions")
        return "\n".join([*lines, "", *self._functions()])

    def _parts(self, device: Device) -> list[str]:
        before = _kernel_seconds(device.pid)
        result, shares = self._sampled(device)
        request = result.cpu / result.answers * 1e6
        if shares is None:
            # The clocks also count what was answered before the counted time.
            kernel = (_kernel_seconds(device.pid) - before) / result.cpu * result.seconds / (_LOAD.warm + _SECONDS)
            shares = {"kernel": kernel, "everything else": 1 - kernel}
        lines = [f"HTTP inbound, level {_LEVEL}: {request:.1f} us CPU/request, of which"]
        lines += [
            f"{share * request:8.1f} us  {share:5.1%}  {part}"
            for part, share in sorted(shares.items(), key=lambda item: -item[1])
            if share >= 0.001
        ]
        return lines

    def _sampled(self, device: Device) -> tuple[Result, dict[str, float] | None]:
        """Load the proxy, and sample it where that is possible."""
        perf = shutil.which("perf")
        if perf is None:
            return self._load.run(_LOAD, device), None
        samples = self._folder / "perf.data"
        command = [perf, "record", "-e", "cpu-clock", "-F", "1999", "-p", str(device.pid), "-o", str(samples)]
        # It ends with its child, in the middle of the load, which begins a little before.
        command += ["--", "sleep", str(_SECONDS - 1)]
        sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        result = self._load.run(_LOAD, device)
        if sampler.wait() != 0:
            return result, None
        command = [perf, "report", "-i", str(samples), "--stdio", "--sort", "dso"]
        report = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return result, _by_part(report.stdout) or None

    def _functions(self) -> list[str]:
        file = self._folder / "functions.pstats"
        options = ["--profile", str(file), "--profiler", "cprofile", "--savestats"]
        device = self._stage.proxy(options=options)[_LEVEL]
        result = self._load.run(_LOAD, device)
        # Also those of the warm-up, which is not counted.
        requests = result.answers * (_LOAD.warm + _SECONDS) / result.seconds
        self._stage.end(device)
        statistics = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]  # in no stub, and in every release
        total = sum(own for _, _, own, _, _ in statistics.values()) - _waiting(statistics)
        rows = sorted(((own, calls, where) for where, (_, calls, own, _, _) in statistics.items()), reverse=True)
        rows = [row for row in rows if not _waits(row[2])]
        calls = sum(calls for _, calls, _ in rows) / requests
        lines = [f"functions by their own time, {calls:.0f} calls a request; shares under cProfile are rough"]
        lines += [
            f"{own / total:7.1%} {calls / requests:6.2f} calls/request  {_named(where)}"
            for own, calls, where in rows[:_FUNCTIONS]
        ]
        return lines


Where = tuple[str, int, str]


def _by_part(report: str) -> dict[str, float]:
    """Read the report of ``perf`` by library."""
    shares: dict[str, float] = defaultdict(float)
    for line in report.splitlines():
        found = _SHARE.match(line)
        if found is not None:
            name = found[2]
            part = next((part for start, part in _PARTS if name.startswith(start)), name)
            shares[part] += float(found[1]) / 100
    return dict(shares)


def _kernel_seconds(pid: int) -> float:
    """The CPU time that a process spent in the kernel, of the clock that ticks a hundred times a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[12]) / 100


def _waits(where: Where) -> bool:
    return where[0] == "~" and ("'poll' of 'select.epoll'" in where[2] or "acquire" in where[2])


def _waiting(statistics: dict[Where, tuple[int, int, float, float, object]]) -> float:
    return sum(own for where, (_, _, own, _, _) in statistics.items() if _waits(where))


def _named(where: Where) -> str:
    file, line, function = where
    if file == "~":
        return function
    parts = Path(file).parts
    for top in ("svc", "twisted"):
        if top in parts:
            return f"{'/'.join(parts[len(parts) - parts[::-1].index(top) - 1 :])}:{line} {function}"
    return f"{Path(file).name}:{line} {function}"
