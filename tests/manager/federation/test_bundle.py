"""SPIRE's bundle in a package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from svc.manager.federation.bundle import BundleUnusable, PeerBundleUnusable, peer_bundle, same_bundle, spire_bundle
from svc.spire.messages import BundleMessage
from tests.federation.material import PARTNER, PROD, content
from tests.vectors.material import Root, make_key


def message(**changes: Any) -> Any:
    """What a SPIRE server answers."""
    root = Root("bundle-p384", "ES384").certificate
    spki = make_key("ES256", "jwt").public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    members = {
        "trust_domain": "prod.example.org",
        "x509_authorities": [{"asn1": root.public_bytes(Encoding.DER)}],
        "jwt_authorities": [{"public_key": spki, "key_id": "k1"}],
        "sequence_number": 9,
        **changes,
    }
    return BundleMessage(**members)


class BundleTests(SynchronousTestCase):
    """The message as a SPIFFE bundle."""

    def test_read(self) -> None:
        """Each key has what other implementations read, and the document is accepted in a package."""
        found = peer_bundle(message(), PROD)
        x509_key, jwt_key = found.keys
        self.assertEqual(("EC", "P-384", "x509-svid"), (x509_key["kty"], x509_key["crv"], x509_key["use"]))
        self.assertEqual(
            ("EC", "P-256", "jwt-svid", "k1"), tuple(jwt_key[name] for name in ("kty", "crv", "use", "kid"))
        )
        self.assertEqual((9, 300, 1), (found.sequence, found.refresh_hint, len(found.roots.certificates)))
        read = type(content()).from_payload(content(bundle=found).to_payload())
        self.assertEqual(found, read.bundle)
        self.assertEqual(60, peer_bundle(message(refresh_hint=60), PROD).refresh_hint)

    def test_rsa(self) -> None:
        """Keys of RSA are published too."""
        key = rsa.generate_private_key(65537, 2048).public_key()
        spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        found = peer_bundle(message(jwt_authorities=[{"public_key": spki, "key_id": "r"}]), PROD)
        self.assertEqual("RSA", found.keys[1]["kty"])

    def test_refused(self) -> None:
        """Another trust domain and keys that cannot be read are refused: a part of a bundle is never published."""
        with self.assertRaisesRegex(BundleUnusable, "it is of prod.example.org, and not of partner.example.org"):
            peer_bundle(message(), PARTNER)
        spki = make_key("Ed25519", "jwt").public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for wrong in (
            {"x509_authorities": [{"asn1": b"0"}]},
            {"jwt_authorities": [{"public_key": b"0", "key_id": "k"}]},
            {"jwt_authorities": [{"public_key": spki, "key_id": "k"}]},
        ):
            with self.assertRaises(BundleUnusable):
                peer_bundle(message(**wrong), PROD)


class SpireBundleTests(SynchronousTestCase):
    """A peer's bundle as SPIRE takes it."""

    def test_both_ways(self) -> None:
        """What SPIRE has comes back as it was, of both kinds of keys; the order of keys makes no difference."""
        rsa_key = rsa.generate_private_key(65537, 2048).public_key()
        spki = rsa_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        given = message(refresh_hint=60)
        given.jwt_authorities.add(public_key=spki, key_id="r")
        found = spire_bundle(peer_bundle(given, PROD), PROD)
        self.assertEqual(given, found)
        other = BundleMessage()
        other.CopyFrom(given)
        del other.jwt_authorities[:]
        other.jwt_authorities.extend(reversed(given.jwt_authorities))
        self.assertTrue(same_bundle(other, given))
        del other.jwt_authorities[0]
        self.assertFalse(same_bundle(other, given))

    def test_keys(self) -> None:
        """Keys of unknown kinds and uses are ignored; one that is malformed is named."""
        given = message(refresh_hint=300)
        known = peer_bundle(given, PROD)
        for ignored in ({"kty": "AKP", "use": "jwt-svid", "kid": "a"}, {"kty": "EC", "use": "other"}):
            self.assertEqual(given, spire_bundle(replace(known, keys=(*known.keys, ignored)), PROD))
        without = {name: value for name, value in known.keys[1].items() if name != "kid"}
        for wrong in (without, {**known.keys[1], "x": "AA"}, {**known.keys[1], "crv": "P-999"}):
            with self.assertRaisesRegex(PeerBundleUnusable, "prod.example.org cannot be given to SPIRE: a JWT key"):
                spire_bundle(replace(known, keys=(wrong,)), PROD)
