"""
``bin/bench``: everything in one run, a table on standard output, progress on standard error.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from OpenSSL import SSL

from benchmarks import against, floods, policies, reauthorization
from benchmarks.brokers import Brokers
from benchmarks.extras import start as start_extras
from benchmarks.load import CLASSICAL, LoadGenerator
from benchmarks.measure import FULL, QUICK, Measurement
from benchmarks.mqtt import MQTT_FULL, MQTT_QUICK, MqttMeasurement
from benchmarks.mqttload import MqttLoadGenerator
from benchmarks.mqttproxy import MqttProxyMeasurement
from benchmarks.peers import Stage
from benchmarks.profile import Profile
from benchmarks.records import RecordMeasurement, picture
from benchmarks.rows import Row, table
from svc.errors import SvcError
from svc.transport.fast.selection import select_tcp, select_tls

#: Virtual environments of the peers of ``--all``.
_ENVIRONMENTS: Final = Path(__file__).resolve().parents[1] / "build" / "benchmarks"


def surroundings() -> dict[str, object]:
    """
    Say what the figures were taken with.

    Returns:
        Versions, the machine, and which transports ran.
    """
    return {
        "python": platform.python_version(),
        "openssl": SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode(),
        "transports": [select_tls().name, select_tcp().name],
        "haproxy": _first_line(["haproxy", "-v"]),
        "stunnel": _first_line(["stunnel4", "-version"]),
        "nginx": _first_line(["nginx", "-v"]),
        "caddy": _first_line(["caddy", "version"]),
        "mosquitto": _first_line(["mosquitto", "-h"]),
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
        prog="bin/bench",
        description="Measure the proxy, the MQTT broker and their peers in turn, in a run of about six minutes.",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: every row in half a minute, rough figures")
    parser.add_argument("--mqtt", action="store_true", help="the rows of MQTT only, in about a minute and a half")
    parser.add_argument("--records", action="store_true", help="the rows of records only, in about a minute and a half")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="also draw the rows of records, as SVG")
    parser.add_argument("--all", action="store_true", help="also aiohttp, mitmproxy and amqtt, from PyPI")
    parser.add_argument("--profile", action="store_true", help="show where the time of a request goes, nothing else")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows and the surroundings to a file")
    parser.add_argument(
        "--against", metavar="COMMIT", help="measure another tree in turn with this one, and show changes"
    )
    parser.add_argument("--pairs", metavar="N", type=int, default=3, help="of --against: how often both (default: 3)")
    options = parser.parse_args(arguments)
    if options.against and (options.profile or options.picture or options.json or options.pairs < 1):
        parser.error("--against takes none of --profile, --picture and --json, and at least one pair")
    return options


def _show(rows: list[Row], around: dict[str, object], file: Path | None) -> None:
    print(table(rows))
    if file is not None:
        document = {"rows": [row.as_json() for row in rows], "surroundings": around}
        file.write_text(json.dumps(document, indent=1) + "\n")


def _prepared(stage: Stage, say: Callable[[str], None]) -> LoadGenerator:
    say("starting an authority and nginx")
    stage.start()
    return LoadGenerator.build(stage.folder, stage.credentials)


def _http(stage: Stage, brokers: Brokers, options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    load = _prepared(stage, say)
    extras = partial(start_extras, stage, _ENVIRONMENTS, say) if options.all else list
    extent = QUICK if options.quick else FULL
    rows = Measurement(stage, load, extent, say, extras).run()
    say(f"changes of policies with {extent.reauthorized} open connections")
    rows += reauthorization.rows(stage, load, extent.rounds, extent.reauthorized)
    say("floods")
    rows += floods.rows(stage, brokers, extent.rounds, extent.seconds)
    brokers.stop()
    return [*rows, *policies.rows(extent.rounds, 60_000)]


def _records(stage: Stage, options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    load = _prepared(stage, say)
    extent = QUICK if options.quick else FULL
    records = RecordMeasurement(load, extent.seconds, extent.warm)
    proxy = stage.proxy()
    for number in range(extent.rounds):
        say(f"round {number + 1} of {extent.rounds}")
        records.round(proxy)
    return [*records.rows(), records.disk(stage)]


def _mqtt(stage: Stage, brokers: Brokers, options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    extent = MQTT_QUICK if options.quick else MQTT_FULL
    environments = _ENVIRONMENTS if options.all else None
    load = MqttLoadGenerator(stage.folder, stage.credentials)
    rows = MqttMeasurement(brokers, load, extent, say, environments).run()
    brokers.stop()
    say("starting an authority")
    stage.start_authority()
    return [*rows, *MqttProxyMeasurement(stage, brokers, load, extent, say).run()]


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
        print(f"bench {time.monotonic() - began:5.1f} s  {text}", file=sys.stderr, flush=True)

    _allow_many_files()
    folder = Path(tempfile.mkdtemp(prefix="svc-bench-"))
    # The brokers have the machine, and then a stage of their own.
    stages, brokers = [Stage(folder / name) for name in ("http", "mqtt")], Brokers(folder)
    around = surroundings()
    try:
        if options.against:
            given = [f"--{name}" for name in ("quick", "mqtt", "records", "all") if getattr(options, name)]
            print(against.changes(against.compare(options.against, options.pairs, given, folder, say)))
        elif options.profile:
            print(Profile(stages[0], _prepared(stages[0], say), folder, say).run())
        else:
            rows = []
            if options.records:
                rows += _records(stages[0], options, say)
            elif not options.mqtt:
                rows += _http(stages[0], brokers, options, say)
            stages[0].stop()
            if not options.records:
                rows += _mqtt(stages[1], brokers, options, say)
            _show(rows, around, options.json)
            if options.picture is not None:
                options.picture.write_text(picture(rows))
    except SvcError as error:
        print(f"bench: {error}", file=sys.stderr)
        print(f"       {error.hint or f'the logs are in {folder}'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 1
    finally:
        for stage in stages:
            stage.stop()
        brokers.stop()
    shutil.rmtree(folder, ignore_errors=True)
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
