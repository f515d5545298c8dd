"""Tests of ``svc.transport.handshake`` with ``creators``, ``verification`` and ``failures``: who gets in and who does not."""

from __future__ import annotations

from typing import Any, ClassVar

from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL, crypto
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import BundleSet
from svc.testing.ca import TestAuthority, chain_pem, key_pem
from svc.testing.workload import MemorySource
from svc.transport.errors import (
    AlpnRefused,
    CredentialsMissing,
    HandshakeFailed,
    HandshakeTimeout,
    PeerDenied,
    PeerIdentityUnexpected,
    PeerNotVerified,
    PeerSvidInvalid,
    PqRequired,
    TransportError,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastVerifiedTls, StockVerifiedTls, VerifiedTls
from svc.transport.limits import Timeouts, handshake_limit
from tests.transport.pairs import AUTHORITY, NOW, Application, Pair, Wire, days, source

FOREIGN = TestAuthority("foreign.example", now=NOW)
RIVAL = AUTHORITY.rotated()
SIGNING = frozenset({"digital_signature", "key_cert_sign"})

#: What the workload presents, and the precise reason and the alert with which it is refused.
WRONG: dict[str, tuple[Any, str, str]] = {
    "expired": (lambda: AUTHORITY.svid(not_before=NOW - days(2), not_after=NOW - days(1)), "expired", "certificate_expired"),
    "not yet valid": (
        lambda: AUTHORITY.svid(not_before=NOW + days(1), not_after=NOW + days(2)),
        "not_yet_valid",
        "bad_certificate",
    ),
    "another root of the same name": (lambda: RIVAL.svid(), "chain_untrusted", "unknown_ca"),
    "foreign trust domain": (lambda: FOREIGN.svid(), "trust_domain_unknown", "unknown_ca"),
    "identity of a foreign domain from our root": (
        lambda: AUTHORITY.svid(uris=("spiffe://foreign.example/workload",)),
        "trust_domain_unknown",
        "unknown_ca",
    ),
    "self-signed": (lambda: AUTHORITY.svid(self_signed=True), "chain_untrusted", "unknown_ca"),
    "no URI": (lambda: AUTHORITY.svid(uris=()), "no_uri_san", "bad_certificate"),
    "two URIs": (
        lambda: AUTHORITY.svid(uris=("spiffe://example.org/a", "spiffe://example.org/b")),
        "too_many_uri_sans",
        "bad_certificate",
    ),
    "root path": (lambda: AUTHORITY.svid(uris=("spiffe://example.org",)), "root_path", "bad_certificate"),
    "CA flag": (lambda: AUTHORITY.svid(ca=True), "leaf_is_ca", "bad_certificate"),
    "signing key usage": (lambda: AUTHORITY.svid(key_usage=SIGNING), "key_usage", "bad_certificate"),
    "server only": (
        lambda: AUTHORITY.svid(eku=(ExtendedKeyUsageOID.SERVER_AUTH,)),
        "ext_key_usage",
        "bad_certificate",
    ),
    "expired intermediate": (
        lambda: AUTHORITY.intermediate(not_before=NOW - days(3), not_after=NOW - days(1)).svid(),
        "expired",
        "certificate_expired",
    ),
    "intermediate without CA flag": (
        lambda: AUTHORITY.intermediate(ca=False).svid(),
        "signing_not_ca",
        "bad_certificate",
    ),
}


class Denied(SvcError):
    """the policy says no"""

    reason = "no_such_rule"


class HandshakeTestsMixin:
    """What holds on every data path."""

    tls: ClassVar[type[VerifiedTls]]

    def pair(self, **options: Any) -> Pair:
        return Pair(self.tls, **options).connect()

    def assert_refused(self, pair: Pair, by: str) -> tuple[str, str, str]:
        """Nothing was given to the protocols of the refusing side; returns reason, detail and alert."""
        observer = getattr(pair, f"{by}_observer")
        self.assertEqual(getattr(pair, f"{by}_factory").built, [])
        self.assertEqual(observer.done, [])
        self.assertEqual(len(observer.failed), 1)
        self.assertTrue(pair.client_wire.lost and pair.server_wire.lost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])
        role, reason, detail, address, alert = observer.failed[0]
        self.assertEqual((role, address), (by, "192.0.2.2:50000" if by == "server" else "192.0.2.1:8443"))
        return reason, detail, alert

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

    def test_server_refuses_each_wrong_client(self) -> None:
        """Each wrong client certificate is refused for its own reason, with an alert, and never given to a protocol."""
        for name, (make, reason, alert) in WRONG.items():
            with self.subTest(name):
                wrong = MemorySource(make(), AUTHORITY.bundles())
                pair = self.pair(client_source=wrong)
                self.assertEqual(self.assert_refused(pair, "server"), ("svid_invalid", reason, alert))
                # TLS 1.3: the client was done before; its application learns the alert when the connection ends.
                [application] = pair.client_factory.built
                application.lost.trap(HandshakeFailed)
                self.assertEqual(application.lost.value.alert, alert)
                self.assertEqual(application.received, b"")

    def test_client_refuses_each_wrong_server(self) -> None:
        """Each wrong server certificate is refused for its own reason; the server hears the alert."""
        for name, (make, reason, alert) in WRONG.items():
            with self.subTest(name):
                wrong = MemorySource(make(), AUTHORITY.bundles())
                pair = self.pair(server_source=wrong)
                self.assertEqual(self.assert_refused(pair, "client"), ("svid_invalid", reason, alert))
                self.assertEqual(self.assert_refused(pair, "server"), ("handshake_failed", _sent(alert), alert))

    def test_any_order_of_intermediates_verifies(self) -> None:
        """The chain is judged as sent: shuffled intermediates and a useless one between them do no harm."""
        low = AUTHORITY.intermediate("one").intermediate("two")
        svid = low.svid("/client")
        leaf, *rest = svid.chain
        stray = FOREIGN.certificate
        shuffled = type(svid)(svid.spiffe_id, (leaf, stray, *reversed(rest)), svid.private_key)
        pair = self.pair(client_source=MemorySource(shuffled, AUTHORITY.bundles()))
        evidence = peer_evidence(pair.server_app.transport)
        self.assertEqual(len(evidence.svid.chain), 4)

    def test_missing_intermediate_is_refused(self) -> None:
        """A leaf without its intermediate is untrusted: nothing is fetched or remembered from another connection."""
        low = AUTHORITY.intermediate("one")
        self.pair(client_source=MemorySource(low.svid("/client"), AUTHORITY.bundles()))
        bare = low.svid("/client")
        bare = type(bare)(bare.spiffe_id, bare.chain[:1], bare.private_key)
        pair = self.pair(client_source=MemorySource(bare, AUTHORITY.bundles()))
        self.assertEqual(self.assert_refused(pair, "server"), ("svid_invalid", "chain_untrusted", "unknown_ca"))

    def test_namesake_intermediates_are_all_tried(self) -> None:
        """Two intermediates of one name, the untrusted one first: the trusted one is found, whatever OpenSSL picks."""
        low = AUTHORITY.intermediate("same")
        decoy = FOREIGN.intermediate("same").certificate
        svid = low.svid("/client")
        leaf, intermediate = svid.chain
        both = type(svid)(svid.spiffe_id, (leaf, decoy, intermediate), svid.private_key)
        pair = self.pair(client_source=MemorySource(both, AUTHORITY.bundles()))
        self.assertEqual(peer_evidence(pair.server_app.transport).svid.chain[1], intermediate)

    def test_injected_clock_decides(self) -> None:
        """The certificates here live in 2031: only the injected clock, never the system's, is asked."""
        late = self.pair(clock_now=lambda: NOW + days(20))
        self.assertEqual(self.assert_refused(late, "client")[1], "expired")

    def test_federated_identity_is_judged_by_its_own_bundle(self) -> None:
        """A peer of a federated trust domain is accepted with its bundle, and not by the bundle of our own domain."""
        bundles = BundleSet.of(AUTHORITY.bundle(), FOREIGN.bundle())
        server = MemorySource(AUTHORITY.svid("/server"), bundles)
        foreign = MemorySource(FOREIGN.svid("/x"), bundles)
        pair = self.pair(server_source=server, client_source=foreign)
        self.assertEqual(str(peer_evidence(pair.server_app.transport).svid.spiffe_id), "spiffe://foreign.example/x")
        forged = MemorySource(AUTHORITY.svid(uris=("spiffe://foreign.example/x",)), bundles)
        pair = self.pair(server_source=server, client_source=forged)
        self.assertEqual(self.assert_refused(pair, "server")[1], "chain_untrusted")

    def test_client_without_certificate_is_refused(self) -> None:
        """A client that presents nothing is refused with the alert certificate_required (RFC 8446, 4.4.2.4)."""
        pair = Pair(self.tls)
        stranger = Stranger()
        stranger.talk_to(pair)
        self.assertEqual(
            self.assert_refused(pair, "server"), ("svid_invalid", "certificate_missing", "certificate_required")
        )
        self.assertIn("certificate required", stranger.alert)

    def test_unexpected_server_identity(self) -> None:
        """A valid server that is not the expected one is refused in the handshake under its own reason."""
        pair = self.pair(expected="spiffe://example.org/other")
        self.assertEqual(self.assert_refused(pair, "client"), ("identity_unexpected", "", "bad_certificate"))
        error = self.error_of(expected="spiffe://example.org/other")
        self.assertIsInstance(error, PeerIdentityUnexpected)
        self.assertIn("spiffe://example.org/server; expected spiffe://example.org/other", str(error))

    def test_authorize_refuses_in_the_handshake(self) -> None:
        """A refusal by ``authorize`` ends the handshake with policy_deny and the rule's own reason."""

        def authorize(evidence: Any) -> None:
            raise Denied()

        pair = self.pair(server_options={"authorize": authorize})
        self.assertEqual(self.assert_refused(pair, "server"), ("policy_deny", "no_such_rule", "bad_certificate"))
        self.assertIsInstance(self.server_error(pair), PeerDenied)

    def test_defect_while_judging_fails_closed(self) -> None:
        """An exception in our own judgement refuses the peer and is logged; nothing is raised through OpenSSL."""

        def authorize(evidence: Any) -> None:
            raise ZeroDivisionError("a defect")

        pair = self.pair(server_options={"authorize": authorize})
        self.assertEqual(self.assert_refused(pair, "server"), ("svid_invalid", "internal_error", "handshake_failure"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_peer_is_judged_exactly_once(self) -> None:
        """OpenSSL asks for each certificate; the decision is made once."""
        calls = []
        low = AUTHORITY.intermediate("one").intermediate("two")
        self.pair(
            client_source=MemorySource(low.svid("/client"), AUTHORITY.bundles()),
            server_options={"authorize": lambda evidence: calls.append(evidence.spiffe_id)},
        )
        self.assertEqual(len(calls), 1)

    def test_every_key_algorithm_of_svids(self) -> None:
        """P-256, P-384, Ed25519, RSA and ML-DSA SVIDs authenticate both sides."""
        for algorithm in ("ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA-2048", "ML-DSA-44", "ML-DSA-65", "ML-DSA-87"):
            with self.subTest(algorithm):
                pair = self.pair(
                    server_source=source("/server", algorithm=algorithm),
                    client_source=source("/client", algorithm=algorithm),
                )
                evidence = peer_evidence(pair.server_app.transport)
                self.assertEqual(evidence.svid.algorithm.post_quantum, algorithm.startswith("ML-DSA"))

    def test_long_post_quantum_chains_fit(self) -> None:
        """A flight far beyond 32 KiB, five ML-DSA-87 certificates, arrives whole."""
        low = TestAuthority("example.org", now=NOW, algorithm="ML-DSA-87")
        bundles = low.bundles()
        for name in ("one", "two", "three", "four"):
            low = low.intermediate(name, algorithm="ML-DSA-87")
        credentials = MemorySource(low.svid("/server", algorithm="ML-DSA-87"), bundles)
        pair = self.pair(server_source=credentials, client_source=credentials)
        self.assertTrue(peer_evidence(pair.client_app.transport).svid.post_quantum)

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

    def test_no_session_is_resumed(self) -> None:
        """A client that offers an earlier session gets a full handshake: the judgement of the peer is never skipped."""
        judged = []
        options = {"authorize": lambda evidence: judged.append(evidence)}
        pair = Pair(self.tls, server_options=options)
        first = Stranger(source("/client"))
        first.talk_to(pair)
        again = first.again(first)
        repeated = Pair(self.tls, server_options=options)
        repeated.server_tls_factory = pair.server_tls_factory
        repeated.server = pair.server_tls_factory.buildProtocol(repeated.server_wire.getPeer())
        again.talk_to(repeated)
        self.assertTrue(again.established)
        self.assertEqual(len(judged), 2)
        self.assertFalse(SSL._lib.SSL_session_reused(again.connection._ssl))

    def test_tickets_are_small(self) -> None:
        """What OpenSSL sends after the handshake names no session and carries no certificates."""
        stranger = Stranger(source("/client"))
        stranger.talk_to(Pair(self.tls))
        self.assertLess(len(stranger.after_handshake), 600)

    def test_only_the_explicit_chain_is_presented(self) -> None:
        """The peer gets leaf and intermediates without the root, and no names of our roots."""
        low = AUTHORITY.intermediate("one")
        pair = Pair(self.tls, server_source=MemorySource(low.svid("/server"), AUTHORITY.bundles()))
        stranger = Stranger(source("/client"))
        stranger.talk_to(pair)
        chain = stranger.connection.get_peer_cert_chain(as_cryptography=True)
        self.assertEqual(len(chain), 2)
        self.assertNotIn(AUTHORITY.certificate, chain)
        self.assertEqual(stranger.connection.get_client_ca_list(), [])

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

    def test_new_bundle_counts_at_once(self) -> None:
        """The bundle of the moment of judgement decides, not that of the start of the handshake."""
        credentials = source("/server")
        pair = Pair(self.tls, server_source=credentials)
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        credentials.rotate(credentials.svid, FOREIGN.bundles())
        pair.pump()
        self.assertEqual(self.assert_refused(pair, "server")[1], "trust_domain_unknown")

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

    # --- helpers

    def server_error(self, pair: Pair) -> TransportError:
        """The typed error of a server's failed handshake, made again from a second try of the same pair."""
        errors: list[TransportError] = []
        again = Pair.__new__(Pair)
        again.__dict__.update(pair.__dict__)
        factory = pair.server_tls_factory
        factory.failed = errors.append
        again.server_wire, again.client_wire = Wire("server"), Wire("client")
        again.server = factory.buildProtocol(Wire("server").getPeer())
        again.client = pair.client_tls_factory.buildProtocol(Wire("client").getPeer())
        if pair.client_wire.protocol is pair.client:
            again.connect()
        else:
            pair.client_wire.protocol.again().talk_to(again)
        [error] = errors
        return error

    def error_of(self, **options: Any) -> TransportError:
        """The typed error of a client's failed handshake."""
        errors: list[TransportError] = []
        pair = Pair(self.tls, **options)
        pair.client_tls_factory.failed = errors.append
        pair.connect()
        [error] = errors
        return error


class FastHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on the fast data path."""

    tls = FastVerifiedTls


class StockHandshakeTests(HandshakeTestsMixin, SynchronousTestCase):
    """The handshake on Twisted's own data path."""

    tls = StockVerifiedTls


class Stranger:
    """A client that is not ours: bare OpenSSL with the settings of a test."""

    def __init__(
        self,
        credentials: MemorySource | None = None,
        *,
        groups: bytes | None = None,
        maximum: int | None = None,
        session: SSL.Connection | None = None,
    ) -> None:
        self._options = (credentials, groups, maximum)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD) if session is None else session.get_context()
        if maximum is not None:
            context.set_max_proto_version(maximum)
        if groups is not None:
            assert SSL._lib.SSL_CTX_set1_curves_list(context._context, groups) == 1
        if credentials is not None and session is None:
            certificates = chain_pem(credentials.svid)
            context.use_certificate(crypto.load_certificate(crypto.FILETYPE_PEM, certificates).to_cryptography())
            context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, key_pem(credentials.svid)).to_cryptography_key())
        self.connection = SSL.Connection(context, None)
        self.connection.set_connect_state()
        if session is not None:
            self.connection.set_session(session.get_session())
        self.alert = ""
        self.after_handshake = b""
        self.established = False
        self.wire: Any = None

    def again(self, earlier: Stranger | None = None) -> Stranger:
        """Another one like this, which offers the session of an earlier one."""
        credentials, groups, maximum = self._options
        if earlier is None:
            return Stranger(credentials, groups=groups, maximum=maximum)
        return Stranger(credentials, session=earlier.connection)

    def talk_to(self, pair: Pair) -> None:
        """Take the client's place in a pair and carry the handshake."""
        self.wire = pair.client_wire
        pair.client_wire.protocol = self
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        self._advance()
        pair.pump()

    def dataReceived(self, data: bytes) -> None:
        self.connection.bio_write(data)
        if self.established:
            self.after_handshake += data
        self._advance()

    def connectionLost(self, reason: object) -> None:
        pass

    def _advance(self) -> None:
        try:
            if not self.established:
                self.connection.do_handshake()
                self.established = True
            self.connection.recv(1)
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            self.alert = error.args[0][0][2] if error.args and error.args[0] else ""
        try:
            self.wire.write(self.connection.bio_read(1 << 20))
        except SSL.WantReadError:
            pass


def _sent(alert: str) -> str:
    return f"the peer sent the alert {alert}"


class PeerSvidInvalidTests(SynchronousTestCase):
    """Tests of the error for people."""

    def test_the_cause_is_kept_and_shown(self) -> None:
        """The sentence names the address and what is wrong; the precise error is the cause."""
        errors: list[TransportError] = []
        pair = Pair(FastVerifiedTls, client_source=MemorySource(FOREIGN.svid(), AUTHORITY.bundles()))
        pair.server_tls_factory.failed = errors.append
        pair.connect()
        [error] = errors
        self.assertIsInstance(error, PeerSvidInvalid)
        self.assertIn("the SVID of 192.0.2.2:50000 is not valid", str(error))
        self.assertIn("foreign.example", str(error))
        self.assertEqual(error.__cause__.reason, "trust_domain_unknown")
