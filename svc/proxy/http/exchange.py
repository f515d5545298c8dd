"""
One request and its response, from the head to the release of the last octet.

Owns the order of things: policy, level and nonce, admission by the notary, the response, the record, the release. A
recorded exchange withholds the end of its response (the last octet, the last chunk, the end of the connection, or the
head where no body follows; inbound all of a small response) until its record is durable. How the request reaches the
application is in :mod:`svc.proxy.http.upstream_request`.

The stage of an exchange moves by :data:`TRANSITIONS` alone. An event that is not in the table raises ``KeyError``, and
the connection is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.ids import NONCE_BYTES, new_nonce
from svc.errors import SvcError
from svc.notary.access import is_notary_path
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.record_bound import SIGNATURES_ROOM
from svc.policy.engine import Denied, Permit
from svc.policy.paths import RequestAmbiguous
from svc.proxy.connection_settings import TimeoutSettings
from svc.proxy.errors import (
    AnswerNotTaken,
    NotaryUnavailable,
    ProxyError,
    RequestNotTaken,
    RequestRefused,
    RequestTimeout,
    UpstreamClosed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from svc.proxy.http.answers import own_head, problem_body, problem_fields
from svc.proxy.http.caller import asking_lines, notary_lines
from svc.proxy.http.peer_verification import refusal_of
from svc.proxy.http.recorder import Observation, Recorder, put_record
from svc.proxy.http.response import ResponseWriter, interim_head
from svc.proxy.http.upstream_request import RequestingClient, UpstreamRequest
from svc.proxy.records.release_points import ReleasePoint
from svc.proxy.reporter import ExchangeSummary, PolicyDecision
from svc.strictjson import b64u_encode
from svc.telemetry.labels import Cause
from svc.wire.fields import Field
from svc.wire.http1 import End, Event, Excess, Interim, MessageRefused, RequestHead, ResponseHead

if TYPE_CHECKING:
    from svc.notary.credentials import CredentialSet
    from svc.proxy.http.peer_verification import PeerVerifier
    from svc.proxy.http.upstream import UpstreamConnection
    from svc.proxy.peer_statement import PeerStatement
    from svc.proxy.records.notarizer import Notarizer, Reservation
    from svc.proxy.records.receipt_collector import CollectedPlace, ReceiptCollector


class ExchangeStage(Enum):
    """What an exchange is waiting for."""

    #: The policy decides on the head; requests for the notary's own paths wait here for the database.
    BEGINNING = "beginning"
    #: The notary reserves what the record will need.
    ADMISSION = "admission"
    #: A connection to the application is being made.
    CONNECTING = "connecting"
    #: The request streams to the application.
    REQUEST = "request"
    #: The application has the whole request and has not answered.
    WAITING = "waiting"
    #: The response streams to the client.
    RESPONSE = "response"
    #: The response is complete but for its end, which waits for the record; outbound for the receipt of the peer.
    RECORD = "record"
    #: Everything is released, or the exchange was aborted.
    FINISHED = "finished"

    # Members are singletons; the default hash is a call of Python code.
    __hash__ = object.__hash__


class ExchangeEvent(Enum):
    """What moves an exchange from one stage to the next."""

    RESERVING = "record required"
    FORWARDED = "forwarded"
    CONNECTED = "connected"
    REQUEST_COMPLETE = "request complete"
    REPEATED = "sent again"
    RESPONSE_BEGUN = "response begins"
    RESPONSE_COMPLETE = "response complete"
    RELEASED = "end released"
    ABORTED = "aborted"

    __hash__ = object.__hash__


_BEGINNING, _ADMISSION, _CONNECTING, _REQUEST, _WAITING, _RESPONSE, _RECORD, _FINISHED = ExchangeStage
(
    _RESERVING,
    _FORWARDED,
    _CONNECTED,
    _REQUEST_COMPLETE,
    _REPEATED,
    _RESPONSE_BEGUN,
    _RESPONSE_COMPLETE,
    _RELEASED,
    _ABORTED,
) = ExchangeEvent

#: The next stage. The proxy's own answers begin a response at any stage before one, and outbound in place of a response
#: without a body whose receipt is refused; without a record there is nothing to wait for at the end of a response.
TRANSITIONS: Final[Mapping[tuple[ExchangeStage, ExchangeEvent], ExchangeStage]] = {
    (_BEGINNING, _RESERVING): _ADMISSION,
    (_BEGINNING, _FORWARDED): _CONNECTING,
    (_BEGINNING, _RESPONSE_BEGUN): _RESPONSE,
    (_BEGINNING, _ABORTED): _FINISHED,
    (_ADMISSION, _FORWARDED): _CONNECTING,
    (_ADMISSION, _RESPONSE_BEGUN): _RESPONSE,
    (_ADMISSION, _ABORTED): _FINISHED,
    (_CONNECTING, _CONNECTED): _REQUEST,
    (_CONNECTING, _RESPONSE_BEGUN): _RESPONSE,
    (_CONNECTING, _ABORTED): _FINISHED,
    (_REQUEST, _REQUEST_COMPLETE): _WAITING,
    (_REQUEST, _RESPONSE_BEGUN): _RESPONSE,
    (_REQUEST, _ABORTED): _FINISHED,
    (_WAITING, _REPEATED): _CONNECTING,
    (_WAITING, _RESPONSE_BEGUN): _RESPONSE,
    (_WAITING, _ABORTED): _FINISHED,
    (_RESPONSE, _RESPONSE_COMPLETE): _RECORD,
    (_RESPONSE, _RELEASED): _FINISHED,
    (_RESPONSE, _ABORTED): _FINISHED,
    (_RECORD, _RESPONSE_BEGUN): _RESPONSE,
    (_RECORD, _RELEASED): _FINISHED,
    (_RECORD, _ABORTED): _FINISHED,
}

# The table by event, since each request looks up several.
(
    _on_reserving,
    _on_forwarded,
    _on_connected,
    _on_request_complete,
    _on_repeated,
    _on_response_begun,
    _on_response_complete,
    _on_released,
    _on_aborted,
) = ({before: after for (before, event), after in TRANSITIONS.items() if event is each} for each in ExchangeEvent)

#: Looking up a member of an enum costs three times what comparing it does, and each request does so several times.
_NO_LEVEL: Final = Level.NONE
_WORKLOAD: Final = Level.WORKLOAD
_UPGRADED: Final = ExchangeOutcome.UPGRADED


def overdue(
    timeouts: TimeoutSettings,
    upstream: str,
    *,
    now: float,
    started: float,
    activity: float,
    request_ended_at: float | None,
    answer_begun: bool,
    client_slow: bool,
    upstream_slow: bool,
) -> ProxyError | None:
    """
    Return why an exchange whose response is not read to its end has to end, or None.

    All times are monotonic; ``activity`` is when octets last moved on the client's connection, ``request_ended_at``
    None while the request is not complete. Slow is who leaves octets waiting that it should read.
    """
    if now - started >= timeouts.exchange:
        return UpstreamTimeout(upstream=upstream, seconds=timeouts.exchange)
    if not answer_begun and request_ended_at is not None:
        late = now - request_ended_at >= timeouts.response
        return UpstreamTimeout(upstream=upstream, seconds=timeouts.response) if late else None
    if now - activity < timeouts.stream:
        return None
    if client_slow:
        return AnswerNotTaken(seconds=timeouts.stream)
    if upstream_slow:
        return RequestNotTaken(upstream=upstream, seconds=timeouts.stream)
    return UpstreamTimeout(upstream=upstream, seconds=timeouts.stream) if answer_begun else RequestTimeout()


class ExchangeClient(RequestingClient, Protocol):
    """What an exchange needs of the connection of its client."""

    #: Whether it is lost.
    gone: bool

    @property
    def held(self) -> bool:
        """Whether it is not read because the application does not read the request."""

    def write(self, data: bytes) -> None:
        """Send octets to the client."""

    def resume_for_exchange(self) -> None:
        """Send what waits for the exchange, and read on."""

    def rest_at_hand(self) -> bool:
        """
        Whether the end of the current request is queued, so that the connection can go on after an early answer.

        It is looked for in unparsed octets no longer than a turn lasts.
        """

    def must_close(self, answered: Exchange | None) -> bool:
        """Whether a response ends the connection: that of the upstream of an exchange, for None one of the proxy."""

    def serve_notary(self, exchange: Exchange) -> None:
        """Answer a request for the reserved path."""

    def report_refused(self, error: SvcError, request: RequestHead | None = None, decision_id: str = "") -> None:
        """Count and report a refusal, of a request with the id of its decision or of the whole connection."""

    def exchange_finished(self, exchange: Exchange, tunnelled: UpstreamConnection | None) -> None:
        """Go on after a released response; ``tunnelled`` is the upstream connection after a granted upgrade."""

    def abort(self, cause: Cause) -> None:
        """Drop the connection, so that the client sees that something is missing."""


class Exchange:
    """One exchange of a client connection."""

    # What most exchanges never change is set here once.
    stage = _BEGINNING
    level = _NO_LEVEL
    request_ended = False
    #: Whether a time limit ended it.
    timed_out = False
    #: The request on its way to the upstream, once the policy has permitted it.
    upstream_request: UpstreamRequest | None = None
    #: How it ends, as its record and the log say.
    _outcome = ExchangeOutcome.COMPLETE
    #: The same where the client has left and the record, which is on its way, cannot be written.
    _outcome_unrecorded = ExchangeOutcome.CLIENT_ABORTED
    _seconds = 0.0
    _lookup = False
    #: What the policies decided, with its id where they refused it; None without a decision.
    _decision: Permit | Denied | None = None
    _decision_id = ""
    _body_octets = 0
    _recorder: Recorder | Observation | None = None
    _reservation: Reservation | None = None
    #: Outbound: what the peer has to prove, the exchange as its receipt must describe it, and where that is stored.
    _peers: PeerVerifier | None = None
    _observation: Observation | None = None
    _place: CollectedPlace | None = None
    #: Ends a wait for the admission of its record.
    _withdraw: Callable[[], None] | None = None
    _statement: PeerStatement | None = None
    _receipt_id: str | None = None
    _response: ResponseHead | None = None
    _writer: ResponseWriter | None = None

    def __init__(self, client: ExchangeClient, head: RequestHead) -> None:
        self._client = client
        self._context = context = client.context
        self.head = head
        self.started = self.request_ended_at = context.seconds()
        #: Whether the client's connection ends after this exchange.
        self.close = not head.keep_alive

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return self.stage is _FINISHED

    @property
    def permitted(self) -> bool:
        """Whether the policies have permitted it; they do not decide on requests for the notary's own paths."""
        return isinstance(self._decision, Permit)

    @property
    def _peer(self) -> str:
        """The verified client; outbound the peer whose statement is verified, else empty."""
        return self._client.caller.text if self._statement is None else str(self._statement.evidence.subject)

    # -- From the client ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Authorize the request and forward it, or answer at once."""
        context, client, head = self._context, self._client, self.head
        caller, level, nonce = client.caller, context.unasked, None
        if is_notary_path(head.path) and caller.listed is None:
            self._lookup = True
            client.serve_notary(self)
            return
        permit = caller.connection_permit
        try:
            if permit is None:
                permit = caller.permit(head)
            else:
                context.metrics.auth_allowed.inc()
            self._decision = permit
            if permit.bounded or head.reserved or (context.body_limit is not None and head.length):
                level, nonce = caller.notarization(head, permit)
        except Denied as denied:
            self._deny(denied)
            return
        except RequestAmbiguous as error:
            context.metrics.denied_policy.inc()
            context.reporter.exchange_failed(error.reason, caller.text, str(error))
            self.answer_error(error)
            return
        except ProxyError as error:
            self.answer_error(error)
            return
        self.upstream_request = UpstreamRequest(self, client, permit)
        if level is _NO_LEVEL:
            self._forward()
        elif context.peers is not None:
            self._ask_peer(context.peers, permit, level)
        elif (credentials := caller.credentials) is None or context.unix_time() >= caller.serves_until:
            if level.recorded:
                context.notary_metrics.records_failed.inc()
            self.answer_error(NotaryUnavailable())
        elif level is _WORKLOAD:
            self.level = level
            context.workload_exchanges.inc()
            self._forward()
        else:
            self.level = level
            self._reserve(credentials, nonce)

    def _ask_peer(self, peers: PeerVerifier, permit: Permit, level: Level) -> None:
        """Forward a request whose peer has to prove what it is; where its receipt is due, observe the exchange."""
        client, request = self._client, self.upstream_request
        nonce = new_nonce(client.random(NONCE_BYTES)) if level.recorded else None
        self._peers, self.level = peers, level
        if nonce is not None and peers.needs_receipt(level):
            self._recorder = self._observation = Observation(nonce, self._context.wall(), peers.kept)
        if request is not None:
            request.lines, request.observation = asking_lines(level, nonce), self._observation
        if nonce is not None and self._observation is not None and peers.collector is not None:
            self.stage = _on_reserving[self.stage]
            admission = peers.collector.admit(str(permit.identity), nonce)
            self._await_admission(peers.collector, admission)
            admission.addCallbacks(self._promised, self._not_promised)
        else:
            self._forward()

    def _promised(self, place: CollectedPlace) -> None:
        self._place = place
        self._go_on()

    def _not_promised(self, failure: Failure) -> None:
        error = failure.value if isinstance(failure.value, ProxyError) else NotaryUnavailable()
        self._refuse_record(error)
        self.answer_error(error)
        self._client.resume_for_exchange()

    def _refuse_record(self, error: ProxyError) -> None:
        """Count and report a request whose record is not admitted."""
        if isinstance(error, NotaryUnavailable):
            self._context.notary_metrics.records_failed.inc()
        self._context.reporter.exchange_failed(error.reason, self._client.caller.text, str(error))

    def _deny(self, denied: Denied) -> None:
        """Answer a request that the policies refuse, and report it with the id that the answer has."""
        self._decision = denied
        self._decision_id = b64u_encode(self._client.random(9))
        self._client.report_refused(denied, self.head, self._decision_id)
        body = problem_body(denied, self._decision_id)
        self.answer(denied.http_status, problem_fields(denied), body)

    def request_body(self, data: bytes) -> None:
        """Receive a piece of the request body, without chunk lines."""
        if self.stage is _RECORD or self.stage is _FINISHED:
            return
        self._body_octets += len(data)
        limit = self._context.body_limit
        if limit is not None and self._body_octets > limit:
            self._fail(RequestRefused("body_too_large", limit=limit))
            return
        if self._recorder is not None:
            self._recorder.request.update(data)
        if self.upstream_request is not None:
            self.upstream_request.body(data)

    def request_end(self, trailers: list[Field]) -> None:
        """Receive the end of the request."""
        self.request_ended = True
        self.request_ended_at = self._context.seconds()
        request, stage = self.upstream_request, self.stage
        if request is None or stage is _RECORD or stage is _FINISHED:
            return
        if self._recorder is not None:
            self._recorder.request.complete = True
            self._recorder.request_trailers = trailers
        if self.head.chunked:
            request.last_chunk(trailers)
        if stage is _REQUEST:
            self.stage = _on_request_complete[stage]

    def client_lost(self, outcome: ExchangeOutcome = ExchangeOutcome.CLIENT_ABORTED) -> None:
        """End because the client's connection is lost or about to be dropped; the record has the outcome."""
        stage = self.stage
        if stage is _FINISHED:
            return
        self._abort()
        if stage is _RECORD:
            self._outcome_unrecorded = outcome
            return
        self._outcome = outcome
        self._stop_observing()
        done = self._put_record()
        if done is None:
            self._report()
        else:
            # Nothing else waits for it, and its failure was reported.
            done.addBoth(lambda _result: self._report())

    # -- Admission ---------------------------------------------------------------------------------------------------

    def _reserve(self, credentials: CredentialSet, nonce: str | None) -> None:
        """Reserve what the record will need, before anything is forwarded."""
        context, client, level = self._context, self._client, self.level
        caller = client.caller
        if credentials.signature_octets > SIGNATURES_ROOM and not self._fits(credentials):
            return
        now = context.wall()
        self._recorder = Recorder(level, nonce, caller.peer, credentials.server, caller.tls, self.head, now)
        self.stage = _on_reserving[self.stage]
        admission = context.notarizer.admit(level, caller.text, nonce, credentials, context.record_octets)
        self._await_admission(context.notarizer, admission)
        admission.addCallbacks(self._admitted, self._not_admitted)

    def _await_admission(self, admits: Notarizer | ReceiptCollector, admission: Deferred[Any]) -> None:
        """Read no more of the client until it is there."""
        if not admission.called:
            self._client.pause_for_exchange()
            self._withdraw = partial(admits.withdraw, admission)

    def _fits(self, credentials: CredentialSet) -> bool:
        """Refuse a request whose record might be too large under credentials with unusually long chains."""
        context, head, signatures = self._context, self.head, credentials.signature_octets
        line = len(head.method) + len(head.target) + len(b"  HTTP/1.1\r\n\r\n")
        size = line + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.fields)
        if context.record_bound.admits(context.limits.head if head.chunked else size, signatures):
            return True
        error = RequestRefused("record_too_large", size=size, limit=MAX_ENVELOPE, signatures=signatures)
        context.reporter.exchange_failed(error.reason, self._client.caller.text, str(error))
        self.level = _WORKLOAD
        self.answer_error(error)
        return False

    def _admitted(self, reservation: Reservation) -> None:
        self._reservation = reservation
        if self.stage is _FINISHED:
            self._context.notarizer.abandon(reservation)
            return
        self._context.notary_metrics.level[reservation.level.value].inc()  # type: ignore[index]  # never at level none
        self._go_on()

    def _go_on(self) -> None:
        """Forward an admitted request; what it waited for is not the upstream's delay."""
        if self._withdraw is not None and self.request_ended:
            self.request_ended_at = self._context.seconds()
        self._forward()
        self._client.resume_for_exchange()

    def _not_admitted(self, failure: Failure) -> None:
        if self.stage is _FINISHED:
            return
        error = failure.value if isinstance(failure.value, ProxyError) else NotaryUnavailable()
        self._refuse_record(error)
        self._promise_no_record()
        self.answer_error(error)
        self._client.resume_for_exchange()

    def _promise_no_record(self) -> None:
        """Without an admission the answer waits for no record and claims none."""
        self._recorder = None
        self.level = _WORKLOAD

    def _stop_observing(self) -> None:
        """Give up the receipt of an exchange that the peer does not answer to its end."""
        if self._observation is not None:
            self._recorder = self._observation = None
            if self._place is not None and self._peers is not None and self._peers.collector is not None:
                self._peers.collector.abandon(self._place)

    def _forward(self) -> None:
        request = self.upstream_request
        if self.head.max_forwards == 0:
            self._answer_as_last()
        elif request is not None:
            self.stage = _on_forwarded[self.stage]
            request.send()

    # -- From the upstream -------------------------------------------------------------------------------------------

    def upstream_connected(self) -> None:
        """See :class:`svc.proxy.http.upstream_request.ForwardedExchange`."""
        self.stage = _on_connected[self.stage]
        if self.request_ended:
            self.stage = _on_request_complete[self.stage]
        self._client.resume_for_exchange()

    def upstream_failed(self, error: ProxyError) -> None:
        """See :class:`svc.proxy.http.upstream_request.ForwardedExchange`."""
        if self.stage is not _FINISHED:
            self._fail(error)
            self._client.resume_for_exchange()

    def upstream_events(self, events: list[Event]) -> None:
        """A part of the response has arrived."""
        out: list[bytes] = []
        if self._writer is not None:
            self._writer.arrives()
        for event in events:
            kind = type(event)
            if kind is bytes:
                out.append(self._writer.body(event))  # type: ignore[union-attr, arg-type]
            elif kind is ResponseHead:
                if self._peers is not None and (refusal := self._refusal(self._peers, event)) is not None:  # type: ignore[arg-type]
                    self._write(out)
                    self._fail(refusal)
                    return
                close = self.close or self._client.must_close(self) or not self.request_ended
                out.append(self._begin_response(event, close=close, own=False).first)  # type: ignore[arg-type]
            elif kind is End:
                out.append(self._writer.end(event.trailers))  # type: ignore[union-attr]
                reusable = type(events[-1]) is not Excess
                self._end_response(self._response, self._writer, out, reusable=reusable)  # type: ignore[arg-type]
                return
            elif kind is Interim:
                if self.head.version == "1.1":
                    out.append(interim_head(event.head))  # type: ignore[union-attr]
            elif kind is MessageRefused:
                self._write(out)
                upstream = self._context.pool.name
                self._fail(UpstreamMalformed(upstream=upstream, what=event.error.reason))  # type: ignore[union-attr]
                return
        self._write(out)
        if self.stage is _RESPONSE and self.upstream_request is not None:
            self.upstream_request.stream_response()

    def _refusal(self, peers: PeerVerifier, head: ResponseHead) -> ProxyError | None:
        """Why a response is not the one that was asked for; None where it is."""
        connection = None if self.upstream_request is None else self.upstream_request.connection
        self._statement = None if connection is None else connection.statement
        nonce = None if self._observation is None else self._observation.nonce
        try:
            peers.check_response(head, self._statement, self.level, nonce)
        except ProxyError as error:
            return error
        return None

    def upstream_lost(self, events: list[Event]) -> None:
        """Handle the end of the connection; ``events`` are those that it caused, such as the end of the response."""
        request = self.upstream_request
        if request is None:
            return
        if self._outcome is _UPGRADED:
            # The tunnel delivers what came before the end.
            return
        lost = request.detach()
        if lost is None or self.stage is _RECORD or self.stage is _FINISHED:
            return
        if events and type(events[-1]) is End:
            self.upstream_events(events)
        elif self.stage is _WAITING and request.may_repeat(lost):
            self.stage = _on_repeated[self.stage]
            request.repeat()
        elif lost.loss is not None:
            self._fail(lost.loss)
        elif self._response is None and not lost.answer_begun:
            self._fail(UpstreamClosed(upstream=self._context.pool.name))
        else:
            self._fail(UpstreamMalformed(upstream=self._context.pool.name, what="truncated"))

    def _begin_response(self, head: ResponseHead, *, close: bool, own: bool) -> ResponseWriter:
        self.stage = _on_response_begun[self.stage]
        self._response = head
        caller, level = self._client.caller, self.level
        # Most responses contain the same lines as all others of the connection.
        if level is _WORKLOAD:
            added = caller.workload_lines
        elif self._place is None or self._statement is None or own:
            added = caller.response_lines(level, self._reservation, own=own)
        else:
            added = notary_lines(self._statement.evidence.id, level, self._place.nonce)
        writer = ResponseWriter(self.head, head, close=close, added=added, recorder=self._recorder)
        self._writer = writer
        self.close = writer.close
        return writer

    def _end_response(
        self, response: ResponseHead, writer: ResponseWriter, out: list[bytes], *, reusable: bool
    ) -> None:
        recorder, request = self._recorder, self.upstream_request
        connection: UpstreamConnection | None = None
        if recorder is not None:
            self.stage = _on_response_complete[self.stage]
        if response.status == 101:
            self._outcome = _UPGRADED
            if request is not None:
                request.pause_for_tunnel()
        elif request is not None:
            reusable = reusable and response.keep_alive and self.request_ended
            if recorder is None or recorder is not self._observation:
                request.release(reusable=reusable)
            else:
                connection = request.keep(reusable=reusable)
        if recorder is None:
            self._write(out)
            self._finish()
            return
        self._write(writer.withhold(out) if self._observation is None else out)
        if not writer.first:
            self._context.released(ReleasePoint.HEAD_WITHHELD)
        if self._observation is not None:
            obtained = Deferred.fromCoroutine(self._obtain_receipt(self._observation, connection))
            obtained.addCallbacks(self._released, self._receipt_refused)
            return
        done = self._put_record(self._late)
        if done is not None:
            done.addCallbacks(self._released, self._unrecorded)

    async def _obtain_receipt(self, observation: Observation, connection: UpstreamConnection | None) -> None:
        """Verify the receipt of the peer, and store it where that was promised."""
        peers, statement, permit = self._peers, self._statement, self._decision
        if peers is None or statement is None or not isinstance(permit, Permit):
            raise TypeError("a receipt belongs to a response on a verified connection")
        context = self._context
        receipt = await peers.receipt(observation, statement, context.pool, permit, connection)
        if self._place is not None and peers.collector is not None:
            await peers.collector.put(self._place, receipt.evidence, receipt.artifact, statement)
            context.notary_metrics.records_written.inc()
        self._receipt_id = receipt.evidence.id

    def _receipt_refused(self, failure: Failure) -> None:
        """End an exchange whose receipt is not there: with an answer while nothing of the response was sent."""
        error = refusal_of(failure)
        self._context.reporter.exchange_failed(error.reason, self._peer, str(error), error.detail_reason)
        if isinstance(error, NotaryUnavailable):
            self._context.notary_metrics.records_failed.inc()
        writer = self._writer
        if self.stage is _FINISHED:
            self._stop_observing()
            self._outcome = self._outcome_unrecorded
            self._report()
        elif writer is not None and not writer.first:
            if self.upstream_request is not None:
                self.upstream_request.drop()
            self._outcome = ExchangeOutcome.COMPLETE
            self.answer_error(error)
        else:
            self._stop_observing()
            self._abort()
            self._outcome = ExchangeOutcome.SERVER_ABORTED
            self._client.abort("server_aborted")
            self._report()

    # -- Release -----------------------------------------------------------------------------------------------------

    def _write(self, out: list[bytes]) -> None:
        data = out[0] if len(out) == 1 else b"".join(out)
        if data and not self._client.gone:
            self._client.write(data)

    def _put_record(self, late: Callable[[], ExchangeOutcome] | None = None) -> Deferred[None] | None:
        """Commit the record, where one was promised."""
        recorder, reservation = self._recorder, self._reservation
        if reservation is None or not isinstance(recorder, Recorder):
            return None
        return put_record(self._context, self._client.caller.text, reservation, recorder, self._outcome, late)

    def _late(self) -> ExchangeOutcome:
        """Break off a response whose record is not durable in time; the record in its place says so."""
        if self._writer is not None and isinstance(self._recorder, Recorder):
            self._writer.cut(self._recorder)
        if self.stage is not _FINISHED:
            self._abort()
            self._outcome_unrecorded = ExchangeOutcome.SERVER_ABORTED
            self._client.abort("record")
        self._outcome = self._outcome_unrecorded
        return self._outcome

    def _released(self, _result: None) -> None:
        if self.stage is _FINISHED:
            # The client left meanwhile; the log reports the outcome that the record has.
            self._report()
            return
        released = self._context.released
        released(ReleasePoint.RECEIPT_COMMITTED)
        if self._writer is not None:
            self._write([self._writer.held])
        released(ReleasePoint.LAST_BYTE_WRITTEN)
        self._finish()

    def _unrecorded(self, _failure: Failure) -> None:
        if self.stage is _FINISHED:
            self._outcome = self._outcome_unrecorded
        else:
            self._abort()
            self._outcome = ExchangeOutcome.SERVER_ABORTED
            self._client.abort("record")
        self._report()

    def _finish(self) -> None:
        self.stage = _on_released[self.stage]
        self._measure()
        client, request = self._client, self.upstream_request
        # They refer to each other; without this each request would wait for the garbage collector.
        self.upstream_request = None
        if self._outcome is _UPGRADED and request is not None:
            # Reported when both connections have ended.
            client.exchange_finished(self, request.take_connection())
            return
        reporter = self._context.reporter
        if reporter.every_exchange or (
            reporter.recorded_exchanges and (self._reservation is not None or self._place is not None)
        ):
            self._report()
        client.exchange_finished(self, None)

    def _abort(self) -> None:
        if self.stage is _ADMISSION and self._withdraw is not None:
            self._withdraw()
        self.stage = _on_aborted[self.stage]
        if self.upstream_request is not None:
            self.upstream_request.drop()
            self.upstream_request = None
        self._measure()

    def _measure(self) -> None:
        """Measure an exchange that is over; counted where there was a response."""
        context = self._context
        self._seconds = seconds = context.seconds() - self.started
        if self._response is None:
            return
        if self._lookup:
            context.notary_metrics.lookups.observe(seconds)
        else:
            context.durations.get(self.head.method, context.other_durations).observe(seconds)

    def _report(self) -> None:
        """Report an exchange that is over; called once, after its record is durable or has failed."""
        context, reservation, response, writer = self._context, self._reservation, self._response, self._writer
        decision, statement = self._decision, self._statement
        context.reporter.exchange_ended(
            ExchangeSummary(
                listener=context.name,
                direction=context.metrics.direction,
                peer=self._peer,
                method=self.head.method,
                path=self.head.path,
                lookup=self._lookup,
                status=None if response is None else response.status,
                request_octets=self._body_octets,
                response_octets=0 if writer is None else writer.octets,
                seconds=self._seconds,
                level=self.level,
                recorded=reservation is not None or self._place is not None,
                receipt_id=self._receipt_id if reservation is None else reservation.receipt_id,
                outcome=self._outcome,
                decision=None
                if decision is None
                else PolicyDecision(decision.policy, decision.rule, self._decision_id),
                statement_id=None if statement is None else statement.evidence.id,
            )
        )

    def tunnel_ended(self, from_client: int, from_upstream: int) -> None:
        """Report an upgraded exchange, with the octets that each side sent through the tunnel."""
        self._body_octets += from_client
        if self._writer is not None:
            self._writer.octets += from_upstream
        self._seconds = self._context.seconds() - self.started
        self._report()

    # -- The proxy's own endings -------------------------------------------------------------------------------------

    def answer_error(self, error: SvcError) -> None:
        """Answer with a problem document."""
        self.answer(error.http_status, problem_fields(error), problem_body(error))

    def answer(self, status: int, fields: list[Field], body: bytes) -> None:
        """Answer in place of the application; recorded where the exchange is."""
        client = self._client
        self._stop_observing()
        if not self.request_ended and not client.rest_at_hand():
            self.close = True
        head = own_head(status, fields, len(body))
        writer = self._begin_response(head, close=self.close or client.must_close(None), own=True)
        out = [writer.first]
        if body and self.head.method != b"HEAD":
            out.append(writer.body(body))
        out.append(writer.end([]))
        self._end_response(head, writer, out, reusable=False)

    def _answer_as_last(self) -> None:
        """
        Answer a request that may not be forwarded, because Max-Forwards is used up (RFC 9110 section 7.6.2).

        What a client sent is not repeated to it: it may hold credentials.
        """
        if self.head.method == b"TRACE":
            self.answer_error(RequestRefused("trace_ended"))
        else:
            self.answer(200, [], b"")

    def _fail(self, error: ProxyError) -> None:
        """End for a fault on the way: with an answer while that is possible, else by aborting the connection."""
        stage = self.stage
        if stage is _RECORD or stage is _FINISHED:
            return
        context = self._context
        context.reporter.exchange_failed(error.reason, self._peer, str(error), error.detail_reason)
        if self.upstream_request is not None:
            self.upstream_request.drop()
        if stage is _ADMISSION:
            if self._withdraw is not None:
                self._withdraw()
            self._promise_no_record()
            if error.outcome is ExchangeOutcome.TIMEOUT:
                # What is late is the store: nothing else is waited for before the admission.
                context.notary_metrics.records_failed.inc()
        if self._response is not None:
            self.cut(error.outcome)
        else:
            self.answer_error(error)

    def cut(self, outcome: ExchangeOutcome) -> None:
        """End at once, so that the client sees that something is missing."""
        if self.stage is not _FINISHED:
            self.client_lost(outcome)
            self._client.abort("timeout" if outcome is ExchangeOutcome.TIMEOUT else "server_aborted")

    def sweep(self, now: float, activity: float) -> None:
        """End the exchange if it has taken too long; ``activity`` is when octets last moved on the connection."""
        if self.stage is _RECORD or self.stage is _FINISHED:
            return
        request = self.upstream_request
        held = self._context.notarizer.longest_wait if self.stage is _ADMISSION else 0.0
        error = overdue(
            self._context.timeouts,
            self._context.pool.name,
            now=now,
            started=self.started,
            activity=activity,
            request_ended_at=self.request_ended_at + held if self.request_ended else None,
            answer_begun=self._response is not None,
            client_slow=request is not None and request.client_slow,
            upstream_slow=self._client.held,
        )
        if error is not None:
            self.timed_out = True
            self._fail(error)
