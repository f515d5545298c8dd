"""
Which keys and which certificate signatures are allowed, and what they are called.

Owns the list of algorithms and the digests that name a key or a certificate. Knows nothing of chains and of JOSE
envelopes beyond the algorithm word that goes with a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from svc.identity.certificate import subject_text
from svc.identity.errors import KeyNotAllowed, SignatureAlgorithmNotAllowed

MIN_RSA_BITS: Final = 2048
#: A verification with a longer key costs milliseconds, which a stranger could make us spend.
MAX_RSA_BITS: Final = 8192

SvidPrivateKey = (
    ec.EllipticCurvePrivateKey
    | ed25519.Ed25519PrivateKey
    | rsa.RSAPrivateKey
    | mldsa.MLDSA44PrivateKey
    | mldsa.MLDSA65PrivateKey
    | mldsa.MLDSA87PrivateKey
)
SvidPublicKey = (
    ec.EllipticCurvePublicKey
    | ed25519.Ed25519PublicKey
    | rsa.RSAPublicKey
    | mldsa.MLDSA44PublicKey
    | mldsa.MLDSA65PublicKey
    | mldsa.MLDSA87PublicKey
)


@dataclass(frozen=True, slots=True)
class KeyAlgorithm:
    """
    An algorithm that a key of an SVID or of its authority may have.

    ``name`` is shown to people, ``jose`` is the ``alg`` of a signature by such a key (RFC 7518, RFC 9864, RFC 9964).
    """

    name: str
    jose: str
    post_quantum: bool

    def __str__(self) -> str:
        return self.name


ECDSA_P256: Final = KeyAlgorithm("ECDSA-P256", "ES256", post_quantum=False)
ECDSA_P384: Final = KeyAlgorithm("ECDSA-P384", "ES384", post_quantum=False)
ED25519: Final = KeyAlgorithm("Ed25519", "Ed25519", post_quantum=False)
RSA: Final = KeyAlgorithm("RSA", "PS256", post_quantum=False)
ML_DSA_44: Final = KeyAlgorithm("ML-DSA-44", "ML-DSA-44", post_quantum=True)
ML_DSA_65: Final = KeyAlgorithm("ML-DSA-65", "ML-DSA-65", post_quantum=True)
ML_DSA_87: Final = KeyAlgorithm("ML-DSA-87", "ML-DSA-87", post_quantum=True)
ALGORITHMS: Final = (ECDSA_P256, ECDSA_P384, ED25519, RSA, ML_DSA_44, ML_DSA_65, ML_DSA_87)

_ALLOWED_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})
_OID: Final = x509.SignatureAlgorithmOID
_HASHED_SIGNATURES: Final = frozenset(
    {
        _OID.ECDSA_WITH_SHA256,
        _OID.ECDSA_WITH_SHA384,
        _OID.ECDSA_WITH_SHA512,
        _OID.RSA_WITH_SHA256,
        _OID.RSA_WITH_SHA384,
        _OID.RSA_WITH_SHA512,
    }
)
_PURE_SIGNATURES: Final = frozenset({_OID.ED25519, _OID.ML_DSA_44, _OID.ML_DSA_65, _OID.ML_DSA_87})
_SIGNATURE_NAMES: Final = {
    oid: name.replace("_", "-") for name, oid in vars(_OID).items() if isinstance(oid, x509.ObjectIdentifier)
}


def key_algorithm(public_key: object) -> KeyAlgorithm:
    """
    Name the algorithm of a public key.

    Args:
        public_key: a public key of the cryptography library.

    Returns:
        The algorithm.

    Raises:
        KeyNotAllowed: for any other kind, curve or size.
    """
    match public_key:
        case ec.EllipticCurvePublicKey():
            if isinstance(public_key.curve, ec.SECP256R1):
                return ECDSA_P256
            if isinstance(public_key.curve, ec.SECP384R1):
                return ECDSA_P384
            raise KeyNotAllowed(found=f"ECDSA on {public_key.curve.name}")
        case ed25519.Ed25519PublicKey():
            return ED25519
        case rsa.RSAPublicKey():
            if not MIN_RSA_BITS <= public_key.key_size <= MAX_RSA_BITS:
                raise KeyNotAllowed(found=f"RSA of {public_key.key_size} bits")
            return RSA
        case mldsa.MLDSA44PublicKey():
            return ML_DSA_44
        case mldsa.MLDSA65PublicKey():
            return ML_DSA_65
        case mldsa.MLDSA87PublicKey():
            return ML_DSA_87
    raise KeyNotAllowed(found=type(public_key).__name__)


def certificate_key_algorithm(certificate: x509.Certificate) -> KeyAlgorithm:
    """
    Name the algorithm of the key in a certificate.

    Args:
        certificate: any certificate.

    Returns:
        The algorithm.

    Raises:
        KeyNotAllowed: for any other kind, curve or size, and for a key that cannot be read.
    """
    try:
        public_key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyNotAllowed(found=f"with the algorithm {certificate.public_key_algorithm_oid.dotted_string}") from error
    return key_algorithm(public_key)


def check_signature_algorithm(certificate: x509.Certificate) -> None:
    """
    Refuse a certificate that is signed with a weak or unlisted algorithm, whoever signed it.

    Args:
        certificate: any certificate.

    Raises:
        SignatureAlgorithmNotAllowed: with ``found`` naming the algorithm.
    """
    oid = certificate.signature_algorithm_oid
    if oid in _HASHED_SIGNATURES or oid in _PURE_SIGNATURES:
        return
    if oid == _OID.RSASSA_PSS and _pss_hashes(certificate) <= _ALLOWED_HASHES:
        return
    found = f"{_SIGNATURE_NAMES.get(oid, 'an unknown algorithm')} ({oid.dotted_string})"
    raise SignatureAlgorithmNotAllowed(subject=subject_text(certificate), found=found)


def _pss_hashes(certificate: x509.Certificate) -> frozenset[str]:
    """Both hashes of RSASSA-PSS (RFC 4055, section 3.1): of the message and of the mask."""
    try:
        parameters = certificate.signature_algorithm_parameters
        message_hash = certificate.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return frozenset({"unreadable"})
    if not isinstance(parameters, padding.PSS) or message_hash is None:
        return frozenset({"unreadable"})
    # The library has no public name for the hash of the mask.
    return frozenset({message_hash.name, parameters.mgf._algorithm.name})


def spki_der(public_key: SvidPublicKey) -> bytes:
    """
    Write a public key as DER SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).

    Args:
        public_key: the key.

    Returns:
        The octets.
    """
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def spki_sha256(certificate: x509.Certificate) -> bytes:
    """
    Digest the SubjectPublicKeyInfo of a certificate.

    Args:
        certificate: any certificate.

    Returns:
        32 octets.

    Raises:
        KeyNotAllowed: for a key that cannot be read.
    """
    certificate_key_algorithm(certificate)
    encoded = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).digest()


def certificate_sha256(certificate: x509.Certificate) -> bytes:
    """
    Digest a whole certificate; the ``x5t#S256`` of JOSE (RFC 7515, section 4.1.8) is its base64url.

    Args:
        certificate: any certificate.

    Returns:
        32 octets.
    """
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
