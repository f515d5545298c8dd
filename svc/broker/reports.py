"""
Log records of the broker, at most one a second of a reason and source, its metrics, and the condition of its database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.broker.access import Principal
from svc.broker.config import BrokerSettings
from svc.broker.hub import Hub
from svc.broker.sharing import LargestShare
from svc.broker.statistics import ACTIONS, DROPS
from svc.errors import SvcError
from svc.policyfiles.settings import Policies
from svc.process.reauthorization import ReauthorizationSummary
from svc.telemetry.connections import ConnectionLog, log_suppressed
from svc.telemetry.events.base import Event
from svc.telemetry.events.broker import BrokerEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import MANY_SOURCES, DenialLimiter, FailureStreak
from svc.telemetry.logs import emit
from svc.wire.mqtt import Version

#: The results of a reload of the configuration.
RELOADS: Final = ("success", "error")


class BrokerReports(ConnectionLog):
    """
    A :class:`~svc.broker.connection.ConnectionReporter`, a :class:`~svc.transport.observer.ConnectionObserver` and a
    :class:`~svc.policyfiles.watch.PolicyObserver`.

    Attributes:
        refusals: connections that were closed before CONNECT, by reason.
        reloads: reloads of the configuration and changes of deny lists, by result.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(DenialLimiter(clock, self._suppressed))
        self.refusals: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()

    def connected(self, principal: Principal, client_id: str, version: Version) -> None:
        """Log nothing: a fleet that reconnects must not flood the log."""

    def refused(self, principal: Principal, error: SvcError) -> None:
        """Log that a client was not admitted."""
        self._log_client(BrokerEvent.CLIENT_REFUSED, principal, "", error)

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None:
        """Log that a client's connection was ended because of an error."""
        self._log_client(BrokerEvent.CLIENT_BROKEN, principal, client_id, error)

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """Log that access rules did not allow something."""
        if self._limiter.admit(f"mqtt_not_authorized.{action}", _identity(principal) or principal.address):
            emit(
                self.log,
                BrokerEvent.ACCESS_DENIED,
                reason="policy_deny",
                detail_reason="mqtt_not_authorized",
                detail=f"no rule lets it {action}, or one denies it",
                peer_spiffe_id=_identity(principal),
                attributes=_where(principal, client_id),
            )

    def no_room(self, reason: str, owner: str, most: Callable[[], LargestShare]) -> None:
        """Log who has most of what all share where there is no room for a message."""
        # Not for each owner: of many, each would have all searched for who has most.
        if self._limiter.admit(reason, MANY_SOURCES):
            found = most()
            attributes: dict[str, str | int | float | bool] = {
                "owner": owner,
                "most": found.owner,
                "most_octets": found.octets,
            }
            if found.messages is not None:
                attributes["most_messages"] = found.messages
            emit(self.log, BrokerEvent.NO_ROOM, detail_reason=reason, attributes=attributes)

    def reauthorized(self, summary: ReauthorizationSummary) -> None:
        """Log the end of a walk over the open connections."""
        emit(self.log, BrokerEvent.CONNECTIONS_REAUTHORIZED, attributes=summary.attributes)

    def _log_client(self, event: Event, principal: Principal, client_id: str, error: SvcError) -> None:
        if self._limiter.admit(error.reason, principal.address):
            emit(
                self.log,
                event,
                detail_reason=error.reason,
                detail=str(error),
                peer_spiffe_id=_identity(principal),
                attributes=_where(principal, client_id),
            )

    def reloaded(self, listeners: Sequence[str], users: int | None = None) -> Mapping[str, str | int]:
        """
        Count a reload that changed the rules of these listeners, and so many users of the password file.

        Returns:
            What has changed, for the log.
        """
        self.reloads["success"] += 1
        rules: dict[str, str | int] = {"rules_changed": ",".join(listeners)}
        return rules if users is None else rules | {"users_changed": users}

    def reload_refused(self) -> None:
        """Count a reload that was refused; the configuration before stays in force."""
        self.reloads["error"] += 1

    # svc.policyfiles.watch.PolicyObserver

    def policies_applied(self, policies: Policies, settings: BrokerSettings, *, reloaded: bool) -> None:
        """Log the deny lists in force; count a change like a reload of the configuration."""
        files = policies.files
        if reloaded:
            self.reloads["success"] += 1
        emit(
            self.log,
            BrokerEvent.DENY_LISTS_LOADED,
            attributes={"files": len(files.paths), "deny_lists": len(files.denied), "digest": files.digest},
        )

    def policies_rejected(self, error: SvcError, *, repeated: bool) -> None:
        """Count that changed deny lists are not valid; log it once for each reason."""
        self.reloads["error"] += 1
        if not repeated:
            emit(self.log, BrokerEvent.DENY_LISTS_REJECTED, detail_reason=error.reason, detail=str(error))

    # svc.transport.observer.ConnectionObserver

    def connection_refused(self, reason: str, address: str) -> None:
        """Count and log that a limit closed a connection, or that it began without PROXY header."""
        self.refusals[reason] += 1
        super().connection_refused(reason, address)

    def _suppressed(self, reason: str, source: str, count: int) -> None:
        log_suppressed(self.log, ProxyEvent.DENIALS_SUPPRESSED, reason.partition(".")[0], source, count)


def _where(principal: Principal, client_id: str) -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {
        "source.address": principal.address,
        "listener": principal.listener,
    }
    if client_id:
        found["mqtt.client_id"] = client_id
    if principal.name is not None:
        found["client_name"] = str(principal.name)
    return found


class BrokerStoreReports:
    """
    Reports of the broker's database; a :class:`svc.sqlite.groups.GroupObserver`.

    Attributes:
        accepting: whether changes that create state are accepted.
        errors: errors of the database, by operation.
        groups: committed groups.
        operations: operations in them.
        seconds: the duration of their commits together.
        path: the file.
        trouble: why it accepts no changes that create state; empty while it does.
    """

    log = Logger()

    def __init__(self, health: Health, path: str) -> None:
        self._health = health
        self.path = path
        self.trouble = ""
        self._repeats = FailureStreak()
        self._refused = False
        self.accepting = False
        self.errors: Counter[str] = Counter()
        self.groups = 0
        self.operations = 0
        self.seconds = 0.0

    def opened(self, sessions: int, retained: int, revoked: int) -> None:
        """Log that the database is open and was read."""
        attributes: dict[str, str | int | float | bool] = {
            "sessions": sessions,
            "retained": retained,
            "revoked": revoked,
            "path": self.path,
        }
        emit(self.log, BrokerEvent.STORE_OPENED, attributes=attributes)

    def closed(self) -> None:
        """Log that the database was closed at the stop."""
        self.accepting = False
        emit(self.log, BrokerEvent.STORE_CLOSED, attributes={"path": self.path})

    def accepting_changed(self, trouble: SvcError | None) -> None:
        """Log and show whether changes that create state are accepted."""
        self.accepting = trouble is None
        self.trouble = "" if trouble is None else str(trouble)
        if trouble is not None:
            self._refused = True
            self._health.fails_with("store", trouble)
            emit(
                self.log,
                BrokerEvent.STORE_REFUSES,
                detail_reason=trouble.reason,
                detail=f"{trouble}; {trouble.hint}",
                attributes={"path": self.path},
            )
            return
        self._health.holds("store")
        self._repeats.succeeded()
        if self._refused:
            self._refused = False
            emit(self.log, BrokerEvent.STORE_ACCEPTS, attributes={"path": self.path})

    def left_behind(self, operations: int, octets: int) -> None:
        """Log that the process stops before all was durable."""
        attributes: dict[str, str | int | float | bool] = {
            "operations": operations,
            "octets": octets,
            "path": self.path,
        }
        emit(self.log, BrokerEvent.STORE_LEFT_BEHIND, attributes=attributes)

    def db_error(self, op: Literal["put", "init", "close"], detail: str = "") -> None:
        """Count an error of the database; log it at the 1st, 2nd, 4th, 8th … time."""
        self.errors[op] += 1
        # The detail contains the free octets, which differ each time.
        if self._repeats.failed(op):
            attributes: dict[str, str | int | float | bool] = {
                "op": op,
                "attempts": self._repeats.count,
                "path": self.path,
            }
            emit(self.log, BrokerEvent.STORE_FAILED, detail=detail or None, attributes=attributes)

    def committed(self, count: int, seconds: float) -> None:
        """Count a committed group."""
        self.groups += 1
        self.operations += count
        self.seconds += seconds

    def damaged(self, path: str) -> None:
        """Log that the database is damaged."""
        emit(self.log, BrokerEvent.STORE_DAMAGED, attributes={"path": path})

    def set_aside(self, path: str, aside: str) -> None:
        """Log that a damaged database was renamed."""
        emit(self.log, BrokerEvent.STORE_SET_ASIDE, attributes={"path": path, "aside": aside})

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Log that there are damaged databases that were renamed."""
        emit(self.log, BrokerEvent.STORE_LIES_ASIDE, attributes={"databases": len(paths), "newest": paths[-1]})


class BrokerMetrics(Collector):
    """
    The broker's metrics, read at each scrape.

    Args:
        hub: the core.
        store: the reports of its database, where it has one.
        certificates: returns the listeners with the ends of their certificates.
        refusals: connections that were closed before CONNECT, by reason.
        last_contact: returns when the Workload API was reachable last; None where it is not used.
        reloads: reloads of the configuration, by result.
    """

    def __init__(
        self,
        hub: Hub,
        store: BrokerStoreReports | None = None,
        certificates: Callable[[], Sequence[tuple[str, datetime]]] = tuple,
        refusals: Counter[str] | None = None,
        last_contact: Callable[[], datetime | None] | None = None,
        reloads: Counter[str] | None = None,
    ) -> None:
        self._hub = hub
        self._store = store
        self._certificates = certificates
        self._last_contact = last_contact
        self._refusals: Counter[str] = Counter() if refusals is None else refusals
        self._reloads: Counter[str] = Counter() if reloads is None else reloads

    def collect(self) -> Iterable[Metric]:
        """Read all families."""
        hub, counts = self._hub, self._hub.statistics
        plain = (
            ("svc_broker_connections_active", "Connections that got CONNACK.", counts.connected),
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
            ("svc_broker_sessions_revoked", "Sessions ended as no rule applies to their owner.", counts.revoked),
        )
        for name, text, value in totals:
            yield CounterMetricFamily(name, text, value=value)
        labelled = (
            (
                "svc_broker_refusals",
                "Connections refused or ended, by reason.",
                "reason",
                (),
                counts.refused + self._refusals,
            ),
            ("svc_broker_messages_dropped", "Messages not delivered, by reason.", "reason", DROPS, counts.drops),
            (
                "svc_broker_config_reloads",
                "Reloads of the configuration and changes of deny lists, by result.",
                "result",
                RELOADS,
                self._reloads,
            ),
            ("svc_broker_denied", "What access rules refused, by action.", "action", ACTIONS, counts.denied),
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
        if self._last_contact is not None:
            contact = self._last_contact()
            yield GaugeMetricFamily(
                "svc_broker_workload_api_last_contact_timestamp_seconds",
                "When the Workload API was reachable last, in seconds since 1970 UTC; 0 for never.",
                value=0.0 if contact is None else contact.timestamp(),
            )
        if self._store is not None:
            yield from _of_store(self._store)


def _of_store(store: BrokerStoreReports) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "svc_broker_store_accepting", "1 while durable state is accepted, 0 while it is refused.", value=store.accepting
    )
    yield SummaryMetricFamily(
        "svc_broker_store_commit_seconds",
        "Groups made durable, and how long that took.",
        count_value=store.groups,
        sum_value=store.seconds,
    )
    yield CounterMetricFamily("svc_broker_store_operations", "Operations made durable.", value=store.operations)
    errors = CounterMetricFamily("svc_broker_store_errors", "Errors of the database, by operation.", labels=["op"])
    for op in ("put", "init", "close"):
        errors.add_metric([op], store.errors[op])
    yield errors


def _identity(principal: Principal) -> str | None:
    return None if principal.spiffe_id is None else str(principal.spiffe_id)
