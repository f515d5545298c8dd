"""
The broker's database between nothing and the first group: judged, opened, read, its reserve taken.

Everything here blocks and runs in a thread of its own, which the reactor watches through :class:`Progress`. What is set
aside and what lies aside is told through the observer of the caller, who brings it to the reactor's thread.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from svc.broker.persistence.errors import PersistenceCorrupt
from svc.broker.persistence.loading import Found, Going, Unreadable, load
from svc.broker.persistence.schema import BROKER
from svc.broker.persistence.writer import JournalWriter
from svc.store.disk import refusal
from svc.store.errors import StoreUnavailable
from svc.store.interface import StoreObserver
from svc.store.opening import open_checked
from svc.store.reserve import Reserve
from svc.store.schema import Connect, opening_error, prepare_folder


class Abandoned(Exception):
    """Nobody waits for the database any more."""


class Progress:
    """
    What the thread that opens and the reactor know of each other.

    Args:
        seconds: a clock that never goes back.

    Attributes:
        moved: when the disk last gave something.
        reading: whether the disk is still asked for anything.
        abandoned: set by the reactor when nobody waits any more.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.moved = seconds()
        self.reading = True
        self.abandoned = False

    def going(self) -> None:
        """
        Say that something was done.

        Raises:
            Abandoned: nobody waits for the rest.
        """
        self.moved = self._seconds()
        if self.abandoned:
            raise Abandoned


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where the database lies, and how it is opened.

    Args:
        path: of its file.
        reserve_size: octets kept back on the disk.
        connect: makes connections.
        wall: tells the time that names a damaged database which is set aside.
    """

    path: str
    reserve_size: int
    connect: Connect
    wall: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Opened:
    """
    A database in use.

    Args:
        writer: writes to it.
        found: what it held.
        detail: why there is no room for the reserve; empty where there is.
    """

    writer: JournalWriter
    found: Found
    detail: str = ""


def open_and_read(place: Place, observer: StoreObserver, progress: Progress) -> Opened:
    """
    Open the database, make it or bring it to the current schema, and read all of it.

    Args:
        place: where it lies.
        observer: told of databases that are set aside, now or before.
        progress: told after each step.

    Returns:
        The database, locked for this process.

    Raises:
        StoreError: the subclass names what is wrong and what to do; nothing is left open.
        Abandoned: nobody waits any more; nothing is left open.
    """
    # The lock is a file beside the database: who comes by a symbolic link must find the same one.
    path = place.path
    reserve = Reserve(f"{os.path.realpath(path)}.reserve", place.reserve_size)
    connection: sqlite3.Connection | None = None
    try:
        prepare_folder(path)
        reserve.lock(path)
        progress.going()
        connection = open_checked(
            path, reserve, observer=observer, wall=place.wall, connect=place.connect, schema=BROKER
        )
        found = _read(path, connection, progress.going)
        return _with_reserve(path, JournalWriter(path, connection, reserve, connect=place.connect), reserve, found)
    except BaseException as error:
        if connection is not None:
            connection.close()
        reserve.close()
        if isinstance(error, OSError):
            raise StoreUnavailable(path=path, detail=refusal(path, error)) from error
        raise


def _read(path: str, connection: sqlite3.Connection, going: Going) -> Found:
    try:
        going()
        return load(connection, going)
    except Unreadable as error:
        raise PersistenceCorrupt(path=path, detail=f"it holds what cannot be: {error}") from error
    except sqlite3.Error as error:
        raise opening_error(path, error) from error


def _with_reserve(path: str, writer: JournalWriter, reserve: Reserve, found: Found) -> Opened:
    try:
        reserve.fill()
    except OSError as error:
        # What is kept can be delivered; anything new waits until the disk has room for the reserve again.
        writer.degraded = True
        return Opened(writer, found, refusal(path, error))
    return Opened(writer, found)
