"""
What operators see of the broker: log records, at most one a second of a kind and source, metrics, and the condition of
its database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.broker.access import Principal
from svc.broker.hub import Hub
from svc.broker.statistics import ACTIONS, DROPS
from svc.errors import SvcError
from svc.store.errors import StoreError
from svc.store.interface import Entity, Operation
from svc.telemetry.denials import DenialLimiter, Repeats
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.transport.evidence import PeerEvidence
from svc.transport.observer import Role
from svc.wire.mqtt import Version


class BrokerReports:
    """
    A :class:`~svc.broker.connection.ConnectionReporter` and a :class:`~svc.transport.observer.ConnectionObserver`.

    Args:
        clock: measures the second.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._limiter = DenialLimiter(clock, self._suppressed)

    def close(self) -> None:
        """Tell what was held back."""
        self._limiter.close()

    def connected(self, principal: Principal, client_id: str, version: Version) -> None:
        """Nothing: a fleet that reconnects must not flood the log."""

    def refused(self, principal: Principal, error: SvcError) -> None:
        """A client was not admitted."""
        self._tell(Event.BROKER_CLIENT_REFUSED, principal, "", error)

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None:
        """A client's connection was ended for what it did."""
        self._tell(Event.BROKER_CLIENT_BROKEN, principal, client_id, error)

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """The rules of access did not allow something."""
        if self._limiter.admit(f"mqtt_not_authorized.{action}", _identity(principal) or principal.address):
            emit(
                self.log,
                Event.BROKER_ACCESS_DENIED,
                reason="policy_deny",
                detail_reason="mqtt_not_authorized",
                detail=f"no rule lets it {action}",
                peer_spiffe_id=_identity(principal),
                attributes=_where(principal, client_id),
            )

    def _tell(self, event: Event, principal: Principal, client_id: str, error: SvcError) -> None:
        if self._limiter.admit(error.reason, principal.address):
            emit(
                self.log,
                event,
                detail_reason=error.reason,
                detail=str(error),
                peer_spiffe_id=_identity(principal),
                attributes=_where(principal, client_id),
            )

    # svc.transport.observer.ConnectionObserver

    def handshake_started(self, role: Role) -> None:
        """Nothing."""

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """Nothing."""

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """A peer did not get through TLS."""
        if self._limiter.admit(detail or reason, address):
            refused = reason == "svid_invalid"
            emit(
                self.log,
                Event.AUTH_DENIED if refused else Event.HANDSHAKE_FAILED,
                reason=reason if refused else None,
                detail_reason=detail if detail.isidentifier() else reason,
                attributes={"source.address": address, "role": role, "tls.alert": alert},
            )

    def connection_refused(self, reason: str, address: str) -> None:
        """A limit closed a connection."""
        if self._limiter.admit(reason, "*"):
            emit(self.log, Event.CONNECTION_REFUSED, detail_reason=reason, attributes={"source.address": address})

    def _suppressed(self, reason: str, source: str, count: int) -> None:
        emit(
            self.log,
            Event.DENIALS_SUPPRESSED,
            detail_reason=reason.partition(".")[0],
            attributes={"source.address": source, "suppressed": count},
        )


def _where(principal: Principal, client_id: str) -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {
        "source.address": principal.address,
        "listener": principal.listener,
    }
    if client_id:
        found["mqtt.client_id"] = client_id
    return found


class StoreReports:
    """
    Tells of the broker's database; a :class:`svc.broker.persistence.groups.JournalObserver`.

    Args:
        health: gets the condition ``store``.

    Attributes:
        accepting: whether something new is taken.
        errors: what the database refused, by operation.
        groups: groups that became durable.
        operations: operations in them.
        seconds: how long the groups took together.
    """

    log = Logger()

    def __init__(self, health: Health) -> None:
        self._health = health
        self._repeats = Repeats()
        self._refused = False
        self.accepting = False
        self.errors: Counter[str] = Counter()
        self.groups = 0
        self.operations = 0
        self.seconds = 0.0

    def opened(self, sessions: int, retained: int) -> None:
        """The database is open and read."""
        emit(self.log, Event.BROKER_STORE_OPENED, attributes={"sessions": sessions, "retained": retained})

    def closed(self) -> None:
        """The database is closed, at the end."""
        self.accepting = False
        emit(self.log, Event.BROKER_STORE_CLOSED)

    def accepting_changed(self, trouble: StoreError | None) -> None:
        """Something new is taken, or not."""
        self.accepting = trouble is None
        if trouble is not None:
            self._refused = True
            self._health.fails_with("store", trouble)
            emit(
                self.log,
                Event.BROKER_STORE_REFUSES,
                detail_reason=trouble.reason,
                detail=f"{trouble}; {trouble.advice()}",
            )
            return
        self._health.holds("store")
        self._repeats.succeeded()
        if self._refused:
            self._refused = False
            emit(self.log, Event.BROKER_STORE_ACCEPTS)

    def left_behind(self, operations: int, octets: int) -> None:
        """The end has come before all was durable."""
        attributes: dict[str, str | int | float | bool] = {"operations": operations, "octets": octets}
        emit(self.log, Event.BROKER_STORE_LEFT_BEHIND, attributes=attributes)

    # svc.store.interface.StoreObserver

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """The database refused something."""
        self.errors[op] += 1
        if self._repeats.failed(f"{op} {detail}"):
            attributes = {"op": op, "attempts": self._repeats.count}
            emit(self.log, Event.BROKER_STORE_FAILED, detail=detail or None, attributes=attributes)

    def committed(self, count: int, seconds: float) -> None:
        """A group is durable."""
        self.groups += 1
        self.operations += count
        self.seconds += seconds

    def writable_changed(self, writable: bool) -> None:
        """Nothing: see :meth:`accepting_changed`."""

    def damaged(self, path: str) -> None:
        """The database is damaged."""
        emit(self.log, Event.BROKER_STORE_DAMAGED, attributes={"path": path})

    def set_aside(self, path: str, aside: str) -> None:
        """A damaged database was renamed."""
        emit(self.log, Event.BROKER_STORE_SET_ASIDE, attributes={"path": path, "aside": aside})

    def lies_aside(self, paths: Sequence[str]) -> None:
        """There are databases that were set aside."""
        emit(self.log, Event.BROKER_STORE_LIES_ASIDE, attributes={"databases": len(paths), "newest": paths[-1]})


class BrokerMetrics(Collector):
    """
    The broker's numbers, read at each scrape.

    Args:
        hub: the core.
        store: what its database did, where it has one.
        certificates: says when the certificates of listeners end.
    """

    def __init__(
        self,
        hub: Hub,
        store: StoreReports | None = None,
        certificates: Callable[[], Sequence[tuple[str, datetime]]] = tuple,
    ) -> None:
        self._hub = hub
        self._store = store
        self._certificates = certificates

    def collect(self) -> Iterable[Metric]:
        """
        Read the numbers.

        Returns:
            The families.
        """
        hub, counts = self._hub, self._hub.statistics
        plain = (
            ("svc_broker_connections_active", "Connections behind CONNACK.", counts.connected),
            ("svc_broker_sessions", "Sessions, connected or not.", len(hub.sessions)),
            ("svc_broker_subscriptions", "Subscriptions.", len(hub.subscriptions)),
            ("svc_broker_retained_messages", "Retained messages.", len(hub.retained)),
            ("svc_broker_retained_bytes", "Octets of retained messages.", hub.retained.octets),
        )
        for name, text, value in plain:
            yield GaugeMetricFamily(name, text, value=value)
        totals = (
            ("svc_broker_connections", "Connections accepted.", counts.accepted),
            ("svc_broker_messages_received", "PUBLISH packets of clients.", counts.received),
            ("svc_broker_messages_sent", "PUBLISH packets to clients.", counts.messages_sent),
            ("svc_broker_payload_bytes_received", "Octets of payloads of clients.", counts.received_octets),
            ("svc_broker_bytes_sent", "Octets of PUBLISH packets to clients.", counts.octets_sent),
        )
        for name, text, value in totals:
            yield CounterMetricFamily(name, text, value=value)
        labelled = (
            ("svc_broker_refusals", "Connections refused or ended, by reason.", "reason", (), counts.refused),
            ("svc_broker_messages_dropped", "Messages not delivered, by reason.", "reason", DROPS, counts.drops),
            ("svc_broker_denied", "What rules of access refused, by action.", "action", ACTIONS, counts.denied),
        )
        for name, text, label, known, found in labelled:
            family = CounterMetricFamily(name, text, labels=[label])
            for word in sorted({*known, *found}):
                family.add_metric([word], found[word])
            yield family
        ends = GaugeMetricFamily(
            "svc_broker_certificate_not_after_seconds",
            "When the certificate of a listener ends, in seconds since 1970 UTC.",
            labels=["listener"],
        )
        for listener, not_after in self._certificates():
            ends.add_metric([listener], not_after.timestamp())
        yield ends
        if self._store is not None:
            yield from _of_store(self._store)


def _of_store(store: StoreReports) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "svc_broker_store_accepting", "1 while what must last is taken, 0 while it is refused.", value=store.accepting
    )
    yield SummaryMetricFamily(
        "svc_broker_store_commit_seconds",
        "Groups made durable, and how long that took.",
        count_value=store.groups,
        sum_value=store.seconds,
    )
    yield CounterMetricFamily("svc_broker_store_operations", "Operations made durable.", value=store.operations)
    errors = CounterMetricFamily("svc_broker_store_errors", "What the database refused, by operation.", labels=["op"])
    for op in ("put", "init", "close"):
        errors.add_metric([op], store.errors[op])
    yield errors


def _identity(principal: Principal) -> str | None:
    return None if principal.spiffe_id is None else str(principal.spiffe_id)
