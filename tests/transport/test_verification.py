"""Tests of ``svc.transport.verification`` and ``creators``: who gets in, who does not, and why."""

from __future__ import annotations

from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import BundleSet
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.errors import (
    HandshakeFailed,
    PeerDenied,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
    TransportError,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol
from tests.transport.pairs import AUTHORITY, NOW, Pair, days, source
from tests.transport.strangers import HandshakeCase, Stranger

FOREIGN = TestAuthority("foreign.example", now=NOW)
RIVAL = AUTHORITY.rotated()
SIGNING = frozenset({"digital_signature", "key_cert_sign"})

#: What the workload presents, and the precise reason and the alert with which it is refused.
WRONG: dict[str, tuple[Any, str, str]] = {
    "expired": (
        lambda: AUTHORITY.svid(not_before=NOW - days(2), not_after=NOW - days(1)),
        "expired",
        "certificate_expired",
    ),
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


class VerificationTestsMixin(HandshakeCase):
    """What holds on every data path."""

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

    def test_openssl_builds_no_chain_of_its_own(self) -> None:
        """The signatures of a chain are checked once, by our verifier: OpenSSL stops at the leaf, and all is judged."""
        svid = AUTHORITY.intermediate("one").intermediate("two").svid("/client")
        transport = self.pair(client_source=MemorySource(svid, AUTHORITY.bundles())).server_app.transport
        built = transport.getHandle().get_verified_chain(as_cryptography=True)
        self.assertEqual(built, [svid.chain[0]])
        self.assertEqual(peer_evidence(transport).svid.chain[:-1], svid.chain)

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


class FastVerificationTests(VerificationTestsMixin, SynchronousTestCase):
    """The judgement of peers on the fast data path."""

    tls = FastTlsProtocol


class StockVerificationTests(VerificationTestsMixin, SynchronousTestCase):
    """The judgement of peers on Twisted's own data path."""

    tls = StockTlsProtocol


def _sent(alert: str) -> str:
    return f"the peer sent the alert {alert}"


class PeerSvidInvalidTests(SynchronousTestCase):
    """Tests of the error for people."""

    def test_the_cause_is_kept_and_shown(self) -> None:
        """The sentence names the address and what is wrong; the precise error is the cause."""
        errors: list[TransportError] = []
        pair = Pair(FastTlsProtocol, client_source=MemorySource(FOREIGN.svid(), AUTHORITY.bundles()))
        pair.server_tls_factory.failed = errors.append
        pair.connect()
        [error] = errors
        self.assertIsInstance(error, PeerSvidInvalid)
        self.assertIn("the SVID of 192.0.2.2:50000 is not valid", str(error))
        self.assertIn("foreign.example", str(error))
        self.assertEqual(error.__cause__.reason, "trust_domain_unknown")
