"""
Where proxies get the statement of their pod: ``POST /v1/statement`` with a service account token of it.

The identity of the caller comes from the handshake, its service account from the registration entries that the manager
keeps. With ``If-None-Match`` and ``Prefer: wait=SECONDS`` the answer comes when the pod has other facts, such as labels
or image digests, or 304 after that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET

from svc.errors import SvcError
from svc.identity import SpiffeID, SvidEvidence
from svc.manager.statements.decision import Account, StatementDenied
from svc.manager.statements.issuing import IssuedStatement, StatementIssuer
from svc.notary.facts import FactsInvalid
from svc.pages.callers import BodyRequest, caller_of, error_status, send_problem
from svc.pages.waiting import MAX_WAIT, WaitingPages, close_after, preferred_wait, single_header
from svc.strictjson import JsonRefused, loads_object

#: Octets of a token.
MAX_TOKEN: Final = 16 * 1024
_MEDIA_TYPE: Final = b"application/jose+json"


class StatementRequestInvalid(SvcError):
    """the request for a statement is malformed: {defect}"""

    reason = "statement_request_malformed"
    hint = 'the body is {{"token": "..."}} with the service account token of a pod'
    http_status = 400


class StatementPages(WaitingPages):
    """
    The path for statements.

    Args:
        issuer: issues them.
        ready: returns whether it is known which service accounts there are.
        account_of: returns the service account of an identity; None where there is none.
        counted: receives the result of each answer: ``sent``, ``unchanged``, ``denied`` or ``not_ready``.
        refused: receives each refusal.
        now: returns the time, aware.
    """

    log = Logger()

    def __init__(
        self,
        issuer: StatementIssuer,
        ready: Callable[[], bool],
        account_of: Callable[[SpiffeID], Account | None],
        counted: Callable[[str], object],
        refused: Callable[[SvcError, SpiffeID], object],
        now: Callable[[], datetime],
    ) -> None:
        super().__init__()
        self._issuer = issuer
        self._ready = ready
        self._account_of = account_of
        self._counted = counted
        self._refused = refused
        self._now = now

    def render_POST(self, request: BodyRequest) -> bytes | int:
        """Answer, soon or when the pod is another one."""
        if request.postpath:
            return send_problem(request, 404, "not_found")
        if request.too_large:
            close_after(request)
            return send_problem(request, 413, "too_large")
        answering: Deferred[bytes] = Deferred.fromFuture(asyncio.ensure_future(self._answer(request)))
        gone = request.notifyFinish()
        gone.addErrback(lambda _left: answering.cancel())
        answering.addCallback(self._finish, request)
        answering.addErrback(self._failed, request)
        return NOT_DONE_YET

    async def run(self) -> None:
        """Follow the pods."""
        await self._issuer.run()

    def release(self) -> None:
        """See :class:`~svc.pages.waiting.WaitingPages`."""
        super().release()
        self._issuer.release()

    async def _answer(self, request: BodyRequest) -> bytes:
        evidence: SvidEvidence = caller_of(request).evidence.svid
        left = (evidence.not_after - self._now()).total_seconds()
        tag = single_header(request, b"if-none-match").decode("latin-1").strip('"')
        wait = 0.0 if self.released else min(preferred_wait(request), MAX_WAIT, left)
        try:
            if left <= 0:
                raise StatementDenied("statement_caller_expired", spiffe_id=evidence.spiffe_id)
            token = _token(request.body.getvalue())
            if not self._ready():
                return self._not_ready(request, "not_ready")
            account = self._account_of(evidence.spiffe_id)
            if account is None:
                raise StatementDenied("statement_caller_unknown", spiffe_id=evidence.spiffe_id)
            issued = await self._issuer.issue(token, account, evidence, tag=tag, wait=wait)
        except (StatementDenied, StatementRequestInvalid, FactsInvalid) as error:
            self._counted("denied")
            self._refused(error, evidence.spiffe_id)
            return send_problem(request, error_status(error), error.reason)
        except SvcError as error:
            self._refused(error, evidence.spiffe_id)
            return self._not_ready(request, error.reason)
        if self.released or left <= MAX_WAIT:
            # The next request comes to another replica, or with the SVID of then.
            close_after(request)
        return self._issued(request, issued, tag)

    def _issued(self, request: BodyRequest, issued: IssuedStatement | None, tag: str) -> bytes:
        if issued is None:
            self._counted("unchanged")
            request.setHeader(b"etag", b'"%s"' % tag.encode("latin-1"))
            request.setResponseCode(304)
            return b""
        self._counted("sent")
        request.setHeader(b"etag", b'"%s"' % issued.tag.encode("ascii"))
        request.setHeader(b"content-type", _MEDIA_TYPE)
        request.setHeader(b"cache-control", b"no-store")
        return issued.statement.envelope.serialize()

    def _not_ready(self, request: BodyRequest, code: str) -> bytes:
        self._counted("not_ready")
        request.setHeader(b"retry-after", b"5")
        return send_problem(request, 503, code)

    def _finish(self, body: bytes, request: BodyRequest) -> None:
        request.setHeader(b"content-length", b"%d" % len(body))
        if body:
            request.write(body)
        request.finish()

    def _failed(self, failure: Failure, request: BodyRequest) -> None:
        # Only a client that leaves cancels its request.
        if failure.check(asyncio.CancelledError, CancelledError) is None:
            self.log.failure("a request for a statement failed unexpectedly", failure)
            self._finish(send_problem(request, 500, "internal_error"), request)


def _token(body: bytes) -> str:
    try:
        token = loads_object(body).get("token")
    except JsonRefused as error:
        raise StatementRequestInvalid(defect=error.defect) from None
    if not isinstance(token, str) or not 0 < len(token) <= MAX_TOKEN or not token.isascii():
        raise StatementRequestInvalid(defect=f"token is no text of 1 to {MAX_TOKEN} ASCII characters")
    return token
