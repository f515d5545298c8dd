"""What operators see of refused peers."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.observers import ListenerObserver, Reports
from svc.telemetry.metrics import ProxyMetrics

_FAILURES = "svc_proxy_tls_handshake_failures_total"


class HandshakeTests(SynchronousTestCase):
    """A handshake that failed."""

    def setUp(self) -> None:
        self.events: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)
        self.registry = CollectorRegistry()
        metrics, self.clock = ProxyMetrics(self.registry), Clock()
        self.reports = Reports(metrics, self.clock)
        self.addCleanup(self.reports.close)
        self.observer = ListenerObserver(metrics.listener("http", "inbound"), self.reports)

    def count(self, reason: str) -> float | None:
        """Read the counter of a reason."""
        return self.registry.get_sample_value(_FAILURES, {"role": "server", "reason": reason})

    def fields(self) -> dict[str, Any]:
        """The fields of the only record."""
        [event] = [
            each
            for each in self.events
            if getattr(each.get("svc_event"), "event_name", "") == "svc.proxy.handshake.failed"
        ]
        fields: dict[str, Any] = event["svc_fields"]
        return fields

    def test_precise_reason(self) -> None:
        """The reason below ``svid_invalid`` is the one that is counted and told."""
        self.observer.handshake_failed("server", "svid_invalid", "expired", "192.0.2.1:9", "certificate_expired")
        self.assertEqual((1.0, None), (self.count("expired"), self.count("svid_invalid")))
        self.assertEqual("expired", self.fields()["detail_reason"])

    def test_words_of_the_library(self) -> None:
        """What OpenSSL says in prose is told as prose and never stands where a reason belongs."""
        self.observer.handshake_failed("server", "handshake_failed", "http request", "192.0.2.1:9", "")
        self.assertEqual((1.0, None), (self.count("handshake_failed"), self.count("other")))
        fields = self.fields()
        self.assertEqual(("handshake_failed", "http request"), (fields["detail_reason"], fields["detail"]))
