"""
Which notary store the configuration asks for.

Each store is imported only where it is used: validating a configuration needs none, and the driver of the one on a
server is an optional package.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from svc.proxy.config import NotarySettings
from svc.store.errors import DriverMissing
from svc.store.postgresql.address import DatabaseAddress

if TYPE_CHECKING:
    from svc.sqlite.threads import ThreadReactor
    from svc.store.interface import StoreObserver
    from svc.store.threaded import ThreadedStore

_DRIVER = "psycopg"


def check_driver(notary: NotarySettings, load: Callable[[str], object] = importlib.import_module) -> None:
    """Find out whether the driver of the store can be loaded."""
    if notary.database is None:
        return
    try:
        load(_DRIVER)
    except ImportError as error:
        raise DriverMissing(detail=str(error).strip().partition("\n")[0]) from error


def store_name(notary: NotarySettings) -> str:
    """Name the store in logs."""
    return notary.path if notary.database is None else DatabaseAddress.parse(notary.database).name


def check_store(notary: NotarySettings) -> None:
    """Find out whether the store can be opened, without making anything."""
    if notary.database is None:
        from svc.store.sqlite import check_file

        check_file(notary.path)
        return
    check_driver(notary)
    from svc.store.postgresql.store import check_database

    check_database(DatabaseAddress.parse(notary.database))


def make_store(
    notary: NotarySettings, reactor: ThreadReactor, observer: StoreObserver, *, opened: bool = True
) -> ThreadedStore:
    """Make the store; nothing is opened yet."""
    if notary.database is None or not opened:
        from svc.store.sqlite import SqliteStore

        return SqliteStore(notary.path, reactor=reactor, observer=observer, at_turn_end=partial(reactor.callLater, 0))
    check_driver(notary)
    from svc.store.postgresql.store import PostgresStore

    address = DatabaseAddress.parse(notary.database)
    return PostgresStore(address, reactor=reactor, observer=observer, at_turn_end=partial(reactor.callLater, 0))
