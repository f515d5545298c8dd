"""
Draws the pictures of the dashboards in ``docs/images``: ``python -m docs.generator.pictures [MINUTES]``.

Starts a proxy, a broker and a Prometheus, uses them for some minutes (4 by default), asks for each query of each panel,
and draws the answers as SVG in the places that the dashboard gives the panels. It is a rendering of the queries, not
Grafana. Run by hand when panels change: the values differ each time, so that no test compares the pictures.
"""

from __future__ import annotations

import json
import math
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from html import escape

from docs.generator.dashboards import Dashboard, Panel, Query, dashboards, document
from docs.generator.pages import DOCS
from svc.data import FOLDER
from tests.peers.observed import Observed

#: Pixels of a column and of a row of Grafana's grid, and between panels.
_COLUMN, _ROW, _GAP = 50, 24, 8
#: Seconds between two points, and that a rate is taken over.
_STEP, _RATE = 4, 20
_COLOURS = (
    "#56a64b",
    "#e0b400",
    "#5794f2",
    "#ff780a",
    "#e02f44",
    "#b877d9",
    "#37872d",
    "#8ab8ff",
    "#a352cc",
    "#c4162a",
)
_LEGEND = 8
_Line = tuple[str, Sequence[tuple[float, float]]]


def main(arguments: Sequence[str]) -> int:
    """
    Draw all pictures.

    Args:
        arguments: the minutes of use, at most.

    Returns:
        The exit status.
    """
    minutes = float(arguments[0]) if arguments else 4.0
    with ExitStack() as stack:
        observed = Observed(stack, FOLDER / "alerts" / "alerts.yaml")
        start = time.time()
        while (now := time.time()) < start + 60 * minutes:
            observed.use(1 + round(4 + 4 * math.sin((now - start) / 20)))
            if (now - start) % 60 < 5:
                observed.refuse()
            time.sleep(0.5)
        for board in dashboards():
            path = DOCS / "images" / f"{board.name}.svg"
            path.write_text(_picture(board, observed.prometheus.port, start + _RATE, time.time()))
            print(f"wrote {path} ({path.stat().st_size} octets)")
    return 0


def _picture(board: Dashboard, port: int, start: float, end: float) -> str:
    panels = json.loads(document(board))["panels"]
    described = board.panels
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * _COLUMN} {height}" font-family="sans-serif" '
        f'font-size="11" fill="#24292e"><rect width="100%" height="100%" fill="#f4f5f5"/>'
    ]
    for panel in panels:
        place = panel["gridPos"]
        x, y, w, h = place["x"] * _COLUMN, place["y"] * _ROW, place["w"] * _COLUMN, place["h"] * _ROW
        parts.append(f'<g transform="translate({x} {y})">')
        if panel["type"] == "row":
            parts.append(f'<text x="{_GAP}" y="17" font-size="14" font-weight="bold">{escape(panel["title"])}</text>')
        else:
            found = next(described)
            lines = [line for query in found.queries for line in _asked(port, board.name, query, start, end)]
            size = w - _GAP, h - _GAP
            parts.extend(_number(found, lines, *size) if found.stat else _graph(found, lines, *size, start, end))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


def _asked(port: int, job: str, query: Query, start: float, end: float) -> Iterator[_Line]:
    expression = query.expression.replace("$job", job).replace("$instance", ".*")
    expression = expression.replace("$__rate_interval", f"{_RATE}s")
    words = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": _STEP})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query_range?{words}", timeout=60) as answer:
        result = json.loads(answer.read())["data"]["result"]
    for series in result:
        points = [(float(at), float(value)) for at, value in series["values"] if math.isfinite(float(value))]
        if points:
            yield _named(query.legend, job, series["metric"]), points


def _named(legend: str, job: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        # The ports of the processes are chance.
        legend = legend.replace(f"{{{{{name}}}}}", job if name == "instance" else value)
    return legend


def _number(panel: Panel, lines: Sequence[_Line], width: float, height: float) -> Iterator[str]:
    yield from _card(panel.title, width, height)
    value = lines[0][1][-1][1] if lines else math.nan
    bad = (panel.bad_above is not None and value >= panel.bad_above) or (
        panel.bad_below is not None and value < panel.bad_below
    )
    yield (
        f'<text x="{width / 2:.0f}" y="{height - 22:.0f}" font-size="24" text-anchor="middle" '
        f'fill="{"#c4162a" if bad else "#37872d"}">{escape(_shown(panel.unit, value))}</text>'
    )


def _graph(
    panel: Panel, lines: Sequence[_Line], width: float, height: float, start: float, end: float
) -> Iterator[str]:
    yield from _card(panel.title, width, height)
    left, top, right, bottom = 64.0, 30.0, width - 10, height - 34
    if not lines:
        yield f'<text x="{width / 2:.0f}" y="{height / 2:.0f}" text-anchor="middle" fill="#6e7178">none</text>'
        return
    highest = max(value for _name, points in lines for _at, value in points) * 1.05 or 1.0
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * (bottom - top)
        yield f'<path d="M{left:.0f} {y:.1f}H{right:.0f}" stroke="#dde0e4"/>'
        yield (
            f'<text x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end" fill="#6e7178">'
            f"{escape(_shown(panel.unit, highest * part))}</text>"
        )
    for number, (_name, points) in enumerate(lines):
        path, before = "", -math.inf
        for at, value in points:
            # A series that is not there for a while is a gap.
            x = left + (at - start) / (end - start) * (right - left)
            y = bottom - max(value, 0) / highest * (bottom - top)
            path += f"{'L' if at - before < 1.5 * _STEP else 'M'}{x:.1f} {y:.1f}"
            before = at
        colour = _COLOURS[number % len(_COLOURS)]
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield from _legend(lines, left, width, height)


def _legend(lines: Sequence[_Line], left: float, width: float, height: float) -> Iterator[str]:
    x = 12.0
    for number, (name, _points) in enumerate(lines):
        if number >= _LEGEND or x + 6.2 * len(name) + 16 > width:
            yield f'<text x="{x:.0f}" y="{height - 12:.0f}" fill="#6e7178">…</text>'
            return
        colour = _COLOURS[number % len(_COLOURS)]
        yield f'<rect x="{x:.0f}" y="{height - 18:.0f}" width="8" height="3" fill="{colour}"/>'
        yield f'<text x="{x + 12:.0f}" y="{height - 12:.0f}">{escape(name)}</text>'
        x += 6.2 * len(name) + 24


def _card(title: str, width: float, height: float) -> Iterator[str]:
    yield f'<rect width="{width:.0f}" height="{height:.0f}" rx="3" fill="#fff" stroke="#dde0e4"/>'
    yield f'<text x="10" y="18" font-weight="bold">{escape(title)}</text>'


def _shown(unit: str, value: float) -> str:
    if unit == "bool_yes_no":
        return "yes" if value >= 1 else "no"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
            if abs(value) >= size:
                return f"{value / size:.3g} {name}"
        return f"{value * 1e6:.3g} µs" if value else "0 s"
    suffix = {"reqps": "/s", "ops": "/s", "mps": "/s", "Bps": "B/s", "bytes": "B"}.get(unit, "")
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}{suffix}"
    return f"{value:.3g}{'' if suffix.startswith('/') or not suffix else ' '}{suffix}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
