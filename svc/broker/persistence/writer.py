"""
Writes groups of operations to the broker's database; everything blocks and runs in one thread.

Owns what a group becomes in SQL and when it is tried again: on a full disk at once, with the reserve released; after
any other refusal only when the journal asks, and not before the log was emptied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from svc.broker.persistence.operations import Kind, Operation, Parameters
from svc.sqlite.database import DatabaseFile
from svc.sqlite.disk import primary_code
from svc.sqlite.writer import GroupWriter, transaction

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
    Kind.RETAINED: ("INSERT OR REPLACE INTO retained VALUES (?, ?)",),
    Kind.UNRETAINED: ("DELETE FROM retained WHERE topic = ?",),
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the writer's thread."""

    #: A group to be made durable in one transaction; may be empty.
    operations: Sequence[Operation]
    #: About how many octets they write.
    weight: int
    #: Whether to test first if writing is possible again.
    recover: bool = False
    #: Whether a part of the group may be durable already.
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task."""

    #: Whether the group is durable; nothing of it is otherwise.
    stored: bool
    #: Whether nothing new should begin.
    degraded: bool
    damaged: bool
    #: An explanation for each attempt that the database refused.
    refusals: tuple[str, ...] = ()


class JournalWriter(GroupWriter):
    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        super().__init__(file, connection)
        # Whether a failed synchronization left the content of the log on the disk unknown.
        self._log_uncertain = False

    def do(self, task: Task) -> TaskResult:
        """Make a group durable; after a refusal for want of room the reserve is released and it is tried once more."""
        refusals: list[str] = []
        if task.recover:
            try:
                self.recover()
                self._log_uncertain = False
            except (sqlite3.Error, OSError):
                refusals.append(self.trouble)
        stored = not task.operations
        while not stored and not self.damaged:
            full_before = self.degraded
            try:
                self._write(task)
                stored = True
            except sqlite3.Error as error:
                self._degrade(error)
                refusals.append(self.trouble)
                full = primary_code(error) == sqlite3.SQLITE_FULL
                self._log_uncertain = self._log_uncertain or not full
                if full_before or not full:
                    break
        return TaskResult(stored, self.degraded, self.damaged, tuple(refusals))

    def _write(self, task: Task) -> None:
        if self._log_uncertain:
            self._checkpoint("TRUNCATE")
            self._log_uncertain = False
        with transaction(self._ready()) as connection:
            for kind, parameters in condensed(task.operations, repeated=task.repeated):
                for statement in _STATEMENTS[kind]:
                    connection.executemany(statement, parameters)
        self._since_checkpoint += task.weight


def condensed(operations: Iterable[Operation], *, repeated: bool = False) -> Iterator[tuple[Kind, list[Parameters]]]:
    """
    Yield a group as runs of one kind, in the order in which it is cheapest to write.

    Messages and deliveries have numbers that are never reused, so their rows are inserted first, changed, and deleted
    last, and those that came and went within the group are not inserted at all. What concerns sessions keeps its order.
    In a repeated group, a part of which may be durable already, rows that are not inserted have to be deleted.
    """
    rows: dict[Kind, dict[object, Parameters]] = {
        Kind.MESSAGE: {},
        Kind.DELIVERY: {},
        Kind.DELIVERY_CHANGED: {},
        Kind.DELIVERY_OVER: {},
        Kind.MESSAGE_OVER: {},
    }
    others: list[Operation] = []
    for kind, parameters in operations:
        if kind in rows:
            rows[kind][parameters[0]] = parameters
        else:
            others.append((kind, parameters))
    _cancel_out(rows[Kind.MESSAGE], rows[Kind.MESSAGE_OVER], repeated)
    deliveries, changes = rows[Kind.DELIVERY], rows[Kind.DELIVERY_CHANGED]
    for number in rows[Kind.DELIVERY_OVER]:
        changes.pop(number, None)
    _cancel_out(deliveries, rows[Kind.DELIVERY_OVER], repeated)
    for number in [each for each in changes if each in deliveries]:
        deliveries[number] = (*deliveries[number][:-2], *changes.pop(number)[1:])
    for kind, found in rows.items():
        if found:
            yield kind, list(found.values())
    for kind, run in groupby(others, key=itemgetter(0)):
        yield kind, [parameters for _kind, parameters in run]


def _cancel_out(inserted: dict[object, Parameters], deleted: dict[object, Parameters], repeated: bool) -> None:
    for number in [each for each in deleted if each in inserted]:
        del inserted[number]
        if not repeated:
            del deleted[number]
