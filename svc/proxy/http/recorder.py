"""
What a record contains of one exchange, collected while its octets stream, and the commit of that record; outbound, what
the receipt of the peer is compared with.

Owns the running digests; holds no body, and outbound a bounded part of a request body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity import certificate_sha256
from svc.notary.beginnings import Beginnings, KeptOctets
from svc.notary.exchange import (
    EMPTY_BODY,
    BodySummary,
    ExchangeOutcome,
    ObservedExchange,
    Peer,
    RecordedExchange,
    TlsFacts,
    octets_as_text,
    split_target,
)
from svc.notary.level import Level
from svc.strictjson import b64u_encode
from svc.wire.fields import Field
from svc.wire.http1 import RequestHead, ResponseHead

if TYPE_CHECKING:
    from svc.proxy.errors import NotaryUnavailable
    from svc.proxy.records.notarizer import Notarizer, Reservation
    from svc.proxy.reporter import Reporter
    from svc.telemetry.metrics import NotaryMetrics
    from svc.transport.evidence import PeerEvidence


class BodyDigest:
    """The SHA-256 and size of a body that streams."""

    __slots__ = ("_hash", "complete", "size")

    def __init__(self) -> None:
        #: None until the first octets: most requests have no body.
        self._hash: Any = None
        self.size = 0
        self.complete = False

    def update(self, data: bytes) -> None:
        """Add the next octets of the content, without chunk lines."""
        if self._hash is None:
            self._hash = hashlib.sha256(data)
        else:
            self._hash.update(data)
        self.size += len(data)

    def copy(self) -> BodyDigest:
        """Return another one in the same state."""
        copied = BodyDigest()
        copied.size = self.size
        copied._hash = None if self._hash is None else self._hash.copy()
        return copied

    def summary(self) -> BodySummary:
        """Return size and digest so far, and whether that is the whole body."""
        return BodySummary(self.size, self._digest(), self.complete)

    def _digest(self) -> bytes:
        digest: bytes = EMPTY_BODY.sha256 if self._hash is None else self._hash.digest()
        return digest


class PrefixDigest(BodyDigest):
    """The same, with the digests of its beginnings that a peer which answers early can attest."""

    __slots__ = ("_beginnings",)

    def __init__(self, together: KeptOctets) -> None:
        super().__init__()
        self._beginnings = Beginnings(together)

    def update(self, data: bytes) -> None:
        """See :meth:`BodyDigest.update`."""
        self._beginnings.add(self.size, self._hash, data)
        super().update(data)

    def prefix(self, size: int) -> bytes | None:
        """The SHA-256 of the first octets; None where it is not known any more, or there are fewer."""
        return self._digest() if size == self.size else self._beginnings.digest(size)


class ExchangeDigests:
    """The two messages of an exchange, as far as they have passed."""

    __slots__ = ("request", "request_trailers", "response", "response_fields", "response_trailers", "status")

    request: BodyDigest

    def __init__(self) -> None:
        self.request_trailers: list[Field] = []
        self.response = BodyDigest()
        self.response_fields: list[Field] = []
        self.response_trailers: list[Field] = []
        self.status: int | None = None

    def begin_response(self, head: ResponseHead) -> None:
        """Take the head of the final response."""
        raise NotImplementedError

    def end_response(self, received: list[Field], released: list[Field]) -> None:
        """Take the trailers of a complete response: those that arrived, and those of them that the client gets."""
        raise NotImplementedError


class Recorder(ExchangeDigests):
    """Collects one exchange of level ``logRequest`` or ``signRequest``; ``server`` is the identity that answers."""

    __slots__ = ("_client", "_head", "_level", "_nonce", "_received", "_server", "_tls")

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
        super().__init__()
        self._level = level
        self._nonce = nonce
        self._client = client
        self._server = server
        self._tls = tls
        self._head = head
        self._received = received
        self.request = BodyDigest()

    def begin_response(self, head: ResponseHead) -> None:
        """A record has the response as the client gets it."""
        self.status, self.response_fields = head.status, head.end_to_end

    def end_response(self, received: list[Field], released: list[Field]) -> None:
        """See :meth:`begin_response`."""
        self.response_trailers, self.response.complete = released, True

    def cut_response(self, given: BodyDigest | None) -> None:
        """Keep of a response what its client was given: no more than this part of the body, None for nothing at all."""
        self.response, self.response_trailers = given or BodyDigest(), []
        if given is None:
            self.status, self.response_fields = None, []

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
            request_headers=head.fields,
            request_body=self.request.summary(),
            request_trailers=self.request_trailers,
            status=self.status,
            response_headers=self.response_fields,
            response_body=self.response.summary(),
            response_trailers=self.response_trailers,
            received=self._received,
            # The clock may have been set back meanwhile: nothing ends before it began.
            completed=max(completed, self._received),
            outcome=outcome,
        )


class Observation(ExchangeDigests):
    """
    One exchange with the peer of an outbound listener in this side's view; ``nonce`` is that of its request.

    Attributes:
        head: the octets of the request head as sent.
    """

    __slots__ = ("_started", "head", "nonce")

    request: PrefixDigest

    def __init__(self, nonce: str, started: datetime, together: KeptOctets) -> None:
        super().__init__()
        self.nonce = nonce
        self._started = started
        self.head = b""
        self.request = PrefixDigest(together)

    def begin_response(self, head: ResponseHead) -> None:
        """A receipt is compared with the response as it arrived: it may have fields that are not passed on."""
        self.status, self.response_fields = head.status, head.fields

    def end_response(self, received: list[Field], released: list[Field]) -> None:
        """See :meth:`begin_response`."""
        self.response_trailers, self.response.complete = received, True

    def observed(self, evidence: PeerEvidence) -> ObservedExchange:
        """Describe it for the verification of its receipt; ``evidence`` is of the connection of the exchange."""
        line, *lines = self.head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        method, target, _version = line.split(b" ")
        fields = [(name, value) for name, _colon, value in (each.partition(b": ") for each in lines)]
        authority = next((value for name, value in fields if name.lower() == b"host"), b"")
        path, query = split_target(target)
        own = evidence.own_svid
        return ObservedExchange(
            nonce=self.nonce,
            started=self._started,
            client=Peer(own.spiffe_id, b64u_encode(certificate_sha256(own.leaf))),
            tls=TlsFacts(evidence.tls_version, evidence.group, evidence.cipher, evidence.post_quantum),
            method=octets_as_text(method),
            authority=octets_as_text(authority),
            path=path,
            query=query,
            request_headers=fields,
            request_body=self.request.summary(),
            request_prefix=self.request.prefix,
            status=self.status or 0,
            response_headers=self.response_fields,
            response_body=self.response.summary(),
            response_trailers=self.response_trailers,
            request_trailers=self.request_trailers,
        )


class RecordingContext(Protocol):
    """What the commit of a record needs of the context of its listener."""

    notarizer: Notarizer
    notary_metrics: NotaryMetrics
    reporter: Reporter

    @property
    def wall(self) -> Callable[[], datetime]:
        """The wall clock, aware UTC."""


def put_record(
    context: RecordingContext,
    peer: str,
    reservation: Reservation,
    recorder: Recorder,
    outcome: ExchangeOutcome,
    late: Callable[[], ExchangeOutcome] | None = None,
) -> Deferred[None]:
    """
    Commit the record of an exchange; count and report the result.

    Fires when the record is on disk; fails as :meth:`svc.proxy.records.notarizer.Notarizer.commit`. Where it is not
    durable in time ``late`` ends the exchange, and how it ended is recorded in its place.
    """

    def written(_signed: object) -> None:
        context.notary_metrics.records_written.inc()

    reported = False

    def report(error: BaseException | None) -> None:
        context.notary_metrics.records_failed.inc()
        reason, what = type(error).__name__, "the record could not be committed"
        if isinstance(error, SvcError):
            reason, what = error.reason, f"{what}: {error}"
        context.reporter.exchange_failed(reason, peer, what)

    def failed(failure: Failure) -> Failure:
        if not reported:
            report(failure.value)
        return failure

    def broken_off(error: NotaryUnavailable) -> RecordedExchange:
        nonlocal reported
        reported = True
        report(error)
        ended = outcome if late is None else late()
        return recorder.exchange(reservation.jti, ended, context.wall())

    exchange = recorder.exchange(reservation.jti, outcome, context.wall())
    done = context.notarizer.commit(reservation, exchange, None if late is None else broken_off)
    return done.addCallbacks(written, failed)
