"""The pages of docs/decisions: each has its status, date and code, and is in the index once."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
_LINE = re.compile(r"\*\*Status\*\*: (.+)\. \*\*Date\*\*: (\S+)\. \*\*Code\*\*: (`[^`]+`(?:, `[^`]+`)*)\.")
_REPLACED = re.compile(r"replaced by \[(\d{4})\]\((.+)\)")
_ROW = re.compile(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", re.MULTILINE)
_FORM = "`**Status**: accepted. **Date**: YYYY-MM-DD. **Code**: `svc/PACKAGE`, `svc/MODULE.py`.`"


def defects(text: str) -> list[str]:
    """What is wrong with the lines below the title of a page."""
    lines = text.splitlines()
    found = _LINE.fullmatch(lines[2]) if len(lines) > 2 and not lines[1] else None
    if found is None:
        return [f"the third line has to be {_FORM} or its status `replaced by [NNNN](NNNN-name.md)`"]
    status, day, code = found.groups()
    wrong = []
    replaced = _REPLACED.fullmatch(status)
    if status != "accepted" and not (replaced and _is_page(*replaced.groups())):
        wrong.append(f"the status is `{status}`: `accepted`, or `replaced by` with a link to a page that is there")
    try:
        if date.fromisoformat(day).isoformat() != day:
            raise ValueError
    except ValueError:
        wrong.append(f"the date is {day}: that of the first commit, as YYYY-MM-DD")
    absent = [path for path in re.findall(r"`([^`]+)`", code) if not (ROOT / path).exists()]
    if absent:
        wrong.append(
            f"these are not there: {', '.join(absent)}: paths from the top of the checkout that carry the decision"
        )
    return wrong


def _is_page(number: str, name: str) -> bool:
    return name.startswith(f"{number}-") and (DECISIONS / name).exists()


class PageTests(SynchronousTestCase):
    """Each page by itself."""

    def test_header(self) -> None:
        """Below its title each page has its status, the date of its first commit, and code that is there."""
        self.assertGreater(len(PAGES), 60)
        wrong = {page.name: found for page in PAGES if (found := defects(page.read_text()))}
        self.assertEqual({}, wrong)

    def test_title(self) -> None:
        """A title begins with the number of the file, and no number is used twice."""
        numbers = [page.name[:4] for page in PAGES]
        self.assertEqual(numbers, sorted(set(numbers)))
        for page, number in zip(PAGES, numbers, strict=True):
            self.assertTrue(page.read_text().startswith(f"# {number} "), f"{page.name}: the title begins `# {number} `")

    def test_defects(self) -> None:
        """Each defect of the line is found."""
        right = "# 0001 A\n\n**Status**: accepted. **Date**: 2026-01-02. **Code**: `svc`.\n"
        self.assertEqual([], defects(right))
        for old, new, words in (
            ("**Status**: accepted. ", "", "third line"),
            ("\n\n", "\n", "third line"),
            ("accepted", "in force", "`in force`"),
            ("accepted", "replaced by 0002", "`replaced by 0002`"),
            ("accepted", "replaced by [9999](9999-none.md)", "9999"),
            ("2026-01-02", "2026-02-30", "2026-02-30"),
            ("2026-01-02", "20260102", "20260102"),
            ("`svc`", "`svc`, `svc/none.py`", "not there: svc/none.py"),
        ):
            [found] = defects(right.replace(old, new))
            self.assertIn(words, found)


class IndexTests(SynchronousTestCase):
    """The index in README.md."""

    def test_each_page_once(self) -> None:
        """Each page has one row, under one topic, and no row is without its page."""
        rows = [(number, name) for number, name, _text in _ROW.findall((DECISIONS / "README.md").read_text())]
        twice = [name for (_number, name), count in Counter(rows).items() if count > 1]
        self.assertEqual([], twice, "these are in docs/decisions/README.md more than once")
        pages = {(page.name[:4], page.name) for page in PAGES}
        wanted = "| [NNNN](NNNN-name.md) | what was decided, in a line |"
        self.assertEqual(set(), pages - set(rows), f"add a row `{wanted}` to the table of its topic in the index")
        self.assertEqual(set(), set(rows) - pages, "rows of the index without a page")

    def test_replaced(self) -> None:
        """A row says that its decision is replaced exactly where the page does, and by the same one."""
        said = {
            number: found[1] if (found := re.search(r"\(replaced by (\d{4})\)$", text)) else None
            for number, _name, text in _ROW.findall((DECISIONS / "README.md").read_text())
        }
        for page in PAGES:
            found = re.search(r"replaced by \[(\d{4})\]", page.read_text().splitlines()[2])
            self.assertEqual(found[1] if found else None, said[page.name[:4]], page.name)
