"""
``bin/benchmark``: everything in one run, a table and JSON rows on standard output, progress on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from OpenSSL import SSL

from benchmarks.load import CLASSICAL, LoadGenerator
from benchmarks.measure import FULL, QUICK, Measurement
from benchmarks.peers import Stage
from benchmarks.rows import Row, table
from svc.errors import SvcError
from svc.transport.selection import choose_tls_protocol, choose_transports

_BUILD: Final = Path(__file__).resolve().parents[1] / "build" / "benchmarks"


def surroundings() -> dict[str, object]:
    """
    Say what the figures were taken with.

    Returns:
        Versions, the machine, and which transports ran.
    """
    return {
        "python": platform.python_version(),
        "openssl": SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode(),
        "transports": [choose_tls_protocol().selected, choose_transports().selected],
        "haproxy": _first_line(["haproxy", "-v"]),
        "nginx": _first_line(["nginx", "-v"]),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "group": CLASSICAL,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _first_line(command: list[str]) -> str:
    path = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        return "absent"
    done = subprocess.run([path, *command[1:]], check=False, capture_output=True, text=True)
    return ((done.stdout or done.stderr).splitlines() or [""])[0]


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/benchmark",
        description="Measure the HTTP proxy and its peers in turn, in one run of about three minutes.",
    )
    parser.add_argument("--quick", action="store_true", help="one minute: fewer and shorter rounds")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows and the surroundings to a file")
    return parser.parse_args(arguments)


def _show(rows: list[Row], around: dict[str, object], file: Path | None) -> None:
    print(table(rows))
    print()
    for row in rows:
        print(json.dumps(row.as_json()))
    if file is not None:
        document = {"surroundings": around, "rows": [row.as_json() for row in rows]}
        file.write_text(json.dumps(document, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """
    Run the benchmark.

    Args:
        arguments: the command line without the program.

    Returns:
        The exit status: 0 when everything was measured, whatever the figures.
    """
    options = _options(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"benchmark {time.monotonic() - began:5.1f} s  {text}", file=sys.stderr, flush=True)

    _allow_many_files()
    folder = Path(tempfile.mkdtemp(prefix="svc-bench-"))
    stage = Stage(folder)
    around = surroundings()
    try:
        say("starting an authority and nginx")
        stage.start()
        load = LoadGenerator.build(_BUILD, stage.credentials)
        rows = Measurement(stage, load, QUICK if options.quick else FULL, say).run()
    except SvcError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        print(f"           {error.advice() or f'the logs are in {folder}'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmark: interrupted", file=sys.stderr)
        return 1
    finally:
        stage.stop()
    shutil.rmtree(folder, ignore_errors=True)
    say("done")
    _show(rows, around, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
