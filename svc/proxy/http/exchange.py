"""
One request and its response, from the head to the release of the last octet.

Owns the order of things: level and nonce, policy, admission by the notary, the response, the record, the release. How
the request gets to the application is in :mod:`svc.proxy.http.forwarding`. A recorded exchange withholds the end of its
response (the last octet, the last chunk, the end of the connection, or the head where no body follows) until its record
is durable.

The life of an exchange::

    begin -> [admission] -> [upstream connects] -> request streams -> response streams -> [commit] -> finished
       any step may instead answer with the proxy's own response, or abort once a part of the response was released
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.notary.access import is_notary_path
from svc.notary.envelope import MAX_ENVELOPE
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level, effective_level
from svc.notary.record_bound import SIGNATURES_ROOM
from svc.policy import Denied
from svc.proxy.errors import (
    BodyTooLarge,
    NotaryUnavailable,
    ProxyError,
    RecordTooLarge,
    TraceEnded,
    UpstreamClosed,
    UpstreamMalformed,
)
from svc.proxy.http.answers import own_head, problem_body, problem_fields
from svc.proxy.http.deadlines import overdue
from svc.proxy.http.forwarding import ForwardedRequest
from svc.proxy.http.heads import head_octets, interim_head
from svc.proxy.http.notary_headers import asked_level, given_nonce
from svc.proxy.http.record import put_record
from svc.proxy.http.recorder import Recorder
from svc.proxy.http.response import ResponseWriter
from svc.proxy.http.summary import ExchangeSummary
from svc.proxy.release_points import ReleasePoint
from svc.wire.fields import Field
from svc.wire.http1 import End, Event, Excess, Interim, MessageRefused, ResponseHead

if TYPE_CHECKING:
    from svc.notary.credentials import CredentialSet
    from svc.proxy.notarizer import Reservation

#: Looking up a member of an enum costs three times what comparing it does, and each request does so several times.
_NONE: Final = Level.NONE
_WORKLOAD: Final = Level.WORKLOAD


class Exchange(ForwardedRequest):
    """
    One exchange of a client connection.

    Args:
        client: the connection.
        head: the request.
    """

    # What most exchanges never change stands here once.
    overdue = False
    upgraded = False
    _level = _NONE
    _reservation: Reservation | None = None
    _response: ResponseHead | None = None
    _writer: ResponseWriter | None = None
    _lookup = False
    #: How and after how many seconds it ended for a client that left while the record was on its way.
    _left = (ExchangeOutcome.CLIENT_ABORTED, 0.0)

    # -- From the client ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Judge the head and set out for the upstream, or answer at once."""
        context, client, head = self._context, self._client, self.head
        if is_notary_path(head.path):
            self._lookup = True
            client.serve_notary(self)
            return
        caller = client.caller
        try:
            self._permit = caller.permit(head)
            if not context.inbound:
                self._forward()
                return
            limit = context.limits.body
            if limit is not None and head.length is not None and head.length > limit:
                raise BodyTooLarge(limit=limit)
            asked, nonce = (asked_level(head), given_nonce(head)) if head.reserved else (_NONE, None)
        except Denied as denied:
            client.denied(denied, head)
            self.answer_error(denied)
            return
        except ProxyError as error:
            self.answer_error(error)
            return
        level = context.unasked
        if asked is not _NONE:
            level = effective_level(demanded=context.demanded, asked=asked, maximum=context.maximum)
        self._level = level
        if level is _NONE:
            self._forward()
            return
        credentials = caller.credentials
        if credentials is None or not credentials.valid_at(context.wall()):
            self._level = _NONE
            if level.recorded:
                context.notary_metrics.records_failed.inc()
            self.answer_error(NotaryUnavailable())
            return
        if level is _WORKLOAD:
            self._begin_at_level()
            return
        if credentials.signature_octets > SIGNATURES_ROOM and not self._fits_record(credentials):
            return
        self._recorder = Recorder(level, nonce, caller.peer, credentials.server, caller.tls, head, context.wall())
        admission = context.notarizer.admit(level, caller.text, nonce, credentials, context.record_octets)
        if not admission.called:
            client.pause_for_exchange()
        admission.addCallbacks(self._admitted, self._not_admitted)

    def client_lost(self, outcome: ExchangeOutcome = ExchangeOutcome.CLIENT_ABORTED) -> None:
        """
        The client's connection is gone, or is about to be dropped.

        Args:
            outcome: what the record says of it.
        """
        if self.finished:
            return
        self.finished = True
        self._drop_upstream()
        seconds = self._observe()
        if self._response_ended:
            self._left = outcome, seconds
            return
        done = self._recorded(outcome)
        if done is None:
            self._report(outcome, seconds)
        else:
            # Nobody else waits for it, and its failure was reported.
            done.addBoth(lambda _result: self._report(outcome, seconds))

    # -- Admission ---------------------------------------------------------------------------------------------------

    def _fits_record(self, credentials: CredentialSet) -> bool:
        """Refuse a request that could not be recorded under credentials with unusually long chains."""
        context, head, signatures = self._context, self.head, credentials.signature_octets
        size = head_octets(head)
        if context.record_bound.admits(context.limits.head if head.chunked else size, signatures):
            return True
        error = RecordTooLarge(size=size, limit=MAX_ENVELOPE, signatures=signatures)
        context.reporter.exchange_failed(error.reason, self._client.caller.text, str(error))
        self._level = _WORKLOAD
        self.answer_error(error)
        return False

    def _admitted(self, reservation: Reservation) -> None:
        self._reservation = reservation
        if self.finished:
            self._context.notarizer.abandon(reservation)
            return
        self._begin_at_level()
        self._client.resume_for_exchange()

    def _begin_at_level(self) -> None:
        """Nothing stands in the way any more."""
        self._context.notary_metrics.level[self._level.value].inc()  # type: ignore[index]  # never at level none
        self._forward()

    def _not_admitted(self, failure: Failure) -> None:
        if self.finished:
            return
        error = failure.value if isinstance(failure.value, ProxyError) else NotaryUnavailable()
        if isinstance(error, NotaryUnavailable):
            self._context.notary_metrics.records_failed.inc()
        self._context.reporter.exchange_failed(error.reason, self._client.caller.text, str(error))
        self._recorder = None
        self._level = _WORKLOAD
        self.answer_error(error)
        self._client.resume_for_exchange()

    # -- From the upstream -------------------------------------------------------------------------------------------

    def upstream_events(self, events: list[Event]) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""
        out: list[bytes] = []
        for event in events:
            kind = type(event)
            if kind is bytes:
                out.append(self._writer.body(event))  # type: ignore[union-attr, arg-type]
            elif kind is ResponseHead:
                self._response_start(event, out)  # type: ignore[arg-type]
            elif kind is End:
                out.append(self._writer.end(event.trailers))  # type: ignore[union-attr]
                reusable = type(events[-1]) is not Excess
                self._response_end(self._response, self._writer, out, reusable=reusable)  # type: ignore[arg-type]
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
        if self._response is not None and not self._streaming_down and self._upstream is not None:
            self._streaming_down = True
            self._client.stream_from(self._upstream)

    def upstream_lost(self, events: list[Event]) -> None:
        """See :class:`svc.proxy.http.upstream.UpstreamUser`."""
        self._stop_streaming_up()
        if self.upgraded:
            # The tunnel delivers what came before the end.
            return
        upstream, self._upstream = self._upstream, None
        if self.finished or self._response_ended:
            return
        if events and type(events[-1]) is End:
            self.upstream_events(events)
            return
        if self._response is None and upstream is not None and self._repeat(upstream):
            return
        name = self._context.pool.name
        if upstream is not None and upstream.loss is not None:
            self._fail(upstream.loss)
        elif self._response is None and not (upstream is not None and upstream.answer_begun):
            self._fail(UpstreamClosed(upstream=name))
        else:
            self._fail(UpstreamMalformed(upstream=name, what="truncated"))

    def _response_start(self, head: ResponseHead, out: list[bytes], *, own: bool = False) -> None:
        self._response = head
        client = self._client
        self._writer = ResponseWriter(
            self.head,
            head,
            close=self.close or client.must_close or not self.request_ended,
            added=client.caller.response_lines(self._level, self._reservation, own=own),
            recorder=self._recorder,
        )
        self.close = self._writer.close
        out.append(self._writer.first)

    def _response_end(
        self, response: ResponseHead, writer: ResponseWriter, out: list[bytes], *, reusable: bool
    ) -> None:
        self._response_ended = True
        self._hand_back(response, reusable)
        self._write(out)
        if self._recorder is None:
            self._finish()
        else:
            if not writer.first:
                self._context.released(ReleasePoint.HEAD_WITHHELD)
            self._commit(self._final_outcome)

    def _hand_back(self, response: ResponseHead, reusable: bool) -> None:
        self._stop_streaming_up()
        self._stop_streaming_down()
        if response.status == 101:
            self.upgraded = True
            if self._upstream is not None:
                # Until the tunnel stands nobody takes what the application sends.
                self._upstream.pauseProducing()
            return
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.release(reusable=response.keep_alive and self.request_ended and reusable)

    # -- Release -----------------------------------------------------------------------------------------------------

    def _write(self, out: list[bytes]) -> None:
        data = out[0] if len(out) == 1 else b"".join(out)
        if data and not self._client.gone:
            self._client.write(data)

    def _commit(self, outcome: ExchangeOutcome) -> None:
        done = self._recorded(outcome)
        if done is not None:
            done.addCallbacks(self._released, self._unrecorded)

    def _recorded(self, outcome: ExchangeOutcome) -> Deferred[None] | None:
        """Put the record on its way, where there is to be one."""
        recorder, reservation = self._recorder, self._reservation
        if recorder is None or reservation is None:
            return None
        return put_record(self._context, self._client.caller.text, reservation, recorder, outcome)

    def _released(self, _result: None) -> None:
        if self.finished:
            # The client left meanwhile; the log says of the exchange what its record says.
            self._report(self._final_outcome, self._left[1])
            return
        released = self._context.released
        released(ReleasePoint.RECEIPT_COMMITTED)
        if self._writer is not None:
            self._write([self._writer.held])
        released(ReleasePoint.LAST_BYTE_WRITTEN)
        self._finish()

    def _unrecorded(self, _failure: Failure) -> None:
        if self.finished:
            self._report(*self._left)
            return
        self.finished = True
        self._drop_upstream()
        seconds = self._observe()
        self._client.abort("record")
        self._report(ExchangeOutcome.SERVER_ABORTED, seconds)

    def _finish(self) -> None:
        self.finished = True
        seconds = self._observe()
        if self.upgraded:
            # Reported when both connections have ended.
            upstream, self._upstream = self._upstream, None
            self._client.exchange_finished(self, upstream)
            return
        if self._reservation is not None or self._context.reporter.every_exchange:
            self._report(ExchangeOutcome.COMPLETE, seconds)
        self._client.exchange_finished(self, None)

    # -- What operators see ------------------------------------------------------------------------------------------

    @property
    def _final_outcome(self) -> ExchangeOutcome:
        return ExchangeOutcome.UPGRADED if self.upgraded else ExchangeOutcome.COMPLETE

    def _observe(self) -> float:
        """Measure an exchange that is over; called once, and counted where there was a response."""
        context = self._context
        seconds = context.seconds() - self.started
        if self._lookup:
            if self._response is not None:
                context.notary_metrics.lookups.observe(seconds)
        elif self._response is not None:
            context.metrics.request_duration(self.head.method).observe(seconds)
        return seconds

    def _report(self, outcome: ExchangeOutcome, seconds: float) -> None:
        """Report an exchange that is over; called once, after its record is durable or has failed."""
        context, reservation = self._context, self._reservation
        head, response, writer = self.head, self._response, self._writer
        context.reporter.exchange_ended(
            ExchangeSummary(
                listener=context.name,
                direction="inbound" if context.inbound else "outbound",
                peer=self._client.caller.text,
                method=head.method,
                path=head.path,
                lookup=self._lookup,
                status=None if response is None else response.status,
                request_octets=self._body_in,
                response_octets=0 if writer is None else writer.octets,
                seconds=seconds,
                level=self._level,
                recorded=reservation is not None,
                receipt_id=None if reservation is None else reservation.receipt_id,
                outcome=outcome,
            )
        )

    def tunnel_ended(self, from_client: int, from_upstream: int) -> None:
        """
        Report an exchange whose connections were joined after an upgrade.

        Args:
            from_client: octets that the client sent after the upgrade.
            from_upstream: octets that the application sent after it.
        """
        self._body_in += from_client
        if self._writer is not None:
            self._writer.octets += from_upstream
        self._report(ExchangeOutcome.UPGRADED, self._context.seconds() - self.started)

    # -- The proxy's own endings -------------------------------------------------------------------------------------

    def answer_error(self, error: SvcError) -> None:
        """
        Answer with a problem document.

        Args:
            error: its reason and status are told.
        """
        self.answer(error.http_status, problem_fields(error), problem_body(error))

    def answer(self, status: int, fields: list[Field], body: bytes) -> None:
        """
        Answer in place of the application; recorded where the exchange is.

        Args:
            status: the status code.
            fields: fields without framing.
            body: the content.
        """
        client = self._client
        if not self.request_ended and not client.rest_at_hand():
            self.close = True
        self._response = own_head(status, fields, len(body))
        out: list[bytes] = []
        ended, self.request_ended = self.request_ended, self.request_ended or not self.close
        self._response_start(self._response, out, own=True)
        self.request_ended = ended
        writer = self._writer
        if writer is not None:
            if body and self.head.method != b"HEAD":
                out.append(writer.body(body))
            out.append(writer.end([]))
            self._response_end(self._response, writer, out, reusable=False)

    def _answer_as_last(self) -> None:
        """See :class:`ForwardedRequest`. What a client sent is not repeated to it: it may hold credentials."""
        if self.head.method == b"TRACE":
            self.answer_error(TraceEnded())
        else:
            self.answer(200, [], b"")

    def _fail(self, error: ProxyError) -> None:
        """End for a fault on the way: with an answer while that is possible, else by breaking off."""
        if self.finished or self._response_ended:
            return
        late = error.http_status in (408, 504)
        self._context.reporter.exchange_failed(error.reason, self._client.caller.text, str(error), error.detail_reason)
        self._drop_upstream()
        if self._recorder is not None and self._reservation is None:
            # Not admitted yet: no record was promised, so the answer waits for none, nor does it claim one.
            self._recorder = None
            self._level = _WORKLOAD
            if late:
                # What is late is the store: nobody else is asked before the admission.
                self._context.notary_metrics.records_failed.inc()
        if self._response is not None:
            self._break_off(ExchangeOutcome.TIMEOUT if late else ExchangeOutcome.SERVER_ABORTED)
            return
        self.answer_error(error)

    def _break_off(self, outcome: ExchangeOutcome) -> None:
        self.client_lost(outcome)
        self._client.abort("timeout" if outcome is ExchangeOutcome.TIMEOUT else "server_aborted")

    def sweep(self, now: float, activity: float) -> None:
        """
        Judge the times of this exchange.

        Args:
            now: the monotonic time.
            activity: when octets last moved on the client's connection.
        """
        if self.finished or self._response_ended:
            return
        error = overdue(
            self._context.timeouts,
            self._context.pool.name,
            now=now,
            started=self.started,
            activity=activity,
            request_ended_at=self.request_ended_at if self.request_ended else None,
            answer_begun=self._response is not None,
            client_slow=self._streaming_down and self._upstream is not None and self._upstream.held,
            upstream_slow=self._client.held,
        )
        if error is not None:
            self.overdue = True
            self._fail(error)

    def cut(self, outcome: ExchangeOutcome) -> None:
        """
        End at once for a reason of our own.

        Args:
            outcome: what the record says.
        """
        if not self.finished:
            self._break_off(outcome)
