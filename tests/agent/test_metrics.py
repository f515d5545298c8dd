"""The metrics of the agent, from the states of its source."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry
from twisted.trial.unittest import SynchronousTestCase

from svc.agent.metrics import AgentMetrics
from svc.errors import SvcError
from svc.identity.svid import X509Svid
from svc.testing.ca import TestAuthority
from svc.workload.errors import CredentialsMissing, IdentityNotIssued, WorkloadApiLost
from svc.workload.interface import SourceState

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Source:
    """A source whose state a test sets."""

    def __init__(self) -> None:
        self.state = SourceState("starting")
        self.held: tuple[X509Svid, ...] = ()

    @property
    def svids(self) -> tuple[X509Svid, ...]:
        if not self.held:
            raise CredentialsMissing(socket="memory")
        return self.held


class AgentMetricsTests(SynchronousTestCase):
    """What a scrape shows after each change."""

    def setUp(self) -> None:
        """Follow a source that has nothing."""
        self.registry = CollectorRegistry()
        self.metrics = AgentMetrics(self.registry, lambda: NOW)
        self.source = Source()
        self.authority = TestAuthority("example.org", now=NOW)
        self.metrics.follow(self.source)

    def change(self, *held: X509Svid, **state: object) -> None:
        """Change the source."""
        self.source.held = held
        self.source.state = replace(self.source.state, **state)  # type: ignore[arg-type]
        self.metrics.changed(self.source)

    def value(self, name: str, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(f"svc_agent_{name}", labels)

    def test_from_the_start(self) -> None:
        """All series without a SPIFFE ID exist before anything happens."""
        names = ("workload_api_connected", "workload_api_watch_errors_total")
        self.assertEqual([0.0, 0.0], [self.value(name) for name in names])
        self.assertEqual([0.0, 0.0], [self.value("svid_renewals_total", result=each) for each in ("success", "error")])

    def test_renewals(self) -> None:
        """Each new SVID counts once, an update of bundles alone does not, and a refused update is an error."""
        first, second = (self.authority.svid(f"/ns/{each}/sa/x") for each in "ab")
        self.change(first, phase="connected", updates=1)
        self.change(first, updates=2)
        self.assertEqual(1.0, self.value("svid_renewals_total", result="success"))
        self.change(second, updates=3)
        self.change(second, rejected=2, phase="stale")
        self.assertEqual(2.0, self.value("svid_renewals_total", result="success"))
        self.assertEqual(2.0, self.value("svid_renewals_total", result="error"))

    def test_withdrawn(self) -> None:
        """The same SVID after a withdrawal is no renewal."""
        svid = self.authority.svid("/ns/a/sa/x")
        self.change(svid, phase="connected")
        self.change(phase="withdrawn")
        self.change(svid, phase="connected")
        self.assertEqual(1.0, self.value("svid_renewals_total", result="success"))

    def test_expiry(self) -> None:
        """The seconds that are left of each SPIFFE ID; none where there is no SVID."""
        svid = self.authority.svid("/ns/a/sa/x")
        self.assertIsNone(self.value("svid_expiry_seconds", spiffe_id=str(svid.spiffe_id)))
        self.change(svid, phase="connected")
        left = (svid.not_after - NOW) / timedelta(seconds=1)
        self.assertEqual(left, self.value("svid_expiry_seconds", spiffe_id=str(svid.spiffe_id)))

    def test_connected(self) -> None:
        """A socket that answers is reachable, also where it has no identity for the agent; one that fails is not."""
        lost = WorkloadApiLost(socket="x", since="now", what="no such file")
        unknown = IdentityNotIssued(socket="x", since="now", what="no identity issued")
        outages: tuple[tuple[SvcError | None, float], ...] = ((lost, 0.0), (unknown, 1.0), (lost, 0.0), (None, 1.0))
        for number, (outage, expected) in enumerate(outages):
            self.change(phase="stale", outage=outage, failures=number)
            self.assertEqual(expected, self.value("workload_api_connected"), outage)
        self.assertEqual(3.0, self.value("workload_api_watch_errors_total"))
        self.metrics.stopped()
        self.assertEqual(0.0, self.value("workload_api_connected"))
