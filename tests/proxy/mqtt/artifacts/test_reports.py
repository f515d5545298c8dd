"""Metrics, log records and readiness of artifacts."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from svc.proxy.mqtt.artifacts.reports import LOG_INTERVAL, ArtifactReports
from svc.proxy.mqtt.artifacts.session import ArtifactsUnpublished
from svc.telemetry.events.base import Event
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.metrics import ProxyMetrics
from svc.wire.mqtt import Version
from tests.proxy.parts import LogTestCase

REFUSED = ArtifactsUnpublished("artifacts_refused", broker="b:1", prefix="$.svc", answer="not authorized (0x87)")
SWALLOWED = ArtifactsUnpublished("artifacts_probe_missing", broker="b:1", prefix="$.svc")
CLOSED = ArtifactsUnpublished("artifacts_broker_closed", broker="b:1", cause="")
DROPPED = ArtifactsUnpublished("artifacts_dropped", broker="b:1", waiting=5)


class ArtifactReportsTests(LogTestCase):
    """What operators see."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.registry = CollectorRegistry()
        self.health = Health((), now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
        self.reports = ArtifactReports(ProxyMetrics(self.registry).mqtt(), self.health, self.clock)
        self.observer = self.reports.listener("iot", "$.svc", "b:1")

    def count(self, kind: str, result: str) -> float | None:
        labels = {"kind": kind, "result": result}
        return self.registry.get_sample_value("svc_proxy_mqtt_artifacts_total", labels)

    def failing(self) -> str:
        """The reason of the condition; the process is ready in any case."""
        self.assertTrue(self.health.ready)
        condition = self.health.condition("artifacts")
        self.assertFalse(condition.required)
        return "" if condition.holds else condition.reason

    def test_began(self) -> None:
        """The condition holds once there is a session, which is logged."""
        self.assertEqual("not_yet_known", self.failing())
        self.observer.session_began(Version.V5)
        self.assertEqual("", self.failing())
        self.assertEqual({"listener": "iot", "prefix": "$.svc"}, self.attributes(ProxyEvent.ARTIFACTS_BEGAN))

    def attributes(self, event: Event) -> dict[str, object]:
        return {name: value for name, value in self.only(event).attributes.items() if value is not None}

    def test_counts(self) -> None:
        """Each result has its series, which exists from the start at zero."""
        for kind, result in (("workload", "published"), ("receipt", "published"), ("probe", "refused")):
            self.assertEqual(0, self.count(kind, result))
        self.observer.published("workload")
        self.observer.published("receipt")
        self.observer.refused("workload", REFUSED)
        self.observer.refused("receipt", REFUSED)
        self.observer.dropped(DROPPED)
        self.observer.session_failed(SWALLOWED)
        for kind, result in (
            ("workload", "published"),
            ("workload", "refused"),
            ("receipt", "published"),
            ("receipt", "refused"),
            ("receipt", "dropped"),
            ("probe", "refused"),
        ):
            self.assertEqual(1, self.count(kind, result), (kind, result))

    def test_refused(self) -> None:
        """A refusal is logged once with prefix, reason and what to do, and shown until its kind is published."""
        self.observer.session_began(Version.V5)
        self.observer.published("workload")
        for _ in range(3):
            self.observer.refused("receipt", REFUSED)
        record = self.only(ProxyEvent.ARTIFACTS_REFUSED)
        self.assertEqual("artifacts_refused", record.fields["detail_reason"])
        for text in ("b:1", "$.svc", "not authorized (0x87)", "artifacts.username"):
            self.assertIn(text, record.fields["detail"])
        self.assertEqual("artifacts_refused", self.failing())
        self.observer.published("workload")
        self.assertEqual("artifacts_refused", self.failing())
        self.observer.published("receipt")
        self.assertEqual("", self.failing())

    def test_limited(self) -> None:
        """After an interval the same is logged again, with how often it was left out; another listener has its own."""
        self.observer.refused("receipt", REFUSED)
        self.clock.advance(LOG_INTERVAL - 1)
        self.observer.refused("receipt", REFUSED)
        self.reports.listener("other", "x", "b:2").refused("receipt", REFUSED)
        self.assertEqual(2, len(self.of(ProxyEvent.ARTIFACTS_REFUSED)))
        self.clock.advance(1)
        self.observer.refused("receipt", REFUSED)
        self.assertEqual(1, self.of(ProxyEvent.ARTIFACTS_REFUSED)[-1].attributes["repeated"])

    def test_failed(self) -> None:
        """A session that ends is shown until the next one; a probe that is swallowed is a refusal."""
        self.observer.session_failed(CLOSED)
        self.assertEqual("artifacts_broker_closed", self.failing())
        self.assertEqual("artifacts_broker_closed", self.only(ProxyEvent.ARTIFACTS_FAILED).fields["detail_reason"])
        self.observer.session_failed(SWALLOWED)
        self.assertEqual("artifacts_probe_missing", self.only(ProxyEvent.ARTIFACTS_REFUSED).fields["detail_reason"])
        self.observer.session_began(Version.V311)
        self.assertEqual("", self.failing())

    def test_dropped(self) -> None:
        """A full queue is logged and shown until a receipt is published."""
        self.observer.session_began(Version.V5)
        self.observer.dropped(DROPPED)
        self.assertIn("artifacts.queue", self.only(ProxyEvent.ARTIFACTS_DROPPED).fields["detail"])
        self.assertEqual("artifacts_dropped", self.failing())
        self.observer.published("receipt")
        self.assertEqual("", self.failing())

    def test_ended(self) -> None:
        """Receipts that are left are counted and logged; a listener that is closed has no problems any more."""
        other = self.reports.listener("other", "x", "b:2")
        other.session_failed(CLOSED)
        self.observer.session_failed(CLOSED)
        self.observer.ended(0)
        self.assertEqual("artifacts_broker_closed", self.failing())
        other.ended(3)
        self.assertEqual("", self.failing())
        self.assertEqual(3, self.count("receipt", "dropped"))
        self.assertIn("3 receipts were not published at b:2", self.only(ProxyEvent.ARTIFACTS_DROPPED).fields["detail"])
        other.ended(1)
        self.assertEqual((4, ""), (self.count("receipt", "dropped"), self.failing()))
        self.assertEqual(1, len(self.of(ProxyEvent.ARTIFACTS_DROPPED)))
