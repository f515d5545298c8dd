"""Which key and signature algorithms are allowed, and the SHA-256 digests that identify a key or a certificate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from svc.identity.certificate import subject_text
from svc.identity.errors import KeyNotAllowed, SvidInvalid

MIN_RSA_BITS: Final = 2048
#: Verifying with a longer key takes milliseconds, which any peer could make us spend.
MAX_RSA_BITS: Final = 8192
#: For the same reason; the exponent of nearly all keys is 65537, which has 17 bits.
MAX_RSA_EXPONENT_BITS: Final = 32

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
    An allowed algorithm of a key.

    Args:
        name: shown to users.
        jose: the ``alg`` of a signature by such a key (RFC 7518, RFC 9864, RFC 9964).
        post_quantum: whether it is ML-DSA.
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
_ALLOWED_SIGNATURES: Final = frozenset(
    {
        _OID.ED25519,
        _OID.ML_DSA_44,
        _OID.ML_DSA_65,
        _OID.ML_DSA_87,
        _OID.ECDSA_WITH_SHA256,
        _OID.ECDSA_WITH_SHA384,
        _OID.ECDSA_WITH_SHA512,
        _OID.RSA_WITH_SHA256,
        _OID.RSA_WITH_SHA384,
        _OID.RSA_WITH_SHA512,
    }
)
_SIGNATURE_NAMES: Final = {
    oid: name.replace("_", "-") for name, oid in vars(_OID).items() if isinstance(oid, x509.ObjectIdentifier)
}


def key_algorithm(public_key: object) -> KeyAlgorithm:
    """
    Return the algorithm of a public key of the cryptography library.

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
            exponent_bits = public_key.public_numbers().e.bit_length()
            if exponent_bits > MAX_RSA_EXPONENT_BITS:
                raise KeyNotAllowed(found=f"RSA with a public exponent of {exponent_bits} bits")
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
    Return the algorithm of the key in a certificate.

    Raises:
        KeyNotAllowed: as :func:`key_algorithm`, and for a key that cannot be read.
    """
    try:
        public_key = certificate.public_key()
    except Exception as error:
        raise KeyNotAllowed(found=f"with the algorithm {certificate.public_key_algorithm_oid.dotted_string}") from error
    return key_algorithm(public_key)


def check_signature_algorithm(certificate: x509.Certificate) -> None:
    """Refuse a certificate that is signed with a weak or unlisted algorithm."""
    oid = certificate.signature_algorithm_oid
    if oid in _ALLOWED_SIGNATURES:
        return
    if oid == _OID.RSASSA_PSS and _pss_hashes(certificate) <= _ALLOWED_HASHES:
        return
    found = f"{_SIGNATURE_NAMES.get(oid, 'an unknown algorithm')} ({oid.dotted_string})"
    raise SvidInvalid("signature_algorithm_not_allowed", subject=subject_text(certificate), found=found)


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


def spki_der(public_key: PublicKeyTypes) -> bytes:
    """The SubjectPublicKeyInfo of a public key, DER."""
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def spki_sha256(certificate: x509.Certificate) -> bytes:
    """
    SHA-256 of the SubjectPublicKeyInfo of a certificate.

    Raises:
        KeyNotAllowed: as :func:`certificate_key_algorithm`.
    """
    certificate_key_algorithm(certificate)
    return hashlib.sha256(spki_der(certificate.public_key())).digest()


def certificate_sha256(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the DER of a certificate; its base64url is the ``x5t#S256`` of JOSE (RFC 7515, section 4.1.8)."""
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
