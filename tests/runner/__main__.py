"""``python -m tests.runner``, which ``bin/test`` calls."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.runner import leftovers, selection
from tests.runner.pool import LONG_MODULE_TIMEOUT, MODULE_TIMEOUT, Pool
from tests.runner.report import Report
from tests.runner.worker import FAST

LONG = "SVC_TEST_LONG"


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/test", description="Run the tests; the last line is 'N passed, N failed'.", allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a package, module, class or test, as tests.proxy")
    parser.add_argument("--changed", action="store_true", help="only modules that what has changed can break")
    parser.add_argument("--since", metavar="COMMIT", help="what --changed compares with (default: HEAD)")
    parser.add_argument("--long", action="store_true", help="crash, soak and hunt loops in their whole length")
    parser.add_argument(
        "--fast", action="store_true", help="only tests that start no process, by their folders; a start fails"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the modules and run nothing")
    parser.add_argument("-j", dest="processes", type=int, default=4, metavar="N", help="processes (default: 4)")
    parser.add_argument("--slowest", type=int, default=10, metavar="N", help="slow tests to name (default: 10)")
    found = parser.parse_args(given)
    if found.fast and found.long:
        parser.error("--fast and --long exclude each other")
    if found.processes < 1:
        parser.error(f"-j {found.processes}: at least one process is needed")
    return found


class _Tools:
    """Programs that are built where they are missing, beside the tests that do not need them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def build(self, names: Sequence[str]) -> None:
        """Begin to build tools."""
        self._process = subprocess.Popen(
            ["nice", _COMMAND, *names], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def wait_for(self, module: str) -> None:
        """Wait for the tools of a module; without them its tests say what is missing."""
        process = self._process
        if process is not None:
            while process.poll() is None and not all(map(_there, selection.tools_of(module))):
                time.sleep(1.0)


_COMMAND = str(selection.TOP / "bin" / "tools")


def _there(name: str) -> bool:
    return subprocess.run([_COMMAND, "--check", name], capture_output=True).returncode == 0


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
    if arguments.fast:
        modules = [each for each in modules if not selection.starts_processes(each)]
    if not modules:
        print(f"nothing has changed since {arguments.since or 'HEAD'}")
        return 0
    if arguments.list:
        print("\n".join(modules))
        return 0
    tools = _Tools()
    report = Report(sys.stdout, skips_fail=os.environ.get("CI") == "true", slowest=arguments.slowest)
    pool = Pool(
        arguments.processes,
        report.add,
        tools.wait_for,
        timeout=LONG_MODULE_TIMEOUT if arguments.long else MODULE_TIMEOUT,
        environment={LONG: "1"} if arguments.long else {FAST: "1"} if arguments.fast else None,
    )
    # A fast run starts no process, so no tool either.
    if not arguments.fast:
        modules, missing = selection.plan(modules, _there)
        if missing:
            tools.build(missing)
    before = leftovers.untracked(selection.TOP)
    try:
        pool.run(modules)
    except KeyboardInterrupt:
        report.close()
        return 128 + signal.SIGINT
    if left := leftovers.failure(before, leftovers.untracked(selection.TOP)):
        report.add(left)
    return 0 if report.close() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
