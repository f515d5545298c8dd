"""Queries as parameters of a URL."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.querytext import (
    MAX_PATH,
    MAX_QUERY,
    QueryMalformed,
    parse_path,
    parse_status,
    parse_time,
    read_query,
    write_query,
)
from svc.store.records import MAX_FOUND, ReceiptQuery, RecordPosition
from tests.store.doubles import CLIENT

OUTCOMES = ("complete", "timeout")
TIMES = st.none() | st.integers(-62_135_596_800, 253_402_300_799)
WORDS = ["since", "=", "&", "limit", "5xx", "%", "path", "before", "1", "/", "."]
PIECES = st.lists(st.sampled_from(WORDS)).map("".join)
QUERIES = st.builds(
    ReceiptQuery,
    since=TIMES,
    until=TIMES,
    client=st.none() | st.just(CLIENT),
    outcome=st.none() | st.sampled_from(OUTCOMES),
    status=st.none() | st.sampled_from(["404", "5xx", "100", "599"]).map(parse_status),
    path=st.none() | st.binary(max_size=40).map(lambda rest: parse_path(b"/" + rest)),
    topic=st.none() | st.text(min_size=1, max_size=40),
    limit=st.integers(1, MAX_FOUND),
    before=st.none() | st.builds(RecordPosition, st.integers(0, 2**32), st.sampled_from(["A" * 43, "-_", ""])),
)


class QueryTextTests(SynchronousTestCase):
    """What is read, and what is refused."""

    @given(QUERIES)
    def test_round_trip(self, query: ReceiptQuery) -> None:
        """What is written is read again, in characters that a URL may have."""
        text = write_query(query)
        self.assertTrue(text.isascii() and text.isprintable() and " " not in text)
        self.assertEqual(query, read_query(text, OUTCOMES))

    @given(st.text() | PIECES)
    def test_any_text(self, text: str) -> None:
        """Any text is a query or refused."""
        try:
            found: object = read_query(text, OUTCOMES)
        except QueryMalformed as error:
            found = error
        self.assertIsInstance(found, ReceiptQuery | QueryMalformed)

    def test_no_parameters(self) -> None:
        """Without parameters everything is searched for."""
        self.assertEqual(ReceiptQuery(), read_query("", OUTCOMES))

    def test_escapes(self) -> None:
        """Percent-encoding is decoded once; a plus sign means itself, as in the offset of a time."""
        found = read_query("path=%2Fa%252F+b%C3%A9&since=2026-11-22T21:00:00+01:00", OUTCOMES)
        self.assertEqual(("/a%2F+bÃ©", parse_time("2026-11-22T20:00:00Z")), (found.path, found.since))
        self.assertEqual("a/é+", read_query("topic=a/%C3%A9+", OUTCOMES).topic)

    def test_refused(self) -> None:
        """A refusal names the parameter, its value and what was expected."""
        for text, name in (
            ("limit=0", "limit"),
            ("topic=", "topic"),
            ("topic=%ff", "topic"),
            (f"topic={'a' * (MAX_PATH + 1)}", "topic"),
            (f"limit={MAX_FOUND + 1}", "limit"),
            ("limit=1&limit=2", "limit"),
            ("limit", "limit"),
            ("limit=", "limit"),
            ("limit=%31%30x", "limit"),
            ("status=600", "status"),
            ("status=6xx", "status"),
            ("status=5XX", "status"),
            ("status=99", "status"),
            ("outcome=Complete", "outcome"),
            ("client=web", "client"),
            ("client=spiffe://example.org/é", "client"),
            ("path=a", "path"),
            ("path=/" + "a" * MAX_PATH, "path"),
            ("since=2026-11-22", "since"),
            ("since=2026-11-22T24:00:00Z", "since"),
            ("since=2026-02-30T00:00:00Z", "since"),
            ("until=2026-11-22T20:00:60Z", "until"),
            ("until=2026-11-22t20:00:00z", "until"),
            ("until=-1", "until"),
            ("before=1", "before"),
            ("before=.", "before"),
            ("before=1.a'b", "before"),
            ("party=x", "party"),
            ("level=logRequest", "level"),
            ("&", ""),
            ("path=/%2", "string"),
            ("a" * (MAX_QUERY + 1), "string"),
        ):
            error = self.assertRaises(QueryMalformed, read_query, text, OUTCOMES)
            self.assertEqual((400, name), (error.http_status, error.name), text)
        self.assertEqual(
            'the parameter status of the search is "6xx"; expected: a status from 100 to 599, or a class of them such'
            " as 5xx",
            str(self.assertRaises(QueryMalformed, read_query, "status=6xx", OUTCOMES)),
        )

    def test_bounds(self) -> None:
        """The longest path and the largest limit are accepted."""
        found = read_query(f"limit={MAX_FOUND}&path=/{'a' * (MAX_PATH - 1)}", OUTCOMES)
        self.assertEqual((MAX_FOUND, MAX_PATH), (found.limit, len(found.path or "")))

    def test_times(self) -> None:
        """Fractions of a second are cut off, and offsets count."""
        self.assertEqual(parse_time("2026-11-22T20:00:00Z"), parse_time("2026-11-22T20:00:00.999999999Z"))
        self.assertEqual(parse_time("2026-11-22T20:00:00Z"), parse_time("2026-11-22T15:30:00.5-04:30"))
