"""What operators see of the broker's database."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.config import BrokerSettings
from svc.broker.persistence.schema import BROKER
from svc.broker.reports import BrokerMetrics, BrokerStoreReports
from svc.settings import ConfigInvalid, parse
from svc.sqlite.errors import JournalError
from svc.telemetry.events.base import Event
from svc.telemetry.events.broker import BrokerEvent
from svc.telemetry.health import Health
from tests.broker.rig import Rig

PLAIN = "listeners: [{name: local, listen: '127.0.0.1:1883'}]\n"
FAILURE = JournalError(path="/b.db", detail="database or disk is full", **BROKER.words)


class StoreReportsTests(SynchronousTestCase):
    """Log, health and metrics."""

    def setUp(self) -> None:
        """Reports, and what they log."""
        events = self.enterContext(capturedLogs())
        self.events = events
        self.health = Health(("listeners", "store"), optional=("store",), now=lambda: datetime(2030, 1, 1, tzinfo=UTC))
        self.health.holds("listeners")
        self.store = BrokerStoreReports(self.health, "broker.db")

    def logged(self) -> list[Event]:
        """The events so far."""
        return [each["svc_event"] for each in self.events if "svc_event" in each]

    def value(self, name: str, **labels: str) -> float | None:
        """Scrape a number."""
        registry = CollectorRegistry()
        registry.register(BrokerMetrics(Rig().hub, self.store))
        return registry.get_sample_value(name, labels)

    def test_failure(self) -> None:
        """A failure is logged with its reason and hint and shown in readiness, and its end is logged."""
        self.store.accepting_changed(None)
        self.assertEqual((self.logged(), self.value("svc_broker_store_accepting")), ([], 1))
        self.store.accepting_changed(FAILURE)
        condition = self.health.condition("store")
        self.assertEqual((condition.holds, condition.reason), (False, "mqtt_store_unavailable"))
        self.assertTrue(self.health.ready)
        self.assertEqual(self.value("svc_broker_store_accepting"), 0)
        self.store.accepting_changed(JournalError("mqtt_store_busy", limit=5, unit="operations"))
        self.assertEqual(self.health.condition("store").reason, "mqtt_store_busy")
        self.store.accepting_changed(None)
        self.assertTrue(self.health.condition("store").holds)
        self.assertEqual(
            self.logged(), [BrokerEvent.STORE_REFUSES, BrokerEvent.STORE_REFUSES, BrokerEvent.STORE_ACCEPTS]
        )
        fields = self.events[0]["svc_fields"]
        self.assertEqual(fields["detail_reason"], "mqtt_store_unavailable")
        self.assertIn("disk is full; check the disk", fields["detail"])
        self.assertEqual(self.events[0]["svc_attributes"], {"path": "broker.db"})

    def test_errors_are_counted_and_not_repeated(self) -> None:
        """Every error is counted; of the same one the 1st, 2nd, 4th and 8th are logged, and again after a success."""
        for second in range(9):
            self.store.db_error("put", f"disk full, {second} octets free on its file system")
        self.assertEqual(self.logged(), [BrokerEvent.STORE_FAILED] * 4)
        self.store.accepting_changed(None)
        self.store.db_error("put", "database or disk is full")
        self.assertEqual(self.logged(), [BrokerEvent.STORE_FAILED] * 5)
        self.assertEqual(self.value("svc_broker_store_errors_total", op="put"), 10)
        self.assertEqual(self.value("svc_broker_store_errors_total", op="close"), 0)

    def test_commits(self) -> None:
        """Groups, their operations and their time add up, and are not logged."""
        self.store.committed(3, 0.25)
        self.store.committed(4, 0.5)
        self.assertEqual(self.value("svc_broker_store_operations_total"), 7)
        self.assertEqual(self.value("svc_broker_store_commit_seconds_count"), 2)
        self.assertEqual(self.value("svc_broker_store_commit_seconds_sum"), 0.75)
        self.assertEqual(self.logged(), [])

    def test_left_behind(self) -> None:
        """What is not durable at the stop is logged by number and size."""
        self.store.left_behind(3, 1500)
        self.assertEqual(self.logged(), [BrokerEvent.STORE_LEFT_BEHIND])
        self.assertEqual(self.events[0]["svc_attributes"], {"operations": 3, "octets": 1500, "path": "broker.db"})

    def test_damage(self) -> None:
        """Damage, and databases that were renamed, are logged with their paths."""
        self.store.damaged("/b.db")
        self.store.set_aside("/b.db", "/b.db.corrupt-1")
        self.store.lies_aside(["/b.db.corrupt-1", "/b.db.corrupt-2"])
        self.assertEqual(
            [each["svc_attributes"] for each in self.events],
            [
                {"path": "/b.db"},
                {"path": "/b.db", "aside": "/b.db.corrupt-1"},
                {"databases": 2, "newest": "/b.db.corrupt-2"},
            ],
        )


class SettingsTests(SynchronousTestCase):
    """The section ``persistence``."""

    def test_optional(self) -> None:
        """Without it nothing is kept; with it there is a path; nothing else is in it."""
        self.assertIsNone(parse(PLAIN, BrokerSettings).persistence)
        kept = parse(PLAIN + "persistence: {path: /var/lib/svc/broker.db}", BrokerSettings).persistence
        assert kept is not None
        self.assertEqual(kept.path, "/var/lib/svc/broker.db")
        for wrong in ("{}", "{path: ''}", "{path: x, size: 3}", "/var/lib/svc/broker.db"):
            with self.assertRaises(ConfigInvalid, msg=wrong):
                parse(PLAIN + f"persistence: {wrong}", BrokerSettings)
