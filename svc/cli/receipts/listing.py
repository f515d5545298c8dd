"""``svc receipts list``: a table for people, or one JSON object a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.receipts.local import run_local
from svc.cli.receipts.plan import MAX_LISTED, ReceiptSource, SourcePlan, read_filters
from svc.envelope.profile import Profile
from svc.errors import printable
from svc.reports.summary import described
from svc.store.records import MAX_FOUND, ReceiptQuery

T = TypeVar("T")

_COLUMNS: Final = ("time", "level", "client", "method", "path", "status", "outcome", "id")
#: Columns that are cut where the terminal is too narrow, in this order, and how far.
_CUT: Final = (("id", 12), ("client", 16), ("path", 8))
#: Columns that are left out where that is not enough, in this order.
_LEFT_OUT: Final = ("level", "outcome")
#: Without a terminal, a longer value is written whole and moves only what follows it in its own line.
_MAX_PADDING: Final = 80
_GAP: Final = "  "
_MAX_VALUE: Final = 2048
_ABSENT: Final = "-"


@dataclass(frozen=True, slots=True)
class ListPlan:
    """The parsed flags of one ``svc receipts list``."""

    source: SourcePlan
    query: ReceiptQuery
    limit: int
    json: bool

    @classmethod
    def read(
        cls, values: Mapping[str, Any], options: GlobalOptions, environ: Mapping[str, str], now: datetime
    ) -> ListPlan:
        """Check and parse the flags of the command, given by name."""
        limit = values["limit"]
        if not 1 <= limit <= MAX_LISTED:
            raise UsageRefused(f'--limit does not accept "{limit}"', f"expected: a number from 1 to {MAX_LISTED}")
        return cls(
            SourcePlan.read(values, options, environ), read_filters(values, now), limit, values["output"] == "json"
        )


class SummaryList:
    """
    The summaries that a query selects, newest first, page by page.

    Attributes:
        more: whether the list was ended by the limit.
    """

    def __init__(self, source: ReceiptSource, query: ReceiptQuery, limit: int | None) -> None:
        self._source = source
        self._query = query
        self._left = limit
        self.more = False

    async def pages(self) -> AsyncIterator[list[dict[str, Any]]]:
        query = self._query
        while True:
            page = await self._source.find(replace(query, limit=min(MAX_FOUND, self._left or MAX_FOUND)))
            yield page.summaries
            if self._left is not None:
                self._left -= len(page.summaries)
            if page.next is None:
                return
            if self._left is not None and self._left <= 0:
                self.more = True
                return
            query = replace(query, before=page.next)


def run_list(plan: ListPlan, invocation: Invocation) -> int:
    """Carry out ``svc receipts list``; returns the exit status."""
    console = invocation.console

    async def work(source: ReceiptSource) -> tuple[list[dict[str, Any]], bool, str]:
        found = SummaryList(source, plan.query, plan.limit)
        rows: list[dict[str, Any]] = []
        async for page in found.pages():
            rows += page
        return rows, found.more, source.nothing

    rows, more, nothing = run_source(plan.source, invocation, work)
    if plan.json:
        console.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif rows:
        columns = shutil.get_terminal_size().columns if console.terminal else None
        console.write_text("".join(f"{line}\n" for line in table(rows, columns)))
    if not rows:
        console.notice(nothing)
    elif more:
        oldest = rows[-1].get("time")
        console.notice(
            f"the newest {len(rows)} are shown, down to {printable(oldest, 40)}; there may be more",
            hint="--limit N shows more, --until TIME older ones",
        )
    return 0


def run_source(plan: SourcePlan, invocation: Invocation, work: Callable[[ReceiptSource], Coroutine[Any, Any, T]]) -> T:
    """Do work with the source of a plan, without trust anchors for post-quantum signatures."""
    if plan.database:
        return run_local(plan.database, work)
    from svc.cli.receipts.remote import run_remote

    pq_bundle = invocation.environ.get(naming.ENV_PQ_BUNDLE) or None
    return run_remote(plan, invocation.console, Profile.CLASSICAL, pq_bundle, lambda source, _anchors: work(source))


def table(rows: Sequence[Mapping[str, Any]], columns: int | None) -> list[str]:
    """
    Lay out summaries, with a line of headings.

    Args:
        columns: of the terminal; None where there is none, which leaves every value whole.
    """
    lines = [[name.upper() for name in _COLUMNS]]
    for row in rows:
        values = {**row, **dict(zip(("method", "path", "status"), described(row), strict=True))}
        lines.append([_shown(values.get(name)) for name in _COLUMNS])
    widths = [max(len(line[number]) for line in lines) for number in range(len(_COLUMNS))]
    if columns is None:
        cells = (
            [text.ljust(min(width, _MAX_PADDING)) for text, width in zip(line, widths, strict=True)] for line in lines
        )
    else:
        fitted = _fitted(dict(zip(_COLUMNS, widths, strict=True)), columns)
        cells = (
            [_cut(name, text, fitted[name]) for name, text in zip(_COLUMNS, line, strict=True) if name in fitted]
            for line in lines
        )
    return [_GAP.join(each).rstrip() for each in cells]


def _fitted(widths: dict[str, int], columns: int) -> dict[str, int]:
    """Choose the columns that are shown, and their widths."""
    least = {**widths, **{name: min(widths[name], width) for name, width in _CUT}}
    for name in _LEFT_OUT:
        if _over(least, columns) > 0:
            del least[name]
    fitted = {name: widths[name] for name in least}
    for name, _width in _CUT:
        over = _over(fitted, columns)
        if over > 0:
            # The id as a whole or its beginning, which the other commands accept; never a part that nobody can use.
            fitted[name] = least[name] if name == "id" else max(least[name], fitted[name] - over)
    return fitted


def _over(widths: Mapping[str, int], columns: int) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - columns


def _cut(name: str, text: str, width: int) -> str:
    if len(text) <= width:
        return text.ljust(width)
    # A SPIFFE ID differs at its end, a path at its beginning; of an id a mark would be taken for a part.
    if text.startswith("spiffe://"):
        return f"…{text[len(text) - width + 1 :]}"
    return f"{text[: width - 1]}…" if name == "path" else text[:width]


def _shown(value: object) -> str:
    return _ABSENT if value is None or value == "" else printable(value, _MAX_VALUE)
