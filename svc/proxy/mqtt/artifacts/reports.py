"""From the sessions that publish artifacts to metrics, log records and an optional condition of readiness."""

from __future__ import annotations

from typing import Final, Literal

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.errors import SvcError
from svc.proxy.mqtt.artifacts.session import ArtifactKind, ArtifactsUnpublished
from svc.telemetry.events.base import Event
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import RecordLimiter
from svc.telemetry.logs import emit
from svc.telemetry.metrics import MqttMetrics
from svc.wire.mqtt import Version

CONDITION: Final = "artifacts"
#: Seconds in which one event of a listener is logged once for each reason, and how many are tracked.
LOG_INTERVAL: Final = 60.0
MAX_LOGGED: Final = 256

_Problem = ArtifactKind | Literal["session", "queue"]


class ArtifactReports:
    """What all listeners report of their artifacts; the condition exists once one of them publishes any."""

    log = Logger()

    def __init__(self, metrics: MqttMetrics, health: Health, clock: IReactorTime) -> None:
        self.counts: Final = metrics.artifacts
        self._health = health
        self._clock = clock
        self._limiter = RecordLimiter(LOG_INTERVAL, MAX_LOGGED)
        #: Why artifacts of a listener are not published.
        self._problems: dict[tuple[str, _Problem], SvcError] = {}
        health.add_optional(CONDITION)

    def listener(self, name: str, prefix: str, upstream: str) -> ListenerArtifacts:
        return ListenerArtifacts(self, name, prefix, upstream)

    def failing(self, listener: str, what: _Problem, error: SvcError) -> None:
        """Show why something of a listener is not published."""
        self._problems[listener, what] = error
        self._health.fails_with(CONDITION, error)

    def holding(self, listener: str, *what: _Problem) -> None:
        """Show that something of a listener is published."""
        if not self._problems and self._health.condition(CONDITION).holds:
            return
        for each in what:
            self._problems.pop((listener, each), None)
        if self._problems:
            self._health.fails_with(CONDITION, next(iter(self._problems.values())))
        else:
            self._health.holds(CONDITION)

    def log_limited(self, event: Event, listener: str, prefix: str, error: SvcError | None = None) -> None:
        """Log an event, with what to do about it."""
        reason = "" if error is None else error.reason
        omitted = self._limiter.admit((event, listener, reason), self._clock.seconds())
        if omitted is None:
            return
        emit(
            self.log,
            event,
            detail_reason=reason or None,
            detail=None if error is None else f"{error}: {error.hint}" if error.hint else str(error),
            attributes={"listener": listener, "prefix": prefix, "repeated": omitted or None},
        )


class ListenerArtifacts:
    """One listener's :class:`svc.proxy.mqtt.artifacts.publisher.ArtifactObserver`."""

    def __init__(self, reports: ArtifactReports, name: str, prefix: str, upstream: str) -> None:
        self._reports = reports
        self._name = name
        self._prefix = prefix
        self._upstream = upstream

    def session_began(self, version: Version) -> None:
        """The broker takes artifacts: what it refused before is published again."""
        self._reports.holding(self._name, "session", "queue", "workload", "receipt")
        self._reports.log_limited(ProxyEvent.ARTIFACTS_BEGAN, self._name, self._prefix)

    def session_failed(self, error: SvcError) -> None:
        """There is no session; a probe that is refused or missing is a refusal of all artifacts."""
        self._reports.failing(self._name, "session", error)
        refused = error.reason in ("artifacts_probe_refused", "artifacts_probe_missing")
        if refused:
            self._reports.counts["probe", "refused"].inc()
        event = ProxyEvent.ARTIFACTS_REFUSED if refused else ProxyEvent.ARTIFACTS_FAILED
        self._reports.log_limited(event, self._name, self._prefix, error)

    def published(self, kind: ArtifactKind) -> None:
        """Count an artifact that the broker has."""
        self._reports.counts[kind, "published"].inc()
        self._reports.holding(self._name, kind, "queue")

    def refused(self, kind: ArtifactKind, error: ArtifactsUnpublished) -> None:
        """Count and log an artifact that the broker refused."""
        self._reports.counts[kind, "refused"].inc()
        self._reports.failing(self._name, kind, error)
        self._reports.log_limited(ProxyEvent.ARTIFACTS_REFUSED, self._name, self._prefix, error)

    def dropped(self, error: ArtifactsUnpublished) -> None:
        """Count and log a receipt that finds the queue full."""
        self._reports.counts["receipt", "dropped"].inc()
        self._reports.failing(self._name, "queue", error)
        self._reports.log_limited(ProxyEvent.ARTIFACTS_DROPPED, self._name, self._prefix, error)

    def ended(self, left: int) -> None:
        """Count and log the receipts that were left at the end, whose listener has no problems any more."""
        self._reports.holding(self._name, "session", "queue", "workload", "receipt")
        if left:
            self._reports.counts["receipt", "dropped"].inc(left)
            error = ArtifactsUnpublished("artifacts_left", broker=self._upstream, count=left)
            self._reports.log_limited(ProxyEvent.ARTIFACTS_DROPPED, self._name, self._prefix, error)
