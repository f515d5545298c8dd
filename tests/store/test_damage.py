"""
Damaged databases and their error metrics: every pair of operation and entity, each on a real file.

Each test follows the order of a real incident: the store runs, the file is damaged from outside, and the next read or
write detects it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.observers import NotaryStoreReports
from svc.sqlite.errors import DatabaseCorrupt
from svc.store.errors import StoreUnavailable
from svc.store.sqlite import SqliteStore
from svc.telemetry.health import PROXY_CONDITIONS, Health
from svc.telemetry.labels import DB_ERRORS
from svc.telemetry.metrics import ProxyMetrics
from tests.proxy.rig import BASE
from tests.store.doubles import CLIENT, InlineReactor, InlineThread, receipt, statement

ERRORS = "svc_proxy_notary_db_errors_total"


class DamageTests(SynchronousTestCase):
    """A store on a real file, with the metrics of the proxy."""

    def setUp(self) -> None:
        self.registry = CollectorRegistry()
        reports = NotaryStoreReports(
            ProxyMetrics(self.registry), Health(PROXY_CONDITIONS, now=lambda: BASE), "notary.db"
        )
        self.path = os.path.abspath(os.path.join(self.mktemp(), "notary.db"))
        self.store = SqliteStore(
            self.path, reactor=InlineReactor(), observer=reports, reserve_size=0, start_thread=InlineThread
        )

    def opened(self) -> SqliteStore:
        """Return the store with one statement and one receipt."""
        self.store.init()
        self.addCleanup(self.store.close)
        self.successResultOf(self.store.put_statement(statement()))
        self.successResultOf(self.store.put_receipt(receipt()))
        self.assertEqual({}, self.errors())
        return self.store

    def sql(self, text: str) -> None:
        """Change the database outside the store."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(text)

    def replaced(self) -> None:
        """Overwrite the file."""
        with open(self.path, "wb") as file:
            file.write(b"this is no database\n" * 1000)
        for end in ("-wal", "-shm"):
            if os.path.exists(self.path + end):
                os.remove(self.path + end)

    def errors(self) -> dict[tuple[str, str], float]:
        """Return the counted errors."""
        found = {}
        for op, entity in DB_ERRORS:
            value = self.registry.get_sample_value(ERRORS, {"op": op, "entity": entity})
            if value:
                found[op, entity] = value
        return found

    def assert_refused(self, result: Any, op: str, entity: str) -> None:
        """Assert that the operation failed and only this pair was counted."""
        self.failureResultOf(result, StoreUnavailable)
        self.assertEqual({(op, entity)}, set(self.errors()))

    def test_init_db(self) -> None:
        """A file that is not a database is refused at the start."""
        os.makedirs(os.path.dirname(self.path))
        self.replaced()
        self.assertRaises(DatabaseCorrupt, self.store.init)
        self.assertEqual({("init", "db"): 1.0}, self.errors())

    def test_put_certificate_blob(self) -> None:
        """The certificate table is missing when a new chain is stored."""
        store = self.opened()
        self.sql("DROP TABLE certificate_blob")
        put = store.put_receipt(receipt("r2", chain=(b"another leaf", b"ca")))
        self.assert_refused(put, "put", "certificate_blob")

    def test_put_workload_statement(self) -> None:
        """The statement table is missing when a statement is stored."""
        store = self.opened()
        self.sql("DROP TABLE workload_statement")
        self.assert_refused(store.put_statement(statement("s2")), "put", "workload_statement")

    def test_put_receipt(self) -> None:
        """The record table is missing when a record is stored."""
        store = self.opened()
        self.sql("DROP TABLE receipt")
        self.assert_refused(store.put_receipt(receipt("r2")), "put", "receipt")

    def test_put_db(self) -> None:
        """After an error the writer reconnects, and the database is gone."""
        store = self.opened()
        self.sql("DROP TABLE receipt")
        self.failureResultOf(store.put_receipt(receipt("r2")), StoreUnavailable)
        self.replaced()
        self.failureResultOf(store.put_receipt(receipt("r3")), StoreUnavailable)
        self.assertEqual({("put", "receipt"), ("put", "db")}, set(self.errors()))

    def test_get_certificate_blob(self) -> None:
        """A certificate that a record refers to is missing."""
        store = self.opened()
        self.sql("DELETE FROM certificate_blob")
        self.assert_refused(store.get_receipt("r1"), "get", "certificate_blob")

    def test_get_workload_statement(self) -> None:
        """A statement is corrupt."""
        store = self.opened()
        self.sql("UPDATE workload_statement SET cuts = 'garbage'")
        self.assert_refused(store.get_statement("s1"), "get", "workload_statement")

    def test_get_receipt(self) -> None:
        """A record is corrupt."""
        store = self.opened()
        self.sql("UPDATE receipt SET disclosures = '{'")
        self.assert_refused(store.get_by_request(CLIENT, "jti-r1"), "get", "receipt")

    def test_get_db(self) -> None:
        """After an error the reader reconnects, and the database is gone."""
        store = self.opened()
        self.sql("UPDATE receipt SET disclosures = '{'")
        self.failureResultOf(store.get_receipt("r1"), StoreUnavailable)
        self.replaced()
        self.failureResultOf(store.get_receipt("r1"), StoreUnavailable)
        self.assertEqual({("get", "receipt"): 1.0, ("get", "db"): 1.0}, self.errors())

    def test_close_db(self) -> None:
        """The log is truncated before the last checkpoint."""
        store = self.opened()
        os.truncate(f"{self.path}-wal", 32)
        self.successResultOf(store.close())
        self.assertEqual({("close", "db"): 1.0}, self.errors())
