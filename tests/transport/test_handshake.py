"""Tests of ``svc.transport.handshake``: order, negotiation, limits and time."""

from __future__ import annotations

from OpenSSL import SSL
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.workload import MemorySource
from svc.transport.errors import (
    AlpnRefused,
    CredentialsMissing,
    HandshakeTimeout,
    PeerNotVerified,
    PqRequired,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastVerifiedTls, StockVerifiedTls
from svc.transport.limits import Timeouts, handshake_limit
from tests.transport.pairs import AUTHORITY, Application, Pair, Wire, source
from tests.transport.strangers import HandshakeCase, Stranger


class HandshakeTestsMixin(HandshakeCase):
    """What holds on every data path."""

    def test_both_sides_know_each_other(self) -> None:
        """After the handshake each application's transport carries the evidence of the other side."""
        pair = self.pair()
        at_server = peer_evidence(pair.server_app.transport)
        at_client = peer_evidence(pair.client_app.transport)
        self.assertEqual(str(at_server.svid.spiffe_id), "spiffe://example.org/client")
        self.assertEqual(str(at_client.svid.spiffe_id), "spiffe://example.org/server")
        for evidence in (at_server, at_client):
            self.assertEqual(evidence.group, "X25519MLKEM768")
            self.assertTrue(evidence.post_quantum)
            self.assertEqual(evidence.tls_version, "1.3")
            self.assertTrue(evidence.cipher.startswith("TLS_"))
        self.assertEqual(at_server.own_svid.leaf, at_client.svid.leaf)
        self.assertIs(peer_evidence(pair.server_app.transport), at_server)

    def test_observer_is_told_of_success_with_its_duration(self) -> None:
        """Both observers hear of the start and of the end; nothing else is left behind on the clock."""
        pair = Pair(self.tls)
        pair.chunk = lambda: (pair.clock.advance(0.01), 500)[1]
        pair.connect()
        for role, observer in (("server", pair.server_observer), ("client", pair.client_observer)):
            self.assertEqual(observer.started, [role])
            self.assertEqual(observer.failed, [])
            [(told, seconds, evidence)] = observer.done
            self.assertEqual(told, role)
            self.assertGreater(seconds, 0.01)
            self.assertTrue(evidence.post_quantum)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_protocol_is_built_only_after_verification(self) -> None:
        """While the handshake is under way no application protocol exists on either side."""
        pair = Pair(self.tls)
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        self.assertEqual(pair.server_factory.built + pair.client_factory.built, [])
        self.assertRaises(PeerNotVerified, peer_evidence, pair.server)
        pair.pump()
        self.assertEqual((pair.server_app.made, pair.client_app.made), (True, True))
        self.assertIs(pair.server_app.transport, pair.server)

    def test_classical_only_client_is_refused_where_hybrid_is_required(self) -> None:
        """A client that offers X25519 alone does not get past a server that requires post-quantum key agreement."""
        pair = Pair(self.tls, server_options={"groups": "require"})
        stranger = Stranger(source("/client"), groups=b"X25519")
        stranger.talk_to(pair)
        self.assertEqual(self.assert_refused(pair, "server"), ("pq_required", "", "handshake_failure"))
        self.assertIsInstance(self.server_error(pair), PqRequired)
        self.assertIn("handshake failure", stranger.alert)

    def test_classical_only_client_is_accepted_by_default(self) -> None:
        """By default the classical client gets in, and the evidence says that it is classical."""
        pair = Pair(self.tls)
        Stranger(source("/client"), groups=b"X25519").talk_to(pair)
        evidence = peer_evidence(pair.server_app.transport)
        self.assertEqual((evidence.group, evidence.post_quantum), ("x25519", False))

    def test_hybrid_is_chosen_though_the_client_guessed_classical(self) -> None:
        """A client that supports a hybrid but prefers X25519 is asked for the hybrid share."""
        pair = Pair(self.tls)
        Stranger(source("/client"), groups=b"X25519:X25519MLKEM768").talk_to(pair)
        self.assertEqual(peer_evidence(pair.server_app.transport).group, "X25519MLKEM768")

    def test_no_common_group_by_default(self) -> None:
        """A peer with an exotic group only is refused as such."""
        pair = Pair(self.tls)
        Stranger(source("/client"), groups=b"P-521").talk_to(pair)
        self.assertEqual(self.assert_refused(pair, "server"), ("group_not_allowed", "", "handshake_failure"))

    def test_required_groups_on_both_sides(self) -> None:
        """Two sides that require hybrids agree on one."""
        pair = self.pair(server_options={"groups": "require"}, client_options={"groups": "require"})
        self.assertTrue(peer_evidence(pair.server_app.transport).post_quantum)

    def test_tls_1_2_is_refused(self) -> None:
        """TLS 1.2 is not spoken."""
        pair = Pair(self.tls)
        stranger = Stranger(source("/client"), maximum=SSL.TLS1_2_VERSION)
        stranger.talk_to(pair)
        self.assertEqual(
            self.assert_refused(pair, "server"), ("handshake_failed", "unsupported protocol", "protocol_version")
        )
        self.assertIn("protocol version", stranger.alert)

    def test_plain_http_is_refused(self) -> None:
        """Octets that are not TLS end the connection with OpenSSL's word for them."""
        pair = Pair(self.tls)
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        pair.server.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        pair.client_wire.protocol = Application()
        pair.pump()
        self.assertEqual(self.assert_refused(pair, "server")[:2], ("handshake_failed", "http request"))

    def test_foreign_alpn_is_refused(self) -> None:
        """An ALPN offer without ours is answered with no_application_protocol (RFC 7301, 3.2)."""
        pair = self.pair(client_options={"alpn": (b"h2", b"x")})
        self.assertEqual(self.assert_refused(pair, "server"), ("alpn_refused", "", "no_application_protocol"))
        self.assertEqual(self.assert_refused(pair, "client")[2], "no_application_protocol")
        error = self.server_error(pair)
        self.assertIsInstance(error, AlpnRefused)
        self.assertIn("h2, x; allowed are http/1.1", str(error))

    def test_alpn_choice_and_absence(self) -> None:
        """Ours is chosen among others; no offer at all is accepted; an empty list of ours ignores offers."""
        for ours, theirs, chosen in (
            ((b"http/1.1",), (b"h2", b"http/1.1"), b"http/1.1"),
            ((b"http/1.1",), (), None),
            ((), (b"h2",), None),
        ):
            with self.subTest(theirs=theirs):
                pair = self.pair(server_options={"alpn": ours}, client_options={"alpn": theirs})
                self.assertEqual(pair.server_app.transport.negotiatedProtocol, chosen)

    def test_server_name_only_for_dns_names(self) -> None:
        """SNI carries a DNS name and never an IP literal."""
        for name, seen in (("api.example.org", b"api.example.org"), ("192.0.2.1", None), ("::1", None), (None, None)):
            with self.subTest(name=name):
                pair = self.pair(client_options={"server_name": name})
                self.assertEqual(pair.server.getHandle().get_servername(), seen)

    def test_rotation_takes_a_new_context_and_keeps_old_connections(self) -> None:
        """A new SVID serves new connections at once; the context is kept while nothing changes."""
        credentials = source("/server")
        pair = self.pair(server_source=credentials)
        first = pair.server.getHandle().get_context()
        again = pair.server_tls_factory._creator.serverConnectionForTLS(pair.server).get_context()
        self.assertIs(first, again)
        credentials.rotate(AUTHORITY.svid("/server"), AUTHORITY.bundles())
        rotated = pair.server_tls_factory._creator.serverConnectionForTLS(pair.server)
        self.assertIsNot(rotated.get_context(), first)
        self.assertIs(rotated.own_svid, credentials.svid)
        pair.client_app.transport.write(b"still here")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"still here")

    def test_handshake_timeout(self) -> None:
        """A peer that says nothing is cut off when the time is over, on both sides."""
        for side in ("server", "client"):
            with self.subTest(side):
                pair = Pair(self.tls, timeouts=Timeouts(handshake=7))
                protocol, wire = getattr(pair, side), getattr(pair, f"{side}_wire")
                wire.protocol = protocol
                protocol.makeConnection(wire)
                pair.clock.advance(6.9)
                self.assertFalse(wire.aborted)
                pair.clock.advance(0.2)
                self.assertTrue(wire.aborted)
                wire.lose(ConnectionAborted())
                [(_, reason, _, _, _)] = getattr(pair, f"{side}_observer").failed
                self.assertEqual(reason, HandshakeTimeout.reason)
                self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_dribbling_does_not_extend_the_timeout(self) -> None:
        """One octet a second does not keep a handshake alive."""
        pair = Pair(self.tls, timeouts=Timeouts(handshake=7))
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        for octet in pair.client_wire.buffer[:10]:
            pair.server.dataReceived(bytes([octet]))
            pair.clock.advance(1)
        self.assertTrue(pair.server_wire.aborted)

    def test_concurrent_handshakes_are_limited(self) -> None:
        """At the limit one more is admitted to nothing; a finished or failed handshake makes room."""
        limit = handshake_limit(2)
        pair = Pair(self.tls, handshakes=limit)
        factory = pair.server_tls_factory
        self.assertIsNotNone(factory.buildProtocol(Wire("server").getPeer()))
        self.assertEqual(limit.held, 2)
        self.assertIsNone(factory.buildProtocol(Wire("server").getPeer()))
        self.assertEqual(pair.server_observer.refused, [("handshake_limit", "192.0.2.2:50000")])
        pair.connect()
        self.assertEqual(limit.held, 1)
        pair.cut()
        self.assertEqual(limit.held, 1)
        failing = factory.buildProtocol(Wire("server").getPeer())
        wire = Wire("server")
        wire.protocol = failing
        failing.makeConnection(wire)
        self.assertEqual(limit.held, 2)
        wire.lose(ConnectionDone())
        self.assertEqual(limit.held, 1)

    def test_no_credentials_no_connection(self) -> None:
        """Before the source has an SVID, connections are closed at accept and the observer is told."""
        pair = Pair(self.tls, server_source=MemorySource())
        self.assertIsNone(pair.server)
        self.assertEqual(pair.server_observer.refused, [(CredentialsMissing.reason, "192.0.2.2:50000")])

    def test_peer_that_hangs_up_in_the_handshake(self) -> None:
        """TCP closed in the middle of the handshake is a failed handshake, counted once."""
        pair = Pair(self.tls)
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        pair.cut()
        self.assertEqual(
            self.assert_refused(pair, "server"), ("handshake_failed", "the peer closed the connection", "")
        )

    def test_factory_that_declines(self) -> None:
        """A factory that builds no protocol for a verified peer ends the connection."""
        pair = Pair(self.tls)
        pair.server_factory.buildProtocol = lambda addr: None
        pair.connect()
        self.assertTrue(pair.server_wire.lost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_evidence_is_there_until_the_end(self) -> None:
        """connectionLost may still ask who the peer was; afterwards there is no evidence."""
        pair = self.pair()
        seen = []
        transport = pair.server_app.transport
        pair.server_app.connectionLost = lambda reason: seen.append(peer_evidence(transport).group)
        pair.cut()
        self.assertEqual(seen, ["X25519MLKEM768"])
        self.assertRaises(PeerNotVerified, peer_evidence, transport)


class FastHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on the fast data path."""

    tls = FastVerifiedTls


class StockHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on Twisted's own data path."""

    tls = StockVerifiedTls
