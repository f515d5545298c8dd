"""
Requests as a workload: Twisted's ``IAgent``, for treq and for everything that takes an agent.

Owns how an exchange of :mod:`svc.client` becomes a response that is verified at its end, and its time limit.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.client.connection import OpenConnection
from svc.client.evidence import collect_evidence
from svc.client.exchange import ExchangeResult, run_exchange
from svc.client.problem import explained_error, find_problem
from svc.client.request import MAX_DATA, Request, build_request, check_field
from svc.client.sending import IterableBody, RequestStream
from svc.client.target import Target
from svc.client.verification import Demands, Trust
from svc.embedding.errors import ArgumentInvalid, EmbeddingError
from svc.embedding.pool import ConnectionPool
from svc.embedding.response import BodyFlow, ExchangeEvidence, SentRequest, StreamedResponse
from svc.envelope.ids import NONCE_BYTES, new_nonce
from svc.errors import SvcError, printable
from svc.identity import Matcher
from svc.notary.level import Level
from svc.wire.fields import Field

#: Fields of a request: by name, as pairs, or Twisted's.
RequestHeaders = Headers | Mapping[str, str | Sequence[str]] | Iterable[tuple[str | bytes, str | bytes]]
#: The body of a request: its octets, a producer, or pieces as they become available.
RequestBody = bytes | IBodyProducer | AsyncIterable[bytes]
#: The identity that each server must have.
ServerMatcher = Callable[[Target], Matcher]

_LEVELS: Final = (Level.WORKLOAD, Level.LOG_REQUEST, Level.SIGN_REQUEST)


def parse_level(text: str) -> Level:
    """
    Read the argument ``notarization``.

    Raises:
        ArgumentInvalid: it is none of the three levels that a client may demand.
    """
    for level in _LEVELS:
        if text == level.value:
            return level
    expected = ", ".join(repr(level.value) for level in _LEVELS)
    raise ArgumentInvalid(argument="notarization", value=repr(text), expected=f"one of {expected}")


@implementer(IAgent)
class HttpAgent:
    """
    Sends requests as a workload. Made by :meth:`svc.embedding.Workload.http_agent`.

    A response arrives as with Twisted's ``Agent``; the end of its body is ``ResponseDone`` once its statement, and at
    the level ``signRequest`` its receipt, is verified, and otherwise the ``SvcError`` that says what is wrong. So
    ``treq.content`` and ``readBody`` return verified bodies or fail. Status and headers are not yet verified when the
    response begins. Connections are kept open and reused; requests that can be repeated are sent again where such a
    connection turns out to be closed.

    Args:
        reactor: the reactor.
        pool: the connections.
        expected: the identity that each server must have.
        demands: what is verified.
        trust: the trust anchors now.
        now: the wall clock, aware UTC.
        silence: seconds for which neither side may send anything, while the response is awaited.
    """

    def __init__(
        self,
        reactor: Any,
        pool: ConnectionPool,
        *,
        expected: ServerMatcher,
        demands: Demands,
        trust: Callable[[], Trust],
        now: Callable[[], datetime],
        silence: float,
    ) -> None:
        self.reactor = reactor
        self.pool = pool
        self.expected = expected
        self.demands = demands
        self.trust = trust
        self.now = now
        self._silence = silence

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """
        Send a request; see ``IAgent.request``.

        Args:
            method: the method.
            uri: ``https://host:port/path``.
            headers: further fields; those that frame the message and those of the notary are refused.
            bodyProducer: writes the body.

        Returns:
            Fires when the response begins, with a :class:`StreamedResponse`; fails with an ``SvcError``.
        """
        try:
            return self.start(method.decode("latin-1"), uri.decode("latin-1"), headers=headers, body=bodyProducer)  # type: ignore[return-value]  # a StreamedResponse provides IResponse
        except SvcError:
            return fail()

    def start(
        self, method: str, url: str, *, headers: RequestHeaders | None = None, body: RequestBody | None = None
    ) -> Deferred[StreamedResponse]:
        """Send a request; fires when the response begins. Raises an ``SvcError`` for what cannot be sent."""
        request = self._built(method, url, headers, body)
        expected = self.expected(request.target)
        self.pool.begin()
        sent = SentRequest(method.encode("latin-1"), url.encode("utf-8"), _twisted_headers(request))
        return AgentExchange(self, request, expected, self._silence).start(sent)

    def closeIdleConnections(self) -> Deferred[None]:
        """Close the connections that are kept open; connections of later requests are not kept."""
        return self.pool.close()

    def _built(self, method: str, url: str, headers: RequestHeaders | None, body: RequestBody | None) -> Request:
        target = Target.parse(url)
        if not target.secure:
            raise EmbeddingError("url_unsupported", url=printable(url))
        octets, stream = _body(body)
        nonce = new_nonce(secrets.token_bytes(NONCE_BYTES))
        return build_request(
            target,
            method=method,
            fields=request_fields(headers),
            level=self.demands.level,
            nonce=nonce,
            body=octets,
            stream=stream,
        )


class AgentExchange(BodyFlow):
    """One exchange: the context of :func:`svc.client.exchange.run_exchange`, and the flow of its body."""

    def __init__(self, agent: HttpAgent, request: Request, expected: Matcher, silence: float) -> None:
        self.clock = agent.reactor
        self._agent = agent
        self._request = request
        self._expected = expected
        self._silence = silence
        self._result = ExchangeResult()
        self._connection: OpenConnection | None = None
        self._timer: IDelayedCall | None = None
        self._late = False
        self._running: Deferred[ExchangeResult] | None = None

    def start(self, sent: SentRequest) -> Deferred[StreamedResponse]:
        """Begin; fires with the response when its head arrives."""
        response = StreamedResponse(sent, self)
        begun = response.begun
        self._start_timer()
        if self._request.stream is not None:
            self._request.stream.progress = self.progress
        running = self._running = Deferred.fromCoroutine(
            run_exchange(self._request, self._agent.demands, self, response, self._result)
        )
        running.addBoth(self._ended, response)
        return begun

    # -- The context of the exchange ---------------------------------------------------------------------------------

    def now(self) -> datetime:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        return self._agent.now()

    async def trust(self) -> Trust:
        """See :class:`svc.client.exchange.ExchangeContext`; needed next once a body is complete that was paused."""
        self._start_timer()
        self.progress()
        return self._agent.trust()

    async def dial(self, previous: OpenConnection | None) -> OpenConnection:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        self.progress()
        opened = await self._agent.pool.dial(self._request.target, self._expected, previous)
        self._connection = opened
        self.progress()
        return opened

    def release(self, connection: OpenConnection) -> None:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        self._agent.pool.release(self._request.target, connection, keep=self._result.error is None)

    # -- The flow of the body ----------------------------------------------------------------------------------------

    def pause(self) -> None:
        """See :class:`BodyFlow`; a server that is not read is not late."""
        if self._connection is not None and self._result.response is None:
            self._connection.channel.pause()
            self._stop_timer()

    def resume(self) -> None:
        """See :class:`BodyFlow`."""
        if self._connection is not None and self._result.response is None and self._running is not None:
            self._connection.channel.resume()
            self._start_timer()

    def progress(self) -> None:
        """See :class:`BodyFlow`."""
        if self._timer is not None and self._timer.active():
            self._timer.reset(self._silence)

    def abort(self) -> None:
        """See :class:`BodyFlow`."""
        if self._running is not None:
            self._running.cancel()

    # -- Time and end ------------------------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._agent.reactor.callLater(self._silence, self._too_late)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _too_late(self) -> None:
        self._late = True
        self.abort()

    def late(self) -> EmbeddingError:
        """The error of a server that did not respond in time."""
        waiting = self._result.waiting_for.value
        url = self._request.target.server
        return EmbeddingError("answer_late", url=url, seconds=f"{self._silence:g}", missing=waiting)

    def _ended(self, found: ExchangeResult | Failure, response: StreamedResponse) -> None:
        self._running = None
        self._stop_timer()
        self._agent.pool.end()
        if isinstance(found, Failure):
            if self._late and found.check(CancelledError):
                found = Failure(self.late())
            response.finish(found)
            return
        error = explained_error(found, find_problem(found, response.beginning()))
        response.finish(self._evidence(found, response) if error is None else Failure(error))

    def _evidence(self, found: ExchangeResult, response: StreamedResponse) -> ExchangeEvidence | Failure:
        file = collect_evidence(self._request, found, response.kept())
        if found.peer is None or found.statement is None or file is None:
            return Failure(EmbeddingError())
        return ExchangeEvidence(found.peer, found.statement, found.receipt, file)


def request_fields(headers: RequestHeaders | None) -> list[Field]:
    """
    Read the fields of a request in whatever form a program has them.

    Raises:
        RequestInvalid: a field that cannot be sent.
        ArgumentInvalid: it is no form of fields.
    """
    if headers is None:
        return []
    pairs: list[tuple[Any, Any]] = []
    if isinstance(headers, Headers):
        pairs = [(name, value) for name, values in headers.getAllRawHeaders() for value in values]
    elif isinstance(headers, Mapping):
        for name, values in headers.items():
            pairs += [(name, value) for value in ([values] if isinstance(values, str | bytes) else values)]
    else:
        pairs = [(name, value) for name, value in headers]
    return [check_field(_octets(name), _octets(value).strip(b" \t")) for name, value in pairs]


def _octets(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return value
    raise ArgumentInvalid(argument="headers", value=type(value).__name__, expected="names and values of str or bytes")


def _body(body: object) -> tuple[bytes, RequestStream | None]:
    if body is None:
        return b"", None
    if isinstance(body, bytes | bytearray):
        if len(body) > MAX_DATA:
            expected = f"at most {MAX_DATA} octets in memory; stream a larger one"
            raise ArgumentInvalid(argument="body", value=f"{len(body)} octets", expected=expected)
        return bytes(body), None
    if IBodyProducer.providedBy(body):
        return b"", RequestStream(body)
    if isinstance(body, AsyncIterable):
        return b"", RequestStream(IterableBody(body))
    expected = "bytes, an IBodyProducer or an asynchronous iterable of bytes"
    raise ArgumentInvalid(argument="body", value=type(body).__name__, expected=expected)


def _twisted_headers(request: Request) -> Headers:
    headers = Headers()
    for name, value in request.fields:
        headers.addRawHeader(name, value)
    return headers
