"""
The status document and the last hour as a web page.

Pure: values in, HTML out. Owns the words, the plots and the style. The page has no script: it loads itself again every
ten seconds, which keeps the place where its reader is, and can be paused. ``twisted.web.template`` escapes every text.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote

from twisted.web.template import Tag, flattenString, tags

from svc.errors import printable
from svc.process.history import SAMPLE_EVERY, Sample
from svc.process.status import IdentityStatus, LastError, ListenerStatus, Status, timestamp
from svc.telemetry.health import Condition

_HOUR: Final = timedelta(hours=1)
#: Credentials that end sooner than this are marked.
_SOON: Final = timedelta(minutes=5)
#: Seconds between two samples after which a line is interrupted: the process was suspended.
_GAP: Final = 2.5 * SAMPLE_EVERY
_WIDTH: Final = 360
_HEIGHT: Final = 80
_MAX_TEXT: Final = 1000
#: Characters of a text in a table that is not broken into lines.
_SHORT: Final = 20
_DASH: Final = "–"

# Without the characters that HTML would escape: a policy allows this style by its digest.
STYLE: Final = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1b2430;--muted:#5a6675;--line:#dfe3e8;--link:#0b57b7;
--good:#13723c;--goodbg:#e0f3e7;--warn:#8a5200;--warnbg:#fdf0d5;--bad:#b3261e;--badbg:#fce4e2;--a:#1f6feb;--b:#c2570c}
@media(prefers-color-scheme:dark){:root{--bg:#10151c;--card:#18202a;--text:#e4e9ef;--muted:#9aa7b5;--line:#2b3643;
--link:#7db4ff;--good:#6fd397;--goodbg:#143322;--warn:#f1bd6b;--warnbg:#3a2c10;--bad:#ff9a92;--badbg:#45201e;
--a:#6ea8ff;--b:#f2a15f}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:15px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif}
a{color:var(--link)}
.wrap{max-width:76rem;margin:0 auto;padding:1.25rem 1rem 3rem}
header{display:flex;flex-wrap:wrap;align-items:center;gap:.35rem .9rem;margin-bottom:1rem}
h1{font-size:1.35rem;margin:0}h1 span{font-weight:400;color:var(--muted)}
h2{font-size:1rem;margin:0 0 .6rem}
header p{margin:0;color:var(--muted);flex-basis:100%;font-size:.875rem}
.chip{display:inline-block;border-radius:1rem;padding:.05rem .65rem;font-weight:600;font-size:.875rem;
white-space:nowrap}
.good{color:var(--good);background:var(--goodbg)}
.warn{color:var(--warn);background:var(--warnbg)}
.bad{color:var(--bad);background:var(--badbg)}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem;margin-bottom:1rem}
.note{color:var(--muted);margin:0}
.plots,.facts{display:grid;gap:1rem 1.75rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
.pair{display:grid;gap:0 1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
.conditions{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.5rem .6rem}
.conditions .said{flex-basis:100%;overflow-wrap:anywhere}
.facts{grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));margin:0}
.facts dt{color:var(--muted);font-size:.8125rem}.facts dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}
figure{margin:0}figcaption{display:flex;flex-wrap:wrap;gap:.1rem .9rem;font-size:.875rem;margin-bottom:.3rem}
figcaption b{flex-basis:100%;font-weight:600;display:flex;justify-content:space-between}
figcaption b span{font-weight:400}
.key::before{content:"";display:inline-block;width:.9rem;height:.2rem;border-radius:.1rem;margin-right:.4rem;
vertical-align:.22rem;background:var(--a)}.key.b::before{background:var(--b)}
svg{display:block;width:100%;height:5rem;overflow:visible}
svg path{fill:none;stroke-width:1.75;stroke-linecap:round;stroke-linejoin:round;vector-effect:non-scaling-stroke}
svg .grid{stroke:var(--line);stroke-width:1}svg .a{stroke:var(--a)}svg .b{stroke:var(--b)}
.axis{display:flex;justify-content:space-between;color:var(--muted);font-size:.75rem;margin-top:.2rem}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th{text-align:left;color:var(--muted);font-weight:500;padding:.2rem .9rem .35rem 0;border-bottom:1px solid var(--line);
white-space:nowrap}
td{padding:.45rem .9rem .45rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere;
font-variant-numeric:tabular-nums}
tr:last-child td{border-bottom:0;padding-bottom:0}
td:last-child,th:last-child{padding-right:0}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.8125rem}
.num{text-align:right;white-space:nowrap}.tight{white-space:nowrap}.muted{color:var(--muted)}
@media(max-width:48rem){thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr,td{display:block}
tr{padding:.6rem 0;border-bottom:1px solid var(--line)}tr:first-child{padding-top:0}
tr:last-child{border:0;padding-bottom:0}
td,td:last-child{border:0;padding:.1rem 0;display:flex;gap:.75rem;text-align:left;white-space:normal}
.num,.tight{text-align:left;white-space:normal}
td::before{content:attr(data-label);flex:0 0 7.5rem;color:var(--muted)}}
"""
#: The source of :data:`STYLE` for ``style-src`` of a Content-Security-Policy.
STYLE_SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"


@dataclass(frozen=True)
class Link:
    """A cell that links to another page of this address."""

    text: str
    href: str


@dataclass(frozen=True)
class Chip:
    """A cell that is marked; ``kind`` is ``good``, ``warn`` or ``bad``."""

    text: str
    kind: str


@dataclass(frozen=True)
class Code:
    """A cell with an identifier."""

    text: str


Cell = str | int | Link | Chip | Code | None


@dataclass(frozen=True)
class Table:
    """A section of the page; ``note`` stands above the rows, or in place of them."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    note: str = ""


@dataclass(frozen=True)
class _Plot:
    """One or two lines: what they show, how a value of it is read from a sample, and how it is written."""

    title: str
    lines: Sequence[tuple[str, Callable[[Sample], float | None]]]
    text: Callable[[float], str]
    #: A value that a process has that counts this.
    counted: Callable[[Sample], float | None]


def _rate(name: str) -> Callable[[Sample], float | None]:
    def read(sample: Sample) -> float | None:
        value: float | None = getattr(sample.rates, name)
        return value

    return read


def _connections(sample: Sample) -> float | None:
    return sample.connections


def _per_second(value: float) -> str:
    return f"{number(value)}/s"


def duration(seconds: float) -> str:
    """A duration as text with a unit."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{number(seconds * 1000)} ms"
    return f"{number(seconds)} s"


def number(value: float) -> str:
    """A number with two or three significant digits, or whole."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


_PLOTS: Final = (
    _Plot("Requests", (("requests", _rate("requests")),), _per_second, _rate("requests")),
    _Plot("Duration of requests", (("median", _rate("p50")), ("p99", _rate("p99"))), duration, _rate("requests")),
    _Plot("Messages", (("received", _rate("received")), ("sent", _rate("sent"))), _per_second, _rate("received")),
    _Plot("Messages dropped", (("dropped", _rate("dropped")),), _per_second, _rate("dropped")),
    _Plot(
        "Refused and failed",
        (("refused", _rate("refusals")), ("failed", _rate("errors"))),
        _per_second,
        _rate("errors"),
    ),
    _Plot("Refused", (("refused", _rate("refusals")),), _per_second, _rate("received")),
    _Plot("Open connections", (("connections", _connections),), "{:,.0f}".format, _connections),
)


def status_page(
    status: Status, samples: Sequence[Sample], *, tables: Iterable[Table] = (), paused: bool = False
) -> str:
    """
    Write the page.

    Args:
        samples: the last hour, oldest first.
        tables: what this kind of process shows besides.
        paused: whether the page does not load itself again.
    """
    word, kind = _state(status)
    refresh = [] if paused else [tags.meta(**{"http-equiv": "refresh", "content": f"{SAMPLE_EVERY:.0f}"})]
    title = f"{word}: svc-{status.process} {status.trust_domain or ''}".strip()
    content = (
        _header(status, word, kind, paused=paused),
        Tag("main")(
            _conditions(status),
            _traffic(status, samples),
            _table(_identities(status)) if status.identities else "",
            _table(_listeners(status)) if status.listeners else "",
            tags.div(class_="pair")(_table(_denials(status)), _counts(status)),
            _table(_errors(status)),
            *(_table(each) for each in tables),
        ),
    )
    return _document(title, kind, refresh, *content)


def note_page(title: str, note: str) -> str:
    """Write a page with one sentence."""
    note_section = tags.section(tags.p(_text(note)), tags.p(tags.a("Status", href="/")))
    return _document(title, "warn", (), tags.header(tags.h1(_text(title))), note_section)


def _document(title: str, kind: str, head: Iterable[Tag], *content: Tag) -> str:
    """Write a document; ``kind`` gives its icon a colour."""
    colour = {"good": "1a9850", "warn": "e08a00", "bad": "d73027"}[kind]
    circle = f"<circle cx='4' cy='4' r='4' fill='#{colour}'/>"
    drawn = quote(f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'>{circle}</svg>")
    tree = tags.html(lang="en")(
        tags.head(
            tags.meta(charset="utf-8"),
            tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
            *head,
            tags.title(_text(title)),
            tags.link(rel="icon", href=f"data:image/svg+xml,{drawn}"),
            tags.style(STYLE),
        ),
        tags.body(tags.div(class_="wrap")(*content)),
    )
    written: list[bytes] = []
    flattenString(None, tree).addCallback(written.append)
    return "<!DOCTYPE html>\n" + written[0].decode("utf-8")


def _text(value: object) -> str:
    return printable(value, _MAX_TEXT)


def _state(status: Status) -> tuple[str, str]:
    if status.draining:
        return "Draining", "warn"
    return ("Ready", "good") if status.ready else ("Not ready", "bad")


def _header(status: Status, word: str, kind: str, *, paused: bool) -> Tag:
    every = f"Loads itself again every {SAMPLE_EVERY:.0f} s. "
    switch = ("Paused. ", tags.a("Go on", href="/")) if paused else (every, tags.a("Pause", href="/?pause"))
    facts = f"Version {status.version} · process {status.pid} · running for {span(status.now - status.started)} · "
    return tags.header(
        tags.h1(f"svc-{status.process} ", tags.span(_text(status.trust_domain or ""))),
        tags.span(word, class_=f"chip {kind}"),
        tags.p(_text(facts), _time(status.now), ". ", *switch),
    )


def span(length: timedelta) -> str:
    """A length of time in its two largest units."""
    seconds = max(0, int(length.total_seconds()))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for (size, name), (less, next_name) in pairwise(units):
        if seconds >= size:
            rest = seconds % size // less
            return f"{seconds // size} {name}" + (f" {rest} {next_name}" if rest else "")
    return f"{seconds} s"


def _time(instant: datetime) -> Tag:
    shown = instant.strftime("%Y-%m-%d %H:%M:%S UTC")
    return tags.time(shown, datetime=timestamp(instant))


def _ends(end: datetime | None, now: datetime) -> Cell:
    """How long something is valid for."""
    if end is None:
        return None
    if end <= now:
        return Chip(f"ended {span(now - end)} ago", "bad")
    return Chip(span(end - now), "warn") if end - now < _SOON else span(end - now)


# -- Sections --------------------------------------------------------------------------------------------------------


def _conditions(status: Status) -> Tag:
    def item(condition: Condition) -> Tag:
        kind = "good" if condition.holds else "bad" if condition.required else "warn"
        word = f"✓ {condition.name}" if condition.holds else f"✗ {condition.name}"
        why = ": ".join(each for each in (condition.reason, condition.message) if each)
        since = "" if condition.holds else f"fails for {span(status.now - condition.since)}: "
        optional = "" if condition.holds or condition.required else " (not required for readiness)"
        shown = f"{since}{why}{optional}" if why or since else ""
        return tags.li(class_="said" if shown else "")(tags.span(word, class_=f"chip {kind}"), " ", _text(shown))

    return _section("Conditions", tags.ul(class_="conditions")(*(item(each) for each in status.conditions)))


def _traffic(status: Status, samples: Sequence[Sample]) -> Tag:
    shown = [each for each in _PLOTS if any(each.counted(sample) is not None for sample in samples)]
    if not shown:
        note = f"The first values are shown {SAMPLE_EVERY:.0f} s after the start."
        return _section("Traffic of the last hour", tags.p(note, class_="note"))
    plots = (_figure(each, samples, status.now) for each in shown)
    return _section("Traffic of the last hour", tags.div(class_="plots")(*plots))


def _identities(status: Status) -> Table:
    def row(place: int, each: IdentityStatus) -> tuple[Cell, ...]:
        use = "new connections" if place == 0 else "older connections"
        ends = (_ends(end, status.now) for end in (each.serves_until, each.not_after, each.pq_not_after))
        statement = None if each.statement_id is None else Code(each.statement_id)
        return Code(each.spiffe_id), use, *ends, each.profile, statement

    columns = ("Identity", "Used for", "Serves for", "SVID ends in", "PQ leaf ends in", "Profile", "Statement")
    return _compact(Table("Identities", columns, [row(*each) for each in enumerate(status.identities)]))


def _listeners(status: Status) -> Table:
    def row(each: ListenerStatus) -> tuple[Cell, ...]:
        upstream = None if each.upstream is None else Code(each.upstream)
        levels = None if each.level is None else f"{each.level} to {each.max_level}"
        if each.level is not None and each.level == each.max_level:
            levels = each.level
        counts = (each.connections, each.peers, each.requests, each.refusals)
        ends = _ends(each.certificate_not_after, status.now)
        return each.name, f"{each.direction} {each.protocol}", Code(each.listen), upstream, levels, *counts, ends

    columns = (
        *("Listener", "Kind", "Listens at", "Forwards to", "Notarization"),
        *("Connections", "Peers", "Requests", "Refused", "Certificate ends in"),
    )
    return _compact(Table("Listeners", columns, [row(each) for each in status.listeners]))


def _counts(status: Status) -> Tag | str:
    store = status.store
    counts = [
        ("Clients connected", status.clients),
        ("Sessions", status.sessions),
        ("Retained messages", status.retained),
        ("Messages waiting", status.queued),
        ("Records written since the start", None if store is None else store.records),
    ]
    if status.issued is not None:
        issued = status.issued
        counts += [("X.509-SVIDs issued", issued.x509), ("JWT-SVIDs issued", issued.jwt)]
        counts += [("Post-quantum leaves issued", issued.pq_leaves)]
    shown = [tags.div(tags.dt(name), tags.dd(f"{count:,}")) for name, count in counts if count is not None]
    if not shown:
        return ""
    parts = [tags.dl(class_="facts")(*shown)]
    if store is not None:
        chip = tags.span("✓ writable", class_="chip good") if store.writable else tags.span("✗", class_="chip bad")
        trouble = "" if store.writable else f" takes no records: {store.trouble or 'it is not open'}"
        parts.append(tags.p(tags.span(_text(store.path), class_="code"), " ", chip, _text(trouble)))
    return _section("Database" if len(shown) == 1 and store is not None else "Counts", *parts)


def _denials(status: Status) -> Table:
    rows = [(Code(reason), count) for reason, count in status.denials.items()]
    note = "" if rows else "None."
    return Table("Refused in the last hour, by reason", ("Reason", "Number"), rows, note)


def _errors(status: Status) -> Table:
    def row(each: LastError) -> tuple[Cell, ...]:
        when = each.at.strftime("%H:%M:%S" if status.now - each.at < _HOUR else "%Y-%m-%d %H:%M:%S")
        source = None if each.source is None else Code(each.source)
        return when, Code(each.event), Code(each.reason) if each.reason else None, source, each.detail

    rows = [row(each) for each in status.last_errors]
    columns = ("Time (UTC)", "Event", "Reason", "Peer", "Detail")
    return _compact(Table("Last warnings and errors", columns, rows, "" if rows else "None."))


def _compact(table: Table) -> Table:
    """Leave out columns without a value."""
    kept = [place for place in range(len(table.columns)) if any(row[place] is not None for row in table.rows)]
    rows = [[row[place] for place in kept] for row in table.rows]
    return Table(table.title, [table.columns[place] for place in kept], rows, table.note)


def _section(title: str, *content: Tag) -> Tag:
    title = _text(title)
    name = title.lower().replace(",", "").replace(" ", "-")
    return tags.section(**{"aria-labelledby": name})(tags.h2(title, id=name), *content)


def _table(table: Table) -> Tag:
    parts: list[Tag] = [tags.p(_text(table.note), class_="note")] if table.note else []
    if table.rows:
        numbers = [all(isinstance(row[place], int | None) for row in table.rows) for place in range(len(table.columns))]
        # Roles: a narrow screen shows rows as blocks, which would not be a table for a screen reader otherwise.
        head = tags.tr(role="row")(
            *(
                tags.th(_text(name), scope="col", role="columnheader", class_="num" if numeric else "")
                for name, numeric in zip(table.columns, numbers, strict=True)
            )
        )
        rows = [
            tags.tr(role="row")(*(_cell(*each) for each in zip(row, table.columns, numbers, strict=True)))
            for row in table.rows
        ]
        parts.append(tags.table(role="table")(tags.thead(role="rowgroup")(head), tags.tbody(role="rowgroup")(*rows)))
    return _section(table.title, *parts)


def _cell(value: Cell, label: str, numeric: bool) -> Tag:
    content: Tag | str = f"{value:,}" if isinstance(value, int) else _text(value)
    whole = isinstance(value, str) and len(value) <= _SHORT
    if value is None:
        content = tags.span(_DASH, class_="muted")
    elif isinstance(value, Link):
        content = tags.a(_text(value.text), href=_text(value.href))
    elif isinstance(value, Chip):
        content = tags.span(_text(value.text), class_=f"chip {value.kind}")
    elif isinstance(value, Code):
        content, whole = tags.span(_text(value.text), class_="code"), len(value.text) <= 2 * _SHORT
    attributes: dict[str, Any] = {"role": "cell", "data-label": _text(label)}
    return tags.td(**attributes, class_="num" if numeric else "tight" if whole else "")(content)


# -- Plots -----------------------------------------------------------------------------------------------------------


def _figure(plot: _Plot, samples: Sequence[Sample], now: datetime) -> Tag:
    values = [[read(each) for each in samples] for _name, read in plot.lines]
    highest = max((value for line in values for value in line if value is not None), default=0.0)
    keys, words, drawn = [], [], []
    scale = highest or 1.0
    for place, ((name, _read), line) in enumerate(zip(plot.lines, values, strict=True)):
        colour, latest = "ab"[place], line[-1]
        text = _DASH if latest is None else plot.text(latest)
        keys.append(tags.span(f"{name} {text}", class_=f"key {colour}"))
        words.append(f"{name} now {'not known' if latest is None else plot.text(latest)}")
        points = [(each.at, value) for each, value in zip(samples, line, strict=True)]
        drawn.append(Tag("path", attributes={"class": colour, "d": _path(points, now, scale)}))
    most = f"highest {plot.text(highest)}"
    grid = "".join(f"M0 {y}H{_WIDTH}" for y in (0, _HEIGHT // 2, _HEIGHT))
    attributes: dict[str | bytes, Any] = {
        "viewBox": f"0 0 {_WIDTH} {_HEIGHT}",
        "preserveAspectRatio": "none",
        "role": "img",
        "aria-label": f"{plot.title}, the last hour: {', '.join(words)}, {most}",
    }
    picture = Tag("svg", attributes=attributes)(Tag("path", attributes={"class": "grid", "d": grid}), *drawn)
    axis = tags.div(class_="axis")(tags.span("1 h ago"), tags.span("30 min"), tags.span("now"))
    title = tags.b(plot.title, tags.span(most, class_="muted"))
    return tags.figure(tags.figcaption(title, *keys), picture, axis)


def _path(points: Iterable[tuple[datetime, float | None]], now: datetime, scale: float) -> str:
    """Draw a line as path data, interrupted where a value is missing."""
    parts: list[str] = []
    before: datetime | None = None
    for at, value in points:
        age = (now - at).total_seconds()
        if value is None or not math.isfinite(value) or not 0 <= age <= _HOUR.total_seconds():
            before = None
            continue
        x = _WIDTH * (1 - age / _HOUR.total_seconds())
        y = _HEIGHT * (1 - value / scale)
        joined = before is not None and (at - before).total_seconds() <= _GAP
        # A point alone is a line without length, which is drawn as a dot.
        parts.append(f"L{x:.1f} {y:.1f}" if joined else f"M{x:.1f} {y:.1f}h0")
        before = at
    return "".join(parts)
