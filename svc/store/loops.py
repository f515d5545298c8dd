"""
What the two threads of a store do, whatever its database.

Turns groups of jobs into work for the writer and the reader, and their outcomes into settlements: calls that the
reactor makes later, all of a group at once. Nothing here touches a Deferred before it is back on the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from svc.store.errors import StoreClosed, StoreError
from svc.store.interface import Entity, Operation
from svc.store.lanes import GROUP_LIMIT, Lane
from svc.store.records import StoredReceipt
from svc.store.rows import Outcome, Refused, Row


class Writing(Protocol):
    """Writes to one database; everything blocks and runs in the writer's thread."""

    degraded: bool
    trouble: str
    """Why the database refused last."""

    def commit(self, rows: Sequence[Row]) -> Outcome:
        """Make records durable in one transaction."""

    def prune(self, before: int) -> tuple[int, bool]:
        """Forget one slice of what is old; gives the number and whether more is left, or raises Refused."""

    def recover(self) -> None:
        """Become writable again, or raise Refused or OSError."""

    def checkpoint_if_due(self) -> Entity | None:
        """Tidy up while nobody waits; gives what the database refused, or None."""

    def close(self) -> Entity | None:
        """Let go of the database; gives what it refused, or None."""


class Reading(Protocol):
    """Reads from one database; everything blocks and runs in the reader's thread."""

    def statement(self, statement_id: str) -> bytes | None:
        """Find a statement."""

    def receipt(self, receipt_id: str) -> StoredReceipt | None:
        """Find a record by its id."""

    def by_request(self, client: str, key: str) -> StoredReceipt | None:
        """Find a record by nonce, else by ``jti``."""

    def nonce_known(self, client: str, nonce: str) -> bool:
        """Say whether a client's nonce is stored."""

    def reserve(self, client: str, nonce: str) -> bool:
        """Keep a nonce for an exchange that begins; gives whether it was free."""

    def give_back(self, client: str, nonce: str) -> None:
        """Give a nonce back whose exchange leaves no record."""

    def reserved(self, client: str, nonce: str) -> bool:
        """Say whether an exchange with a nonce runs in some other process."""

    def renew(self) -> None:
        """Connect anew at the next reading."""

    def close(self) -> None:
        """Let go of the database."""


#: Makes the error that those who wait get from what the database said.
Unavailable = Callable[[Exception], StoreError]


@dataclass
class Put:
    """
    A record to be stored.

    Args:
        row: the record.
        done: fires after the commit.
        over: whether nobody waits any more; set on the reactor's thread.
    """

    row: Row
    done: Deferred[None]
    over: bool = False


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

    read: Callable[[Reading], Any]
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

    def refused(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """The database refused an operation."""

    def show_writable(self, writable: bool, trouble: str = "") -> None:
        """New records can be promised a place, or cannot, and why not."""

    def closed(self) -> None:
        """One of the two threads is about to end."""


class WriteLoop:
    """
    The work of the writer's thread.

    Args:
        writer: does it.
        unavailable: names what the database refused.
        desk: gets the settlements.
        deliver: brings settlements to the reactor's thread.
    """

    def __init__(self, writer: Writing, unavailable: Unavailable, desk: Desk, deliver: Deliver) -> None:
        self._writer = writer
        self._unavailable = unavailable
        self._desk = desk
        self._deliver = deliver
        self._lane: Lane[WriteJob] | None = None
        self._pruning: list[Prune] = []
        self._undecided: list[Put] = []

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
        self._deliver([self._shown(), *settlements])
        # Only now: nobody waits for a checkpoint.
        refused = self._writer.checkpoint_if_due()
        if refused is not None:
            self._deliver([partial(self._desk.refused, "put", refused, self._writer.trouble), self._shown()])

    def _shown(self) -> Settlement:
        return partial(self._desk.show_writable, not self._writer.degraded, self._writer.trouble)

    def look(self, lost: Callable[[], bool]) -> None:
        """
        Find out whether the database has gone away while nothing was to be written.

        Args:
            lost: asks the writer.
        """
        if lost():
            self._deliver([partial(self._desk.refused, "put", "db", self._writer.trouble), self._shown()])

    def finish(self) -> None:
        """Let go of the database."""
        settlements = self._recover() if self._undecided else []
        if self._undecided:
            lost = [StoreClosed()] * len(self._undecided)
            settlements.append(partial(self._desk.wrote, self._undecided, lost, 0.0))
        refused = self._writer.close()
        settlements += [partial(job.done.errback, StoreClosed()) for job in self._pruning]
        if refused is not None:
            settlements.append(partial(self._desk.refused, "close", refused, self._writer.trouble))
        self._deliver([*settlements, self._desk.closed])

    def _commit(self, puts: Sequence[Put]) -> list[Settlement]:
        outcome = self._writer.commit([put.row for put in puts])
        told: list[Settlement] = [
            partial(self._desk.refused, "put", entity, outcome.detail) for entity in outcome.errors
        ]
        if outcome.undecided:
            # Neither stored nor lost as far as anybody knows: asked again when the database is back.
            self._undecided += puts
            return told
        return [*told, partial(self._desk.wrote, puts, outcome.results, outcome.seconds)]

    def _prune(self, job: Prune) -> list[Settlement]:
        if job in self._pruning:
            self._pruning.remove(job)
        try:
            forgotten, more = self._writer.prune(job.before)
        except Refused as refused:
            error = self._unavailable(refused.error)
            told = partial(self._desk.refused, "put", refused.entity, refused.detail)
            return [told, partial(job.done.errback, error)]
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
            return [*self._forget_late(), partial(self._desk.refused, "put", refused.entity, refused.detail)]
        except OSError:
            # Still no room: the store stays as it is, and the next attempt is due after the retry interval.
            return self._forget_late()
        settlements = self._forget_late()
        undecided, self._undecided = self._undecided, []
        for start in range(0, len(undecided), GROUP_LIMIT):
            settlements += self._commit(undecided[start : start + GROUP_LIMIT])
        return settlements

    def _forget_late(self) -> list[Settlement]:
        """Undecided records whose exchange was told that they are late are asked for no more."""
        late = [put for put in self._undecided if put.over]
        self._undecided = [put for put in self._undecided if not put.over]
        return [partial(self._desk.wrote, late, [StoreClosed()] * len(late), 0.0)] if late else []


class ReadLoop:
    """
    The work of the reader's thread.

    Args:
        reader: does it.
        refusals: what it raises where the database refuses.
        unavailable: names that.
        desk: gets the settlements.
        deliver: brings settlements to the reactor's thread.
    """

    def __init__(
        self,
        reader: Reading,
        refusals: tuple[type[Exception], ...],
        unavailable: Unavailable,
        desk: Desk,
        deliver: Deliver,
    ) -> None:
        self._reader = reader
        # A row that was altered may be anything; whoever reads it must not end the thread for all others.
        self._refusals: tuple[type[Exception], ...] = (*refusals, ValueError, LookupError, TypeError)
        self._unavailable = unavailable
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
            except Refused as refused:
                settlements += self._not_read(job, refused.entity, refused.error)
            except self._refusals as error:
                settlements += self._not_read(job, job.entity, error)
        self._deliver(settlements)

    def _not_read(self, job: Get, entity: Entity, error: Exception) -> list[Settlement]:
        self._reader.renew()
        refused = self._unavailable(error)
        said = str(refused.evidence.get("detail", refused))
        return [partial(self._desk.refused, "get", entity, said), partial(self._desk.read, job, refused)]

    def finish(self) -> None:
        """Let go of the database."""
        self._reader.close()
        self._deliver([self._desk.closed])
