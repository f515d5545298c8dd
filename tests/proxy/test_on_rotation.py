"""``onRotation``: what becomes of connections under a former SVID of the proxy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from twisted.internet.error import ConnectionAborted
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, ExactID, SvidEvidence, X509Bundle, verify_svid
from svc.policy.engine import Denied
from svc.policyfiles.settings import Policies
from svc.proxy.connection_settings import OnRotation
from svc.proxy.context import ListenerContext
from svc.testing.ca import TestAuthority
from svc.transport.evidence import PeerEvidence
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import AUTHORITY, BASE, OWN, Handle, Rig, Wire, evidence_of
from tests.proxy.tcp.rig import TcpRig
from tests.proxy.tcp.rig import lose as lose_tcp

GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
UPGRADE = b"GET /chat HTTP/1.1\r\nHost: api\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
NEXT = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=2))
FOREIGN = TestAuthority("partner.example", now=BASE)
PEER = FOREIGN.svid("/ns/web/sa/fe", ttl=timedelta(hours=2))
BOTH = BundleSet.of(*AUTHORITY.bundles(), *FOREIGN.bundles())
#: The own root is another one than before; that of the peer stays.
OTHER_OWN_ROOT = BundleSet.of(*TestAuthority("prod.example", now=BASE).bundles(), *FOREIGN.bundles())
BOUND = 30.0


def peer() -> Handle:
    """What the handshake with the peer proved."""
    proved = verify_svid(PEER.chain, BOTH, BASE)
    return Handle(PeerEvidence(proved, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, OWN))


def refuse_former(evidence: SvidEvidence) -> Denied | None:
    """A deny list that names the former SVID of the proxy."""
    return Denied(identity=OWN.spiffe_id, policy="stolen", rule="x") if evidence.leaf == OWN.leaf else None


class RotationCase(SynchronousTestCase):
    """Base class: a listener, and a rotation of its own SVID."""

    def listener(self, rig: Rig, context: ListenerContext, mode: OnRotation) -> None:
        """Configure a listener."""
        self.rig, self.context = rig, context
        context.on_rotation, context.drain_seconds = mode, lambda: BOUND
        rig.rotation.bundles = BOTH

    def rotate(self) -> None:
        """Put another SVID into force."""
        self.rig.rotation.svid = NEXT
        self.rig.change()

    def counted(self, what: str = "connections_closed", protocol: str = "http") -> float:
        """How many connections ``onRotation`` ended."""
        labels = {"protocol": protocol, "cause": "rotation"}
        return self.rig.registry.get_sample_value(f"svc_proxy_{what}_total", labels) or 0.0


class InboundTests(RotationCase):
    """Connections of clients."""

    def make(self, mode: OnRotation) -> None:
        """A listener."""
        rig = Rig(policies=Policies.admitting(ExactID(PEER.spiffe_id)))
        self.listener(rig, rig.context, mode)

    def client(self) -> tuple[Any, Wire]:
        """A client that was verified under the former SVID."""
        wire = Wire(peer())
        client = self.rig.build(self.rig.open)  # type: ignore[arg-type]
        client.makeConnection(wire)
        return client, wire

    def test_keep(self) -> None:
        """Connections go on, whatever becomes of the former SVID while its identity is in force."""
        self.make("keep")
        client, wire = self.client()
        self.rotate()
        self.context.listed = refuse_former
        self.rig.change(OTHER_OWN_ROOT)
        self.rig.sweep(BOUND)
        client.dataReceived(GET)
        self.rig.respond(OK + b"x")
        self.assertNotIn(b"Connection: close", wire.take())
        self.assertFalse(wire.disconnecting or wire.aborted)

    def test_drain_idle(self) -> None:
        """An idle connection is closed at once and counted; one under the current SVID is not."""
        self.make("drain")
        _client, wire = self.client()
        self.rotate()
        self.assertTrue(wire.disconnecting)
        self.assertEqual((1, []), (self.counted(), self.rig.reporter.denials))
        self.assertEqual([(1, 0)], [(each.decisions, each.refusals) for each in self.rig.summaries])

    def test_drain_current(self) -> None:
        """A connection under the current SVID goes on, through changes of anything else, too."""
        self.make("drain")
        _client, wire = self.client()
        self.rig.change()
        self.rig.change(BundleSet.of(*BOTH, *TestAuthority("third.example", now=BASE).bundles()))
        self.assertFalse(wire.disconnecting)

    def test_drain_busy(self) -> None:
        """The response to a request that runs is whole and asks for the end of the connection."""
        self.make("drain")
        client, wire = self.client()
        client.dataReceived(GET)
        self.rotate()
        self.assertFalse(wire.disconnecting or wire.aborted)
        self.rig.respond(OK + b"x")
        answer = wire.take()
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"x"))
        self.assertIn(b"Connection: close", answer)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, self.counted())

    def test_drain_after_the_response_began(self) -> None:
        """Where the head of the response is sent already, the connection is closed when it is idle."""
        self.make("drain")
        client, wire = self.client()
        client.dataReceived(GET)
        self.rig.respond(OK)
        self.rotate()
        self.rig.respond(b"x")
        self.assertFalse(wire.disconnecting)
        self.rig.sweep(0.5)
        self.assertTrue(wire.disconnecting)
        self.assertEqual(1, self.counted())

    def test_drain_request_before_the_walk(self) -> None:
        """A request that comes between the rotation and the walk is served, with the last response."""
        self.make("drain")
        client, wire = self.client()
        self.rig.rotation.svid = NEXT
        self.rig.reauthorization.begin()
        client.dataReceived(GET)
        self.rig.clock.advance(0)
        self.rig.respond(OK + b"x")
        self.assertIn(b"Connection: close", wire.take())
        self.assertTrue(wire.disconnecting)

    def test_drain_half_a_head(self) -> None:
        """A request whose head has begun is served."""
        self.make("drain")
        client, wire = self.client()
        client.dataReceived(GET[:9])
        self.rotate()
        self.assertFalse(wire.disconnecting)
        client.dataReceived(GET[9:])
        self.rig.respond(OK + b"x")
        self.assertIn(b"Connection: close", wire.take())

    def test_drain_handshake(self) -> None:
        """A client whose handshake ends after the rotation has time for a request."""
        self.make("drain")
        self.rig.rotation.svid = NEXT
        client, wire = self.client()
        client.dataReceived(GET)
        self.rig.respond(OK + b"x")
        self.assertIn(b"Connection: close", wire.take())
        _client, idle = self.client()
        self.assertFalse(idle.disconnecting)
        self.rig.sweep(0.5)
        self.assertTrue(idle.disconnecting)

    def test_drain_upgraded(self) -> None:
        """An upgraded connection is closed when the bound is reached; further changes do not extend it."""
        self.make("drain")
        client, wire = self.client()
        client.dataReceived(UPGRADE)
        self.rig.respond(SWITCHED)
        self.rotate()
        self.rig.sweep(BOUND - 0.5)
        self.rig.change()
        self.assertFalse(wire.aborted)
        self.rig.sweep(0.5)
        self.assertTrue(wire.aborted)
        self.assertEqual(1, self.counted())

    def test_reauth(self) -> None:
        """Connections go on until the former SVID itself would be refused: by other roots, or by a deny list."""
        for bundles, listed in ((OTHER_OWN_ROOT, lambda _evidence: None), (BOTH, refuse_former)):
            self.make("reauth")
            (_idle, wire), (busy, busy_wire) = self.client(), self.client()
            busy.dataReceived(GET)
            self.rotate()
            (more,) = AUTHORITY.rotated().bundles()
            (before,) = AUTHORITY.bundles()
            together = X509Bundle(before.trust_domain, before.anchors + more.anchors)
            self.rig.change(BundleSet.of(together, *FOREIGN.bundles()))
            self.assertFalse(wire.disconnecting or busy_wire.aborted)
            self.context.listed = listed
            self.rig.change(bundles)
            self.assertTrue(wire.disconnecting and busy_wire.aborted)
            self.assertEqual(2, self.counted())
            self.assertEqual([("own_svid_refused", str(PEER.spiffe_id))] * 2, self.rig.reporter.denials)

    def test_reauth_by_a_clock_that_was_set_back(self) -> None:
        """A former SVID that was valid is not refused as not yet valid."""
        self.make("reauth")
        _client, wire = self.client()
        self.context.wall = lambda: BASE - timedelta(days=400)
        self.rotate()
        self.assertFalse(wire.disconnecting)

    def test_a_refused_peer_is_closed(self) -> None:
        """In every mode a client that is refused is closed, and so are all when the identity ends."""
        for mode in ("keep", "drain", "reauth"):
            for ended in (False, True):
                self.make(mode)
                client, wire = self.client()
                client.dataReceived(GET)
                self.rig.rotation.svid = NEXT
                self.rig.rotation.withdrawn = ended
                self.context.policies = self.context.policies if ended else admit_nobody()
                self.rig.change()
                self.assertTrue(wire.aborted, mode)


class OutboundTests(RotationCase):
    """Connections to peers."""

    def make(self, mode: OnRotation, first: bytes = GET) -> None:
        """A listener with a connection to its peer that is in use."""
        rig = Rig(inbound=False)
        self.listener(rig, rig.context, mode)
        rig.pool.reauthorize_by(
            rig.context.evaluate_upstream, rig.reauthorization, rig.context.drain_seconds, rig.context._drained
        )
        rig.endpoint.handle = peer()
        self.client, self.wire = rig.client()
        self.client.dataReceived(first)
        self.far = rig.upstream()[1]

    def test_requests(self) -> None:
        """A request that runs ends in order in the modes keep and drain, and the next one uses the new SVID."""
        for mode in ("keep", "drain"):
            self.make(mode)
            self.rotate()
            self.rig.sweep(BOUND + 1)
            self.rig.respond(OK + b"x")
            self.assertTrue(self.wire.take().endswith(b"x"))
            self.assertTrue(self.far.disconnecting)
            self.assertEqual(0, self.counted("upstream_connections_closed"))

    def test_upgraded(self) -> None:
        """An upgraded connection goes on with keep, and is closed when the bound is reached with drain."""
        for mode, closed in (("keep", False), ("drain", True)):
            self.make(mode, UPGRADE)  # type: ignore[arg-type]
            self.rotate()
            # The upgrade is granted on a connection that drains already.
            self.rig.respond(SWITCHED)
            self.rig.sweep(BOUND - 0.5)
            self.assertFalse(self.far.aborted)
            self.rig.sweep(0.5)
            self.rig.sweep(0.5)
            self.assertEqual(closed, self.far.aborted)
            self.assertEqual(closed, self.counted("upstream_connections_closed"))

    def test_reauth(self) -> None:
        """A connection whose former SVID would be refused is cut, and the request answered."""
        self.make("reauth")
        self.rotate()
        self.assertFalse(self.far.aborted)
        self.context.listed = refuse_former
        self.rig.change()
        self.assertTrue(self.far.aborted)
        self.rig.upstream()[0].connectionLost(Failure(ConnectionAborted()))
        self.assertIn(b'"code":"own_svid_refused"', self.wire.take())
        self.assertEqual(1, self.counted("upstream_connections_closed"))
        self.assertEqual([("own_svid_refused", str(PEER.spiffe_id))], self.rig.reporter.denials)


class TcpTests(RotationCase):
    """Relayed connections, of clients and to peers."""

    def make(self, mode: OnRotation, *, inbound: bool) -> Wire:
        """A listener with a joined connection."""
        rig = TcpRig(inbound=inbound)
        self.listener(rig, rig.tcp, mode)
        rig.endpoint.handle = Handle(evidence_of(OWN, OWN)) if inbound else peer()
        self.client, wire = rig.accept()
        self.tcp = rig
        return wire

    def test_modes(self) -> None:
        """Keep lets octets pass; drain closes when the bound is reached; reauth when the former SVID is refused."""
        for inbound in (True, False):
            wire = self.make("keep", inbound=inbound)
            self.context.listed = refuse_former
            self.rotate()
            self.tcp.pass_time(BOUND)
            self.assertFalse(wire.aborted)

            wire = self.make("drain", inbound=inbound)
            self.rotate()
            self.tcp.pass_time(BOUND - 0.5)
            self.rig.change()
            self.assertFalse(wire.aborted)
            self.tcp.pass_time(0.5)
            self.assert_ended(wire, [], inbound=inbound)

            wire = self.make("reauth", inbound=inbound)
            self.rotate()
            self.assertFalse(wire.aborted)
            self.context.listed = refuse_former
            self.rig.change()
            self.assert_ended(wire, ["own_svid_refused"], inbound=inbound)

    def test_drain_of_expired_credentials(self) -> None:
        """A connection that expires no later than its bound is counted by one cause."""
        wire = self.make("drain", inbound=False)
        self.rotate()
        self.tcp.pass_time(3 * 3600)
        self.assertTrue(wire.aborted)
        causes = ("rotation", "peer_expired", "credentials_expired")
        name = "svc_proxy_upstream_connections_closed_total"
        self.assertEqual(1, sum(self.tcp.value(name, protocol="tcp", cause=cause) for cause in causes))
        self.assertEqual(0, self.counted("upstream_connections_closed", "tcp"))

    def assert_ended(self, wire: Wire, reported: list[str], *, inbound: bool) -> None:
        """The connection was dropped because of the rotation."""
        self.assertTrue(wire.aborted)
        lose_tcp(self.tcp.far()[0])
        lose_tcp(self.client)
        self.assertEqual(1, self.counted(protocol="tcp"))
        self.assertEqual(0 if inbound else 1, self.counted("upstream_connections_closed", "tcp"))
        self.assertEqual(reported, [reason for reason, _peer in self.rig.reporter.denials])
