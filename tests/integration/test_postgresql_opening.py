"""Requirements of a PostgreSQL server before a record is stored in it, and the settings of its sessions."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from svc.store.errors import DatabaseUnavailable, ServerUnsupported
from svc.store.postgresql import session
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.schema import VERSION
from svc.store.postgresql.store import PostgresStore
from tests.integration.test_store_postgresql import EMPTY, SERVER, make_store
from tests.peers.postgresql import RunningPostgres
from tests.refusals import assert_refused
from tests.store.doubles import HeldThread, InlineReactor, InlineThread, RecordingObserver, receipt, statement


class OpeningCase(SynchronousTestCase):
    """An empty database for each test."""

    def setUp(self) -> None:
        self.server: RunningPostgres = SERVER.get()
        self.server.admin(EMPTY)
        self.observer = RecordingObserver()

    def store(self, address: DatabaseAddress | None = None) -> PostgresStore:
        return PostgresStore(
            address or self.server.address(), reactor=InlineReactor(), start_thread=InlineThread, observer=self.observer
        )

    def opened(self, address: DatabaseAddress | None = None) -> PostgresStore:
        store = self.store(address)
        store.init()
        self.addCleanup(lambda: self.successResultOf(store.close()))
        return store

    def change(self, statement_: str, back: str) -> None:
        """Change the server for one test."""
        self.server.admin(statement_)
        self.addCleanup(self.server.admin, back)


class WhereTests(OpeningCase):
    """The choice of the server."""

    def test_environment(self) -> None:
        """The server that the configuration names, whatever address the environment has for the library."""
        with patch.dict(os.environ, {"PGHOSTADDR": "127.0.0.2", "PGPORT": "1"}):
            self.assertTrue(self.opened(self.server.address(tls=True)).writable)


class SchemaTests(OpeningCase):
    """The tables."""

    def test_many_start_at_once(self) -> None:
        """Of many replicas that start on an empty database one makes the tables, and all work."""
        stores = [self.store() for _number in range(8)]
        with ThreadPoolExecutor(len(stores)) as threads:
            list(threads.map(lambda store: store.init(), stores))
        for number, store in enumerate(stores):
            self.successResultOf(store.put_receipt(receipt(f"r{number}")))
        for store in stores:
            self.assertIsNotNone(self.successResultOf(store.get_receipt("r0")))
            self.successResultOf(store.close())
        self.assertEqual([(VERSION,)], self.server.admin("SELECT version FROM svc_notary.notary"))

    def test_second_start(self) -> None:
        """Stored records are there after closing and reopening, and for another store."""
        put, signed = statement("s1"), receipt("r1", nonce="n1")
        first = self.store()
        first.init()
        self.successResultOf(first.put_statement(put))
        self.successResultOf(first.put_receipt(signed))
        self.successResultOf(first.close())
        again = self.opened()
        self.assertEqual(put.envelope.serialize(), self.successResultOf(again.get_statement("s1")))
        self.assertEqual(signed, self.successResultOf(again.get_receipt("r1")))

    def test_newer_schema(self) -> None:
        """Tables of a newer program are left alone."""
        self.successResultOf(self._made().close())
        self.server.admin(f"UPDATE svc_notary.notary SET version = {VERSION + 1}")
        error: Any = assert_refused(self, "unsupported_version", self.store().init)
        self.assertEqual((error.found, error.known), (VERSION + 1, VERSION))
        self.assertEqual([("init", "db")], self.observer.errors)

    def test_newer_schema_while_it_runs(self) -> None:
        """A replica that reconnects to tables of a newer version writes nothing into them."""
        store = self.opened()
        self.server.admin(f"UPDATE svc_notary.notary SET version = {VERSION + 1}")
        self.server.cut_connections()
        store.put_receipt(receipt("r1")).addErrback(lambda _failure: None)
        store._reactor.advance(60)  # type: ignore[attr-defined]
        self.assertFalse(store.writable)
        self.assertEqual([], self.server.admin("SELECT id FROM svc_notary.receipt"))

    def test_foreign_schema(self) -> None:
        """A schema of our name with other tables is another program's."""
        for tables in ("CREATE TABLE svc_notary.other (a int)", "CREATE TABLE svc_notary.notary (version text)"):
            self.server.admin(EMPTY, "CREATE SCHEMA svc_notary AUTHORIZATION svc", tables)
            self.server.admin("GRANT ALL ON ALL TABLES IN SCHEMA svc_notary TO svc")
            assert_refused(self, "store_foreign", self.store().init)

    def test_empty_schema_of_the_role(self) -> None:
        """A schema that was made beforehand is used; then the role needs no right to make one."""
        self.server.admin("CREATE SCHEMA svc_notary AUTHORIZATION svc")
        self.change("REVOKE CREATE ON DATABASE notary FROM svc", "GRANT CREATE ON DATABASE notary TO svc")
        self.assertTrue(self.opened().writable)

    def test_least_privilege(self) -> None:
        """A role with exactly the rights of the operations page does everything, once the tables are there."""
        self.successResultOf(self._made().close())
        self.server.admin(
            "DROP OWNED BY worker",
            "GRANT CONNECT ON DATABASE notary TO worker",
            "GRANT USAGE ON SCHEMA svc_notary TO worker",
            "GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA svc_notary TO worker",
            "GRANT UPDATE ON svc_notary.notary, svc_notary.reservation TO worker",
        )
        store = self.opened(self.server.address(role="worker"))
        self.assertTrue(self.successResultOf(store.reserve("c", "n1")))
        self.successResultOf(store.put_statement(statement("s1")))
        self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
        self.assertEqual(1, self.successResultOf(store.prune(2**40)))
        self.server.admin("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'worker'")
        waiting = store.put_receipt(receipt("r2"))
        store._reactor.advance(1)  # type: ignore[attr-defined]
        self.successResultOf(waiting)

    def _made(self) -> PostgresStore:
        store = self.store()
        store.init()
        return store


class ServerTests(OpeningCase):
    """The server itself."""

    def refused(self, address: DatabaseAddress | None = None) -> str:
        error = self.assertRaises(DatabaseUnavailable, self.store(address).init)
        self.assertEqual([("init", "db")], self.observer.errors)
        self.assertNotIn("secret-of-the-role", f"{error} {error.hint}")
        return str(error)

    def test_not_there(self) -> None:
        """No server listens: the error names the address."""
        address = DatabaseAddress.parse(f"postgresql:///notary?host={self.server.folder}&port=1")
        self.assertIn(f"{self.server.folder}:1/notary", self.refused(address))

    def test_wrong_password(self) -> None:
        """A role that the server does not let in is reported with the server's message, and without the password."""
        self.change("ALTER ROLE svc PASSWORD 'other'", "ALTER ROLE svc PASSWORD 'secret-of-the-role'")
        self.assertIn("password authentication failed", self.refused(self.server.address(tls=True)))

    def test_no_connection_left(self) -> None:
        """A server without a free connection is unavailable, nothing else."""
        self.change("ALTER ROLE svc CONNECTION LIMIT 0", "ALTER ROLE svc CONNECTION LIMIT -1")
        self.assertIn("too many connections", self.refused())

    def test_one_connection_left(self) -> None:
        """Where the second connection cannot be had the first is let go."""
        self.change("ALTER ROLE svc CONNECTION LIMIT 1", "ALTER ROLE svc CONNECTION LIMIT -1")
        self.refused()
        self.assertEqual(0, self.server.cut_connections())

    def test_tls(self) -> None:
        """Over the network the server is verified; one that another authority vouches for is refused."""
        store = self.opened(self.server.address(tls=True))
        self.successResultOf(store.put_receipt(receipt("r1")))
        used = self.server.admin("SELECT count(*), bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
                                 " WHERE usename = 'svc'")  # fmt: skip
        self.assertEqual([(2, True)], used)
        url = self.server.url(tls=True).replace(str(self.server.certificate), "/etc/ssl/certs/ca-certificates.crt")
        self.assertIn("certificate verify failed", self.refused_again(url))

    def refused_again(self, url: str) -> str:
        return str(self.assertRaises(DatabaseUnavailable, self.store(DatabaseAddress.parse(url)).init))

    def test_fsync_off(self) -> None:
        """A server that loses data at a power failure gets no record."""
        self._set("fsync", "off")
        error = assert_refused(self, "store_unsafe", self.store().init)
        self.assertEqual("store_unsafe", error.reason)

    def test_fsync_off_while_it_runs(self) -> None:
        """A server that restarts without fsync gets no records either, until that is corrected."""
        store = self.opened()
        self._set("fsync", "off")
        self.server.cut_connections()
        waiting = store.put_receipt(receipt("r1"))
        store._reactor.advance(1)  # type: ignore[attr-defined]
        self.assertFalse(store.writable)
        self._set("fsync", "on")
        store._reactor.advance(5)  # type: ignore[attr-defined]
        self.successResultOf(waiting)

    def test_old_server(self) -> None:
        """A server of an unsupported version is named with what is needed."""
        with session.connect(self.server.address(), durable=True) as connection:
            found = connection.info.server_version
        self.assertGreaterEqual(found, session.OLDEST)
        self.assertRaises(ServerUnsupported, session.check_server, "db/n", (130014, "on", False, "on"), durable=True)

    def test_synchronous_commit(self) -> None:
        """Whatever server and role have set, a commit waits for the disk; a stronger setting is kept."""
        for default, wanted in (
            ("off", "on"),
            ("local", "on"),
            ("remote_write", "on"),
            ("remote_apply", "remote_apply"),
        ):
            self.change(f"ALTER ROLE svc SET synchronous_commit = {default}", "ALTER ROLE svc RESET ALL")
            with session.connect(self.server.address(), durable=True) as connection:
                self.assertEqual((wanted,), connection.execute("SHOW synchronous_commit").fetchone())

    def test_settings_of_the_role_do_not_matter(self) -> None:
        """Isolation, read-only defaults, timeouts and search path are the store's own."""
        wanted = {
            "default_transaction_isolation": ("'serializable'", "read committed"),
            "default_transaction_read_only": ("on", "off"),
            "search_path": ("public", "svc_notary, pg_temp"),
            "statement_timeout": ("0", "4s"),
            "lock_timeout": ("0", "2s"),
            "idle_session_timeout": ("300000", "0"),
        }
        for name, (value, _own) in wanted.items():
            self.change(f"ALTER ROLE svc SET {name} = {value}", "ALTER ROLE svc RESET ALL")
        for durable in (True, False):
            with session.connect(self.server.address(), durable=durable) as connection:
                for name, (_value, own) in wanted.items():
                    self.assertEqual((own,), connection.execute(f"SHOW {name}".encode()).fetchone(), name)
        store = self.opened()
        self.successResultOf(store.put_receipt(receipt("r1", nonce="n1")))
        self.assertIsNotNone(self.successResultOf(store.get_receipt("r1")))

    def _set(self, name: str, value: str) -> None:
        def changed(to: str) -> None:
            self.server.admin(f"ALTER SYSTEM SET {name} = {to}", "SELECT pg_reload_conf()")
            while self.server.admin(f"SHOW {name}") != [(to,)]:
                continue

        changed(value)
        self.addCleanup(changed, "on")


class RecordTests(OpeningCase):
    """Records that no database can hold."""

    def test_refused_alone(self) -> None:
        """
        A record that is too long, or holds what no text may, is refused; the other records of the group are stored.
        """
        store, jobs = self.grouped()
        wrong: list[Any] = [
            receipt("long", jti="j" * 65),
            receipt("x" * 65),
            receipt("nul", nonce="a\0b"),
            receipt("surrogate", nonce="\ud800"),
            receipt("late", issued_at=2**63),
            receipt("client", client="spiffe://" + "c" * 2048),
            receipt("huge", filler="x" * (1024 * 1024)),
        ]
        puts = [store.put_receipt(each) for each in (receipt("first"), *wrong, receipt("last"))]
        jobs()
        self.successResultOf(puts[0])
        self.successResultOf(puts[-1])
        for put in puts[1:-1]:
            error = self.failureResultOf(put).value
            self.assertEqual("malformed", error.reason)
            self.assertLess(len(str(error)), 400)
        self.assertTrue(store.writable)
        self.assertEqual([("first",), ("last",)], self.server.admin("SELECT id FROM svc_notary.receipt ORDER BY id"))

    def test_at_the_limit(self) -> None:
        """The longest identifiers fit, index and all."""
        store = self.opened()
        longest = receipt("r" * 64, nonce="n" * 64, jti="j" * 64, client="spiffe://" + "c" * 2039, names="s" * 64)
        self.successResultOf(store.put_receipt(longest))
        self.assertEqual(longest, self.successResultOf(store.get_receipt("r" * 64)))
        self.assertEqual(longest, self.successResultOf(store.get_by_request(longest.client, "n" * 64)))

    def test_replayed_within_a_group(self) -> None:
        """Of two records with one nonce, or one id, in a group the first is stored."""
        store, jobs = self.grouped()
        puts = [
            store.put_receipt(each)
            for each in (
                receipt("z", nonce="n1"),
                receipt("a", nonce="n1"),
                receipt("b"),
                receipt("b"),
                receipt("c", nonce="n2"),
            )
        ]
        jobs()
        self.assertEqual([None, "replayed", None, "replayed", None], [_reason(put) for put in puts])

    def grouped(self) -> tuple[PostgresStore, Any]:
        """A store whose jobs wait, and what does them as one group."""
        threads: list[HeldThread] = []
        store = make_store(start_thread=lambda *args: threads.append(HeldThread(*args)) or threads[-1])
        store.init()
        self.addCleanup(store.close)
        return store, lambda: threads[0].run()


def _reason(put: Any) -> str | None:
    found: list[str | None] = []
    put.addCallbacks(found.append, lambda failure: found.append(failure.value.reason))
    return found[0]
