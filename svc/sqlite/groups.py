"""
Makes recorded operations durable in groups; the reactor's side of the thread that writes.

What one round of the reactor records is one group. While the thread writes it, the next group grows. A callback is
called when all that was recorded before it was registered is durable. A group that the database refuses is
kept and tried again, so that nothing is lost that was acknowledged, and nothing acknowledged that could be lost. What
operations mean is not considered here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from svc.errors import SvcError
from svc.sqlite.errors import JournalError, JournalStuck
from svc.sqlite.kind import DatabaseObserver, SilentDatabaseObserver
from svc.sqlite.operations import Operation, OperationWriter, Parameters, Task, TaskResult
from svc.sqlite.threads import COMMIT_SECONDS, BoundedClose, JobThread, StartThread, ThreadReactor

#: What an operation writes beside the octets of a message, roughly.
ROW: Final = 128


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """
    How much may wait, and for how long.

    Args:
        operations: that wait before nothing new is accepted: a disk that stalls for seconds is tolerated, one that
            stalls longer does not fill the memory.
        octets: of operations that wait before nothing new is accepted.
        retry: seconds between attempts to write again.
        late: seconds that a group may take before nothing new is accepted, and that the close may take.
    """

    operations: int = 100_000
    octets: int = 64 * 1024 * 1024
    retry: float = 1.0
    late: float = COMMIT_SECONDS


class GroupObserver(DatabaseObserver, Protocol):
    """Receives reports on the database, on the reactor's thread."""

    def db_error(self, op: Literal["put", "init", "close"], detail: str = "") -> None:
        """The database refused an operation; ``detail`` is its explanation for operators."""

    def accepting_changed(self, trouble: SvcError | None) -> None:
        """Nothing new is accepted because of ``trouble``, or changes are accepted again."""

    def left_behind(self, operations: int, octets: int) -> None:
        """The database is closed, and so much is not known to be durable; none of it was acknowledged."""


class SilentGroupObserver(SilentDatabaseObserver):
    """A :class:`GroupObserver` that does nothing."""

    def db_error(self, op: Literal["put", "init", "close"], detail: str = "") -> None: ...

    def accepting_changed(self, trouble: SvcError | None) -> None: ...

    def left_behind(self, operations: int, octets: int) -> None: ...


class _Group:
    """Operations that become durable together, and the callbacks that wait for them."""

    __slots__ = ("operations", "then", "weight")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.weight = 0
        self.then: deque[Callable[[], None]] = deque()


class Groups:
    """
    The groups of one database.

    ``words`` are those by which errors name it.
    """

    log = Logger()

    def __init__(
        self,
        path: str,
        writer: OperationWriter,
        *,
        thread_name: str,
        words: dict[str, str],
        reactor: ThreadReactor,
        observer: GroupObserver,
        limits: GroupLimits,
        start_thread: StartThread,
    ) -> None:
        self.path: Final = path
        #: Whether new changes are accepted, and why not.
        self.accepting = False
        self.trouble: SvcError | None = None
        self._writer = writer
        self._thread_name = thread_name
        self._words = words
        self._reactor = reactor
        self._observer = observer
        self._limits = limits
        self._start_thread = start_thread
        self._thread: JobThread[Task] | None = None
        self._closing = BoundedClose(reactor, limits.late, self._stuck)
        # The group that grows, the one that is being written, and the callbacks of the one before it.
        self._growing = _Group()
        self._current: _Group | None = None
        self._calling: deque[Callable[[], None]] = deque()
        self._room = (limits.operations, limits.octets)
        # The thread has one task at a time: its result is that of the current group.
        self._working = False
        self._since = 0.0
        self._degraded = False
        self._damaged = False
        self._detail = ""
        # Operations and octets of the growing group that the task of :meth:`close` contains.
        self._at_close = (0, 0)
        self._round: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        # Whether the next task tests first if writing is possible again, however busy the thread is.
        self._retry_due = False
        self._watch: IDelayedCall | None = None

    def start(self, detail: str = "") -> None:
        """Start the thread; what was recorded before is the first group, ``detail`` why the writer is degraded."""
        self._degraded, self._detail = self._writer.degraded, detail
        self._thread = self._start_thread(self._thread_name, self._work, self._close_writer)
        if self._growing.operations:
            self._round = self._reactor.callLater(0, self._round_over)
        self._update_accepting()
        if self._degraded:
            self._schedule_retry()

    def record(self, kind: int, parameters: Parameters, octets: int = 0) -> None:
        """Add an operation to the growing group; ``octets`` is the size of what it writes beside plain values."""
        group = self._growing
        operations = group.operations
        if not operations and self._round is None and self._thread is not None:
            self._round = self._reactor.callLater(0, self._round_over)
        operations.append((kind, parameters))
        group.weight += ROW + octets
        if self.accepting and (len(operations) >= self._room[0] or group.weight >= self._room[1]):
            self._update_accepting()

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call when all that was recorded so far is durable, at once where it is, and in the order of the calls."""
        if self._growing.operations:
            self._growing.then.append(then)
        elif self._current is not None:
            self._current.then.append(then)
        elif self._calling:
            self._calling.append(then)
        else:
            then()

    def mark_damaged(self) -> None:
        """Accept nothing more, since a reader found the database damaged."""
        self._writer.mark_damaged()
        self._degraded = True
        self._report_damage(True)
        self._update_accepting()

    @property
    def waiting(self) -> tuple[int, int]:
        """Operations and octets that are not durable yet."""
        operations, octets = len(self._growing.operations), self._growing.weight
        if self._current is not None:
            operations, octets = operations + len(self._current.operations), octets + self._current.weight
        return operations, octets

    def close(self) -> Deferred[None]:
        """
        Make durable what waits, where that is possible, and close the database.

        Returns:
            Fires when it is closed; callbacks that still wait are not called. Where the disk hangs it fails
            with JournalStuck after ``limits.late`` seconds; the thread ends with the process then.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return succeed(None)
        self.accepting = False
        for call in (self._round, self._retry, self._watch):
            if call is not None and call.active():
                call.cancel()
        # The current group may be written twice, which changes nothing; what follows depends on it, so it comes first.
        groups = [each for each in (self._current, self._growing) if each is not None]
        operations = [operation for group in groups for operation in group.operations]
        if operations:
            weight = sum(each.weight for each in groups)
            thread.submit(Task(operations, weight, self._degraded, repeated=self._current is not None))
        self._at_close = (len(self._growing.operations), self._growing.weight)
        closed = self._closing.begin()
        thread.stop()
        return closed

    # One group after the other.

    def _round_over(self) -> None:
        self._round = None
        if not self._working and self._current is None:
            self._begin_group()

    def _begin_group(self) -> None:
        if self._growing.operations:
            self._current, self._growing = self._growing, _Group()
            self._submit()
        operations, octets = (0, 0) if self._current is None else (len(self._current.operations), self._current.weight)
        self._room = (self._limits.operations - operations, self._limits.octets - octets)

    def _submit(self) -> None:
        if self._thread is None:
            return
        group = self._current
        recover, self._retry_due = self._retry_due, False
        self._working = True
        self._since = self._reactor.seconds()
        if self._watch is None:
            self._watch = self._reactor.callLater(self._limits.late, self._check_late)
        self._thread.submit(Task([], 0, recover) if group is None else Task(group.operations, group.weight, recover))

    def _task_done(self, result: TaskResult) -> None:
        """Process the result of the task that the thread was given."""
        if self._thread is None:
            self._done_while_closing(result.stored)
            return
        self._working = False
        for detail in result.refusals:
            self._detail = detail
            self._observer.db_error("put", detail)
        self._degraded = result.degraded
        self._retry_due = self._retry_due and self._degraded
        self._report_damage(result.damaged)
        group = self._current
        if group is not None and result.stored:
            self._current = None
            self._calling.extend(group.then)
            self._observer.committed(len(group.operations), self._reactor.seconds() - self._since)
        if self._current is None:
            # First, so that the thread works while the callbacks are called.
            self._begin_group()
        if self._retry_due and not self._working:
            self._submit()
        self._update_accepting()
        if self._degraded:
            self._schedule_retry()
        self._call()

    def _done_while_closing(self, stored: bool) -> None:
        """Drop what is durable: the task that ran when the close began was of one group, the last one is of all."""
        if stored:
            self._current = None
            if not self._working:
                operations, weight = self._at_close
                del self._growing.operations[:operations]
                self._growing.weight -= weight
        self._working = False

    def _call(self) -> None:
        calling = self._calling
        while calling:
            # Removed after its call, so that a callback that is registered meanwhile comes behind it.
            try:
                calling[0]()
            except Exception:  # noqa: BLE001 (a defect of one connection must not concern the others)
                self.log.failure("a callback that waited for the database failed")
            calling.popleft()

    # Whether new changes are accepted.

    def _update_accepting(self) -> None:
        """Decide whether new changes are accepted."""
        before, trouble = self.trouble, self._found_trouble()
        changed = self.accepting is not (trouble is None) or _reason(trouble) != _reason(before)
        self.trouble, self.accepting = trouble, trouble is None
        if changed:
            self._observer.accepting_changed(trouble)

    def _found_trouble(self) -> SvcError | None:
        if self._damaged:
            return JournalError("store_corrupt", path=self.path, **self._words)
        if self._degraded:
            return JournalError(path=self.path, detail=self._detail, **self._words)
        limits = self._limits
        if self._working and self._reactor.seconds() - self._since >= limits.late:
            return JournalError("mqtt_store_late", path=self.path, seconds=limits.late, **self._words)
        # Half of it must be durable before changes are accepted again, so that this does not change with each message.
        part = 1 if self.accepting or self.trouble is None else 2
        operations, octets = self.waiting
        if operations * part >= limits.operations:
            return JournalError(
                "mqtt_store_busy", path=self.path, limit=limits.operations, unit="operations", **self._words
            )
        if octets * part >= limits.octets:
            return JournalError("mqtt_store_busy", path=self.path, limit=limits.octets, unit="octets", **self._words)
        return None

    def _report_damage(self, damaged: bool) -> None:
        if damaged and not self._damaged:
            self._damaged = True
            self._observer.damaged(self.path)

    def _check_late(self) -> None:
        self._watch = None
        if self._working:
            left = self._limits.late - (self._reactor.seconds() - self._since)
            self._watch = self._reactor.callLater(left if left > 0 else self._limits.late, self._check_late)
        self._update_accepting()

    def _schedule_retry(self) -> None:
        if self._retry is None:
            self._retry = self._reactor.callLater(self._limits.retry, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._retry_due = self._degraded
        if self._retry_due and not self._working:
            self._submit()

    # On the writer's thread.

    def _work(self, tasks: Sequence[Task]) -> None:
        writer = self._writer
        for task in tasks:
            try:
                result = writer.do(task)
            except Exception as error:  # noqa: BLE001 (a defect must not end the thread)
                writer.degraded = True
                result = TaskResult(False, True, writer.damaged, (type(error).__name__,))
            self._reactor.callFromThread(self._task_done, result)
            if writer.checkpoint_if_due():
                self._reactor.callFromThread(self._checkpoint_refused, writer.damaged, writer.trouble)

    def _checkpoint_refused(self, damaged: bool, trouble: str) -> None:
        if self._thread is None:
            return
        self._degraded, self._detail = True, f"the log could not be copied into the database: {trouble}"
        self._observer.db_error("put", self._detail)
        self._report_damage(damaged)
        self._update_accepting()
        self._schedule_retry()

    def _close_writer(self) -> None:
        self._reactor.callFromThread(self._closed, self._writer.close())

    def _closed(self, refused: bool) -> None:
        if not self._closing.waiting:
            return
        if refused:
            self._observer.db_error("close")
        self._report_left_behind()
        self._closing.finish()

    def _stuck(self) -> SvcError:
        stuck = JournalStuck(path=self.path, seconds=self._limits.late, **self._words)
        self._observer.db_error("close", str(stuck))
        self._report_left_behind()
        return stuck

    def _report_left_behind(self) -> None:
        operations, octets = self.waiting
        if operations:
            self._observer.left_behind(operations, octets)


def _reason(trouble: SvcError | None) -> str:
    return "" if trouble is None else trouble.reason
