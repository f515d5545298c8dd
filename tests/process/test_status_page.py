"""The web page of the status document."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.pages.elements import STYLE, Chip, Code, Link, Table, note_page
from svc.process.history import Sample
from svc.process.status import IdentityStatus, LastError, ListenerStatus, Rates, Status, StoreStatus
from svc.process.status_page import duration, number, span, status_page
from svc.telemetry.health import Condition

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Page(HTMLParser):
    """A page as its elements and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def described(text: str) -> Status:
    """A document in which every text is the given one."""
    condition = Condition("store", False, text, text, NOW - MINUTE)
    return Status(
        process="proxy",
        version=text,
        pid=1,
        started=NOW - 90 * MINUTE,
        now=NOW,
        ready=True,
        draining=False,
        conditions=(condition,),
        trust_domain=text,
        identities=(
            IdentityStatus(text, NOW + 70 * MINUTE, NOW + MINUTE, text, text, NOW - MINUTE),
            IdentityStatus(text, NOW),
        ),
        listeners=(ListenerStatus(text, text, text, text, text, text, text, 1, 2, 1234, 3),),
        store=StoreStatus(text, False, text, 5, 900, 2**30, 12.0),
        denials={text: 7},
        last_errors=(LastError(NOW, text, text, text, text),),
    )


def sample(seconds: int, requests: float | None, p50: float | None = 0.002) -> Sample:
    """A sample that is some seconds old."""
    rates = Rates(10.0, requests=requests, refusals=0.0, errors=0.1, p50=p50, p99=p50)
    return Sample(NOW - timedelta(seconds=seconds), rates, 3, {})


def table(text: str) -> Table:
    """A table with a cell of each kind."""
    return Table(
        text, (text, "b", "c", "d", "e"), [(text, Code(text), Chip(text, "bad"), Link(text, text), None)], text
    )


class StatusPageTests(SynchronousTestCase):
    """:func:`status_page`."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.text(min_size=1)
        | st.sampled_from(["<script>alert(1)</script>\"'&lt;", "</style><b>", "\x00\u202e]]>", "\ud800"])
    )
    def test_texts_are_escaped(self, text: str) -> None:
        """No text from outside makes an element or an attribute, whatever it is; the page can be encoded."""
        samples = [sample(10, 1.0)]
        page = Page(status_page(described(text), samples, tables=(table(text),)))
        other = Page(status_page(described("a"), samples, tables=(table("a"),)))
        self.assertEqual(other.elements, page.elements)
        names = [(tag, name) for tag, name, _value in page.attributes]
        self.assertEqual([(tag, name) for tag, name, _value in other.attributes], names)
        status_page(described(text), samples).encode()
        note_page(text, text).encode()

    def test_room(self) -> None:
        """What the records take, what is left, and for how long."""
        self.assertIn("The records take 900 B, 1.0 GiB left for 12 days.", status_page(described("a"), []))

    def test_nothing_but_the_page(self) -> None:
        """There is no script, no style but the one that the policy allows, and nothing from elsewhere."""
        page = status_page(described("a"), [sample(10, 1.0)], tables=(table("a"),))
        found = Page(page)
        self.assertEqual(0, found.elements["script"] + found.elements["iframe"] + found.elements["form"])
        self.assertEqual([], [each for each in found.attributes if each[1] == "style" or each[1].startswith("on")])
        self.assertEqual([STYLE], re.findall("<style>(.*?)</style>", page, re.DOTALL))
        links = {value for _tag, name, value in found.attributes if name in ("href", "src")}
        self.assertEqual({"/?pause", "a"}, {each for each in links if not each.startswith("data:image/svg+xml,")})

    def test_pause(self) -> None:
        """The page loads itself again every ten seconds, or not."""
        self.assertIn(("meta", "content", "10"), Page(status_page(described("a"), [])).attributes)
        paused = Page(status_page(described("a"), [], paused=True))
        self.assertNotIn("refresh", {value for _tag, _name, value in paused.attributes})
        self.assertIn(("a", "href", "/"), paused.attributes)

    def test_countdowns(self) -> None:
        """Each end is shown as the time that is left, marked where it is near or past."""
        page = status_page(described("a"), [])
        for expected in (
            '<td role="cell" data-label="SVID ends in" class="tight">1 h 10 min</td>',
            '<span class="chip warn">1 min</span>',
            '<span class="chip bad">ended 1 min ago</span>',
            '<span class="chip bad">ended 0 s ago</span>',
        ):
            self.assertIn(expected, page)

    def test_states(self) -> None:
        """The title and the header say whether it is ready; a condition that fails says why."""
        self.assertIn("<title>Ready: svc-proxy a</title>", status_page(described("a"), []))
        text = Page(status_page(described("why"), [])).text
        self.assertIn("✗ store", text)
        self.assertIn("fails for 1 min: why: why", text)

    def test_before_the_first_sample(self) -> None:
        """Without samples there are no plots, and the page says when they come."""
        page = Page(status_page(described("a"), []))
        self.assertEqual(0, page.elements["svg"])
        self.assertIn("shown 10 s after the start", page.text)

    def test_plots(self) -> None:
        """Lines begin again after a gap and where a value is missing; each plot is described in words."""
        samples = [sample(7200, 9.0), sample(600, 1.0), sample(590, 2.0), sample(500, 4.0, None), sample(490, 0.0)]
        page = Page(status_page(described("a"), samples))
        self.assertEqual(4, page.elements["svg"])
        paths = [value for tag, name, value in page.attributes if tag == "path" and name == "d"]
        self.assertEqual("M300.0 71.1h0L301.0 62.2M310.0 44.4h0L311.0 80.0", paths[1])
        self.assertEqual("M300.0 0.0h0L301.0 0.0M311.0 0.0h0", paths[3])
        labels = {value for tag, name, value in page.attributes if name == "aria-label"}
        self.assertIn("Requests, the last hour: requests now 0/s, highest 9/s", labels)

    def test_broker(self) -> None:
        """A process that counts messages has plots of them, and no column that it has no values for."""
        rates = Rates(10.0, refusals=0.0, received=5.0, sent=7.0, dropped=0.0)
        status = described("a")
        listener = ListenerStatus("plain", "mqtt", "inbound", "127.0.0.1:1883", connections=2)
        shown = Status(**{**vars(status), "listeners": (listener,), "clients": 2, "queued": 1500})
        page = Page(status_page(shown, [Sample(NOW, rates, 2, {})]))
        for expected in ("Messages dropped", "sent 7/s", "Messages waiting", "1,500"):
            self.assertIn(expected, page.text)
        self.assertNotIn("Forwards to", page.text)
        self.assertNotIn("Duration of requests", page.text)

    def test_authority(self) -> None:
        """A process that measures no durations has no plot of them."""
        page = Page(status_page(described("a"), [Sample(NOW, Rates(10.0, requests=1.0, refusals=0.0), None, {})]))
        self.assertIn("requests 1/s", page.text)
        self.assertNotIn("Duration of requests", page.text)

    def test_values(self) -> None:
        """Numbers, durations and spans are short, with a unit."""
        for value, expected in ((0, "0"), (0.1, "0.1"), (1.25, "1.25"), (12.34, "12.3"), (1234.5, "1,234")):
            self.assertEqual(expected, number(value))
        for value, expected in ((0.000283, "283 µs"), (0.00402, "4.02 ms"), (2.5, "2.5 s")):
            self.assertEqual(expected, duration(value))
        for seconds, expected in ((0, "0 s"), (59, "59 s"), (60, "1 min"), (3700, "1 h 1 min"), (90000, "1 d 1 h")):
            self.assertEqual(expected, span(timedelta(seconds=seconds)))
