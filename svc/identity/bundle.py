"""
Trust anchors, the bundle of one trust domain, and the set of bundles.

Bundles of different trust domains are never merged (SPIFFE Federation, section 7.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from cryptography import x509

from svc.errors import SvcError
from svc.identity.certificate import CertificateFacts, split_der
from svc.identity.encoding import CertificateEncoding
from svc.identity.errors import SvidMalformed, TrustDomainUnknown
from svc.identity.spiffeid import TrustDomain

#: Roots in one bundle; enough for an archive to which two roots are added each day for over two years.
MAX_ANCHORS: Final = 2048


class BundleMalformed(SvcError):
    """the trust bundle cannot be read: {defect}"""

    reason = "bundle_malformed"
    hint = "a trust bundle holds CA certificates as concatenated DER, PEM, or a SPIFFE bundle in JSON"
    defect: str


@dataclass(frozen=True)
class TrustAnchor:
    """A root certificate and the window in which it was in the bundle; None means unbounded on that side."""

    certificate: x509.Certificate
    first_seen: datetime | None = None
    last_seen: datetime | None = None

    @cached_property
    def encoding(self) -> CertificateEncoding:
        """The encoded parts of the certificate."""
        return CertificateEncoding.read(self.certificate)

    @cached_property
    def facts(self) -> CertificateFacts:
        """The facts of the certificate; each use raises as :meth:`CertificateFacts.read` while it fails."""
        return CertificateFacts.read(self.certificate, self.encoding)

    def trusted_at(self, now: datetime) -> bool:
        """Whether the root was in the bundle at an aware time; both ends of the window are inclusive."""
        after_start = self.first_seen is None or self.first_seen <= now
        return after_start and (self.last_seen is None or now <= self.last_seen)

    def window_text(self) -> str:
        """Describe the window, such as ``from … until …``."""
        parts = [f"from {self.first_seen}"] if self.first_seen else []
        parts += [f"until {self.last_seen}"] if self.last_seen else []
        return " ".join(parts) or "always"


@dataclass(frozen=True)
class X509Bundle:
    """The roots of one trust domain; a bundle without roots is valid and verifies nothing (all are revoked)."""

    trust_domain: TrustDomain
    anchors: tuple[TrustAnchor, ...] = ()

    def __post_init__(self) -> None:
        if len(self.anchors) > MAX_ANCHORS:
            raise BundleMalformed(defect=f"{len(self.anchors)} roots of {self.trust_domain}, at most {MAX_ANCHORS}")

    @classmethod
    def from_certificates(cls, trust_domain: TrustDomain, certificates: Iterable[x509.Certificate]) -> X509Bundle:
        """Make a bundle of roots that are trusted at any time; duplicates are dropped."""
        return cls(trust_domain, tuple(TrustAnchor(certificate) for certificate in dict.fromkeys(certificates)))

    @classmethod
    def parse_der(cls, trust_domain: TrustDomain, der: bytes) -> X509Bundle:
        """
        Read concatenated DER certificates, the form of the Workload API; no octets give an empty bundle.

        Raises:
            BundleMalformed: when the octets are anything else.
        """
        try:
            return cls.from_certificates(trust_domain, split_der(der, limit=MAX_ANCHORS))
        except SvidMalformed as error:
            raise BundleMalformed(defect=error.defect) from error

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The root certificates, in the order of the bundle."""
        return tuple(anchor.certificate for anchor in self.anchors)

    @cached_property
    def windowed(self) -> bool:
        """Whether a root is trusted for a window alone, so that what it verifies depends on the time."""
        return any(anchor.first_seen is not None or anchor.last_seen is not None for anchor in self.anchors)

    @cached_property
    def _by_subject(self) -> Mapping[bytes, tuple[TrustAnchor, ...]]:
        found: dict[bytes, list[TrustAnchor]] = {}
        for anchor in self.anchors:
            found.setdefault(anchor.encoding.subject, []).append(anchor)
        return {subject: tuple(anchors) for subject, anchors in found.items()}

    def with_subject(self, subject: bytes) -> tuple[TrustAnchor, ...]:
        """Return the roots with an encoded subject; after a rotation there are several."""
        return self._by_subject.get(subject, ())

    @cached_property
    def _by_key_id(self) -> Mapping[tuple[bytes, bytes | None], tuple[TrustAnchor, ...]]:
        found: dict[tuple[bytes, bytes | None], list[TrustAnchor]] = {}
        for anchor in self.anchors:
            found.setdefault((anchor.encoding.subject, anchor.encoding.subject_key_id), []).append(anchor)
        return {key: tuple(anchors) for key, anchors in found.items()}

    def issuers_of(self, child: CertificateEncoding, now: datetime) -> Iterator[TrustAnchor]:
        """
        Return the roots that have the name of a certificate's issuer, the most likely ones first.

        Roots that are trusted at ``now`` come before others, and in each group those with a matching key identifier.
        The iteration is lazy: most certificates are signed by the first root.
        """
        anchors = self.with_subject(child.issuer)
        if len(anchors) < 2:
            yield from anchors
            return
        key_id = child.authority_key_id
        matching = self._by_key_id.get((child.issuer, key_id), ()) if key_id is not None else ()
        for trusted in (True, False):
            yield from (each for each in matching if each.trusted_at(now) is trusted)
            yield from (
                each
                for each in anchors
                if each.trusted_at(now) is trusted and (key_id is None or each.encoding.subject_key_id != key_id)
            )

    @cached_property
    def _certificates(self) -> frozenset[x509.Certificate]:
        return frozenset(self.certificates)

    def __contains__(self, certificate: object) -> bool:
        return certificate in self._certificates


@dataclass(frozen=True)
class BundleSet:
    """The bundles of all trusted domains; sets of equal bundles are equal."""

    bundles: Mapping[TrustDomain, X509Bundle] = field(default_factory=dict)

    @classmethod
    def of(cls, *bundles: X509Bundle) -> BundleSet:
        """Make a set; a later bundle replaces an earlier one of the same trust domain."""
        return cls({bundle.trust_domain: bundle for bundle in bundles})

    def bundle_for(self, trust_domain: TrustDomain) -> X509Bundle:
        """
        Return the bundle by which the SVIDs of a trust domain are verified.

        Raises:
            TrustDomainUnknown: when there is none.
        """
        bundle = self.bundles.get(trust_domain)
        if bundle is None:
            raise TrustDomainUnknown(trust_domain=trust_domain)
        return bundle

    def replace(self, bundle: X509Bundle) -> BundleSet:
        """Return a copy with the bundle of one trust domain replaced or added."""
        return BundleSet({**self.bundles, bundle.trust_domain: bundle})

    @property
    def trust_domains(self) -> tuple[TrustDomain, ...]:
        """The trust domains that have a bundle, sorted by name."""
        return tuple(sorted(self.bundles))

    def __iter__(self) -> Iterator[X509Bundle]:
        return (self.bundles[name] for name in self.trust_domains)

    def __len__(self) -> int:
        return len(self.bundles)

    def __contains__(self, trust_domain: object) -> bool:
        return trust_domain in self.bundles
