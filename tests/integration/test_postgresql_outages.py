"""A PostgreSQL server is lost and returns, in every way: no acknowledged record is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.sqlite.threads import COMMIT_SECONDS
from svc.store.errors import DatabaseUnavailable, Replayed, StoreClosed, StoreError, StoreLate
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.session import PostgresSession
from svc.store.postgresql.store import RETRY_FIRST, RETRY_LEAST, RETRY_MOST, PostgresStore
from tests.integration.test_store_postgresql import EMPTY, SERVER, make_store
from tests.peers.postgresql import RunningPostgres
from tests.peers.waiting import eventually
from tests.store.doubles import CLIENT, NOW, InlineReactor, RecordingObserver, receipt, statement


class OutageCase(SynchronousTestCase):
    """A store on the caller's thread whose clock the test turns."""

    def setUp(self) -> None:
        self.server: RunningPostgres = SERVER.get()
        self.server.admin(EMPTY)
        self.reactor, self.observer = InlineReactor(), RecordingObserver()
        self.store = self.make()

    def make(self, **options: Any) -> PostgresStore:
        store = make_store(reactor=self.reactor, observer=self.observer, jitter=lambda: 1.0, **options)
        store.init()
        self.addCleanup(lambda: self.successResultOf(store.close()))
        return store

    def stored(self) -> list[str]:
        return [name for (name,) in self.server.admin("SELECT id FROM svc_notary.receipt ORDER BY id")]

    def refused(self) -> ExitStack:
        """Let the server take no connection of the role."""
        stack = ExitStack()
        self.server.admin("ALTER ROLE svc NOLOGIN")
        stack.callback(self.server.admin, "ALTER ROLE svc LOGIN")
        return stack


class ConnectionTests(OutageCase):
    """One connection ends."""

    def test_put_after_a_cut(self) -> None:
        """A record that meets a dead connection waits, is stored at the next attempt, and was never refused."""
        self.server.cut_connections()
        put = self.store.put_receipt(receipt("r1", nonce="n1"))
        self.assertNoResult(put)
        self.assertFalse(self.store.writable)
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)
        self.assertTrue(self.store.writable)
        self.assertEqual([True, False, True], self.observer.writable)
        self.assertEqual(["r1"], self.stored())

    def test_reading_after_a_cut(self) -> None:
        """A reading that meets a dead connection is repeated on a new one at once, without an error."""
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1")))
        self.server.cut_connections()
        self.assertIsNotNone(self.successResultOf(self.store.get_receipt("r1")))
        self.assertEqual([], self.observer.errors)

    def test_records_and_statements_while_it_is_away(self) -> None:
        """Records put while the server is unavailable are stored in order when it returns; other refusals stay."""
        self.successResultOf(self.store.put_receipt(receipt("r1", nonce="n1")))
        self.server.cut_connections()
        puts = [self.store.put_receipt(receipt(f"r{number}", nonce=f"n{number % 3}")) for number in range(2, 6)]
        put = self.store.put_statement(statement("s1"))
        self.reactor.advance(RETRY_FIRST)
        for put in puts[:2]:
            self.successResultOf(put)
        for put in puts[2:]:
            self.failureResultOf(put, Replayed)
        self.successResultOf(put)
        self.assertEqual(["r1", "r2", "r3"], self.stored())

    def test_prune_while_it_is_away(self) -> None:
        """Pruning fails, and does again what it must when the server is back."""
        self.successResultOf(self.store.put_receipt(receipt("r1", issued_at=NOW - 1)))
        self.server.cut_connections()
        self.failureResultOf(self.store.prune(NOW), DatabaseUnavailable)
        self.assertFalse(self.store.writable)
        self.failureResultOf(self.store.prune(NOW), DatabaseUnavailable)
        self.reactor.advance(RETRY_FIRST)
        self.assertEqual(1, self.successResultOf(self.store.prune(NOW)))

    def test_close_while_it_is_away(self) -> None:
        """A store that is closed while the server is away fails waiting operations, and closes."""
        self.server.cut_connections()
        put = self.store.put_receipt(receipt("r1"))
        with self.refused():
            self.successResultOf(self.store.close())
        self.failureResultOf(put, StoreClosed)
        self.assertEqual([], self.reactor.getDelayedCalls())

    def test_attempts(self) -> None:
        """Attempts follow after increasing delays up to the limit, none at once; then the waiting records are late."""
        with self.refused():
            self.server.cut_connections()
            put = self.store.put_receipt(receipt("r1"))
            spans: list[float] = []
            while len(spans) < 9:
                [call] = [each for each in self.reactor.getDelayedCalls() if each.func == self.store._try_again]  # type: ignore[attr-defined]
                spans.append(call.getTime() - self.reactor.seconds())
                self.reactor.advance(spans[-1])
            self.assertEqual(
                [min(RETRY_MOST, RETRY_FIRST * 2**turn) for turn in range(9)], [round(each, 6) for each in spans]
            )
            self.failureResultOf(put, StoreLate)
            self.assertIn('role "svc" is not permitted to log in', self.observer.details[-1])
            self.failureResultOf(self.store.get_receipt("r1"), DatabaseUnavailable)
        self.store._jitter = lambda: 0.0
        self.assertEqual(RETRY_LEAST, self.store._retry_delay(0))
        self.reactor.advance(RETRY_MOST)
        self.assertTrue(self.store.writable)
        self.assertEqual([], self.stored())

    def test_lock_that_is_not_released(self) -> None:
        """A record that waits for a lock is not acknowledged; when the lock is gone it is stored."""
        with psycopg.connect(
            host=str(self.server.folder), port=self.server.port, user="postgres", dbname="notary"
        ) as other:
            other.execute("LOCK TABLE svc_notary.receipt IN ACCESS EXCLUSIVE MODE")
            began = time.monotonic()
            put = self.store.put_receipt(receipt("r1"))
            self.assertLess(time.monotonic() - began, 30)
            self.assertNoResult(put)
            self.assertFalse(self.store.writable)
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)

    def test_role_that_may_write_no_more(self) -> None:
        """A refusal that no record is to blame for makes the store unwritable until it is lifted."""
        tables = "svc_notary.receipt"
        self.server.admin(f"ALTER TABLE {tables} OWNER TO postgres", f"GRANT SELECT ON {tables} TO svc")
        put = self.store.put_receipt(receipt("r1"))
        self.assertNoResult(put)
        self.assertFalse(self.store.writable)
        self.assertEqual("permission denied for table receipt", self.store.trouble)
        self.assertEqual(self.store.trouble, self.observer.troubles[-1])
        self.server.admin(f"GRANT ALL ON {tables} TO svc")
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)

    def test_server_that_stands_still(self) -> None:
        """A server that keeps the connection and sends nothing is given up; its record is stored when it moves on."""
        store = self.make(answer_timeout=3.0)
        self.server.freeze()
        self.addCleanup(self.server.resume)
        began = time.monotonic()
        put = store.put_receipt(receipt("r1"))
        self.failureResultOf(store.get_receipt("r1"), DatabaseUnavailable)
        self.assertLess(time.monotonic() - began, 30)
        self.assertNoResult(put)
        self.assertFalse(store.writable)
        self.server.resume()
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)
        self.assertEqual(["r1"], self.stored())


class LosingSession(PostgresSession):
    """A connection that is lost around the statement that stores records, as the test has set."""

    lose: str | None = None

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """Carry out, or not, and lose the connection."""
        when = type(self).lose
        if when is None or "INSERT INTO receipt" not in str(query):
            return super().execute(query, *args, **kwargs)
        type(self).lose = None
        if when == "after":
            super().execute(query, *args, **kwargs)
        self.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


class UnknownCommitTests(OutageCase):
    """The connection ends while the server commits: the answer is lost."""

    def setUp(self) -> None:
        super().setUp()
        LosingSession.lose = None
        self.store = self.make(write_connect=self.losing)

    def losing(self) -> PostgresSession:
        address = self.server.address()
        made = LosingSession.connect(**address.parameters, autocommit=True)  # type: ignore[arg-type]
        made.execute("SET search_path = svc_notary")
        return made

    def test_stored_without_an_answer(self) -> None:
        """A record that was stored although the answer was lost is acknowledged, and stored once."""
        LosingSession.lose = "after"
        put = self.store.put_receipt(receipt("r1", nonce="n1"))
        self.assertNoResult(put)
        self.assertEqual(["r1"], self.stored())
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)
        self.assertEqual(["r1"], self.stored())
        self.failureResultOf(self.store.put_receipt(receipt("r1", nonce="n1")), Replayed)

    def test_cancelled_without_an_answer(self) -> None:
        """A record that was stored although the answer was lost is deleted where it was late, before a later one."""
        LosingSession.lose = "after"
        put = self.store.put_receipt(receipt("r1", nonce="n1"))
        with self.refused():
            self.reactor.advance(COMMIT_SECONDS)
            self.store.cancel(self.failureResultOf(put, StoreLate).value)
            again = self.store.put_receipt(receipt("r2", nonce="n1"))
            self.assertEqual(["r1"], self.stored())
        self.reactor.advance(RETRY_MOST)
        self.successResultOf(again)
        self.assertEqual(["r2"], self.stored())

    def test_not_stored(self) -> None:
        """One that was not stored is stored then."""
        LosingSession.lose = "before"
        put = self.store.put_receipt(receipt("r1", nonce="n1"))
        self.assertEqual([], self.stored())
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(put)
        self.assertEqual(["r1"], self.stored())

    def test_record_of_another_replica_in_between(self) -> None:
        """Where another replica has used the nonce meanwhile the record is a replay, not taken for its own."""
        LosingSession.lose = "before"
        put = self.store.put_receipt(receipt("r1", nonce="n1"))
        self.successResultOf(self.make().put_receipt(receipt("other", nonce="n1")))
        self.reactor.advance(RETRY_FIRST)
        self.failureResultOf(put, Replayed)
        self.assertEqual(["other"], self.stored())

    def test_same_id_other_content(self) -> None:
        """A record with the same id and another content is not taken for its own either."""
        LosingSession.lose = "before"
        put = self.store.put_receipt(receipt("r1", filler="mine"))
        self.successResultOf(self.make().put_receipt(receipt("r1", filler="other")))
        self.reactor.advance(RETRY_FIRST)
        self.failureResultOf(put, Replayed)


class ReplicaTests(OutageCase):
    """Two stores on one database."""

    def setUp(self) -> None:
        super().setUp()
        self.other = self.make()

    def test_one_notary(self) -> None:
        """A record stored by one is found by the other; a nonce used at one is a replay at the other."""
        put = receipt("r1", nonce="n1")
        self.successResultOf(self.store.put_receipt(put))
        self.assertEqual(put, self.successResultOf(self.other.get_by_request(CLIENT, "n1")))
        self.assertTrue(self.successResultOf(self.other.nonce_known(CLIENT, "n1")))
        self.failureResultOf(self.other.put_receipt(receipt("r2", nonce="n1")), Replayed)

    def test_nonce_that_is_in_use(self) -> None:
        """A nonce that one replica has in use is free at no other, until it is given back or stored."""
        self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.assertFalse(self.successResultOf(self.other.reserve(CLIENT, "n1")))
        self.assertTrue(self.successResultOf(self.other.reserved(CLIENT, "n1")))
        self.assertTrue(self.successResultOf(self.other.reserve("spiffe://example.org/other", "n1")))
        self.successResultOf(self.other.give_back(CLIENT, "n1"))
        self.assertFalse(self.successResultOf(self.other.reserve(CLIENT, "n1")), "it was not the other's to give")
        self.successResultOf(self.store.give_back(CLIENT, "n1"))
        self.assertTrue(self.successResultOf(self.other.reserve(CLIENT, "n1")))
        self.successResultOf(self.other.put_receipt(receipt("r1", nonce="n1")))
        self.assertFalse(self.successResultOf(self.other.reserved(CLIENT, "n1")))
        self.assertFalse(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        left = self.server.admin(
            "SELECT nonce FROM svc_notary.reservation WHERE client = 'spiffe://example.org/client'"
        )
        self.assertEqual([], left)

    def test_dead_replica(self) -> None:
        """Nonces reserved by a killed replica are free at once."""
        self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.successResultOf(self.store.close())
        # The server detects it a moment later.
        eventually(lambda: not self.successResultOf(self.other.reserved(CLIENT, "n1")), 60, "a free nonce")
        self.assertTrue(self.successResultOf(self.other.reserve(CLIENT, "n1")))

    def test_replica_that_lost_its_connection(self) -> None:
        """A replica that reconnects still has its reservations, and releases those that it could not before."""
        for nonce in ("n1", "n2"):
            self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, nonce)))
        self.server.admin("ALTER ROLE svc NOLOGIN")
        self.server.cut_connections()
        self.failureResultOf(self.store.give_back(CLIENT, "n1"), DatabaseUnavailable)
        self.server.admin("ALTER ROLE svc LOGIN")
        time.sleep(0.6)
        self.assertIsNone(self.successResultOf(self.store.get_receipt("any")))
        self.assertTrue(self.successResultOf(self.other.reserve(CLIENT, "n1")))
        self.assertFalse(self.successResultOf(self.other.reserve(CLIENT, "n2")))

    def test_crash_of_the_server(self) -> None:
        """A crash loses what is in use and nothing that is stored; the unique nonce still guards the record."""
        self.assertTrue(self.successResultOf(self.store.reserve(CLIENT, "n1")))
        self.successResultOf(self.store.put_receipt(receipt("r0")))
        self.server.kill()
        self.server.start()
        time.sleep(0.6)
        self.assertTrue(self.successResultOf(self.other.reserve(CLIENT, "n1")))
        puts = [self.store.put_receipt(receipt("r1", nonce="n1")), self.other.put_receipt(receipt("r2", nonce="n1"))]
        self.reactor.advance(RETRY_FIRST)
        self.successResultOf(puts[0])
        self.failureResultOf(puts[1], Replayed)
        self.assertEqual(["r0", "r1"], self.stored())

    def test_certificates_that_another_replica_pruned(self) -> None:
        """A replica that has cached certificates as stored stores them again where another has pruned them."""
        chain = (b"leaf", b"ca")
        self.successResultOf(self.store.put_receipt(receipt("old", chain=chain, issued_at=NOW - 1)))
        self.assertEqual(1, self.successResultOf(self.other.prune(NOW)))
        self.assertEqual([(0,)], self.server.admin("SELECT count(*) FROM svc_notary.certificate_set"))
        put = receipt("new", chain=chain)
        self.successResultOf(self.store.put_receipt(put))
        self.assertEqual(put, self.successResultOf(self.other.get_receipt("new")))

    def test_one_prunes(self) -> None:
        """While one replica prunes another does nothing, and reports it."""
        self.successResultOf(self.store.put_receipt(receipt("old", issued_at=NOW - 1)))
        with psycopg.connect(
            host=str(self.server.folder), port=self.server.port, user="postgres", dbname="notary"
        ) as pruning:
            pruning.execute("SELECT pg_advisory_xact_lock(x'73766e31'::int, 1)")
            self.assertEqual(0, self.successResultOf(self.store.prune(NOW)))
        self.assertEqual(1, self.successResultOf(self.other.prune(NOW)))

    def test_slices(self) -> None:
        """More than a slice is deleted in slices."""
        self.server.admin(
            "INSERT INTO svc_notary.receipt SELECT 'r' || n, 'logRequest', 'c', 's', NULL, 'j', 1, 'complete', '',"
            " NULL, NULL, NULL, '{}', NULL FROM generate_series(1, 600) n"
        )
        self.assertEqual(600, self.successResultOf(self.store.prune(NOW)))


class LoadTests(TestCase):
    """The store with its threads, on the real reactor, under load."""

    timeout = 900

    def opened(self, stack: ExitStack, server: RunningPostgres, **options: Any) -> PostgresStore:
        self.observer = RecordingObserver()
        url = options.pop("url", None) or server.url(tls=options.pop("tls", False))
        address = DatabaseAddress.parse(url)
        store = PostgresStore(address, reactor=reactor, observer=self.observer, **options)  # type: ignore[arg-type]
        store.init()
        self.addCleanup(stack.close)
        self.addCleanup(store.close)
        return store

    async def until(self, ask: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait for a condition; return how long it took."""
        began = time.monotonic()
        while not ask():
            self.assertLess(time.monotonic() - began, seconds, what)
            await deferLater(reactor, 0.005)
        return time.monotonic() - began

    async def test_idle_store_detects_it(self) -> None:
        """A store that writes nothing detects at once that its server stops, and reconnects by itself."""
        stack = ExitStack()
        server = await deferToThread(RunningPostgres, stack)
        store = self.opened(stack, server, tls=True)
        ways = ((server.stop, server.start), (server.crash, server.start), (server.kill, server.start))
        for end, begin in ways:
            self.assertTrue(store.writable)
            gone = deferToThread(end)
            await gone
            await self.until(lambda: not store.writable, 60, "unwritable")
            with self.assertRaises(StoreError):
                await store.get_receipt("any")
            await deferToThread(begin)
            await self.until(lambda: store.writable, 60, "writable")
            await store.put_receipt(receipt(f"after-{end.__name__}"))
        server.cut_connections()
        await self.until(lambda: self.observer.writable[-2:] == [False, True], 60, "detects the cut")

    async def test_crashes_under_load(self) -> None:
        """Eight crashes at random moments under load: every acknowledged record is there, and none was failed."""
        stack = ExitStack()
        server = await deferToThread(RunningPostgres, stack)
        # A server that starts on a busy machine is away for longer than a record may wait in a proxy.
        store = self.opened(stack, server, commit_timeout=120.0)
        acknowledged: list[str] = []
        failed: list[str] = []
        running = True

        async def client(number: int) -> None:
            count = 0
            while running:
                count += 1
                name = f"{number}-{count}"
                try:
                    await store.put_receipt(receipt(name, nonce=name, filler="x" * 2048))
                except StoreError:
                    failed.append(name)
                else:
                    acknowledged.append(name)

        clients = [Deferred.fromCoroutine(client(number)) for number in range(16)]
        pick = random.Random(19)
        for turn in range(8):
            before = len(acknowledged)
            await self.until(lambda: len(acknowledged) >= before + 16, 60, "records")  # noqa: B023
            await deferLater(reactor, pick.uniform(0, 0.15))
            await deferToThread(server.kill if turn % 3 else server.crash)
            await deferToThread(server.start)
        before = len(acknowledged)
        await self.until(lambda: len(acknowledged) >= before + 16, 60, "records at last")
        running = False
        await gatherResults(clients)
        stored = {name for (name,) in server.admin("SELECT id FROM svc_notary.receipt")}
        self.assertEqual((set(), []), (set(acknowledged) - stored, failed))
        self.assertEqual(stored, set(acknowledged))
        self.assertGreater(len(acknowledged), 300)

    async def test_failover(self) -> None:
        """
        A primary is killed, its standby is promoted: what was acknowledged is there, and records are stored again.
        """
        stack = ExitStack()
        primary = await deferToThread(RunningPostgres, stack, "wal_level = replica", "max_wal_senders = 4")
        standby = await deferToThread(primary.standby, stack)
        primary.require_standby()
        hosts = f"{primary.folder},{standby.folder}", f"{primary.port},{standby.port}"
        url = f"postgresql://svc@/notary?host={hosts[0]}&port={hosts[1]}&target_session_attrs=read-write"
        store = self.opened(stack, primary, url=url, commit_timeout=120.0)
        names = [f"before-{number}" for number in range(20)]
        await gatherResults([store.put_receipt(receipt(name, nonce=name)) for name in names])
        await deferToThread(primary.kill)
        await self.until(lambda: not store.writable, 60, "unwritable")
        waiting = store.put_receipt(receipt("during", nonce="during"))
        await deferToThread(standby.promote)
        await waiting
        self.assertTrue(store.writable)
        for name in [*names, "during"]:
            self.assertIsNotNone(await store.get_receipt(name), name)
