"""
An authority for tests: it issues X.509-SVIDs and post-quantum leaves, right ones and every wrong one.

Owns the usual shapes (a right root, intermediate, SVID and post-quantum leaf) that tests then bend. Takes the time as
an argument; nothing depends on the clock.
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
    Knobs,
    Shape,
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

    Every ``**knobs`` argument takes the fields of :class:`svc.testing.certificates.Shape`; what is not given has its
    right value.
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
        **knobs: Unpack[Knobs],
    ) -> None:
        """
        Make a root, or with an ``issuer`` an intermediate.

        Args:
            trust_domain: the name of the trust domain.
            now: the time around which everything is valid.
            algorithm: of the key, as in :func:`svc.testing.certificates.generate_key`.
            not_before: when it starts; by default a minute before ``now``.
            not_after: when it ends; by default 30 days after ``now``.
            issuer: who issues it; None makes it self-signed.
            signer: the key that signs, where it shall not be the issuer's.
            key_slot: which of the cached RSA keys is taken.
            knobs: what shall differ from a right signing certificate.
        """
        self.trust_domain = TrustDomain.parse(trust_domain)
        self.now = now
        self.algorithm = algorithm
        self.issuer = issuer
        self.private_key = generate_key(algorithm, key_slot)
        shape: Knobs = {
            "subject": f"{trust_domain} root",
            "uris": (str(self.trust_domain.id),),
            "ca": True,
            "key_usage": SIGNING_KEY_USAGE,
            "eku": None,
            "extensions": (),
        }
        shape.update(knobs)
        shape["extensions"] = (*self._key_ids(issuer), *shape["extensions"])
        self.certificate: x509.Certificate = build_certificate(
            Shape(not_before=not_before or now - BACKDATED, not_after=not_after or now + AUTHORITY_TTL, **shape),
            self.private_key.public_key(),
            name_of(shape["subject"]) if issuer is None else issuer.certificate.subject,
            signer or (self.private_key if issuer is None else issuer.private_key),
        )

    def _key_ids(self, issuer: TestAuthority | None) -> tuple[tuple[x509.ExtensionType, bool], ...]:
        own = subject_key_identifier(self.private_key)
        above = own if issuer is None else subject_key_identifier(issuer.private_key)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above)
        return ((own, False), (authority, False))

    def bundle(self, *, first_seen: datetime | None = None, last_seen: datetime | None = None) -> X509Bundle:
        """
        The bundle that trusts this authority.

        Args:
            first_seen: where its window starts; None for no bound.
            last_seen: where its window ends; None for no bound.

        Returns:
            A bundle with this certificate as its only root.
        """
        return X509Bundle(self.trust_domain, (TrustAnchor(self.certificate, first_seen, last_seen),))

    def bundles(self) -> BundleSet:
        """
        The bundles of somebody who trusts this authority and no other.

        Returns:
            A set of one bundle.
        """
        return BundleSet.of(self.bundle())

    def intermediate(
        self,
        name: str = "intermediate",
        *,
        algorithm: str = "ECDSA-P256",
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        signer: CertificateIssuerPrivateKeyTypes | None = None,
        **knobs: Unpack[Knobs],
    ) -> TestAuthority:
        """
        Issue a signing certificate.

        Args:
            name: its subject.
            algorithm: of its key.
            not_before: when it starts.
            not_after: when it ends.
            signer: the key that signs, where it shall not be this authority's.
            knobs: what shall differ from a right signing certificate.

        Returns:
            An authority whose SVIDs carry its certificate, and those between it and the root, in their chain.
        """
        knobs.setdefault("subject", name)
        return TestAuthority(
            self.trust_domain.name,
            now=self.now,
            algorithm=algorithm,
            not_before=not_before,
            not_after=not_after,
            issuer=self,
            signer=signer,
            key_slot=name,
            **knobs,
        )

    def rotated(self, *, algorithm: str | None = None) -> TestAuthority:
        """
        Make the root that follows this one: the same subject, another key.

        Args:
            algorithm: of the new key; by default the same.

        Returns:
            A root that shares nothing with this one but its names.
        """
        return TestAuthority(
            self.trust_domain.name, now=self.now, algorithm=algorithm or self.algorithm, key_slot="rotated"
        )

    def chain(self, leaf: x509.Certificate) -> tuple[x509.Certificate, ...]:
        """
        Put a leaf before the certificates between it and the root.

        Args:
            leaf: a certificate that this authority issued.

        Returns:
            The chain, leaf first, without the root.
        """
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
        **knobs: Unpack[Knobs],
    ) -> X509Svid:
        """
        Issue an X.509-SVID. No rule is checked, so any wrong one can be had.

        Args:
            path: of the SPIFFE ID; the value's ``spiffe_id`` has it even when ``uris`` says something else.
            algorithm: of its key.
            ttl: how long it is valid from ``now`` on, where ``not_after`` is not given.
            not_before: when it starts.
            not_after: when it ends.
            private_key: the key of the workload; by default a new one.
            signer: the key that signs, where it shall not be this authority's.
            self_signed: the leaf is its own issuer.
            knobs: what shall differ from a right leaf.

        Returns:
            The SVID with its chain.
        """
        spiffe_id = SpiffeID.from_path(self.trust_domain, path)
        key = private_key or generate_key(algorithm, "leaf")
        shape: Knobs = {"subject": "workload", "uris": (str(spiffe_id),), "extensions": ()}
        shape.update(knobs)
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
            subject_key_identifier(key if self_signed else self.private_key)
        )
        shape["extensions"] = ((authority_id, False), *shape["extensions"])
        leaf = build_certificate(
            Shape(
                not_before=not_before or self.now - BACKDATED,
                not_after=not_after or self.now + ttl,
                **shape,
            ),
            key.public_key(),
            name_of(shape["subject"]) if self_signed else self.certificate.subject,
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
        **knobs: Unpack[Knobs],
    ) -> tuple[tuple[x509.Certificate, ...], SvidPrivateKey]:
        """
        Issue the post-quantum leaf that stands beside an SVID; this authority should have an ML-DSA key.

        Args:
            svid: the SVID it is bound to.
            spiffe_id: another identity than that of the SVID.
            binding: another digest than that of the SVID's SubjectPublicKeyInfo, 32 octets.
            bound: False leaves the binding out.
            algorithm: of its key.
            not_before: when it starts; by default the later of the SVID's start and a minute before ``now``.
            not_after: when it ends; by default with the SVID.
            signer: the key that signs, where it shall not be this authority's.
            knobs: what shall differ from a right post-quantum leaf.

        Returns:
            The chain, leaf first and without the root, and the private key.
        """
        extension = binding_extension(binding or spki_sha256(svid.leaf))
        knobs["extensions"] = (*(((extension, False),) if bound else ()), *knobs.get("extensions", ()))
        knobs.setdefault("uris", (spiffe_id or str(svid.spiffe_id),))
        leaf = self.svid(
            svid.spiffe_id.path,
            algorithm=algorithm,
            not_before=not_before or max(svid.not_before, self.now - BACKDATED),
            not_after=not_after or svid.not_after,
            signer=signer,
            **knobs,
        )
        return leaf.chain, leaf.private_key


def chain_der(svid: X509Svid) -> bytes:
    """
    Write the chain as the Workload API does.

    Args:
        svid: an SVID.

    Returns:
        Concatenated DER certificates, leaf first.
    """
    return b"".join(certificate.public_bytes(Encoding.DER) for certificate in svid.chain)


def chain_pem(svid: X509Svid) -> bytes:
    """
    Write the chain for a program that reads PEM files.

    Args:
        svid: an SVID.

    Returns:
        PEM certificates, leaf first.
    """
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in svid.chain)


def key_der(svid: X509Svid) -> bytes:
    """
    Write the private key as the Workload API does.

    Args:
        svid: an SVID.

    Returns:
        PKCS#8 DER, not encrypted.
    """
    return svid.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def key_pem(svid: X509Svid) -> bytes:
    """
    Write the private key for a program that reads PEM files.

    Args:
        svid: an SVID.

    Returns:
        PKCS#8 PEM, not encrypted.
    """
    return svid.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _any_key(key: CertificateIssuerPrivateKeyTypes) -> SvidPrivateKey:
    """A wrong SVID may have a key that no SVID may have; the type says otherwise on purpose."""
    return key  # type: ignore[return-value]
