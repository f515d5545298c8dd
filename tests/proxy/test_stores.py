"""Which store a configuration selects, and the error when its driver is missing."""

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
    """Fail the import, as if the package were not installed."""
    raise ModuleNotFoundError(f"No module named {name!r}\nmore")


class ChoiceTests(SynchronousTestCase):
    """The selected store."""

    def test_file(self) -> None:
        """A path selects the embedded store, which needs no driver."""
        check_driver(FILE, missing)
        self.assertIsInstance(make_store(FILE, InlineReactor(), SilentStoreObserver()), SqliteStore)

    def test_server(self) -> None:
        """A URL selects the server store; no connection is opened yet."""
        store = make_store(SERVER, InlineReactor(), SilentStoreObserver())
        self.assertIsInstance(store, PostgresStore)
        self.assertFalse(store.writable)

    def test_no_driver(self) -> None:
        """Without the driver one sentence names the package, and the hint the command to install it."""
        error = self.assertRaises(DriverMissing, check_driver, SERVER, missing)
        self.assertEqual(
            str(error), "notary.database needs the package psycopg, which cannot be loaded: No module named 'psycopg'"
        )
        self.assertIn("pip install -c constraints.txt '.[postgresql]'", error.hint)
