"""
What operators see of the data plane: from reports of listeners, connections, credentials and the store to metrics and
log.

Owns which event is logged with which words and how often. Nothing below knows the log.
"""

from __future__ import annotations

import re

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.errors import SvcError
from svc.notary.generation import Generation
from svc.store.interface import Entity, Operation
from svc.telemetry.children import ListenerMetrics
from svc.telemetry.denials import DenialLimiter
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ProxyMetrics
from svc.transport.evidence import PeerEvidence
from svc.transport.observer import Role

#: Reasons of ``exchange_failed`` that speak of the application, and those of the notary; all others are the client's.
_UPSTREAM = frozenset({"upstream_unreachable", "upstream_closed", "upstream_timeout", "upstream_identity_refused"})
_REASON = re.compile(r"[a-z][a-z0-9_]*\Z")


def _precise(detail: str) -> str:
    """Keep what is a reason; OpenSSL's own words for what went wrong are none."""
    return detail if _REASON.match(detail) else ""


class Reports:
    """
    Turns reports into log records, at most one a second for each (reason, source).

    Args:
        metrics: the families.
        clock: measures the second.
    """

    log = Logger()

    def __init__(self, metrics: ProxyMetrics, clock: IReactorTime) -> None:
        self._metrics = metrics
        self._limiter = DenialLimiter(clock, self._suppressed)

    def close(self) -> None:
        """Tell what was held back."""
        self._limiter.close()

    # svc.proxy.http.context.Reporter

    def denied(self, reason: str, address: str, peer: str, detail: str) -> None:
        """See :class:`svc.proxy.http.context.Reporter`."""
        if self._limiter.admit(reason, address):
            word = "policy_deny" if reason == "policy_deny" else "svid_invalid"
            emit(
                self.log,
                Event.REQUEST_DENIED if reason == "policy_deny" else Event.CONNECTION_REVOKED,
                reason=word,
                detail_reason=reason,
                detail=detail,
                peer_spiffe_id=peer,
                attributes={"source.address": address},
            )

    def exchange_failed(self, reason: str, peer: str, detail: str) -> None:
        """See :class:`svc.proxy.http.context.Reporter`."""
        if not self._limiter.admit(reason, peer):
            return
        if reason in _UPSTREAM:
            event = Event.UPSTREAM_FAILED
        elif reason == "upstream_malformed":
            event = Event.UPSTREAM_MISBEHAVED
        elif reason == "notary_unavailable":
            event = Event.RECORD_FAILED
        elif reason == "notary_rate":
            event = Event.NOTARY_OVERLOADED
        else:
            event = Event.REQUEST_REJECTED
        emit(self.log, event, detail_reason=reason, detail=detail, peer_spiffe_id=peer or None)

    def request_served(self, peer: str, method: bytes, status: int | None, seconds: float) -> None:
        """See :class:`svc.proxy.http.context.Reporter`."""
        attributes: dict[str, str | int | float | bool] = {
            "http.request.method": method.decode("latin-1"),
            "duration_seconds": round(seconds, 6),
        }
        if status is not None:
            attributes["http.response.status_code"] = status
        emit(self.log, Event.REQUEST_SERVED, peer_spiffe_id=peer or None, attributes=attributes)

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """A peer did not get through TLS."""
        precise = _precise(detail)
        if self._limiter.admit(precise or reason, address):
            emit(
                self.log,
                Event.HANDSHAKE_FAILED,
                reason="svid_invalid" if reason == "svid_invalid" else None,
                detail_reason=precise or reason,
                detail=None if precise else detail or None,
                attributes={"source.address": address, "role": role, "tls.alert": alert},
            )

    def connection_refused(self, reason: str, address: str) -> None:
        """A limit closed a connection."""
        if self._limiter.admit(reason, "*"):
            emit(self.log, Event.CONNECTION_REFUSED, detail_reason=reason, attributes={"source.address": address})

    def _suppressed(self, reason: str, source: str, count: int) -> None:
        self._metrics.denial_suppressed(reason, count)
        emit(
            self.log,
            Event.DENIALS_SUPPRESSED,
            detail_reason=reason,
            attributes={"source.address": source, "suppressed": count},
        )


class ListenerObserver:
    """
    One listener's :class:`svc.transport.observer.ConnectionObserver`.

    Args:
        metrics: the listener's counters.
        reports: the log.
    """

    def __init__(self, metrics: ListenerMetrics, reports: Reports) -> None:
        self._metrics = metrics
        self._reports = reports

    def handshake_started(self, role: Role) -> None:
        """Only finished handshakes are counted."""

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """Count a verified peer."""
        self._metrics.handshake_done(role, seconds, evidence)

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """Count and tell a peer that did not get through."""
        self._metrics.handshake_failed(role, reason, _precise(detail), address, alert)
        self._reports.handshake_failed(role, reason, detail, address, alert)

    def connection_refused(self, reason: str, address: str) -> None:
        """Count and tell a connection over a limit."""
        self._metrics.connection_refused(reason, address)
        self._reports.connection_refused(reason, address)


class CredentialReports:
    """
    Tells of generations; implements :class:`svc.proxy.generations.GenerationWatcher`.

    Args:
        health: gets the conditions ``svid`` and ``notary``.
    """

    log = Logger()

    def __init__(self, health: Health) -> None:
        self._health = health

    def generation_issued(self, generation: Generation) -> None:
        """New credentials are in use."""
        self._health.holds("svid")
        self._health.holds("notary")
        emit(
            self.log,
            Event.GENERATION_ISSUED,
            spiffe_id=str(generation.spiffe_id),
            attributes={
                "statement_id": generation.statement.id,
                "not_after": generation.expires.isoformat(),
                "profile": generation.profile.value,
            },
        )

    def generation_failed(self, error: SvcError) -> None:
        """New credentials could not be made."""
        self._health.fails_with("notary", error)
        emit(self.log, Event.GENERATION_FAILED, detail_reason=error.reason, detail=str(error))


class StoreReports:
    """
    Tells of the notary database; implements :class:`svc.store.interface.StoreObserver`.

    Args:
        metrics: the families.
        health: gets the condition ``store``.
    """

    log = Logger()

    def __init__(self, metrics: ProxyMetrics, health: Health) -> None:
        self._metrics = metrics
        self._health = health
        self._opened = False
        self._closing = False

    def closing(self) -> None:
        """The process ends: that the database takes no more records is no news."""
        self._closing = True

    def db_error(self, op: Operation, entity: Entity) -> None:
        """An operation failed."""
        self._metrics.db_error(op, entity)
        emit(self.log, Event.STORE_FAILED, attributes={"op": op, "entity": entity})

    def committed(self, count: int, seconds: float) -> None:
        """Records are durable."""
        self._metrics.committed(count, seconds)

    def writable_changed(self, writable: bool) -> None:
        """The database takes records again, or no more."""
        self._metrics.writable_changed(writable)
        if writable:
            self._health.holds("store")
            emit(self.log, Event.STORE_WRITABLE if self._opened else Event.STORE_OPENED)
            self._opened = True
        elif self._closing:
            emit(self.log, Event.STORE_CLOSED)
        else:
            self._health.fails("store", "notary_unavailable", "the notary database takes no records")
            emit(self.log, Event.STORE_READ_ONLY)

    def pruned(self, count: int) -> None:
        """Records were older than the retention."""
        emit(self.log, Event.STORE_PRUNED, attributes={"records": count})
