"""
What was recorded becomes durable in groups; the reactor's side of the thread that writes.

Owns the groups: what one round of the reactor records is handed over as one, while the thread works the next group
grows, and whoever waits is called when the group is durable that holds what was recorded before it asked. A group that
the database refuses is kept and tried again, so nothing that was acknowledged is lost and nothing is acknowledged that
could be. Must not know what operations mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from svc.broker.persistence.errors import (
    PersistenceBusy,
    PersistenceDamaged,
    PersistenceLate,
    PersistenceStuck,
    PersistenceUnavailable,
)
from svc.broker.persistence.operations import Kind, Operation, Parameters
from svc.broker.persistence.writer import Outcome, Task
from svc.store.ending import BoundedEnd
from svc.store.errors import StoreError
from svc.store.interface import Entity, SilentStoreObserver, StoreObserver
from svc.store.lanes import Lane
from svc.store.threaded import COMMIT_SECONDS, LaneMaker, StoreReactor

#: What an operation writes beside the octets of a message, roughly.
ROW: Final = 128


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """
    How much may wait, and for how long.

    Args:
        operations: that wait before nothing new is taken: a disk that stands still for seconds is carried, one that
            stands still for longer does not fill the memory.
        octets: of operations that wait before nothing new is taken.
        retry: seconds between attempts to write again.
        late: seconds that a group may take before nothing new is taken, and that the end may take.
    """

    operations: int = 100_000
    octets: int = 64 * 1024 * 1024
    retry: float = 1.0
    late: float = COMMIT_SECONDS


class JournalObserver(StoreObserver, Protocol):
    """Who wants to know how the database is; called on the reactor's thread."""

    def accepting_changed(self, trouble: StoreError | None) -> None:
        """Nothing new is taken because of ``trouble``, or something is taken again."""

    def left_behind(self, operations: int, octets: int) -> None:
        """The end has come, and so much of what was recorded is not known to be durable; none was acknowledged."""


class SilentJournalObserver(SilentStoreObserver):
    """A :class:`JournalObserver` that does nothing."""

    def accepting_changed(self, trouble: StoreError | None) -> None:
        """Do nothing."""

    def left_behind(self, operations: int, octets: int) -> None:
        """Do nothing."""


class GroupWriter(Protocol):
    """Makes groups durable; everything blocks and runs in the thread."""

    degraded: bool
    damaged: bool

    def do(self, task: Task) -> Outcome:
        """Make a group durable, or say that it is not."""

    def checkpoint_if_due(self) -> Entity | None:
        """Tidy up while nobody waits; gives what the database refused, or None."""

    def close(self) -> Entity | None:
        """Let go of the database; gives what it refused, or None."""


class _Group:
    """Operations that become durable together, and who waits for them."""

    __slots__ = ("operations", "then", "weight")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.weight = 0
        self.then: deque[Callable[[], None]] = deque()


class Groups:
    """
    The groups of one database.

    Args:
        path: of the database, for errors.
        writer: makes them durable.
        reactor: ends rounds, takes results from the thread, measures times.
        observer: told how the database is.
        limits: how much may wait, and for how long.
        lanes: starts the thread.

    Attributes:
        accepting: whether something new is taken.
        trouble: why not.
    """

    log = Logger()

    def __init__(
        self,
        path: str,
        writer: GroupWriter,
        *,
        reactor: StoreReactor,
        observer: JournalObserver,
        limits: GroupLimits,
        lanes: LaneMaker,
    ) -> None:
        self.path: Final = path
        self.accepting = False
        self.trouble: StoreError | None = None
        self._writer = writer
        self._reactor = reactor
        self._observer = observer
        self._limits = limits
        self._make_lane = lanes
        self._lane: Lane[Task] | None = None
        self._ending = BoundedEnd(reactor, limits.late, self._stuck)
        # The group that grows, the one that is not durable yet, and those who are being called.
        self._growing = _Group()
        self._current: _Group | None = None
        self._calling: deque[Callable[[], None]] = deque()
        self._room = (limits.operations, limits.octets)
        # The thread has one task at a time: what it says is about the current group.
        self._working = False
        self._since = 0.0
        self._degraded = False
        self._damaged = False
        self._detail = ""
        self._round: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._watch: IDelayedCall | None = None

    def start(self, detail: str = "") -> None:
        """
        Start the thread. What was recorded before is the first group.

        Args:
            detail: why the writer is degraded from the beginning, where it is.
        """
        self._degraded, self._detail = self._writer.degraded, detail
        self._lane = self._make_lane("svc-broker-store", self._work, self._end)
        if self._growing.operations:
            self._round = self._reactor.callLater(0, self._round_over)
        self._judge()
        if self._degraded:
            self._schedule_retry()

    def record(self, kind: Kind, parameters: Parameters, octets: int = 0) -> None:
        """
        Add an operation to the group that grows.

        Args:
            kind: what it does.
            parameters: with what.
            octets: of the message that it writes.
        """
        group = self._growing
        operations = group.operations
        if not operations and self._round is None and self._lane is not None:
            self._round = self._reactor.callLater(0, self._round_over)
        operations.append((kind, parameters))
        group.weight += ROW + octets
        if self.accepting and (len(operations) >= self._room[0] or group.weight >= self._room[1]):
            self._judge()

    def when_durable(self, then: Callable[[], None]) -> None:
        """
        Call when all that was recorded so far is durable; at once where nothing waits, and in the order of the calls.

        Args:
            then: what to call.
        """
        if self._growing.operations:
            self._growing.then.append(then)
        elif self._current is not None:
            self._current.then.append(then)
        elif self._calling:
            self._calling.append(then)
        else:
            then()

    @property
    def waiting(self) -> tuple[int, int]:
        """Operations and octets that are not durable yet."""
        operations, octets = len(self._growing.operations), self._growing.weight
        if self._current is not None:
            operations, octets = operations + len(self._current.operations), octets + self._current.weight
        return operations, octets

    def close(self) -> Deferred[None]:
        """
        Make durable what waits, where that is possible, and let go of the database.

        Returns:
            Fires when it is closed. Whoever still waits is not called any more. Where the disk hangs it fails with
            PersistenceStuck after ``limits.late`` seconds; the thread ends with the process then.
        """
        lane, self._lane = self._lane, None
        if lane is None:
            return succeed(None)
        self.accepting = False
        for call in (self._round, self._retry, self._watch):
            if call is not None and call.active():
                call.cancel()
        # The thread may be told of a group twice: written again it is the same, left out it would miss in what follows.
        groups = [each for each in (self._current, self._growing) if each is not None]
        operations = [operation for group in groups for operation in group.operations]
        if operations:
            weight = sum(each.weight for each in groups)
            lane.submit(Task(operations, weight, self._degraded, repeated=self._current is not None))
        ended = self._ending.begin()
        lane.stop()
        return ended

    # One group after the other.

    def _round_over(self) -> None:
        self._round = None
        if not self._working and self._current is None:
            self._begin_group()

    def _begin_group(self) -> None:
        if self._growing.operations:
            self._current, self._growing = self._growing, _Group()
            self._submit(recover=False)
        operations, octets = (0, 0) if self._current is None else (len(self._current.operations), self._current.weight)
        self._room = (self._limits.operations - operations, self._limits.octets - octets)

    def _submit(self, *, recover: bool) -> None:
        if self._lane is None:
            return
        group = self._current
        self._working = True
        self._since = self._reactor.seconds()
        if self._watch is None:
            self._watch = self._reactor.callLater(self._limits.late, self._judge_lateness)
        self._lane.submit(Task([], 0, recover) if group is None else Task(group.operations, group.weight, recover))

    def _settled(self, outcome: Outcome) -> None:
        """Take what the thread says of the task that it was given."""
        if self._lane is None:
            self._settled_at_the_end(outcome.stored)
            return
        self._working = False
        for detail in outcome.refusals:
            self._detail = detail
            self._observer.db_error("put", "db", detail)
        self._degraded = outcome.degraded
        self._met_damage(outcome.damaged)
        group = self._current
        if group is not None and outcome.stored:
            self._current = None
            self._calling.extend(group.then)
            self._observer.committed(len(group.operations), self._reactor.seconds() - self._since)
        if self._current is None:
            # First, so that the thread works while those who waited are called.
            self._begin_group()
        self._judge()
        if self._degraded:
            self._schedule_retry()
        self._call()

    def _settled_at_the_end(self, stored: bool) -> None:
        """Count what is safe: the task that ran when the end began was of one group, the last one is of all."""
        if stored:
            self._current = None
            if not self._working:
                self._growing = _Group()
        self._working = False

    def _call(self) -> None:
        calling = self._calling
        while calling:
            # It is taken off when it has been called, so that whoever asks meanwhile comes behind it.
            try:
                calling[0]()
            except Exception:  # noqa: BLE001 (whatever one connection does wrong, the others are to be told)
                self.log.failure("what waited for the database could not be done")
            calling.popleft()

    # Trouble.

    def _judge(self) -> None:
        """Decide whether something new is taken."""
        before, trouble = self.trouble, self._found_trouble()
        changed = type(trouble) is not type(before) or self.accepting is not (trouble is None)
        self.trouble, self.accepting = trouble, trouble is None
        if changed:
            self._observer.accepting_changed(trouble)

    def _found_trouble(self) -> StoreError | None:
        if self._damaged:
            return PersistenceDamaged(path=self.path)
        if self._degraded:
            return PersistenceUnavailable(path=self.path, detail=self._detail)
        limits = self._limits
        if self._working and self._reactor.seconds() - self._since >= limits.late:
            return PersistenceLate(seconds=limits.late)
        # Half of it must be gone before something is taken again, so that it does not come and go with each message.
        part = 1 if self.accepting or self.trouble is None else 2
        operations, octets = self.waiting
        if operations * part >= limits.operations:
            return PersistenceBusy(limit=limits.operations, unit="operations")
        if octets * part >= limits.octets:
            return PersistenceBusy(limit=limits.octets, unit="octets")
        return None

    def _met_damage(self, damaged: bool) -> None:
        if damaged and not self._damaged:
            self._damaged = True
            self._observer.damaged(self.path)

    def _judge_lateness(self) -> None:
        self._watch = None
        if self._working:
            left = self._limits.late - (self._reactor.seconds() - self._since)
            self._watch = self._reactor.callLater(left if left > 0 else self._limits.late, self._judge_lateness)
        self._judge()

    def _schedule_retry(self) -> None:
        if self._retry is None:
            self._retry = self._reactor.callLater(self._limits.retry, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._working:
            self._schedule_retry()
        else:
            self._submit(recover=True)

    # In the thread.

    def _work(self, tasks: Sequence[Task]) -> None:
        writer = self._writer
        for task in tasks:
            try:
                outcome = writer.do(task)
            except Exception as error:  # noqa: BLE001 (a defect must not end the thread while others wait for it)
                writer.degraded = True
                outcome = Outcome(False, True, writer.damaged, (type(error).__name__,))
            self._reactor.callFromThread(self._settled, outcome)
            if writer.checkpoint_if_due() is not None:
                self._reactor.callFromThread(self._checkpoint_refused, writer.damaged)

    def _checkpoint_refused(self, damaged: bool) -> None:
        if self._lane is None:
            return
        self._degraded, self._detail = True, "the log could not be copied into the database"
        self._observer.db_error("put", "db", self._detail)
        self._met_damage(damaged)
        self._judge()
        self._schedule_retry()

    def _end(self) -> None:
        refused = self._writer.close()
        self._reactor.callFromThread(self._ended, refused is not None)

    def _ended(self, refused: bool) -> None:
        if not self._ending.awaited:
            return
        if refused:
            self._observer.db_error("close", "db")
        self._tell_what_is_left()
        self._ending.come()

    def _stuck(self) -> StoreError:
        """Wait no more for a thread that does not end."""
        stuck = PersistenceStuck(path=self.path, seconds=self._limits.late)
        self._observer.db_error("close", "db", str(stuck))
        self._tell_what_is_left()
        return stuck

    def _tell_what_is_left(self) -> None:
        operations, octets = self.waiting
        if operations:
            self._observer.left_behind(operations, octets)
