"""The store on a real PostgreSQL server keeps every promise of a store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from twisted.trial.unittest import SynchronousTestCase

from svc.store.compact import CompactEnvelope
from svc.store.errors import Replayed, StoreError
from svc.store.postgresql import schema
from svc.store.postgresql.session import connect
from svc.store.postgresql.store import PostgresStore
from svc.store.readonly import open_notary
from svc.store.records import ReceiptQuery, RecordPosition
from svc.store.rows import RECEIPT_COLUMNS, receipt_values
from svc.store.search import SLICE_OCTETS, SLICE_ROWS
from tests.cli.doubles import run_svc
from tests.peers.postgresql import RunningPostgres
from tests.peers.waiting import Shared
from tests.store.doubles import NOW, InlineReactor, InlineThread, batch, receipt, statement
from tests.store.test_contract import STEPS, AgreementMixin, ContractMixin

SERVER = Shared(RunningPostgres)
EMPTY = "DROP SCHEMA IF EXISTS svc_notary CASCADE"


def make_store(**options: Any) -> PostgresStore:
    """A store that works on the caller's thread."""
    given = {"reactor": InlineReactor(), "start_thread": InlineThread}
    return PostgresStore(SERVER.get().address(), **(given | options))  # type: ignore[arg-type]


class PostgresContractTests(ContractMixin, SynchronousTestCase):
    """The promises of every store, over the server's socket."""

    def make_store(self) -> Any:
        SERVER.get().admin(EMPTY)
        return make_store()

    def test_slices_of_large_records(self) -> None:
        """A slice has no records behind SLICE_OCTETS of payloads; what the columns do not select is not counted."""
        names = [f"r{number}" for number in range(5)]
        for number, name in enumerate(names):
            large = receipt(name, filler="x" * (SLICE_OCTETS // 2), issued_at=NOW + number)
            self.successResultOf(self.store.put_receipt(large))
        first = self.store._reader.scan(ReceiptQuery(), SLICE_ROWS)
        self.assertEqual((2, RecordPosition(NOW + 3, "r3")), (first.rows, first.last))
        found = self.successResultOf(self.store.find(ReceiptQuery()))
        self.assertEqual((names[::-1], None), ([each.id for each in found], found.next))
        other = self.store._reader.scan(ReceiptQuery(client="spiffe://example.org/none"), SLICE_ROWS)
        self.assertEqual((5, 0, None), (other.rows, other.octets, other.last))


class PostgresBatchTests(SynchronousTestCase):
    """Receipts that were signed together."""

    def setUp(self) -> None:
        SERVER.get().admin(EMPTY)
        self.store = make_store()
        self.addCleanup(lambda: self.store.close())

    def count(self) -> tuple[int, int, int]:
        """The receipts, batches and sets of certificates that are stored."""
        return tuple(
            SERVER.get().admin(f"SELECT count(*) FROM svc_notary.{table}")[0][0]
            for table in ("receipt", "receipt_batch", "certificate_set")
        )

    def test_a_batch_is_one_transaction(self) -> None:
        """A batch is stored once with its receipts, and not at all where the server refuses them."""
        self.store.init()
        large = [replace(each, payload=b"x" * (2**20 + 1)) for each in batch("l1", "l2", number=1)]
        self.assertEqual(["malformed"] * 2, [each.reason for each in self.store._writer.commit(large).results if each])
        self.assertEqual((0, 0), self.count()[:2])
        self.assertEqual([None] * 3, self.store._writer.commit(batch("r1", "r2", "r3")).results)
        self.assertEqual((3, 1, 1), self.count())

    def test_discarded_records(self) -> None:
        """Records are deleted by their ids, with the batch that none needs any more."""
        self.store.init()
        writer = self.store._writer
        writer.commit([*batch("r1", "r2"), receipt("r3", nonce="n1")])
        writer.discard(["r1", "r3", "unknown"])
        self.assertEqual((1, 1), self.count()[:2])
        writer.discard(["r2"])
        self.assertEqual((0, 0), self.count()[:2])
        self.successResultOf(self.store.put_receipt(receipt("r4", nonce="n1")))

    def test_replays(self) -> None:
        """A replay among them fails alone; of none that is stored no batch is kept."""
        self.store.init()
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1")))
        first, second = batch("b1", "b2")
        results = self.store._writer.commit([replace(first, nonce="n1"), second]).results
        self.assertEqual([Replayed, type(None)], [type(each) for each in results])
        (alone,) = batch("b3", number=1, nonce="n1")
        self.assertEqual([Replayed], [type(each) for each in self.store._writer.commit([alone]).results])
        self.assertEqual((2, 1), self.count()[:2])

    def test_pruning(self) -> None:
        """A batch goes with its last receipt, its certificates with the batch."""
        self.store.init()
        old, new = batch("r1", "r2")
        self.store._writer.commit([replace(old, issued_at=NOW - 1), new])
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW)))
        self.assertEqual((1, 1, 1), self.count())
        self.assertEqual(new, self.successResultOf(self.store.get_receipt("r2")))
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW + 1)))
        self.assertEqual((0, 0, 0), self.count())

    def test_database_without_batches(self) -> None:
        """A database of the first version is read as it is, and upgraded by a replica that writes."""
        put = receipt("r1", nonce="n1")
        patches = self.patch(schema, "MIGRATIONS", schema.MIGRATIONS[:1]), self.patch(schema, "VERSION", 1)
        with closing(connect(SERVER.get().address(), durable=True)) as session:
            schema.prepare(session, "old")
            compact = CompactEnvelope.of(put.envelope or b"", put.payload)
            session.execute("INSERT INTO certificate_set VALUES (%s, %b)", (b"s" * 32, list(compact.certificates)))
            columns = RECEIPT_COLUMNS[:-2]
            text = f"INSERT INTO receipt ({', '.join(columns)}) VALUES ({', '.join(['%b'] * len(columns))})"
            session.execute(text.replace("%b", "%s").encode(), receipt_values(put, b"s" * 32, compact, None)[:-2])
        reader = open_notary(SERVER.get().url())
        self.addCleanup(reader.close)
        self.assertEqual(([put], put), ([*reader.find(ReceiptQuery())], reader.get_receipt("r1")))
        for each in patches:
            each.restore()
        self.store.init()
        self.assertEqual(put, self.successResultOf(self.store.get_receipt("r1")))
        self.assertEqual([None] * 2, self.store._writer.commit(batch("r2", "r3")).results)
        self.assertEqual((3, 1, 2), self.count())


class PostgresAgreementTests(AgreementMixin, SynchronousTestCase):
    """The store on a server and the double return the same results."""

    def make_store(self) -> Any:
        server = SERVER.get()
        if server.admin("SELECT to_regclass('svc_notary.receipt')")[0][0] is not None:
            tables = ("receipt", "receipt_batch", "workload_statement", "certificate_set", "reservation")
            server.admin(*(f"DELETE FROM svc_notary.{table}" for table in tables))
        return make_store()

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def test_any_sequence_gives_the_same_answers(self, steps: list[tuple[Any, ...]]) -> None:
        """After any puts and prunings every answer of the two stores is the same."""
        self.assert_agreement(steps)


class ReadOnlyTests(SynchronousTestCase):
    """A reader beside the replicas."""

    def setUp(self) -> None:
        SERVER.get().admin(EMPTY)

    def test_reads_and_writes_nothing(self) -> None:
        """A reader finds what a replica stores, reserves no nonce and cannot write."""
        store = make_store()
        store.init()
        self.addCleanup(store.close)
        put, signed = statement("s1"), receipt("r1", nonce="n1", jti="j1")
        self.successResultOf(store.put_statement(put))
        self.successResultOf(store.put_receipt(signed))
        self.assertTrue(self.successResultOf(store.reserve("spiffe://example.org/a", "n2")))
        reader = open_notary(SERVER.get().url())
        self.addCleanup(reader.close)
        self.assertEqual([signed], reader.find(ReceiptQuery(since=NOW)))
        self.assertEqual((signed, put.envelope.serialize()), (reader.get_receipt("r1"), reader.get_statement("s1")))
        for key in ("r", "r1", "n1", "j1"):
            self.assertEqual(["r1"], reader.named(key, 3))
        self.assertEqual([], reader.named("x", 3))
        refused = self.assertRaises(StoreError, reader._read, lambda each: each.reserve("spiffe://example.org/a", "n3"))
        self.assertIn("read-only transaction", str(refused))
        ran = run_svc("receipts", "list", "--notary", SERVER.get().url())
        self.assertEqual((0, 2), (ran.status, len(ran.stdout.splitlines())))
        reserved = SERVER.get().admin("SELECT nonce FROM svc_notary.reservation")
        self.assertEqual([("n2",)], reserved)

    def test_empty_database(self) -> None:
        """In a database without tables nothing is created."""
        error = self.assertRaises(StoreError, open_notary, SERVER.get().url())
        self.assertEqual("notary_empty", error.reason)
        self.assertEqual([(None,)], SERVER.get().admin("SELECT to_regnamespace('svc_notary')"))

    def test_role_that_may_not_read(self) -> None:
        """What the server refuses is reported in its words."""
        store = make_store()
        store.init()
        self.addCleanup(store.close)
        url = SERVER.get().url(role="nobody_here")
        self.assertEqual("notary_unavailable", self.assertRaises(StoreError, open_notary, url).reason)
