"""Connections end when a certificate of either chain expires, inbound and outbound."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from twisted.internet.error import ConnectionAborted
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import BundleSet, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.statement import issue_statement
from svc.proxy.listener import Listener
from tests.proxy.parts import Ports, ServerEndpoint, settings_of
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, Rig, Wire, evidence_of

GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 1\r\n\r\nx"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n"
#: Shorter than every timeout.
SOON = 20.0
PEER = AUTHORITY.svid("/ns/pay/sa/peer", ttl=timedelta(hours=2))


def short(path: str) -> X509Svid:
    """Create an SVID whose signing certificate expires before it."""
    return AUTHORITY.intermediate(not_after=BASE + timedelta(seconds=SOON)).svid(path, ttl=timedelta(hours=2))


class InboundTests(SynchronousTestCase):
    """Connections of clients."""

    def setUp(self) -> None:
        """Create an inbound listener."""
        self.rig = Rig()

    def closed(self, cause: str) -> float:
        """Return how many connections were closed with this cause."""
        name, labels = "svc_proxy_connections_closed_total", {"protocol": "http", "cause": cause}
        return self.rig.registry.get_sample_value(name, labels) or 0.0

    def test_intermediate(self) -> None:
        """A connection ends when a certificate between leaf and root expires; it is counted and logged once."""
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
        """The proxy's own chain expires the connection too, even without credentials for the notary."""
        self.rig.rotation.credentials = None
        client, wire = self.rig.client()
        client.caller.evidence = evidence_of(CALLER, short("/ns/pay/sa/api"))
        self.rig.sweep(SOON)
        self.assertFalse(wire.disconnecting)
        self.rig.sweep(0.5)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, self.closed("credentials_expired"))

    def test_own_credentials(self) -> None:
        """Credentials expire with the first certificate of the presented chain; connections are cut before that."""
        facts = WorkloadFacts.explicit(host_name="api-1")
        issued = CredentialSet.issue(short("/ns/pay/sa/api"), None, facts, Profile.CLASSICAL, BASE, os.urandom)
        self.assertEqual(BASE + timedelta(seconds=SOON), issued.expires)
        self.assertEqual(BASE + timedelta(seconds=SOON * 0.9), issued.close_at)

    def central(self, seconds: float) -> CredentialSet:
        """Credentials with a statement of the central issuer, made after so many seconds."""
        now, facts = BASE + timedelta(seconds=seconds), WorkloadFacts.explicit(host_name="api-1")
        manager, life = AUTHORITY.svid("/svc/manager"), timedelta(seconds=SOON)
        keys = (Signer.from_svid(manager),)
        statement = issue_statement(OWN, facts, keys, now, os.urandom, manager.spiffe_id, life)
        return CredentialSet.issue(OWN, None, facts, Profile.CLASSICAL, now, os.urandom, statement)

    def test_next_central_statement(self) -> None:
        """A connection goes on with the next one; an exchange with a record ends with the one that it began with."""
        for level, cut in ((b"", False), (b"workload", False), (b"logRequest", True)):
            rig = self.rig = Rig()
            first, second = self.central(0), self.central(SOON / 2)
            rig.rotation.credentials = first
            client, wire = rig.client()
            idle, _idle_wire = rig.client()
            client.dataReceived(GET.replace(b"\r\n\r\n", b"\r\nSvc-Notarization-Level: %b\r\n\r\n" % level if level
                                            else b"\r\n\r\n"))  # fmt: skip
            rig.rotation.credentials = second
            rig.sweep(SOON / 2)
            self.assertIs(first if cut else second, client.caller.credentials)
            self.assertIs(second, idle.caller.credentials)
            rig.sweep(SOON * 0.45)
            self.assertEqual(float(cut), self.closed("credentials_expired"), level)
            if not cut:
                rig.respond(OK)
                named = b"Svc-Workload-ID: " + second.statement.id.encode()
                self.assertEqual(level == b"workload", named in wire.value())


class OutboundTests(SynchronousTestCase):
    """Connections to peers."""

    def setUp(self) -> None:
        """Create an outbound listener."""
        self.rig = Rig(inbound=False)
        (settings,) = settings_of(("out", 1)).listeners
        self.listener = Listener(self.rig.context, ServerEndpoint(Ports(), settings), self.rig.build)
        self.connects(PEER, OWN)

    def connects(self, peer: X509Svid, own: X509Svid) -> None:
        """Set the chains that handshakes prove from now on."""
        self.rig.endpoint.handle = Handle(evidence_of(peer, own))

    def request(self, data: bytes = GET, answer: bytes = OK) -> Any:
        """Send a request of an application; return its connection and the response so far."""
        client, wire = self.rig.client()
        client.dataReceived(data)
        if answer:
            self.rig.respond(answer)
        return client, wire

    def advance(self, seconds: float) -> None:
        """Advance the clock without a sweep."""
        self.rig.clock.advance(seconds)

    def counted(self) -> dict[str, float]:
        """Return the number of ended connections to peers by cause."""
        found = {}
        for cause in ("peer_expired", "credentials_expired", "reauthorization", "identity_withdrawn"):
            labels = {"protocol": "http", "cause": cause}
            value = self.rig.registry.get_sample_value("svc_proxy_upstream_connections_closed_total", labels)
            if value:
                found[cause] = value
        return found

    def kept(self) -> Wire:
        """Create an idle pooled connection, last swept just before a certificate expires."""
        self.request()
        self.rig.sweep(SOON)
        return self.rig.upstream()[1]

    def test_kept_connection(self) -> None:
        """A pooled connection is used until the earliest expiry of either chain, then it is closed and not reused."""
        for peer, own, cause, reason in (
            (short("/ns/pay/sa/peer"), OWN, "peer_expired", "expired"),
            (PEER, short("/ns/pay/sa/api"), "credentials_expired", "credentials_expired"),
        ):
            for swept in (True, False):
                self.setUp()
                self.connects(peer, own)
                wire = self.kept()
                self.request()
                self.assertEqual(1, len(self.rig.endpoint.connections))
                self.connects(PEER, OWN)
                self.advance(0.001)
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
        """A running exchange is cut: a response that had begun stays incomplete, else the client gets the reason."""
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
            _client, wire = self.request(POST, answered)
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
        """An upgraded connection is broken off too, with the application's connection."""
        self.connects(short("/ns/pay/sa/peer"), OWN)
        _client, wire = self.request(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n", SWITCH
        )
        upstream, mine = self.rig.upstream()
        self.rig.sweep(SOON)
        self.assertFalse(mine.aborted)
        self.rig.sweep(0.5)
        self.assertTrue(mine.aborted)
        upstream.connectionLost(Failure(ConnectionAborted()))
        self.assertTrue(wire.aborted)
        self.assertEqual({"peer_expired": 1.0}, self.counted())

    def test_own_credentials_that_have_ended(self) -> None:
        """A connection made with own credentials that have expired carries no request: 503 with the reason."""
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
        """A connection without TLS has no certificate and does not expire."""
        self.rig.endpoint.handle = None
        self.request()
        self.rig.sweep(SOON + 1)
        self.assertFalse(self.rig.upstream()[1].disconnecting)

    def test_changes(self) -> None:
        """A root removed from the bundles and a withdrawn identity are counted with their own causes."""
        self.request(answer=b"")
        self.rig.change(BundleSet.of())
        self.assertEqual({"reauthorization": 1.0}, self.counted())
        self.rig.upstream()[0].connectionLost(Failure(ConnectionAborted()))
        self.request(answer=b"")
        self.rig.rotation.withdrawn = True
        self.rig.change(AUTHORITY.bundles())
        self.assertEqual({"reauthorization": 1.0, "identity_withdrawn": 1.0}, self.counted())
