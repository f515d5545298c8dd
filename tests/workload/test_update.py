"""Tests of svc.workload.update."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import TrustDomain
from svc.testing.ca import TestAuthority
from svc.workload.errors import UpdateRejected
from svc.workload.update import MAX_SVIDS, read_update
from tests.workload.messages import AUTHORITY, FOREIGN, NOW, Message, Svid, bundle_der, message_of


class ReadUpdateTests(SynchronousTestCase):
    """Validation of one message."""

    def refusal(self, message: Message, **keys: object) -> str:
        """The defect of a message."""
        return self.assertRaises(UpdateRejected, read_update, message, NOW, **keys).defect

    def test_good(self) -> None:
        """SVIDs keep their order and hints; own and federated bundles are read."""
        message = message_of(AUTHORITY.svid("/a"), AUTHORITY.svid("/b"))
        message.svids[1].hint = "external"
        message.federated_bundles = {"spiffe://foreign.example": bundle_der(FOREIGN.bundle())}
        update = read_update(message, NOW, trust_domain=TrustDomain.parse("example.org"))
        self.assertEqual(
            [str(each.svid.spiffe_id) for each in update.svids],
            [
                "spiffe://example.org/a",
                "spiffe://example.org/b",
            ],
        )
        self.assertEqual([each.name for each in update.bundles.trust_domains], ["example.org", "foreign.example"])
        self.assertEqual(update.bundles.bundle_for(TrustDomain.parse("foreign.example")), FOREIGN.bundle())
        self.assertEqual(str(update.select(None).spiffe_id), "spiffe://example.org/a")
        self.assertEqual(str(update.select("external").spiffe_id), "spiffe://example.org/b")
        self.assertRaises(UpdateRejected, update.select, "internal")

    def test_every_algorithm(self) -> None:
        """Each allowed algorithm is accepted, post-quantum SVIDs too."""
        for algorithm in ("ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA", "ML-DSA-65"):
            svid = AUTHORITY.svid("/a", algorithm=algorithm)
            self.assertEqual(read_update(message_of(svid), NOW).svids[0].svid, svid)

    def test_intermediate(self) -> None:
        """A chain with an intermediate is accepted."""
        svid = AUTHORITY.intermediate().svid("/a")
        self.assertEqual(read_update(message_of(svid), NOW).svids[0].svid.chain, svid.chain)

    def test_empty(self) -> None:
        """A message without an SVID is refused."""
        self.assertIn("no SVID", self.refusal(Message([])))

    def test_too_many(self) -> None:
        """The limit of SVIDs is exact."""
        one = message_of(AUTHORITY.svid("/a")).svids
        read_update(Message(one * MAX_SVIDS), NOW)
        self.assertIn("more than", self.refusal(Message(one * (MAX_SVIDS + 1))))

    def test_expired(self) -> None:
        """An SVID that has expired, or is not valid yet, is refused."""
        old = AUTHORITY.svid("/a", not_before=NOW - timedelta(hours=2), not_after=NOW - timedelta(hours=1))
        young = AUTHORITY.svid("/a", not_before=NOW + timedelta(hours=1), not_after=NOW + timedelta(hours=2))
        self.assertIn("expired", self.refusal(message_of(old)))
        self.refusal(message_of(young))

    def test_one_bad_refuses_all(self) -> None:
        """One bad SVID among good ones refuses the whole message."""
        old = AUTHORITY.svid("/b", not_before=NOW - timedelta(hours=2), not_after=NOW - timedelta(hours=1))
        self.assertIn("/b", self.refusal(message_of(AUTHORITY.svid("/a"), old)))

    def test_foreign_root(self) -> None:
        """An SVID that does not verify to the bundle it came with is refused."""
        message = message_of(AUTHORITY.svid("/a"))
        message.svids[0].bundle = bundle_der(TestAuthority("example.org", now=NOW).bundle())
        self.refusal(message)

    def test_other_trust_domain(self) -> None:
        """A default SVID of another trust domain than the configured one is refused."""
        defect = self.refusal(message_of(FOREIGN.svid("/a"), authority=FOREIGN), trust_domain=TrustDomain("a.example"))
        self.assertIn("not of trust domain a.example", defect)

    def test_name_of_another(self) -> None:
        """The name in the message must be the one in the certificate."""
        message = message_of(AUTHORITY.svid("/a"))
        message.svids[0].spiffe_id = "spiffe://example.org/b"
        self.assertIn("the certificate", self.refusal(message))

    def test_key_of_another(self) -> None:
        """A private key that does not belong to the leaf is refused."""
        message = message_of(AUTHORITY.svid("/a"), AUTHORITY.svid("/b"))
        message.svids[0].x509_svid_key = message.svids[1].x509_svid_key
        self.refusal(message)

    def test_wrong_leaf(self) -> None:
        """A leaf with the CA flag or two names is refused by the rule that refuses a peer's."""
        self.refusal(message_of(AUTHORITY.svid("/a", ca=True)))
        self.refusal(message_of(AUTHORITY.svid("/a", uris=("spiffe://example.org/a", "spiffe://example.org/b"))))

    def test_two_bundles(self) -> None:
        """Two different bundles for the own trust domain are refused, and a federated one for it too."""
        message = message_of(AUTHORITY.svid("/a"), AUTHORITY.svid("/b"))
        message.svids[1].bundle += bundle_der(FOREIGN.bundle())
        self.assertIn("two different", self.refusal(message))
        message = message_of(AUTHORITY.svid("/a"))
        message.federated_bundles = {"spiffe://example.org": bundle_der(AUTHORITY.bundle())}
        self.assertIn("second bundle", self.refusal(message))

    def test_federated_names(self) -> None:
        """A federated bundle has the SPIFFE ID of a trust domain as its name."""
        for name in ("foreign.example", "spiffe://foreign.example/a", "spiffe://Foreign.example", ""):
            message = message_of(AUTHORITY.svid("/a"))
            message.federated_bundles = {name: bundle_der(FOREIGN.bundle())}
            self.assertIn("is named", self.refusal(message))

    def test_malformed_bundle(self) -> None:
        """Octets that are not certificates are refused in every bundle."""
        message = message_of(AUTHORITY.svid("/a"))
        message.federated_bundles = {"spiffe://foreign.example": b"\x30\x03abc"}
        self.assertIn("foreign.example", self.refusal(message))
        message = message_of(AUTHORITY.svid("/a"))
        message.svids[0].bundle = b"\x30"
        self.assertIn("example.org", self.refusal(message))

    def test_empty_federated_bundle(self) -> None:
        """An empty federated bundle is legal: it verifies nothing."""
        message = message_of(AUTHORITY.svid("/a"))
        message.federated_bundles = {"spiffe://foreign.example": b""}
        self.assertIn(TrustDomain("foreign.example"), read_update(message, NOW).bundles)

    @given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.text(max_size=20))
    def test_any_octets(self, chain: bytes, key: bytes, bundle: bytes, name: str) -> None:
        """Any octets in the fields are a typed error."""
        self.refusal(Message([Svid(name, chain, key, bundle)]))

    @given(st.data())
    def test_damaged(self, data: st.DataObject) -> None:
        """A valid message with one octet changed is refused or still names the same identity."""
        message = message_of(SAMPLE)
        field = data.draw(st.sampled_from(["x509_svid", "x509_svid_key", "bundle"]))
        octets = bytearray(getattr(message.svids[0], field))
        octets[data.draw(st.integers(0, len(octets) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        setattr(message.svids[0], field, bytes(octets))
        try:
            update = read_update(message, NOW)
        except UpdateRejected as error:
            self.assertTrue(error.defect)
        else:
            self.assertEqual(update.svids[0].svid.spiffe_id, SAMPLE.spiffe_id)


SAMPLE = AUTHORITY.svid("/sample")
