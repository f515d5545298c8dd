"""
An authority for tests: it issues X.509-SVIDs and post-quantum leaves, valid or invalid.

Owns the valid templates of root, intermediate, SVID and post-quantum leaf, of which tests change single fields. The
time is an argument.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Unpack

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from svc.identity import (
    BundleSet,
    SpiffeID,
    SvidPrivateKey,
    TrustAnchor,
    TrustDomain,
    X509Bundle,
    X509Svid,
    binding_extension,
    spki_sha256,
)
from svc.testing.certificates import (
    SIGNING_KEY_USAGE,
    CertificateFields,
    CertificateTemplate,
    build_certificate,
    generate_key,
    name_of,
    subject_key_identifier,
)

DEFAULT_TTL: Final = timedelta(hours=1)
AUTHORITY_TTL: Final = timedelta(days=30)
#: How long before ``now`` certificates start to be valid, as authorities do for skewed clocks.
BACKDATED: Final = timedelta(seconds=60)


class TestAuthority:
    """
    A signing certificate with its key: a root, or what :meth:`intermediate` made.

    Every ``**fields`` argument takes fields of :class:`CertificateTemplate`; each that is not given has its valid
    value.
    """

    __test__ = False

    def __init__(
        self,
        trust_domain: str = "example.org",
        *,
        now: datetime,
        algorithm: str = "ECDSA-P256",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        issuer: TestAuthority | None = None,
        signer: CertificateIssuerPrivateKeyTypes | None = None,
        key_slot: str = "root",
        **fields: Unpack[CertificateFields],
    ) -> None:
        """
        Make a root, or with an ``issuer`` an intermediate.

        Args:
            trust_domain: the name of the trust domain.
            now: the time around which everything is valid.
            algorithm: of the key, as in :func:`svc.testing.certificates.generate_key`.
            not_before: by default a minute before ``now``.
            not_after: by default 30 days after ``now``.
            issuer: who issues it; None makes it self-signed.
            signer: the signing key, by default the issuer's.
            key_slot: which of the cached RSA keys is used.
            fields: the fields that differ from a valid signing certificate.
        """
        self.trust_domain = TrustDomain.parse(trust_domain)
        self.now = now
        self.algorithm = algorithm
        self.issuer = issuer
        self.private_key = generate_key(algorithm, key_slot)
        values: CertificateFields = {
            "subject": f"{trust_domain} root",
            "uris": (str(self.trust_domain.id),),
            "ca": True,
            "key_usage": SIGNING_KEY_USAGE,
            "eku": None,
            "extensions": (),
        }
        values.update(fields)
        values["extensions"] = (*self._key_ids(issuer), *values["extensions"])
        self.certificate: x509.Certificate = build_certificate(
            CertificateTemplate(
                not_before=not_before or now - BACKDATED, not_after=not_after or now + AUTHORITY_TTL, **values
            ),
            self.private_key.public_key(),
            name_of(values["subject"]) if issuer is None else issuer.certificate.subject,
            signer or (self.private_key if issuer is None else issuer.private_key),
        )

    def _key_ids(self, issuer: TestAuthority | None) -> tuple[tuple[x509.ExtensionType, bool], ...]:
        own = subject_key_identifier(self.private_key)
        above = own if issuer is None else subject_key_identifier(issuer.private_key)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above)
        return ((own, False), (authority, False))

    def bundle(self, *, first_seen: datetime | None = None, last_seen: datetime | None = None) -> X509Bundle:
        """
        Return the bundle with this certificate as its only root, trusted in the given window; None means no bound.
        """
        return X509Bundle(self.trust_domain, (TrustAnchor(self.certificate, first_seen, last_seen),))

    def bundles(self) -> BundleSet:
        """Return a set with the bundle of this authority only."""
        return BundleSet.of(self.bundle())

    def intermediate(
        self,
        name: str = "intermediate",
        *,
        algorithm: str = "ECDSA-P256",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        signer: CertificateIssuerPrivateKeyTypes | None = None,
        **fields: Unpack[CertificateFields],
    ) -> TestAuthority:
        """
        Issue a signing certificate: an authority whose SVIDs have the certificates up to the root in their chain.

        Args:
            name: its subject.
            algorithm: of its key.
            not_before: by default a minute before ``now``.
            not_after: by default 30 days after ``now``.
            signer: the signing key, by default this authority's.
            fields: the fields that differ from a valid signing certificate.
        """
        fields.setdefault("subject", name)
        return TestAuthority(
            self.trust_domain.name,
            now=self.now,
            algorithm=algorithm,
            not_before=not_before,
            not_after=not_after,
            issuer=self,
            signer=signer,
            key_slot=name,
            **fields,
        )

    def rotated(self, *, algorithm: str | None = None) -> TestAuthority:
        """Make the next root, with the same subject and another key, by default of the same algorithm."""
        return TestAuthority(
            self.trust_domain.name, now=self.now, algorithm=algorithm or self.algorithm, key_slot="rotated"
        )

    def chain(self, leaf: x509.Certificate) -> tuple[x509.Certificate, ...]:
        """Return a leaf and the certificates between it and the root, leaf first, without the root."""
        chain = [leaf]
        authority = self
        while authority.issuer is not None:
            chain.append(authority.certificate)
            authority = authority.issuer
        return tuple(chain)

    def svid(
        self,
        path: str = "/workload",
        *,
        algorithm: str = "ECDSA-P256",
        ttl: timedelta = DEFAULT_TTL,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        private_key: CertificateIssuerPrivateKeyTypes | None = None,
        signer: CertificateIssuerPrivateKeyTypes | None = None,
        self_signed: bool = False,
        **fields: Unpack[CertificateFields],
    ) -> X509Svid:
        """
        Issue an X.509-SVID with its chain. No rule is checked, so it may be invalid in any way.

        Args:
            path: of the SPIFFE ID; ``spiffe_id`` of the result has it even when ``uris`` differs.
            algorithm: of its key.
            ttl: how long it is valid from ``now`` on, where ``not_after`` is not given.
            not_before: by default a minute before ``now``.
            not_after: by default ``ttl`` after ``now``.
            private_key: the key of the workload; by default a new one.
            signer: the signing key, by default this authority's.
            self_signed: the leaf is its own issuer.
            fields: the fields that differ from a valid leaf.
        """
        spiffe_id = SpiffeID(self.trust_domain, path)
        key = private_key or generate_key(algorithm, "leaf")
        values: CertificateFields = {"subject": "workload", "uris": (str(spiffe_id),), "extensions": ()}
        values.update(fields)
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            subject_key_identifier(key if self_signed else self.private_key)
        )
        values["extensions"] = ((authority_id, False), *values["extensions"])
        leaf = build_certificate(
            CertificateTemplate(
                not_before=not_before or self.now - BACKDATED,
                not_after=not_after or self.now + ttl,
                **values,
            ),
            key.public_key(),
            name_of(values["subject"]) if self_signed else self.certificate.subject,
            key if self_signed else signer or self.private_key,
        )
        return X509Svid(spiffe_id, (leaf,) if self_signed else self.chain(leaf), _any_key(key))

    def pq_leaf(
        self,
        svid: X509Svid,
        *,
        spiffe_id: str | None = None,
        binding: bytes | None = None,
        bound: bool = True,
        algorithm: str = "ML-DSA-65",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        signer: CertificateIssuerPrivateKeyTypes | None = None,
        **fields: Unpack[CertificateFields],
    ) -> tuple[tuple[x509.Certificate, ...], SvidPrivateKey]:
        """
        Issue the post-quantum leaf of an SVID; this authority should have an ML-DSA key.

        Args:
            svid: the SVID it is bound to.
            spiffe_id: another identity than that of the SVID.
            binding: another digest than that of the SVID's SubjectPublicKeyInfo, 32 octets.
            bound: False leaves the binding out.
            algorithm: of its key.
            not_before: by default the later of the SVID's start and a minute before ``now``.
            not_after: by default the end of the SVID.
            signer: the signing key, by default this authority's.
            fields: the fields that differ from a valid post-quantum leaf.

        Returns:
            The chain, leaf first and without the root, and the private key.
        """
        extension = binding_extension(binding or spki_sha256(svid.leaf))
        fields["extensions"] = (*(((extension, False),) if bound else ()), *fields.get("extensions", ()))
        fields.setdefault("uris", (spiffe_id or str(svid.spiffe_id),))
        leaf = self.svid(
            svid.spiffe_id.path,
            algorithm=algorithm,
            not_before=not_before or max(svid.not_before, self.now - BACKDATED),
            not_after=not_after or svid.not_after,
            signer=signer,
            **fields,
        )
        return leaf.chain, leaf.private_key


def chain_der(svid: X509Svid) -> bytes:
    """Write the chain of an SVID as the Workload API does: concatenated DER certificates, leaf first."""
    return b"".join(certificate.public_bytes(Encoding.DER) for certificate in svid.chain)


def chain_pem(svid: X509Svid) -> bytes:
    """Write the chain of an SVID as PEM certificates, leaf first."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in svid.chain)


def key_der(svid: X509Svid) -> bytes:
    """Write the private key of an SVID as the Workload API does: PKCS#8 DER, not encrypted."""
    return svid.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def key_pem(svid: X509Svid) -> bytes:
    """Write the private key of an SVID as PKCS#8 PEM, not encrypted."""
    return svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _any_key(key: CertificateIssuerPrivateKeyTypes) -> SvidPrivateKey:
    """An invalid SVID may have a key that no SVID may have; the type is narrower on purpose."""
    return key  # type: ignore[return-value]
