"""SVIDs and intermediates that are valid for seconds: when a proxy stops using the connections that they vouch for."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from tests.integration.metrics_rig import outbound, port_of, world
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.partner import DOMAIN, Partner, PeerServer
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

CLOSED = "svc_proxy_upstream_connections_closed_total"
#: From the end of a certificate to the last response under it: two sweeps, and a machine that stalls.
LATE = 5.0
KEPT = {"limits": {"idleUpstream": 8}, "timeouts": {"idleUpstream": "10m"}}


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, svid: X509Svid) -> PeerServer:
        """A peer that presents an SVID."""
        peer = PeerServer(svid)
        self.stack.callback(peer.close)
        return peer

    def start(self, authority: RunningAuthority, *listeners: dict[str, Any]) -> RunningProxy:
        """A proxy with these listeners."""
        return self.stack.enter_context(RunningProxy(authority, "127.0.0.1:9", listeners=listeners))

    def last_served(self, connection: RawConnection, until: float) -> tuple[float, int]:
        """Send requests until the status is not 200; return the time of the last 200, and the response after it."""
        served = 0.0
        while time.time() < until:
            status = connection.request("/").status
            if status != 200:
                return served, status
            served = time.time()
            time.sleep(0.05)
        return served, 200


class PeerTests(_Case):
    """The credentials of the other side."""

    def brief(self, partner: Partner, path: str = "/api", seconds: float = 6.0) -> tuple[X509Svid, float]:
        """An SVID for hours by a signing certificate for seconds, and when that ends."""
        ends = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
        return partner.root.intermediate("brief", not_after=ends).svid(path), ends.timestamp()

    def test_peer_of_an_outbound_listener(self) -> None:
        """A kept connection carries no request after the end of a certificate of its peer; counted and logged once."""
        found = world(self.stack)
        svid, ends = self.brief(found.partner)
        peer = self.serve(svid)
        listener = outbound("out", peer.port, **KEPT)
        proxy = self.start(found.authority, listener)
        with RawConnection(port_of(listener)) as connection:
            served, status = self.last_served(connection, ends + 30)
            self.assertEqual(502, status)
            self.assertGreater(served, ends - 2)
            self.assertLess(served, ends + LATE)
            eventually(lambda: proxy.metric(CLOSED, cause="peer_expired") == 1, what="the count")
            [record] = eventually(lambda: proxy.records("svc.proxy.connection.revoked"))
            self.assertEqual(("expired", f"spiffe://{DOMAIN}/api"), (record["detail_reason"], record["peer_spiffe_id"]))
            peer.svid = found.partner.svid()
            self.assertEqual(200, connection.request("/").status)
        self.assertEqual(1, proxy.metric(CLOSED, cause="peer_expired"))

    def test_client_of_an_inbound_listener(self) -> None:
        """A client's connection ends with the first certificate of its path, long before its leaf does."""
        found = world(self.stack)
        proxy = self.start(found.authority)
        roots = Credentials.fetch(found.authority, found.folder / "web", "/ns/shop/sa/web").roots
        svid, ends = self.brief(found.partner, "/brief")
        with RawConnection(proxy.port, Credentials.of(svid, found.folder / "brief", roots)) as connection:
            self.assertEqual(403, connection.request("/").status)
            self.assertTrue(connection.ended())
            self.assertGreaterEqual(time.time(), ends)
            self.assertLess(time.time(), ends + LATE)
        closed = "svc_proxy_connections_closed_total"
        eventually(lambda: proxy.metric(closed, cause="peer_expired") == 1, what="the count")


class OwnTests(_Case):
    """The credentials of the proxy."""

    def test_outbound(self) -> None:
        """With its own SVID at the end a proxy uses no kept connection and no new one, whatever the peer accepts."""
        folder = short_folder(self.stack)
        partner = Partner(folder / "partner.pem")
        federated = {"federatesWith": [{"trustDomain": DOMAIN, "bundleFile": str(partner.path)}]}
        entries = [entry("/ns/shop/sa/api", ttl="10s")]
        authority = self.stack.enter_context(RunningAuthority(entries=entries, settings=federated))
        peer = self.serve(partner.svid())
        listener = outbound("out", peer.port, **KEPT)
        proxy = self.start(authority, listener)
        with RawConnection(port_of(listener)) as connection:
            self.assertEqual(200, connection.request("/").status)
            authority.kill()
            ends = proxy.metric("svc_proxy_svid_not_after_seconds")
            served, status = self.last_served(connection, ends + 30)
            self.assertEqual(503, status)
            self.assertLess(served, ends + LATE)
            self.assertFalse(proxy.is_ready())
            answer = connection.request("/")
            self.assertEqual(503, answer.status)
            self.assertIn(b'"code":"credentials_expired"', answer.body)
            self.assertIn(b"ended at", answer.body)
            self.assertGreaterEqual(proxy.metric(CLOSED, cause="credentials_expired"), 1)
            failures = "svc_proxy_tls_handshake_failures_total"
            self.assertGreaterEqual(proxy.metric(failures, role="client", reason="credentials_expired"), 1)
            logged = eventually(lambda: proxy.records("svc.proxy.upstream.failed"))
            self.assertEqual({"credentials_expired"}, {each["detail_reason"] for each in logged})
            authority.start()
            eventually(proxy.is_ready, what="readiness")
            self.assertEqual(200, connection.request("/").status)
