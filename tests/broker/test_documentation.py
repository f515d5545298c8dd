"""``docs/broker.md`` agrees with the tests."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from prometheus_client.core import Metric
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.reports import BrokerMetrics, BrokerStoreReports
from svc.telemetry.health import Health
from tests.broker.rig import Rig
from tests.integration.agreement.differences import broken_table, scenes_table
from tests.peers.waiting import TOP


class DifferencesTests(SynchronousTestCase):
    """The differences from another broker."""

    def test_tables(self) -> None:
        """The page shows both tables; ``python -m tests.integration.agreement.differences`` prints them."""
        page = (TOP / "docs" / "broker.md").read_text()
        for made in (scenes_table(), broken_table()):
            self.assertIn(made, page)


class MetricsTests(SynchronousTestCase):
    """The table of metrics."""

    def collected(self) -> dict[str, Metric]:
        """What is collected with a database, by the name that a query has."""
        rig = Rig()
        for counted in (rig.hub.statistics.drops, rig.hub.statistics.refused, rig.hub.statistics.denied):
            counted["x"] = 1
        store = BrokerStoreReports(Health(("store",), now=lambda: datetime.now(UTC)), "broker.db")
        certificates = [("x", datetime.now(UTC))]
        found = BrokerMetrics(rig.hub, store, lambda: certificates, last_contact=lambda: None).collect()
        return {f"{each.name}_total" if each.type == "counter" else each.name: each for each in found}

    def test_every_family_has_its_row(self) -> None:
        """Each family is there with its type and labels, and no other."""
        page = (TOP / "docs" / "broker.md").read_text()
        shown = {
            name: (kind, set(re.findall(r"`(\w+)`", labels)))
            for name, kind, labels in re.findall(r"^\| `(svc_broker_\w+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
        }
        made = {
            name: (each.type, {label for sample in each.samples for label in sample.labels})
            for name, each in self.collected().items()
        }
        self.assertGreater(len(made), 15)
        self.assertEqual(shown, made)

    def test_zero(self) -> None:
        """What may be counted is zero from the start, as the page lists it: rates miss no first event."""
        page = (TOP / "docs" / "broker.md").read_text()
        families = {each.name: each for each in BrokerMetrics(Rig().hub, None, list).collect()}
        for name, label in (("svc_broker_messages_dropped", "reason"), ("svc_broker_denied", "action")):
            (row,) = (line for line in page.splitlines() if line.startswith(f"| `{name}_total`"))
            zeros = {each.labels[label]: each.value for each in families[name].samples}
            self.assertEqual(zeros, dict.fromkeys(set(re.findall(r"`(\w+)`", row)) - {f"{name}_total", label}, 0))
