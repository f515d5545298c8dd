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

from benchmarks.configurations import BULK, BULK_SIZE, SMALL, SMALL_SIZE
from benchmarks.hybrid import GROUPS, connections
from benchmarks.load import Load, LoadGenerator
from benchmarks.peers import LEVELS, Device, Stage
from benchmarks.records import RecordMeasurement
from benchmarks.rows import Row, less_is_better, more_is_better

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: How many times cheaper than these a request through our proxy has to be.
_MUST: Final = {"caddy": 1.0, "twisted.web": 6.0, "aiohttp": 4.0, "mitmproxy": 25.0}
#: Budgets in ms for what a level adds to the median time of a request.
_LEVEL_BUDGETS: Final = {"workload": 0.05, "logRequest": 0.3, "signRequest": 2.0}


@dataclass(frozen=True, slots=True)
class Extent:
    """
    How long a run takes.

    Args:
        rounds: how often everything is measured.
        seconds: how long each measurement counts.
        warm: seconds before that.
        idle: how many idle connections memory is measured with.
        reauthorized: how many connections are open at a change of policies.
    """

    rounds: int
    seconds: float
    warm: float
    idle: int
    reauthorized: int


FULL: Final = Extent(rounds=5, seconds=1.5, warm=0.3, idle=2000, reauthorized=10_000)
#: A smoke run: every row, rough figures.
QUICK: Final = Extent(rounds=1, seconds=0.15, warm=0.1, idle=200, reauthorized=500)


class Measurement:
    """
    One run.

    Args:
        stage: starts the devices.
        load: the load generator.
        extent: how long it takes.
        say: prints progress.
        extras: starts more devices that are measured with small requests only.
    """

    def __init__(
        self,
        stage: Stage,
        load: LoadGenerator,
        extent: Extent,
        say: Callable[[str], None],
        extras: Callable[[], list[Device]] = list,
    ) -> None:
        self._stage = stage
        self._load = load
        self._extent = extent
        self._say = say
        self._extras = extras
        self._figures: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._records = RecordMeasurement(load, extent.seconds, extent.warm)

    def run(self) -> list[Row]:
        """
        Measure everything.

        Returns:
            The rows.
        """
        memory = self._memory()
        haproxy, haproxy_out = self._stage.haproxy()
        ours = self._stage.proxy()
        caddy = self._stage.caddy()
        relays = [ours["tcp"], self._stage.haproxy_tcp(), self._stage.stunnel()]
        others = [self._stage.twisted_web(), *self._extras()]
        direct = Device("direct", self._stage.plain_port, ours["none"].pid, tls=False)
        for number in range(self._extent.rounds):
            self._say(f"round {number + 1} of {self._extent.rounds}")
            self._small([haproxy, ours["none"], ours["workload"], caddy, *others, haproxy_out, ours["outbound"]])
            self._small(relays)
            self._bulk([haproxy, ours["none"], *relays])
            self._connects([haproxy, ours["none"]])
            self._single([direct, haproxy, *(ours[level] for level in LEVELS)])
            self._records.round(ours)
            for group in GROUPS:
                cost = connections(ours["none"], self._stage.credentials, group, self._extent.seconds)
                self._figures["key agreement", group].append(cost)
        return [*self._rows([each.name for each in others]), self._records.disk(self._stage), *memory]

    # -- One round -----------------------------------------------------------------------------------------------------

    def _small_load(self, clients: int, *, tls: bool = True, mode: str = "requests") -> Load:
        return Load(SMALL, clients, SMALL_SIZE, self._extent.seconds, self._extent.warm, mode=mode, tls=tls)

    def _small(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._load.run(self._small_load(32, tls=device.tls), device)
            self._figures["small", device.name].append(result.cpu / result.answers * 1e6)

    def _bulk(self, devices: list[Device]) -> None:
        for device in devices:
            load = Load(BULK, 4, BULK_SIZE, self._extent.seconds, self._extent.warm)
            result = self._load.run(load, device)
            self._figures["bulk", device.name].append(result.octets / result.cpu / 1e6)

    def _connects(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._load.run(self._small_load(8, mode="connects"), device)
            self._figures["connects", device.name].append(result.cpu / result.answers * 1e6)

    def _single(self, devices: list[Device]) -> None:
        for device in devices:
            result = self._load.run(self._small_load(1, tls=device.tls), device)
            self._figures["single", device.name].append(result.p50 * 1e3)

    # -- Memory --------------------------------------------------------------------------------------------------------

    def _memory(self) -> list[Row]:
        """Idle connections and the process itself, each in a fresh process that has served a little."""
        self._say(f"memory with {self._extent.idle} idle connections")
        haproxy, ours = self._stage.haproxy()[0], self._stage.proxy()["none"]
        base = resident(ours.pid) / 1e6
        sizes = [self._idle_size(device) / 1e3 for device in (ours, haproxy)]
        self._stage.end(haproxy)
        self._stage.end(ours)
        return [
            less_is_better("idle mTLS connection", "haproxy", sizes[:1], sizes[1:], "KB RSS", 0.56),
            less_is_better("the process at rest", "budget", [base], [60.0], "MB RSS", 1.0),
        ]

    def _idle_size(self, device: Device) -> float:
        self._load.run(self._small_load(32), device)
        before = resident(device.pid)
        with self._load.idle(device.port, self._extent.idle):
            time.sleep(0.5)
            return max(resident(device.pid) - before, _PAGE) / self._extent.idle

    # -- The result ----------------------------------------------------------------------------------------------------

    def _of(self, what: str, name: str) -> list[float]:
        return self._figures[what, name]

    def _added(self, name: str, to: str) -> list[float]:
        """What a device adds to the median time of a request, in each round; at least a microsecond."""
        rounds = zip(self._of("single", name), self._of("single", to), strict=True)
        return [max(mine - other, 0.001) for mine, other in rounds]

    def _rows(self, others: list[str]) -> list[Row]:
        request, connection = "us CPU/request", "us CPU/connection"
        small, bulk, connects = (lambda name, what=what: self._of(what, name) for what in ("small", "bulk", "connects"))
        none, workload = "ours, none", "ours, workload"
        rows = [
            less_is_better(f"HTTP inbound, {level}", "haproxy", small(ours), small("haproxy"), request, 0.33)
            for level, ours in (("none", none), ("workload", workload))
        ]
        rows += [
            less_is_better("HTTP inbound, workload", peer, small(workload), small(peer), request, _MUST[peer])
            for peer in ("caddy", *others)
        ]
        rows += [
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
        tcp = "ours, tcp"
        rows += [
            less_is_better("TCP inbound", "haproxy tcp", small(tcp), small("haproxy tcp"), request, 0.7),
            less_is_better("TCP inbound", "stunnel", small(tcp), small("stunnel"), request, 1.0),
            more_is_better("TCP bulk", "haproxy tcp", bulk(tcp), bulk("haproxy tcp"), "MB/CPU s", 1.0),
            more_is_better("TCP bulk", "stunnel", bulk(tcp), bulk("stunnel"), "MB/CPU s", None),
        ]
        hybrid, classical = (self._of("key agreement", group) for group in GROUPS)
        return [
            *rows,
            *self._records.rows(),
            less_is_better(f"connection with {GROUPS[0]}", f"ours, {GROUPS[1]}", hybrid, classical, connection, None),
        ]


def resident(pid: int) -> int:
    """
    The memory of a process.

    Args:
        pid: the process.

    Returns:
        Its resident set, in octets.
    """
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
