"""
Asks the manager of a cluster for one document, such as the policies of the own namespace, and again as soon as there is
another one.

Owns when it is asked. What is got is read and put in force by the caller; without an answer that stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Final, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import Reason, SvcError
from svc.identity.matchers import Matcher
from svc.transport.creators import TlsIdentity
from svc.workload.control_plane import Answer, ControlPlane, answered_within, failure_text, problem_code
from svc.workload.errors import WorkloadError

#: Seconds for which the manager may wait for a change before it answers.
WAIT: Final = 30.0
#: Seconds to connect, and for an answer beyond what the manager may wait.
TIMEOUT: Final = 10.0
#: Seconds between two attempts that fail.
PAUSE: Final = 5.0
_STAY: Final = "what is in force stays: is controlPlane the address of the manager, and does it run?"


class ManagerWatchError(WorkloadError):
    """the manager at {address} gave nothing"""

    reason = "manager_watch_error"
    hint = _STAY
    reasons = {
        "manager_watch_unavailable": Reason("the manager at {address} cannot be asked: {what}", _STAY),
        "manager_watch_timeout": Reason("the manager at {address} did not answer within {seconds} s", _STAY),
        "manager_watch_refused": Reason(
            "the manager at {address} gave nothing for {path}, with status {status}: {code}",
            "not_ready ends by itself; for the others see the record svc.manager.policies.denied of the manager",
        ),
        "manager_watch_malformed": Reason(
            "the answer of the manager at {address} is not usable: {defect}",
            "is controlPlane the address of the manager, and are both of one version?",
        ),
    }


class ManagerObserver(Protocol):
    """Receives what becomes of the requests."""

    def manager_answered(self) -> None:
        """An answer came."""

    def manager_failed(self, error: SvcError) -> None:
        """None came, or one that is not usable; the next attempt is made after :data:`PAUSE`."""


class ManagerWatch(Service):
    """
    Follows one document of the manager while it runs.

    Args:
        address: ``host:port`` of the manager.
        path: of the document.
        source: the own credentials, and the bundles by which the manager is verified.
        reactor: the reactor.
        now: returns the time, aware.
        expected: the identity of the manager.
        max_answer: octets of the largest document.
        ready: returns what fires when there are credentials.
        changed: puts another document in force, given its octets and version; raises ``SvcError`` if it is not valid.
        observer: receives successes and failures.
    """

    log = Logger()

    def __init__(
        self,
        address: str,
        path: str,
        source: TlsIdentity,
        reactor: Any,
        *,
        now: Callable[[], datetime],
        expected: Matcher,
        max_answer: int,
        ready: Callable[[], Deferred[None]],
        changed: Callable[[bytes, str], Coroutine[Any, Any, None]],
        observer: ManagerObserver,
    ) -> None:
        self._server = ControlPlane(
            address, source, reactor, now=now, expected=expected, timeout=TIMEOUT, max_answer=max_answer
        )
        self._path = path
        self._reactor = reactor
        self._ready = ready
        self._changed = changed
        self._observer = observer
        #: The tag of the document that was got last; empty for none.
        self._tag = ""
        #: Whether that document was refused: what was wrong beside it may change, so it is asked for again.
        self._refused = False
        self._following: Deferred[None] | None = None

    def startService(self) -> None:
        """Begin to ask."""
        super().startService()
        self._following = Deferred.fromCoroutine(self._follow())
        self._following.addErrback(self._ended)

    def stopService(self) -> Deferred[None]:
        """Ask no more."""
        super().stopService()
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        return self._server.close()

    async def _follow(self) -> None:
        try:
            await self._ready()
        except SvcError as error:
            self._observer.manager_failed(error)
        while self.running:
            try:
                await self._ask()
            except SvcError as error:
                if not self.running:
                    # A request that is cancelled fails in several ways.
                    return
                self._observer.manager_failed(error)
                # What a connection was refused for may be the SVID with which it was made.
                self._server.close()
                await deferLater(self._reactor, PAUSE)
            else:
                self._observer.manager_answered()

    async def _ask(self) -> None:
        """Ask once, and put another document in force; returns when the answer is dealt with."""
        answer = await self._answer()
        if answer.code == 304:
            if self._refused:
                self._tag, self._refused = "", False
            return
        if answer.code != 200:
            raise ManagerWatchError(
                "manager_watch_refused",
                address=self._server.address,
                path=self._path,
                status=answer.code,
                code=problem_code(answer.data),
            )
        version = answer.etag.strip('"')
        if not version:
            raise ManagerWatchError("manager_watch_malformed", address=self._server.address, defect="it has no ETag")
        self._tag, self._refused = answer.etag, True
        try:
            await self._changed(answer.data, version)
        except (SvcError, CancelledError):
            raise
        except Exception as error:
            # A defect in the reading of one document must not keep the next one away.
            self.log.failure("a document of the manager could not be read")
            raise ManagerWatchError(
                "manager_watch_malformed", address=self._server.address, defect=type(error).__name__
            ) from error
        self._refused = False

    async def _answer(self) -> Answer:
        headers = {"prefer": f"wait={WAIT:.0f}", **({"if-none-match": self._tag} if self._tag else {})}
        asking = Deferred.fromCoroutine(self._server.request("GET", self._path, headers=headers))
        seconds = WAIT + TIMEOUT
        try:
            return await answered_within(asking, seconds, self._reactor)
        except DeferredTimeout as error:
            raise ManagerWatchError("manager_watch_timeout", address=self._server.address, seconds=seconds) from error
        except CancelledError:
            raise
        except Exception as error:
            what = str(error) if isinstance(error, SvcError) else failure_text(error)
            raise ManagerWatchError("manager_watch_unavailable", address=self._server.address, what=what) from error

    def _ended(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None or self.running:
            self.log.failure("the manager is not asked any more", failure)
