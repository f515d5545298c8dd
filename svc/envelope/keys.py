"""
Signing keys: which algorithm a key signs with, and the raw signature over given octets.

Owns the algorithm table (RFC 7518, RFC 9864, RFC 9964), thumbprints, and the :class:`Signer`. Does not depend on
envelopes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAPSSAlgorithm

from svc.envelope.errors import EnvelopeError
from svc.envelope.x5c import MAX_CERTIFICATES, UNREADABLE, encode_x5c, one_spiffe_id
from svc.identity.algorithms import SvidPrivateKey, certificate_sha256, key_algorithm
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.strictjson import b64u_encode, dumps

_PQ_PRIVATE: Final = (mldsa.MLDSA44PrivateKey, mldsa.MLDSA65PrivateKey, mldsa.MLDSA87PrivateKey)
_PQ_PUBLIC: Final = (mldsa.MLDSA44PublicKey, mldsa.MLDSA65PublicKey, mldsa.MLDSA87PublicKey)

MlDsaPublicKey = mldsa.MLDSA44PublicKey | mldsa.MLDSA65PublicKey | mldsa.MLDSA87PublicKey
MlDsaPrivateKey = mldsa.MLDSA44PrivateKey | mldsa.MLDSA65PrivateKey | mldsa.MLDSA87PrivateKey

#: ECDSA is raw ``r || s`` of fixed length (RFC 7518, 3.4), PS256 has a salt as long as the digest (3.5).
_CLASSICAL: Final[dict[str, Algorithm]] = {
    "ES256": ECAlgorithm(ECAlgorithm.SHA256, ec.SECP256R1),
    "ES384": ECAlgorithm(ECAlgorithm.SHA384, ec.SECP384R1),
    "Ed25519": OKPAlgorithm(),
    "PS256": RSAPSSAlgorithm(RSAPSSAlgorithm.SHA256),
}

#: The keys of ML-DSA by JOSE name; also the lengths that ``pub`` of an AKP key may have (FIPS 204, table 2).
_PQ_PUBLIC_BY_ALG: Final[dict[str, type[MlDsaPublicKey]]] = {
    "ML-DSA-44": mldsa.MLDSA44PublicKey,
    "ML-DSA-65": mldsa.MLDSA65PublicKey,
    "ML-DSA-87": mldsa.MLDSA87PublicKey,
}


def ml_dsa_public_key(alg: str, data: bytes) -> MlDsaPublicKey:
    """
    Read a raw ML-DSA public key (RFC 9964: the member ``pub`` of an AKP key).

    Raises:
        ValueError: for another algorithm or a wrong length.
    """
    if alg not in _PQ_PUBLIC_BY_ALG:
        raise ValueError(f"{alg} is not ML-DSA")
    return _PQ_PUBLIC_BY_ALG[alg].from_public_bytes(data)


def verify_signature(alg: str, public_key: PublicKeyTypes, data: bytes, signature: bytes) -> None:
    """
    Verify one raw signature: ECDSA as ``r || s``, ML-DSA pure with an empty context.

    Raises:
        EnvelopeError: where it does not verify, or the key is not one of the algorithm.
    """
    try:
        if key_algorithm(public_key).jose != alg:
            raise EnvelopeError("signature_invalid", alg=alg)
        if isinstance(public_key, _PQ_PUBLIC):
            public_key.verify(signature, data)
        elif not _CLASSICAL[alg].verify(data, public_key, signature):
            raise EnvelopeError("signature_invalid", alg=alg)
    except (InvalidSignature, ValueError, SvidInvalid) as error:
        raise EnvelopeError("signature_invalid", alg=alg) from error


def jwk_thumbprint(public_key: PublicKeyTypes) -> str:
    """
    Compute the thumbprint of a raw key, base64url of SHA-256 (RFC 7638; RFC 8037 for OKP, RFC 9964 for AKP).

    Raises:
        EnvelopeError: for a key that is not P-256, P-384, Ed25519 or ML-DSA.
    """
    members: dict[str, str]
    if isinstance(public_key, _PQ_PUBLIC):
        pub = b64u_encode(public_key.public_bytes_raw())
        members = {"alg": key_algorithm(public_key).jose, "kty": "AKP", "pub": pub}
    elif isinstance(public_key, ed25519.Ed25519PublicKey):
        members = {"crv": "Ed25519", "kty": "OKP", "x": b64u_encode(public_key.public_bytes_raw())}
    elif isinstance(public_key, ec.EllipticCurvePublicKey):
        point = public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
        half = len(point) // 2
        curve = {"secp256r1": "P-256", "secp384r1": "P-384"}.get(public_key.curve.name, public_key.curve.name)
        members = {"crv": curve, "kty": "EC", "x": b64u_encode(point[:half]), "y": b64u_encode(point[half:])}
    else:
        raise EnvelopeError("signers_unsuitable", detail="a raw key is P-256, P-384, Ed25519 or ML-DSA")
    return b64u_encode(hashlib.sha256(dumps(members)).digest())


@dataclass(frozen=True)
class Signer:
    """
    A private key with its certificate chain, or with the thumbprint of its public key.

    Attributes:
        alg: the JOSE name of the algorithm, by the kind of the key.
        thumbprint: ``x5t#S256`` of the leaf, or ``kid`` of a raw key; base64url, 43 characters.
        chain: the leaf and its intermediates, without a root; empty for a raw key.
        x5c: the chain as it is written in the envelope.
        spiffe_id: the identity in the leaf; None for a raw key.
    """

    alg: str
    thumbprint: str
    chain: tuple[x509.Certificate, ...]
    x5c: tuple[str, ...] = field(repr=False)
    spiffe_id: SpiffeID | None
    _private_key: SvidPrivateKey = field(repr=False, compare=False)

    @classmethod
    def from_svid(cls, svid: X509Svid) -> Signer:
        """Sign with the key of an SVID: chain A, or the only signature of an ML-DSA SVID."""
        return cls.from_chain(svid.private_key, svid.chain)

    @classmethod
    def from_chain(cls, private_key: SvidPrivateKey, chain: Sequence[x509.Certificate]) -> Signer:
        """
        Sign with the key of a certificate chain, leaf first, without a root.

        Raises:
            EnvelopeError: where the key is not the leaf's, the leaf has no SPIFFE ID, or the chain is too long.
            KeyNotAllowed: for a kind or size of key that no SVID may have.
        """
        if not chain:
            raise EnvelopeError("signers_unsuitable", detail="the certificate chain is empty")
        if len(chain) > MAX_CERTIFICATES:
            raise EnvelopeError(
                "signers_unsuitable", detail=f"the chain has {len(chain)} certificates, at most {MAX_CERTIFICATES} fit"
            )
        leaf = chain[0]
        try:
            spiffe_id = one_spiffe_id(leaf)
        except UNREADABLE as error:
            raise EnvelopeError("signers_unsuitable", detail="the leaf certificate cannot be read") from error
        if spiffe_id is None:
            raise EnvelopeError("signers_unsuitable", detail="the leaf certificate does not carry one SPIFFE ID")
        if private_key.public_key() != leaf.public_key():
            raise EnvelopeError("signers_unsuitable", detail="the private key does not belong to the leaf certificate")
        return cls(
            key_algorithm(private_key.public_key()).jose,
            b64u_encode(certificate_sha256(leaf)),
            tuple(chain),
            encode_x5c(chain),
            spiffe_id,
            private_key,
        )

    @classmethod
    def from_raw_key(cls, private_key: SvidPrivateKey) -> Signer:
        """
        Sign with a key without certificates (proof of possession); the header then has ``kid``.

        Raises:
            EnvelopeError: for a key that is not P-256, P-384, Ed25519 or ML-DSA.
        """
        public_key = private_key.public_key()
        return cls(key_algorithm(public_key).jose, jwk_thumbprint(public_key), (), (), None, private_key)

    @property
    def post_quantum(self) -> bool:
        """Whether the signature is ML-DSA."""
        return isinstance(self._private_key, _PQ_PRIVATE)

    def sign(self, data: bytes) -> bytes:
        """Make one raw signature; ML-DSA takes about a millisecond and releases the interpreter lock."""
        if isinstance(self._private_key, _PQ_PRIVATE):
            return self._private_key.sign(data)
        return _CLASSICAL[self.alg].sign(data, self._private_key)
