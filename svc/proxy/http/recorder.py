"""
What a record contains of one exchange, collected while its octets stream, and the commit of that record.

Owns the running digests; holds no body.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.notary.exchange import (
    BodySummary,
    ExchangeOutcome,
    Peer,
    RecordedExchange,
    TlsFacts,
    octets_as_text,
    split_target,
)
from svc.notary.level import Level
from svc.wire.fields import Field
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.http.context import HttpContext
    from svc.proxy.notarizer import Reservation


class BodyDigest:
    """The SHA-256 and size of a body that streams."""

    __slots__ = ("_hash", "complete", "size")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0
        self.complete = False

    def update(self, data: bytes) -> None:
        """Add the next octets of the content, without chunk lines."""
        self._hash.update(data)
        self.size += len(data)

    def summary(self) -> BodySummary:
        """Return size and digest so far, and whether that is the whole body."""
        return BodySummary(self.size, self._hash.digest(), self.complete)


class Recorder:
    """Collects one exchange of level ``logRequest`` or ``signRequest``; ``server`` is the identity that answers."""

    __slots__ = (
        "_client",
        "_head",
        "_level",
        "_nonce",
        "_received",
        "_server",
        "_tls",
        "request",
        "request_trailers",
        "response",
        "response_fields",
        "response_trailers",
        "status",
    )

    def __init__(
        self,
        level: Level,
        nonce: str | None,
        client: Peer | None,
        server: Peer,
        tls: TlsFacts | None,
        head: RequestHead,
        received: datetime,
    ) -> None:
        self._level = level
        self._nonce = nonce
        self._client = client
        self._server = server
        self._tls = tls
        self._head = head
        self._received = received
        self.request = BodyDigest()
        self.request_trailers: list[Field] = []
        self.response = BodyDigest()
        self.response_fields: list[Field] = []
        self.response_trailers: list[Field] = []
        self.status: int | None = None

    def exchange(self, jti: str, outcome: ExchangeOutcome, completed: datetime) -> RecordedExchange:
        """Return the exchange as the notary records it; ``jti`` is its identifier."""
        head = self._head
        path, query = split_target(head.target)
        return RecordedExchange(
            level=self._level,
            nonce=self._nonce,
            jti=jti,
            client=self._client,
            server=self._server,
            tls=self._tls,
            method=octets_as_text(head.method),
            scheme="https" if self._tls is not None else "http",
            authority=octets_as_text(head.host),
            path=path,
            query=query,
            version=head.version,
            request_headers=tuple(head.fields),
            request_body=self.request.summary(),
            request_trailers=tuple(self.request_trailers),
            status=self.status,
            response_headers=tuple(self.response_fields),
            response_body=self.response.summary(),
            response_trailers=tuple(self.response_trailers),
            received=self._received,
            # The clock may have been set back meanwhile: nothing ends before it began.
            completed=max(completed, self._received),
            outcome=outcome,
        )


def put_record(
    context: HttpContext, peer: str, reservation: Reservation, recorder: Recorder, outcome: ExchangeOutcome
) -> Deferred[None]:
    """
    Commit the record of an exchange; count and report the result.

    Fires when the record is on disk; fails as :meth:`svc.proxy.notarizer.Notarizer.commit`.
    """

    def written(_result: None) -> None:
        context.notary_metrics.records_written.inc()

    def failed(failure: Failure) -> Failure:
        context.notary_metrics.records_failed.inc()
        error = failure.value
        reason, what = type(error).__name__, "the record could not be committed"
        if isinstance(error, SvcError):
            reason, what = error.reason, f"{what}: {error}"
        context.reporter.exchange_failed(reason, peer, what)
        return failure

    exchange = recorder.exchange(reservation.jti, outcome, context.wall())
    return context.notarizer.commit(reservation, exchange).addCallbacks(written, failed)
