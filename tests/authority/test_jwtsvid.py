"""Tests of svc.authority.jwtsvid and bundlefile."""

from __future__ import annotations

import base64
import json
import os
from datetime import timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.bundlefile import BundleNotWritable, jwks, pem_bundle, read_jwt_keys, spiffe_bundle
from svc.authority.jwtsvid import MAX_TOKEN, JwtAuthority, JwtSvidInvalid, validate
from svc.identity import SpiffeID, TrustDomain
from svc.identity.documents import MAX_BUNDLE_NODES
from svc.identity.trustbundle import parse_bundle_file
from svc.strictjson import MAX_NODES, JsonRefused
from svc.testing.ca import TestAuthority
from tests.workload.messages import NOW

DOMAIN = TrustDomain("example.org")
NAME = SpiffeID.parse("spiffe://example.org/a")
HOUR = timedelta(hours=1)
P256, P384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
RSA = rsa.generate_private_key(65537, 2048)


def public(key: Any, kid: str) -> dict[str, Any]:
    """The JWK of a key in a bundle."""
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "jwt-svid"}


BUNDLES = {DOMAIN: (public(P256, "p256"), public(P384, "p384"), public(RSA, "rsa"))}


def token(key: Any = P256, alg: str = "ES256", kid: str | None = "p256", typ: str | None = None, **claims: Any) -> str:
    """Sign a token; claims that are None are left out."""
    now = int(NOW.timestamp())
    whole = {"sub": str(NAME), "aud": ["us"], "exp": now + 60, "iat": now, **claims}
    headers = {name: value for name, value in (("kid", kid), ("typ", typ)) if value is not None}
    return jwt.encode({n: v for n, v in whole.items() if v is not None}, key, alg, headers=headers)


class IssueTests(SynchronousTestCase):
    """Tokens that are issued here."""

    def setUp(self) -> None:
        self.authority = JwtAuthority(DOMAIN, ttl=24 * HOUR, random=os.urandom)
        self.authority.advance(NOW)

    def test_round_trip(self) -> None:
        """An issued token is valid for its audience until its end."""
        made = self.authority.issue(NAME, ("us", "them"), timedelta(minutes=5), NOW)
        bundles = {DOMAIN: self.authority.bundle()}
        evidence = validate(made, "them", bundles, NOW)
        self.assertEqual(evidence.spiffe_id, NAME)
        self.assertEqual(evidence.claims["aud"], ["us", "them"])
        self.assertEqual(evidence.claims["exp"] - evidence.claims["iat"], 300)
        self.assertRaises(JwtSvidInvalid, validate, made, "them", bundles, NOW + timedelta(minutes=6))

    def test_headers(self) -> None:
        """The header has alg, kid and typ and nothing else."""
        header = jwt.get_unverified_header(self.authority.issue(NAME, ("us",), HOUR, NOW))
        self.assertEqual(header["alg"], "ES256")
        self.assertEqual(header["kid"], self.authority.bundle()[0]["kid"])
        self.assertEqual(set(header), {"alg", "kid", "typ"})

    def test_rotation(self) -> None:
        """Tokens of the old key stay valid after the new one has started to sign."""
        old = self.authority.issue(NAME, ("us",), 6 * HOUR, NOW + 15 * HOUR)
        self.authority.advance(NOW + 12 * HOUR)
        self.authority.advance(NOW + 17 * HOUR)
        new = self.authority.issue(NAME, ("us",), HOUR, NOW + 17 * HOUR)
        self.assertNotEqual(jwt.get_unverified_header(old)["kid"], jwt.get_unverified_header(new)["kid"])
        for each in (old, new):
            validate(each, "us", {DOMAIN: self.authority.bundle()}, NOW + 17 * HOUR)


class ValidateTests(SynchronousTestCase):
    """Tokens of other issuers."""

    def refused(self, text: str, words: str, audience: str = "us") -> None:
        """Assert that a token is refused with this defect."""
        error = self.assertRaises(JwtSvidInvalid, validate, text, audience, BUNDLES, NOW)
        self.assertIn(words, error.defect)
        self.assertNotIn(text[:40], str(error))

    def test_algorithms(self) -> None:
        """Each algorithm of the standard is accepted with a key of its kind."""
        for alg in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"):
            validate(token(RSA, alg, "rsa"), "us", BUNDLES, NOW)
        validate(token(), "us", BUNDLES, NOW)
        validate(token(P384, "ES384", "p384"), "us", BUNDLES, NOW)

    def test_types(self) -> None:
        """typ is JWT, JOSE or absent."""
        for typ in ("JWT", "JOSE", None):
            validate(token(typ=typ), "us", BUNDLES, NOW)
        self.refused(token(typ="at+jwt"), "typ")

    def test_unsigned_and_symmetric(self) -> None:
        """none and HMAC with the public key as secret are refused."""
        self.refused(token("", "none"), "alg")
        self.refused(token(b"k" * 32, "HS256"), "alg")

    def test_confused_keys(self) -> None:
        """An algorithm for another kind of key is refused."""
        self.refused(token(P384, "ES384", "p256"), "alg")
        self.refused(token(RSA, "RS256", "p256"), "alg")

    def test_signature(self) -> None:
        """A signature of another key is refused."""
        self.refused(token(ec.generate_private_key(ec.SECP256R1())), "signature")

    def test_kid(self) -> None:
        """A token must name a key of its trust domain."""
        self.refused(token(kid=None), "kid")
        self.refused(token(kid="other"), "kid")

    def test_subject(self) -> None:
        """The subject must be a SPIFFE ID of a known trust domain."""
        self.refused(token(sub=None), "subject")
        self.refused(token(sub="alice"), "subject")
        self.refused(token(sub="spiffe://other.example/a"), "no bundle")

    def test_audience(self) -> None:
        """The audience must be named, as text or in a list."""
        validate(token(aud="us"), "us", BUNDLES, NOW)
        self.refused(token(aud=None), "audience")
        self.refused(token(aud=["them"]), "audience")
        self.refused(token(aud=[]), "audience")
        self.refused(token(aud={"us": 1}), "audience")
        self.refused(token(aud="us and them"), "audience")

    def test_times(self) -> None:
        """exp is required and exact to ten seconds; nbf is checked; neither may be anything but a time."""
        now = int(NOW.timestamp())
        self.refused(token(exp=None), "no exp")
        validate(token(exp=now - 9), "us", BUNDLES, NOW)
        self.refused(token(exp=now - 10), "expired")
        validate(token(nbf=now + 10), "us", BUNDLES, NOW)
        self.refused(token(nbf=now + 11), "not valid yet")
        far = 2**53
        for value in ("soon", True, [], float("nan"), float("inf"), far, 10**400, -(10**400), -far, 1e300):
            self.refused(token_raw({"sub": str(NAME), "aud": "us", "exp": value}), "exp")
            self.refused(token_raw({"sub": str(NAME), "aud": "us", "exp": now + 60, "nbf": value}), "nbf")
        validate(token_raw({"sub": str(NAME), "aud": "us", "exp": far - 1, "nbf": 1 - far}), "us", BUNDLES, NOW)

    def test_shape(self) -> None:
        """Text that is not a token is refused before any key is used."""
        for text in ("", "a", "a.b", "a.b.c.d", "....", "e30.e30.", token()[:-1] + "!", "\u00e9.\u00e9.\u00e9"):
            self.assertRaises(JwtSvidInvalid, validate, text, "us", BUNDLES, NOW)
        self.refused("a" * (MAX_TOKEN + 1), "longer")
        deep = base64.urlsafe_b64encode(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}").decode().rstrip("=")
        self.assertRaises(JwtSvidInvalid, validate, f"{deep}.{deep}.", "us", BUNDLES, NOW)

    @given(st.text(max_size=80))
    def test_any_text(self, text: str) -> None:
        """Any text is refused by a typed error."""
        self.assertRaises(JwtSvidInvalid, validate, text, "us", BUNDLES, NOW)


def token_raw(claims: dict[str, Any]) -> str:
    """Sign claims unchanged, also those that PyJWT would refuse to write."""
    return jwt.PyJWS().encode(json.dumps(claims).encode(), P256, "ES256", headers={"kid": "p256"})


class BundleFileTests(SynchronousTestCase):
    """Bundle files."""

    def test_round_trip(self) -> None:
        """Written roots and JWT keys are read back by the functions that read foreign bundles."""
        for algorithm in ("ECDSA-P256", "ECDSA-P384", "RSA", "Ed25519"):
            bundle = TestAuthority("example.org", now=NOW, algorithm=algorithm).bundle()
            data = spiffe_bundle(bundle, BUNDLES[DOMAIN], 7)
            self.assertEqual(parse_bundle_file(data, DOMAIN).bundle_for(DOMAIN), bundle)
            self.assertEqual([key["kid"] for key in read_jwt_keys(data)], ["p256", "p384", "rsa"])
            document = json.loads(data)
            self.assertEqual((document["spiffe_sequence"], document["spiffe_refresh_hint"]), (7, 60))
            self.assertNotIn("d", document["keys"][0])
            self.assertEqual(parse_bundle_file(pem_bundle(bundle), DOMAIN).bundle_for(DOMAIN), bundle)

    def test_post_quantum_root(self) -> None:
        """A post-quantum root is never written into a SPIFFE bundle."""
        bundle = TestAuthority("example.org", now=NOW, algorithm="ML-DSA-65").bundle()
        self.assertRaises(BundleNotWritable, spiffe_bundle, bundle, (), 1)

    def test_private_parts_are_left_out(self) -> None:
        """Only the public members of a foreign key are read."""
        key = {**ECAlgorithm.to_jwk(P256, as_dict=True), "kid": "a", "use": "jwt-svid", "jku": "http://x"}
        self.assertIn("d", key)
        (read,) = read_jwt_keys(json.dumps({"keys": [key]}).encode())
        self.assertEqual(set(read), {"kty", "kid", "use", "crv", "x", "y"})

    def test_unusable_keys(self) -> None:
        """Keys of another use or type, or without a kid, are left out."""
        good = public(P256, "a")
        keys = [{**good, "use": "x509-svid"}, {**good, "kty": "oct"}, {k: v for k, v in good.items() if k != "kid"}, 1]
        self.assertEqual(read_jwt_keys(json.dumps({"keys": keys}).encode()), ())
        self.assertEqual(read_jwt_keys(b"-----BEGIN CERTIFICATE-----"), ())
        self.assertEqual(read_jwt_keys(b'{"keys":{}}'), ())

    def test_values_are_bounded(self) -> None:
        """A bundle may have as many values and member names as a bundle file, and no more."""
        roots = b'{"x5c":["AAAA"]},' * (MAX_NODES // 4)
        key = json.dumps(public(P256, "a")).encode()
        self.assertEqual(len(read_jwt_keys(b'{"keys":[' + roots + key + b"]}")), 1)
        self.assertRaises(JsonRefused, read_jwt_keys, b'{"keys":[' + b"0," * MAX_BUNDLE_NODES + b"0]}")

    def test_jwks(self) -> None:
        """The JWT bundle of the Workload API is a plain JWKS."""
        self.assertEqual(json.loads(jwks(BUNDLES[DOMAIN]))["keys"][0]["kid"], "p256")
