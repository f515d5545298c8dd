"""
Writes groups of operations to the broker's database; everything blocks and runs in one thread.

Owns what a group becomes in SQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from svc.broker.persistence.operations import Kind
from svc.sqlite.operations import Operation, OperationWriter, RowKinds, condensed

_STATEMENTS: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.MESSAGE: ("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)",),
    Kind.MESSAGE_OVER: ("DELETE FROM message WHERE number = ?",),
    Kind.DELIVERY: ("INSERT OR REPLACE INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?)",),
    Kind.DELIVERY_CHANGED: ("UPDATE delivery SET stage = ?2, packet_id = ?3 WHERE number = ?1",),
    Kind.DELIVERY_OVER: ("DELETE FROM delivery WHERE number = ?",),
    Kind.SESSION: ("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",),
    Kind.SESSION_OVER: (
        "DELETE FROM session WHERE client_id = ?",
        "DELETE FROM subscription WHERE client_id = ?",
        "DELETE FROM received WHERE client_id = ?",
    ),
    Kind.SUBSCRIBED: ("INSERT OR REPLACE INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?)",),
    Kind.UNSUBSCRIBED: ("DELETE FROM subscription WHERE client_id = ? AND filter = ?",),
    Kind.RECEIVED: ("INSERT OR REPLACE INTO received VALUES (?, ?)",),
    Kind.RELEASED: ("DELETE FROM received WHERE client_id = ? AND packet_id = ?",),
    Kind.RETAINED: ("INSERT OR REPLACE INTO retained VALUES (?, ?, ?)",),
    Kind.UNRETAINED: ("DELETE FROM retained WHERE topic = ?",),
}
#: Messages and deliveries have numbers that are never reused.
ROWS: Final = (
    RowKinds(Kind.MESSAGE, None, Kind.MESSAGE_OVER),
    RowKinds(Kind.DELIVERY, Kind.DELIVERY_CHANGED, Kind.DELIVERY_OVER),
)


class JournalWriter(OperationWriter):
    """Writes operations of :class:`Kind`."""

    def apply(self, connection: sqlite3.Connection, operations: Sequence[Operation], *, repeated: bool) -> None:
        for kind, parameters in condensed(operations, ROWS, repeated=repeated):
            for statement in _STATEMENTS[Kind(kind)]:
                connection.executemany(statement, parameters)
