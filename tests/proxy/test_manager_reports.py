"""What is logged and counted of the manager that gives policies and statements."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from svc.proxy.assembly.statements import StatementReports
from svc.proxy.policy_reports import PolicyReports
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.metrics import ProxyMetrics
from svc.workload.errors import CredentialsMissing
from tests.proxy.parts import LogTestCase


class ManagerReportsTests(LogTestCase):
    """A manager that is away for some requests, and comes back."""

    def test_policies(self) -> None:
        """Each failure is counted, the first is logged, and so is that the manager answers again."""
        registry = CollectorRegistry()
        reports = PolicyReports(ProxyMetrics(registry))
        reports.manager_answered()
        self.assertEqual([], self.logged)
        for _ in range(3):
            reports.manager_failed(CredentialsMissing())
        self.assertEqual(3, registry.get_sample_value("svc_proxy_policy_watch_errors_total"))
        self.assertEqual(1, self.of(ProxyEvent.POLICY_MANAGER_LOST)[0].attributes["attempts"])
        reports.manager_answered()
        reports.manager_answered()
        self.assertEqual(3, self.only(ProxyEvent.POLICY_MANAGER_FOUND).attributes["attempts"])

    def test_statements(self) -> None:
        """The first failure is logged, and that statements are issued again."""
        reports = StatementReports()
        reports.statement_answered()
        for _ in range(3):
            reports.statement_failed(CredentialsMissing())
        self.assertEqual(1, self.of(NotaryEvent.ISSUER_LOST)[0].attributes["attempts"])
        reports.statement_answered()
        self.assertEqual(3, self.only(NotaryEvent.ISSUER_FOUND).attributes["attempts"])
