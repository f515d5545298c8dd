"""The X.509 roots of the trust domain and the SVIDs that they sign (SPIFFE X.509-SVID, sections 3 to 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from svc.identity.algorithms import SvidPrivateKey, SvidPublicKey, key_algorithm
from svc.identity.bundle import X509Bundle
from svc.identity.rules import key_usage
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.svid import X509Svid
from svc.pqissuer.rotation import BACKDATE, KeyRing

_KEYS: Final[dict[str, Callable[[], SvidPrivateKey]]] = {
    "ECDSA-P256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSA-P384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 3072),
    "ML-DSA-65": mldsa.MLDSA65PrivateKey.generate,
    "ML-DSA-87": mldsa.MLDSA87PrivateKey.generate,
}
#: The names that the configuration accepts.
ALGORITHMS: Final = tuple(_KEYS)


def generate_key(algorithm: str) -> SvidPrivateKey:
    """A new private key of one of :data:`ALGORITHMS`."""
    return _KEYS[algorithm]()


@dataclass(frozen=True, slots=True)
class Root:
    """A self-signed certificate and its key."""

    certificate: x509.Certificate
    private_key: SvidPrivateKey


class X509Authority:
    """Signs X.509-SVIDs of one trust domain with roots of the lifetime ``ttl``."""

    def __init__(
        self,
        trust_domain: TrustDomain,
        *,
        algorithm: str = "ECDSA-P256",
        leaf_algorithm: str = "ECDSA-P256",
        ttl: timedelta = timedelta(hours=24),
    ) -> None:
        self.trust_domain = trust_domain
        self._algorithm = algorithm
        self._leaf_algorithm = leaf_algorithm
        self.ring: KeyRing[Root] = KeyRing(self._make_root, ttl)

    def advance(self, now: datetime) -> bool:
        """Rotate roots that are due; returns whether the bundle or the signing root changed."""
        return self.ring.advance(now)

    def ensure_algorithm(self, now: datetime) -> None:
        """Make a successor now if the newest root does not have the configured algorithm."""
        self.ring.ensure(lambda key: key_algorithm(key.certificate.public_key()).name == self._algorithm, now)

    def bundle(self) -> X509Bundle:
        """Every announced root, the oldest first."""
        return X509Bundle.from_certificates(self.trust_domain, [slot.key.certificate for slot in self.ring.announced])

    def issue(self, spiffe_id: SpiffeID, ttl: timedelta, now: datetime) -> X509Svid:
        """An SVID with a new key; it expires no later than the root."""
        slot = self.ring.active(now)
        private_key = generate_key(self._leaf_algorithm)
        not_after = min(now.replace(microsecond=0) + ttl, slot.key.certificate.not_valid_after_utc)
        certificate = _leaf(spiffe_id, private_key.public_key(), now - BACKDATE, not_after, slot.key)
        return X509Svid(spiffe_id, (certificate,), private_key)

    def _make_root(self, now: datetime, expires: datetime) -> Root:
        private_key = generate_key(self._algorithm)
        public_key = private_key.public_key()
        # The serial number keeps the subjects of successive roots apart, so that a chain has one candidate.
        serial = x509.random_serial_number()
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "svc authority"),
                x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{serial:x}"),
            ]
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public_key)
            .serial_number(serial)
            .not_valid_before(now - BACKDATE)
            .not_valid_after(expires)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            # X.509-SVID 3.2: the certificate of an authority should carry the trust domain itself, without a path.
            .add_extension(_uri_name(str(self.trust_domain.id)), critical=False)
        )
        return Root(builder.sign(private_key, signing_hash(private_key)), private_key)


def _leaf(
    spiffe_id: SpiffeID, public_key: SvidPublicKey, not_before: datetime, not_after: datetime, root: Root
) -> x509.Certificate:
    issuer_key_id = root.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "svc workload")]))
        .issuer_name(root.certificate.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key_id),
            critical=False,
        )
        .add_extension(_uri_name(str(spiffe_id)), critical=False)
        .sign(root.private_key, signing_hash(root.private_key))
    )


def signing_hash(private_key: SvidPrivateKey) -> hashes.SHA256 | hashes.SHA384 | None:
    """
    The digest for a signing key: SHA-384 for P-384, SHA-256 for P-256 and RSA, None for algorithms that hash
    themselves.
    """
    if isinstance(private_key, ec.EllipticCurvePrivateKey):
        return hashes.SHA384() if private_key.curve.name == "secp384r1" else hashes.SHA256()
    return hashes.SHA256() if isinstance(private_key, rsa.RSAPrivateKey) else None


def _uri_name(uri: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
