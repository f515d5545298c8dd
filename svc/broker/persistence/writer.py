"""
The one who writes to the broker's database; everything here blocks and runs in one thread.

Owns what a group of operations becomes in SQL. What came and went within the group is left out: a message that was
acknowledged while the disk was busy with the group before costs nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from svc.broker.persistence.operations import Kind, Operation, Parameters
from svc.store.connected import ConnectedWriter, Transaction
from svc.store.reserve import Reserve
from svc.store.rows import Refused
from svc.store.schema import Connect, primary_code

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
    """
    What the thread is asked to do.

    Args:
        operations: a group to be made durable in one transaction; none where it is only asked how it is.
        weight: about how many octets they write.
        recover: whether to find out first if writing is possible again.
        repeated: whether a part of it may be durable already.
    """

    operations: Sequence[Operation]
    weight: int
    recover: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What came of it.

    Args:
        stored: whether the group is durable.
        degraded: whether nothing new should begin.
        damaged: whether the database was found damaged.
        refusals: what the database said, for each attempt that it refused.
    """

    stored: bool
    degraded: bool
    damaged: bool
    refusals: tuple[str, ...] = ()


class JournalWriter(ConnectedWriter):
    """
    Writes to one database.

    Args:
        path: of the database.
        connection: for writing, opened and checked.
        reserve: the space kept back.
        connect: makes a new connection after an error.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, reserve: Reserve, *, connect: Connect) -> None:
        super().__init__(path, connection, reserve, connect=connect)
        self._doubtful = False

    def do(self, task: Task) -> Outcome:
        """
        Make a group durable.

        Args:
            task: the group. After a refusal for want of room the reserve is released and the group tried once more.

        Returns:
            What came of it; where it is not stored, nothing of it is.
        """
        refusals: list[str] = []
        if task.recover:
            refusals += self._recovered()
        stored = not task.operations
        while not stored and not self.damaged:
            full_before = self.degraded
            try:
                self._write(task)
                stored = True
            except sqlite3.Error as error:
                refused = self.refused("db", error)
                refusals.append(refused.detail)
                self._give_way(refused)
                full = primary_code(error) == sqlite3.SQLITE_FULL
                # What a failed synchronisation left on the disk nobody knows.
                self._doubtful = self._doubtful or not full
                if full_before or not full:
                    break
        return Outcome(stored, self.degraded, self.damaged, tuple(refusals))

    def _recovered(self) -> list[str]:
        try:
            self.recover()
        except Refused as refused:
            return [refused.detail]
        except OSError:
            return [self.trouble]
        self._doubtful = False
        return []

    def _write(self, task: Task) -> None:
        if self._doubtful:
            self._checkpoint("TRUNCATE")
            self._doubtful = False
        with Transaction(self._ready()) as connection:
            for kind, parameters in condensed(task.operations, repeated=task.repeated):
                for statement in _STATEMENTS[kind]:
                    connection.executemany(statement, parameters)
        self._unchecked += task.weight


def condensed(operations: Iterable[Operation], *, repeated: bool = False) -> Iterator[tuple[Kind, list[Parameters]]]:
    """
    Put a group into the order in which it is cheapest to write.

    Messages and deliveries have numbers that are never used twice, so their rows are made first, changed, and taken out
    last, and those that came and went are not made at all. What concerns sessions keeps its order.

    Args:
        operations: the group.
        repeated: whether a part of it may be durable already, so that rows that are not made have to be taken out.

    Yields:
        Runs of one kind.
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
    _take_out(rows[Kind.MESSAGE], rows[Kind.MESSAGE_OVER], repeated)
    deliveries, changes = rows[Kind.DELIVERY], rows[Kind.DELIVERY_CHANGED]
    for number in rows[Kind.DELIVERY_OVER]:
        changes.pop(number, None)
    _take_out(deliveries, rows[Kind.DELIVERY_OVER], repeated)
    for number in [each for each in changes if each in deliveries]:
        deliveries[number] = (*deliveries[number][:-2], *changes.pop(number)[1:])
    for kind, found in rows.items():
        if found:
            yield kind, list(found.values())
    for kind, run in groupby(others, key=itemgetter(0)):
        yield kind, [parameters for _kind, parameters in run]


def _take_out(made: dict[object, Parameters], over: dict[object, Parameters], repeated: bool) -> None:
    for number in [each for each in over if each in made]:
        del made[number]
        if not repeated:
            del over[number]
