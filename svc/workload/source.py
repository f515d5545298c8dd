"""
The source of SVIDs and bundles: always the last valid values of a Workload API.

Everything here runs on the reactor's thread. Messages are received by ``watch`` and validated by ``update``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.spiffeid import TrustDomain
from svc.identity.svid import X509Svid
from svc.process.clock import utc_now
from svc.telemetry.events.workload import WorkloadEvent
from svc.telemetry.logs import emit
from svc.workload.address import socket_path
from svc.workload.errors import (
    CredentialsMissing,
    EntryMissing,
    IdentityNotIssued,
    IdentityWithdrawn,
    NoIdentityIssued,
    NoOwnSvid,
    NoWorkloadApi,
    SourceStopped,
    StreamClosed,
    StreamFailed,
    UpdateRejected,
    UpdateUnusable,
    WorkloadApiLost,
    WorkloadApiSilent,
    WorkloadApiUnavailable,
    WorkloadSocketDenied,
    WorkloadSocketMissing,
    WorkloadSocketUnserved,
)
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS, SourceState
from svc.workload.update import Update, UpdateMessage, read_update
from svc.workload.watch import Cause, StreamListener, StreamProblem, WatchThread, open_x509_stream

#: Seconds without a first message after which a call is made again.
FIRST_MESSAGE_SECONDS: Final = 15.0
#: After this share of an SVID's lifetime a stream that brought no newer one is replaced; servers renew at half.
OVERDUE_SHARE: Final = 0.8
#: An overdue stream is replaced after a tenth of the SVID's lifetime, but not earlier than after these seconds.
OVERDUE_SECONDS: Final = 5.0
#: Seconds for which ``stopService`` waits for the thread.
STOP_SECONDS: Final = 3.0

_UNAVAILABLE: Final[dict[Cause, type[WorkloadApiUnavailable]]] = {
    "missing": WorkloadSocketMissing,
    "denied": WorkloadSocketDenied,
    "unserved": WorkloadSocketUnserved,
    "no_identity": NoIdentityIssued,
    "silent": WorkloadApiSilent,
    "no_grpc": NoWorkloadApi,
}
#: Causes of an outage that are described in other words than the system's.
_OUTAGES: Final[dict[Cause, str]] = {
    "missing": "no such file",
    "denied": "permission denied by the file system",
    "unserved": "no process listens on this socket",
    "silent": "it accepted the call and sent nothing",
    "no_grpc": "another service answers there, in HTTP/1.1",
    "ended": "it ended the stream",
}


class WorkloadSource(Service):
    """
    The current SVID and bundles of this process; implements ``CredentialSource``.

    An update replaces the last valid values only after :func:`~svc.workload.update.read_update` has accepted it.
    Outages and invalid updates keep them, and are reported by :attr:`state` and the log. If the Workload API itself
    answers for the whole grace, and gives no other answer, that this process has no identity, the identity is
    withdrawn: the SVID is not available until there is a new one.

    Args:
        socket: the Workload API, as ``unix:///run/agent.sock``.
        reactor: the reactor.
        start_timeout: how many seconds :meth:`when_ready` waits at most; None for no limit.
        trust_domain: the trust domain of the default SVID; None accepts any.
        hint: select the SVID with this hint instead of the first one.
        withdrawal_grace: seconds for which answers without an identity have to persist before it is withdrawn.
        now: returns the time, aware.
        make_watch: makes the thread that receives messages; tests pass their own.
        changed: called without arguments after each change of :attr:`state`.

    Raises:
        SocketAddressInvalid: ``socket`` is not the address of a Unix socket.
    """

    log = Logger()

    def __init__(
        self,
        socket: str,
        *,
        reactor: Any,
        start_timeout: float | None = 30.0,
        trust_domain: TrustDomain | None = None,
        hint: str | None = None,
        withdrawal_grace: float = WITHDRAWAL_GRACE_SECONDS,
        now: Callable[[], datetime] = utc_now,
        make_watch: Callable[[StreamListener], WatchThread] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.socket = socket
        self._path = socket_path(socket)
        self._reactor = reactor
        self._start_timeout = start_timeout
        self._trust_domain = trust_domain
        self._hint = hint
        self._withdrawal_grace = withdrawal_grace
        self._now = now
        self._make_watch = make_watch or self._make_thread
        self._watch: WatchThread | None = None
        self._update: Update | None = None
        self._svid: X509Svid | None = None
        self._changed = changed
        self._state = SourceState("starting")
        #: Since when no stream has brought a message; None while one is open.
        self._lost_at: datetime | None = None
        self._last_answer: datetime | None = None
        #: Whether the stream is open and has brought a message.
        self._open = False
        #: Since when all answers have been without an identity; None if the last one was not.
        self._denied_since: float | None = None
        self._retry_call: IDelayedCall | None = None
        self._withdrawn: IdentityWithdrawn | None = None
        self._cause: Cause = "silent"
        self._unavailable: SvcError | None = None
        self._waiting: list[Deferred[None]] = []
        self._subscribers: dict[object, Callable[[], None]] = {}
        self._start_call: IDelayedCall | None = None
        self._silence_call: IDelayedCall | None = None
        self._overdue_call: IDelayedCall | None = None

    @property
    def svid(self) -> X509Svid:
        """
        The current SVID.

        Raises:
            CredentialsMissing: none has arrived yet.
            IdentityWithdrawn: the Workload API has ended the identity.
        """
        if self._withdrawn is not None:
            # A copy: an error that is raised repeatedly keeps the frames of every caller.
            raise copy(self._withdrawn)
        if self._svid is None:
            raise CredentialsMissing(socket=self.socket)
        return self._svid

    @property
    def svids(self) -> tuple[X509Svid, ...]:
        """All SVIDs of the last accepted update, the default one first; raises as :attr:`svid`."""
        if self._withdrawn is not None:
            raise copy(self._withdrawn)
        return tuple(offered.svid for offered in self._current_update().svids)

    def select(self, hint: str | None) -> X509Svid:
        """
        The first SVID with a hint, the default one for None; raises as :attr:`svid`.

        Raises:
            NoOwnSvid: none has this hint.
        """
        if self._withdrawn is not None:
            raise copy(self._withdrawn)
        return self._current_update().select(hint)

    @property
    def bundles(self) -> BundleSet:
        """
        The current bundles of the own and of federated trust domains.

        Raises:
            CredentialsMissing: none have arrived yet.
        """
        return self._current_update().bundles

    @property
    def state(self) -> SourceState:
        """The current state."""
        return self._state

    @property
    def last_contact(self) -> datetime | None:
        """When the Workload API last answered: now, while a stream that brought a message is open; None for never."""
        return self._now() if self._open else self._last_answer

    def when_ready(self) -> Deferred[None]:
        """
        Wait for the first accepted update.

        Returns: A Deferred that fires with None; fails with a subclass of ``WorkloadApiUnavailable`` when
        ``start_timeout`` is over, or with ``SourceStopped``. A call after a late first update fires at once.
        """
        if self._svid is not None:
            return succeed(None)
        if self._unavailable is not None:
            return fail(copy(self._unavailable))
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after SVIDs or bundles changed, and after a withdrawal; returns what ends that."""
        token = object()
        self._subscribers[token] = callback
        return lambda: self._subscribers.pop(token, None) and None

    def startService(self) -> None:
        super().startService()
        self._unavailable = None
        if self._svid is None and self._start_timeout is not None:
            self._start_call = self._reactor.callLater(self._start_timeout, self._start_timed_out)
        self._watch = self._make_watch(self)
        self._watch.start()

    def stopService(self) -> Deferred[None]:
        """Stop; the values stay readable. Fires when the thread has ended, after three seconds at the latest."""
        super().stopService()
        for call in (self._start_call, self._silence_call, self._overdue_call, self._retry_call):
            _cancel(call)
        self._start_call = self._silence_call = self._overdue_call = self._retry_call = None
        self._update_state(phase="stopped")
        self._fire_waiting(SourceStopped(socket=self.socket))
        watch, self._watch = self._watch, None
        if watch is None:
            return succeed(None)
        return _with_timeout(watch.stop(), STOP_SECONDS, self._reactor)

    def clock_stepped(self) -> None:
        """
        React to a step of this machine's clock: the Workload API may have newer credentials, and timers are set again.
        """
        if self._svid is None or not self.running:
            return
        self._schedule_overdue(self._svid)
        if self._watch is not None:
            self._watch.reopen()

    def stream_opening(self) -> None:
        """See :class:`StreamListener`."""
        # A stream that this side replaces does not count as contact until the new one brings a message.
        self._open = False
        _cancel(self._silence_call)
        self._silence_call = self._reactor.callLater(FIRST_MESSAGE_SECONDS, self._no_message)

    def got_message(self, message: UpdateMessage) -> None:
        """Validate and apply an ``X509SVIDResponse``."""
        if not self.running:
            return
        _cancel(self._silence_call)
        self._silence_call = None
        self._open, self._last_answer, self._lost_at = True, self._now(), None
        try:
            update = read_update(message, self._now(), trust_domain=self._trust_domain)
            svid = update.select(self._hint)
        except UpdateRejected as error:
            self._rejected(error)
        else:
            self._apply(update, svid)

    def stream_failed(self, problem: StreamProblem) -> None:
        """See :class:`StreamListener`."""
        if not self.running:
            return
        _cancel(self._silence_call)
        self._silence_call = None
        # The end of a stream says less than the cause that was known before.
        if problem.cause != "ended":
            self._cause = problem.cause
        if self._open or problem.cause == "no_identity":
            self._last_answer = self._now()
        self._open = False
        error = self._stream_error(problem)
        was_connected = self._state.phase == "connected"
        self._update_state(failures=self._state.failures + 1)
        self._record_error(error, self._outage(problem))
        if was_connected:
            self._log_error(WorkloadEvent.SOURCE_STALE, error, self._stale_message(error))
        if problem.cause == "no_identity":
            self._count_denial(error)
        else:
            # A Workload API that is unreachable does not withdraw the identity.
            self._clear_denial()

    def _stream_error(self, problem: StreamProblem) -> StreamFailed:
        known = {"socket": self.socket, "code": problem.code, "detail": problem.detail}
        if problem.cause == "no_identity":
            return EntryMissing(uid=os.geteuid(), gid=os.getegid(), **known)
        if problem.cause == "ended":
            return StreamClosed(**known)
        return StreamFailed(**known)

    def _stale_message(self, error: StreamFailed) -> str | None:
        """The message of the log record where the Workload API was reached; None for that of the event."""
        if isinstance(error, EntryMissing):
            return f"the Workload API has no identity for this process; {self._remaining()}"
        return "the Workload API ended the stream, a new call follows" if isinstance(error, StreamClosed) else None

    def _remaining(self) -> str:
        """Describe what is in use after an answer without an identity, and for how long."""
        if self._withdrawn is not None:
            return "the identity stays withdrawn"
        if self._svid is None:
            return "there is no SVID yet"
        now = self._reactor.seconds()
        left = (now if self._denied_since is None else self._denied_since) + self._withdrawal_grace - now
        if left <= 0:
            return "it is withdrawn now"
        until = (self._now() + timedelta(seconds=left)).isoformat(timespec="seconds")
        return f"the last SVID serves, and the identity is withdrawn after {until} unless a new SVID comes before"

    def _apply(self, update: Update, svid: X509Svid) -> None:
        first, changed_svid = self._svid is None, self._svid != svid
        changed = self._update != update
        changed_bundles = self._update is None or self._update.bundles != update.bundles
        was_connected = self._state.phase == "connected"
        came_back, former = self._withdrawn is not None, self._svid
        self._update, self._svid, self._unavailable = update, svid, None
        self._withdrawn = None
        self._clear_denial()
        self._update_state(
            phase="connected",
            updates=self._state.updates + 1,
            last_update=self._now(),
            last_error=None,
            not_after=svid.not_after,
            outage=None,
        )
        self._schedule_overdue(svid)
        if not was_connected:
            self._log(WorkloadEvent.SOURCE_CONNECTED)
        if former is not None and former.spiffe_id != svid.spiffe_id:
            self._log_identity_change(former)
        if changed_svid:
            self._log(WorkloadEvent.SVID_UPDATED)
        if changed_bundles:
            self._log(WorkloadEvent.BUNDLE_UPDATED)
        if first:
            _cancel(self._start_call)
            self._start_call = None
            self._fire_waiting(None)
        if changed or came_back:
            self._publish()

    def _publish(self) -> None:
        for callback in tuple(self._subscribers.values()):
            try:
                callback()
            except Exception:  # noqa: BLE001 - a failing subscriber must not prevent the others
                self.log.failure("a subscriber of the Workload API source failed")

    def _rejected(self, error: UpdateRejected) -> None:
        self._update_state(rejected=self._state.rejected + 1)
        self._record_error(error, error)
        rejected = WorkloadEvent.UPDATE_REJECTED
        if isinstance(error, NoOwnSvid):
            self._log_error(rejected, error, f"update without an identity for this process; {self._remaining()}")
            self._count_denial(error)
            self._schedule_retry()
        else:
            nothing = self._svid is None or self._withdrawn is not None
            self._log_error(rejected, error, "update rejected, and no SVID is in use" if nothing else None)
            self._clear_denial()

    def _outage(self, problem: StreamProblem) -> WorkloadApiLost:
        if self._lost_at is None:
            self._lost_at = self._now()
        kind = IdentityNotIssued if problem.cause == "no_identity" else WorkloadApiLost
        words = _OUTAGES.get(problem.cause, problem.detail or problem.code)
        return kind(socket=self.socket, since=self._lost_at.isoformat(timespec="seconds"), what=words)

    def _record_error(self, error: SvcError, outage: SvcError | None) -> None:
        phase = self._state.phase if self._svid is None or self._withdrawn is not None else "stale"
        self._update_state(phase=phase, last_error=self._withdrawn or error, outage=outage)

    def _update_state(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        self._changed()

    def _count_denial(self, error: SvcError) -> None:
        """
        Withdraw the identity if answers without one have persisted for the grace.

        A single answer may come from a server that has just started and has not loaded its entries yet.
        """
        if self._svid is None or self._withdrawn is not None:
            return
        now = self._reactor.seconds()
        if self._denied_since is None:
            self._denied_since = now
        elif now - self._denied_since >= self._withdrawal_grace:
            self._withdraw(self._svid, error)

    def _schedule_retry(self) -> None:
        """Call again at the end of the grace, since a stream that stays open does not repeat its answer."""
        if self._denied_since is not None and self._retry_call is None:
            left = self._denied_since + self._withdrawal_grace - self._reactor.seconds()
            self._retry_call = self._reactor.callLater(max(left, 0.0), self._retry)

    def _retry(self) -> None:
        self._retry_call = None
        if self._watch is not None:
            self._watch.reopen()

    def _clear_denial(self) -> None:
        self._denied_since = None
        _cancel(self._retry_call)
        self._retry_call = None

    def _withdraw(self, svid: X509Svid, error: SvcError) -> None:
        _cancel(self._overdue_call)
        self._overdue_call = None
        self._clear_denial()
        ended = IdentityWithdrawn(socket=self.socket, spiffe_id=svid.spiffe_id, what=str(error))
        self._withdrawn = ended
        self._update_state(phase="withdrawn", last_error=ended, not_after=None, outage=ended)
        self._log_error(WorkloadEvent.IDENTITY_WITHDRAWN, ended)
        self._publish()

    def _start_timed_out(self) -> None:
        self._start_call = None
        self._fire_waiting(self._why_unavailable())

    def _why_unavailable(self) -> WorkloadApiUnavailable:
        known: dict[str, object] = {"socket": self.socket, "seconds": f"{self._start_timeout or 0:g}"}
        last = self._state.last_error
        if isinstance(last, UpdateRejected):
            return UpdateUnusable(what=last.defect, **known)
        kind = _UNAVAILABLE.get(self._cause)
        if kind is not None:
            return kind(**known)
        return WorkloadApiUnavailable(what=str(last or "it was not reached"), **known)

    def _fire_waiting(self, error: SvcError | None) -> None:
        if error is not None and self._svid is None:
            self._unavailable = error
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            if error is None:
                deferred.callback(None)
            else:
                deferred.errback(error)

    def _no_message(self) -> None:
        self._silence_call = None
        late = f"no message came within {FIRST_MESSAGE_SECONDS:g} s"
        self.stream_failed(StreamProblem("silent", "DEADLINE_EXCEEDED", late))
        if self._watch is not None:
            self._watch.reopen()

    def _schedule_overdue(self, svid: X509Svid) -> None:
        _cancel(self._overdue_call)
        life = (svid.not_after - svid.not_before).total_seconds()
        due = (svid.not_before - self._now()).total_seconds() + life * OVERDUE_SHARE
        pause = max(OVERDUE_SECONDS, life / 10)
        self._overdue_call = self._reactor.callLater(max(due, pause), self._overdue, pause)

    def _overdue(self, pause: float) -> None:
        """Replace a stream that is open and brings nothing while the SVID expires."""
        self._overdue_call = self._reactor.callLater(pause, self._overdue, pause)
        # A call that still waits for its first message is not made anew: whether it stays silent has to be seen.
        if self._watch is not None and self._silence_call is None:
            self._watch.reopen()

    def _log_identity_change(self, former: X509Svid) -> None:
        attributes = {"socket": self.socket, "former_spiffe_id": str(former.spiffe_id)}
        emit(self.log, WorkloadEvent.IDENTITY_CHANGED, spiffe_id=self._own_id(), attributes=attributes)

    def _log(self, event: WorkloadEvent) -> None:
        emit(self.log, event, spiffe_id=self._own_id(), attributes={"socket": self.socket})

    def _log_error(self, event: WorkloadEvent, error: SvcError, message: str | None = None) -> None:
        emit(
            self.log,
            event,
            message=message,
            detail_reason=error.reason,
            detail=str(error),
            spiffe_id=self._own_id(),
            attributes={"socket": self.socket},
        )

    def _own_id(self) -> str | None:
        return None if self._svid is None else str(self._svid.spiffe_id)

    def _current_update(self) -> Update:
        if self._update is None:
            raise CredentialsMissing(socket=self.socket)
        return self._update

    def _make_thread(self, listener: StreamListener) -> WatchThread:
        random = secrets.SystemRandom().random
        return WatchThread(lambda: open_x509_stream(self._path), listener, self._reactor, random=random)


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()


def _with_timeout(deferred: Deferred[None], seconds: float, reactor: Any) -> Deferred[None]:
    """Fire with the Deferred, or after the time without it; the daemon thread then ends by itself."""
    done: Deferred[None] = Deferred()
    late = reactor.callLater(seconds, done.callback, None)

    def ended(_result: object) -> None:
        if late.active():
            late.cancel()
            done.callback(None)

    deferred.addBoth(ended)
    return done
