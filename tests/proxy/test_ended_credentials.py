"""Connections whose SVIDs end, inbound and outbound: the earliest end of both chains counts."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from twisted.internet.error import ConnectionAborted
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.profile import Profile
from svc.proxy.listener import Listener
from tests.proxy.parts import Ports, ServerEndpoint, settings_of
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, Rig, Wire, evidence_of

GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 1\r\n\r\nx"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"
#: Below every timeout.
SOON = 20.0
PEER = AUTHORITY.svid("/ns/pay/sa/peer", ttl=timedelta(hours=2))


def short(path: str) -> X509Svid:
    """An SVID whose signing certificate ends before it."""
    return AUTHORITY.intermediate(not_after=BASE + timedelta(seconds=SOON)).svid(path, ttl=timedelta(hours=2))


class InboundTests(SynchronousTestCase):
    """Clients."""

    def setUp(self) -> None:
        """A listener."""
        self.rig = Rig()

    def closed(self, cause: str) -> float:
        """How many connections ended for this."""
        name, labels = "svc_proxy_connections_closed_total", {"protocol": "http", "cause": cause}
        return self.rig.registry.get_sample_value(name, labels) or 0.0

    def test_intermediate(self) -> None:
        """The end of a certificate between leaf and root ends the client's connection; counted and logged once."""
        client, wire = self.rig.client(short("/ns/web/sa/fe"))
        client.dataReceived(GET)
        self.rig.sweep(SOON)
        self.assertFalse(wire.aborted)
        for _turn in range(2):
            self.rig.sweep(0.5)
        self.assertTrue(wire.aborted)
        self.assertEqual(1, self.closed("peer_expired"))
        self.assertEqual([("expired", str(CALLER.spiffe_id))], self.rig.reporter.denials)

    def test_own_chain_without_credentials(self) -> None:
        """What the proxy presented ends too, also where it can serve no notary with it."""
        self.rig.rotation.credentials = None
        client, wire = self.rig.client()
        client.caller.evidence = evidence_of(CALLER, short("/ns/pay/sa/api"))
        self.rig.sweep(SOON)
        self.assertFalse(wire.disconnecting)
        self.rig.sweep(0.5)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, self.closed("credentials_expired"))

    def test_own_credentials(self) -> None:
        """A credentials ends with the first certificate of the chain that it presents, and is cut before."""
        facts = WorkloadFacts.explicit(host_name="api-1")
        issued = CredentialSet.issue(short("/ns/pay/sa/api"), None, facts, Profile.CLASSICAL, BASE, os.urandom)
        self.assertEqual(BASE + timedelta(seconds=SOON), issued.expires)
        self.assertEqual(BASE + timedelta(seconds=SOON * 0.9), issued.close_at)


class OutboundTests(SynchronousTestCase):
    """Peers."""

    def setUp(self) -> None:
        """A listener to a peer."""
        self.rig = Rig(inbound=False)
        (settings,) = settings_of(("out", 1)).listeners
        self.listener = Listener(self.rig.context, ServerEndpoint(Ports(), settings), None, os.urandom)
        self.connects(PEER, OWN)

    def connects(self, peer: X509Svid, own: X509Svid) -> None:
        """What handshakes from now on prove."""
        self.rig.endpoint.handle = Handle(evidence_of(peer, own))

    def asks(self, data: bytes = GET, answer: bytes = OK) -> Any:
        """An application asks; returns its connection, and what it has got."""
        client, wire = self.rig.client()
        client.dataReceived(data)
        if answer:
            self.rig.respond(answer)
        return client, wire

    def passes(self, seconds: float) -> None:
        """Time passes without a sweep."""
        self.rig.clock.advance(seconds)

    def counted(self) -> dict[str, float]:
        """What ended connections to peers, by cause."""
        found = {}
        for cause in ("peer_expired", "credentials_expired", "reauthorization", "identity_withdrawn"):
            labels = {"protocol": "http", "cause": cause}
            value = self.rig.registry.get_sample_value("svc_proxy_upstream_connections_closed_total", labels)
            if value:
                found[cause] = value
        return found

    def kept(self) -> Wire:
        """A kept connection, swept right before the end of a certificate."""
        self.asks()
        self.rig.sweep(SOON)
        return self.rig.upstream()[1]

    def test_kept_connection(self) -> None:
        """A kept connection is used until the earliest end of either chain, and neither reused nor kept after it."""
        for peer, own, cause, reason in (
            (short("/ns/pay/sa/peer"), OWN, "peer_expired", "expired"),
            (PEER, short("/ns/pay/sa/api"), "credentials_expired", "credentials_expired"),
        ):
            for swept in (True, False):
                self.setUp()
                self.connects(peer, own)
                wire = self.kept()
                self.asks()
                self.assertEqual(1, len(self.rig.endpoint.connections))
                self.connects(PEER, OWN)
                self.passes(0.001)
                if swept:
                    self.rig.sweep()
                    self.assertTrue(wire.disconnecting)
                    self.rig.sweep()
                client, mine = self.rig.client()
                client.dataReceived(GET)
                self.assertEqual(2, len(self.rig.endpoint.connections))
                self.rig.respond(OK)
                self.assertIn(b"200 OK", mine.take())
                self.assertTrue(wire.disconnecting)
                self.assertEqual({cause: 1.0}, self.counted())
                self.assertEqual([(reason, str(PEER.spiffe_id))], self.rig.reporter.denials)

    def test_running_exchange(self) -> None:
        """A running exchange is cut: what had begun is not whole, and where nothing had come the answer says why."""
        begun = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
        peers, own = short("/ns/pay/sa/peer"), short("/ns/pay/sa/api")
        for answered, peer, presented, status, reason in (
            (begun, peers, OWN, b"", "expired"),
            (b"", peers, OWN, b" 502 ", "expired"),
            (begun, PEER, own, b"", "credentials_expired"),
            (b"", PEER, own, b" 503 ", "credentials_expired"),
        ):
            self.setUp()
            self.connects(peer, presented)
            _client, wire = self.asks(POST, answered)
            upstream, mine = self.rig.upstream()
            self.rig.sweep(SOON)
            self.assertFalse(mine.aborted)
            self.rig.sweep(0.5)
            self.assertTrue(mine.aborted)
            upstream.connectionLost(Failure(ConnectionAborted()))
            self.assertEqual(bool(answered), wire.aborted)
            answer = wire.take()
            self.assertIn(status, answer)
            [(precise, detail)] = self.rig.reporter.details
            self.assertIn(reason, (precise, *self.rig.reporter.failures))
            self.assertIn("ended at 2", detail)
            self.assertNotIn("closed the connection", detail)
            self.assertEqual(bool(status), b'"detail":' in answer)
            cause = "peer_expired" if peer is peers else "credentials_expired"
            self.assertEqual({cause: 1.0}, self.counted())

    def test_tunnel(self) -> None:
        """An upgraded connection ends as well, and the application's with it."""
        self.connects(short("/ns/pay/sa/peer"), OWN)
        _client, wire = self.asks(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n", SWITCH)
        upstream, mine = self.rig.upstream()
        self.rig.sweep(SOON)
        self.assertFalse(mine.aborted)
        self.rig.sweep(0.5)
        self.assertTrue(mine.aborted)
        upstream.connectionLost(Failure(ConnectionAborted()))
        self.assertTrue(wire.disconnecting)
        self.assertEqual({"peer_expired": 1.0}, self.counted())

    def test_own_credentials_that_have_ended(self) -> None:
        """A connection that was made with own credentials that have ended carries nothing: 503, and why."""
        self.connects(PEER, short("/ns/pay/sa/api"))
        self.rig.sweep(SOON + 1)
        client, wire = self.rig.client()
        client.dataReceived(GET)
        self.assertIn(b'"code":"credentials_expired"', wire.take())
        upstream = self.rig.upstream()[1]
        self.assertTrue(upstream.aborted)
        self.assertEqual(b"", upstream.take())
        self.assertEqual({"credentials_expired": 1.0}, self.counted())

    def test_application_without_tls(self) -> None:
        """A connection to an application proves nothing and ends by no certificate."""
        self.rig.endpoint.handle = None
        self.asks()
        self.rig.sweep(SOON + 1)
        self.assertFalse(self.rig.upstream()[1].disconnecting)

    def test_changes(self) -> None:
        """A root that leaves the bundles, and an identity that is withdrawn, are counted by their causes."""
        self.asks(answer=b"")
        self.listener.reauthorize(BundleSet.of(), self.rig.wall())
        self.assertEqual({"reauthorization": 1.0}, self.counted())
        self.rig.upstream()[0].connectionLost(Failure(ConnectionAborted()))
        self.asks(answer=b"")
        self.rig.rotation.withdrawn = True
        self.listener.reauthorize(AUTHORITY.bundles(), self.rig.wall())
        self.assertEqual({"reauthorization": 1.0, "identity_withdrawn": 1.0}, self.counted())
