"""
Accounts of exchanges and statements as one self-contained HTML page, for a browser, a printer and a telephone.

Owns the markup and its look; the words and their order are those of the account. The page has no script
and refers to nothing outside itself, which its Content-Security-Policy enforces. Every text goes through :func:`_text`.
Folded parts are printed if they are open.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from svc.errors import printable
from svc.reports.account import Account, Section, Verdict
from svc.reports.report import CheckResult, ReportLine

#: The style sheet of the page; its digest is the only style that the policy of the page admits.
STYLE: Final = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --card: #f6f8fa; --line: #d0d7de; --quiet: #57606a;
  --good: #11602d; --good-back: #dcf5e3; --bad: #8f1119; --bad-back: #ffe3e1; --open: #6f4a00; --open-back: #fff3cd; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --card: #161b22; --line: #30363d;
  --quiet: #9aa4af; --good: #7ee2a0; --good-back: #0f2d1a; --bad: #ffa198; --bad-back: #3d1214; --open: #f0c862;
  --open-back: #332701; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--text); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; margin: 1rem 0; }
h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
article + article { border-top: 2px solid var(--line); margin-top: 2rem; }
.verdict { border-left: .5rem solid; border-radius: .3rem; padding: .8rem 1rem; }
.verdict strong { font-size: 1.5rem; }
.verdict p { margin: .3rem 0 0; }
.verified { color: var(--good); background: var(--good-back); }
.refused { color: var(--bad); background: var(--bad-back); }
.unchecked { color: var(--open); background: var(--open-back); }
section, details { border: 1px solid var(--line); border-radius: .3rem; margin: 1rem 0; padding: .8rem 1rem; }
summary { cursor: pointer; font-weight: 600; }
dl { display: grid; grid-template-columns: minmax(9rem, 15rem) 1fr; gap: .3rem 1rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; min-width: 0; }
dd dl { margin-top: .3rem; grid-template-columns: minmax(7rem, 11rem) 1fr; }
dd > dl:first-child { margin-top: 0; }
ul { margin: 0; padding-left: 1.2rem; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; }
pre { background: var(--card); padding: .6rem; white-space: pre-wrap; margin: .6rem 0 0; }
.mark { color: var(--quiet); font-size: .875rem; }
.check { font-weight: 600; }
.passed { color: var(--good); }
.failed { color: var(--bad); }
.not-checked { color: var(--open); }
footer { color: var(--quiet); font-size: .875rem; }
@media (max-width: 40rem) { dl, dd dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  dd dl { border-left: 2px solid var(--line); padding-left: .6rem; } }
@media print { :root { color-scheme: light; --text: #000; --back: #fff; --card: #fff; --line: #999; --quiet: #444;
  --good: #11602d; --good-back: #fff; --bad: #8f1119; --bad-back: #fff; --open: #6f4a00; --open-back: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; } .verdict { border: 2px solid; }
  dl { grid-template-columns: 9rem 1fr; }
  section, details { break-inside: auto; } h2, dt { break-after: avoid; } details:not([open]) { display: none; } }
"""

_CLASSES: Final = {Verdict.VERIFIED: "verified", Verdict.REFUSED: "refused", Verdict.UNCHECKED: "unchecked"}
_CHECKS: Final = {
    CheckResult.PASSED: ("passed", "✓ passed"),
    CheckResult.NOT_DONE: ("not-checked", "○ not checked"),
    CheckResult.FAILED: ("failed", "✗ failed"),
}


def html_page(accounts: Sequence[Account], *, made_by: str = "svc") -> str:
    """
    Lay out accounts as one page, in their order.

    Args:
        accounts: at least one.
        made_by: the program and its version, for the end of the page.
    """
    title = " · ".join(account.title for account in accounts[:1])
    if len(accounts) > 1:
        title += f" and {len(accounts) - 1} more"
    body = "".join(f"<article>\n{''.join(_article(account))}</article>\n" for account in accounts)
    return html_document(title, f"{body}<footer><p>Made by {_text(made_by)}. {_FOLDED}</p></footer>\n")


_FOLDED: Final = "Folded parts are printed if they are open."


def html_document(title: str, body: str) -> str:
    """
    Write a document with the style and the Content-Security-Policy of the pages.

    Args:
        title: text, which is escaped.
        body: markup, which is not.
    """
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _text(text: str) -> str:
    """Escape a text for element content and attributes; control and bidirectional characters become visible."""
    return escape(printable(text, len(text)), quote=True)


def _article(account: Account) -> Iterator[str]:
    yield f"<h1>{_text(account.title)}</h1>\n"
    sentences = "".join(f"<p>{_text(sentence)}</p>\n" for sentence in account.summary)
    yield f'<div class="verdict {_CLASSES[account.verdict]}" role="status">\n'
    yield f"<strong>{_text(account.verdict.value)}</strong>\n{sentences}</div>\n"
    for section in account.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    content = "".join(_lines(section.lines))
    if section.text:
        content += "<pre>" + "\n".join(_text(line) for line in section.text.split("\n")) + "</pre>\n"
    if section.folded:
        yield f"<details>\n<summary>{_text(section.title)}</summary>\n{content}</details>\n"
    else:
        yield f"<section>\n<h2>{_text(section.title)}</h2>\n{content}</section>\n"


def _lines(lines: Sequence[ReportLine]) -> Iterator[str]:
    """
    Lay out lines of one depth, each with the deeper ones behind it: labelled ones as terms, items as a list, others as
    preformatted text.
    """
    position = 0
    open_tag = ""
    while position < len(lines):
        line, end = lines[position], position + 1
        while end < len(lines) and lines[end].depth > line.depth:
            end += 1
        tag = "dl" if line.label else "ul" if line.item else "div"
        if tag != open_tag:
            yield f"</{open_tag}>\n<{tag}>\n" if open_tag else f"<{tag}>\n"
            open_tag = tag
        content = _content(line) + "".join(_lines(lines[position + 1 : end]))
        if tag == "dl":
            yield f"<dt>{_text(line.label)}</dt>\n<dd>{content}</dd>\n"
        else:
            yield f"<li>{content}</li>\n" if tag == "ul" else f"<pre>{content}</pre>\n"
        position = end
    if open_tag:
        yield f"</{open_tag}>\n"


def _content(line: ReportLine) -> str:
    pieces = []
    if line.check is not None:
        name, words = _CHECKS[line.check]
        pieces.append(f'<span class="check {name}">{words}</span>')
    if line.value:
        pieces.append(_text(line.value))
    if line.mark:
        pieces.append(f'<span class="mark">({_text(line.mark)})</span>')
    return " ".join(pieces)
