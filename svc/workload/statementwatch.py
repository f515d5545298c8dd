"""
Asks the manager of a cluster for the statement of the own pod, and again before it ends or when the pod changes.

Owns when it is asked, and which statement is the last one. What is got is checked by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from cryptography import x509
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import Reason, SvcError
from svc.identity import X509Svid
from svc.identity.matchers import Matcher
from svc.naming import STATEMENT_PATH
from svc.notary.statement import Statement
from svc.strictjson import dumps
from svc.workload.control_plane import Answer, ControlPlane, answered_within, failure_text, problem_code
from svc.workload.errors import WorkloadError
from svc.workload.interface import CredentialSource

#: Seconds for which the manager may wait for a change before it answers.
WAIT: Final = 30.0
#: Seconds to connect, and for an answer beyond what the manager may wait.
TIMEOUT: Final = 10.0
#: Seconds between two attempts that fail.
PAUSE: Final = 5.0
#: Seconds between two requests that succeed: a manager that ends answers at once.
BREATH: Final = 1.0
#: Seconds for which new credentials wait for the first answer that is about them.
PATIENCE: Final = 5.0
#: The next statement is asked for after this share of the life of the last one.
RENEW_SHARE: Final = 0.5
#: How long before its end a statement serves no longer: connections have to end before.
MARGIN: Final = timedelta(seconds=90)
#: Octets of the largest statement.
MAX_ANSWER: Final = 256 * 1024
_STAY: Final = (
    "the last statement serves until its end, then the proxy issues its own: is controlPlane the address of the"
    " manager, and does it run?"
)


class StatementWatchError(WorkloadError):
    """the manager at {address} gave no statement"""

    reason = "statement_watch_error"
    hint = _STAY
    reasons = {
        "statement_watch_unavailable": Reason(
            "the manager at {address} cannot be asked for a statement: {what}", _STAY
        ),
        "statement_watch_timeout": Reason("the manager at {address} did not answer within {seconds} s", _STAY),
        "statement_watch_refused": Reason(
            "the manager at {address} gave no statement, with status {status}: {code}",
            "not_ready ends by itself; for the others see the record svc.manager.statement.denied of the manager",
        ),
        "statement_watch_malformed": Reason(
            "the answer of the manager at {address} is not usable: {defect}",
            "is controlPlane the address of the manager, and are both of one version?",
        ),
        "statement_watch_token": Reason(
            "the service account token {path} (controlPlaneToken) cannot be read: {what}",
            "mount a projected token of the audience svc-manager there",
        ),
    }


class StatementWatchObserver(Protocol):
    """Receives what becomes of the requests."""

    def statement_answered(self) -> None:
        """An answer came."""

    def statement_failed(self, error: SvcError) -> None:
        """None came, or one that is not usable; the next attempt is made after :data:`PAUSE`."""


class StatementWatch(Service):
    """
    Has the statement of the manager while it runs.

    Args:
        address: ``host:port`` of the manager.
        token: the file with the service account token.
        source: the own credentials, and the bundles by which the manager is verified.
        reactor: the reactor.
        now: returns the time, aware.
        expected: the identity of the manager.
        accept: reads a statement and checks that it is about an SVID; raises ``SvcError``.
        changed: called when there is another statement, and after a failure.
        observer: receives successes and failures.
    """

    log = Logger()

    def __init__(
        self,
        address: str,
        token: str,
        source: CredentialSource,
        reactor: Any,
        *,
        now: Callable[[], datetime],
        expected: Matcher,
        accept: Callable[[bytes, X509Svid], Statement],
        changed: Callable[[], object],
        observer: StatementWatchObserver,
    ) -> None:
        self._server = ControlPlane(
            address, source, reactor, now=now, expected=expected, timeout=TIMEOUT, max_answer=MAX_ANSWER
        )
        self._token = Path(token)
        self._source = source
        self._reactor = reactor
        self._now = now
        self._accept = accept
        self._changed = changed
        self._observer = observer
        self._statement: Statement | None = None
        #: The SVID that the statement is about, and its tag.
        self._leaf: x509.Certificate | None = None
        self._tag = ""
        #: The SVID about which the manager was asked last, and the one for which that has ended.
        self._asked: x509.Certificate | None = None
        self._answered: x509.Certificate | None = None
        self._waiting: list[Deferred[None]] = []
        self._current: Deferred[Any] | None = None
        self._following: Deferred[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def obtain(self, svid: X509Svid) -> Deferred[Statement | None]:
        """
        Return the statement about an SVID that serves now; wait for a short time where the manager was not asked yet.

        Fires with None where there is none: then the workload issues its own.
        """
        if self._answered == svid.leaf:
            return succeed(self._serving(svid))
        answered: Deferred[None] = Deferred()
        self._waiting.append(answered)

        def ended(_result: object) -> Statement | None:
            if answered in self._waiting:
                self._waiting.remove(answered)
            return self._serving(svid)

        return answered.addTimeout(PATIENCE, self._reactor).addBoth(ended)

    def startService(self) -> None:
        """Begin to ask."""
        super().startService()
        self._unsubscribe = self._source.subscribe(self._source_changed)
        self._following = Deferred.fromCoroutine(self._follow())
        self._following.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        """Ask no more."""
        super().stopService()
        self._unsubscribe()
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        self._fire()
        return self._server.close()

    def _serving(self, svid: X509Svid) -> Statement | None:
        found = self._statement
        return None if found is None or self._leaf != svid.leaf or found.expires - self._now() < MARGIN else found

    def _source_changed(self) -> None:
        """Ask anew where there is another SVID, on a connection that has it."""
        try:
            differs = self._source.svid.leaf != self._asked
        except SvcError:
            return
        if differs and self._current is not None:
            self._current.cancel()

    async def _follow(self) -> None:
        while self.running:
            self._asked = None
            try:
                svid = self._source.svid
            except SvcError:
                # No credentials yet, or none any more: the source says when there are.
                await self._paused(BREATH)
                continue
            if self._leaf != svid.leaf:
                self._tag = ""
                self._server.close()
            self._asked = svid.leaf
            await self._ask_about(svid)

    async def _ask_about(self, svid: X509Svid) -> None:
        pause = BREATH
        try:
            await self._ask(svid)
        except SvcError as error:
            if not self.running or self._outdated(svid):
                # A request that is cancelled fails in several ways.
                return
            self._observer.statement_failed(error)
            # What a connection was refused for may be the SVID with which it was made.
            self._server.close()
            pause = PAUSE
        else:
            self._observer.statement_answered()
        self._answered = svid.leaf
        self._fire()
        await self._paused(pause)

    async def _ask(self, svid: X509Svid) -> None:
        """Ask once; returns when there is another statement, or the manager has said that there is none."""
        address = self._server.address
        answer = await self._answer(self._wait())
        if answer.code == 304:
            return
        if answer.code != 200:
            raise StatementWatchError(
                "statement_watch_refused", address=address, status=answer.code, code=problem_code(answer.data)
            )
        if not answer.etag:
            raise StatementWatchError("statement_watch_malformed", address=address, defect="it has no ETag")
        try:
            statement = self._accept(answer.data, svid)
        except SvcError as error:
            raise StatementWatchError("statement_watch_malformed", address=address, defect=str(error)) from error
        self._statement, self._leaf, self._tag = statement, svid.leaf, answer.etag
        self._answered = svid.leaf
        self._changed()

    def _wait(self) -> float:
        """Seconds until the next statement is due; 0 where it is."""
        found = self._statement
        if found is None or not self._tag:
            return 0.0
        due = found.issued + (found.expires - found.issued) * RENEW_SHARE
        return max(0.0, min(WAIT, (due - self._now()).total_seconds()))

    async def _answer(self, wait: float) -> Answer:
        body = dumps({"token": self._read_token()})
        headers = {"prefer": f"wait={int(wait) + 1}", "if-none-match": self._tag} if wait else {}
        asking = self._current = Deferred.fromCoroutine(self._server.request("POST", STATEMENT_PATH, body, headers))
        address, seconds = self._server.address, wait + TIMEOUT
        try:
            return await answered_within(asking, seconds, self._reactor)
        except DeferredTimeout as error:
            raise StatementWatchError("statement_watch_timeout", address=address, seconds=seconds) from error
        except CancelledError as error:
            if not self.running:
                raise
            raise StatementWatchError("statement_watch_unavailable", address=address, what="cancelled") from error
        except Exception as error:
            what = str(error) if isinstance(error, SvcError) else failure_text(error)
            raise StatementWatchError("statement_watch_unavailable", address=address, what=what) from error
        finally:
            self._current = None

    def _read_token(self) -> str:
        try:
            return self._token.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            raise StatementWatchError("statement_watch_token", path=self._token, what=what) from error

    def _outdated(self, svid: X509Svid) -> bool:
        try:
            return self._source.svid.leaf != svid.leaf
        except SvcError:
            return True

    async def _paused(self, seconds: float) -> None:
        """Wait, or until there is another SVID."""
        pause = self._current = deferLater(self._reactor, seconds)
        try:
            await pause
        except CancelledError:
            if not self.running:
                raise
        finally:
            self._current = None

    def _fire(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _ended(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None or self.running:
            self.log.failure("the manager is not asked for statements any more", failure)
