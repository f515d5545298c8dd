"""
Lines of text for status documents: which process runs where, and what an operator wants to see of it.

Pure: documents and a width in, lines out. Every text of a document is escaped here. Durations are by the clock of the
process that sent the document.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from svc.errors import SvcError, printable
from svc.process.status import EntryStatus, IdentityStatus, LastError, ListenerStatus, Rates, RootStatus, Status
from svc.telemetry.health import Condition

GREEN: Final = "\x1b[32m"
YELLOW: Final = "\x1b[33m"
RED: Final = "\x1b[31m"
BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
_GAP: Final = 2
_INDENT: Final = 2
#: A column that is made narrower for a terminal keeps this.
_NARROW: Final = 8
_MAX_CELL: Final = 120
_MAX_SENTENCE: Final = 300
#: The shares of its life that credentials are renewed before: those that have less were not renewed when they should.
_GOOD_SHARE: Final = 1 / 3
_BAD_SHARE: Final = 1 / 6
#: The same for credentials whose beginning is not known.
_GOOD_LEFT: Final = timedelta(minutes=5)
_BAD_LEFT: Final = timedelta(minutes=1)


class Span(NamedTuple):
    """Text in one colour."""

    text: str
    colour: str = ""


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one address has shown: a status, or why there is none."""

    address: str
    status: Status | None = None
    error: SvcError | None = None


def render(answers: Iterable[Answer], width: int | None) -> list[Line]:
    """
    Make the lines for all addresses, with an empty one between two of them.

    Args:
        width: the columns of the terminal, which no line exceeds; None for no limit.
    """
    lines: list[Line] = []
    for answer in answers:
        if lines:
            lines.append(())
        lines.extend(_cut_line(line, width) for line in _process(answer, width))
    return lines


def written(line: Line, *, colour: bool) -> str:
    """One line as text without its end."""
    if not colour:
        return "".join(span.text for span in line)
    return "".join(f"{span.colour}{span.text}{PLAIN}" if span.colour else span.text for span in line)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_character_columns, text))


def _character_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _process(answer: Answer, width: int | None) -> Iterator[Line]:
    status = answer.status
    if status is None:
        # The sentence names the address.
        yield _line(Span(_shown(answer.error, 2 * _MAX_SENTENCE), RED))
        return
    yield _title(answer.address, status)
    for condition in status.conditions:
        if not condition.holds:
            yield from _condition(condition, status.now, width)
    now = status.now
    yield from _table(_identity_columns(now), status.identities, width)
    yield from _table(_root_columns(now), status.roots or (), width)
    yield from _table(_entry_columns(now), status.entries or (), width)
    yield from _table(_node_columns(now), status.nodes or (), width)
    yield from _table(_LISTENERS, status.listeners, width)
    yield from _facts(status)
    if status.last_errors:
        yield from _last_error(status.last_errors[0], now, width)


def _title(address: str, status: Status) -> Line:
    ready = ("draining", YELLOW) if status.draining else ("ready", GREEN) if status.ready else ("not ready", RED)
    rest = [f"up {_span(status.now - status.started)}", f"pid {status.pid}", status.trust_domain or ""]
    name = f"svc-{_shown(status.process)} {_shown(status.version)}"
    return _line(Span(name, BOLD), Span(*ready), Span(address), *(Span(_shown(each)) for each in rest if each))


def _condition(condition: Condition, now: datetime, width: int | None) -> Iterator[Line]:
    why = ": ".join(_shown(each, _MAX_SENTENCE) for each in (condition.reason, condition.message) if each)
    text = f"{_shown(condition.name)} fails for {_span(now - condition.since)}: {why}"
    return _wrapped(text, RED if condition.required else YELLOW, width)


def _last_error(error: LastError, now: datetime, width: int | None) -> Iterator[Line]:
    why = ": ".join(_shown(each, _MAX_SENTENCE) for each in (error.event, error.reason, error.detail) if each)
    if error.source is not None:
        why += f" ({_shown(error.source)})"
    again = f", {error.count:,} times" if error.count > 1 else ""
    return _wrapped(f"last error {_span(now - error.at)} ago{again}  {why}", "", width)


def _wrapped(text: str, colour: str, width: int | None) -> Iterator[Line]:
    """A sentence on as many lines as it needs."""
    lines = [text] if width is None else textwrap.wrap(text, max(_NARROW, width - 2 * _INDENT), break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield Span(" " * _INDENT * (1 if number == 0 else 2)), Span(line, colour)


# -- Facts of one line each --------------------------------------------------------------------------------------------


def _facts(status: Status) -> Iterator[Line]:
    if status.rates is not None:
        yield _fact("rates", *_rates(status.rates))
    store = status.store
    if store is not None:
        state = ("writable", "") if store.writable else (f"not writable: {_shown(store.trouble, _MAX_SENTENCE)}", RED)
        records = [] if store.records is None else [Span(f"{store.records:,} written since the start")]
        room = [Span(_shown(store.room_text, _MAX_SENTENCE))] if store.room_text else []
        yield _line(Span(""), Span("store"), Span(_shown(store.path)), Span(*state), *records, *room)
    counts = ("clients", "sessions", "retained", "queued")
    if known := [f"{each} {getattr(status, each):,}" for each in counts if getattr(status, each) is not None]:
        yield _fact("broker", *known)
    if status.issued is not None:
        issued = status.issued
        kinds = (("X.509-SVIDs", issued.x509), ("JWT-SVIDs", issued.jwt), ("post-quantum leaves", issued.pq_leaves))
        yield _fact("issued", *(f"{kind} {count:,}" for kind, count in kinds))
    if status.denials:
        most = sorted(status.denials.items(), key=lambda each: -each[1])
        yield _fact("refused in the last hour", *(f"{_shown(reason)} {count:,}" for reason, count in most))


def _rates(rates: Rates) -> Iterator[str]:
    for name in ("requests", "refusals", "errors", "received", "sent", "dropped"):
        value = getattr(rates, name)
        if value is not None:
            yield f"{_number(value)} {name}/s"
    for name, duration in (("p50", rates.p50), ("p99", rates.p99)):
        if duration is not None:
            yield f"{name} {_short_time(duration)}"


def _fact(name: str, *facts: str) -> Line:
    return _line(Span(""), Span(name), *map(Span, facts))


def _line(*spans: Span) -> Line:
    """Spans with two blanks between them."""
    return tuple(part for each in spans for part in (each, Span(" " * _GAP)))[:-1]


# -- Tables ------------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """
    One column of a table.

    Attributes:
        cell: its cell of a row; None where the value is not known.
        flexible: whether it may be cut.
        right: whether it is aligned to the right.
        dropped: where lines are too long, columns are left out in the order of this number; never with 0.
    """

    title: str
    cell: Callable[[Any], str | Span | None]
    flexible: bool = False
    right: bool = False
    dropped: int = 0


def _count(name: str) -> Callable[[Any], str | None]:
    def cell(row: Any) -> str | None:
        value = getattr(row, name)
        return None if value is None else f"{value:,}"

    return cell


_ROOTS: Final = {"x509": "X.509", "jwt": "JWT", "pq": "post-quantum"}
_LISTENERS: Final = (
    _Column("LISTENER", lambda each: each.name, flexible=True),
    _Column("PROTOCOL", lambda each: each.protocol, dropped=1),
    _Column("DIRECTION", lambda each: each.direction, dropped=2),
    _Column("LISTEN", lambda each: each.listen, flexible=True),
    _Column("UPSTREAM", lambda each: each.upstream, flexible=True, dropped=4),
    _Column("LEVEL", lambda each: _levels(each), dropped=3),
    _Column("CONNS", _count("connections"), right=True),
    _Column("PEERS", _count("peers"), right=True, dropped=5),
    _Column("REQUESTS", _count("requests"), right=True),
    _Column("REFUSED", _count("refusals"), right=True),
)


def _levels(listener: ListenerStatus) -> str | None:
    if listener.level is None or listener.max_level in (None, listener.level):
        return listener.level
    return f"{listener.level}..{listener.max_level}"


def _identity_columns(now: datetime) -> tuple[_Column, ...]:
    def expires(identity: IdentityStatus) -> Span:
        return _countdown(identity.not_after, identity.not_before, now)

    def leaf(identity: IdentityStatus) -> Span | None:
        return None if identity.pq_not_after is None else _countdown(identity.pq_not_after, identity.not_before, now)

    def serves(identity: IdentityStatus) -> str | None:
        until = identity.serves_until
        if until is None or until == identity.not_after:
            return None
        return f"for {_span(until - now)}" if until > now else "no more"

    return (
        _Column("IDENTITY", lambda each: each.spiffe_id, flexible=True),
        _Column("EXPIRES", expires),
        _Column("PQ LEAF", leaf),
        _Column("SERVES", serves, dropped=2),
        _Column("PROFILE", lambda each: each.profile, dropped=1),
    )


def _root_columns(now: datetime) -> tuple[_Column, ...]:
    def expires(root: RootStatus) -> Span:
        # One that does not sign any more is announced to its end, which is no reason to worry.
        found = _countdown(root.not_after, root.not_before, now)
        return found if root.signs else Span(found.text)

    return (
        _Column("ROOT", lambda each: _ROOTS.get(each.kind, each.kind)),
        _Column("EXPIRES", expires),
        _Column("SIGNS", lambda each: "yes" if each.signs else "no"),
        _Column("ALGORITHM", lambda each: each.algorithm),
    )


def _entry_columns(now: datetime) -> tuple[_Column, ...]:
    def expires(entry: EntryStatus) -> str | None:
        return None if entry.not_after is None else _countdown(entry.not_after, None, now).text

    return (
        _Column("ISSUES TO", lambda each: each.spiffe_id, flexible=True),
        _Column("SVIDS", _count("svids"), right=True),
        _Column("FIRST EXPIRES", expires),
    )


def _node_columns(now: datetime) -> tuple[_Column, ...]:
    return (
        _Column("NODE", lambda each: each.name, flexible=True),
        _Column("SEQUENCE", lambda each: str(each.sequence), right=True),
        _Column("REPORTED", lambda each: f"{_span(now - each.reported)} ago"),
    )


def _countdown(end: datetime, begin: datetime | None, now: datetime) -> Span:
    left = end - now
    if left <= timedelta(0):
        return Span(f"ended {_span(-left)} ago", RED)
    good, bad = _GOOD_LEFT, _BAD_LEFT
    if begin is not None and begin < end:
        good, bad = (end - begin) * _GOOD_SHARE, (end - begin) * _BAD_SHARE
    return Span(f"in {_span(left)}", GREEN if left > good else YELLOW if left > bad else RED)


def _table(layout: Sequence[_Column], rows: Sequence[Any], width: int | None) -> Iterator[Line]:
    """A title and a line for each row, without columns of which no row knows a value."""
    if not rows:
        return
    cells = [[_cell(each.cell(row)) for each in layout] for row in rows]
    shown = [number for number in range(len(layout)) if any(row[number] is not None for row in cells)]
    every = {number: [Span(layout[number].title), *(row[number] or Span("-") for row in cells)] for number in shown}
    widths = {number: max(columns(span.text) for span in column) for number, column in every.items()}
    if width is not None:
        _narrow(widths, layout, width - _INDENT + _GAP)
    for place in range(len(rows) + 1):
        line = [Span(" " * _INDENT)]
        for number, room in widths.items():
            text, colour = every[number][place]
            text = _cut(text, room)
            blanks = Span(" " * (room - columns(text)))
            line += [blanks, Span(text, colour)] if layout[number].right else [Span(text, colour), blanks]
            line.append(Span(" " * _GAP))
        yield _without_end(line)


def _without_end(line: list[Span]) -> Line:
    """Without empty spans and without blanks at the end."""
    while line and not line[-1].text.strip(" "):
        line.pop()
    return tuple(span for span in line if span.text)


def _cell(value: str | Span | None) -> Span | None:
    return value if value is None or isinstance(value, Span) else Span(_shown(value))


def _narrow(widths: dict[int, int], layout: Sequence[_Column], room: int) -> None:
    """
    Leave out columns, then make the widest of the flexible ones narrower, until all fit or nothing is left to do.

    ``room`` is for the columns, each with a gap behind it.
    """
    for number in sorted((each for each in widths if layout[each].dropped), key=lambda each: layout[each].dropped):
        if sum(widths.values()) + _GAP * len(widths) > room:
            del widths[number]
    flexible = [number for number in widths if layout[number].flexible]
    while flexible and sum(widths.values()) + _GAP * len(widths) > room:
        widest = max(flexible, key=lambda each: widths[each])
        if widths[widest] <= _NARROW:
            return
        widths[widest] -= 1


def _cut(text: str, width: int) -> str:
    """The end of a text that is too long: addresses and identities differ there."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 1:
        text = text[1:]
    return f"…{text}"


def _cut_line(line: Line, width: int | None) -> Line:
    """The beginning of a line that is too long."""
    if width is None or sum(columns(span.text) for span in line) <= width:
        return line
    kept: list[Span] = []
    room = width - 1
    for span in line:
        text = span.text
        if columns(text) > room:
            while columns(text) > room:
                text = text[:-1]
            return (*kept, Span(f"{text}…", span.colour))
        kept.append(span)
        room -= columns(text)
    return tuple(kept)


# -- Values ------------------------------------------------------------------------------------------------------------


def _shown(value: object, limit: int = _MAX_CELL) -> str:
    return printable(value, limit)


def _span(duration: timedelta) -> str:
    """A duration in its two largest units, such as ``3h 12m``; below zero as none."""
    seconds = max(0, int(duration.total_seconds()))
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    first = next((place for place, (_name, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count}{name}" for name, count in units[first : first + 2] if count or first == len(units) - 1)


def _short_time(seconds: float) -> str:
    return f"{_number(seconds * 1000)} ms" if seconds < 1 else f"{_number(seconds)} s"


def _number(value: float) -> str:
    """A number with two or three digits that count, or whole."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
