"""
The opening of an embedded database, whoever's it is: judged before it is used, set aside where it is damaged.

Owns the order of the steps; each of them is the business of ``reserve``, ``damage`` and ``schema``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import datetime

from svc.store.damage import StoreSetAside, inspect, is_ours, lying_aside, set_aside
from svc.store.errors import StoreCorrupt, StoreUnavailable
from svc.store.interface import StoreObserver
from svc.store.reserve import Reserve
from svc.store.schema import NOTARY, Connect, Schema, open_database, prepare_file


def open_checked(
    path: str,
    reserve: Reserve,
    *,
    observer: StoreObserver,
    wall: Callable[[], datetime],
    connect: Connect,
    schema: Schema = NOTARY,
) -> sqlite3.Connection:
    """
    Judge a database and open it; on a full disk what is kept back is for that too.

    Args:
        path: of its file, in a folder that is there.
        reserve: the space kept back, locked.
        observer: told of databases that are set aside, now or before.
        wall: tells the time that names a damaged database which is set aside.
        connect: makes the connection.
        schema: what it holds.

    Returns:
        The connection for writing.

    Raises:
        StoreError: the subclass names what is wrong and what to do.
        OSError: the file cannot be made or looked at.
    """

    def opened() -> sqlite3.Connection:
        _inspect(path, reserve, observer, wall, schema)
        prepare_file(path)
        return open_database(path, connect, schema)

    try:
        return opened()
    except (StoreUnavailable, OSError):
        if not reserve.filled:
            raise
        reserve.release()
        return opened()


def _inspect(
    path: str, reserve: Reserve, observer: StoreObserver, wall: Callable[[], datetime], schema: Schema
) -> None:
    """Judge what stands there; what was ours and is damaged is set aside, and nothing is begun in its place yet."""
    made = reserve.made
    try:
        inspect(path, made=made, thorough=reserve.suspect, schema=schema)
    except StoreCorrupt as error:
        if not is_ours(path, made=made, schema=schema):
            raise
        aside = set_aside(path, wall())
        reserve.forget()
        observer.set_aside(path, aside)
        raise StoreSetAside(path=path, detail=error.evidence["detail"], aside=aside) from error
    if not os.path.exists(path):
        reserve.forget()
    aside_before = lying_aside(path)
    if aside_before:
        observer.lies_aside(aside_before)
