"""
The buffer as the proxy uses it: the operations of one turn of the reactor are one hand-over and one transaction.

Changes are made at once and are durable later; whoever must not be early registers a callback with ``when_durable``.
A callback, not a Deferred for each message: one call serves a whole group. Owns the bounds on what is stored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, fail

from svc.errors import SvcError
from svc.process.clock import utc_now
from svc.proxy.mqtt.stored.buffer.errors import MessageBufferError
from svc.proxy.mqtt.stored.buffer.keys import BufferKeys, ContentUnreadable
from svc.proxy.mqtt.stored.buffer.limits import RESERVE_SIZE, BufferLimits
from svc.proxy.mqtt.stored.buffer.reader import BufferReader, load, load_dead_letters
from svc.proxy.mqtt.stored.buffer.records import (
    ROW,
    BufferedMessage,
    BufferedSession,
    BufferKind,
    DeadLetter,
    LoadedSession,
    ReadLetter,
    ReceivedId,
    RejectionCause,
    dead_letter_parameters,
    message_parameters,
    received_parameters,
    session_parameters,
)
from svc.proxy.mqtt.stored.buffer.schema import BUFFER
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from svc.proxy.mqtt.stored.buffer.writer import BufferWriter, encrypt_stored
from svc.sqlite import database
from svc.sqlite.connection import open_connection
from svc.sqlite.database import DatabaseFile
from svc.sqlite.disk import DAMAGED, primary_code
from svc.sqlite.errors import DatabaseCorrupt, DatabaseQuarantined, JournalError, JournalStuck
from svc.sqlite.groups import GroupLimits, GroupObserver, Groups, SilentGroupObserver
from svc.sqlite.kind import Connect
from svc.sqlite.threads import BoundedClose, JobThread, StartThread, ThreadReactor

#: Messages, and about how many octets of them, that are read together; a session has about twice as much in memory.
PAGE_MESSAGES: Final = 64
PAGE_OCTETS: Final = 128 * 1024

#: Jobs of the reading thread.
_Job = Callable[[], None]
_T = TypeVar("_T")


class _Content(NamedTuple):
    """The database at its opening."""

    writer: BufferWriter
    sessions: list[LoadedSession]
    dead_letters: dict[int, tuple[str, int]]


class MessageBuffer:
    """
    The messages of all clients.

    Args:
        path: of the database; its folder is created where it is absent.
        reactor: ends rounds, makes calls for the threads, measures times.
        keys: encrypt what is stored.
        encrypt_stored: whether what was stored without keys is encrypted at the opening, and not refused.
        observer: receives reports on the database.
        limits: how much is stored.
        group_limits: how much may wait for the disk, and for how long.
        reserve_size: octets kept back on the disk.
        connect: opens connections.
        start_thread: starts the threads.
        wall: returns the time that names a quarantined database.
    """

    def __init__(
        self,
        path: str,
        *,
        reactor: ThreadReactor,
        keys: BufferKeys | None = None,
        encrypt_stored: bool = False,
        observer: GroupObserver | None = None,
        limits: BufferLimits | None = None,
        group_limits: GroupLimits | None = None,
        reserve_size: int = RESERVE_SIZE,
        connect: Connect = open_connection,
        start_thread: StartThread = JobThread,
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        self.limits: Final = limits or BufferLimits()
        self._file = DatabaseFile(path, BUFFER, reserve_size=reserve_size, connect=connect)
        self._reactor = reactor
        self._keys = keys or BufferKeys()
        self._encrypt_stored = encrypt_stored
        self._observer = observer or SilentGroupObserver()
        self._group_limits = group_limits or GroupLimits()
        self._start_thread = start_thread
        self._wall = wall
        self._reader = BufferReader(path, connect, self._keys)
        self._read_thread: JobThread[_Job] | None = None
        self._closing = BoundedClose(reactor, self._group_limits.late, self._stuck)
        self._groups: Groups | None = None
        #: Who has how much.
        self.shares: Final = BufferShares(self.limits)
        #: Who holds each dead letter, and its size, by their numbers.
        self._dead_letters: dict[int, tuple[str, int]] = {}
        self._last_session = self._last_message = 0

    def open(self) -> Deferred[list[LoadedSession]]:
        """
        Open the database and read its sessions in a thread; called once, at the start.

        Returns:
            Fires with the sessions, those without messages too; changes are accepted from then on. Fails with a
            DatabaseError that names what is wrong and what to do.
        """
        opened: Deferred[list[LoadedSession]] = Deferred()
        self._read_thread = self._start_thread("svc-mqtt-buffer-reader", _work, self._reader_ended)
        self._read_thread.submit(lambda: self._open(opened))
        return opened

    def close(self) -> Deferred[None]:
        """Make durable what waits, where that is possible, and close; fails with JournalStuck if the disk hangs."""
        return Deferred.fromCoroutine(self._close())

    # What is stored.

    @property
    def accepting(self) -> bool:
        """Whether changes that create state are accepted; others are recorded all the same."""
        return self._groups is not None and self._groups.accepting

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call when all that was recorded so far is durable; in order, and not at all after the close."""
        if self._groups is not None:
            self._groups.when_durable(then)

    def session(self, session: BufferedSession) -> None:
        """A session is new, and gets its number, or it changed."""
        if not session.number:
            self._last_session += 1
            session.number = self._last_session
            self.shares.sessions.change(session.key.holder, 1)
        self._record(BufferKind.SESSION, session_parameters(session, encrypted=self._keys.current is not None), 4 * ROW)

    def forget(self, session: BufferedSession) -> None:
        """A session is over; it has no messages any more."""
        self.shares.sessions.change(session.key.holder, -1)
        self._record(BufferKind.SESSION_OVER, (session.number,))

    def store(self, session: BufferedSession, message: BufferedMessage) -> None:
        """A message is new, and gets its number."""
        self._last_message += 1
        message.number = self._last_message
        self.shares.messages.take(session.key.holder, message.size)
        self._record(BufferKind.MESSAGE, message_parameters(session.number, message), message.size)

    def changed(self, message: BufferedMessage) -> None:
        """A message has another state or upstream packet identifier, or was refused for the first time."""
        parameters = (message.number, int(message.state), message.upstream_id, message.refused)
        self._record(BufferKind.MESSAGE_CHANGED, parameters)

    def remove(self, session: BufferedSession, message: BufferedMessage) -> None:
        """The broker has a message, or never will."""
        self.shares.messages.take(session.key.holder, -message.size)
        self._record(BufferKind.MESSAGE_OVER, (message.number,))

    def received(self, session: BufferedSession, packet_id: int, received: ReceivedId) -> None:
        """A QoS 2 message of the client was received, or what is known of it changed."""
        self._record(BufferKind.RECEIVED, received_parameters(session.number, packet_id, received))

    def released(self, session: BufferedSession, packet_id: int) -> None:
        """The client released a QoS 2 message."""
        self._record(BufferKind.RELEASED, (session.number, packet_id))

    def all_released(self, session: BufferedSession) -> None:
        """The client began anew."""
        self._record(BufferKind.ALL_RELEASED, (session.number,))

    @property
    def dead_letters(self) -> Collection[int]:
        """The numbers of all dead letters."""
        return self._dead_letters.keys()

    def has_room(self, session: BufferedSession, message: BufferedMessage) -> bool:
        """Whether the message can become a dead letter; a single one can, however large."""
        return not self._dead_letters or self.shares.letter_fits(session.key, message.size)

    def dead_letter(
        self, session: BufferedSession, message: BufferedMessage, cause: RejectionCause, code: int, now: float
    ) -> None:
        """A message, which is removed in the same turn, is a dead letter from now on."""
        letter = DeadLetter(session.key, session.connect, session.incomplete, message, now, cause, code)
        self._dead_letters[message.number] = (session.key.holder, message.size)
        self.shares.change_letters(session.key.holder, 1, message.size)
        parameters = dead_letter_parameters(letter, encrypted=self._keys.current is not None)
        self._record(BufferKind.DEAD_LETTER, parameters, message.size)

    def dead_letter_over(self, number: int) -> None:
        """A dead letter is sent after all, or nobody wants it."""
        holder, octets = self._dead_letters.pop(number)
        self.shares.change_letters(holder, -1, -octets)
        self._record(BufferKind.DEAD_LETTER_OVER, (number,))

    def wanted_dead_letters(self, after: int) -> Deferred[list[ReadLetter]]:
        """Read the next of those with which an operator wants something done; fails with a JournalError."""
        return self._read(lambda: self._reader.wanted(after, PAGE_MESSAGES), "dead letters")

    def page(
        self, session: BufferedSession, after: int, messages: int = PAGE_MESSAGES, octets: int = PAGE_OCTETS
    ) -> Deferred[list[BufferedMessage]]:
        """Read the next durable messages behind the number ``after``; fails with a JournalError."""
        return self._read(
            lambda: self._reader.page(session.number, after, messages, octets), f"the client {session.key.client_id}"
        )

    def _read(self, read: Callable[[], _T], what: str) -> Deferred[_T]:
        thread = self._read_thread
        if thread is None:
            return fail(self._closed())
        result: Deferred[_T] = Deferred()
        thread.submit(lambda: self._read_to(result, read, what))
        return result

    def _record(
        self, kind: BufferKind, parameters: tuple[int | float | str | bytes | None, ...], octets: int = 0
    ) -> None:
        if self._groups is not None:
            self._groups.record(kind, parameters, octets)

    def _closed(self) -> JournalError:
        return JournalError(path=self._file.path, detail="it is closed", **BUFFER.words)

    # Opening and closing, on the reactor's thread.

    def _opened(self, opened: Deferred[list[LoadedSession]], result: _Content | Exception) -> None:
        if isinstance(result, DatabaseQuarantined):
            self._observer.set_aside(result.path, result.quarantined)
        if self._file.quarantined:
            self._observer.lies_aside(self._file.quarantined)
        if isinstance(result, Exception):
            self._observer.db_error("init", str(result))
            if self._read_thread is not None:
                self._read_thread.stop()
                self._read_thread = None
            opened.errback(result)
            return
        if self._read_thread is None:
            # It was closed meanwhile; this thread has ended its work.
            result.writer.close()
            opened.errback(self._closed())
            return
        self._begin(*result)
        opened.callback(result.sessions)

    def _begin(
        self, writer: BufferWriter, sessions: Sequence[LoadedSession], dead_letters: dict[int, tuple[str, int]]
    ) -> None:
        self._dead_letters = dead_letters
        for holder, octets in dead_letters.values():
            self.shares.change_letters(holder, 1, octets)
        self.shares.restore(sessions)
        self._last_session = max((each.session.number for each in sessions), default=0)
        # Numbers that are still referred to are not used again.
        referred = [received.number for each in sessions for received in each.received.values()]
        self._last_message = max(
            [0, *dead_letters, *referred, *(max(each.last, each.session.until) for each in sessions)]
        )
        self._groups = Groups(
            self._file.path,
            writer,
            thread_name="svc-mqtt-buffer-writer",
            words=BUFFER.words,
            reactor=self._reactor,
            observer=self._observer,
            limits=self._group_limits,
            start_thread=self._start_thread,
        )
        if writer.degraded:
            # What is stored can be forwarded; new messages wait until the disk has room for the reserve again.
            self._observer.db_error("init", writer.trouble)
        self._groups.start(writer.trouble)

    async def _close(self) -> None:
        thread, self._read_thread = self._read_thread, None
        if thread is None:
            return
        # The reader first: the last connection that is closed removes the log.
        closed = self._closing.begin()
        thread.stop()
        try:
            await closed
        finally:
            if self._groups is not None:
                await self._groups.close()

    def _stuck(self) -> SvcError:
        stuck = JournalStuck(path=self._file.path, seconds=self._group_limits.late, **BUFFER.words)
        self._observer.db_error("close", str(stuck))
        return stuck

    def _damaged(self) -> None:
        if self._groups is not None:
            self._groups.mark_damaged()

    # On the reading thread.

    def _open(self, opened: Deferred[list[LoadedSession]]) -> None:
        result: _Content | Exception
        try:
            result = self._open_and_load()
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the result)
            result = error
        self._reactor.callFromThread(self._opened, opened, result)

    def _open_and_load(self) -> _Content:
        file = self._file
        connection: sqlite3.Connection | None = None
        try:
            file.lock()
            connection = file.open(self._wall)
            if self._encrypt_stored:
                encrypt_stored(connection, self._keys)
            sessions = load(connection, file.path, self._keys)
            dead_letters = load_dead_letters(connection)
            writer = BufferWriter(file, connection, self._keys)
            writer.fill_reserve()
        except BaseException as error:
            if connection is not None:
                connection.close()
            file.close()
            if isinstance(error, ContentUnreadable):
                detail = f"its content is contradictory: {error}"
                raise DatabaseCorrupt(path=file.path, detail=detail, **BUFFER.words) from error
            if isinstance(error, sqlite3.Error):
                raise file.error(error) from error
            raise
        return _Content(writer, sessions, dead_letters)

    def _read_to(self, result: Deferred[_T], read: Callable[[], _T], what: str) -> None:
        try:
            found = read()
        except ContentUnreadable as error:
            refused = MessageBufferError(
                "mqtt_buffer_unreadable", path=self._file.path, what=what, detail=str(error), **BUFFER.words
            )
            self._reactor.callFromThread(result.errback, refused)
        except sqlite3.Error as error:
            self._reader.disconnect()
            if primary_code(error) in DAMAGED:
                self._reactor.callFromThread(self._damaged)
            self._reactor.callFromThread(result.errback, self._file.unavailable(error))
        else:
            self._reactor.callFromThread(result.callback, found)

    def _reader_ended(self) -> None:
        self._reader.disconnect()
        self._reactor.callFromThread(self._closing.finish)


def check_file(path: str) -> None:
    """Whether the buffer could be opened, without opening or creating anything; raises as the opening."""
    database.check_file(path, BUFFER, RESERVE_SIZE)


def _work(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        job()
