"""
The status document and the last hour as a web page.

Pure: values in, HTML out. Owns the words and the plots. The page loads itself again every ten seconds, which keeps the
place where its reader is, and can be paused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from twisted.web.template import Tag, tags

from svc.pages.elements import (
    DASH,
    Cell,
    Chip,
    Code,
    Table,
    compact,
    document,
    safe_text,
    section,
    table_section,
)
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
    _Plot("Duration of requests", (("median", _rate("p50")), ("p99", _rate("p99"))), duration, _rate("errors")),
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
            table_section(_identities(status)) if status.identities else "",
            table_section(_listeners(status)) if status.listeners else "",
            tags.div(class_="pair")(table_section(_denials(status)), _counts(status)),
            table_section(_errors(status)),
            *(table_section(each) for each in tables),
        ),
    )
    return document(title, kind, refresh, *content)


def _state(status: Status) -> tuple[str, str]:
    if status.draining:
        return "Draining", "warn"
    return ("Ready", "good") if status.ready else ("Not ready", "bad")


def _header(status: Status, word: str, kind: str, *, paused: bool) -> Tag:
    every = f"Loads itself again every {SAMPLE_EVERY:.0f} s. "
    switch = ("Paused. ", tags.a("Go on", href="/")) if paused else (every, tags.a("Pause", href="/?pause"))
    facts = f"Version {status.version} · process {status.pid} · running for {span(status.now - status.started)} · "
    return tags.header(
        tags.h1(f"svc-{status.process} ", tags.span(safe_text(status.trust_domain or ""))),
        tags.span(word, class_=f"chip {kind}"),
        tags.p(safe_text(facts), _time(status.now), ". ", *switch),
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
        return tags.li(class_="said" if shown else "")(tags.span(word, class_=f"chip {kind}"), " ", safe_text(shown))

    return section("Conditions", tags.ul(class_="conditions")(*(item(each) for each in status.conditions)))


def _traffic(status: Status, samples: Sequence[Sample]) -> Tag:
    shown = [each for each in _PLOTS if any(each.counted(sample) is not None for sample in samples)]
    if not shown:
        note = f"The first values are shown {SAMPLE_EVERY:.0f} s after the start."
        return section("Traffic of the last hour", tags.p(note, class_="note"))
    plots = (_figure(each, samples, status.now) for each in shown)
    return section("Traffic of the last hour", tags.div(class_="plots")(*plots))


def _identities(status: Status) -> Table:
    def row(place: int, each: IdentityStatus) -> tuple[Cell, ...]:
        use = "new connections" if place == 0 else "older connections"
        ends = (_ends(end, status.now) for end in (each.serves_until, each.not_after, each.pq_not_after))
        statement = None if each.statement_id is None else Code(each.statement_id)
        return Code(each.spiffe_id), use, *ends, each.profile, statement

    columns = ("Identity", "Used for", "Serves for", "SVID ends in", "PQ leaf ends in", "Profile", "Statement")
    return compact(Table("Identities", columns, [row(*each) for each in enumerate(status.identities)]))


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
    return compact(Table("Listeners", columns, [row(each) for each in status.listeners]))


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
        parts.append(tags.p(tags.span(safe_text(store.path), class_="code"), " ", chip, safe_text(trouble)))
        if store.room_text:
            parts.append(tags.p(f"The {store.room_text}."))
    return section("Database" if len(shown) == 1 and store is not None else "Counts", *parts)


def _denials(status: Status) -> Table:
    rows = [(Code(reason), count) for reason, count in status.denials.items()]
    note = "" if rows else "None."
    return Table("Refused in the last hour, by reason", ("Reason", "Number"), rows, note)


def _errors(status: Status) -> Table:
    def row(each: LastError) -> tuple[Cell, ...]:
        when = each.at.strftime("%H:%M:%S" if status.now - each.at < _HOUR else "%Y-%m-%d %H:%M:%S")
        source = None if each.source is None else Code(each.source)
        times = None if each.count == 1 else each.count
        return when, times, Code(each.event), Code(each.reason) if each.reason else None, source, each.detail

    rows = [row(each) for each in status.last_errors]
    columns = ("Last (UTC)", "Times", "Event", "Reason", "Peer", "Detail")
    return compact(Table("Last warnings and errors", columns, rows, "" if rows else "None."))


# -- Plots -----------------------------------------------------------------------------------------------------------


def _figure(plot: _Plot, samples: Sequence[Sample], now: datetime) -> Tag:
    values = [[read(each) for each in samples] for _name, read in plot.lines]
    highest = max((value for line in values for value in line if value is not None), default=0.0)
    keys, words, drawn = [], [], []
    scale = highest or 1.0
    for place, ((name, _read), line) in enumerate(zip(plot.lines, values, strict=True)):
        colour, latest = "ab"[place], line[-1]
        text = DASH if latest is None else plot.text(latest)
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
