"""Writes groups of operations to the buffer; everything blocks and runs in one thread, encryption included."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from svc.proxy.mqtt.stored.buffer.keys import BufferKeys
from svc.proxy.mqtt.stored.buffer.records import (
    BufferKind,
    SessionKey,
    dead_letter_row,
    message_row,
    received_row,
    session_row,
)
from svc.sqlite.database import DatabaseFile
from svc.sqlite.operations import Operation, OperationWriter, Parameters, RowKinds, condensed
from svc.sqlite.writer import transaction

_STATEMENTS: Final[dict[BufferKind, tuple[str, ...]]] = {
    BufferKind.MESSAGE: (
        "INSERT OR REPLACE INTO message (number, session, qos, retain, packet_id, relayed, stored, size, content,"
        " state, upstream_id, refused, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ),
    BufferKind.MESSAGE_CHANGED: ("UPDATE message SET state = ?2, upstream_id = ?3, refused = ?4 WHERE number = ?1",),
    BufferKind.MESSAGE_OVER: ("DELETE FROM message WHERE number = ?",),
    BufferKind.SESSION: (
        "INSERT OR REPLACE INTO session (number, listener, client_id, owner, content, incomplete, ended,"
        " expiry, until, clean, opened, linked, renewed, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ),
    BufferKind.SESSION_OVER: ("DELETE FROM session WHERE number = ?", "DELETE FROM received WHERE session = ?"),
    BufferKind.RECEIVED: (
        "INSERT OR REPLACE INTO received (session, packet_id, message, owed, receipt, code, digest, key)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    ),
    BufferKind.RELEASED: ("DELETE FROM received WHERE session = ? AND packet_id = ?",),
    BufferKind.ALL_RELEASED: ("DELETE FROM received WHERE session = ?",),
    BufferKind.DEAD_LETTER: (
        "INSERT OR REPLACE INTO dead_letter (number, listener, client_id, owner, incomplete, qos, retain, stored,"
        " rejected, cause, code, size, content, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ),
    BufferKind.DEAD_LETTER_OVER: ("DELETE FROM dead_letter WHERE number = ?",),
}
#: Messages have numbers that are never reused while they are there.
_ROWS: Final = (RowKinds(BufferKind.MESSAGE, BufferKind.MESSAGE_CHANGED, BufferKind.MESSAGE_OVER),)
#: Where the content is in the parameters of these kinds.
_MESSAGE_CONTENT: Final = 8
_SESSION_CONTENT: Final = 4
_RECEIVED_DIGEST: Final = 6
_LETTER_CONTENT: Final = 12


class _InClear(NamedTuple):
    """The content of one table that is in clear."""

    #: The content, and the columns to which it belongs.
    select: str
    #: Takes the content, the key, and the columns; only the first ones are needed to name the row.
    update: str
    row: Callable[..., bytes]


_IN_CLEAR: Final = (
    _InClear(
        "SELECT content, number, listener, client_id, owner FROM session WHERE key IS NULL",
        "UPDATE session SET content = ?1, key = ?2 WHERE number = ?3",
        lambda number, *key: session_row(number, SessionKey(*key)),
    ),
    _InClear(
        "SELECT content, number, session, qos, retain, packet_id, relayed, stored FROM message WHERE key IS NULL",
        "UPDATE message SET content = ?1, key = ?2 WHERE number = ?3",
        message_row,
    ),
    _InClear(
        "SELECT digest, session, packet_id, message FROM received WHERE digest IS NOT NULL AND key IS NULL",
        "UPDATE received SET digest = ?1, key = ?2 WHERE session = ?3 AND packet_id = ?4",
        received_row,
    ),
    _InClear(
        "SELECT content, number, listener, client_id, owner, incomplete, qos, retain, stored, rejected, cause, code,"
        " size FROM dead_letter WHERE key IS NULL",
        "UPDATE dead_letter SET content = ?1, key = ?2 WHERE number = ?3",
        dead_letter_row,
    ),
)


def encrypt_stored(connection: sqlite3.Connection, keys: BufferKeys) -> None:
    """Encrypt all rows in clear, or none of them where sqlite3.Error is raised; without a key nothing is changed."""
    if keys.current is None:
        return
    with transaction(connection):
        for each in _IN_CLEAR:
            names = each.update.count("?") - 2
            for content, *columns in connection.execute(each.select):
                octets = keys.encrypt(content, each.row(*columns))
                connection.execute(each.update, (octets, keys.current, *columns[:names]))


class BufferWriter(OperationWriter):
    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection, keys: BufferKeys) -> None:
        super().__init__(file, connection)
        self._keys = keys

    def apply(self, connection: sqlite3.Connection, operations: Sequence[Operation], *, repeated: bool) -> None:
        for kind, parameters in condensed(operations, _ROWS, repeated=repeated):
            if kind == BufferKind.MESSAGE:
                parameters = [self._message(each) for each in parameters]
            elif kind == BufferKind.SESSION:
                parameters = [self._session(each) for each in parameters]
            elif kind == BufferKind.RECEIVED:
                parameters = [self._received(each) for each in parameters]
            elif kind == BufferKind.DEAD_LETTER:
                parameters = [self._dead_letter(each) for each in parameters]
            for statement in _STATEMENTS[BufferKind(kind)]:
                connection.executemany(statement, parameters)

    def _message(self, values: tuple[Any, ...]) -> Parameters:
        return self._encrypted(values, _MESSAGE_CONTENT, message_row(*values[:7]))

    def _session(self, values: tuple[Any, ...]) -> Parameters:
        return self._encrypted(values, _SESSION_CONTENT, session_row(values[0], SessionKey(*values[1:4])))

    def _received(self, values: tuple[Any, ...]) -> Parameters:
        if values[_RECEIVED_DIGEST] is None:
            return (*values, None)
        return self._encrypted(values, _RECEIVED_DIGEST, received_row(*values[:3]))

    def _dead_letter(self, values: tuple[Any, ...]) -> Parameters:
        return self._encrypted(values, _LETTER_CONTENT, dead_letter_row(*values[:_LETTER_CONTENT]))

    def _encrypted(self, values: tuple[Any, ...], content: int, row: bytes) -> Parameters:
        octets = self._keys.encrypt(values[content], row)
        return (*values[:content], octets, *values[content + 1 :], self._keys.current)
