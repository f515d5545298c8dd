"""What a run prints: a line for each module, failures as they come, the slowest tests, and the closing line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass
class Module:
    """What came of one module."""

    name: str
    seconds: float = 0.0
    tests: list[dict[str, Any]] = field(default_factory=list)
    #: What the process wrote to its standard streams meanwhile.
    output: str = ""

    def having(self, result: str) -> list[dict[str, Any]]:
        """The tests with a result: ``passed``, ``failed`` or ``skipped``."""
        return [each for each in self.tests if each["result"] == result]

    def failed(self, name: str, detail: str) -> None:
        """Add a failure that no test has reported."""
        self.tests.append({"test": f"{self.name}.{name}", "result": "failed", "seconds": 0.0, "detail": detail})


class Report:
    """
    Prints what happens and counts.

    Args:
        stream: takes the lines.
        skips_fail: whether a skipped test counts as failed.
        slowest: how many of the slowest tests are listed at the end.
    """

    def __init__(self, stream: TextIO, *, skips_fail: bool, slowest: int = 10) -> None:
        self._stream = stream
        self._skips_fail = skips_fail
        self._slowest = slowest
        self._tests: list[dict[str, Any]] = []

    def add(self, module: Module) -> None:
        """Print the line of a module, and the details of its failures."""
        self._tests += module.tests
        counts = [
            f"{len(found)} {result}" for result in ("passed", "failed", "skipped") if (found := module.having(result))
        ]
        self._print(f"{module.name:<56} {module.seconds:7.1f} s  {', '.join(counts) or 'no tests'}")
        for each in module.having("skipped"):
            self._print(f"  SKIPPED {each['test']}: {each['detail']}")
        for each in module.having("failed"):
            self._print(f"  FAILED {each['test']}\n{each['detail'].rstrip()}\n")
        if module.output.strip():
            self._print(f"  written by {module.name}:\n{module.output.rstrip()}\n")

    def close(self) -> bool:
        """Print the slowest tests and the closing line; true where there were tests and none failed."""
        results = [each["result"] for each in self._tests]
        passed, failed, skipped = (results.count(each) for each in ("passed", "failed", "skipped"))
        self._print("slowest:")
        for each in sorted(self._tests, key=lambda each: -each["seconds"])[: self._slowest]:
            self._print(f"  {each['seconds']:7.1f} s  {each['test']}")
        for each in self._tests:
            if each["result"] == "failed":
                self._print(f"FAILED {each['test']}")
        if skipped and self._skips_fail:
            self._print(f"{skipped} tests were skipped, which counts as failed here")
            failed += skipped
        elif skipped:
            self._print(f"{skipped} tests were skipped")
        self._print(f"{passed} passed, {failed} failed")
        return passed > 0 and failed == 0

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
