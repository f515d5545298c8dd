"""
From reports of listeners, connections, credentials and the store to metrics and log records.

Owns which event is logged with which fields, and how often. No lower module uses the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.errors import SvcError
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import ExchangeOutcome, octets_as_text
from svc.notary.pqleaf import PqLeaf
from svc.policy.engine import Decision, Denied, MatchedRule
from svc.process.reauthorization import ReauthorizationSummary
from svc.proxy.config import ProxySettings
from svc.proxy.records.room import RoomReport
from svc.proxy.reporter import ConnectionSummary, ExchangeSummary, MessageSummary, PolicyDecision
from svc.sqlite.kind import Operation
from svc.store.interface import Entity
from svc.telemetry.connections import (
    ConnectionLog,
    HandshakeError,
    handshake_record,
    log_suppressed,
    precise_reason,
)
from svc.telemetry.events.base import Event
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.store import StoreEvent
from svc.telemetry.events.workload import WorkloadEvent
from svc.telemetry.health import Health
from svc.telemetry.labels import AdmissionWait
from svc.telemetry.log_limits import DenialLimiter, FailureStreak, RecordLimiter
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ListenerMetrics, ProxyMetrics
from svc.telemetry.records import Value
from svc.transport.errors import PeerCredentialsEnded, TransportError
from svc.transport.evidence import PeerEvidence
from svc.transport.observer import Role
from svc.wire.http1 import RequestHead
from svc.workload.errors import IdentityWithdrawn

#: What ``exchange_failed`` logs, by its reason: those on the way to the upstream, and those of the notary. All others
#: are the client's.
_EVENTS: Final[Mapping[str, Event]] = {
    **dict.fromkeys(
        (
            "upstream_unreachable",
            "upstream_closed",
            "upstream_refused",
            "upstream_lost",
            "upstream_timeout",
            "upstream_identity_refused",
            "upstream_unverified",
            "own_svid_refused",
            "credentials_expired",
            "identity_withdrawn",
        ),
        ProxyEvent.UPSTREAM_FAILED,
    ),
    "upstream_malformed": ProxyEvent.UPSTREAM_MISBEHAVED,
    "notary_unavailable": NotaryEvent.RECORD_FAILED,
    "notary_rate": NotaryEvent.NOTARY_OVERLOADED,
}
#: Seconds in which a difference of a dry run is logged once for each client and rule, and how many are tracked.
DRY_RUN_INTERVAL: Final = 10.0
MAX_DRY_RUNS: Final = 256
#: The same of identities that are held back.
HELD_INTERVAL: Final = 10.0
MAX_HELD: Final = 256
#: Outcomes after which nothing is missing.
_ENDED_WELL = frozenset({ExchangeOutcome.COMPLETE, ExchangeOutcome.UPGRADED})


def _attributes(summary: ExchangeSummary, *, path: bool) -> dict[str, Value]:
    """The attributes of the record of an exchange; None values are left out."""
    return {
        "listener": summary.listener,
        "direction": summary.direction,
        "http.request.method": octets_as_text(summary.method) or None,
        "url.path": octets_as_text(summary.path) or None if path else None,
        "http.response.status_code": summary.status,
        "outcome": summary.outcome.value,
        "request_octets": summary.request_octets,
        "response_octets": summary.response_octets,
        "duration_seconds": None if summary.seconds is None else round(summary.seconds, 6),
        "notary_lookup": summary.lookup or None,
        "level": summary.level.value,
        "receipt_id": summary.receipt_id,
        "statement_id": summary.statement_id,
        **_decided(summary.decision),
    }


def _decided(decision: PolicyDecision | None) -> dict[str, Value]:
    """The attributes of a decision; none outbound, where the peer decides."""
    if decision is None or not decision.policy:
        return {}
    return {"policy": decision.policy, "rule": decision.rule, "decision": decision.id or None}


def _of_request(request: RequestHead) -> dict[str, Value]:
    return {"http.request.method": octets_as_text(request.method), "url.path": octets_as_text(request.path)}


class Reports(ConnectionLog):
    """
    Turns reports into log records: of denials and failures at most one a second for each (reason, source).

    Attributes:
        failed_exchanges: those that were reported, logged or not.
    """

    log = Logger()

    def __init__(self, metrics: ProxyMetrics, clock: IReactorTime) -> None:
        super().__init__(DenialLimiter(clock, self._suppressed))
        self._metrics = metrics
        #: What is denied for who the peer is, apart: what is left out there is audited.
        self._denials = DenialLimiter(clock, self._denials_suppressed)
        self._clock = clock
        self._dry_runs = RecordLimiter(DRY_RUN_INTERVAL, MAX_DRY_RUNS)
        self._held = RecordLimiter(HELD_INTERVAL, MAX_HELD)
        #: See :class:`svc.proxy.reporter.Reporter`.
        self.every_exchange = self.recorded_exchanges = False
        self._paths = False
        self._audits_denials = True
        self.failed_exchanges = 0

    def configure(self, settings: ProxySettings) -> None:
        """Log what a configuration asks for, from now on."""
        self.every_exchange = settings.accessLog != "off"
        self._paths = settings.accessLog == "path"
        audits_denials = settings.auditLog != "off"
        if audits_denials != self._audits_denials:
            # What is counted so far is reported under the setting that was in force.
            self._denials.close()
            self._audits_denials = audits_denials
        self.recorded_exchanges = settings.auditLog == "all"

    def close(self) -> None:
        """Log how many records were left out, and stop the timers."""
        super().close()
        self._denials.close()

    def reauthorized(self, summary: ReauthorizationSummary) -> None:
        """All connections that were open at a change are decided on again."""
        emit(self.log, ProxyEvent.CONNECTIONS_REAUTHORIZED, attributes=summary.attributes)

    def admission_held(self, client: str, reason: AdmissionWait, places: int) -> None:
        """See :data:`svc.proxy.records.places.HeldObserver`; an identity is named once in ten seconds."""
        self._metrics.admission_held(reason)
        omitted = self._held.admit((client, reason), self._clock.seconds())
        if omitted is not None:
            attributes = {"reason": reason, "places": places, "repeated": omitted or None}
            emit(self.log, NotaryEvent.ADMISSIONS_HELD, peer_spiffe_id=client, attributes=attributes)

    # svc.proxy.reporter.Reporter

    def denied(
        self,
        reason: str,
        address: str,
        peer: str,
        detail: str,
        *,
        listener: str,
        request: RequestHead | None = None,
        decision: PolicyDecision | None = None,
    ) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        self.denials.add(reason)
        if not self._denials.admit(reason, address or peer):
            return
        self._log_denial(
            ProxyEvent.REQUEST_DENIED if reason == "policy_deny" else ProxyEvent.CONNECTION_REVOKED,
            {"source.address": address or None, **_decided(decision)},
            listener=listener,
            request=request,
            reason="policy_deny" if reason == "policy_deny" else "svid_invalid",
            detail_reason=reason,
            detail=detail,
            peer_spiffe_id=peer,
            user=peer,
        )

    def dry_run_differs(self, peer: str, decision: Decision, *, listener: str, request: RequestHead | None) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        matched = decision.matched[-1]
        omitted = self._dry_runs.admit((peer, matched), self._clock.seconds())
        if omitted is None:
            return
        attributes: dict[str, Value] = {
            "listener": listener,
            "policy": matched.policy,
            "rule": matched.rule,
            "result": "allowed" if decision.allowed else "denied",
            "repeated": omitted or None,
        }
        if self._paths and request is not None:
            attributes |= _of_request(request)
        emit(self.log, ProxyEvent.POLICY_DRY_RUN, peer_spiffe_id=peer, attributes=attributes)

    def audited(
        self, peer: str, matched: MatchedRule, *, permitted: bool, listener: str, request: RequestHead | None
    ) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        # Who is refused must not fill the log.
        if not self._audits_denials or not (permitted or self._denials.admit("policy_audited", peer)):
            return
        emit(
            self.log,
            ProxyEvent.POLICY_AUDITED,
            outcome="success" if permitted else "failure",
            user=peer,
            peer_spiffe_id=peer,
            attributes={
                "listener": listener,
                "policy": matched.policy,
                "rule": matched.rule,
                **({} if request is None else _of_request(request)),
            },
        )

    def evicted(self, reason: str, address: str, peer: str, detail: str) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        if self._limiter.admit(reason, "*"):
            emit(
                self.log,
                ProxyEvent.CONNECTION_EVICTED,
                detail_reason=reason,
                detail=detail,
                peer_spiffe_id=peer or None,
                attributes={"source.address": address},
            )

    def exchange_failed(self, reason: str, peer: str, detail: str, precise: str = "") -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        self.failed_exchanges += 1
        if not self._limiter.admit(reason, peer):
            return
        emit(
            self.log,
            _EVENTS.get(reason, ProxyEvent.REQUEST_REJECTED),
            detail_reason=precise or reason,
            detail=detail,
            peer_spiffe_id=peer or None,
            attributes={"code": reason} if precise else None,
        )

    def connection_ended(self, summary: ConnectionSummary) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        emit(
            self.log,
            ProxyEvent.CONNECTION_SERVED,
            outcome="success" if summary.complete else "failure",
            peer_spiffe_id=summary.peer or None,
            attributes={
                "listener": summary.listener,
                "direction": summary.direction,
                "source.address": summary.address,
                "cause": summary.cause,
                "received_octets": summary.received_octets,
                "sent_octets": summary.sent_octets,
                "duration_seconds": round(summary.seconds, 6),
                **_decided(summary.decision),
            },
        )

    def exchange_ended(self, summary: ExchangeSummary) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        if self.every_exchange:
            emit(
                self.log,
                ProxyEvent.REQUEST_SERVED,
                outcome="success" if summary.outcome in _ENDED_WELL else "failure",
                peer_spiffe_id=summary.peer or None,
                attributes=_attributes(summary, path=self._paths),
            )
        if self.recorded_exchanges and summary.recorded:
            emit(
                self.log,
                ProxyEvent.ACCESS_RECORDED,
                outcome="success" if summary.receipt_id is not None else "failure",
                # Outbound the application of this machine is the user, which has no verified identity.
                user=(summary.peer or None) if summary.direction == "inbound" else None,
                peer_spiffe_id=summary.peer or None,
                attributes=_attributes(summary, path=True),
            )

    def message_recorded(self, summary: MessageSummary) -> None:
        """See :class:`svc.proxy.reporter.Reporter`."""
        emit(
            self.log,
            ProxyEvent.ACCESS_RECORDED,
            outcome="success" if summary.receipt_id is not None else "failure",
            user=summary.peer or None,
            peer_spiffe_id=summary.peer or None,
            attributes={
                "listener": summary.listener,
                "direction": "inbound",
                "mqtt.topic": summary.topic,
                "mqtt.qos": summary.qos,
                "mqtt.reason_code": summary.code,
                "outcome": summary.outcome.value,
                "request_octets": summary.octets,
                "duration_seconds": round(summary.seconds, 6),
                "level": summary.level.value,
                "receipt_id": summary.receipt_id,
            },
        )

    def handshake_failed(self, role: Role, error: HandshakeError, address: str, *, listener: str = "") -> None:
        """See :class:`svc.telemetry.connections.ConnectionLog`; an access attempt at a listener."""
        precise = precise_reason(error) or error.reason
        self.denials.add(precise)
        if self._denials.admit(precise, address):
            event, fields = handshake_record(role, error, address)
            self._log_denial(event, listener=listener, **fields)

    def _log_denial(
        self,
        event: Event,
        attributes: Mapping[str, Value],
        *,
        listener: str,
        request: RequestHead | None = None,
        user: str | None = None,
        **fields: Any,
    ) -> None:
        """Log a security event, and the access attempt; only a verified identity is its user."""
        emit(self.log, event, attributes=attributes, **fields)
        if not self._audits_denials:
            return
        audited = {**attributes, "listener": listener}
        if request is not None:
            audited |= {**_of_request(request), "http.response.status_code": Denied.http_status}
        emit(self.log, ProxyEvent.ACCESS_DENIED, user=user, attributes=audited, **fields)

    def _suppressed(self, reason: str, source: str, count: int) -> None:
        self._metrics.denial_suppressed(reason, count)
        log_suppressed(self.log, ProxyEvent.DENIALS_SUPPRESSED, reason, source, count)

    def _denials_suppressed(self, reason: str, source: str, count: int) -> None:
        self._suppressed(reason, source, count)
        if self._audits_denials:
            log_suppressed(self.log, ProxyEvent.ACCESS_SUPPRESSED, reason, source, count)


class ListenerObserver:
    """One listener's :class:`svc.transport.observer.ConnectionObserver`."""

    def __init__(self, metrics: ListenerMetrics, reports: Reports, name: str) -> None:
        self._metrics = metrics
        self._reports = reports
        self._name = name

    def handshake_started(self, role: Role) -> None:
        """Only finished handshakes are counted."""

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """Count a verified peer."""
        self._metrics.handshake_done(role, seconds, evidence)

    def handshake_failed(self, role: Role, error: TransportError, address: str) -> None:
        """Count and log a peer that was refused, or that refused this side."""
        self._metrics.handshake_failed(role, error.reason, precise_reason(error), address, error.alert)
        self._reports.handshake_failed(role, error, address, listener=self._name)

    def connection_refused(self, reason: str, address: str) -> None:
        """Count and log a connection over a limit."""
        self._metrics.connection_refused(reason, address)
        self._reports.connection_refused(reason, address)

    def connection_aborted(self, reason: str, address: str) -> None:
        """Log a connection that was closed because its peer exceeded a limit of TLS; its protocol counts the cause."""
        self._reports.connection_aborted(reason, address)

    def upstream_unreachable(self) -> None:
        """Count that no connection to the upstream could be made; each exchange without one reports its reason."""
        self._metrics.upstream_unreachable()

    def upstream_accepted(self) -> None:
        """Count a connection to a peer that did not refuse the proxy's SVID."""
        self._metrics.upstream_accepted()

    def upstream_unverified(self) -> None:
        """Count a connection whose peer sent no statement that is accepted; each request reports its reason."""
        self._metrics.upstream_unverified()

    def upstream_revoked(self, peer: PeerEvidence, error: SvcError) -> None:
        """Count and log a connection to a peer that is closed because its statement would now be refused."""
        self._metrics.denied_policy.inc()
        self._metrics.upstream_closed("reauthorization")
        self._reports.denied(error.reason, "", str(peer.svid.spiffe_id), str(error), listener=self._name)

    def upstream_ended(self, evidence: PeerEvidence, error: TransportError) -> None:
        """Count and log a connection to a peer that is closed because the credentials of one side have ended."""
        peers = isinstance(error, PeerCredentialsEnded)
        self._metrics.upstream_closed("peer_expired" if peers else "credentials_expired")
        peer = str(evidence.svid.spiffe_id)
        self._reports.denied(error.reason, "", peer, str(error), listener=self._name)


class CredentialReports:
    """Logs the rotation; implements :class:`svc.proxy.credential_rotation.CredentialObserver`."""

    log = Logger()

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = FailureStreak()
        self._leaf_failures = FailureStreak()
        self._leaf_error: SvcError | None = None
        self._issuer_lost = False

    def credentials_issued(self, credentials: CredentialSet) -> None:
        """New credentials are in use."""
        self._failures.succeeded()
        self._health.holds("credentials")
        emit(
            self.log,
            NotaryEvent.GENERATION_ISSUED,
            spiffe_id=str(credentials.spiffe_id),
            attributes={
                "statement_id": credentials.statement.id,
                "issuer": credentials.issuer,
                "not_after": credentials.expires.isoformat(),
                "profile": credentials.profile.value,
            },
        )

    def credentials_failed(self, error: SvcError) -> None:
        """New credentials could not be made; those in force stay so until their end."""
        if not self._health.condition("credentials").holds:
            self._health.fails_with("credentials", error)
        self._log_failure(NotaryEvent.GENERATION_FAILED, self._failures, error)

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """The post-quantum issuer gave a leaf."""
        self._leaf_failures.succeeded()
        self._leaf_error = None
        self._health.holds("pqIssuer")
        emit(
            self.log,
            WorkloadEvent.PQ_LEAF_OBTAINED,
            attributes={"not_after": leaf.not_after.isoformat(), "algorithm": leaf.signer().alg},
        )

    def leaf_failed(self, error: SvcError) -> None:
        """The post-quantum issuer could not be reached, or gave no leaf."""
        self._leaf_error = error
        self._health.fails_with("pqIssuer", error)
        self._log_failure(WorkloadEvent.PQ_LEAF_FAILED, self._leaf_failures, error)

    def _log_failure(self, event: Event, streak: FailureStreak, error: SvcError) -> None:
        """Log the failures that the streak selects."""
        if streak.failed(error.reason):
            emit(self.log, event, detail_reason=error.reason, detail=str(error), attributes={"attempts": streak.count})

    def issuer_reached(self, error: SvcError | None) -> None:
        """The post-quantum issuer took a connection, or why not; a leaf that it refused stays refused."""
        lost, self._issuer_lost = self._issuer_lost, error is not None
        if error is not None:
            self._health.fails_with("pqIssuer", error)
            if not lost:
                emit(self.log, WorkloadEvent.PQ_ISSUER_UNREACHABLE, detail_reason=error.reason, detail=str(error))
        elif lost:
            self._health.report("pqIssuer", self._leaf_error)
            emit(self.log, WorkloadEvent.PQ_ISSUER_REACHABLE)

    def identity_ended(self, error: IdentityWithdrawn) -> None:
        """The identity was withdrawn."""
        self._health.fails_with("credentials", error)
        emit(self.log, NotaryEvent.IDENTITY_ENDED, detail_reason=error.reason, detail=str(error))


class NotaryStoreReports:
    """
    Logs and counts the notary database; implements :class:`svc.store.interface.StoreObserver`.

    Attributes:
        name: the file, or the server and name of the database.
        records: records that are durable since the start.
        room: what is left for more, None before it is measured.
    """

    log = Logger()

    def __init__(self, metrics: ProxyMetrics, health: Health, name: str) -> None:
        self._metrics = metrics
        self._health = health
        self.name = name
        self.records = 0
        self.room: RoomReport | None = None
        self._opened = False
        self._closing = False

    def closing(self) -> None:
        """The process ends: from now on a database that is not writable is not logged."""
        self._closing = True

    def closed(self) -> None:
        """The database is closed in order."""
        if self._opened:
            emit(self.log, StoreEvent.CLOSED, attributes={"path": self.name})

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """An operation failed."""
        self._metrics.db_error(op, entity)
        attributes = {"op": op, "entity": entity, "path": self.name}
        emit(self.log, StoreEvent.FAILED, detail=detail or None, attributes=attributes)

    def committed(self, count: int, seconds: float) -> None:
        """Records are durable."""
        self.records += count
        self._metrics.committed(count, seconds)

    def room_measured(self, room: RoomReport) -> None:
        """The room that is left was measured."""
        self.room = room
        self._metrics.room_measured(room.octets, room.left, room.days * 86400)

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """The database takes records again, or no more, and why not."""
        self._metrics.writable_changed(writable)
        attributes = {"path": self.name}
        if writable:
            self._health.holds("store")
            emit(self.log, StoreEvent.WRITABLE if self._opened else StoreEvent.OPENED, attributes=attributes)
            self._opened = True
        elif not self._closing:
            what = f"the notary database {self.name} takes no records: {trouble or 'nothing is known of the cause'}"
            self._health.fails("store", "notary_unavailable", what)
            emit(self.log, StoreEvent.READ_ONLY, detail=trouble or None, attributes=attributes)

    def damaged(self, path: str) -> None:
        """The database is damaged; it takes no more records until the next start."""
        emit(self.log, StoreEvent.DAMAGED, attributes={"path": path})

    def set_aside(self, path: str, aside: str) -> None:
        """A damaged database was renamed."""
        emit(self.log, StoreEvent.SET_ASIDE, attributes={"path": path, "aside": aside})

    def lies_aside(self, paths: Sequence[str]) -> None:
        """There are databases that were set aside."""
        emit(self.log, StoreEvent.LIES_ASIDE, attributes={"databases": len(paths), "newest": paths[-1]})

    def pruned(self, count: int) -> None:
        """Records were older than the retention."""
        emit(self.log, StoreEvent.PRUNED, attributes={"records": count})
