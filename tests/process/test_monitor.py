"""What a process remembers: its last errors, and its samples."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.internet.task import Clock
from twisted.logger import Logger, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.process.history import SAMPLE_EVERY, Totals
from svc.process.monitor import Monitor
from svc.process.status import MAX_ERRORS
from svc.telemetry.events.base import Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.store import StoreEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class MonitorTests(SynchronousTestCase):
    """:class:`Monitor`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.publisher = LogPublisher()
        self.log = Logger(observer=self.publisher)
        self.requests = 0
        self.broken = False
        self.monitor = Monitor(
            "proxy",
            Health(("store",), now=lambda: START),
            clock=self.clock,
            now=lambda: START + timedelta(seconds=self.clock.seconds()),
            read=self.read,
            publisher=self.publisher,
        )
        self.monitor.startService()

    def read(self) -> Totals:
        if self.broken:
            raise RuntimeError("no counters")
        return Totals(requests=self.requests)

    def test_samples(self) -> None:
        """The counters are read every ten seconds, also after a reading that failed; nothing runs after the stop."""
        self.requests = 25
        self.clock.advance(SAMPLE_EVERY)
        self.broken = True
        self.clock.advance(SAMPLE_EVERY)
        self.assertEqual(1, len(self.flushLoggedErrors(RuntimeError)))
        self.broken, self.requests = False, 45
        self.clock.advance(SAMPLE_EVERY)
        self.assertEqual([2.5, 1.0], [each.rates.requests for each in self.monitor.history.samples])
        status = self.monitor.status(trust_domain="prod.example")
        self.assertEqual(("proxy", False, 1.0), (status.process, status.ready, status.rates and status.rates.requests))
        self.assertEqual((START, "prod.example"), (status.started, status.trust_domain))
        self.monitor.stopService()
        self.assertEqual([], self.clock.getDelayedCalls())
        emit(self.log, StoreEvent.FAILED)
        self.assertEqual((), self.monitor.status().last_errors)

    def test_last_errors(self) -> None:
        """Denials, warnings and errors are kept as they are logged, the newest first, and no more than the limit."""
        emit(self.log, DaemonEvent.PROCESS_STARTED)
        emit(self.log, DaemonEvent.HEALTH_CHANGED, severity=Severity.WARN, detail_reason="starting", detail="no SVID")
        emit(
            self.log,
            ProxyEvent.REQUEST_DENIED,
            reason="policy_deny",
            detail_reason="policy_deny",
            detail="no\x1brule",
            peer_spiffe_id="spiffe://a/b",
        )
        emit(self.log, ProxyEvent.HANDSHAKE_FAILED, detail_reason="expired", attributes={"source.address": "192.0.2.1"})
        emit(self.log, ProxyEvent.ACCESS_DENIED, detail_reason="policy_deny", detail="the same for the audit trail")
        try:
            raise ValueError("a defect")
        except ValueError:
            self.log.failure("it failed")
        kept = [(each.event, each.reason, each.source, each.detail) for each in self.monitor.status().last_errors]
        self.assertEqual(
            [
                ("svc.runtime.failure", "ValueError", None, "it failed: a defect"),
                ("svc.proxy.handshake.failed", "expired", "192.0.2.1", "TLS handshake failed"),
                ("svc.proxy.request.denied", "policy_deny", "spiffe://a/b", "request denied: no\\x1brule"),
                ("svc.health.changed", "starting", None, "readiness changed: no SVID"),
            ],
            kept,
        )
        for number in range(MAX_ERRORS + 1):
            emit(self.log, StoreEvent.FAILED, detail_reason=f"reason_{number}")
        errors = self.monitor.status().last_errors
        self.assertEqual(MAX_ERRORS, len(errors))
        self.assertEqual(("reason_20", "reason_1"), (errors[0].reason, errors[-1].reason))
        self.monitor.stopService()

    def test_repeated_errors(self) -> None:
        """Events that differ in their detail or port only are one entry with their number, at the place of the last."""
        for number in range(3):
            emit(self.log, StoreEvent.READ_ONLY)
            where = {"source.address": f"192.0.2.1:{4000 + number}"}
            emit(self.log, ProxyEvent.CONNECTION_REFUSED, detail_reason="connection_limit", attributes=where)
        emit(self.log, StoreEvent.READ_ONLY, detail="disk is full")
        kept = [(each.event, each.count, each.source) for each in self.monitor.status().last_errors]
        expected = [("svc.store.read_only", 4, None), ("svc.proxy.connection.refused", 3, "192.0.2.1:4002")]
        self.assertEqual(expected, kept)
        self.assertIn("disk is full", self.monitor.status().last_errors[0].detail)
        self.monitor.stopService()
