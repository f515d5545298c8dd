"""
An X.509-SVID with its private key, as the Workload API delivers it.

Trust and time are checked by ``svc.identity.verification`` only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_private_key

from svc.identity.algorithms import SvidPrivateKey, key_algorithm, spki_der
from svc.identity.certificate import CertificateFacts, split_der
from svc.identity.errors import KeyNotAllowed, SvidInvalid, SvidMalformed
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID

#: Certificates that may be presented with an SVID, the leaf included.
MAX_CHAIN_CERTIFICATES: Final = 16


@dataclass(frozen=True)
class X509Svid:
    """An identity that a workload can present: the chain (leaf first, no root) and the private key of the leaf."""

    spiffe_id: SpiffeID
    chain: tuple[x509.Certificate, ...]
    private_key: SvidPrivateKey = field(repr=False, compare=False)

    @classmethod
    def parse(cls, chain_der: bytes, key_der: bytes) -> X509Svid:
        """
        Read an SVID in the form of the SPIFFE Workload API (X509SVID message).

        The leaf rules are checked, and the key must belong to the leaf. Self-signed certificates behind the leaf are
        dropped.

        Args:
            chain_der: concatenated DER certificates, leaf first.
            key_der: the private key, PKCS#8 DER, not encrypted.

        Raises:
            SvidInvalid: with the reason of the broken rule.
        """
        certificates = split_der(chain_der, limit=MAX_CHAIN_CERTIFICATES)
        if not certificates:
            raise SvidMalformed(defect="there is no certificate")
        private_key = load_private_key(key_der)
        leaf, *rest = certificates
        spiffe_id = check_leaf(CertificateFacts.read(leaf))
        if spki_der(private_key.public_key()) != spki_der(leaf.public_key()):
            raise SvidInvalid("svid_key_mismatch", spiffe_id=spiffe_id)
        chain = (leaf, *(certificate for certificate in rest if not is_self_signed(certificate)))
        return cls(spiffe_id, chain, private_key)

    @property
    def leaf(self) -> x509.Certificate:
        """The certificate that names the workload."""
        return self.chain[0]

    @property
    def not_before(self) -> datetime:
        """When the validity of the leaf begins, aware."""
        return self.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """When the validity of the leaf ends, aware."""
        return self.leaf.not_valid_after_utc

    @cached_property
    def chain_not_after(self) -> datetime:
        """When the first of the presented certificates expires, aware."""
        return min(each.not_valid_after_utc for each in self.chain)


def load_private_key(der: bytes) -> SvidPrivateKey:
    """
    Read a private key of an allowed algorithm from unencrypted PKCS#8 DER.

    Raises:
        SvidMalformed: when the octets are anything else.
        KeyNotAllowed: for another algorithm, curve or size.
    """
    try:
        private_key = load_der_private_key(der, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SvidMalformed(defect="the private key is not an unencrypted PKCS#8 key") from error
    if not isinstance(private_key, SvidPrivateKey):
        raise KeyNotAllowed(found=type(private_key).__name__)
    key_algorithm(private_key.public_key())
    return private_key


def is_self_signed(certificate: x509.Certificate) -> bool:
    """Whether a certificate is signed by its own key; False where the signature cannot be checked."""
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
