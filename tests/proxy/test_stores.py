"""Which store a configuration leads to, and what is said where it cannot be loaded."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.config import NotarySettings
from svc.proxy.stores import check_driver, make_store
from svc.store.errors import DriverMissing
from svc.store.interface import SilentStoreObserver
from svc.store.postgresql.store import PostgresStore
from svc.store.sqlite import SqliteStore
from tests.store.doubles import InlineReactor

FILE = NotarySettings(profile="classical", path="/nowhere/notary.db")
SERVER = NotarySettings(profile="classical", database="postgresql:///notary?host=/nowhere")


def missing(name: str) -> object:
    """Import nothing, as where the package is not installed."""
    raise ModuleNotFoundError(f"No module named {name!r}\nmore")


class ChoiceTests(SynchronousTestCase):
    """The store that is made."""

    def test_file(self) -> None:
        """A path leads to the embedded store; its driver is no question."""
        check_driver(FILE, missing)
        self.assertIsInstance(make_store(FILE, InlineReactor(), SilentStoreObserver()), SqliteStore)

    def test_server(self) -> None:
        """A URL leads to the store on a server; nothing is connected yet."""
        store = make_store(SERVER, InlineReactor(), SilentStoreObserver())
        self.assertIsInstance(store, PostgresStore)
        self.assertFalse(store.writable)

    def test_no_driver(self) -> None:
        """Without its driver one sentence says what is missing, and the advice what to type."""
        error = self.assertRaises(DriverMissing, check_driver, SERVER, missing)
        self.assertEqual(
            str(error), "notary.database needs the package psycopg, which cannot be loaded: No module named 'psycopg'"
        )
        self.assertIn("pip install -c constraints.txt '.[postgresql]'", error.advice())
