"""``python -m tests.runner``, which ``bin/test`` calls."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.runner import selection
from tests.runner.pool import LONG_MODULE_TIMEOUT, MODULE_TIMEOUT, Pool
from tests.runner.report import Report

LONG = "SVC_TEST_LONG"


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/test", description="Run the tests; the last line is 'N passed, N failed'.", allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a package, module, class or test, as tests.proxy")
    parser.add_argument("--changed", action="store_true", help="only modules that what has changed can break")
    parser.add_argument("--since", metavar="COMMIT", help="what --changed compares with (default: HEAD)")
    parser.add_argument("--long", action="store_true", help="crash, soak and hunt loops in their whole length")
    parser.add_argument("--list", action="store_true", help="print the names of the modules and run nothing")
    parser.add_argument("-j", dest="processes", type=int, default=4, metavar="N", help="processes (default: 4)")
    parser.add_argument("--slowest", type=int, default=10, metavar="N", help="slow tests to name (default: 10)")
    found = parser.parse_args(given)
    if found.processes < 1:
        parser.error(f"-j {found.processes}: at least one process is needed")
    return found


class _Spire:
    """A real SPIRE, which is built where it is missing, beside the tests that do not need it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def build(self) -> bool:
        """Begin to build it; false where it is there already."""
        tools = str(selection.TOP / "bin" / "tools")
        if subprocess.run([tools, "--check", "spire"], capture_output=True).returncode == 0:
            return False
        self._process = subprocess.Popen(["nice", tools, "spire"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return True

    def wait_for(self, module: str) -> None:
        """Wait for the end of the build where a module needs it; without SPIRE its tests say what is missing."""
        if self._process is not None and selection.needs_spire(module):
            self._process.wait()


def main(given: Sequence[str]) -> int:
    """Run what is asked for; gives the exit status."""
    arguments = _arguments(given)
    modules = selection.all_modules()
    try:
        if arguments.changed or arguments.since:
            modules = selection.changed(arguments.since or "HEAD", modules)
        if arguments.names:
            modules = selection.named(arguments.names, modules)
    except ValueError as error:
        print(f"bin/test: {error}", file=sys.stderr)
        return 2
    if not modules:
        print(f"nothing has changed since {arguments.since or 'HEAD'}")
        return 0
    if arguments.list:
        print("\n".join(modules))
        return 0
    spire = _Spire()
    report = Report(sys.stdout, skips_fail=os.environ.get("CI") == "true", slowest=arguments.slowest)
    pool = Pool(
        arguments.processes,
        report.add,
        spire.wait_for,
        timeout=LONG_MODULE_TIMEOUT if arguments.long else MODULE_TIMEOUT,
        environment={LONG: "1"} if arguments.long else None,
    )
    late = [each for each in modules if selection.needs_spire(each)]
    if late and spire.build():
        modules = [each for each in modules if each not in late] + late
    try:
        pool.run(modules)
    except KeyboardInterrupt:
        report.close()
        return 128 + signal.SIGINT
    return 0 if report.close() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
