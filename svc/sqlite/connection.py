"""Opens connections: each one that svc has to an SQLite database is opened here."""

from __future__ import annotations

import sqlite3
from typing import Final

BUSY_SECONDS: Final = 5.0


def open_connection(path: str, *, uri: bool = False) -> sqlite3.Connection:
    """
    Open a connection that begins no transaction on its own and may be used by another thread than this one.

    What SQLite writes to temporary files by default, as the journals of large statements, it keeps in memory: the
    folder of the database may be the only one that can be written to.

    Args:
        path: the file, or with ``uri`` its address with SQLite's parameters.
        uri: whether ``path`` is an address.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)  # noqa: TID251
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection
