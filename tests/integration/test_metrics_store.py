"""Metrics of the notary database when its disk or its file fails under a running proxy."""

from __future__ import annotations

import os
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.integration.metrics_rig import Series, moves, page, series, world
from tests.peers import webapp
from tests.peers.independent_clients import Credentials, Ended, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

NOTARY = "/.well-known/svc-notary/v1"
SIGN = "Svc-Notarization-Level: signRequest\r\n"
WRITABLE = "svc_proxy_notary_writable"


def db_error(op: str, entity: str) -> Series:
    """The counter of a refusal."""
    return series("notary_db_errors_total", op=op, entity=entity)


@contextmanager
def small_files(octets: int) -> Iterator[None]:
    """Let no process that is started in here write a file beyond a size: a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _make(stack: ExitStack) -> Any:
    found = world(stack)
    application = f"127.0.0.1:{webapp.start(stack)}"
    out = {"name": "out", "protocol": "http", "direction": "outbound", "listen": f"127.0.0.1:{free_port()}"}
    out |= {"upstream": application, "peer": "spiffe://example.org/a"}
    found.proxy = stack.enter_context(RunningProxy(found.authority, application, listeners=[out]))
    found.application = application
    found.web = Credentials.fetch(found.authority, found.folder / "web", "/ns/shop/sa/web")
    return found


SHARED = Shared(_make)


class StoreCase(SynchronousTestCase):
    """A proxy whose database is broken and repaired by another process."""

    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        self.scraped = self.proxy
        self.writable(self.proxy)

    def writable(self, proxy: RunningProxy) -> None:
        """Wait until it takes records."""
        eventually(lambda: proxy.metric(WRITABLE) == 1, 60, "that it takes records")

    def connect(self, proxy: RunningProxy | None = None) -> RawConnection:
        """A client."""
        connection = RawConnection((proxy or self.proxy).port, self.found.web)
        self.addCleanup(connection.close)
        return connection

    def sql(self, *statements: str) -> None:
        """Change the database behind the proxy's back."""
        self.changed(Path(self.proxy.config["notary"]["path"]), *statements)

    @staticmethod
    def changed(path: Path, *statements: str) -> None:
        """Change a database."""
        with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
            for each in statements:
                connection.execute(each)

    @contextmanager
    def without(self, table: str) -> Iterator[None]:
        """Take a table away for a while."""
        self.sql(f"ALTER TABLE {table} RENAME TO hidden")
        try:
            yield
        finally:
            self.sql(f"ALTER TABLE hidden RENAME TO {table}")

    def lose_record(self) -> None:
        """Send a request whose record cannot be written: the answer is broken off before its end."""
        with self.connect() as connection:
            connection.send(f"GET /bytes/10 HTTP/1.1\r\nHost: a\r\n{SIGN}\r\n".encode())
            with self.assertRaises(Ended):
                connection.read()


class WritingTests(StoreCase):
    """Records that cannot be written."""

    @moves(db_error("put", "receipt"), by=None)
    @moves(
        series("notary_records_total", protocol="http", result="error"),
        series("connections_closed_total", protocol="http", cause="record"),
    )
    def test_receipt(self) -> None:
        """The table of records is gone: the exchange is cut before its end, and counted as what it is."""
        with self.without("receipt"):
            self.lose_record()
        self.writable(self.proxy)

    @moves(db_error("put", "certificate_blob"), by=None)
    def test_certificate_blob(self) -> None:
        """The table of certificates is gone when a chain is to be stored anew."""
        with self.without("receipt"):
            # After an error the store trusts nothing that it has cached.
            self.lose_record()
        self.writable(self.proxy)
        with self.without("certificate_blob"):
            self.lose_record()
        self.writable(self.proxy)

    @moves(db_error("put", "db"), by=None)
    @moves(series("notary_records_total", protocol="http", result="error"), by=2)
    def test_full_disk(self) -> None:
        """
        The disk is full while an exchange runs; later requests are not taken, and all is well when there is room.

        The record that was lost is an error, and so is the one that was refused.
        """
        with self.connect() as connection:
            for _turn in range(30):
                self.assertEqual(200, connection.request("/bytes/1", fields=SIGN).status)
            # An open reader prevents the truncation of the log.
            self.assertEqual(404, connection.request(f"{NOTARY}/receipts/by-request/{new_nonce(bytes(16))}").status)
        with self.connect() as running, self.connect() as late:
            self.assertEqual(200, late.request("/bytes/1").status)
            running.send(f"GET /slow/2 HTTP/1.1\r\nHost: a\r\n{SIGN}\r\n".encode())
            with self.no_room():
                self.assertRaises(Ended, running.read)
                self.assertEqual(0, self.proxy.metric(WRITABLE))
                self.assertEqual(503, late.request("/bytes/1", fields=SIGN).status)
        self.writable(self.proxy)
        self.assertEqual(200, self.connect().request("/bytes/1", fields=SIGN).status)

    test_full_disk.claims |= {series("notary_writable")}  # type: ignore[attr-defined]

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Let the log of the database grow no more; there is room for the log of the proxy."""
        process = self.proxy.process
        self.assertIsNotNone(process)
        pid = process.pid if process is not None else 0
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        log = os.path.getsize(f"{self.proxy.config['notary']['path']}-wal")
        self.assertGreater(log, 2 * self.proxy.log_path.stat().st_size)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log, hard))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


class ReadingTests(StoreCase):
    """Reads that fail."""

    def kept(self) -> str:
        """Store a record; return its nonce."""
        nonce = new_nonce(os.urandom(16))
        answer = self.connect().request("/bytes/1", fields=f"{SIGN}Svc-Notary-Nonce: {nonce}\r\n")
        self.assertEqual(200, answer.status)
        return nonce

    def fetch(self, path: str) -> int:
        """Ask the notary."""
        with self.connect() as connection:
            return connection.request(f"{NOTARY}/{path}").status

    @moves(db_error("get", "receipt"))
    def test_receipt(self) -> None:
        """A record was altered."""
        nonce = self.kept()
        self.sql(f"UPDATE receipt SET disclosures = '{{' WHERE nonce = '{nonce}'")
        self.assertEqual(503, self.fetch(f"receipts/by-request/{nonce}"))

    @moves(db_error("get", "certificate_blob"))
    def test_certificate_blob(self) -> None:
        """The certificates of a record are gone."""
        nonce = self.kept()
        self.sql(f"UPDATE receipt SET certificate_set = 999999 WHERE nonce = '{nonce}'")
        self.assertEqual(503, self.fetch(f"receipts/by-request/{nonce}"))

    @moves(db_error("get", "workload_statement"))
    def test_statement(self) -> None:
        """The statement of another generation was altered."""
        other = "A" * 43
        columns = "expires, certificate_set, 'garbage', skeleton"
        self.sql(
            f"INSERT OR REPLACE INTO workload_statement SELECT '{other}', {columns} FROM workload_statement LIMIT 1"
        )
        self.assertEqual(503, self.fetch(f"statements/{other}"))


class StartingTests(StoreCase):
    """Proxies that find or leave a broken database; each has its own."""

    def broken(self) -> RunningProxy:
        """A proxy that does not run yet; the test's claims are about it."""
        self.scraped = RunningProxy(self.found.authority, self.found.application)
        self.addCleanup(self.scraped.stop)
        return self.scraped

    def damaged(self, *statements: str) -> RunningProxy:
        """A proxy whose database was changed while it did not run."""
        proxy = self.broken()
        path = Path(proxy.config["notary"]["path"])
        with (
            closing(sqlite3.connect(self.proxy.config["notary"]["path"])) as source,
            closing(sqlite3.connect(path)) as copy,
        ):
            source.backup(copy)
        self.changed(path, *statements)
        return proxy

    def count(self, proxy: RunningProxy, op: str, entity: str) -> float:
        """Read a counter; 0 while no process answers."""
        try:
            return page(proxy).get(db_error(op, entity), 0.0)
        except OSError:
            return 0.0

    def test_init(self) -> None:
        """On a disk without room for the reserve the proxy starts, accepts no records, and reports it."""
        proxy = self.broken()
        proxy.executed = True
        with small_files(1024 * 1024):
            proxy.launch()
        eventually(lambda: self.count(proxy, "init", "db") == 1, 60, "that it counts the refusal")
        self.assertEqual(0, proxy.metric(WRITABLE))

    test_init.claims = {db_error("init", "db")}  # type: ignore[attr-defined]

    def test_unusable(self) -> None:
        """With a file that is not a database the proxy does not start, and logs the reason."""
        proxy = self.broken()
        Path(proxy.config["notary"]["path"]).write_bytes(b"this is no database\n" * 1000)
        self.assertEqual(1, proxy.launch().wait())
        [logged] = proxy.records("svc.store.failed")
        self.assertLessEqual({"op": "init", "entity": "db"}.items(), logged["attributes"].items())

    def test_statement(self) -> None:
        """The table of statements is gone: the statement of the new generation cannot be stored."""
        proxy = self.damaged("DROP TABLE workload_statement")
        proxy.launch()
        eventually(lambda: self.count(proxy, "put", "workload_statement") > 0, 60, "that it counts the refusal")

    test_statement.claims = {db_error("put", "workload_statement")}  # type: ignore[attr-defined]

    def test_replaced(self) -> None:
        """The reader finds another file at its path."""
        proxy = self.damaged("UPDATE receipt SET disclosures = '{' WHERE disclosures IS NOT NULL")
        proxy.start()
        path = Path(proxy.config["notary"]["path"])
        with closing(sqlite3.connect(path)) as database:
            (receipt,) = database.execute("SELECT id FROM receipt WHERE disclosures IS NOT NULL").fetchone()
        with self.connect(proxy) as connection:
            self.assertEqual(503, connection.request(f"{NOTARY}/receipts/{receipt}").status)
            self.assertEqual((1, 0), (self.count(proxy, "get", "receipt"), self.count(proxy, "get", "db")))
            for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                each.unlink()
            path.write_bytes(b"this is no database\n" * 1000)
            # A measurement may have opened the former file again since then, until a reading fails in it.
            self.assertEqual(503, connection.request(f"{NOTARY}/receipts/{receipt}").status)
            eventually(lambda: self.count(proxy, "get", "db") == 1, what="a reading of the other file")
            self.assertIn(self.count(proxy, "get", "receipt"), (1, 2))

    test_replaced.claims = {db_error("get", "db")}  # type: ignore[attr-defined]

    def _rests(self, path: str) -> bool:
        """Whether a file stays as it is for a second."""
        before = os.stat(path)
        time.sleep(1)
        after = os.stat(path)
        return before.st_size > 32 and (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)

    def test_cut(self) -> None:
        """The log of the database has lost its end when the proxy ends: the refusals are logged."""
        proxy = self.broken()
        proxy.start()
        log = f"{proxy.config['notary']['path']}-wal"
        # What is written behind the cut would lengthen it again.
        eventually(lambda: proxy.records("svc.notary.generation.issued"), 60, "the credentials' own record")
        eventually(lambda: self._rests(log), 60, "that nothing is written any more")
        os.truncate(log, 32)
        self.assertEqual(0, proxy.halt())
        [logged] = proxy.records("svc.store.failed")
        self.assertLessEqual({"op": "close", "entity": "db"}.items(), logged["attributes"].items())
