"""
Every series has an event: what the tests of metrics claim to move is exactly what the page of a real proxy shows.

A new family, a new value of a label, or a test that is taken away makes the two differ.
"""

from __future__ import annotations

from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import (
    test_metrics_connections,
    test_metrics_handshakes,
    test_metrics_requests,
    test_metrics_store,
)
from tests.integration.metrics_rig import SHARED, Series, claims, page, series

MODULES = (test_metrics_connections, test_metrics_handshakes, test_metrics_requests, test_metrics_store)
_SHARES = "tests.integration.test_record_shares.ShareTests."
_POLICY = "tests.integration.test_policy_files.PolicyFileTests."
_INSIDE = "tests.proxy.test_metrics_inside.InsideTests."


def closed(cause: str) -> Series:
    """The counter of a cause."""
    return series("connections_closed_total", protocol="http", cause=cause)


def ended(cause: str) -> Series:
    """The counter of connections to peers."""
    return series("upstream_connections_closed_total", protocol="http", cause=cause)


def failure(role: str, reason: str) -> Series:
    """The counter of a reason."""
    return series("tls_handshake_failures_total", role=role, reason=reason)


def other_group(role: str) -> Series:
    """The counter of groups without a name."""
    return series("tls_connections_total", protocol="http", role=role, group="other", post_quantum="false")


#: Series whose event has its test elsewhere, and where. The real proxy performs the first. Closing the database
#: ends the page as well: there the log of the real process shows what is counted, and the counter is read from a store
#: on a real file. The others need a defect of the proxy or another library.
ELSEWHERE = {
    closed("credentials_expired"): "tests.integration.test_proxy_expiry.ExpiryTests.test_expiry_and_recovery",
    series("notary_db_errors_total", op="close", entity="db"): "tests.store.test_damage.DamageTests.test_close_db",
    ended("peer_expired"): "tests.integration.test_proxy_ended_credentials.PeerTests.test_peer_of_an_outbound_listener",
    ended("credentials_expired"): "tests.integration.test_proxy_ended_credentials.OwnTests.test_outbound",
    ended("reauthorization"): "tests.proxy.test_ended_credentials.OutboundTests.test_changes",
    closed("rotation"): "tests.proxy.test_on_rotation.InboundTests.test_drain_idle",
    ended("rotation"): "tests.proxy.test_on_rotation.OutboundTests.test_upgraded",
    ended("identity_withdrawn"): "tests.proxy.test_ended_credentials.OutboundTests.test_changes",
    failure("client", "credentials_expired"): "tests.integration.test_proxy_ended_credentials.OwnTests.test_outbound",
    series("workload_api_last_contact_timestamp_seconds"): (
        "tests.integration.test_proxy_outages.OutageTests.test_proxy"
    ),
    series("notary_admissions_held_total", reason="place"): f"{_SHARES}test_requests",
    series(
        "notary_admissions_held_total", reason="rate"
    ): "tests.integration.test_proxy_budget.BudgetTests.test_held_back",
    series("notary_admissions_waiting"): f"{_SHARES}test_requests",
    **{
        series(f"notary_{name}"): "tests.telemetry.test_metrics.NotaryTests.test_room"
        for name in ("bytes", "room_bytes", "room_seconds")
    },
    series("policy_watch_errors_total"): "tests.proxy.test_manager_reports.ManagerReportsTests.test_policies",
    series("notary_signatures_waiting"): "tests.telemetry.test_metrics.NotaryTests.test_signing",
    **{
        series("policy_dry_run_total", protocol="http", result=result): f"{_POLICY}test_dry_run_and_audit"
        for result in ("allowed", "denied")
    },
    **{series("policy_reloads_total", result=result): f"{_POLICY}test_change" for result in ("success", "error")},
    closed("key_update_limit"): "tests.integration.test_proxy_handshake_costs.KeyUpdateTests.test_too_many",
    closed("credentials_missing"): f"{_INSIDE}test_credentials_missing",
    closed("defect"): f"{_INSIDE}test_defect",
    closed("other"): f"{_INSIDE}test_other_cause",
    failure("server", "internal_error"): f"{_INSIDE}test_internal_error",
    failure("client", "internal_error"): f"{_INSIDE}test_internal_error",
    failure("server", "other"): f"{_INSIDE}test_other_reason",
    failure("client", "other"): f"{_INSIDE}test_other_reason",
    other_group("server"): f"{_INSIDE}test_other_group",
    other_group("client"): f"{_INSIDE}test_other_group",
}


class CompletenessTests(SynchronousTestCase):
    """Nothing is counted without a test that names what happened."""

    def test_every_series_has_an_event(self) -> None:
        """The claims of all tests together are the page, no less and no more."""
        claimed, shown = claims(MODULES) | set(ELSEWHERE), set(page(SHARED.get().proxy))
        self.assertEqual(set(), shown - claimed, "no test names the event of these")
        self.assertEqual(set(), claimed - shown, "these are not on the page")

    def test_elsewhere_is_there(self) -> None:
        """The tests that are named are there, and no series has two stories."""
        for name in ELSEWHERE.values():
            self.assertTrue(callable(namedAny(name)), name)
        self.assertEqual(set(), claims(MODULES) & set(ELSEWHERE))
