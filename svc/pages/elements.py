"""
What the pages of ``adminAddr`` are made of: the document and its style, sections, and tables.

Pure: values in, HTML out. ``twisted.web.template`` escapes every text. A page has no script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from twisted.web.template import Tag, flattenString, tags

from svc.errors import printable

#: In place of a value that is not known.
DASH: Final = "–"
_MAX_TEXT: Final = 1000
#: Characters of a text in a table that is not broken into lines.
_SHORT: Final = 20

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
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem;margin-bottom:1rem;
overflow-x:auto}
.note{color:var(--muted);margin:0}
.plots,.facts{display:grid;gap:1rem 1.75rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,max(22rem,40%)),1fr))}
.pair{display:grid;gap:0 1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,max(22rem,40%)),1fr))}
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
@media(max-width:60rem){thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr,td{display:block}
tr{padding:.6rem 0;border-bottom:1px solid var(--line)}tr:first-child{padding-top:0}
tr:last-child{border:0;padding-bottom:0}
td,td:last-child{border:0;padding:.1rem 0;display:flex;gap:.75rem;text-align:left;white-space:normal}
.num,.tight,.chip{text-align:left;white-space:normal}
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


def document(title: str, kind: str, head: Iterable[Tag], *content: Tag) -> str:
    """Write a document; ``kind`` gives its icon a colour."""
    colour = {"good": "1a9850", "warn": "e08a00", "bad": "d73027"}[kind]
    circle = f"<circle cx='4' cy='4' r='4' fill='#{colour}'/>"
    drawn = quote(f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'>{circle}</svg>")
    tree = tags.html(lang="en")(
        tags.head(
            tags.meta(charset="utf-8"),
            tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
            *head,
            tags.title(safe_text(title)),
            tags.link(rel="icon", href=f"data:image/svg+xml,{drawn}"),
            tags.style(STYLE),
        ),
        tags.body(tags.div(class_="wrap")(*content)),
    )
    written: list[bytes] = []
    flattenString(None, tree).addCallback(written.append)
    return "<!DOCTYPE html>\n" + written[0].decode("utf-8")


def note_page(title: str, note: str) -> str:
    """Write a page with one sentence."""
    note_section = tags.section(tags.p(safe_text(note)), tags.p(tags.a("Status", href="/")))
    return document(title, "warn", (), tags.header(tags.h1(safe_text(title))), note_section)


def safe_text(value: object) -> str:
    """Make control and bidirectional characters visible, and cut what is too long."""
    return printable(value, _MAX_TEXT)


def section(title: str, *content: Tag) -> Tag:
    """Give content a heading."""
    title = safe_text(title)
    name = title.lower().replace(",", "").replace(" ", "-")
    return tags.section(**{"aria-labelledby": name})(tags.h2(title, id=name), *content)


def table_section(table: Table) -> Tag:
    """Write a table as a section."""
    parts: list[Tag] = [tags.p(safe_text(table.note), class_="note")] if table.note else []
    if table.rows:
        numbers = [all(isinstance(row[place], int | None) for row in table.rows) for place in range(len(table.columns))]
        # Roles: a narrow screen shows rows as blocks, which would not be a table for a screen reader otherwise.
        head = tags.tr(role="row")(
            *(
                tags.th(safe_text(name), scope="col", role="columnheader", class_="num" if numeric else "")
                for name, numeric in zip(table.columns, numbers, strict=True)
            )
        )
        rows = [
            tags.tr(role="row")(*(_cell(*each) for each in zip(row, table.columns, numbers, strict=True)))
            for row in table.rows
        ]
        parts.append(tags.table(role="table")(tags.thead(role="rowgroup")(head), tags.tbody(role="rowgroup")(*rows)))
    return section(table.title, *parts)


def compact(table: Table) -> Table:
    """Leave out columns without a value."""
    kept = [place for place in range(len(table.columns)) if any(row[place] is not None for row in table.rows)]
    rows = [[row[place] for place in kept] for row in table.rows]
    return Table(table.title, [table.columns[place] for place in kept], rows, table.note)


def _cell(value: Cell, label: str, numeric: bool) -> Tag:
    content: Tag | str = f"{value:,}" if isinstance(value, int) else safe_text(value)
    whole = isinstance(value, str) and len(value) <= _SHORT
    if value is None:
        content = tags.span(DASH, class_="muted")
    elif isinstance(value, Link):
        content = tags.a(safe_text(value.text), href=safe_text(value.href))
    elif isinstance(value, Chip):
        content = tags.span(safe_text(value.text), class_=f"chip {value.kind}")
    elif isinstance(value, Code):
        content, whole = tags.span(safe_text(value.text), class_="code"), len(value.text) <= 2 * _SHORT
    attributes: dict[str, Any] = {"role": "cell", "data-label": safe_text(label)}
    return tags.td(**attributes, class_="num" if numeric else "tight" if whole else "")(content)
