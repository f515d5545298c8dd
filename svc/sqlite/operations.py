"""
Operations on a database, and the writer that makes groups of them durable; blocks and runs in one thread.

An operation is a kind, whose meaning is that of the caller, and plain values. It states what is, not what changes, so
that a group which may have been written can be written again. Owns when a refused group is tried again: on a full disk
at once, with the reserve released; after any other refusal only when asked, and not before the log was emptied.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from svc.sqlite.database import DatabaseFile
from svc.sqlite.disk import primary_code
from svc.sqlite.writer import GroupWriter, transaction

Value = int | float | str | bytes | None
Parameters = tuple[Value, ...]
#: The kind is a member of an enumeration of the caller.
Operation = tuple[int, Parameters]
#: What any group adds to the log, roughly: whole pages of the tables and indexes that it changes.
GROUP_OCTETS: Final = 4 * 4096


class RowKinds(NamedTuple):
    """
    The kinds that insert, change and delete a row, whose first parameter is a number that is never reused.

    A change gives new values to the last columns of the row; None where rows do not change.
    """

    insert: int
    change: int | None
    delete: int


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


class OperationWriter(GroupWriter, ABC):
    """Writes groups of operations; a subclass turns them into SQL."""

    def __init__(self, file: DatabaseFile, connection: sqlite3.Connection) -> None:
        super().__init__(file, connection)
        # Whether a failed synchronization left the content of the log on the disk unknown.
        self._log_uncertain = False

    @abstractmethod
    def apply(self, connection: sqlite3.Connection, operations: Sequence[Operation], *, repeated: bool) -> None:
        """Execute a group in the open transaction; ``repeated`` where a part of it may be durable already."""

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
            self.apply(connection, task.operations, repeated=task.repeated)
        self._since_checkpoint += GROUP_OCTETS + task.weight


def condensed(
    operations: Iterable[Operation], tables: Sequence[RowKinds], *, repeated: bool = False
) -> Iterator[tuple[int, list[Parameters]]]:
    """
    Yield a group as runs of one kind, in the order in which it is cheapest to write.

    Rows of ``tables`` are inserted first, changed, and deleted last, the last table first; those that came and went
    within the group are not inserted at all. Other operations keep their order. In a repeated group, a part of which
    may be durable already, rows that are not inserted have to be deleted.
    """
    order = [each.insert for each in tables]
    order += [each.change for each in tables if each.change is not None]
    order += [each.delete for each in reversed(tables)]
    rows: dict[int, dict[object, Parameters]] = {kind: {} for kind in order}
    others: list[Operation] = []
    for kind, parameters in operations:
        if kind in rows:
            rows[kind][parameters[0]] = parameters
        else:
            others.append((kind, parameters))
    for insert, change, delete in tables:
        inserted, deleted = rows[insert], rows[delete]
        changed = {} if change is None else rows[change]
        for number in deleted:
            changed.pop(number, None)
        _cancel_out(inserted, deleted, repeated)
        for number in [each for each in changed if each in inserted]:
            values = changed.pop(number)[1:]
            inserted[number] = (*inserted[number][: -len(values)], *values)
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
