"""
What operators see of the data plane: from reports of listeners, connections, credentials and the store to metrics and
log.

Owns which event is logged with which words and how often. Nothing below knows the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.errors import SvcError
from svc.notary.generation import Generation
from svc.notary.pqproof import PqLeaf
from svc.store.interface import Entity, Operation
from svc.telemetry.children import ListenerMetrics
from svc.telemetry.denials import DenialLimiter, Repeats
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ProxyMetrics
from svc.transport.evidence import PeerEvidence
from svc.transport.observer import Role
from svc.workload.errors import IdentityWithdrawn

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
        """A peer did not get through TLS: for who it is, or for another reason."""
        precise, refused = _precise(detail), reason == "svid_invalid"
        if self._limiter.admit(precise or reason, address):
            emit(
                self.log,
                Event.AUTH_DENIED if refused else Event.HANDSHAKE_FAILED,
                reason=reason if refused else None,
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

    def upstream_unreachable(self) -> None:
        """Count that no connection to the upstream could be made; each exchange that misses it tells its reason."""
        self._metrics.upstream_unreachable()


class CredentialReports:
    """
    Tells of generations; implements :class:`svc.proxy.generations.GenerationWatcher`.

    Args:
        health: gets the conditions ``credentials`` and ``pqIssuer``.
    """

    log = Logger()

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = Repeats()
        self._leaf_failures = Repeats()

    def generation_issued(self, generation: Generation) -> None:
        """New credentials are in use."""
        self._failures.succeeded()
        self._health.holds("credentials")
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
        """New credentials could not be made; those in force stay so until their end."""
        if not self._health.condition("credentials").holds:
            self._health.fails_with("credentials", error)
        if self._failures.failed(error.reason):
            emit(
                self.log,
                Event.GENERATION_FAILED,
                detail_reason=error.reason,
                detail=str(error),
                attributes={"attempts": self._failures.count},
            )

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """The post-quantum issuer gave a leaf."""
        self._leaf_failures.succeeded()
        self._health.holds("pqIssuer")
        emit(
            self.log,
            Event.PQ_LEAF_OBTAINED,
            attributes={"not_after": leaf.not_after.isoformat(), "algorithm": leaf.signer().alg},
        )

    def leaf_failed(self, error: SvcError) -> None:
        """The post-quantum issuer could not be reached, or gave no leaf."""
        self._health.fails_with("pqIssuer", error)
        if self._leaf_failures.failed(error.reason):
            emit(
                self.log,
                Event.PQ_LEAF_FAILED,
                detail_reason=error.reason,
                detail=str(error),
                attributes={"attempts": self._leaf_failures.count},
            )

    def identity_ended(self, error: IdentityWithdrawn) -> None:
        """The identity was withdrawn."""
        self._health.fails_with("credentials", error)
        emit(self.log, Event.IDENTITY_ENDED, detail_reason=error.reason, detail=str(error))


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

    def closed(self) -> None:
        """The database is closed in order."""
        if self._opened:
            emit(self.log, Event.STORE_CLOSED)

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """An operation failed."""
        self._metrics.db_error(op, entity)
        emit(self.log, Event.STORE_FAILED, detail=detail or None, attributes={"op": op, "entity": entity})

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
        elif not self._closing:
            self._health.fails("store", "notary_unavailable", "the notary database takes no records")
            emit(self.log, Event.STORE_READ_ONLY)

    def damaged(self, path: str) -> None:
        """The database is damaged; it takes no more records until the next start."""
        emit(self.log, Event.STORE_DAMAGED, attributes={"path": path})

    def set_aside(self, path: str, aside: str) -> None:
        """A damaged database was renamed."""
        emit(self.log, Event.STORE_SET_ASIDE, attributes={"path": path, "aside": aside})

    def lies_aside(self, paths: Sequence[str]) -> None:
        """There are databases that were set aside."""
        emit(self.log, Event.STORE_LIES_ASIDE, attributes={"databases": len(paths), "newest": paths[-1]})

    def pruned(self, count: int) -> None:
        """Records were older than the retention."""
        emit(self.log, Event.STORE_PRUNED, attributes={"records": count})
