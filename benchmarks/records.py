"""
What records cost: signed requests and unsigned records with 1 to 128 connections, and what a receipt takes on disk.

Owns the rows of records and their picture. How many records share a signature and a commit follows from how many wait,
so each number of connections is a row of its own.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from benchmarks.configurations import SMALL, SMALL_SIZE
from benchmarks.load import Load, LoadGenerator, Result
from benchmarks.peers import Device, Stage
from benchmarks.rows import Row, less_is_better, more_is_better

CONNECTIONS: Final = (1, 8, 32, 128)
_SIGNED: Final = "signRequest"
_LEVELS: Final = ("workload", "logRequest", _SIGNED)
#: Receipts per CPU second, with what must be reached; elsewhere the figure is shown against the same.
_RECEIPTS: Final = {1: 600.0, 8: 600.0, 32: 2200.0, 128: 3000.0}
_MUST: Final = {32: 1.0, 128: 1.0}
#: Milliseconds with 32 connections, microseconds over `workload` with 32, and KB.
_P50, _P99, _LOGGED, _DISK = 15.0, 40.0, 100.0, 3.5


class RecordMeasurement:
    """
    The figures of all rounds.

    Args:
        load: the load generator.
        seconds: how long each measurement counts.
        warm: seconds before that.
    """

    def __init__(self, load: LoadGenerator, seconds: float, warm: float) -> None:
        self._load = load
        self._seconds = seconds
        self._warm = warm
        self._figures: dict[tuple[str, int], list[Result]] = defaultdict(list)

    def round(self, devices: dict[str, Device]) -> None:
        """
        Measure each level with each number of connections once.

        Args:
            devices: our proxy's listeners by level.
        """
        for connections in CONNECTIONS:
            for level in _LEVELS:
                self._figures[level, connections].append(self._run(connections, devices[level]))

    def disk(self, stage: Stage) -> Row:
        """
        Measure what a receipt takes on disk, in a process of its own that ends.

        Args:
            stage: starts it.

        Returns:
            The row.
        """
        device = stage.proxy()[_SIGNED]
        self._run(32, device)
        path = stage.notary(device)
        stage.end(device)
        with closing(sqlite3.connect(path)) as database:
            (count,) = database.execute("SELECT count(*) FROM receipt").fetchone()
        return less_is_better("a receipt on disk", "budget", [path.stat().st_size / count / 1e3], [_DISK], "KB", 1.0)

    def rows(self) -> list[Row]:
        """
        Return the rows of all rounds, without that of the disk.

        Returns:
            The rows.
        """
        return [
            *self._signed("", "receipts/CPU s", more_is_better, _RECEIPTS, lambda each: each.answers / each.cpu),
            *self._signed(" p50", "ms", less_is_better, dict.fromkeys(CONNECTIONS, _P50), lambda each: each.p50 * 1e3),
            *self._signed(" p99", "ms", less_is_better, dict.fromkeys(CONNECTIONS, _P99), lambda each: each.p99 * 1e3),
            *(self._logged(connections) for connections in CONNECTIONS),
        ]

    def _run(self, connections: int, device: Device) -> Result:
        return self._load.run(Load(SMALL, connections, SMALL_SIZE, self._seconds, self._warm), device)

    def _signed(
        self,
        what: str,
        unit: str,
        row: Callable[[str, str, Sequence[float], Sequence[float], str, float | None], Row],
        budgets: dict[int, float],
        figure: Callable[[Result], float],
    ) -> list[Row]:
        must = _MUST if not what else {32: 1.0}
        return [
            row(
                f"{_SIGNED}{what}, {_counted(connections)}",
                "budget",
                [figure(each) for each in self._figures[_SIGNED, connections]],
                [budgets[connections]],
                unit,
                must.get(connections),
            )
            for connections in CONNECTIONS
        ]

    def _logged(self, connections: int) -> Row:
        """What an unsigned record costs beyond a request without one, in the same round."""
        rounds = zip(self._figures["logRequest", connections], self._figures["workload", connections], strict=True)
        added = [max((mine.cpu / mine.answers - other.cpu / other.answers) * 1e6, 0.1) for mine, other in rounds]
        name = f"logRequest over workload, {_counted(connections)}"
        return less_is_better(name, "budget", added, [_LOGGED], "us CPU/request", 1.0 if connections == 32 else None)


def _counted(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def picture(rows: Sequence[Row]) -> str:
    """
    Draw receipts per CPU second, and the times of a request, over the number of connections.

    Args:
        rows: with those of records.

    Returns:
        An SVG document.
    """
    found = {row.metric: row.ours for row in rows}
    rates = [found[f"{_SIGNED}, {_counted(each)}"] for each in CONNECTIONS]
    times = {what: [found[f"{_SIGNED} {what}, {_counted(each)}"] for each in CONNECTIONS] for what in ("p50", "p99")}
    left = _panel(20, "receipts per CPU second", {"": rates})
    right = _panel(400, "milliseconds from request to complete response", times)
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 290" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="760" height="290" fill="#fff"/>', *left, *right, "</svg>\n"])


_COLORS: Final = ("#1f6feb", "#c2410c")
_WIDTH, _HEIGHT, _TOP = 320, 190, 40


def _panel(left: int, title: str, lines: dict[str, list[float]]) -> list[str]:
    most = max(value for values in lines.values() for value in values) * 1.15
    bottom = _TOP + _HEIGHT
    parts = [
        f'<text x="{left}" y="22" font-weight="bold">{title}</text>',
        f'<path d="M{left} {bottom}h{_WIDTH}" stroke="#666" fill="none"/>',
        f'<text x="{left + _WIDTH // 2}" y="{bottom + 40}" text-anchor="middle">connections</text>',
    ]
    columns = [left + 30 + 87 * number for number in range(len(CONNECTIONS))]
    parts += [
        f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{each}</text>'
        for x, each in zip(columns, CONNECTIONS, strict=True)
    ]
    for color, (name, values) in zip(_COLORS, lines.items(), strict=False):
        points = [(x, bottom - value / most * _HEIGHT) for x, value in zip(columns, values, strict=True)]
        path = " ".join(f"{x},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (x, y), value in zip(points, values, strict=True):
            text = f"{value:.0f}" if value >= 100 else f"{value:.1f}"
            parts.append(f'<circle cx="{x}" cy="{y:.1f}" r="3" fill="{color}"/>')
            parts.append(f'<text x="{x}" y="{y - 8:.1f}" text-anchor="middle" fill="{color}">{text}</text>')
        if name:
            x, y = points[-1]
            parts.append(f'<text x="{x + 8}" y="{y + 12:.1f}" fill="{color}">{name}</text>')
    return parts
