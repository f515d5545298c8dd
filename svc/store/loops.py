"""
What the two threads of the embedded store do.

Turns groups of jobs into work for the writer and the reader, and their outcomes into settlements: calls that the
reactor makes later, all of a group at once. Nothing here touches a Deferred before it is back on the reactor's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from svc.store.errors import StoreClosed, StoreError, StoreUnavailable
from svc.store.interface import Entity, Operation
from svc.store.lanes import Lane
from svc.store.reader import Reader
from svc.store.writer import Refused, Row, Writer


@dataclass
class Put:
    """
    A record to be stored.

    Args:
        row: the record.
        done: fires after the commit.
    """

    row: Row
    done: Deferred[None]


@dataclass(eq=False)
class Prune:
    """
    Old records to be forgotten, one slice in each group.

    Args:
        before: NumericDate.
        done: fires with their number.
        forgotten: how many are gone so far.
    """

    before: int
    done: Deferred[int]
    forgotten: int = 0


@dataclass
class Recover:
    """An attempt to become writable again."""


@dataclass
class Get:
    """
    Something to be read.

    Args:
        read: reads it.
        entity: what it is, should the database refuse.
        done: fires with it.
    """

    read: Callable[[Reader], Any]
    entity: Entity
    done: Deferred[Any]


WriteJob = Put | Prune | Recover
Settlement = Callable[[], object]
Deliver = Callable[[Sequence[Settlement]], None]


class Desk(Protocol):
    """The reactor's side of the store; only settlements call it."""

    def wrote(self, jobs: Sequence[Put], results: Sequence[StoreError | None], seconds: float) -> None:
        """A group was committed, or was not."""

    def read(self, job: Get, result: object) -> None:
        """Something was read; a StoreError where it could not be."""

    def refused(self, op: Operation, entity: Entity) -> None:
        """The database refused an operation."""

    def show_writable(self, writable: bool) -> None:
        """New records can, or cannot, be promised a place."""

    def closed(self) -> None:
        """One of the two threads is about to end."""


class WriteLoop:
    """
    The work of the writer's thread.

    Args:
        path: of the database, for errors.
        writer: does it.
        desk: gets the settlements.
        deliver: brings settlements to the reactor's thread.
    """

    def __init__(self, path: str, writer: Writer, desk: Desk, deliver: Deliver) -> None:
        self._path = path
        self._writer = writer
        self._desk = desk
        self._deliver = deliver
        self._lane: Lane[WriteJob] | None = None
        self._pruning: list[Prune] = []

    def attach(self, lane: Lane[WriteJob]) -> None:
        """
        Learn where this work is done; called before the first job.

        Args:
            lane: takes what is left of a job.
        """
        self._lane = lane

    def work(self, jobs: Sequence[WriteJob]) -> None:
        """
        Do a group of jobs: one commit for all records in it.

        Args:
            jobs: in the order in which they were queued.
        """
        settlements: list[Settlement] = []
        puts = [job for job in jobs if isinstance(job, Put)]
        if puts:
            settlements += self._commit(puts)
        for job in jobs:
            if isinstance(job, Prune):
                settlements += self._prune(job)
            elif isinstance(job, Recover):
                settlements += self._recover()
        # First, so that whoever learns that a record was refused finds the store unwritable already.
        self._deliver([partial(self._desk.show_writable, not self._writer.degraded), *settlements])
        # Only now: nobody waits for a checkpoint.
        refused = self._writer.checkpoint_if_due()
        if refused is not None:
            self._deliver(
                [partial(self._desk.refused, "put", refused), partial(self._desk.show_writable, False)],
            )

    def finish(self) -> None:
        """Let go of the database."""
        refused = self._writer.close()
        settlements: list[Settlement] = [partial(job.done.errback, StoreClosed()) for job in self._pruning]
        if refused is not None:
            settlements.append(partial(self._desk.refused, "close", refused))
        self._deliver([*settlements, self._desk.closed])

    def _commit(self, puts: Sequence[Put]) -> list[Settlement]:
        outcome = self._writer.commit([put.row for put in puts])
        told: list[Settlement] = [partial(self._desk.refused, "put", entity) for entity in outcome.errors]
        return [*told, partial(self._desk.wrote, puts, outcome.results, outcome.seconds)]

    def _prune(self, job: Prune) -> list[Settlement]:
        if job in self._pruning:
            self._pruning.remove(job)
        try:
            forgotten, more = self._writer.prune(job.before)
        except Refused as refused:
            error = StoreUnavailable(path=self._path, detail=str(refused.error))
            return [partial(self._desk.refused, "put", refused.entity), partial(job.done.errback, error)]
        job.forgotten += forgotten
        if more and self._lane is not None:
            # Behind the records that have queued up meanwhile.
            self._pruning.append(job)
            self._lane.submit(job)
            return []
        return [partial(job.done.callback, job.forgotten)]

    def _recover(self) -> list[Settlement]:
        try:
            self._writer.recover()
        except Refused as refused:
            return [partial(self._desk.refused, "put", refused.entity)]
        except OSError:
            # Still no room: the store stays as it is, and the next attempt is due after the retry interval.
            return []
        return []


class ReadLoop:
    """
    The work of the reader's thread.

    Args:
        path: of the database, for errors.
        reader: does it.
        desk: gets the settlements.
        deliver: brings settlements to the reactor's thread.
    """

    def __init__(self, path: str, reader: Reader, desk: Desk, deliver: Deliver) -> None:
        self._path = path
        self._reader = reader
        self._desk = desk
        self._deliver = deliver

    def work(self, jobs: Sequence[Get]) -> None:
        """
        Do a group of readings.

        Args:
            jobs: in the order in which they were queued.
        """
        settlements: list[Settlement] = []
        for job in jobs:
            try:
                settlements.append(partial(self._desk.read, job, job.read(self._reader)))
            except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
                # A row that was altered may be anything; whoever reads it must not end the thread for all others.
                self._reader.renew()
                refused = StoreUnavailable(path=self._path, detail=str(error))
                settlements += [partial(self._desk.refused, "get", job.entity), partial(self._desk.read, job, refused)]
        self._deliver(settlements)

    def finish(self) -> None:
        """Let go of the database."""
        self._reader.close()
        self._deliver([self._desk.closed])
