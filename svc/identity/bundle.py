"""
Whom we trust: the roots of each trust domain, with the time in which each one counts.

Owns trust anchors, the bundle of one trust domain and the set of bundles. Knows nothing of how bundles arrive.
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
from svc.identity.certificate import CertificateFacts, split_der, subject_of
from svc.identity.errors import SvidMalformed, TrustDomainUnknown
from svc.identity.spiffeid import TrustDomain

#: More roots than this in one bundle are somebody's mistake; an archive of two roots a day fits for over two years.
MAX_ANCHORS: Final = 2048


class BundleMalformed(SvcError):
    """the trust bundle cannot be read: {defect}"""

    reason = "bundle_malformed"
    hint = "a trust bundle holds CA certificates as concatenated DER, PEM, or a SPIFFE bundle in JSON"
    defect: str


@dataclass(frozen=True)
class TrustAnchor:
    """
    A root certificate and the window in which it stood in the bundle; None means unbounded on that side.
    """

    certificate: x509.Certificate
    first_seen: datetime | None = None
    last_seen: datetime | None = None

    @cached_property
    def facts(self) -> CertificateFacts:
        """What the rules need of the certificate; raises as :meth:`CertificateFacts.read`, at each use."""
        return CertificateFacts.read(self.certificate)

    def counts_at(self, now: datetime) -> bool:
        """
        Say whether the root stood in the bundle at a time; both ends belong to the window.

        Args:
            now: an aware time.

        Returns:
            True inside the window.
        """
        after_start = self.first_seen is None or self.first_seen <= now
        return after_start and (self.last_seen is None or now <= self.last_seen)

    def window_text(self) -> str:
        """
        Describe the window.

        Returns:
            A phrase such as ``from … until …``.
        """
        parts = [f"from {self.first_seen}"] if self.first_seen else []
        parts += [f"until {self.last_seen}"] if self.last_seen else []
        return " ".join(parts) or "always"


@dataclass(frozen=True)
class X509Bundle:
    """
    The roots of one trust domain. Without any root it is legal and verifies nothing (all are revoked).
    """

    trust_domain: TrustDomain
    anchors: tuple[TrustAnchor, ...] = ()

    def __post_init__(self) -> None:
        if len(self.anchors) > MAX_ANCHORS:
            raise BundleMalformed(defect=f"{len(self.anchors)} roots of {self.trust_domain}, at most {MAX_ANCHORS}")

    @classmethod
    def from_certificates(cls, trust_domain: TrustDomain, certificates: Iterable[x509.Certificate]) -> X509Bundle:
        """
        Make a bundle of roots that count without a window.

        Args:
            trust_domain: whose roots they are.
            certificates: the roots; a repeated one counts once.

        Returns:
            The bundle.
        """
        return cls(trust_domain, tuple(TrustAnchor(certificate) for certificate in dict.fromkeys(certificates)))

    @classmethod
    def parse_der(cls, trust_domain: TrustDomain, der: bytes) -> X509Bundle:
        """
        Read the form of the Workload API: concatenated DER certificates.

        Args:
            trust_domain: whose roots they are.
            der: the octets; none make an empty bundle.

        Returns:
            The bundle.

        Raises:
            BundleMalformed: when the octets are anything else.
        """
        try:
            return cls.from_certificates(trust_domain, split_der(der, limit=MAX_ANCHORS))
        except SvidMalformed as error:
            raise BundleMalformed(defect=error.defect) from error

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The root certificates, in order."""
        return tuple(anchor.certificate for anchor in self.anchors)

    @cached_property
    def _by_subject(self) -> Mapping[x509.Name, tuple[TrustAnchor, ...]]:
        found: dict[x509.Name, list[TrustAnchor]] = {}
        for anchor in self.anchors:
            subject = subject_of(anchor.certificate)
            if subject is not None:
                found.setdefault(subject, []).append(anchor)
        return {subject: tuple(anchors) for subject, anchors in found.items()}

    def named(self, subject: x509.Name) -> tuple[TrustAnchor, ...]:
        """
        Find the roots with a subject; a rotation leaves several.

        Args:
            subject: the issuer name of a certificate.

        Returns:
            The roots, possibly none.
        """
        return self._by_subject.get(subject, ())

    @cached_property
    def _certificates(self) -> frozenset[x509.Certificate]:
        return frozenset(self.certificates)

    def __contains__(self, certificate: object) -> bool:
        return certificate in self._certificates


@dataclass(frozen=True)
class BundleSet:
    """
    The bundles of all trust domains that we know. Equal when it holds the same bundles.
    """

    bundles: Mapping[TrustDomain, X509Bundle] = field(default_factory=dict)

    @classmethod
    def of(cls, *bundles: X509Bundle) -> BundleSet:
        """
        Put bundles together; a later one replaces an earlier one of the same trust domain.

        Args:
            bundles: any number of them.

        Returns:
            The set.
        """
        return cls({bundle.trust_domain: bundle for bundle in bundles})

    def bundle_for(self, trust_domain: TrustDomain) -> X509Bundle:
        """
        Find the bundle that judges the SVIDs of a trust domain.

        Args:
            trust_domain: the trust domain of the SVID itself.

        Returns:
            The bundle.

        Raises:
            TrustDomainUnknown: when there is none.
        """
        bundle = self.bundles.get(trust_domain)
        if bundle is None:
            raise TrustDomainUnknown(trust_domain=trust_domain)
        return bundle

    def replace(self, bundle: X509Bundle) -> BundleSet:
        """
        Set the bundle of one trust domain.

        Args:
            bundle: the new bundle.

        Returns:
            A new set; this one stays as it is.
        """
        return BundleSet({**self.bundles, bundle.trust_domain: bundle})

    def without(self, trust_domain: TrustDomain) -> BundleSet:
        """
        Forget a trust domain.

        Args:
            trust_domain: which one; it need not be there.

        Returns:
            A new set; this one stays as it is.
        """
        return BundleSet({name: bundle for name, bundle in self.bundles.items() if name != trust_domain})

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
