"""Outages of what a proxy depends on are seen before they hurt: the Workload API and the post-quantum issuer."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import MonitoredDaemon
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port

LAST = "workload_api_last_contact_timestamp_seconds"


class OutageTests(SynchronousTestCase):
    """An authority that is both, stopped and started again."""

    def setUp(self) -> None:
        """Start the authority."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = RunningAuthority(entries=[entry("/ns/shop/sa/api")])
        self.stack.callback(self.authority.stop)
        self.authority.start()

    def failing(self, daemon: MonitoredDaemon, name: str) -> dict[str, Any]:
        """Wait until a condition fails; return it."""
        found: dict[str, Any] = eventually(
            lambda: (shown := daemon.readiness()[name]) and not shown["ok"] and shown, 60, f"{name} that fails"
        )
        return found

    def assert_outage(self, daemon: MonitoredDaemon, gauge: str) -> None:
        """The condition names cause and beginning, readiness stays, and the gauge does not change."""
        eventually(lambda: daemon.readiness()["workloadApi"]["ok"], 60, "a Workload API")
        self.assertLess(time.time() - daemon.metric(gauge), 60)
        self.authority.halt()
        shown = self.failing(daemon, "workloadApi")
        self.assertEqual((False, "workload_api_unavailable"), (shown["required"], shown["reason"]))
        self.assertIn("is unreachable since ", shown["message"])
        eventually(lambda: "no such file" in daemon.readiness()["workloadApi"]["message"], 60, "the cause")
        self.assertTrue(daemon.readiness()["credentials"]["ok"])
        self.assertTrue(daemon.is_ready())
        before = daemon.metric(gauge)
        time.sleep(1.5)  # Two readings of a clock that moved; nothing waits for anything here.
        self.assertEqual(before, daemon.metric(gauge))

    def assert_over(self, daemon: MonitoredDaemon, gauge: str) -> None:
        """The condition holds again, and the gauge moves."""
        self.authority.start()
        eventually(lambda: daemon.readiness()["workloadApi"]["ok"], 60, "a Workload API")
        before = daemon.metric(gauge)
        eventually(lambda: daemon.metric(gauge) > before, 60, "a gauge that moves")

    def test_proxy(self) -> None:
        """Both conditions of a proxy fail while nothing is renewed, and hold again afterwards."""
        proxy = RunningProxy(self.authority, f"127.0.0.1:{webapp.start(self.stack)}")
        self.stack.callback(proxy.stop)
        proxy.start()
        gauge = f"svc_proxy_{LAST}"
        self.assert_outage(proxy, gauge)
        issuer = self.failing(proxy, "pqIssuer")
        self.assertEqual("pq_issuer_unavailable", issuer["reason"])
        self.assertIn(self.authority.pq_address, issuer["message"])
        eventually(lambda: proxy.records("svc.pq.issuer.unreachable"), what="that it is logged")
        self.assertEqual([], proxy.records("svc.pq.leaf.failed"), "no renewal was due")
        self.assert_over(proxy, gauge)
        eventually(lambda: proxy.readiness()["pqIssuer"]["ok"], 60, "an issuer")
        eventually(lambda: proxy.records("svc.pq.issuer.reachable"), what="that it is logged")

    def test_broker(self) -> None:
        """The same of a broker whose listener needs an identity."""
        tls = {
            "name": "tls",
            "listen": f"127.0.0.1:{free_port()}",
            "tls": {"spiffe": True},
            "acl": [{"who": "spiffe://example.org/*"}],
        }
        broker = RunningBroker(
            listeners=[tls],
            settings={"trustDomain": self.authority.trust_domain, "spiffeSocketPath": self.authority.address},
        )
        self.stack.callback(broker.stop)
        broker.start()
        gauge = f"svc_broker_{LAST}"
        self.assert_outage(broker, gauge)
        self.assert_over(broker, gauge)


class OutboundOnlyTests(SynchronousTestCase):
    """A proxy that only calls others."""

    def test_start(self) -> None:
        """An outbound-only proxy opens no database, needs no issuer and shows neither; everything else is as usual."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        proxy = RunningProxy(authority, "127.0.0.1:1", notary={"pqIssuer": "unix:///no/such.sock"})
        stack.callback(proxy.stop)
        [web] = proxy.config["listeners"]
        del web["notarization"]
        peer = f"spiffe://{authority.trust_domain}/ns/shop/sa/peer"
        web.update(direction="outbound", upstream="127.0.0.1:1", peer=peer)
        proxy.config["notary"]["path"] = "/no/such/folder/notary.db"
        proxy.start()
        self.assertEqual(["credentials", "workloadApi", "listeners"], list(proxy.readiness()))
        self.assertEqual([], [name for name, _labels, _value in proxy.samples() if "notary" in name])
        self.assertEqual([], proxy.records("svc.store.opened"))
        self.assertEqual([], proxy.records("svc.pq.issuer.unreachable"))
        self.assertEqual(0, proxy.halt())
