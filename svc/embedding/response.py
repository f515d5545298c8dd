"""
A response while it arrives: ``IResponse`` for Twisted's and treq's code, or an asynchronous iterator.

Owns the back-pressure of a body that is not read, and that its end is reported only once the exchange is verified.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IClientRequest, IResponse
from zope.interface import implementer

from svc.client.evidence import check_writable, save_evidence
from svc.embedding.errors import EmbeddingError
from svc.notary.evidence import MAX_BODY, EvidenceFile
from svc.notary.exchange import BodySummary
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import ResponseHead

#: Octets that an iterator may hold before the connection is paused.
HIGH_WATER: Final = 64 * 1024


@dataclass(frozen=True)
class ExchangeEvidence:
    """
    What was verified of an exchange.

    Attributes:
        peer: the verified peer of the connection.
        statement: what the statement proves of the workload that responded.
        receipt: what the receipt proves of this exchange; None below the level ``signRequest``.
        file: the same to keep, for ``svc verify evidence``; ``file.serialize()`` are its octets.
    """

    peer: PeerEvidence
    statement: StatementEvidence
    receipt: ReceiptEvidence | None
    file: EvidenceFile

    def save(self, path: str) -> None:
        """
        Write the evidence file, with mode 0600; it is on the disk when this returns.

        Args:
            path: a file that does not exist yet.

        Raises:
            EvidenceNotSaved: it exists, or cannot be written.
        """
        check_writable(path)
        save_evidence(path, self.file)


@dataclass(frozen=True)
class VerifiedResponse:
    """
    A whole response that was verified.

    Attributes:
        status: the HTTP status.
        headers: the header fields.
        body: the body.
        evidence: what was verified.
    """

    status: int
    headers: Headers
    body: bytes
    evidence: ExchangeEvidence

    @property
    def statement(self) -> StatementEvidence:
        """What the statement proves of the workload that responded."""
        return self.evidence.statement

    @property
    def receipt(self) -> ReceiptEvidence | None:
        """What the receipt proves of this exchange; None below the level ``signRequest``."""
        return self.evidence.receipt


@implementer(IClientRequest)
class SentRequest:
    """The request of a response."""

    def __init__(self, method: bytes, uri: bytes, headers: Headers) -> None:
        self.method = method
        self.absoluteURI = uri
        self.headers = headers


class BodyFlow:
    """Pauses and resumes a body, and notes that it makes progress; what a response needs of its exchange."""

    def pause(self) -> None:
        """Read nothing more."""

    def resume(self) -> None:
        """Read again."""

    def progress(self) -> None:
        """Something arrived."""

    def abort(self) -> None:
        """End the exchange."""


@implementer(IResponse)
class StreamedResponse:
    """
    A response whose body is read while it arrives; it is verified at its end, never before.

    Read it once: ``async for piece in response``, which raises at the end what ``deliverBody`` passes to
    ``connectionLost``, or with ``deliverBody``. Until it is read the connection is paused.

    Attributes:
        code: the HTTP status.
        headers: the header fields.
    """

    version = (b"HTTP", 1, 1)
    code: int
    phrase: bytes
    headers: Headers
    length: Any

    def __init__(self, request: SentRequest, flow: BodyFlow) -> None:
        self.request = request
        self.previousResponse: Any = None
        self.begun: Deferred[StreamedResponse] = Deferred(lambda _: flow.abort())
        self._flow = flow
        self._protocol: Any = None
        self._pieces: deque[bytes] = deque()
        self._paused = False
        self._digest = hashlib.sha256()
        self._size = 0
        self._beginning = bytearray()
        self._result: ExchangeEvidence | Failure | None = None
        self._reported = False
        self._waiters: list[Deferred[ExchangeEvidence]] = []

    # -- What the exchange calls -------------------------------------------------------------------------------------

    def got_head(self, head: ResponseHead) -> None:
        """See :class:`svc.client.connection.ResponseSink`."""
        self.version = (b"HTTP", *(int(part) for part in head.version.split(".")))  # type: ignore[assignment]
        self.code, self.phrase, self.headers = head.status, head.phrase, Headers()
        for name, value in head.fields:
            self.headers.addRawHeader(name, value)
        announced = head.values(b"content-length")
        self.length = int(announced[0]) if announced and self.request.method != b"HEAD" else UNKNOWN_LENGTH
        self._flow.progress()
        self.begun.callback(self)

    def got_body(self, data: bytes) -> None:
        """See :class:`svc.client.connection.ResponseSink`."""
        self._digest.update(data)
        self._size += len(data)
        self._beginning += data[: MAX_BODY - len(self._beginning)]
        self._pieces.append(data)
        self._flow.progress()
        self._deliver()
        if self._pieces:
            self._flow.pause()

    def seen(self) -> BodySummary:
        """See :class:`svc.client.exchange.ResponseBody`."""
        return BodySummary(self._size, self._digest.digest())

    def beginning(self) -> bytes:
        """The first octets of the body."""
        return bytes(self._beginning)

    def kept(self) -> bytes | None:
        """The body, where it is small enough for an evidence file."""
        return self.beginning() if self._size == len(self._beginning) else None

    def finish(self, result: ExchangeEvidence | Failure) -> None:
        """The exchange has been verified, or has failed."""
        self._result = result
        if not self.begun.called and isinstance(result, Failure):
            self.begun.errback(result)
            return
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.callback(result)
        self._deliver()

    # -- What programs call ------------------------------------------------------------------------------------------

    def verified(self) -> Deferred[ExchangeEvidence]:
        """
        What was verified, once the whole response is.

        Returns:
            Fires with the evidence after the body was read; fails as the body does.
        """
        if isinstance(self._result, Failure):
            return fail(self._result)
        if self._result is not None:
            return succeed(self._result)
        waiter: Deferred[ExchangeEvidence] = Deferred()
        self._waiters.append(waiter)
        return waiter

    def abort(self) -> None:
        """End a response that is not read to its end; its connection is closed."""
        self._flow.abort()

    def deliverBody(self, protocol: Any) -> None:
        """
        Deliver the body to a protocol; see ``IResponse.deliverBody``.

        Its ``connectionLost`` is called with ``ResponseDone`` once everything is verified, else with the ``SvcError``:
        then nothing of what was delivered may be used.
        """
        if self._protocol is not None:
            raise RuntimeError("the body of a response is delivered once")
        self._protocol = protocol
        protocol.makeConnection(_BodyTransport(self))
        self._resume()

    def setPreviousResponse(self, response: IResponse) -> None:
        """See ``IResponse.setPreviousResponse``."""
        self.previousResponse = response

    def __aiter__(self) -> BodyPieces:
        pieces = BodyPieces()
        self.deliverBody(pieces)
        return pieces

    # -- Delivery ----------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while self._pieces and self._protocol is not None and not self._paused:
            self._protocol.dataReceived(self._pieces.popleft())
        if self._result is None or self._protocol is None or self._pieces or self._reported:
            return
        self._reported = True
        failed = isinstance(self._result, Failure)
        self._protocol.connectionLost(self._result if failed else Failure(ResponseDone()))

    def _pause(self) -> None:
        self._paused = True
        self._flow.pause()

    def _resume(self) -> None:
        self._paused = False
        self._deliver()
        if not self._pieces and not self._paused:
            self._flow.resume()


@implementer(IPushProducer)
class _BodyTransport:
    """The transport of a protocol that reads a body."""

    disconnecting = False

    def __init__(self, response: StreamedResponse) -> None:
        self._response = response

    def pauseProducing(self) -> None:
        self._response._pause()

    def resumeProducing(self) -> None:
        self._response._resume()

    def stopProducing(self) -> None:
        self._response.abort()

    def loseConnection(self) -> None:
        self._response.abort()

    def abortConnection(self) -> None:
        self._response.abort()


class BodyPieces(Protocol):
    """Iterates over a body; what it holds is bounded."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._end: Failure | None = None
        self._waiting: Deferred[None] | None = None

    def dataReceived(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if self._held >= HIGH_WATER and self.transport is not None:
            self.transport.pauseProducing()  # type: ignore[attr-defined]  # of a _BodyTransport
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._end = reason
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    def __aiter__(self) -> BodyPieces:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces and self._end is None:
            self._waiting = Deferred()
            await self._waiting
        if self._pieces:
            piece = self._pieces.popleft()
            self._held -= len(piece)
            if self._held < HIGH_WATER and self._end is None and self.transport is not None:
                self.transport.resumeProducing()  # type: ignore[attr-defined]  # as above
            return piece
        if self._end is not None and not self._end.check(ResponseDone):
            self._end.raiseException()
        raise StopAsyncIteration


class BoundedBody(Protocol):
    """Collects a body of a bounded size."""

    def __init__(self, limit: int, abort: Callable[[], None]) -> None:
        self.whole: Deferred[bytes] = Deferred(lambda _: abort())
        self._limit = limit
        self._abort = abort
        self._data = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self._limit and not self.whole.called:
            self.whole.errback(EmbeddingError("answer_too_large", limit=self._limit))
            self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if reason.check(ResponseDone):
            self.whole.callback(bytes(self._data))
        else:
            self.whole.errback(reason)


def exchange_evidence(response: Any) -> Deferred[ExchangeEvidence]:
    """
    What was verified of the exchange of a response, for responses that treq or an agent of Twisted has wrapped.

    Args:
        response: from an :class:`~svc.embedding.agent.HttpAgent`, directly or through others.

    Returns:
        Fires once the body was read and verified; fails as the body does.

    Raises:
        EmbeddingError: ``response_foreign``, it is from another agent.
    """
    found = response
    while found is not None and not isinstance(found, StreamedResponse):
        found = getattr(found, "original", None)
    if found is None:
        raise EmbeddingError("response_foreign", kind=type(response).__name__)
    return found.verified()
