"""The metrics of the manager."""

from __future__ import annotations

import asyncio
import contextlib

from prometheus_client import CollectorRegistry
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.manager.metrics import UPKEEP, ManagerMetrics


class ManagerMetricsTests(SynchronousTestCase):
    """What a scrape shows."""

    def setUp(self) -> None:
        """Make the families."""
        self.registry = CollectorRegistry()
        self.seconds = 0.0
        self.metrics = ManagerMetrics(self.registry, ("license-status",), lambda: self.seconds)

    def value(self, name: str, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(f"svc_manager_{name}", labels)

    def reconcile(
        self, result: float | Exception | None, seconds: float = 0.5, controller: str = "license-status"
    ) -> None:
        """Run a measured reconcile."""

        async def work() -> float | None:
            self.seconds += seconds
            if isinstance(result, Exception):
                raise result
            return result

        with contextlib.suppress(SvcError):
            asyncio.run(self.metrics.measured(controller, work)())  # type: ignore[arg-type]

    def test_reconcile(self) -> None:
        """Results are told apart, each takes its time, and a requested delay is observed."""
        self.assertEqual(0.0, self.value("reconcile_total", controller="license-status", result="error"))
        self.reconcile(None)
        self.reconcile(30.0)
        self.reconcile(SvcError())
        for result in ("success", "requeue", "error"):
            self.assertEqual(1.0, self.value("reconcile_total", controller="license-status", result=result), result)
        self.assertEqual(1.5, self.value("reconcile_duration_seconds_sum", controller="license-status"))
        self.assertEqual(30.0, self.value("reconcile_requeue_after_seconds_sum", controller="license-status"))
        self.assertEqual(1.0, self.value("reconcile_requeue_after_seconds_count", controller="license-status"))

    def test_license_valid_is_evaluated_at_each_scrape(self) -> None:
        """The gauge is no memory of a former evaluation."""
        valid = True
        self.metrics.license_valid(lambda: valid)
        self.assertEqual(1.0, self.value("license_valid"))
        valid = False
        self.assertEqual(0.0, self.value("license_valid"))

    def test_bundles_served(self) -> None:
        """Requests of peers, by whether they got something; both series are there."""
        for found, result in ((True, "success"), (False, "error")):
            self.assertEqual(0.0, self.value("bundle_exchange_total", direction="push", result=result))
            self.metrics.bundle_served(found=found)
            self.assertEqual(1.0, self.value("bundle_exchange_total", direction="push", result=result))
            self.assertEqual(0.0, self.value("bundle_exchange_total", direction="pull", result=result))
            self.metrics.bundle_fetched(verified=found)
            self.assertEqual(1.0, self.value("bundle_exchange_total", direction="pull", result=result))

    def test_sources(self) -> None:
        """Failures at the Workload API."""
        self.metrics.sources_failed(2)
        self.metrics.sources_failed(0)
        self.assertEqual(2.0, self.value("agent_sources_sync_errors_total"))

    def test_upkeep(self) -> None:
        """A controller without the families of reconciles counts there; all series are there."""
        for what in UPKEEP:
            for result in ("success", "error"):
                self.assertEqual(0.0, self.value("upkeep_total", what=what, result=result))
        for result in (None, 5.0, SvcError()):
            self.reconcile(result, controller="entries")
        self.assertEqual(2.0, self.value("upkeep_total", what="entries", result="success"))
        self.assertEqual(1.0, self.value("upkeep_total", what="entries", result="error"))
        self.assertIsNone(self.value("reconcile_duration_seconds_count", controller="entries"))

    def test_failed(self) -> None:
        """A controller that cannot begin has an error, whichever family it has."""
        for name in ("license-status", "entries"):
            self.metrics.failed(name)
        self.assertEqual(1.0, self.value("reconcile_total", controller="license-status", result="error"))
        self.assertEqual(1.0, self.value("upkeep_total", what="entries", result="error"))

    def test_instances(self) -> None:
        """How many SPIRE instances there shall be, and how many of them are ready."""
        self.assertEqual(0.0, self.value("spire_instances_total"))
        self.metrics.spire_instances(desired=2, ready=1)
        self.assertEqual((2.0, 1.0), (self.value("spire_instances_total"), self.value("spire_instances_ready")))

    def test_policies(self) -> None:
        """How many there are of each kind, from the start."""
        self.assertEqual(0.0, self.value("policies_total", kind="cluster"))
        self.metrics.policies("namespace", 3)
        self.metrics.policies("namespace", 2)
        self.assertEqual(2.0, self.value("policies_total", kind="namespace"))

    def test_policy_requests(self) -> None:
        """Answers to proxies; all series are there."""
        self.assertEqual(0.0, self.value("policy_requests_total", result="denied"))
        self.metrics.policies_requested("sent")
        self.assertEqual(1.0, self.value("policy_requests_total", result="sent"))

    def test_statement_requests(self) -> None:
        """The same for statements."""
        self.assertEqual(0.0, self.value("statement_requests_total", result="denied"))
        self.metrics.statements_requested("denied")
        self.assertEqual(1.0, self.value("statement_requests_total", result="denied"))

    def test_reloads(self) -> None:
        """A success is that of all sources, an error that of one."""
        self.metrics.reloaded()
        self.metrics.reload_refused("secret")
        self.metrics.watch_failed("configmap")
        self.assertEqual(1.0, self.value("config_reloads_total", result="success", source="all"))
        self.assertEqual(1.0, self.value("config_reloads_total", result="error", source="secret"))
        self.assertEqual(0.0, self.value("config_reloads_total", result="error", source="configmap"))
        self.assertEqual(1.0, self.value("config_watch_errors_total", source="configmap"))
