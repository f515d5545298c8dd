"""The list of receipts on the reserved path: who finds what, and how a query is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import MAX_ENVELOPE
from svc.identity import X509Svid, parse_matcher
from svc.notary.access import receipts_path
from svc.proxy.http.notary_endpoint import _continuation
from svc.store.errors import SearchesBusy
from svc.store.records import MAX_FOUND, FoundReceipts, ReceiptQuery, RecordPosition, StoredReceipt
from svc.strictjson import loads_object
from tests.proxy.rig import AUTHORITY, CALLER, OWN, Rig, Wire
from tests.proxy.test_notarization import OK, get
from tests.store.doubles import NOW, receipt

OTHER = AUTHORITY.svid("/ns/web/sa/other")
AUDITOR = AUTHORITY.svid("/ns/audit/sa/reader")
PATH = receipts_path().encode()
MINE, THEIRS = "spiffe://example.org/mine", "spiffe://example.org/theirs"
NONCES = [bytes((65 + number,)) * 21 + b"A" for number in range(6)]


class SearchTestCase(SynchronousTestCase):
    """Three signed exchanges of one client, one of another, and an unsigned record."""

    def setUp(self) -> None:
        self.rig = Rig()
        self.rig.notary._readers = parse_matcher("spiffe://prod.example/ns/audit/*")
        for nonce, svid, level in (
            (NONCES[0], CALLER, "signRequest"),
            (NONCES[1], CALLER, "signRequest"),
            (NONCES[2], OTHER, "signRequest"),
            (NONCES[3], CALLER, "logRequest"),
            (NONCES[4], CALLER, "signRequest"),
        ):
            client, _wire = self.rig.client(svid)
            client.dataReceived(get(level, nonce))
            self.rig.respond(OK)
            self.rig.clock.advance(1)

    def answer(self, query: bytes = b"", svid: X509Svid = CALLER) -> tuple[int, dict[str, Any]]:
        """Ask for a list; returns status and document."""
        client, wire = self.rig.client(svid)
        client.dataReceived(b"GET %b%b HTTP/1.1\r\nHost: a\r\n\r\n" % (PATH, query))
        head, _, body = wire.take().partition(b"\r\n\r\n")
        return int(head.split()[1]), loads_object(body)

    def nonces(self, query: bytes = b"", svid: X509Svid = CALLER) -> list[bytes]:
        """The nonces of what is found."""
        status, document = self.answer(query, svid)
        self.assertEqual((200, 1), (status, document["v"]))
        return [each["nonce"].encode() for each in document["receipts"]]


class ScopeTests(SearchTestCase):
    """Who finds which receipts."""

    def test_client(self) -> None:
        """A client finds its own signed receipts, the newest first."""
        self.assertEqual([NONCES[4], NONCES[1], NONCES[0]], self.nonces())
        self.assertEqual([NONCES[2]], self.nonces(svid=OTHER))

    def test_stranger(self) -> None:
        """Another peer finds nothing, whatever it asks for."""
        stranger = AUTHORITY.svid("/ns/web/sa/stranger")
        for query in (b"", b"?client=" + str(CALLER.spiffe_id).encode()):
            self.assertEqual((200, {"v": 1, "receipts": [], "next": None}), self.answer(query, stranger))

    def test_workload_and_readers(self) -> None:
        """The workload itself and holders of notary.read find the receipts of all clients."""
        signed = [NONCES[4], NONCES[2], NONCES[1], NONCES[0]]
        self.assertEqual(signed, self.nonces(svid=OWN))
        self.assertEqual(signed, self.nonces(svid=AUDITOR))
        self.assertEqual([NONCES[2]], self.nonces(b"?client=" + str(OTHER.spiffe_id).encode(), AUDITOR))

    def test_what_is_found_can_be_fetched(self) -> None:
        """The id of a summary is that of the receipt."""
        [found] = self.answer(b"?limit=1")[1]["receipts"]
        client, wire = self.rig.client()
        client.dataReceived(b"GET %b/%b HTTP/1.1\r\nHost: a\r\n\r\n" % (PATH, found["id"].encode()))
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 200 "))

    def test_outbound_listener(self) -> None:
        """An outbound listener serves no list of its own."""
        rig = Rig(inbound=False)
        client, wire = rig.client()
        client.dataReceived(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % PATH)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 404 "))


class QueryTests(SearchTestCase):
    """What can be asked for."""

    def test_pages(self) -> None:
        """A list continues where it ended."""
        status, first = self.answer(b"?limit=2")
        self.assertEqual((200, 2), (status, len(first["receipts"])))
        self.assertEqual([NONCES[0]], self.nonces(b"?limit=2&before=" + first["next"].encode()))

    def test_filters(self) -> None:
        """Path, status, outcome and times select."""
        self.assertEqual(3, len(self.nonces(b"?path=/a&status=2xx&outcome=complete")))
        for query in (b"path=/b", b"status=5xx", b"outcome=timeout", b"until=2020-01-01T00:00:00Z"):
            self.assertEqual([], self.nonces(b"?" + query))

    def test_position_names_no_other_receipt(self) -> None:
        """Where a search ended at a receipt that is not in the list, it continues behind its own or with the second."""
        [own] = self.successResultOf(self.rig.store.find(ReceiptQuery(limit=1)))
        foreign = RecordPosition(own.issued_at, "B" * 43)

        def search(*found: StoredReceipt) -> None:
            page = FoundReceipts(found)
            page.next = foreign
            self.rig.store.find = lambda query: succeed(page)

        def following(query: str = "") -> object:
            return self.answer(query.encode())[1]["next"]

        time = own.issued_at
        search()
        self.assertEqual(f"{time + 1}.", following())
        self.assertEqual(f"{time + 1}.", following(f"?before={time + 1}.{'A' * 43}"))
        search(replace(own, issued_at=time + 1))
        self.assertEqual(f"{time + 1}.", following())
        search(own)
        self.assertEqual(f"{time}.{own.id}", following())
        # A second with more records than one search reads does not end the list.
        search()
        for before in (f"{time + 1}.", f"{time}.{own.id}"):
            self.assertEqual(f"{time}.{foreign.id}", following(f"?before={before}"))

    def test_malformed(self) -> None:
        """A malformed query is 400 and says what was expected."""
        for query in (b"limit=1001", b"limit=0", b"x=1", b"since=yesterday", b"status=4", b"path=/%zz"):
            status, document = self.answer(b"?" + query)
            self.assertEqual((400, "query_malformed"), (status, document["code"]))
            self.assertIn("expected: ", document["detail"])
        self.assertEqual([], self.rig.endpoint.connections[5:])

    def test_busy(self) -> None:
        """Where too many searches wait, the answer is 503 with Retry-After."""
        self.rig.store.find = lambda query: fail(SearchesBusy(limit=64))
        status, document = self.answer()
        self.assertEqual((503, "notary_unavailable"), (status, document["code"]))

    def test_searches_of_one_identity(self) -> None:
        """One identity has a bounded number of searches at a time, even if it leaves; others have theirs."""
        searches: list[Deferred[FoundReceipts]] = []

        def find(query: ReceiptQuery) -> Deferred[FoundReceipts]:
            searches.append(Deferred())
            return searches[-1]

        self.rig.store.find = find

        def ask(svid: X509Svid = CALLER, *, leave: bool = False) -> Wire:
            client, wire = self.rig.client(svid)
            client.dataReceived(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % PATH)
            if leave:
                client.connectionLost(Failure(ConnectionDone()))
            return wire

        waiting = [ask(leave=number == 3) for number in range(4)]
        refused = ask().take()
        self.assertIn(b"HTTP/1.1 429 ", refused)
        self.assertIn(b"Retry-After: 1\r\n", refused)
        other = ask(OTHER)
        self.assertEqual(5, len(searches))
        for each in searches:
            each.callback(FoundReceipts())
        for wire in (*waiting[:3], other):
            self.assertIn(b"HTTP/1.1 200 ", wire.take())
        self.assertEqual({}, self.rig.notary._searches)
        ask()
        self.assertEqual(6, len(searches))

    def test_no_credentials(self) -> None:
        """Without credentials nothing is served."""
        self.rig.rotation.credentials = None
        self.assertEqual(503, self.answer()[0])


class BoundTests(SearchTestCase):
    """How much one response holds."""

    def fill(self, count: int, filler: str) -> None:
        """Store copies of a receipt that have a long path."""
        [stored] = self.successResultOf(self.rig.store.find(ReceiptQuery(limit=1)))
        for number in range(count):
            payload = stored.payload.replace(b'"path":"/a"', b'"path":"/%b%d"' % (filler.encode(), number))
            self.assertNotEqual(stored.payload, payload)
            made: StoredReceipt = replace(stored, id=f"{number:043}", nonce=None, payload=payload)
            self.successResultOf(self.rig.store.put_receipt(made))

    def all_pages(self) -> tuple[int, int]:
        """Read a list to its end; returns the number of receipts and of pages."""
        found, pages, before = 0, 0, b""
        while True:
            status, document = self.answer(b"?limit=%d%b" % (MAX_FOUND, before))
            self.assertEqual(200, status)
            found, pages = found + len(document["receipts"]), pages + 1
            if document["next"] is None:
                return found, pages
            before = b"&before=" + document["next"].encode()

    def test_many(self) -> None:
        """A response holds at most a hundred receipts."""
        self.fill(150, "b")
        self.assertEqual((153, 2), self.all_pages())

    def test_large(self) -> None:
        """Long paths are cut, and a response is no larger than an envelope."""
        self.fill(90, r"\u0001" * 2000)
        client, wire = self.rig.client()
        client.dataReceived(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % PATH)
        self.assertLessEqual(len(wire.take().partition(b"\r\n\r\n")[2]), MAX_ENVELOPE)
        found, pages = self.all_pages()
        self.assertEqual((93, True), (found, pages > 1))


class ContinuationTests(SynchronousTestCase):
    """Lists that continue many times, in a store that reads few records for each search."""

    @given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=24), st.integers(1, 5), st.integers(1, 4))
    def test_each_once(self, kinds: list[tuple[int, bool]], rows: int, limit: int) -> None:
        """Every record of the caller is found once, newest first, whoever has the others, and the list ends."""
        records = [
            receipt(f"r{number:02}", issued_at=NOW + second, client=MINE if own else THEIRS)
            for number, (second, own) in enumerate(kinds)
        ]
        records.sort(key=lambda each: (each.issued_at, each.id), reverse=True)
        names: list[str] = []
        query = ReceiptQuery(client=MINE, limit=limit)
        for _ in range(4 * len(records) + 4):
            found = searched(records, query, rows)
            names += [each.id for each in found]
            following = _continuation(found, query)
            if following is None:
                self.assertEqual([each.id for each in records if each.client == MINE], names)
                return
            query = replace(query, before=following)
        self.fail("the list does not end")


def searched(records: list[StoredReceipt], query: ReceiptQuery, rows: int) -> FoundReceipts:
    """Search in records, newest first, as a database does: only so many are read."""
    before = query.before or RecordPosition(2**40, "")
    behind = [each for each in records if (each.issued_at, each.id) < before]
    found = FoundReceipts()
    for number, each in enumerate(behind, start=1):
        found += [each] if each.client == query.client else []
        if number == rows or len(found) == query.limit:
            found.next = RecordPosition(each.issued_at, each.id)
            break
    return found
