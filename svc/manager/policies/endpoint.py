"""
Where proxies get the policies of their namespace, ``GET /v1/policy``, and agents the post-quantum roots of peers,
``GET /v1/foreign-pq-bundle``: with an entity tag, answered when they change.

The namespace is that of the caller's service account, by the registration entries that the manager keeps; the path of a
SPIFFE ID says nothing here. With ``If-None-Match`` and ``Prefer: wait=SECONDS`` (RFC 9110 section 13.1.2, RFC 7240
section 4.3) the answer comes when there is another list, or 304 after that time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure
from twisted.web.http import Request as BareRequest
from twisted.web.server import NOT_DONE_YET

from svc.errors import Reason, SvcError, printable
from svc.identity import SpiffeID
from svc.naming import FOREIGN_PQ_PATH, POLICY_PATH
from svc.pages.callers import caller_of, error_status, send_json, send_problem
from svc.pages.waiting import MAX_WAIT, WaitingPages, close_after, preferred_wait, single_header

_POLICIES: Final = POLICY_PATH.encode("ascii")
_ROOTS: Final = FOREIGN_PQ_PATH.encode("ascii")


class PolicyRequestRefused(SvcError):
    """a workload does not get the policies that it asks for"""

    reason = "policy_request_refused"
    hint = "the proxy keeps the policies that it has"
    http_status = 403
    reasons = {
        "policy_caller_unknown": Reason(
            "{spiffe_id} is the identity of no service account of an enabled namespace",
            "give the namespace the label svc.internal/injection: enabled; the proxy keeps the policies that it has",
        ),
        "policy_namespace_denied": Reason(
            "{spiffe_id} asks for the policies of {asked}, and is of the namespace {namespace}",
            "each workload gets those of its own namespace",
        ),
        "policy_caller_expired": Reason(
            "the SVID of {spiffe_id} has expired since the connection was made", "connect with the SVID of now"
        ),
    }


class Published(Protocol):
    """What is sent, and its version."""

    @property
    def data(self) -> bytes: ...

    @property
    def version(self) -> str: ...


@dataclass(eq=False)
class _Waiting:
    """A request that waits for another document than that of ``version``."""

    request: BareRequest
    spiffe_id: SpiffeID
    version: bytes
    end: IDelayedCall


class PolicyPages(WaitingPages):
    """
    All paths of the endpoint.

    Args:
        ready: returns whether it is known which service accounts there are.
        namespace_of: returns the namespace of a service account's identity; None where there is none.
        published: returns the policies of a namespace; None as long as they are not known.
        roots: returns the roots of peers, which every workload may have; None as long as they are not known.
        counted: receives the result of each answer with policies: ``sent``, ``unchanged``, ``denied`` or ``not_ready``.
        refused: receives each refusal.
        clock: measures how long requests wait.
        now: returns the time, aware.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        namespace_of: Callable[[SpiffeID], str | None],
        published: Callable[[str], Published | None],
        roots: Callable[[], Published | None],
        counted: Callable[[str], object],
        refused: Callable[[PolicyRequestRefused, SpiffeID], object],
        *,
        clock: IReactorTime,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__()
        self._ready = ready
        self._namespace_of = namespace_of
        self._published = published
        self._roots = roots
        self._counted = counted
        self._refused = refused
        self._clock = clock
        self._now = now
        self._waiting: dict[_Waiting, None] = {}

    def render(self, request: BareRequest) -> bytes | int:
        """Answer a request, or let it wait."""
        if request.path not in (_POLICIES, _ROOTS):
            return send_problem(request, 404, "not_found")
        if request.method != b"GET":
            request.setHeader(b"allow", b"GET")
            return send_problem(request, 405, "method_not_allowed")
        evidence = caller_of(request).evidence.svid
        left = (evidence.not_after - self._now()).total_seconds()
        try:
            if left <= 0:
                raise PolicyRequestRefused("policy_caller_expired", spiffe_id=evidence.spiffe_id)
            found = self._found(request, evidence.spiffe_id)
        except PolicyRequestRefused as error:
            return self._deny(request, error, evidence.spiffe_id)
        if self.released or left <= MAX_WAIT:
            # The next request comes to another replica, or with the SVID of then.
            close_after(request)
        version = single_header(request, b"if-none-match")
        seconds = 0.0 if self.released else min(preferred_wait(request), MAX_WAIT, left)
        if found is not None and version == _tag(found) and seconds > 0:
            self._wait(request, evidence.spiffe_id, version, seconds)
            return NOT_DONE_YET
        return self._answer(request, found, version)

    def changed(self) -> None:
        """Answer all that wait for what is there now."""
        for each in list(self._waiting):
            try:
                found = self._found(each.request, each.spiffe_id)
            except PolicyRequestRefused as error:
                self._finish(each, self._deny(each.request, error, each.spiffe_id))
                continue
            if found is not None and _tag(found) != each.version:
                self._finish(each, self._answer(each.request, found, each.version))

    def release(self) -> None:
        """See :class:`~svc.pages.waiting.WaitingPages`."""
        super().release()
        for each in list(self._waiting):
            close_after(each.request)
            self._finish(each, self._unchanged(each.request, each.version))

    def _found(self, request: BareRequest, spiffe_id: SpiffeID) -> Published | None:
        if request.path == _ROOTS:
            return self._roots()
        asked = (request.args or {}).get(b"namespace")
        if not self._ready():
            return None
        namespace = self._namespace_of(spiffe_id)
        if namespace is None:
            raise PolicyRequestRefused("policy_caller_unknown", spiffe_id=spiffe_id)
        if asked is not None and asked != [namespace.encode("ascii")]:
            shown = printable(b",".join(asked).decode("utf-8", "replace"), 80)
            raise PolicyRequestRefused("policy_namespace_denied", spiffe_id=spiffe_id, asked=shown, namespace=namespace)
        return self._published(namespace)

    def _deny(self, request: BareRequest, error: PolicyRequestRefused, spiffe_id: SpiffeID) -> bytes:
        self._count(request, "denied")
        self._refused(error, spiffe_id)
        return send_problem(request, error_status(error), error.reason)

    def _answer(self, request: BareRequest, found: Published | None, version: bytes) -> bytes:
        if found is None:
            self._count(request, "not_ready")
            request.setHeader(b"retry-after", b"5")
            return send_problem(request, 503, "not_ready")
        if _tag(found) == version:
            return self._unchanged(request, version)
        self._count(request, "sent")
        request.setHeader(b"etag", _tag(found))
        request.setHeader(b"content-length", b"%d" % len(found.data))
        return send_json(request, 200, found.data)

    def _unchanged(self, request: BareRequest, version: bytes) -> bytes:
        self._count(request, "unchanged")
        request.setHeader(b"etag", version)
        request.setResponseCode(304)
        return b""

    def _count(self, request: BareRequest, result: str) -> None:
        if request.path == _POLICIES:
            self._counted(result)

    def _wait(self, request: BareRequest, spiffe_id: SpiffeID, version: bytes, seconds: float) -> None:
        def over() -> None:
            self._finish(waiting, self._unchanged(request, version))

        waiting = _Waiting(request, spiffe_id, version, self._clock.callLater(seconds, over))
        self._waiting[waiting] = None
        request.notifyFinish().addErrback(self._left, waiting)

    def _left(self, _gone: Failure, waiting: _Waiting) -> None:
        if self._waiting.pop(waiting, waiting) is None:
            waiting.end.cancel()

    def _finish(self, waiting: _Waiting, body: bytes) -> None:
        del self._waiting[waiting]
        if waiting.end.active():
            waiting.end.cancel()
        if body:
            waiting.request.write(body)
        waiting.request.finish()


def _tag(found: Published) -> bytes:
    return b'"%s"' % found.version.encode("ascii")
