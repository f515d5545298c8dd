"""Tests of ``svc.transport.handshake``: order, negotiation, limits and time."""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.workload import MemorySource
from svc.transport.binding import lib
from svc.transport.errors import (
    HandshakeTimeout,
    OwnCredentialsMissing,
    PeerNotVerified,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol
from svc.transport.limits import Timeouts, handshake_limit, waiting_limit
from tests.transport.openssl_client import HandshakeCase, OpenSslClient
from tests.transport.pairs import AUTHORITY, Application, Pair, Wire, source


class HandshakeTestsMixin(HandshakeCase):
    """What holds on every data path."""

    def test_evidence_on_both_sides(self) -> None:
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

    def test_observer_of_a_successful_handshake(self) -> None:
        """Both observers receive the start and the end with its duration; no timer is left."""
        pair = Pair(self.tls)
        pair.chunk = lambda: (pair.clock.advance(0.01), 500)[1]
        pair.connect()
        for role, observer in (("server", pair.server_observer), ("client", pair.client_observer)):
            self.assertEqual(observer.started, [role])
            self.assertEqual(observer.failed, [])
            [(reported, seconds, evidence)] = observer.done
            self.assertEqual(reported, role)
            self.assertGreater(seconds, 0.01)
            self.assertTrue(evidence.post_quantum)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_protocol_is_built_only_after_verification(self) -> None:
        """During the handshake no application protocol exists on either side."""
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
        client = OpenSslClient(source("/client"), groups=b"X25519")
        client.connect_to(pair)
        self.assertEqual(self.assert_refused(pair, "server"), ("pq_required", "", "handshake_failure"))
        self.assertEqual(self.server_error(pair).reason, "pq_required")
        self.assertIn("handshake failure", client.alert)

    def test_classical_only_server_is_refused_where_hybrid_is_required(self) -> None:
        """A client that requires post-quantum key agreement reports a server without it, whatever its alert is."""
        for groups in (b"X25519", b"P-256:X25519"):
            pair = Pair(self.tls, client_options={"groups": "require"})
            context = pair.server_tls_factory.creator._current()[1]  # type: ignore[attr-defined]
            self.assertEqual(1, lib.SSL_CTX_set1_curves_list(context._context, groups))
            pair.connect()
            self.assertEqual(self.assert_refused(pair, "client"), ("pq_required", "", "handshake_failure"))

    def test_alert_before_an_answer(self) -> None:
        """Only a client that requires hybrid groups takes an alert for a missing group."""
        for required, alert, reason in (
            (False, 40, "handshake_failed"),
            (True, 40, "pq_required"),
            (True, 71, "pq_required"),
            (True, 80, "handshake_failed"),
        ):
            pair = Pair(self.tls, client_options={"groups": "require"} if required else None)
            pair.client_wire.protocol = pair.client
            pair.client.makeConnection(pair.client_wire)
            pair.client.dataReceived(b"\x15\x03\x03\x00\x02\x02" + bytes((alert,)))
            pair.client_wire.lose(ConnectionDone())
            [(_, error, _)] = pair.client_observer.failed
            self.assertEqual(reason, error.reason)

    def test_alert_of_a_client(self) -> None:
        """A server does not take a client's alert for a missing group, whatever it requires."""
        pair = Pair(self.tls, server_options={"groups": "require"})
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        pair.server.dataReceived(b"\x15\x03\x03\x00\x02\x02\x28")
        pair.server_wire.lose(ConnectionDone())
        [(_, error, _)] = pair.server_observer.failed
        self.assertEqual("handshake_failed", error.reason)

    def test_classical_only_client_is_accepted_by_default(self) -> None:
        """By default a classical client is accepted, and the evidence shows that it is classical."""
        pair = Pair(self.tls)
        OpenSslClient(source("/client"), groups=b"X25519").connect_to(pair)
        evidence = peer_evidence(pair.server_app.transport)
        self.assertEqual((evidence.group, evidence.post_quantum), ("x25519", False))

    def test_hybrid_is_chosen_where_the_client_sent_a_classical_share(self) -> None:
        """A client that supports a hybrid but prefers X25519 is asked for the hybrid share."""
        pair = Pair(self.tls)
        OpenSslClient(source("/client"), groups=b"X25519:X25519MLKEM768").connect_to(pair)
        self.assertEqual(peer_evidence(pair.server_app.transport).group, "X25519MLKEM768")

    def test_no_common_group_by_default(self) -> None:
        """A peer with an exotic group only is refused as such."""
        pair = Pair(self.tls)
        OpenSslClient(source("/client"), groups=b"P-521").connect_to(pair)
        self.assertEqual(self.assert_refused(pair, "server"), ("group_not_allowed", "", "handshake_failure"))

    def test_required_groups_on_both_sides(self) -> None:
        """Two sides that require hybrids agree on one."""
        pair = self.pair(server_options={"groups": "require"}, client_options={"groups": "require"})
        self.assertTrue(peer_evidence(pair.server_app.transport).post_quantum)

    def test_tls_1_2_is_refused(self) -> None:
        """TLS 1.2 is refused."""
        pair = Pair(self.tls)
        client = OpenSslClient(source("/client"), maximum=SSL.TLS1_2_VERSION)
        client.connect_to(pair)
        self.assertEqual(
            self.assert_refused(pair, "server"), ("handshake_failed", "unsupported protocol", "protocol_version")
        )
        self.assertIn("protocol version", client.alert)

    def test_plain_http_is_refused(self) -> None:
        """Data that is not TLS ends the connection with OpenSSL's text."""
        pair = Pair(self.tls)
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        pair.server.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        pair.client_wire.protocol = Application()
        pair.pump()
        self.assertEqual(self.assert_refused(pair, "server")[:2], ("handshake_failed", "http request"))

    def test_other_alpn_is_refused(self) -> None:
        """An ALPN offer without an accepted protocol is answered with no_application_protocol (RFC 7301, 3.2)."""
        pair = self.pair(client_options={"alpn": (b"h2", b"x")})
        self.assertEqual(self.assert_refused(pair, "server"), ("alpn_refused", "", "no_application_protocol"))
        self.assertEqual(self.assert_refused(pair, "client")[2], "no_application_protocol")
        error = self.server_error(pair)
        self.assertEqual(error.reason, "alpn_refused")
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
        """SNI carries a DNS name and never an IP literal; the evidence has it in lower case."""
        for name, seen in (
            ("api.example.org", b"api.example.org"),
            ("API.Example.org.", b"API.Example.org"),
            ("192.0.2.1", None),
            ("::1", None),
            (None, None),
        ):
            with self.subTest(name=name):
                pair = self.pair(client_options={"server_name": name})
                self.assertEqual(pair.server.getHandle().get_servername(), seen)
                self.assertEqual((seen or b"").decode().lower(), peer_evidence(pair.server).server_name)

    def test_rotation_takes_a_new_context_and_keeps_old_connections(self) -> None:
        """A new SVID serves new connections at once; the context is kept while nothing changes."""
        credentials = source("/server")
        pair = self.pair(server_source=credentials)
        first = pair.server.getHandle().get_context()
        again = pair.server_tls_factory.creator.serverConnectionForTLS(pair.server).get_context()  # type: ignore[attr-defined]
        self.assertIs(first, again)
        credentials.rotate(AUTHORITY.svid("/server"), AUTHORITY.bundles())
        rotated = pair.server_tls_factory.creator.serverConnectionForTLS(pair.server)  # type: ignore[attr-defined]
        self.assertIsNot(rotated.get_context(), first)
        self.assertIs(rotated.own_svid, credentials.svid)
        pair.client_app.transport.write(b"still here")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"still here")

    def test_handshake_timeout(self) -> None:
        """A silent peer is aborted after the timeout, on both sides."""
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
                [(_, error, _)] = getattr(pair, f"{side}_observer").failed
                self.assertIsInstance(error, HandshakeTimeout)
                self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_slow_data_does_not_extend_the_timeout(self) -> None:
        """One octet a second does not extend the timeout of a handshake."""
        pair = Pair(self.tls, timeouts=Timeouts(handshake=7))
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        for octet in pair.client_wire.buffer[:10]:
            pair.server.dataReceived(bytes([octet]))
            pair.clock.advance(1)
        self.assertTrue(pair.server_wire.aborted)

    def accept(self, pair: Pair, port: int = 50001, host: str = "192.0.2.2") -> tuple[Any, Wire]:
        """Accept one more connection."""
        protocol, wire = pair.server_tls_factory.buildProtocol(IPv4Address("TCP", host, port)), Wire("server")
        wire.protocol = protocol
        protocol.makeConnection(wire)
        return protocol, wire

    def test_concurrent_handshakes_are_limited(self) -> None:
        """Handshakes count from their first octet; at the limit one more is refused; any end releases its slot."""
        limit = handshake_limit(2)
        pair = Pair(self.tls, handshakes=limit)
        first, first_wire = self.accept(pair, 50001)
        self.accept(pair, 50002)
        self.assertEqual(limit.held, 0)
        first.dataReceived(b"\x16")
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        pair.server.dataReceived(bytes(pair.client_wire.buffer[:1]))
        self.assertEqual(limit.held, 2)
        third, third_wire = self.accept(pair, 50003)
        third.dataReceived(b"\x16\x03")
        third.dataReceived(b"\x01")
        self.assertTrue(third_wire.aborted)
        third_wire.lose(ConnectionAborted())
        self.assertEqual(pair.server_observer.refused, [("handshake_limit", "192.0.2.2:50003")])
        self.assertEqual((pair.server_observer.failed, limit.held), ([], 2))
        pair.client_wire.buffer = pair.client_wire.buffer[1:]
        pair.pump()
        self.assertIsNotNone(pair.server_app)
        self.assertEqual(limit.held, 1)
        first_wire.lose(ConnectionDone())
        self.assertEqual(limit.held, 0)

    def test_stalled_handshakes_are_evicted(self) -> None:
        """A stalled handshake is evicted after a second for another one."""
        limit = handshake_limit(1)
        pair = Pair(self.tls, handshakes=limit)
        stalled, wire = self.accept(pair)
        stalled.dataReceived(b"\x16")
        pair.clock.advance(1.0)
        pair.connect()
        self.assertIsNotNone(pair.server_app)
        self.assertTrue(wire.aborted)
        stalled.dataReceived(b"\x03")
        wire.lose(ConnectionAborted())
        self.assertEqual(pair.server_observer.refused, [("handshake_limit", "192.0.2.2:50001")])
        self.assertEqual(limit.held, 0)

    def test_silent_connections_are_evicted(self) -> None:
        """Silent connections of one address are evicted, the oldest first, for new connections."""
        waiting = waiting_limit(3)
        pair = Pair(self.tls, waiting=waiting)
        wires = [self.accept(pair, port)[1] for port in range(50001, 50007)]
        self.assertEqual([True, True, True, False, False, False], [wire.aborted for wire in wires])
        pair.connect()
        self.assertIsNotNone(pair.server_app)
        self.assertEqual([True] * 4 + [False] * 2, [wire.aborted for wire in wires])
        for wire in wires:
            wire.lose(ConnectionDone())
        self.assertEqual((waiting.held, len(pair.server_observer.refused)), (0, 4))
        self.assertEqual({reason for reason, _ in pair.server_observer.refused}, {"waiting_limit"})
        self.assertEqual(["handshake_failed"] * 2, [error.reason for _, error, _ in pair.server_observer.failed])

    def test_evicted_connection_releases_its_slot(self) -> None:
        """The slot under the listener's limit is free before the transport is closed."""
        waiting = waiting_limit(1)
        pair = Pair(self.tls, waiting=waiting)
        given: list[str] = []
        _, wire = self.accept(pair)
        wire.release_slot = lambda: given.append("slot")  # type: ignore[attr-defined]
        self.assertTrue(waiting.evict())
        self.assertEqual((["slot"], True), (given, wire.aborted))

    def test_clients_are_limited_when_they_connect(self) -> None:
        """A client counts from its connection on, or its attempt is refused."""
        pair = Pair(self.tls)
        factory = pair.client_tls_factory
        factory.handshakes = handshake_limit(1)
        self.assertIsNotNone(factory.buildProtocol(Wire("client").getPeer()))
        self.assertIsNone(factory.buildProtocol(Wire("client").getPeer()))
        self.assertEqual(pair.client_observer.refused, [("handshake_limit", "192.0.2.1:8443")])

    def test_clients_are_counted_once(self) -> None:
        """A client under a limit of one handshake completes it, and is no longer counted afterwards."""
        pair = Pair(self.tls)
        limit = pair.client_tls_factory.handshakes = handshake_limit(1)
        pair.client = pair.client_tls_factory.buildProtocol(Wire("client").getPeer())
        pair.connect()
        self.assertTrue(pair.client_app.made)
        self.assertEqual(limit.held, 0)

    def test_no_credentials_no_connection(self) -> None:
        """Before the source has an SVID, connections are closed at accept and reported."""
        pair = Pair(self.tls, server_source=MemorySource())
        self.assertIsNone(pair.server)
        self.assertEqual(pair.server_observer.refused, [(OwnCredentialsMissing.reason, "192.0.2.2:50000")])

    def test_peer_that_closes_in_the_handshake(self) -> None:
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
        pair.server_factory.buildProtocol = lambda addr: None  # type: ignore[assignment, return-value]
        pair.connect()
        self.assertTrue(pair.server_wire.lost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])

    def test_evidence_is_there_until_the_end(self) -> None:
        """connectionLost may still read the evidence; afterwards there is none."""
        pair = self.pair()
        seen = []
        transport = pair.server_app.transport
        pair.server_app.connectionLost = lambda reason: seen.append(peer_evidence(transport).group)
        pair.cut()
        self.assertEqual(seen, ["X25519MLKEM768"])
        self.assertRaises(PeerNotVerified, peer_evidence, transport)


class FastHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on the fast data path."""

    tls = FastTlsProtocol


class StockHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on Twisted's own data path."""

    tls = StockTlsProtocol
