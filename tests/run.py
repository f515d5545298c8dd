"""
Runs the tests with trial and says how many passed and failed; ``bin/test`` calls it.

Units run in two processes, integration tests one after the other, since they start servers and count on time. What
trial says is passed through; the last line is ``N passed, N failed``. A skipped test is one line with its reason; with
``CI=true`` it counts as failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
_COUNT = re.compile(r"(successes|failures|errors|skips|expectedFailures|unexpectedSuccesses)=(\d+)")


@dataclass
class Tally:
    """What a run of trial came to."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Tally) -> None:
        """Add another run."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def units() -> list[str]:
    """Name everything that needs no server."""
    names = [f"tests.{each.stem}" for each in sorted(TESTS.glob("test_*.py"))]
    for folder in sorted(TESTS.iterdir()):
        if folder.name != "integration" and any(folder.glob("test_*.py")):
            names.append(f"tests.{folder.name}")
    return names


def run(names: list[str], *options: str) -> Tally:
    """Run trial once and read its summary."""
    with tempfile.TemporaryDirectory(prefix="svc-tests-") as folder:
        return _run(names, options, folder)


def _run(names: list[str], options: tuple[str, ...], folder: str) -> Tally:
    command = [sys.executable, "-m", "twisted.trial", f"--temp-directory={folder}/trial", *options, *names]
    print(f"--- {' '.join(names)}", flush=True)
    process = subprocess.Popen(command, cwd=TESTS.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    summary = ""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(("PASSED", "FAILED")):
            summary = line
        if not line.rstrip().endswith("[OK]"):
            print(line, end="", flush=True)
    process.wait()
    counts = {name: int(number) for name, number in _COUNT.findall(summary)}
    failed = counts.get("failures", 0) + counts.get("errors", 0) + counts.get("unexpectedSuccesses", 0)
    if process.returncode != 0 and failed == 0:
        failed = 1
    if not summary:
        failed = max(failed, 1)
    return Tally(counts.get("successes", 0) + counts.get("expectedFailures", 0), failed, counts.get("skips", 0))


def main(arguments: list[str]) -> int:
    """Run what is named, or everything."""
    total = Tally()
    if arguments:
        total.add(run(arguments))
    else:
        total.add(run(units(), "-j2"))
        total.add(run(["tests.integration"]))
    if total.skipped and os.environ.get("CI") == "true":
        print(f"{total.skipped} tests were skipped, which counts as failed here")
        total.failed += total.skipped
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
