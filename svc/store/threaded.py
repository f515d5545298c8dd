"""
A notary store whose database works in two threads: one commits records in groups, the other reads.

Owns the bound on what may wait, late commits, recovery, and the order of calls back on the reactor's thread: all of a
group are made at once, and the state of the store changes before its records are answered. A subclass opens the
database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Required, TypedDict, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer

from svc.errors import SvcError
from svc.sqlite.kind import Operation
from svc.sqlite.threads import COMMIT_SECONDS, GROUP_LIMIT, BoundedClose, JobThread, StartThread, ThreadReactor
from svc.store.backend import RecordReader, RecordWriter, Refused
from svc.store.errors import SearchesBusy, StoreBusy, StoreClosed, StoreError, StoreLate, StoreStuck
from svc.store.interface import CompleteDrafts, Entity, INotaryStore, SilentStoreObserver, StoreObserver
from svc.store.records import FoundReceipts, ReceiptQuery, StatementRecord, StoredReceipt
from svc.store.rows import Row, StatementRow
from svc.store.search import Search
from svc.store.usage import StoreUsage

#: Reads that may wait.
READ_LIMIT: Final = 1024
#: Searches that may wait for the one that is carried out.
SEARCH_LIMIT: Final = 64
RETRY_SECONDS: Final = 1.0
#: Records that are handed over without waiting for more, and the seconds that the first of them waits at most.
_GATHERED: Final = 64
_GATHER_SECONDS: Final = 0.002

T = TypeVar("T")
#: Made on the reactor's thread.
Call = Callable[[], object]


@dataclass(eq=False, slots=True)
class _Put:
    """
    A record to be stored; ``answered`` means that it was stored or has failed, ``cancelled`` that it is wanted no more.
    Both are set on the reactor's thread, ``attempted`` and ``stored`` on the writer's.
    """

    #: None for a draft that is not completed.
    row: Row | None
    done: Deferred[Any]
    draft: Any = None
    complete: CompleteDrafts | None = None
    answered: bool = False
    cancelled: bool = False
    #: As for :meth:`svc.store.interface.INotaryStore.cancel`.
    shared: bool = False
    attempted: bool = False
    #: Whether it is stored; None while that is not known.
    stored: bool | None = None


@dataclass(eq=False, slots=True)
class _Discard:
    """A cancelled record, to be deleted where it was stored."""

    put: _Put


@dataclass(eq=False)
class _Prune:
    """Old records to be deleted, one slice in each group."""

    before: int
    done: Deferred[int]
    deleted: int = 0


#: A record, or other work, which returns the calls that report its result.
_WriteJob = _Put | _Discard | Callable[[], list[Call]]


@dataclass(eq=False)
class _Read:
    """Something to be read; ``entity`` is what it is, should the database refuse."""

    read: Callable[[RecordReader], Any]
    entity: Entity
    done: Deferred[Any]


class StoreOptions(TypedDict, total=False):
    """The arguments of :class:`ThreadedStore`, for its subclasses."""

    reactor: Required[ThreadReactor]
    observer: StoreObserver | None
    read_limit: int
    retry_interval: float
    commit_timeout: float
    start_thread: StartThread
    at_turn_end: Callable[[Call], object]


def _make_call(call: Call) -> object:
    return call()


@implementer(INotaryStore)
class ThreadedStore(ABC):
    """
    Stores statements and receipts.

    Args:
        reactor: makes calls for the threads and runs the timers.
        observer: receives reports of errors, commits and changes of :attr:`writable`.
        read_limit: reads that may wait before StoreBusy, without those of admissions.
        retry_interval: seconds between attempts to become writable again.
        commit_timeout: seconds that a record may wait for its commit before StoreLate, and closing may take before
            StoreStuck.
        start_thread: starts the threads.
        at_turn_end: makes a call when the reactor has handled what was ready, or at once. All records of one turn are
            then handed over together, and those of the next turns with them while each brings more: a writer that is
            woken earlier competes with the reactor for the interpreter lock, for a few records.
    """

    #: What a read raises where the database refuses.
    read_errors: tuple[type[Exception], ...] = ()

    _writer: RecordWriter
    _reader: RecordReader

    def __init__(
        self,
        *,
        reactor: ThreadReactor,
        observer: StoreObserver | None = None,
        read_limit: int = READ_LIMIT,
        retry_interval: float = RETRY_SECONDS,
        commit_timeout: float = COMMIT_SECONDS,
        start_thread: StartThread = JobThread,
        at_turn_end: Callable[[Call], object] = _make_call,
    ) -> None:
        self.writable = False
        self.trouble = ""
        self._reactor = reactor
        self._observer = observer if observer is not None else SilentStoreObserver()
        self._read_limit = read_limit
        self._retry_interval = retry_interval
        self._commit_timeout = commit_timeout
        self._start_thread = start_thread
        self._at_turn_end = at_turn_end
        self._outgoing: list[_Put] = []
        #: How many were outgoing at the end of the turn before, and since when the first one is; how many were handed
        #: over last.
        self._gathered = self._handed_over = 0
        self._gathering_since = 0.0
        self._write_thread: JobThread[_WriteJob] | None = None
        self._read_thread: JobThread[_Read] | None = None
        self._threads = 0
        self._waiting_writes = 0
        self._waiting_reads = 0
        self._searching = DeferredLock()
        self._retries = 0
        self._retry: IDelayedCall | None = None
        #: When each group that was handed over together counts as late.
        self._deadlines: deque[tuple[float, list[_Put]]] = deque()
        self._late_timer: IDelayedCall | None = None
        self._closing = BoundedClose(reactor, commit_timeout, self._stuck)
        # Used on the writer's thread alone.
        self._pruning: list[_Prune] = []
        self._undecided: list[_Put] = []
        self._discards: list[_Put] = []

    @abstractmethod
    def _open(self) -> tuple[RecordWriter, RecordReader]:
        """Open the database; raises SvcError."""

    @abstractmethod
    def _unavailable(self, error: Exception) -> StoreError:
        """The error for callers in place of what the database raised; called on both threads."""

    def _start_writer(self) -> JobThread[_WriteJob]:
        return self._start_thread("svc-store-writer", self._write, self._close_writer)

    def _retry_delay(self, attempt: int) -> float:
        """Seconds until the next attempt to become writable again; the first is number 0."""
        return self._retry_interval

    def init(self) -> None:
        try:
            writer, self._reader = self._open()
        except (SvcError, OSError) as error:
            self._observer.db_error("init", "db", str(error))
            raise
        self._writer = writer
        self._threads = 2
        self._write_thread = self._start_writer()
        self._read_thread = self._start_thread("svc-store-reader", self._read, self._close_reader)
        if writer.degraded:
            # It was not writable before either, so that no change would be reported.
            self._observer.writable_changed(False, writer.trouble)
        self._set_writable(not writer.degraded, writer.trouble)

    def put_statement(self, statement: StatementRecord) -> Deferred[None]:
        expires = int(statement.expires.timestamp())
        return self._submit(_Put(StatementRow(statement.id, expires, statement.envelope.serialize()), Deferred()))

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        return self._submit(_Put(receipt, Deferred()))

    def put_draft(self, draft: Any, complete: CompleteDrafts) -> Deferred[StoredReceipt]:
        return self._submit(_Put(None, Deferred(), draft, complete))

    def cancel(self, late: StoreLate, *, shared: bool = False) -> None:
        put = late.record
        if isinstance(put, _Put):
            put.cancelled, put.shared = True, shared
            if self._write_thread is not None:
                self._write_thread.submit(_Discard(put))

    def get_statement(self, statement_id: str) -> Deferred[bytes | None]:
        return self._get(lambda reader: reader.get_statement(statement_id), "workload_statement")

    def get_receipt(self, receipt_id: str) -> Deferred[StoredReceipt | None]:
        return self._get(lambda reader: reader.get_receipt(receipt_id))

    def get_by_request(self, client: str, key: str) -> Deferred[StoredReceipt | None]:
        return self._get(lambda reader: reader.get_by_request(client, key))

    def find(self, query: ReceiptQuery) -> Deferred[FoundReceipts]:
        if len(self._searching.waiting) >= SEARCH_LIMIT:
            return fail(SearchesBusy(limit=SEARCH_LIMIT))
        return self._searching.run(lambda: Deferred.fromCoroutine(self._find(Search(query))))

    def nonce_known(self, client: str, nonce: str) -> Deferred[bool]:
        return self._get(lambda reader: reader.nonce_known(client, nonce))

    def reserve(self, client: str, nonce: str) -> Deferred[bool]:
        return self._submit_read(lambda reader: reader.reserve(client, nonce))

    def give_back(self, client: str, nonce: str) -> Deferred[None]:
        return self._submit_read(lambda reader: reader.give_back(client, nonce))

    def reserved(self, client: str, nonce: str) -> Deferred[bool]:
        return self._get(lambda reader: reader.reserved(client, nonce))

    def prune(self, before: int) -> Deferred[int]:
        if self._write_thread is None:
            return fail(StoreClosed())
        job = _Prune(before, Deferred())
        self._write_thread.submit(partial(self._prune, job))
        return job.done

    def measure(self) -> Deferred[StoreUsage]:
        return self._get(lambda reader: reader.usage(), "db")

    def close(self) -> Deferred[None]:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._hand_over()
        write_thread, self._write_thread = self._write_thread, None
        read_thread, self._read_thread = self._read_thread, None
        if write_thread is None or read_thread is None:
            return succeed(None)
        closed = self._closing.begin()
        # The reader first: the last connection that is closed removes the log.
        read_thread.stop()
        write_thread.stop()
        return closed

    def _submit(self, put: _Put) -> Deferred[Any]:
        if self._write_thread is None:
            return fail(StoreClosed())
        self._waiting_writes += 1
        outgoing = self._outgoing
        outgoing.append(put)
        if len(outgoing) == 1:
            self._gathering_since = now = self._reactor.seconds()
            self._deadlines.append((now + self._commit_timeout, outgoing))
            self._update_late_timer()
            self._at_turn_end(self._turn_over)
        return put.done

    def _turn_over(self) -> None:
        """Hand over what is outgoing, unless it grows and is worth waiting for; one record alone never waits."""
        count = len(self._outgoing)
        grows = self._handed_over > 1 and self._gathered < count < _GATHERED
        if grows and self._reactor.seconds() - self._gathering_since < _GATHER_SECONDS:
            self._gathered = count
            self._at_turn_end(self._turn_over)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._gathered, self._handed_over = 0, len(outgoing)
        if self._write_thread is not None:
            for put in outgoing:
                self._write_thread.submit(put)

    def _get(self, read: Callable[[RecordReader], T], entity: Entity = "receipt") -> Deferred[T]:
        if self._waiting_reads >= self._read_limit:
            return fail(StoreBusy(limit=self._read_limit))
        return self._submit_read(read, entity)

    def _submit_read(self, read: Callable[[RecordReader], T], entity: Entity = "receipt") -> Deferred[T]:
        if self._read_thread is None:
            return fail(StoreClosed())
        self._waiting_reads += 1
        done: Deferred[T] = Deferred()
        self._read_thread.submit(_Read(read, entity, done))
        return done

    async def _find(self, search: Search) -> FoundReceipts:
        while search.rows:
            search.got(await self._get(lambda reader: reader.scan(search.query, search.rows)))
        return search.found

    # Late commits.

    def _update_late_timer(self) -> None:
        """Keep one timer, for a record that waits; it is not cancelled when that is answered, which costs more."""
        while self._deadlines and all(put.answered for put in self._deadlines[0][1]):
            self._deadlines.popleft()
        if self._deadlines and self._late_timer is None:
            delay = max(0.0, self._deadlines[0][0] - self._reactor.seconds())
            self._late_timer = self._reactor.callLater(delay, self._fail_late)

    def _fail_late(self) -> None:
        """Fail the records whose time is over; no new exchange should wait for what the writer waits for."""
        self._late_timer = None
        now = self._reactor.seconds()
        groups = (group for until, group in self._deadlines if until <= now)
        late = [put for group in groups for put in group if not put.answered]
        for put in late:
            put.answered = True
        if late:
            trouble = str(StoreLate(seconds=self._commit_timeout))
            self._observer.db_error("put", "db", trouble)
            self._set_writable(False, trouble)
        self._update_late_timer()
        for put in late:
            error = StoreLate(seconds=self._commit_timeout)
            error.record = put
            put.done.errback(error)

    def _stuck(self) -> StoreError:
        if self._late_timer is not None:
            self._late_timer.cancel()
            # Every record was put before the close began, so the time of each is over.
            self._fail_late()
        stuck = StoreStuck(seconds=self._commit_timeout)
        self._observer.db_error("close", "db", str(stuck))
        return stuck

    # Called on the reactor's thread for the threads.

    def _call(self, *calls: Call) -> None:
        """Make calls on the reactor's thread, in order and all at once."""
        self._reactor.callFromThread(_make_calls, calls)

    def _written(self, puts: Sequence[_Put], results: Sequence[Exception | None], seconds: float) -> None:
        self._waiting_writes -= len(puts)
        stored = sum(result is None for result in results)
        if stored:
            self._observer.committed(stored, seconds)
        waiting = [(put, result) for put, result in zip(puts, results, strict=True) if not put.answered]
        for put, _result in waiting:
            put.answered = True
        self._update_late_timer()
        for put, result in waiting:
            if result is None:
                put.done.callback(None if put.complete is None else put.row)
            else:
                put.done.errback(result)

    def _deliver(self, answer: Callable[[Any], None], result: object) -> None:
        self._waiting_reads -= 1
        answer(result)

    def _set_writable(self, writable: bool, trouble: str) -> None:
        writable = writable and self._write_thread is not None
        self.trouble = "" if writable else trouble or self.trouble
        if writable != self.writable:
            self.writable = writable
            self._observer.writable_changed(writable, self.trouble)
        if writable:
            self._retries = 0
        elif self._retry is None and self._write_thread is not None:
            delay = self._retry_delay(self._retries)
            self._retry = self._reactor.callLater(delay, self._try_again, self._write_thread)
            self._retries += 1

    def _try_again(self, thread: JobThread[_WriteJob]) -> None:
        self._retry = None
        thread.submit(self._recover)

    def _thread_ended(self) -> None:
        self._threads -= 1
        if self._threads > 0:
            return
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        if self._closing.waiting:
            self._set_writable(False, "")
            self._closing.finish()

    # On the writer's thread.

    def _write(self, jobs: Sequence[_WriteJob]) -> None:
        """Do a group of jobs: one commit for all records in it, after the deletion of those that are cancelled."""
        puts: list[_Put] = []
        cancelled: list[_Put] = []
        others: list[Callable[[], list[Call]]] = []
        for job in jobs:
            if isinstance(job, _Put):
                (cancelled if job.cancelled else puts).append(job)
            elif isinstance(job, _Discard):
                self._discards.append(job.put)
            else:
                others.append(job)
        calls = [self._abandoned(cancelled)] if cancelled else []
        calls += self._discard() if self._discards else []
        calls += self._complete(puts)
        complete = [put for put in puts if put.row is not None]
        calls += self._commit(complete) if complete else []
        # Before the store accepts anything again: a nonce may be used again at once.
        self._discards += [put for put in complete if put.cancelled]
        calls += self._discard() if self._discards else []
        for each in others:
            calls += each()
        # The state first, so that the store is not writable when the refusal of a record arrives.
        self._call(self._state(), *calls)
        # Only now: no record waits for a checkpoint.
        if self._writer.checkpoint_if_due():
            self._report_refused()

    def _report_refused(self) -> None:
        self._call(self._error("put", "db", self._writer.trouble), self._state())

    def _state(self) -> Call:
        return partial(self._set_writable, not self._writer.degraded, self._writer.trouble)

    def _error(self, op: Operation, entity: Entity, detail: str) -> Call:
        return partial(self._observer.db_error, op, entity, detail)

    def _complete(self, puts: Sequence[_Put]) -> list[Call]:
        """Make the records of drafts; those that cannot be made fail, and the others do not."""
        drafts: dict[CompleteDrafts, list[_Put]] = {}
        for put in puts:
            if put.complete is not None:
                drafts.setdefault(put.complete, []).append(put)
        failed: list[tuple[_Put, Exception]] = []
        for complete, waiting in drafts.items():
            try:
                made = complete([put.draft for put in waiting])
            except Exception as error:  # noqa: BLE001 (whatever happened belongs to those who gave the drafts)
                made = [error] * len(waiting)
            for put, record in zip(waiting, made, strict=True):
                if isinstance(record, Exception):
                    failed.append((put, record))
                else:
                    put.row = record
        if not failed:
            return []
        return [partial(self._written, [put for put, _error in failed], [error for _put, error in failed], 0.0)]

    def _commit(self, puts: Sequence[_Put]) -> list[Call]:
        began = self._reactor.seconds()
        for put in puts:
            put.attempted = True
        result = self._writer.commit([put.row for put in puts if put.row is not None])
        seconds = self._reactor.seconds() - began
        calls = [self._error("put", entity, result.detail) for entity in result.refused]
        if result.undecided:
            # Unknown whether stored: committed again when the database is back.
            self._undecided += puts
            return calls
        results: Sequence[Exception | None] = result.results
        if result.failure is not None:
            results = [self._unavailable(result.failure)] * len(puts)
        for put, refusal in zip(puts, results, strict=True):
            put.stored = refusal is None
        return [*calls, partial(self._written, puts, results, seconds)]

    def _discard(self) -> list[Call]:
        """Delete the cancelled records that are stored, or may be; tried again at the next recovery."""
        rows = [put.row for put in self._discards if _may_be_stored(put)]
        names = [row.id for row in rows if row is not None]
        try:
            if names:
                self._writer.discard(names)
        except Refused as refused:
            return [self._error("put", refused.entity, refused.detail)]
        self._discards.clear()
        return []

    def _prune(self, job: _Prune) -> list[Call]:
        if job in self._pruning:
            self._pruning.remove(job)
        try:
            deleted, more = self._writer.prune(job.before)
        except Refused as refused:
            error = self._unavailable(refused.error)
            return [self._error("put", refused.entity, refused.detail), partial(job.done.errback, error)]
        job.deleted += deleted
        if not more:
            return [partial(job.done.callback, job.deleted)]
        self._pruning.append(job)
        return [partial(self._prune_next_slice, job)]

    def _prune_next_slice(self, job: _Prune) -> None:
        """Queue the next slice, behind the records that were put meanwhile; on the reactor's thread."""
        if self._write_thread is not None:
            self._write_thread.submit(partial(self._prune, job))

    def _recover(self) -> list[Call]:
        calls: list[Call] = []
        recovered = False
        try:
            self._writer.recover()
            recovered = True
        except Refused as refused:
            calls.append(self._error("put", refused.entity, refused.detail))
        except OSError:
            # Still no room; the next attempt comes after the retry interval.
            pass
        # Records that were failed as late meanwhile are not committed again.
        late = [put for put in self._undecided if put.answered]
        self._undecided = [put for put in self._undecided if not put.answered]
        if late:
            calls.insert(0, self._abandoned(late))
        if recovered:
            calls += self._discard() if self._discards else []
            undecided, self._undecided = self._undecided, []
            for start in range(0, len(undecided), GROUP_LIMIT):
                calls += self._commit(undecided[start : start + GROUP_LIMIT])
        return calls

    def _abandoned(self, puts: Sequence[_Put]) -> Call:
        return partial(self._written, puts, [StoreClosed()] * len(puts), 0.0)

    def _close_writer(self) -> None:
        calls = self._recover() if self._undecided or self._discards else []
        if self._undecided:
            calls.append(self._abandoned(self._undecided))
        refused = self._writer.close()
        calls += [partial(job.done.errback, StoreClosed()) for job in self._pruning]
        if refused:
            calls.append(self._error("close", "db", self._writer.trouble))
        self._call(*calls, self._thread_ended)

    # On the reader's thread.

    def _read(self, jobs: Sequence[_Read]) -> None:
        # A row that was altered may be anything; reading it must not end the thread for all others.
        expected: tuple[type[Exception], ...] = (*self.read_errors, ValueError, LookupError, TypeError, OSError)
        calls: list[Call] = []
        for job in jobs:
            try:
                result = job.read(self._reader)
            except Refused as refused:
                calls += self._not_read(job, refused.entity, refused.error)
            except expected as error:
                calls += self._not_read(job, job.entity, error)
            else:
                calls.append(partial(self._deliver, job.done.callback, result))
        self._call(*calls)

    def _not_read(self, job: _Read, entity: Entity, error: Exception) -> list[Call]:
        self._reader.disconnect()
        refused = self._unavailable(error)
        detail = str(refused.evidence.get("detail", refused))
        return [self._error("get", entity, detail), partial(self._deliver, job.done.errback, refused)]

    def _close_reader(self) -> None:
        self._reader.disconnect()
        self._call(self._thread_ended)


def _may_be_stored(put: _Put) -> bool:
    return put.attempted and not put.shared if put.stored is None else put.stored


def _make_calls(calls: Sequence[Call]) -> None:
    for call in calls:
        call()
