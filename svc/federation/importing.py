"""What an administrator may import: the rules for a package whose roots are going to be pinned."""

from __future__ import annotations

from datetime import datetime

from svc.federation.continuity import Continuity
from svc.federation.errors import PackageRefused
from svc.federation.package import VerifiedPackage
from svc.federation.reference import ExpectedPeer
from svc.identity import TrustDomain


def check_import(
    package: VerifiedPackage,
    *,
    own: TrustDomain,
    now: datetime,
    expected: ExpectedPeer | None = None,
    existing: Continuity | None = None,
    rebootstrap: bool = False,
    force: bool = False,
) -> None:
    """
    Check that the roots of a package may be pinned; the first failure counts.

    Args:
        package: the package.
        own: the own trust domain.
        now: an aware time.
        expected: what the administrator was told about the peer; None where the administrator has vetted the file.
        existing: the continuity of the relationship with this trust domain; None where there is none.
        rebootstrap: whether a relationship that does not work may be replaced.
        force: whether any relationship may be replaced.

    Raises:
        PackageRefused: ``own_trust_domain``, ``wrong_trust_domain``, ``fingerprint_mismatch``, ``package_expired``,
            ``package_not_yet_valid``, ``already_federated`` or ``continuity_working``.
    """
    found = package.content
    if found.trust_domain == own:
        raise PackageRefused("own_trust_domain", trust_domain=own)
    if expected is not None:
        check_expected(package, expected)
    package.check_time(now)
    if existing is None or force:
        return
    if not rebootstrap:
        raise PackageRefused("already_federated", trust_domain=found.trust_domain, continuity=existing.value)
    if existing is Continuity.WORKING:
        raise PackageRefused("continuity_working", trust_domain=found.trust_domain)


def check_expected(package: VerifiedPackage, expected: ExpectedPeer) -> None:
    """
    Check that a package is of the peer that was named.

    Raises:
        PackageRefused: ``wrong_trust_domain`` or ``fingerprint_mismatch``.
    """
    found = package.content
    if expected.trust_domain not in (None, found.trust_domain):
        raise PackageRefused("wrong_trust_domain", found=found.trust_domain, expected=expected.trust_domain)
    if not expected.fingerprint.matches(found.fingerprint):
        raise PackageRefused(
            "fingerprint_mismatch",
            trust_domain=found.trust_domain,
            found=expected.fingerprint.spelled(found.fingerprint),
            expected=expected.fingerprint,
        )
