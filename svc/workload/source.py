"""
The source of SVIDs and bundles: always the last good values of a Workload API.

Owns which values are in use, since when, and what went wrong since; everything here runs on the reactor's thread.
Does not know how messages arrive (``watch``) nor what makes them good (``update``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.spiffeid import TrustDomain
from svc.identity.svid import X509Svid
from svc.telemetry.events import Event
from svc.telemetry.logs import emit
from svc.workload.address import socket_path
from svc.workload.errors import (
    CredentialsMissing,
    IdentityWithdrawn,
    NoIdentityIssued,
    NoOwnSvid,
    NoWorkloadApi,
    SourceStopped,
    StreamFailed,
    UpdateRejected,
    UpdateUnusable,
    WorkloadApiSilent,
    WorkloadApiUnavailable,
    WorkloadSocketDead,
    WorkloadSocketDenied,
    WorkloadSocketMissing,
)
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS, SourceState
from svc.workload.update import Update, UpdateMessage, read_update
from svc.workload.watch import Cause, StreamListener, StreamProblem, WatchThread, open_x509_stream

#: How long a call may stay without its first message before it is made anew.
FIRST_MESSAGE_SECONDS: Final = 15.0
#: From this share of an SVID's life on, a stream that brought no newer one is made anew; servers renew at half.
OVERDUE_SHARE: Final = 0.8
#: An overdue stream is made anew after a tenth of the SVID's life, and after so many seconds at the earliest.
OVERDUE_SECONDS: Final = 5.0
#: How long ``stopService`` waits for the thread.
STOP_SECONDS: Final = 3.0

_UNAVAILABLE: Final[dict[Cause, type[WorkloadApiUnavailable]]] = {
    "missing": WorkloadSocketMissing,
    "denied": WorkloadSocketDenied,
    "dead": WorkloadSocketDead,
    "no_identity": NoIdentityIssued,
    "silent": WorkloadApiSilent,
    "no_grpc": NoWorkloadApi,
}


class Watch(Protocol):
    """What the source needs of the thread."""

    def start(self) -> None:
        """Begin."""

    def reopen(self) -> None:
        """Make the call anew."""

    def stop(self) -> Deferred[None]:
        """End; fires when nothing will be told any more."""


def utc_now() -> datetime:
    """
    Read the clock.

    Returns:
        The time, aware, UTC.
    """
    return datetime.now(UTC)


class WorkloadSource(Service):
    """
    The current SVID and bundles of this process; implements ``CredentialSource``.

    An update replaces the last good values only after :func:`~svc.workload.update.read_update` found it good. Outages
    and bad updates keep them and are told by :attr:`state` and the log. Where the Workload API itself answers, again
    and again and nothing else for the whole grace, that this process has no identity, the identity is withdrawn: the
    SVID is given to nobody any more until there is a new one.

    Args:
        socket: the Workload API, as ``unix:///run/agent.sock``.
        reactor: the reactor.
        start_timeout: how many seconds :meth:`when_ready` waits at most.
        trust_domain: the trust domain the default SVID must be of; None accepts any.
        hint: choose the SVID with this hint instead of the first one.
        withdrawal_grace: for how many seconds an answer without an identity must stand before it ends the identity.
        now: tells the time.
        make_watch: makes what listens to the Workload API; tests give their own.

    Raises:
        SocketAddressInvalid: ``socket`` is no address of a Unix socket.
    """

    log = Logger()

    def __init__(
        self,
        socket: str,
        *,
        reactor: Any,
        start_timeout: float = 30.0,
        trust_domain: TrustDomain | None = None,
        hint: str | None = None,
        withdrawal_grace: float = WITHDRAWAL_GRACE_SECONDS,
        now: Callable[[], datetime] = utc_now,
        make_watch: Callable[[StreamListener], Watch] | None = None,
    ) -> None:
        self.socket = socket
        self._path = socket_path(socket)
        self._reactor = reactor
        self._start_timeout = start_timeout
        self._trust_domain = trust_domain
        self._hint = hint
        self._withdrawal_grace = withdrawal_grace
        self._now = now
        self._make_watch = make_watch or self._thread
        self._watch: Watch | None = None
        self._update: Update | None = None
        self._svid: X509Svid | None = None
        self._state = SourceState("starting")
        #: Since when nothing but answers without an identity came; None while that is not so.
        self._denied_since: float | None = None
        self._question: IDelayedCall | None = None
        #: Whether this side ends the open call, to ask whether it is still so.
        self._asked_again = False
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
        The SVID in use.

        Raises:
            CredentialsMissing: none has arrived yet.
            IdentityWithdrawn: the Workload API has ended the identity.
        """
        if self._withdrawn is not None:
            # A copy: each time that one error is raised it keeps the frames of another caller.
            raise copy(self._withdrawn)
        if self._svid is None:
            raise CredentialsMissing(socket=self.socket)
        return self._svid

    @property
    def svids(self) -> tuple[X509Svid, ...]:
        """
        All SVIDs of the last good update, the default one first.

        Raises:
            CredentialsMissing: none has arrived yet.
            IdentityWithdrawn: the Workload API has ended the identity.
        """
        if self._withdrawn is not None:
            raise copy(self._withdrawn)
        return tuple(offered.svid for offered in self._good().svids)

    @property
    def bundles(self) -> BundleSet:
        """
        The bundles in use: of the own and of federated trust domains.

        Raises:
            CredentialsMissing: none have arrived yet.
        """
        return self._good().bundles

    @property
    def state(self) -> SourceState:
        """How the source does."""
        return self._state

    def when_ready(self) -> Deferred[None]:
        """
        Wait for the first good update.

        Returns:
            A Deferred that fires with None; fails with a subclass of ``WorkloadApiUnavailable`` that says what
            happened when ``start_timeout`` is over, or with ``SourceStopped``. A later call after a late first update
            fires at once.
        """
        if self._svid is not None:
            return succeed(None)
        if self._unavailable is not None:
            return fail(copy(self._unavailable))
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Hear of changes.

        Args:
            callback: called without arguments after SVID or bundles changed, and after a withdrawal.

        Returns:
            What ends the subscription; a second call does nothing.
        """
        token = object()
        self._subscribers[token] = callback
        return lambda: self._subscribers.pop(token, None) and None

    def startService(self) -> None:
        """Begin to listen to the Workload API."""
        super().startService()
        self._unavailable = None
        if self._svid is None:
            self._start_call = self._reactor.callLater(self._start_timeout, self._start_over)
        self._watch = self._make_watch(self)
        self._watch.start()

    def stopService(self) -> Deferred[None]:
        """
        Stop listening; the values stay readable.

        Returns:
            A Deferred that fires when the thread has ended, after three seconds at the latest.
        """
        super().stopService()
        for call in (self._start_call, self._silence_call, self._overdue_call, self._question):
            _cancel(call)
        self._start_call = self._silence_call = self._overdue_call = self._question = None
        self._state = replace(self._state, phase="stopped")
        self._release(SourceStopped(socket=self.socket))
        watch, self._watch = self._watch, None
        if watch is None:
            return succeed(None)
        return _bounded(watch.stop(), STOP_SECONDS, self._reactor)

    def clock_stepped(self) -> None:
        """
        Hear that the clock of this machine was set.

        The Workload API may have newer credentials at once, and what was reckoned by the clock is reckoned anew.
        """
        if self._svid is None or not self.running:
            return
        self._expect_renewal(self._svid)
        if self._watch is not None:
            self._watch.reopen()

    def stream_opening(self) -> None:
        """Hear that a call is being made."""
        self._asked_again = False
        _cancel(self._silence_call)
        self._silence_call = self._reactor.callLater(FIRST_MESSAGE_SECONDS, self._silent)

    def got_message(self, message: UpdateMessage) -> None:
        """
        Judge an update.

        Args:
            message: an ``X509SVIDResponse``.
        """
        if not self.running:
            return
        _cancel(self._silence_call)
        self._silence_call = None
        try:
            update = read_update(message, self._now(), trust_domain=self._trust_domain)
            svid = update.chosen(self._hint)
        except UpdateRejected as error:
            self._rejected(error)
        else:
            self._take(update, svid)

    def stream_failed(self, problem: StreamProblem) -> None:
        """
        Hear that there is no stream.

        Args:
            problem: why.
        """
        if not self.running:
            return
        _cancel(self._silence_call)
        self._silence_call = None
        # A server that dies right after it was reached tells less than what was known before.
        if problem.cause != "ended":
            self._cause = problem.cause
        error = StreamFailed(code=problem.code, detail=problem.detail)
        was_connected = self._state.phase == "connected"
        self._state = replace(self._state, failures=self._state.failures + 1)
        self._trouble(error)
        if was_connected:
            self._warn(Event.SOURCE_STALE, error)
        if problem.cause == "no_identity":
            self._denied(error)
        elif not (self._asked_again and problem.cause == "silent"):
            # Whoever does not answer withdraws nothing; a call that this side has ended to ask anew is no answer.
            self._not_denied()
        self._asked_again = False

    def _take(self, update: Update, svid: X509Svid) -> None:
        first, changed_svid = self._svid is None, self._svid != svid
        changed_bundles = self._update is None or self._update.bundles != update.bundles
        was_connected = self._state.phase == "connected"
        came_back, former = self._withdrawn is not None, self._svid
        self._update, self._svid, self._unavailable = update, svid, None
        self._withdrawn = None
        self._not_denied()
        self._state = replace(
            self._state,
            phase="connected",
            updates=self._state.updates + 1,
            last_update=self._now(),
            last_error=None,
            not_after=svid.not_after,
        )
        self._expect_renewal(svid)
        if not was_connected:
            self._say(Event.SOURCE_CONNECTED)
        if former is not None and former.spiffe_id != svid.spiffe_id:
            self._changed_identity(former)
        if changed_svid:
            self._say(Event.SVID_UPDATED)
        if changed_bundles:
            self._say(Event.BUNDLE_UPDATED)
        if first:
            _cancel(self._start_call)
            self._start_call = None
            self._release(None)
        if changed_svid or changed_bundles or came_back:
            self._publish()

    def _publish(self) -> None:
        for callback in tuple(self._subscribers.values()):
            try:
                callback()
            except Exception:  # noqa: BLE001 - one subscriber must not keep the new SVID from the others
                self.log.failure("a subscriber of the Workload API source failed")

    def _rejected(self, error: UpdateRejected) -> None:
        self._state = replace(self._state, rejected=self._state.rejected + 1)
        self._trouble(error)
        self._warn(Event.UPDATE_REJECTED, error)
        if isinstance(error, NoOwnSvid):
            self._denied(error)
            self._ask_when_due()
        else:
            self._not_denied()

    def _trouble(self, error: SvcError) -> None:
        phase = self._state.phase if self._svid is None or self._withdrawn is not None else "stale"
        self._state = replace(self._state, phase=phase, last_error=self._withdrawn or error)

    def _denied(self, error: SvcError) -> None:
        """
        Weigh an answer without an identity.

        One alone may come from a server that has only just started and does not know its entries yet.
        """
        if self._svid is None or self._withdrawn is not None:
            return
        now = self._reactor.seconds()
        if self._denied_since is None:
            self._denied_since = now
        elif now - self._denied_since >= self._withdrawal_grace:
            self._withdraw(self._svid, error)

    def _ask_when_due(self) -> None:
        """Ask anew at the end of the grace, since a stream that stays open does not repeat its answer."""
        if self._denied_since is not None and self._question is None:
            left = self._denied_since + self._withdrawal_grace - self._reactor.seconds()
            self._question = self._reactor.callLater(max(left, 0.0), self._ask_again)

    def _ask_again(self) -> None:
        self._question = None
        if self._watch is not None:
            self._asked_again = True
            self._watch.reopen()

    def _not_denied(self) -> None:
        self._denied_since = None
        _cancel(self._question)
        self._question = None

    def _withdraw(self, svid: X509Svid, error: SvcError) -> None:
        _cancel(self._overdue_call)
        self._overdue_call = None
        self._not_denied()
        ended = IdentityWithdrawn(socket=self.socket, spiffe_id=svid.spiffe_id, what=str(error))
        self._withdrawn = ended
        self._state = replace(self._state, phase="withdrawn", last_error=ended, not_after=None)
        self._warn(Event.IDENTITY_WITHDRAWN, ended)
        self._publish()

    def _start_over(self) -> None:
        self._start_call = None
        self._release(self._why_unavailable())

    def _why_unavailable(self) -> WorkloadApiUnavailable:
        known: dict[str, object] = {"socket": self.socket, "seconds": f"{self._start_timeout:g}"}
        last = self._state.last_error
        if isinstance(last, UpdateRejected):
            return UpdateUnusable(what=last.defect, **known)
        kind = _UNAVAILABLE.get(self._cause)
        if kind is not None:
            return kind(**known)
        return WorkloadApiUnavailable(what=str(last or "it was not reached"), **known)

    def _release(self, error: SvcError | None) -> None:
        if error is not None and self._svid is None:
            self._unavailable = error
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            if error is None:
                deferred.callback(None)
            else:
                deferred.errback(error)

    def _silent(self) -> None:
        self._silence_call = None
        if self._watch is not None:
            self._watch.reopen()

    def _expect_renewal(self, svid: X509Svid) -> None:
        _cancel(self._overdue_call)
        life = (svid.not_after - svid.not_before).total_seconds()
        due = (svid.not_before - self._now()).total_seconds() + life * OVERDUE_SHARE
        pause = max(OVERDUE_SECONDS, life / 10)
        self._overdue_call = self._reactor.callLater(max(due, pause), self._overdue, pause)

    def _overdue(self, pause: float) -> None:
        """Do not trust a stream that is open and brings nothing while the SVID runs out."""
        self._overdue_call = self._reactor.callLater(pause, self._overdue, pause)
        if self._watch is not None:
            self._watch.reopen()

    def _changed_identity(self, former: X509Svid) -> None:
        attributes = {"socket": self.socket, "former_spiffe_id": str(former.spiffe_id)}
        emit(self.log, Event.IDENTITY_CHANGED, spiffe_id=self._name(), attributes=attributes)

    def _say(self, event: Event) -> None:
        emit(self.log, event, spiffe_id=self._name(), attributes={"socket": self.socket})

    def _warn(self, event: Event, error: SvcError) -> None:
        facts = {"socket": self.socket}
        reason, detail = error.reason, str(error)
        emit(self.log, event, detail_reason=reason, detail=detail, spiffe_id=self._name(), attributes=facts)

    def _name(self) -> str | None:
        return None if self._svid is None else str(self._svid.spiffe_id)

    def _good(self) -> Update:
        if self._update is None:
            raise CredentialsMissing(socket=self.socket)
        return self._update

    def _thread(self, listener: StreamListener) -> Watch:
        random = secrets.SystemRandom().random
        return WatchThread(lambda: open_x509_stream(self._path), listener, self._reactor, random=random)


def _cancel(call: IDelayedCall | None) -> None:
    if call is not None and call.active():
        call.cancel()


def _bounded(deferred: Deferred[None], seconds: float, reactor: Any) -> Deferred[None]:
    """Fire with the Deferred, or after the time without it; the daemon thread then ends by itself."""
    done: Deferred[None] = Deferred()
    late = reactor.callLater(seconds, done.callback, None)

    def ended(_result: object) -> None:
        if late.active():
            late.cancel()
            done.callback(None)

    deferred.addBoth(ended)
    return done
