"""The contract of notary stores, tested with the embedded store and the double in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.store.backend import STATEMENT_GRACE
from svc.store.errors import Replayed, StoreClosed
from svc.store.interface import INotaryStore
from svc.store.records import FoundReceipts, ReceiptQuery, RecordPosition
from svc.store.sqlite import SqliteStore
from svc.testing.store import MemoryStore
from tests.mixins import TestsMixin
from tests.store.doubles import CLIENT, NOW, SERVER, InlineReactor, InlineThread, batch, receipt, statement

OTHER_CLIENT = "spiffe://example.org/other"


class ContractMixin(TestsMixin):
    """The tests of the contract; a subclass creates the store."""

    store: Any

    def make_store(self) -> Any:
        raise NotImplementedError

    def setUp(self) -> None:
        self.store = self.make_store()
        self.store.init()

    def tearDown(self) -> None:
        self.successResultOf(self.store.close())

    def test_provides_the_interface(self) -> None:
        """A store provides INotaryStore with all methods and arguments."""
        self.assertTrue(verifyObject(INotaryStore, self.store))

    def test_writable_after_init(self) -> None:
        """A store is writable from init to close."""
        self.assertTrue(self.store.writable)
        self.successResultOf(self.store.close())
        self.assertFalse(self.store.writable)

    def test_statement_comes_back_as_put(self) -> None:
        """A statement is served octet for octet as it was put."""
        put = statement("s1")
        self.successResultOf(self.store.put_statement(put))
        self.assertEqual(put.envelope.serialize(), self.successResultOf(self.store.get_statement("s1")))

    def test_statement_is_stored_once(self) -> None:
        """A second put of a statement succeeds and does not change the first."""
        first, second = statement("s1", chain=(b"first",)), statement("s1", chain=(b"second",))
        self.successResultOf(self.store.put_statement(first))
        self.successResultOf(self.store.put_statement(second))
        self.assertEqual(first.envelope.serialize(), self.successResultOf(self.store.get_statement("s1")))

    def test_unknown_ids(self) -> None:
        """An identifier that was never put gives None, not an error."""
        self.assertIsNone(self.successResultOf(self.store.get_statement("none")))
        self.assertIsNone(self.successResultOf(self.store.get_receipt("none")))
        self.assertIsNone(self.successResultOf(self.store.get_by_request(CLIENT, "none")))
        self.assertFalse(self.successResultOf(self.store.nonce_known(CLIENT, "none")))

    def test_signed_receipt_comes_back_as_put(self) -> None:
        """A signed record is returned equal in every member."""
        put = receipt("r1", nonce="n1")
        self.successResultOf(self.store.put_receipt(put))
        self.assertEqual(put, self.successResultOf(self.store.get_receipt("r1")))

    def test_unsigned_record_comes_back_as_put(self) -> None:
        """A record of level logRequest has no envelope."""
        put = receipt("r1", signed=False)
        self.successResultOf(self.store.put_receipt(put))
        found = self.successResultOf(self.store.get_receipt("r1"))
        self.assertEqual(put, found)
        self.assertIsNone(found.envelope)

    def test_records_of_a_batch_come_back_as_put(self) -> None:
        """Records that were signed together are returned equal in every member, by each way to find them."""
        put = batch("r1", "r2", nonce=None)
        for each in put:
            self.successResultOf(self.store.put_receipt(each))
        self.assertEqual(put, [self.successResultOf(self.store.get_receipt(each.id)) for each in put])
        self.assertEqual(put[1], self.successResultOf(self.store.get_by_request(CLIENT, "jti-r2")))
        self.assertCountEqual(put, self.find())
        self.assertEqual([True, True], [each.signed for each in self.find()])

    def test_pruning_a_part_of_a_batch(self) -> None:
        """What is deleted of a batch breaks none of the records that stay."""
        old, new = batch("r1", "r2", names="a")
        self.put(replace(old, issued_at=NOW - 1), new)
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW)))
        self.assertIsNone(self.successResultOf(self.store.get_receipt("r1")))
        self.assertEqual(new, self.successResultOf(self.store.get_receipt("r2")))
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW + 1)))
        self.assertEqual([], self.find())

    def test_draft(self) -> None:
        """A draft is completed, stored, and answered with its record."""
        record = receipt("r1")
        done = self.store.put_draft("draft", lambda drafts: [record] if drafts == ["draft"] else [])
        self.assertEqual(record, self.successResultOf(done))
        self.assertEqual(record, self.successResultOf(self.store.get_receipt("r1")))

    def test_draft_that_cannot_be_completed(self) -> None:
        """A draft fails with what its completion returned or raised; the next is stored."""

        def broken(drafts: Sequence[Any]) -> Sequence[Any]:
            raise LookupError(drafts)

        self.failureResultOf(
            self.store.put_draft("draft", lambda drafts: [KeyError(each) for each in drafts]), KeyError
        )
        self.failureResultOf(self.store.put_draft("draft", broken), LookupError)
        self.successResultOf(self.store.put_draft("draft", lambda _drafts: [receipt("r1", nonce="n1")]))
        self.failureResultOf(self.store.put_draft("again", lambda _drafts: [receipt("r2", nonce="n1")]), Replayed)
        self.successResultOf(self.store.close())
        self.failureResultOf(self.store.put_draft("late", lambda _drafts: [receipt("r3")]), StoreClosed)

    def test_found_by_nonce_and_by_jti(self) -> None:
        """A record is found by nonce and by jti."""
        put = receipt("r1", nonce="n1", jti="j1")
        self.successResultOf(self.store.put_receipt(put))
        self.assertEqual(put, self.successResultOf(self.store.get_by_request(CLIENT, "n1")))
        self.assertEqual(put, self.successResultOf(self.store.get_by_request(CLIENT, "j1")))

    def test_look_up_is_scoped_to_the_client(self) -> None:
        """A client does not find another client's record by its nonce or jti."""
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1", jti="j1")))
        self.assertIsNone(self.successResultOf(self.store.get_by_request(OTHER_CLIENT, "n1")))
        self.assertIsNone(self.successResultOf(self.store.get_by_request(OTHER_CLIENT, "j1")))
        self.assertFalse(self.successResultOf(self.store.nonce_known(OTHER_CLIENT, "n1")))

    def find(self, **members: Any) -> FoundReceipts:
        """The result of a search."""
        found: FoundReceipts = self.successResultOf(self.store.find(ReceiptQuery(**members)))
        return found

    def names(self, **members: Any) -> list[str]:
        """The ids that a search finds."""
        return [each.id for each in self.find(**members)]

    def put(self, *records: Any) -> None:
        """Store records."""
        for each in records:
            self.successResultOf(self.store.put_receipt(each))

    def test_search_finds_the_newest_first(self) -> None:
        """A search returns whole records, the newest first, up to its limit, and where the next one begins."""
        records = [receipt(f"r{number}", issued_at=NOW + number, signed=number != 2) for number in range(4)]
        self.put(*records)
        self.assertEqual(records[::-1], self.find())
        self.assertIsNone(self.find().next)
        first = self.find(limit=2)
        self.assertEqual([records[3], records[2]], first)
        self.assertEqual(RecordPosition(NOW + 2, "r2"), first.next)
        self.assertEqual([records[1], records[0]], self.find(limit=3, before=first.next))

    def test_search_of_an_empty_store(self) -> None:
        """An empty store has nothing to find, and nothing is left."""
        self.assertEqual(([], None), (self.find(), self.find().next))

    def test_search_continues_within_a_second(self) -> None:
        """Records of one second are found once each, whatever the limit."""
        self.put(*(receipt(f"r{number}") for number in range(7)))
        for limit in (1, 2, 3, 7):
            names: list[str] = []
            before: RecordPosition | None = RecordPosition(NOW + 1, "")
            while before is not None:
                found = self.find(limit=limit, before=before)
                names += [each.id for each in found]
                before = found.next
            self.assertEqual([f"r{number}" for number in range(7)], sorted(names))

    def test_search_behind_a_pruned_record(self) -> None:
        """A search continues with older seconds where the record at which the last one ended was pruned."""
        self.put(receipt("old", issued_at=NOW - 1), receipt("new", issued_at=NOW + 1))
        self.assertEqual(["old"], self.names(before=RecordPosition(NOW, "pruned")))

    def test_search_from_a_whole_second(self) -> None:
        """A position without an id is before all records of its second."""
        self.put(receipt("old", issued_at=NOW - 1), receipt("new", issued_at=NOW))
        self.assertEqual(["old"], self.names(before=RecordPosition(NOW, "")))
        self.assertEqual(["new", "old"], self.names(before=RecordPosition(NOW + 1, "")))

    def test_search_by_columns(self) -> None:
        """Times, parties, level and outcome are all to be those of the query; the end of the times is excluded."""
        self.put(
            receipt("a", issued_at=NOW),
            receipt("b", issued_at=NOW + 1, client=OTHER_CLIENT, outcome="timeout"),
            receipt("c", issued_at=NOW + 2, client=OTHER_CLIENT, signed=False),
            receipt("d", issued_at=NOW + 3, server=CLIENT, client=OTHER_CLIENT),
        )
        self.assertEqual(["c", "b"], self.names(since=NOW + 1, until=NOW + 3))
        self.assertEqual(["d", "c", "b"], self.names(client=OTHER_CLIENT))
        self.assertEqual(["d", "a"], self.names(party=CLIENT))
        self.assertEqual(["c", "b", "a"], self.names(party=SERVER))
        self.assertEqual(["c"], self.names(level="logRequest"))
        self.assertEqual(["b"], self.names(outcome="timeout", client=OTHER_CLIENT))
        self.assertEqual([], self.names(outcome="timeout", client=CLIENT))
        self.assertEqual([], self.names(client=""))

    def test_search_by_path_and_status(self) -> None:
        """The beginning or a pattern of the path and a range of the status are compared with the payload."""
        self.put(
            receipt("a", issued_at=NOW, path="/v1/pay", status=200),
            receipt("b", issued_at=NOW + 1, path="/v1/pay/7", status=503),
            receipt("c", issued_at=NOW + 2, path="/v2/pay", status=404),
            receipt("d", issued_at=NOW + 3, path="/v1/pay"),
            receipt("e", issued_at=NOW + 4),
        )
        self.assertEqual(["d", "b", "a"], self.names(path="/v1"))
        self.assertEqual(["d", "c", "a"], self.names(path="/*/pay"))
        self.assertEqual(["c", "b"], self.names(status=range(400, 600)))
        self.assertEqual(["b"], self.names(status=range(503, 504), path="/v1/pay/"))
        self.assertEqual([], self.names(status=range(500, 503)))

    def test_search_with_a_hostile_text(self) -> None:
        """What is searched for is data, whatever characters it has."""
        self.put(receipt("a", path="/v1", status=200))
        for text in ("'", '" OR 1=1 --', "%s", "{}", ":before"):
            self.assertEqual([], self.names(client=text))
            self.assertEqual([], self.names(path=text, outcome=text))

    def test_nonce_once_for_each_client(self) -> None:
        """A client's second use of a nonce is refused; another client can use it."""
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1")))
        refused = self.failureResultOf(self.store.put_receipt(receipt("r2", nonce="n1")), Replayed).value
        self.assertEqual(("replayed", 409, CLIENT), (refused.reason, refused.http_status, refused.client))
        self.successResultOf(self.store.put_receipt(receipt("r3", nonce="n1", client=OTHER_CLIENT)))
        self.assertIsNone(self.successResultOf(self.store.get_receipt("r2")))
        self.assertTrue(self.successResultOf(self.store.nonce_known(CLIENT, "n1")))

    def test_same_id_is_refused(self) -> None:
        """A second record with the same ID is refused."""
        self.successResultOf(self.store.put_receipt(receipt("r1")))
        self.failureResultOf(self.store.put_receipt(receipt("r1")), Replayed)

    def test_records_without_nonce_do_not_collide(self) -> None:
        """Records without a nonce do not conflict."""
        for name in ("r1", "r2"):
            self.successResultOf(self.store.put_receipt(receipt(name)))
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("r2")))

    def test_nonce_is_reserved_until_it_is_stored(self) -> None:
        """A nonce is free until a record has it, and after give_back; no other process reserves it."""
        self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.successResultOf(self.store.give_back(CLIENT, "n1"))
        self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1")))
        self.assertFalse(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.assertFalse(self.successResultOf(self.store.reserved(CLIENT, "n1")))
        self.assertTrue(self.successResultOf(self.store.reserve(OTHER_CLIENT, "n1")))

    def test_prune_deletes_older_records(self) -> None:
        """Records issued before the instant are deleted, with their nonces; one issued at it stays."""
        self.successResultOf(self.store.put_receipt(receipt("old", nonce="n1", issued_at=NOW - 1)))
        self.successResultOf(self.store.put_receipt(receipt("kept", issued_at=NOW)))
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW)))
        self.assertIsNone(self.successResultOf(self.store.get_receipt("old")))
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("kept")))
        self.assertFalse(self.successResultOf(self.store.nonce_known(CLIENT, "n1")))

    def test_prune_keeps_named_statements(self) -> None:
        """An expired statement is kept while a record may refer to it, and deleted when the last of them is."""
        last = NOW + STATEMENT_GRACE
        self.successResultOf(self.store.put_statement(statement("s1", expires=NOW)))
        self.successResultOf(self.store.put_receipt(receipt("r1", names="s1", issued_at=last)))
        self.assertEqual(0, self.successResultOf(self.store.prune(last)))
        self.assertIsNotNone(self.successResultOf(self.store.get_statement("s1")))
        self.assertEqual(1, self.successResultOf(self.store.prune(last + 1)))
        self.assertIsNone(self.successResultOf(self.store.get_statement("s1")))

    def test_prune_keeps_valid_statements(self) -> None:
        """A statement that has not expired is kept, even if no record refers to it."""
        self.successResultOf(self.store.put_statement(statement("s1", expires=NOW)))
        self.assertEqual(0, self.successResultOf(self.store.prune(NOW)))
        self.assertIsNotNone(self.successResultOf(self.store.get_statement("s1")))

    def test_certificates_survive_pruning_of_others(self) -> None:
        """A record that shares certificates with a pruned one is still served completely."""
        self.successResultOf(self.store.put_receipt(receipt("old", chain=(b"leaf", b"ca"), issued_at=NOW - 1)))
        self.successResultOf(self.store.put_receipt(receipt("gone", chain=(b"gone", b"ca"), issued_at=NOW - 1)))
        kept = receipt("kept", chain=(b"leaf", b"ca"))
        self.successResultOf(self.store.put_receipt(kept))
        self.assertEqual(2, self.successResultOf(self.store.prune(NOW)))
        self.assertEqual(kept, self.successResultOf(self.store.get_receipt("kept")))
        again = receipt("again", chain=(b"gone", b"ca"))
        self.successResultOf(self.store.put_receipt(again))
        self.assertEqual(again, self.successResultOf(self.store.get_receipt("again")))

    def test_octets_are_measured(self) -> None:
        """What all records take is known, and where it is counted by client that too."""
        for number, client in enumerate(("a", "a", "b")):
            self.put(receipt(f"r{number}", client=client, filler="x" * 1000))
        usage = self.successResultOf(self.store.measure())
        self.assertGreater(usage.octets, 3000)
        if usage.held:
            self.assertEqual({"a", "b"}, set(usage.held))
            self.assertEqual(usage.held["a"], 2 * usage.held["b"])

    def test_closed_store_refuses(self) -> None:
        """After close every operation fails with StoreClosed; a second close has no effect."""
        self.successResultOf(self.store.close())
        for call in (
            lambda: self.store.put_statement(statement()),
            lambda: self.store.put_receipt(receipt()),
            lambda: self.store.get_statement("s1"),
            lambda: self.store.get_receipt("r1"),
            lambda: self.store.get_by_request(CLIENT, "n1"),
            lambda: self.store.find(ReceiptQuery()),
            lambda: self.store.nonce_known(CLIENT, "n1"),
            lambda: self.store.reserve(CLIENT, "n1"),
            lambda: self.store.give_back(CLIENT, "n1"),
            lambda: self.store.reserved(CLIENT, "n1"),
            lambda: self.store.prune(NOW),
        ):
            self.failureResultOf(call(), StoreClosed)
        self.successResultOf(self.store.close())


class MemoryStoreTests(ContractMixin, SynchronousTestCase):
    """The double in memory fulfils the contract."""

    def make_store(self) -> Any:
        return MemoryStore()

    def test_held_records_wait(self) -> None:
        """While commits are held, a record is neither acknowledged nor found."""
        self.store.hold = True
        waiting = self.store.put_receipt(receipt("r1"))
        self.assertNoResult(waiting)
        self.assertEqual(1, self.store.held)
        self.assertIsNone(self.successResultOf(self.store.get_receipt("r1")))
        self.store.release()
        self.successResultOf(waiting)
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("r1")))


class SqliteStoreTests(ContractMixin, SynchronousTestCase):
    """The embedded store fulfils the contract, here without its threads."""

    def make_store(self) -> Any:
        self.path = os.path.join(self.mktemp(), "notary.db")
        return SqliteStore(self.path, reactor=InlineReactor(), reserve_size=4096, start_thread=InlineThread)

    def test_records_survive_a_restart(self) -> None:
        """An acknowledged record is still there after closing and reopening."""
        put, signed = statement("s1"), receipt("r1", nonce="n1")
        self.successResultOf(self.store.put_statement(put))
        self.successResultOf(self.store.put_receipt(signed))
        self.successResultOf(self.store.close())
        again = SqliteStore(self.path, reactor=InlineReactor(), reserve_size=4096, start_thread=InlineThread)
        again.init()
        self.addCleanup(lambda: self.successResultOf(again.close()))
        self.assertEqual(put.envelope.serialize(), self.successResultOf(again.get_statement("s1")))
        self.assertEqual(signed, self.successResultOf(again.get_receipt("r1")))


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_TIMES = st.integers(NOW, NOW + 6)
_CHAINS = st.sampled_from([(b"leaf", b"ca"), (b"next", b"ca"), (b"solo",)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("statement"), _NAMES, _TIMES, _CHAINS),
        st.tuples(
            st.just("receipt"),
            st.sampled_from([f"r{number}" for number in range(8)]),
            st.sampled_from([None, "n1", "n2", "n3"]),
            _TIMES,
            _NAMES,
            _CHAINS,
            st.sampled_from(["alone", "in a batch", "unsigned"]),
        ),
        st.tuples(st.just("prune"), _TIMES),
    ),
    max_size=25,
)


class AgreementMixin(TestsMixin):
    """A store and the double return the same results; a subclass creates the store."""

    def make_store(self) -> Any:
        """Create an empty store."""
        raise NotImplementedError

    def assert_agreement(self, steps: list[tuple[Any, ...]]) -> None:
        """Run the steps on both and compare every result."""
        asked, double = self.make_store(), MemoryStore()
        for store in (asked, double):
            store.init()
        try:
            for step in steps:
                self.assertEqual(self._did(double, step), self._did(asked, step), step)
            self.assertEqual(self._view(double), self._view(asked))
        finally:
            self.successResultOf(asked.close())

    def _did(self, store: Any, step: tuple[Any, ...]) -> object:
        kind, *rest = step
        if kind == "prune":
            return self.successResultOf(store.prune(rest[0]))
        if kind == "statement":
            name, expires, chain = rest
            return self.successResultOf(store.put_statement(statement(name, expires=expires, chain=chain)))
        name, nonce, issued_at, names, chain, signed = rest
        members = {"nonce": nonce, "issued_at": issued_at, "names": names}
        if signed == "in a batch":
            record = batch(name, "another", chain=chain, **members)[0]
        else:
            record = receipt(name, chain=chain, signed=signed == "alone", **members)
        outcome: list[object] = []
        store.put_receipt(record).addBoth(lambda result: outcome.append(getattr(result, "type", result)))
        return outcome

    def _view(self, store: Any) -> list[object]:
        asked = [store.get_statement(name) for name in "abcd"]
        asked += [store.get_receipt(f"r{number}") for number in range(8)]
        asked += [store.get_by_request(CLIENT, f"jti-r{number}") for number in range(8)]
        asked += [store.get_by_request(CLIENT, nonce) for nonce in ("n1", "n2", "n3")]
        asked += [store.nonce_known(CLIENT, nonce) for nonce in ("n1", "n2", "n3")]
        searched = self.successResultOf(store.find(ReceiptQuery(since=NOW + 1, client=CLIENT, level="signRequest")))
        # Within a second each store has an order of its own.
        newest_first = sorted(searched, key=lambda each: (-each.issued_at, each.id))
        self.assertEqual([each.issued_at for each in newest_first], [each.issued_at for each in searched])
        return [*(self.successResultOf(answer) for answer in asked), newest_first]


class AgreementTests(AgreementMixin, SynchronousTestCase):
    """The embedded store and the double return the same results."""

    def make_store(self) -> Any:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, True)
        path = os.path.join(folder, "notary.db")
        return SqliteStore(path, reactor=InlineReactor(), reserve_size=0, start_thread=InlineThread)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def test_any_sequence_gives_the_same_answers(self, steps: list[tuple[Any, ...]]) -> None:
        """After any sequence of puts and prunings both stores return the same results."""
        self.assert_agreement(steps)
