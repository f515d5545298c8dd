"""
An X.509-SVID with its private key, as a value.

Owns the reading of what the Workload API delivers. Knows nothing of trust: whether anybody vouches for the SVID is
decided by ``svc.identity.verification`` alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from svc.identity.algorithms import KeyAlgorithm, SvidPrivateKey, key_algorithm, spki_der, spki_sha256
from svc.identity.certificate import CertificateFacts, split_der
from svc.identity.errors import KeyMismatch, KeyNotAllowed, SvidMalformed
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID

#: The most certificates that an SVID may come with.
MAX_CHAIN_CERTIFICATES: Final = 16

_PRIVATE_KEYS: Final = (
    ec.EllipticCurvePrivateKey,
    ed25519.Ed25519PrivateKey,
    rsa.RSAPrivateKey,
    mldsa.MLDSA44PrivateKey,
    mldsa.MLDSA65PrivateKey,
    mldsa.MLDSA87PrivateKey,
)


@dataclass(frozen=True)
class X509Svid:
    """
    An identity that a workload can present: the chain (leaf first, without a root) and the private key of the leaf.
    """

    spiffe_id: SpiffeID
    chain: tuple[x509.Certificate, ...]
    private_key: SvidPrivateKey = field(repr=False, compare=False)

    @classmethod
    def parse(cls, chain_der: bytes, key_der: bytes) -> X509Svid:
        """
        Read an SVID in the form of the SPIFFE Workload API (X509SVID message).

        The leaf rules are checked and the key must belong to the leaf; trust and time are not judged. A self-signed
        certificate behind the leaf is left out.

        Args:
            chain_der: concatenated DER certificates, leaf first.
            key_der: the private key, PKCS#8 DER, not encrypted.

        Returns:
            The SVID.

        Raises:
            SvidInvalid: the subclass that names the broken rule.
        """
        certificates = split_der(chain_der, limit=MAX_CHAIN_CERTIFICATES)
        if not certificates:
            raise SvidMalformed(defect="there is no certificate")
        private_key = load_private_key(key_der)
        leaf, *rest = certificates
        spiffe_id = check_leaf(CertificateFacts.read(leaf))
        if hashlib.sha256(spki_der(private_key.public_key())).digest() != spki_sha256(leaf):
            raise KeyMismatch(spiffe_id=spiffe_id)
        chain = (leaf, *(certificate for certificate in rest if not is_self_signed(certificate)))
        return cls(spiffe_id, chain, private_key)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate that names the workload."""
        return self.chain[0]

    @property
    def not_before(self) -> datetime:
        """From when the leaf is valid, aware."""
        return self.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """Until when the leaf is valid, aware."""
        return self.leaf.not_valid_after_utc

    @property
    def algorithm(self) -> KeyAlgorithm:
        """The algorithm of the private key."""
        return key_algorithm(self.private_key.public_key())


def load_private_key(der: bytes) -> SvidPrivateKey:
    """
    Read a private key of an allowed algorithm.

    Args:
        der: PKCS#8 DER, not encrypted.

    Returns:
        The key.

    Raises:
        SvidMalformed: when the octets are not such a key.
        KeyNotAllowed: for another algorithm, curve or size.
    """
    try:
        private_key = load_der_private_key(der, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SvidMalformed(defect="the private key is not an unencrypted PKCS#8 key") from error
    if not isinstance(private_key, _PRIVATE_KEYS):
        raise KeyNotAllowed(found=type(private_key).__name__)
    key_algorithm(private_key.public_key())
    return private_key


def is_self_signed(certificate: x509.Certificate) -> bool:
    """
    Say whether a certificate is signed by its own key.

    Args:
        certificate: any certificate.

    Returns:
        True for a self-signed one; a certificate that cannot be checked is not taken for one.
    """
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
