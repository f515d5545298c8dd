"""Tests of ``svc.transport.verification`` and ``creators``: accepted and refused peers, and the reasons."""

from __future__ import annotations

from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL._util import lib as _lib
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import BundleSet
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.errors import (
    OwnCredentialsEnded,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerDenied,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
    TransportError,
)
from svc.transport.evidence import peer_evidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol
from svc.transport.verification import PeerRules, PeerVerification
from tests.transport.openssl_client import HandshakeCase, OpenSslClient
from tests.transport.pairs import AUTHORITY, NOW, Pair, days, source

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
        """Each wrong client certificate is refused for its own reason, with an alert, and no protocol is built."""
        for name, (make, reason, alert) in WRONG.items():
            with self.subTest(name):
                wrong = MemorySource(make(), AUTHORITY.bundles())
                # A client whose SVID has ended does not connect: this one has a wrong clock at first.
                early = iter([NOW - days(10)])
                pair = self.pair(client_source=wrong, client_clock=lambda early=early: next(early, NOW))
                self.assertEqual(self.assert_refused(pair, "server"), ("svid_invalid", reason, alert))
                # TLS 1.3: the client was done before; its application gets the alert when the connection ends.
                [application] = pair.client_factory.built
                application.lost.trap(OwnSvidRefused)
                self.assertEqual(application.lost.value.alert, alert)
                self.assertEqual(application.received, b"")

    def test_claimed_identity(self) -> None:
        """What the certificate of a refused peer names is kept for the log, unless it cannot be read."""
        for svid, claimed in (
            (FOREIGN.svid("/x"), "spiffe://foreign.example/x"),
            (AUTHORITY.svid("/old", not_before=NOW - days(3), not_after=NOW - days(2)), "spiffe://example.org/old"),
            (AUTHORITY.svid(uris=("spiffe://example.org/a", "spiffe://example.org/b")), "spiffe://example.org/a"),
            (AUTHORITY.svid(uris=("https://example.org/a",)), ""),
            (AUTHORITY.svid(uris=()), ""),
        ):
            early = iter([NOW - days(10)])
            client = MemorySource(svid, AUTHORITY.bundles())
            pair = self.pair(client_source=client, client_clock=lambda early=early: next(early, NOW))
            [(_, error, _)] = pair.server_observer.failed
            self.assertEqual((claimed, ""), (error.claimed_spiffe_id, error.peer_spiffe_id))

    def test_verified_identity_of_a_refused_peer(self) -> None:
        """An identity that was verified and is refused is in both kinds of error."""
        pair = self.pair(expected="spiffe://example.org/other")
        [(_, error, _)] = pair.client_observer.failed
        self.assertEqual("spiffe://example.org/server", error.peer_spiffe_id)
        self.assertEqual("spiffe://example.org/other", error.expected_spiffe_id)

        def deny(_evidence: object) -> None:
            raise Denied()

        pair = self.pair(server_options={"authorize": deny})
        [(_, error, _)] = pair.server_observer.failed
        self.assertEqual(("spiffe://example.org/client", ""), (error.peer_spiffe_id, error.expected_spiffe_id))

    def test_refusal_by_a_server(self) -> None:
        """A refusal by the server after the client's handshake is reported as a failed handshake."""
        ended: dict[str, Any] = {"not_before": NOW - days(3), "not_after": NOW - days(2)}
        for svid, kind in ((AUTHORITY.svid(**ended), OwnSvidExpired), (FOREIGN.svid(), OwnSvidRefused)):
            early = iter([NOW - days(10)])
            client = MemorySource(svid, AUTHORITY.bundles())
            pair = self.pair(client_source=client, client_clock=lambda early=early: next(early, NOW))
            [(role, error, _)] = pair.client_observer.failed
            self.assertEqual((kind, "client"), (type(error), role))
            self.assertIs(error, pair.client_app.lost.value)
            self.assertIn(f"ends at {svid.chain_not_after.isoformat(timespec='seconds')}", str(error))

    def test_client_whose_svid_has_ended(self) -> None:
        """It does not connect: no handshake begins, and the error says when the SVID ended."""
        pair = Pair(self.tls, client_source=source("/client", not_before=NOW - days(3), not_after=NOW - days(2)))
        self.assertIsNone(pair.client)
        [(_, error, address)] = pair.client_observer.failed
        self.assertIsInstance(error, OwnCredentialsEnded)
        self.assertEqual(("credentials_expired", "192.0.2.1:8443"), (error.reason, address))
        self.assertEqual([], pair.client_observer.refused)

    def test_client_refuses_each_wrong_server(self) -> None:
        """Each wrong server certificate is refused for its own reason; the server gets the alert."""
        for name, (make, reason, alert) in WRONG.items():
            with self.subTest(name):
                wrong = MemorySource(make(), AUTHORITY.bundles())
                pair = self.pair(server_source=wrong)
                self.assertEqual(self.assert_refused(pair, "client"), ("svid_invalid", reason, alert))
                self.assertEqual(self.assert_refused(pair, "server"), ("handshake_failed", _sent(alert), alert))

    def test_any_order_of_intermediates_verifies(self) -> None:
        """The chain is verified as sent: neither the order of intermediates nor an unrelated certificate matters."""
        low = AUTHORITY.intermediate("one").intermediate("two")
        svid = low.svid("/client")
        leaf, *rest = svid.chain
        unrelated = FOREIGN.certificate
        shuffled = type(svid)(svid.spiffe_id, (leaf, unrelated, *reversed(rest)), svid.private_key)
        pair = self.pair(client_source=MemorySource(shuffled, AUTHORITY.bundles()))
        evidence = peer_evidence(pair.server_app.transport)
        self.assertEqual(len(evidence.svid.chain), 4)

    def test_openssl_builds_no_chain_of_its_own(self) -> None:
        """The signatures of a chain are checked once, by our verifier: OpenSSL stops at the leaf."""
        svid = AUTHORITY.intermediate("one").intermediate("two").svid("/client")
        transport = self.pair(client_source=MemorySource(svid, AUTHORITY.bundles())).server_app.transport
        built = transport.getHandle().get_verified_chain(as_cryptography=True)
        self.assertEqual(built, [svid.chain[0]])
        self.assertEqual(peer_evidence(transport).svid.chain[:-1], svid.chain)

    def test_missing_intermediate_is_refused(self) -> None:
        """A leaf without its intermediate is untrusted: nothing is fetched, or cached from another connection."""
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
        """The certificates are of 2031: only the injected clock counts, never the system's."""
        mine = source("/client", ttl=days(25))
        late = self.pair(clock_now=lambda: NOW + days(20), client_source=mine)
        self.assertEqual(self.assert_refused(late, "client")[1], "expired")

    def test_federated_identity_is_verified_by_its_own_bundle(self) -> None:
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
        client = OpenSslClient()
        client.connect_to(pair)
        self.assertEqual(
            self.assert_refused(pair, "server"), ("svid_invalid", "certificate_missing", "certificate_required")
        )
        self.assertIn("certificate required", client.alert)

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

    def test_defect_in_the_verification_fails_closed(self) -> None:
        """An exception in our own code refuses the peer and is logged; nothing is raised through OpenSSL."""

        def authorize(evidence: Any) -> None:
            raise ZeroDivisionError("a defect")

        pair = self.pair(server_options={"authorize": authorize})
        self.assertEqual(self.assert_refused(pair, "server"), ("svid_invalid", "internal_error", "handshake_failure"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_peer_is_verified_exactly_once(self) -> None:
        """OpenSSL calls for each certificate; the verification is made once."""
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
        """A client that offers an earlier session gets a full handshake: its verification is never skipped."""
        verified = []
        options = {"authorize": lambda evidence: verified.append(evidence)}
        pair = Pair(self.tls, server_options=options)
        first = OpenSslClient(source("/client"))
        first.connect_to(pair)
        again: Any = first.again(first)
        repeated = Pair(self.tls, server_options=options)
        repeated.server_tls_factory = pair.server_tls_factory
        repeated.server = pair.server_tls_factory.buildProtocol(repeated.server_wire.getPeer())
        again.connect_to(repeated)
        self.assertTrue(again.established)
        self.assertEqual(len(verified), 2)
        self.assertFalse(_lib.SSL_session_reused(again.connection._ssl))

    def test_tickets_are_small(self) -> None:
        """What OpenSSL sends after the handshake names no session and carries no certificates."""
        client = OpenSslClient(source("/client"))
        client.connect_to(Pair(self.tls))
        self.assertLess(len(client.after_handshake), 600)

    def test_only_the_explicit_chain_is_presented(self) -> None:
        """The peer gets leaf and intermediates without the root, and no names of our roots."""
        low = AUTHORITY.intermediate("one")
        pair = Pair(self.tls, server_source=MemorySource(low.svid("/server"), AUTHORITY.bundles()))
        client = OpenSslClient(source("/client"))
        client.connect_to(pair)
        chain = client.connection.get_peer_cert_chain(as_cryptography=True)
        self.assertEqual(len(chain), 2)  # type: ignore[arg-type]
        self.assertNotIn(AUTHORITY.certificate, chain)
        self.assertEqual(client.connection.get_client_ca_list(), [])

    def test_openssl_records_an_accepted_peer_as_verified(self) -> None:
        """OpenSSL's own result, such as an unknown root, is replaced by our acceptance."""
        transport = self.pair().server_app.transport
        self.assertEqual(_lib.SSL_get_verify_result(transport.getHandle()._ssl), _lib.X509_V_OK)

    def test_new_bundle_counts_at_once(self) -> None:
        """The bundle at the moment of verification counts, not that at the start of the handshake."""
        credentials = source("/server")
        pair = Pair(self.tls, server_source=credentials)
        for protocol, wire in ((pair.server, pair.server_wire), (pair.client, pair.client_wire)):
            wire.protocol = protocol
            protocol.makeConnection(wire)
        credentials.rotate(credentials.svid, FOREIGN.bundles())
        pair.pump()
        self.assertEqual(self.assert_refused(pair, "server")[1], "trust_domain_unknown")


class FastVerificationTests(VerificationTestsMixin, SynchronousTestCase):
    """The verification of peers on the fast data path."""

    tls = FastTlsProtocol


class StockVerificationTests(VerificationTestsMixin, SynchronousTestCase):
    """The verification of peers on Twisted's own data path."""

    tls = StockTlsProtocol


def _sent(alert: str) -> str:
    return f"the peer sent the alert {alert}"


class VerificationTests(SynchronousTestCase):
    """The verification of one peer, without a connection."""

    def setUp(self) -> None:
        """A peer that is not verified yet."""
        self.reads = 0
        self.verification = PeerVerification(PeerRules(source("/server"), lambda: NOW))

    def defective(self) -> Any:
        """Fail to read the chain, for a reason of our own."""
        self.reads += 1
        raise ZeroDivisionError

    def test_a_defect_is_an_internal_error(self) -> None:
        """A peer whose chain could not be evaluated is refused as such; the exception is the cause."""
        self.assertFalse(self.verification.verify(self.defective))
        error = self.verification.error("192.0.2.2:50000")
        self.assertIn("the verification failed", str(error))
        self.assertIsInstance(error.__cause__, ZeroDivisionError)

    def test_a_peer_that_was_not_verified(self) -> None:
        """Where OpenSSL did not call the verification, the error says so and has no cause."""
        error = self.verification.error("192.0.2.2:50000")
        self.assertIsInstance(error, PeerSvidInvalid)
        self.assertIn("it was not verified", str(error))
        self.assertEqual((error.alert, error.detail), ("handshake_failure", "internal_error"))
        self.assertIsNone(error.__cause__)

    def test_a_refused_peer_is_verified_once(self) -> None:
        """A refusal is repeated without reading the chain again."""
        for _ in range(2):
            self.assertFalse(self.verification.verify(self.defective))
        self.assertEqual(self.reads, 1)


class PeerSvidInvalidTests(SynchronousTestCase):
    """Tests of the error text."""

    def test_the_cause_is_kept_and_shown(self) -> None:
        """The sentence names the address and what is wrong; the precise error is the cause."""
        errors: list[TransportError] = []
        pair = Pair(FastTlsProtocol, client_source=MemorySource(FOREIGN.svid(), AUTHORITY.bundles()))
        pair.server_tls_factory.failed = errors.append  # type: ignore[assignment]
        pair.connect()
        [error] = errors
        self.assertIsInstance(error, PeerSvidInvalid)
        self.assertIn("the SVID of 192.0.2.2:50000 is not valid", str(error))
        self.assertIn("foreign.example", str(error))
        self.assertEqual(error.__cause__.reason, "trust_domain_unknown")
