"""How searches go through a database: slices, bounds, one search after the other."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.store.errors import SearchesBusy, StoreClosed
from svc.store.records import MAX_FOUND, ReceiptQuery, RecordPosition, path_matches
from svc.store.search import SEARCH_OCTETS, SEARCH_ROWS, SLICE_OCTETS, SLICE_ROWS, Search, SearchSlice
from svc.store.sqlite import SqliteStore
from svc.store.threaded import SEARCH_LIMIT
from tests.store.doubles import CLIENT, NOW, HeldThread, InlineReactor, InlineThread, receipt

PARTS = st.text(st.sampled_from("ab/"), max_size=6)


class QueryTests(SynchronousTestCase):
    """What a query accepts and selects."""

    def test_limit_is_bounded(self) -> None:
        """A limit from 1 to MAX_FOUND is accepted."""
        for limit in (1, MAX_FOUND):
            self.assertEqual(limit, ReceiptQuery(limit=limit).limit)
        for limit in (0, -1, MAX_FOUND + 1):
            self.assertRaises(ValueError, ReceiptQuery, limit=limit)

    def test_what_no_database_holds(self) -> None:
        """Texts with other characters and times beyond 53 bits are refused."""
        for members in (
            {"client": "a\0"},
            {"party": "é"},
            {"outcome": "\ud800"},
            {"level": "\n"},
            {"since": 2**53 + 1},
            {"until": -(2**53) - 1},
            {"before": RecordPosition(2**53 + 1, "a")},
            {"before": RecordPosition(0, "a\0")},
        ):
            self.assertRaises(ValueError, ReceiptQuery, **members)
        ReceiptQuery(since=2**53, until=-(2**53), before=RecordPosition(2**53, ""), path="\0é")

    def test_payload_without_the_members(self) -> None:
        """A payload that is altered or lacks a member is not selected by it, and raises nothing."""
        payloads = (
            b"",
            b"[]",
            b"{}",
            b'{"svc":1}',
            b'{"svc":{"request":[],"response":null}}',
            b'{"svc":{"request":{"path":1,"topic":1}}}',
        )
        for payload in payloads:
            self.assertFalse(ReceiptQuery(path="").selects(payload))
            self.assertFalse(ReceiptQuery(topic="").selects(payload))
            self.assertFalse(ReceiptQuery(status=range(600)).selects(payload))
            self.assertTrue(ReceiptQuery().selects(payload))

    def test_topic(self) -> None:
        """A message is selected by its topic alone, an exchange by its path alone."""
        message = b'{"svc":{"request":{"topic":"meters/1/\xc3\xa9"}}}'
        exchange = b'{"svc":{"request":{"path":"meters/1"},"response":{"status":200}}}'
        for wanted in ("meters/", "*/1/é", "meters/1/é"):
            self.assertTrue(ReceiptQuery(topic=wanted).selects(message))
            self.assertFalse(ReceiptQuery(topic=wanted).selects(exchange))
        for query in (ReceiptQuery(topic="other"), ReceiptQuery(path="meters"), ReceiptQuery(status=range(600))):
            self.assertFalse(query.selects(message))
        self.assertFalse(ReceiptQuery(topic="meters", path="meters").selects(exchange))

    @given(PARTS)
    def test_beginning(self, path: str) -> None:
        """A text without * is the beginning of a path; the whole path and the empty text are too."""
        for length in range(len(path) + 1):
            self.assertTrue(path_matches(path, path[:length]))
        self.assertFalse(path_matches(path, f"{path}/"))

    @given(PARTS, st.lists(PARTS, min_size=2, max_size=4))
    def test_pattern(self, path: str, parts: list[str]) -> None:
        """A * stands for any characters, also for none."""
        self.assertTrue(path_matches(path.join(parts), "*".join(parts)))
        self.assertTrue(path_matches("".join(parts), "*".join(parts)))

    def test_pattern_is_of_the_whole_path(self) -> None:
        """What is before the first and behind the last * is the beginning and the end, and both are not the same."""
        self.assertTrue(path_matches("/a/b.pdf", "/a/*.pdf"))
        self.assertFalse(path_matches("/a/b.pdf2", "/a/*.pdf"))
        self.assertFalse(path_matches("/aba", "/aba*ba"))
        self.assertFalse(path_matches("/b/a", "*a*b"))

    def test_pattern_takes_linear_time(self) -> None:
        """A hostile pattern on a long path is compared at once."""
        self.assertFalse(path_matches("a" * 60000, "*a" * 500 + "b"))


class SearchTests(SynchronousTestCase):
    """The slices of one search."""

    def test_ends_after_its_rows(self) -> None:
        """A search that finds nothing ends after SEARCH_ROWS, with the position at which the next one begins."""
        search, rows = Search(ReceiptQuery(limit=5)), 0
        while search.rows:
            rows += search.rows
            last = receipt(f"r{rows}")
            search.got(SearchSlice([], search.rows, (last.issued_at, last.id)))  # type: ignore[arg-type]
        self.assertEqual(SEARCH_ROWS, rows)
        self.assertEqual((NOW, f"r{SEARCH_ROWS}"), search.found.next)

    def test_ends_at_its_limit(self) -> None:
        """The slices together find as many as the limit."""
        search = Search(ReceiptQuery(limit=3))
        search.got(SearchSlice([receipt("a"), receipt("b")], SLICE_ROWS, (NOW, "b")))  # type: ignore[arg-type]
        self.assertEqual((1, (NOW, "b")), (search.query.limit, search.query.before))
        search.got(SearchSlice([receipt("c")], 1, (NOW, "c")))  # type: ignore[arg-type]
        self.assertEqual((0, (NOW, "c")), (search.rows, search.found.next))

    def test_ends_after_its_octets(self) -> None:
        """A search reads no more records after SEARCH_OCTETS of payloads, however few they were."""
        search = Search(ReceiptQuery(limit=5))
        for number, octets in enumerate((1, SEARCH_OCTETS - 2, 1)):
            self.assertEqual(SLICE_ROWS, search.rows)
            search.got(SearchSlice([], 1, RecordPosition(NOW - number, "a"), octets))
        self.assertEqual((0, (NOW - 2, "a")), (search.rows, search.found.next))


class ThreadedSearchTests(SynchronousTestCase):
    """Searches in the reader thread."""

    def make_store(self, **options: Any) -> SqliteStore:
        """A store that is open."""
        path = os.path.join(self.mktemp(), "notary.db")
        store = SqliteStore(path, reactor=InlineReactor(), reserve_size=0, **options)
        store.init()
        return store

    def test_many_slices(self) -> None:
        """A search goes on behind the first slice."""
        store = self.make_store(start_thread=InlineThread)
        for number in range(SLICE_ROWS + 10):
            name = CLIENT if number == 3 else "spiffe://example.org/other"
            self.successResultOf(store.put_receipt(receipt(f"r{number}", client=name, issued_at=NOW + number)))
        found = self.successResultOf(store.find(ReceiptQuery(client=CLIENT)))
        self.assertEqual((["r3"], None), ([each.id for each in found], found.next))
        self.successResultOf(store.close())

    def test_slices_of_large_records(self) -> None:
        """A slice ends after SLICE_OCTETS of payloads, so that no other read waits for many large records."""
        store = self.make_store(start_thread=InlineThread)
        large = "x" * (SLICE_OCTETS // 2)
        names = [f"r{number}" for number in range(5)]
        for number, name in enumerate(names):
            self.successResultOf(store.put_receipt(receipt(name, filler=large, issued_at=NOW + number)))
        slices: list[SearchSlice] = []
        scan = store._reader.scan

        def counted(query: ReceiptQuery, rows: int) -> SearchSlice:
            slices.append(scan(query, rows))
            return slices[-1]

        self.patch(store._reader, "scan", counted)
        found = self.successResultOf(store.find(ReceiptQuery()))
        self.assertEqual((names[::-1], None), ([each.id for each in found], found.next))
        self.assertEqual([2, 2, 1], [each.rows for each in slices])
        # What the columns do not select is not read.
        self.successResultOf(store.find(ReceiptQuery(client="spiffe://example.org/none")))
        self.assertEqual((5, 0), (slices[-1].rows, slices[-1].octets))
        self.successResultOf(store.close())

    def test_other_reads_come_between_the_slices(self) -> None:
        """A read that is asked for during a search waits for one slice of it; the next search waits for the first."""
        threads: dict[str, HeldThread] = {}

        def start(name: str, work: Any, finish: Any) -> Any:
            return threads.setdefault(name, HeldThread(name, work, finish))

        store = self.make_store(start_thread=start)
        reader, writer = threads["svc-store-reader"], threads["svc-store-writer"]
        reader.run()
        put = [store.put_receipt(receipt(f"r{number}", issued_at=NOW + number)) for number in range(SLICE_ROWS + 1)]
        writer.run()
        self.assertEqual([None] * len(put), [self.successResultOf(each) for each in put])
        query = ReceiptQuery(outcome="timeout")
        searches = [store.find(query), store.find(query)]
        self.assertEqual(1, len(reader.jobs))
        known = store.nonce_known(CLIENT, "n1")
        reader.run()
        self.assertFalse(self.successResultOf(known))
        self.assertNoResult(searches[0])
        reader.run()
        self.assertEqual([], self.successResultOf(searches[0]))
        self.assertNoResult(searches[1])
        closed = store.close()
        reader.run()
        self.failureResultOf(searches[1], StoreClosed)
        self.successResultOf(closed)

    def test_waiting_searches_are_bounded(self) -> None:
        """Beyond SEARCH_LIMIT searches that wait, another is refused."""
        threads: list[HeldThread] = []

        def start(name: str, work: Any, finish: Any) -> Any:
            threads.append(HeldThread(name, work, finish))
            return threads[-1]

        store = self.make_store(start_thread=start)
        waiting = [store.find(ReceiptQuery()) for _ in range(1 + SEARCH_LIMIT)]
        refused = self.failureResultOf(store.find(ReceiptQuery()), SearchesBusy).value
        self.assertEqual((429, "notary_rate", SEARCH_LIMIT), (refused.http_status, refused.reason, refused.limit))
        reader = next(each for each in threads if each.name == "svc-store-reader")
        for search in waiting:
            reader.run()
            self.assertEqual([], self.successResultOf(search))
        self.successResultOf(store.close())
