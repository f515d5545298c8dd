"""The opening of the broker's database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Final

from svc.broker.journal import Remains
from svc.broker.persistence.errors import PersistenceCorrupt, in_our_words
from svc.broker.persistence.groups import GroupLimits, Groups, JournalObserver, SilentJournalObserver
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.loading import Found, Unreadable, load
from svc.broker.persistence.schema import BROKER
from svc.broker.persistence.writer import JournalWriter
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.lanes import ThreadLane
from svc.store.opening import open_checked
from svc.store.reserve import Reserve
from svc.store.schema import Connect, opening_error, plain_connect, prepare_folder
from svc.store.sqlite import utc_now
from svc.store.threaded import LaneMaker, StoreReactor

#: Octets kept back on the disk for what runs when it becomes full: acknowledgements and ends, which are small.
RESERVE_SIZE: Final = 8 * 1024 * 1024


def open_journal(
    path: str,
    *,
    reactor: StoreReactor,
    observer: JournalObserver | None = None,
    limits: GroupLimits | None = None,
    reserve_size: int = RESERVE_SIZE,
    connect: Connect = plain_connect,
    lanes: LaneMaker = ThreadLane,
    wall: Callable[[], datetime] = utc_now,
) -> tuple[SqliteJournal, Remains]:
    """
    Open the database, make it or bring it to the current schema, and read all of it. Blocks; called once, at start.

    Args:
        path: of the database; its folder is made if need be.
        reactor: ends rounds, takes results from the thread, measures times.
        observer: told how the database is.
        limits: how much may wait, and for how long.
        reserve_size: octets kept back on the disk for what runs when it becomes full.
        connect: makes connections.
        lanes: starts the thread.
        wall: tells the time that names a damaged database which is set aside.

    Returns:
        The journal, and what it kept.

    Raises:
        StoreError: the subclass names what is wrong and what to do.
    """
    observer = observer or SilentJournalObserver()
    reserve = Reserve(f"{path}.reserve", reserve_size)
    try:
        prepare_folder(path)
        reserve.lock(path)
        connection = open_checked(path, reserve, observer=observer, wall=wall, connect=connect, schema=BROKER)
        found = _loaded(path, connection)
    except BaseException as error:
        reserve.close()
        if isinstance(error, OSError):
            error = StoreUnavailable(path=path, detail=error.strerror or str(error))
        if isinstance(error, StoreError):
            observer.db_error("init", "db", str(error))
            raise in_our_words(error) from error
        raise
    writer = JournalWriter(path, connection, reserve, connect=connect)
    groups = Groups(path, writer, reactor=reactor, observer=observer, limits=limits or GroupLimits(), lanes=lanes)
    detail = ""
    try:
        reserve.fill()
    except OSError as error:
        # What is kept can be delivered; anything new waits until the disk has room for the reserve again.
        writer.degraded, detail = True, error.strerror or str(error)
        observer.db_error("init", "db", detail)
    groups.start(detail)
    return SqliteJournal(groups, found), found.remains


def _loaded(path: str, connection: sqlite3.Connection) -> Found:
    try:
        return load(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, Unreadable):
            raise PersistenceCorrupt(path=path, detail=f"it holds what cannot be: {error}") from error
        if isinstance(error, sqlite3.Error):
            raise opening_error(path, error) from error
        raise
