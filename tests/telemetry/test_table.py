"""The tables of docs/telemetry.md against the registry: families, labels, and every value of every label."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.metrics import ProxyMetrics

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
Labels = frozenset[tuple[str, str]]

_FAMILY = re.compile(r"^\| `(svc_proxy_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", re.MULTILINE)
_TABLE = re.compile(r"^`(svc_proxy_\w+)`\n\n\| labels \| event \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
_PAIR = re.compile(r'`(\w+)="([^"`]+)"`')
#: The value of no closed set: who the proxy is.
_OWN = "spiffe://example.org/a"


def name_of(family: Metric) -> str:
    """The name that a query uses."""
    return f"{family.name}_total" if family.type == "counter" else family.name


class TableTests(SynchronousTestCase):
    """What an operator reads is what is counted."""

    def setUp(self) -> None:
        registry = CollectorRegistry()
        metrics = ProxyMetrics(registry)
        metrics.listener("http", "inbound")
        metrics.listener("http", "outbound")
        metrics.listener("tcp", "inbound")
        metrics.mqtt()
        metrics.notary("http")
        metrics.watch_svids(lambda: [(_OWN, datetime(2026, 11, 21, tzinfo=UTC))])
        self.families: dict[str, Metric] = {name_of(family): family for family in registry.collect()}
        self.text = PAGE.read_text()

    def series(self, name: str) -> set[Labels]:
        """The series of a family, without what is the same everywhere."""
        return {
            frozenset((label, value) for label, value in sample.labels.items() if label not in ("le", "protocol"))
            for sample in self.families[name].samples
            if not sample.name.endswith("_created")
        }

    def test_families(self) -> None:
        """Each family is in the first two tables, with its type and its labels."""
        documented = {
            name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _FAMILY.findall(self.text)
        }
        registered = {
            name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
            for name, family in self.families.items()
        }
        self.assertEqual(registered, documented)

    def test_values(self) -> None:
        """Each series is named by exactly one row of the tables of events."""
        tables = dict(_TABLE.findall(self.text))
        for name in self.families:
            expected = self.series(name)
            if name in tables:
                rows = [self.expanded(name, row) for row in tables.pop(name).splitlines()]
                named = [each for row in rows for each in row]
                self.assertEqual(expected, set(named), name)
                self.assertEqual(len(expected), len(named), f"{name}: two rows name one series")
            else:
                self.assertIn(expected, ({frozenset()}, {frozenset({("spiffe_id", _OWN)})}), name)
        self.assertEqual({}, tables)

    def test_number_of_series(self) -> None:
        """The page names the number of series of a proxy with inbound listeners, and with both kinds."""
        for directions in (["inbound"], ["inbound", "inbound", "outbound"]):
            registry = CollectorRegistry()
            metrics = ProxyMetrics(registry)
            for direction in directions:
                metrics.listener("http", "inbound" if direction == "inbound" else "outbound")
            metrics.notary("http")
            metrics.watch_svids(lambda: [(_OWN, datetime(2026, 11, 21, tzinfo=UTC))])
            samples = [
                sample
                for family in registry.collect()
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            self.assertIn(f" {len(samples)} series", self.text)

    def expanded(self, name: str, row: str) -> set[Labels]:
        """The series that a row names: a label that is not there includes all values of the others."""
        cell, event = row.strip("|").split(" | ")
        self.assertTrue(event.strip(), row)
        pairs = {label: values.split("/") for label, values in _PAIR.findall(cell)}
        self.assertTrue(pairs, row)
        labels = {label for series in self.series(name) for label, _ in series}
        for label in labels - set(pairs):
            pairs[label] = sorted({value for series in self.series(name) for key, value in series if key == label})
        return {frozenset(zip(pairs, values, strict=True)) for values in itertools.product(*pairs.values())}
