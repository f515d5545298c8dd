"""
Federation roots: the two long-lived keys of a trust domain that sign its bootstrap packages.

They are not SPIRE's CA: who federates pins them by their fingerprint, and roots follow each other by the rule of
:mod:`svc.federation.succession`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from svc.envelope.claims import Claims
from svc.envelope.keys import jwk_thumbprint
from svc.federation.fingerprint import Fingerprint
from svc.identity import TrustDomain
from svc.identity.algorithms import key_algorithm
from svc.identity.errors import KeyNotAllowed

CLASSICAL: Final = ("ES384", "Ed25519")
POST_QUANTUM: Final = "ML-DSA-65"
_FINGERPRINT_PREFIX: Final = b"svc-federation/1\0"

ClassicalKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
RootKey = ClassicalKey | mldsa.MLDSA65PublicKey


@dataclass(frozen=True)
class FederationRoots:
    """Both public keys: Ed25519 or P-384, and ML-DSA-65."""

    classical: ClassicalKey = field(repr=False)
    post_quantum: mldsa.MLDSA65PublicKey = field(repr=False)

    @classmethod
    def of(cls, keys: Sequence[object]) -> FederationRoots:
        """
        Make roots of two public keys in any order.

        Raises:
            ValueError: for other kinds or another number of keys.
        """
        classical = [key for key in keys if isinstance(key, ClassicalKey) and key_algorithm(key).jose in CLASSICAL]
        post_quantum = [key for key in keys if isinstance(key, mldsa.MLDSA65PublicKey)]
        if len(keys) != 2 or len(classical) != 1 or len(post_quantum) != 1:
            raise ValueError("the roots are one key of Ed25519 or P-384, and one of ML-DSA-65")
        return cls(classical[0], post_quantum[0])

    @classmethod
    def from_claims(cls, claims: Claims) -> FederationRoots:
        """
        Read the claim ``roots``.

        Raises:
            Malformed: for a key that cannot be read, is not of its ``alg``, or other kinds or numbers of keys.
        """
        try:
            return cls.of([_key(each) for each in claims.objects("roots")])
        except (ValueError, KeyNotAllowed) as error:
            raise claims.mistyped("roots", "one key of Ed25519 or ES384, and one of ML-DSA-65") from error

    def to_claims(self) -> list[dict[str, str]]:
        """Write the claim ``roots``."""
        return [{"alg": alg, "spki": base64.b64encode(_spki(key)).decode("ascii")} for alg, key in self.keys.items()]

    @property
    def keys(self) -> Mapping[str, RootKey]:
        """Each key by the algorithm of its signatures, in ASCII order."""
        return {key_algorithm(self.classical).jose: self.classical, POST_QUANTUM: self.post_quantum}

    @property
    def kids(self) -> Mapping[str, str]:
        """The thumbprint of each key by its algorithm (RFC 7638)."""
        return {alg: jwk_thumbprint(key) for alg, key in self.keys.items()}

    def fingerprint(self, trust_domain: TrustDomain) -> Fingerprint:
        """Compute the fingerprint of these roots for a trust domain; each text and key has its length before it."""
        name = trust_domain.name.encode("ascii")
        digest = hashlib.sha256(_FINGERPRINT_PREFIX + len(name).to_bytes(2, "big") + name)
        for alg, key in self.keys.items():
            spki = _spki(key)
            digest.update(len(alg).to_bytes(2, "big") + alg.encode("ascii") + len(spki).to_bytes(4, "big") + spki)
        return Fingerprint(digest.digest())


def _spki(key: RootKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key(claims: Claims) -> object:
    text = claims.text("spki")
    try:
        octets = base64.b64decode(text.encode("ascii"), validate=True)
        key = load_der_public_key(octets)
        alg = key_algorithm(key).jose
    except (ValueError, binascii.Error, UnsupportedAlgorithm, KeyNotAllowed) as error:
        raise claims.mistyped("spki", "padded base64 of a SubjectPublicKeyInfo") from error
    canonical = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if base64.b64encode(canonical).decode("ascii") != text:
        raise claims.mistyped("spki", "padded base64 of a SubjectPublicKeyInfo in its one encoding")
    if claims.text("alg") != alg:
        raise claims.mistyped("alg", f"{alg}, which the key signs with")
    return key
