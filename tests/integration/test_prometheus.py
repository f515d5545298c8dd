"""The real Prometheus and its ``promtool`` over a proxy that is in use, and the rules of svc/data/alerts."""

from __future__ import annotations

import re
import urllib.request
from contextlib import ExitStack

from prometheus_client import CollectorRegistry, generate_latest
from ruamel.yaml import YAML
from twisted.trial.unittest import SynchronousTestCase

from docs.generator.dashboards import broker_metrics
from svc.data import FOLDER
from svc.manager.control import CONTROLLERS
from svc.manager.metrics import ManagerMetrics
from svc.telemetry.metrics import ProxyMetrics
from tests.integration.metrics_rig import SHARED, page
from tests.peers.independent_clients import RawConnection
from tests.peers.partner import attempt
from tests.peers.programs import find
from tests.peers.prometheus import RunningPrometheus, promtool
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

RULES = FOLDER / "alerts" / "alerts.yaml"
SUCCESS = 'svc_proxy_connections_total{direction="inbound",result="success"}'


class ScrapeTests(SynchronousTestCase):
    """A page after use, read by those who will read it."""

    def setUp(self) -> None:
        for program in ("prometheus", "promtool"):
            find(program)
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        with RawConnection(self.proxy.port, self.found.web) as connection:
            for level in ("workload", "logRequest", "signRequest"):
                connection.request("/bytes/10", fields=f"Svc-Notarization-Level: {level}\r\n")
        self.assertIn(b" 403 ", attempt(self.proxy.port, self.found.partner.svid()))
        self.assertEqual(b"", attempt(self.proxy.port, None))

    def test_lint(self) -> None:
        """``promtool check metrics`` reports nothing, in both formats."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.proxy.metrics_port}/metrics", timeout=60) as answer:
            text = answer.read()
        ran = promtool("check", "metrics", data=text)
        self.assertEqual((0, b"", b""), (ran.returncode, ran.stdout, ran.stderr))
        # It does report an invalid name.
        self.assertTrue(promtool("check", "metrics", data=text + b"svc_proxy_more 1\n").stderr)

    def test_lint_of_the_manager(self) -> None:
        """Nothing is reported of its families but the name that the specification gives to one gauge."""
        registry = CollectorRegistry()
        ManagerMetrics(registry, CONTROLLERS)
        ran = promtool("check", "metrics", data=generate_latest(registry))
        said = [line for line in (ran.stdout + ran.stderr).decode().splitlines() if line]
        self.assertEqual(
            [
                f'{name} non-counter metrics should not have "_total" suffix'
                for name in ("svc_manager_policies_total", "svc_manager_spire_instances_total")
            ],
            said,
            ran.returncode,
        )

    def differing(self, prometheus: RunningPrometheus) -> dict[str, tuple[list[float], float]]:
        """Return the values that Prometheus has and the page has not."""
        shown = {
            "up": 1.0,
            "svc_proxy_notary_writable": self.proxy.metric("svc_proxy_notary_writable"),
            SUCCESS: self.proxy.metric("svc_proxy_connections_total", direction="inbound", result="success"),
            "scrape_samples_scraped": float(len(self.proxy.samples())),
        }
        measured = {query: list(prometheus.ask(query).values()) for query in shown}
        return {query: (measured[query], value) for query, value in shown.items() if measured[query] != [value]}

    def test_scrape(self) -> None:
        """Prometheus reports the proxy as up and returns the values of the page; its rules are loaded."""
        with ExitStack() as stack:
            prometheus = RunningPrometheus(stack, {"svc-proxy": self.proxy.metrics_port}, RULES)
            # Not at each moment: on a busy machine a scrape may fail, and the next one brings all of it.
            eventually(lambda: self.differing(prometheus) == {}, what="that it is up and has the values of the page")
            named = set(re.findall(r"alert: (\w+)", RULES.read_text()))
            self.assertEqual(named, prometheus.alerts())


class AlertTests(SynchronousTestCase):
    """The alerting rules that are shipped."""

    def test_rules(self) -> None:
        """They are well-formed, fire above their thresholds and not below."""
        for command in (
            ("check", "rules", "--lint-fatal", RULES),
            ("test", "rules", RULES.with_name("alerts.test.yaml")),
        ):
            ran = promtool(*command)
            self.assertEqual(0, ran.returncode, ran.stdout.decode() + ran.stderr.decode())

    def test_families(self) -> None:
        """They name families and labels that a proxy, the manager or a broker shows."""
        expressions = "\n".join(re.findall(r"expr: (.*)", RULES.read_text()))
        shown = {name for name, _ in page(SHARED.get().proxy)}
        named = {name.removesuffix("_bucket") for name in re.findall(r"svc_proxy_\w+", expressions)}
        # This proxy has no MQTT listener.
        registry = CollectorRegistry()
        ProxyMetrics(registry).mqtt()
        shown |= {family.name for family in registry.collect()}
        self.assertEqual(set(), named - shown)
        registry = CollectorRegistry()
        ManagerMetrics(registry, CONTROLLERS)
        managed = {sample.name for family in registry.collect() for sample in family.samples}
        self.assertEqual(set(), set(re.findall(r"svc_manager_\w+", RULES.read_text())) - managed)
        broker = broker_metrics()
        for name in set(re.findall(r"svc_broker_\w+", expressions)):
            broker.series(name)

    def test_both_ways(self) -> None:
        """Each has a test in which it fires, and one in which it does not."""
        loaded = YAML(typ="safe").load(RULES.with_name("alerts.test.yaml"))
        results: dict[str, set[bool]] = {}
        for group in loaded["tests"]:
            for each in group["alert_rule_test"]:
                results.setdefault(each["alertname"], set()).add(bool(each.get("exp_alerts")))
        expected = {name: {True, False} for name in re.findall(r"alert: (\w+)", RULES.read_text())}
        self.assertEqual(expected, results)
