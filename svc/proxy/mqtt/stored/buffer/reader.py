"""Reads from the buffer: all sessions at the start, and the messages of a session in pages; blocks."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from svc.proxy.mqtt.stored.buffer.errors import MessageBufferError
from svc.proxy.mqtt.stored.buffer.keys import BufferKeys, ContentUnreadable
from svc.proxy.mqtt.stored.buffer.records import (
    BufferedMessage,
    LoadedSession,
    ReadLetter,
    ReceivedId,
    SessionKey,
    Wanted,
    dead_letter_row,
    message_row,
    read_dead_letter,
    read_message,
    read_session,
    received_row,
    session_row,
)
from svc.proxy.mqtt.stored.buffer.schema import BUFFER
from svc.sqlite.kind import Connect

_KEYS: Final = (
    "SELECT key FROM session UNION SELECT key FROM message UNION SELECT key FROM received WHERE digest IS NOT NULL"
    " UNION SELECT key FROM dead_letter"
)
_SESSIONS: Final = (
    "SELECT number, listener, client_id, owner, key, content, incomplete, ended, expiry, until, clean,"
    " opened, linked, renewed FROM session ORDER BY number"
)
_RECEIVED: Final = "SELECT session, packet_id, message, owed, receipt, code, digest, key FROM received"
_TOTALS: Final = "SELECT session, count(*), sum(size), min(stored), max(number) FROM message GROUP BY session"
_PAGE: Final = (
    "SELECT number, qos, retain, packet_id, relayed, stored, state, upstream_id, refused, key, content FROM message"
    " WHERE session = ? AND number > ? ORDER BY number LIMIT ?"
)
_LETTER_SIZES: Final = "SELECT number, listener, client_id, owner, size FROM dead_letter"
_LETTERS: Final = (
    "SELECT number, listener, client_id, owner, incomplete, qos, retain, stored, rejected, cause, code, size, wanted,"
    " key, content FROM dead_letter WHERE number > ? AND (wanted != 0 OR ?) ORDER BY number LIMIT ?"
)


def load(connection: sqlite3.Connection, path: str, keys: BufferKeys) -> list[LoadedSession]:
    """
    Read all sessions.

    Raises:
        MessageBufferError: the key of a row is not configured, or there are keys and the row is in clear.
        ContentUnreadable: the rows are not what this program writes.
        sqlite3.Error: the database refuses.
    """
    for (key,) in connection.execute(_KEYS):
        if key is None and not keys.contains(key):
            raise MessageBufferError("mqtt_buffer_in_clear", path=path, **BUFFER.words)
        if not keys.contains(key):
            name = key.hex() if isinstance(key, bytes) else ""
            raise MessageBufferError("mqtt_buffer_key_missing", path=path, fingerprint=name, **BUFFER.words)
    try:
        return _loaded(connection, keys)
    except (LookupError, ValueError, TypeError) as error:
        raise ContentUnreadable(f"{type(error).__name__} at the start") from error


def _loaded(connection: sqlite3.Connection, keys: BufferKeys) -> list[LoadedSession]:
    found: dict[int, LoadedSession] = {}
    for number, listener, client_id, owner, key, content, *columns in connection.execute(_SESSIONS):
        name = SessionKey(listener, client_id, owner)
        octets = keys.decrypt(key, content, session_row(number, name))
        found[number] = LoadedSession(read_session(number, name, octets, tuple(columns)))
    for session, packet_id, message, owed, receipt, code, digest, key in connection.execute(_RECEIVED):
        due = b"" if digest is None else keys.decrypt(key, digest, received_row(session, packet_id, message))
        found[session].received[packet_id] = ReceivedId(message, bool(owed), receipt, code, due)
    for session, *totals in connection.execute(_TOTALS):
        loaded = found[session]
        loaded.messages, loaded.octets, loaded.oldest, loaded.last = totals
    return list(found.values())


def load_dead_letters(connection: sqlite3.Connection) -> dict[int, tuple[str, int]]:
    """Read who holds each dead letter, and its size, by their numbers, or raise sqlite3.Error."""
    rows = connection.execute(_LETTER_SIZES)
    return {number: (SessionKey(*key).holder, size) for number, *key, size in rows}


def read_dead_letters(
    connection: sqlite3.Connection, keys: BufferKeys, after: int, letters: int, *, wanted: bool
) -> list[ReadLetter]:
    """
    Read the next dead letters behind the number ``after``, all or those with which an operator ``wanted`` something.

    Raises:
        sqlite3.Error: the database refuses.
    """
    found = []
    for *columns, size, order, key, content in connection.execute(_LETTERS, (after, int(not wanted), letters)):
        letter = None
        with suppress(ContentUnreadable):
            octets = keys.decrypt(key, content, dead_letter_row(*columns, size))
            letter = read_dead_letter(octets, tuple(columns))
        found.append(ReadLetter(columns[0], Wanted(order), letter))
    return found


class BufferReader:
    """Reads over a connection of its own that cannot write, which is opened again after an error."""

    def __init__(self, path: str, connect: Connect, keys: BufferKeys) -> None:
        self._path = path
        self._connect = connect
        self._keys = keys
        self._connection: sqlite3.Connection | None = None

    def page(self, session: int, after: int, messages: int, octets: int) -> list[BufferedMessage]:
        """
        Read the messages of a session behind the number ``after``, in order: at least one where there is one.

        Raises:
            ContentUnreadable: a row was altered.
            sqlite3.Error: the database refuses.
        """
        found: list[BufferedMessage] = []
        size = 0
        for number, qos, retain, packet_id, relayed, stored, *states, key, content in self._ready().execute(
            _PAGE, (session, after, messages)
        ):
            row = message_row(number, session, qos, retain, packet_id, relayed, stored)
            columns = (number, qos, retain, packet_id, relayed, stored, *states)
            found.append(read_message(self._keys.decrypt(key, content, row), columns))
            size += found[-1].size
            if size >= octets:
                break
        return found

    def wanted(self, after: int, letters: int) -> list[ReadLetter]:
        """Read dead letters with which an operator wants something done; raises sqlite3.Error."""
        return read_dead_letters(self._ready(), self._keys, after, letters, wanted=True)

    def disconnect(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = self._connect(self._path)
            try:
                connection.execute("PRAGMA query_only = ON")
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection
