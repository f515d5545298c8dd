"""
What is measured, in rounds: every round measures every device once at everything, so that a busy minute of the machine
falls on all of them alike. Medians of the rounds make the rows.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.hybrid import GROUPS, connections
from benchmarks.load import Load, LoadGenerator, Result
from benchmarks.peers import BULK, LEVELS, SMALL, Device, Stage
from benchmarks.rows import Row, less_is_better, more_is_better

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Budgets in ms for what a level adds to the median time of a request.
_LEVEL_BUDGETS: Final = {"workload": 0.05, "logRequest": 0.3, "signRequest": 2.0}


@dataclass(frozen=True, slots=True)
class Extent:
    """
    How long a run takes.

    Args:
        rounds: how often everything is measured.
        seconds: how long each measurement counts.
        idle: how many idle connections memory is measured with.
    """

    rounds: int
    seconds: float
    idle: int


FULL: Final = Extent(rounds=5, seconds=1.5, idle=2000)
QUICK: Final = Extent(rounds=2, seconds=0.6, idle=500)


class Measurement:
    """
    One run.

    Args:
        stage: starts the devices.
        load: the load generator.
        extent: how long it takes.
        say: tells a person how far it is.
    """

    def __init__(self, stage: Stage, load: LoadGenerator, extent: Extent, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._load = load
        self._extent = extent
        self._say = say
        self._figures: dict[tuple[str, str], list[float]] = defaultdict(list)

    def run(self) -> list[Row]:
        """
        Measure everything.

        Returns:
            The rows.
        """
        memory = self._memory()
        haproxy, haproxy_out = self._stage.haproxy()
        ours = self._stage.proxy()
        web = self._stage.twisted_web()
        direct = Device("direct", self._stage.plain_port, ours["none"].pid, tls=False)
        for number in range(self._extent.rounds):
            self._say(f"round {number + 1} of {self._extent.rounds}")
            self._small([haproxy, ours["none"], ours["workload"], web, haproxy_out, ours["outbound"]])
            self._bulk([haproxy, ours["none"]])
            self._connects([haproxy, ours["none"]])
            self._single([direct, haproxy, *(ours[level] for level in LEVELS)])
            self._receipts(ours["signRequest"])
            for group in GROUPS:
                cost = connections(ours["none"], self._stage.credentials, group, self._extent.seconds)
                self._figures["key agreement", group].append(cost)
        return [*self._rows(), *memory]

    # -- One round -----------------------------------------------------------------------------------------------------

    def _measured(self, device: Device, load: Load) -> Result:
        return self._load.run(load, device.port, [device.pid])

    def _small(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._measured(device, Load(SMALL, 32, self._extent.seconds, tls=device.tls))
            self._figures["small", device.name].append(result.cpu / result.answers * 1e6)

    def _bulk(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._measured(device, Load(BULK, 4, self._extent.seconds))
            self._figures["bulk", device.name].append(result.octets / result.cpu / 1e6)

    def _connects(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._measured(device, Load(SMALL, 8, self._extent.seconds, mode="connects"))
            self._figures["connects", device.name].append(result.cpu / result.answers * 1e6)

    def _single(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._measured(device, Load(SMALL, 1, self._extent.seconds, tls=device.tls))
            self._figures["single", device.name].append(result.p50 * 1e3)

    def _receipts(self, device: Device) -> None:
        result = self._measured(device, Load(SMALL, 32, self._extent.seconds))
        self._figures["receipts", "cpu"].append(result.answers / result.cpu)
        self._figures["receipts", "wall"].append(result.answers / result.seconds)

    # -- Memory --------------------------------------------------------------------------------------------------------

    def _memory(self) -> list[Row]:
        """Idle connections and the process itself, each in a fresh process that has served a little."""
        self._say(f"memory with {self._extent.idle} idle connections")
        haproxy, ours = self._stage.haproxy()[0], self._stage.proxy()["none"]
        base = _resident(ours.pid) / 1e6
        sizes = [self._idle_size(device) / 1e3 for device in (ours, haproxy)]
        self._stage.end(haproxy)
        self._stage.end(ours)
        return [
            less_is_better("idle mTLS connection", "haproxy", sizes[:1], sizes[1:], "KB RSS", 0.56),
            less_is_better("the process at rest", "budget", [base], [60.0], "MB RSS", 1.0),
        ]

    def _idle_size(self, device: Device) -> float:
        self._load.run(Load(SMALL, 32, 0.5), device.port, [device.pid])
        before = _resident(device.pid)
        with self._load.idle(device.port, self._extent.idle):
            time.sleep(1.0)
            return (_resident(device.pid) - before) / self._extent.idle

    # -- The result ----------------------------------------------------------------------------------------------------

    def _of(self, what: str, name: str) -> list[float]:
        return self._figures[what, name]

    def _added(self, name: str, to: str) -> list[float]:
        """What a device adds to the median time of a request, in each round; at least a microsecond."""
        rounds = zip(self._of("single", name), self._of("single", to), strict=True)
        return [max(mine - other, 0.001) for mine, other in rounds]

    def _rows(self) -> list[Row]:
        request, connection = "us CPU/request", "us CPU/connection"
        small, bulk, connects = (lambda name, what=what: self._of(what, name) for what in ("small", "bulk", "connects"))
        none = "ours, none"
        rows = [
            less_is_better("HTTP inbound, none", "haproxy", small(none), small("haproxy"), request, 0.33),
            less_is_better(
                "HTTP inbound, workload", "haproxy", small("ours, workload"), small("haproxy"), request, 0.33
            ),
            less_is_better("HTTP inbound, none", "twisted.web", small(none), small("twisted.web"), request, 6.0),
            less_is_better(
                "HTTP outbound", "haproxy", small("ours, outbound"), small("haproxy outbound"), request, 0.45
            ),
            more_is_better("bulk", "haproxy", bulk(none), bulk("haproxy"), "MB/CPU s", 1.0),
            less_is_better("new mTLS connections", "haproxy", connects(none), connects("haproxy"), connection, 1.1),
            less_is_better(
                "added p50, one connection",
                "haproxy",
                self._added(none, "direct"),
                self._added("haproxy", "direct"),
                "ms",
                0.67,
            ),
        ]
        rows += [
            less_is_better(f"{level}, added p50", "budget", self._added(f"ours, {level}", none), [budget], "ms", 1.0)
            for level, budget in _LEVEL_BUDGETS.items()
        ]
        hybrid, classical = (self._of("key agreement", group) for group in GROUPS)
        return [
            *rows,
            more_is_better(
                "durable signed receipts", "budget", self._of("receipts", "cpu"), [600.0], "receipts/CPU s", 1.0
            ),
            more_is_better(
                "durable signed receipts, wall", "budget", self._of("receipts", "wall"), [600.0], "receipts/s", None
            ),
            less_is_better(f"connection with {GROUPS[0]}", f"ours, {GROUPS[1]}", hybrid, classical, connection, None),
        ]


def _resident(pid: int) -> int:
    """The resident set of a process, in octets."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
