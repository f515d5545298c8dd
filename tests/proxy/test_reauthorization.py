"""Connections of clients and to peers between a change and the walk that reaches them."""

from __future__ import annotations

from datetime import timedelta

from twisted.internet.error import ConnectionAborted
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity.matchers import ExactID
from svc.policyfiles.settings import Policies
from svc.testing.ca import TestAuthority
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, Rig, Wire, evidence_of, lose
from tests.proxy.tcp.rig import TcpRig
from tests.proxy.tcp.rig import lose as lose_tcp

GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
OTHER_ROOT = TestAuthority("prod.example", now=BASE).bundles()
PEER = AUTHORITY.svid("/ns/pay/sa/peer", ttl=timedelta(hours=2))


def counted(rig: Rig, cause: str, what: str = "connections_closed", **labels: str) -> float:
    """How many connections were closed by a cause."""
    found = rig.registry.get_sample_value(f"svc_proxy_{what}_total", {"protocol": "http", "cause": cause, **labels})
    return found or 0.0


class InboundTests(SynchronousTestCase):
    """Connections of clients."""

    def setUp(self) -> None:
        """Make a listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def test_next_request(self) -> None:
        """A request on a connection that is not reached yet is decided on by what is in force, at its head."""
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        self.rig.rotation.bundles = OTHER_ROOT
        self.rig.reauthorization.begin()
        self.wire.clear()
        self.client.dataReceived(GET)
        self.assertEqual((b"", True), (self.wire.take(), self.wire.disconnecting))
        self.assertEqual(1, len(self.rig.endpoint.connections))
        self.rig.clock.advance(0)
        self.assertEqual([("chain_untrusted", str(CALLER.spiffe_id))], self.rig.reporter.denials)
        self.assertEqual(1, counted(self.rig, "reauthorization"))
        (summary,) = self.rig.summaries
        self.assertEqual((1, 1), (summary.decisions, summary.refusals))

    def test_next_request_of_other_policies(self) -> None:
        """The same with policies that refuse the client."""
        self.rig.context.policies = admit_nobody()
        self.rig.reauthorization.begin()
        self.client.dataReceived(GET + GET)
        self.assertEqual(([], True), (self.rig.endpoint.connections, self.wire.disconnecting))
        self.assertEqual([("policy_deny", str(CALLER.spiffe_id))], self.rig.reporter.denials)

    def test_next_request_is_permitted(self) -> None:
        """A client that is still permitted loses no request, and is decided on once."""
        self.rig.context.policies = Policies.admitting(ExactID(CALLER.spiffe_id))
        self.rig.reauthorization.begin()
        for _request in range(2):
            self.client.dataReceived(GET)
            self.rig.respond(OK)
        self.rig.clock.advance(0)
        self.assertEqual(2, self.wire.take().count(b"200 OK"))
        self.assertEqual([1], [each.decisions for each in self.rig.summaries])

    def test_requests_that_wait(self) -> None:
        """Of two pipelined requests the one that runs at the change is cut, and the other one not begun."""
        self.client.dataReceived(GET + GET)
        self.rig.change(OTHER_ROOT)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(1, len(self.rig.endpoint.connections))

    def test_change_during_the_handshake(self) -> None:
        """A client that was verified by former bundles is closed as soon as its handshake ends."""
        self.rig.rotation.bundles = OTHER_ROOT
        _client, wire = self.rig.client()
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, counted(self.rig, "reauthorization"))

    def test_defect(self) -> None:
        """A connection that cannot be decided is dropped; the others are decided."""
        other, other_wire = self.rig.client()
        self.client.reauthorize = lambda: 1 / 0  # type: ignore[assignment, return-value]
        self.rig.change(OTHER_ROOT)
        self.assertEqual((True, True), (self.wire.aborted, other_wire.disconnecting))
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.assertEqual([2], [each.refusals for each in self.rig.summaries])
        self.assertEqual(1, counted(self.rig, "defect"))
        self.assertFalse(other.gone)

    def test_defect_before_a_request(self) -> None:
        """A client that cannot be decided at its next request has none of its requests forwarded."""
        self.client.reauthorize = lambda: 1 / 0  # type: ignore[assignment, return-value]
        self.rig.rotation.bundles = OTHER_ROOT
        self.rig.reauthorization.begin()
        self.client.dataReceived(GET + GET)
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.assertEqual(([], True), (self.rig.endpoint.connections, self.wire.aborted))

    def test_registered_while_open(self) -> None:
        """A connection is registered from its handshake to its end."""
        self.assertEqual([self.client], list(self.rig.reauthorization))
        lose(self.client)
        self.assertEqual(0, len(self.rig.reauthorization))


class OutboundTests(SynchronousTestCase):
    """Connections to peers."""

    def setUp(self) -> None:
        """Make a listener with an idle connection to its peer."""
        self.rig = Rig(inbound=False)
        self.rig.endpoint.handle = Handle(evidence_of(PEER))
        self.client, self.wire = self.rig.client()
        self.exchange()

    def exchange(self) -> Wire:
        """Send a request, which the peer answers; returns the newest connection to the peer."""
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        return self.rig.upstream()[1]

    def begin(self) -> None:
        """Announce a change; the walk begins in the next turn."""
        self.rig.context.credentials_changed()
        self.rig.reauthorization.begin()

    def test_plain_clients(self) -> None:
        """Applications of this machine have no identity to decide on: only the connection to the peer is registered."""
        self.assertEqual([self.rig.upstream()[0]], list(self.rig.reauthorization))
        self.rig.lose_upstream()
        self.assertEqual(0, len(self.rig.reauthorization))

    def test_other_bundles(self) -> None:
        """An idle connection to a peer that is refused serves no request, reached or not."""
        for reached in (False, True):
            first = self.rig.upstream()[1]
            self.rig.rotation.bundles = OTHER_ROOT
            self.begin()
            if reached:
                self.rig.clock.advance(0)
                self.assertTrue(first.aborted)
            self.exchange()
            self.rig.clock.advance(0)
            self.assertTrue(first.aborted)
            self.assertIsNot(first, self.rig.upstream()[1])
            self.rig.endpoint.connections[-2][0].connectionLost(Failure(ConnectionAborted()))
            # The next connection is verified by its handshake, which this rig replaces.
            self.rig.rotation.bundles = AUTHORITY.bundles()
        self.assertEqual(2, len(self.rig.reporter.denials))
        self.assertEqual(2, counted(self.rig, "reauthorization", "upstream_connections_closed"))

    def test_peer_that_is_permitted(self) -> None:
        """An idle connection to a peer that is not refused serves the next request, reached or not."""
        first = self.rig.upstream()[1]
        self.begin()
        self.exchange()
        self.begin()
        self.rig.clock.advance(0)
        self.assertIs(first, self.exchange())
        self.assertEqual(1, self.rig.pool.idle_count)

    def test_own_rotation(self) -> None:
        """An idle connection under a former SVID serves no further request, and is closed by the walk."""
        first = self.rig.upstream()[1]
        self.rig.rotation.svid = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=2))
        self.assertEqual(OWN.spiffe_id, self.rig.rotation.svid.spiffe_id)
        self.begin()
        self.assertFalse(first.disconnecting)
        self.rig.clock.advance(0)
        self.assertTrue(first.disconnecting)
        self.assertEqual((0, []), (self.rig.pool.idle_count, self.rig.reporter.denials))
        second = self.exchange()
        self.begin()
        self.assertIs(second, self.exchange())

    def test_own_rotation_before_the_walk(self) -> None:
        """The same where a request comes before the walk."""
        first = self.rig.upstream()[1]
        self.rig.rotation.svid = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=2))
        self.begin()
        self.assertIsNot(first, self.exchange())
        self.assertTrue(first.disconnecting)


class TcpTests(SynchronousTestCase):
    """Relayed connections."""

    def test_change_during_the_handshake(self) -> None:
        """A client that was verified by former bundles reaches nothing."""
        rig = TcpRig()
        rig.rotation.bundles = OTHER_ROOT
        client, wire = rig.accept()
        self.assertEqual((True, []), (wire.aborted, rig.endpoint.connections))
        lose_tcp(client)
        self.assertEqual((1, 0), (rig.closed("reauthorization"), len(rig.reauthorization)))
