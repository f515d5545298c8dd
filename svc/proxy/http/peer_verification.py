"""
What an outbound listener demands of its peer: a verified statement for each connection before a request uses it, and a
verified receipt for an exchange before its response ends.

Owns the requests for both on upstream connections, their time limits, and how a refusal is reported to the application.
The rules of verification are in :mod:`svc.notary`, the order of an exchange in :mod:`svc.proxy.http.exchange`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.notary.access import receipt_location, statement_path
from svc.notary.artifact import ReceiptArtifact, parse_receipt
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.beginnings import KeptOctets
from svc.notary.errors import ReceiptRefused, SignerTrustDomainUnknown, StatementMissing, StatementRefused
from svc.notary.level import Level, check_level
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.notary.response_headers import named_level, named_receipt_path, named_statement, pending_pause
from svc.notary.statement import SelfIssued, StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.policy.engine import Denied, Permit
from svc.proxy.errors import (
    NotaryUnavailable,
    OwnIdentityEnded,
    OwnIdentityRefused,
    ProxyError,
    UpstreamClosed,
    UpstreamMalformed,
    UpstreamUnverified,
    upstream_error,
)
from svc.proxy.http.recorder import Observation
from svc.proxy.http.upstream import UpstreamConnection, UpstreamPool
from svc.proxy.peer_conditions import PeerConditions
from svc.proxy.peer_statement import PeerStatement
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.http1 import End, Event, Excess, MessageRefused, ResponseHead

_log = Logger()
_CURRENT: Final = statement_path("current")


@dataclass(frozen=True, slots=True)
class VerifiedReceipt:
    """A verified receipt, and the artifact with the disclosures."""

    evidence: ReceiptEvidence
    artifact: ReceiptArtifact


class VerificationObserver(Protocol):
    """Counts how connections to a peer that is verified end up."""

    def upstream_accepted(self) -> None:
        """The statement is verified."""

    def upstream_unverified(self) -> None:
        """The statement was refused."""

    def upstream_unreachable(self) -> None:
        """The connection ended before the statement was there."""

    def upstream_revoked(self, peer: PeerEvidence, error: SvcError) -> None:
        """The statement of an open connection would now be refused."""


class _Fetch:
    """A GET for an artifact, which has an upstream connection to itself until its response has ended."""

    def __init__(self, connection: UpstreamConnection, path: str, host: bytes, upstream: str) -> None:
        #: Fires with the head of the response, its body, and whether the connection can be used again.
        self.done: Deferred[tuple[ResponseHead, bytes, bool]] = Deferred(lambda _done: connection.abort())
        self._connection = connection
        self._upstream = upstream
        self._head: ResponseHead | None = None
        self._body = bytearray()
        if connection.dead:
            self._fail(connection.loss or UpstreamClosed(upstream=upstream))
            return
        connection.begin(self, b"GET", upgrade=False)
        connection.write(
            b"GET %b HTTP/1.1\r\nHost: %b\r\nAccept: %b\r\n\r\n"
            % (path.encode("ascii"), host, naming.MEDIA_TYPE_ENVELOPE.encode("ascii"))
        )

    def upstream_events(self, events: list[Event]) -> None:
        """A part of the response has arrived."""
        for event in events:
            if isinstance(event, ResponseHead):
                self._head = event
            elif isinstance(event, bytes):
                self._body += event
                if len(self._body) > MAX_ENVELOPE:
                    self._fail(EnvelopeError("too_large", size=len(self._body), limit=MAX_ENVELOPE))
                    return
            elif isinstance(event, MessageRefused):
                self._fail(UpstreamMalformed(upstream=self._upstream, what=event.error.reason))
                return
            elif isinstance(event, End) and self._head is not None:
                usable = self._head.keep_alive and not self._connection.dead and type(events[-1]) is not Excess
                self._connection.detach()
                self.done.callback((self._head, bytes(self._body), usable))
                return

    def upstream_lost(self, events: list[Event]) -> None:
        """The connection ended; ``events`` are those that it caused."""
        if events and type(events[-1]) is End:
            self.upstream_events(events)
        else:
            self._fail(self._connection.loss or UpstreamClosed(upstream=self._upstream))

    def _fail(self, error: SvcError) -> None:
        self._connection.abort()
        self.done.errback(error)


class _Acquisition:
    """
    A new connection for the request of an artifact, which is sent once: an idle one may be closed already by the peer.
    """

    def __init__(self, pool: UpstreamPool, permit: Permit) -> None:
        self.done: Deferred[UpstreamConnection] = Deferred(self._cancel)
        self._pool = pool
        self._attempt = pool.acquire(permit, self, fresh=True)

    def upstream_ready(self, connection: UpstreamConnection) -> None:
        """See :class:`svc.proxy.http.upstream.ConnectionRequest`."""
        self.done.callback(connection)

    def upstream_failed(self, error: ProxyError) -> None:
        """See :class:`svc.proxy.http.upstream.ConnectionRequest`."""
        self.done.errback(error)

    def _cancel(self, _done: object) -> None:
        if self._attempt is not None:
            self._pool.give_up(self._attempt)


class PeerVerifier:
    """
    Verifies the peer of one outbound listener.

    Args:
        upstream: what errors call the peer.
        host: the Host of requests for artifacts.
        level: what every request asks for at least.
        anchors: returns the roots in force; what it raises refuses the peer.
        pq_path: the file with post-quantum roots, for errors.
        listed: returns the refusal of a statement that is on a deny list.
        statement_seconds: for the statement of a new connection.
        receipt_seconds: for a receipt, while it is pending too.
        collector: stores the receipts that the application asks for; None where they are not kept.
        conditions: on statements, which then must be issued centrally; None where any statement of the peer will do.
    """

    def __init__(
        self,
        *,
        upstream: str,
        host: bytes,
        level: Level,
        profile: Profile,
        anchors: Callable[[], Anchors],
        pq_path: str | None,
        listed: Callable[[StatementEvidence], Denied | None],
        clock: IReactorTime,
        wall: Callable[[], datetime],
        statement_seconds: float,
        receipt_seconds: float,
        observer: VerificationObserver,
        collector: ReceiptCollector | None = None,
        conditions: PeerConditions | None = None,
    ) -> None:
        self.level: Final = level
        self.collector: Final = collector
        #: Of the bodies of requests whose receipts are due.
        self.kept: Final = KeptOctets()
        self._upstream = upstream
        self._host = host
        self._profile = profile
        self._anchors = anchors
        self._pq_path = pq_path
        self._listed = listed
        self._clock = clock
        self._wall = wall
        self._statement_seconds = statement_seconds
        self._receipt_seconds = receipt_seconds
        self._observer = observer
        self._conditions = conditions
        self._batches = VerifiedBatchCache()

    def needs_receipt(self, level: Level) -> bool:
        """Whether the receipt of a request at this level is verified."""
        return level is Level.SIGN_REQUEST and (self.level is Level.SIGN_REQUEST or self.collector is not None)

    # -- Statements --------------------------------------------------------------------------------------------------

    async def verify_connection(self, connection: UpstreamConnection) -> None:
        """
        Verify the statement of a new connection, which is aborted where that fails.

        Raises:
            ProxyError: with the reason for the application.
        """
        try:
            statement = await self._current_statement(connection)
        except CancelledError:
            self._observer.upstream_unreachable()
            raise
        except ProxyError as error:
            connection.abort()
            if not isinstance(error, OwnIdentityRefused | OwnIdentityEnded):
                # Those are counted by the handshake.
                self._observer.upstream_unreachable()
            raise
        except SvcError as error:
            connection.abort()
            self._observer.upstream_unverified()
            raise self.explained(error) from error
        except Exception:
            connection.abort()
            self._observer.upstream_unverified()
            _log.failure("the verification of a peer failed unexpectedly")
            raise
        connection.statement = statement
        connection.ends = min(connection.ends, statement.evidence.expires.timestamp())
        self._observer.upstream_accepted()

    async def _current_statement(self, connection: UpstreamConnection) -> PeerStatement:
        fetch = _Fetch(connection, _CURRENT, self._host, self._upstream)
        try:
            head, body, usable = await fetch.done.addTimeout(self._statement_seconds, self._clock)
        except DeferredTimeout as error:
            what = f"it did not send its workload statement within {self._statement_seconds:g} s"
            raise UpstreamUnverified(upstream=self._upstream, what=what, detail_reason="upstream_timeout") from error
        if head.status != 200:
            raise StatementRefused("fetch_failed", artifact="workload statement", status=head.status)
        statement = self._verified(Envelope.parse(body), peer_evidence(connection.transport))
        if not usable:
            raise UpstreamClosed(upstream=self._upstream)
        return statement

    def _verified(self, envelope: Envelope, peer: PeerEvidence) -> PeerStatement:
        conditions = self._conditions
        evidence = verify_statement(
            envelope,
            expected_id=None,
            profile=self._profile,
            anchors=self._anchors(),
            now=self._wall(),
            peer=peer.svid,
            issuers=() if conditions is None else conditions.issuers,
            self_issued=None if conditions is None else SelfIssued.REFUSE,
        )
        refused = self._listed(evidence)
        if refused is None and conditions is not None:
            refused = conditions.refusal(evidence)
        if refused is not None:
            raise refused
        return PeerStatement(envelope, evidence, peer)

    def reverify(self, connection: UpstreamConnection) -> None:
        """Verify the statement of an open connection again, by what is in force now; raises ``ProxyError``."""
        statement = connection.statement
        if statement is None:
            return
        try:
            self._verified(statement.envelope, statement.peer)
        except SvcError as error:
            self._observer.upstream_revoked(statement.peer, error)
            raise self.explained(error) from error

    # -- Responses ---------------------------------------------------------------------------------------------------

    def check_response(
        self, head: ResponseHead, statement: PeerStatement | None, level: Level, nonce: str | None
    ) -> None:
        """
        Check what a response names: the statement of its connection, a sufficient level and, where a receipt is due,
        the receipt of this request.

        Raises:
            UpstreamUnverified: with the reason.
        """
        expected = "" if statement is None else statement.evidence.id
        try:
            named = named_statement(head)
            if named is None:
                raise StatementMissing
            if named != expected:
                raise StatementRefused("id_mismatch", expected=expected, found=named)
            check_level(level, named_level(head))
            if nonce is not None:
                named_receipt_path(head, nonce)
        except EnvelopeError as error:
            raise self._refusal(error, f"{error} (its response has the status {head.status})") from error

    async def receipt(
        self,
        observation: Observation,
        statement: PeerStatement,
        pool: UpstreamPool,
        permit: Permit,
        connection: UpstreamConnection | None,
    ) -> VerifiedReceipt:
        """
        Fetch the receipt of an exchange and verify it against what was observed.

        Args:
            statement: of the connection of the exchange.
            connection: that connection, where it can still be used.

        Raises:
            ProxyError: with the reason for the application.
        """
        waiting = Deferred.fromCoroutine(self._fetch_receipt(observation.nonce, pool, permit, connection))
        try:
            receipt = parse_receipt(await waiting.addTimeout(self._receipt_seconds, self._clock))
            verified = verify_receipt(
                receipt,
                statement=statement.evidence,
                profile=self._profile,
                anchors=self._anchors(),
                now=self._wall(),
                seen=observation.observed(statement.peer),
                batches=self._batches,
            )
        except DeferredTimeout as error:
            late = ReceiptRefused("receipt_pending", seconds=f"{self._receipt_seconds:g}")
            raise self.explained(late) from error
        except SvcError as error:
            raise self.explained(error) from error
        return VerifiedReceipt(verified, receipt)

    async def _fetch_receipt(
        self, nonce: str, pool: UpstreamPool, permit: Permit, connection: UpstreamConnection | None
    ) -> bytes:
        path, usable = receipt_location(nonce), True
        try:
            while True:
                if connection is None:
                    connection = await _Acquisition(pool, permit).done
                usable = False
                head, body, usable = await _Fetch(connection, path, self._host, self._upstream).done
                pause = pending_pause(head)
                if pause is None:
                    return body
                if not usable:
                    connection.abort()
                    connection = None
                await deferLater(self._clock, pause)
                if connection is not None and connection.dead:
                    connection = None
        finally:
            if connection is not None:
                connection.release(reusable=usable)

    # -- Errors ------------------------------------------------------------------------------------------------------

    def explained(self, error: SvcError) -> ProxyError:
        """Return what a refusal means for the application."""
        if isinstance(error, ProxyError):
            return error
        if isinstance(error, Denied):
            return upstream_error(error, self._upstream, self._statement_seconds)
        what = str(error)
        if isinstance(error, SignerTrustDomainUnknown) and error.evidence["bundle"] != "SPIFFE" and self._pq_path:
            what += f": {self._pq_path} is missing or has none (notary.pqBundle)"
        return self._refusal(error, what)

    def _refusal(self, error: SvcError, what: str) -> UpstreamUnverified:
        detail = error.detail_reason if isinstance(error, EnvelopeError) else error.reason
        return UpstreamUnverified(upstream=self._upstream, what=what, detail_reason=detail)


def refusal_of(failure: Failure) -> ProxyError:
    """The error of a receipt that is not there; a defect is logged, and refuses it as well."""
    if isinstance(failure.value, ProxyError):
        return failure.value
    _log.failure("the verification of a receipt failed unexpectedly", failure)
    return NotaryUnavailable()


@implementer(IStreamClientEndpoint)
class VerifiedEndpoint:
    """Connects to a peer and verifies its statement; there is no connection before that."""

    def __init__(self, endpoint: IStreamClientEndpoint, peers: PeerVerifier) -> None:
        self._endpoint = endpoint
        self._peers = peers

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        """See ``IStreamClientEndpoint``; the protocols are :class:`UpstreamConnection`."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> UpstreamConnection:
        connection: UpstreamConnection = await self._endpoint.connect(factory)  # type: ignore[assignment]
        await self._peers.verify_connection(connection)
        return connection
