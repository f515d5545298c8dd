"""
The rule by which a served package replaces the pinned one, in the manner of the roots of TUF.

``sequence`` counts sets of roots. The same sequence is signed anew by the same roots with a later ``iat``. A package
with the next sequence is signed by its own roots and by those before it, and names their fingerprint; a later one is
followed package by package. Nothing goes back: no lower sequence, no earlier ``iat``.

Packages on the way may have expired, since they prove whose roots follow whose; the served one may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from svc.envelope.claims import utc_seconds
from svc.federation.errors import PackageRefused
from svc.federation.package import VerifiedPackage

#: So many of the last sequences a peer serves.
MAX_LINKS: Final = 16


def needed_links(pinned: VerifiedPackage, served: VerifiedPackage) -> range:
    """
    Return the sequences of the packages that have to be fetched before :func:`check_follows` can accept the served one.

    Raises:
        PackageRefused: the first of them is not among the last :data:`MAX_LINKS`, which alone are served.
    """
    first, last = pinned.content.sequence + 1, served.content.sequence
    if served.package.previous_signatures:
        last -= 1
    if served.content.sequence - first >= MAX_LINKS:
        raise _missing(served, first)
    return range(first, last + 1)


def check_follows(
    pinned: VerifiedPackage,
    served: VerifiedPackage,
    now: datetime,
    links: Mapping[int, VerifiedPackage] | None = None,
) -> None:
    """
    Check that a served package may replace the pinned one.

    Args:
        pinned: the package that is trusted.
        served: what the peer serves now.
        now: an aware time.
        links: packages on the way by their sequence; those of :func:`needed_links` have to be there.

    Raises:
        PackageRefused: ``wrong_trust_domain``, ``package_rolled_back``, ``packages_missing``, ``successor_invalid``,
            ``root_mismatch``, ``package_expired`` or ``package_not_yet_valid``.
        EnvelopeError: a signature of the roots before is not valid.
    """
    _check_not_older(pinned, served)
    current, fetched = pinned, links or {}
    for sequence in range(pinned.content.sequence + 1, served.content.sequence + 1):
        link = fetched.get(sequence)
        if link is None and sequence == served.content.sequence and served.package.previous_signatures:
            link = served
        if link is None:
            raise _missing(served, sequence)
        _check_successor(current, link)
        current = link
    _check_not_older(current, served)
    if served.content.sequence != current.content.sequence or served.content.fingerprint != current.content.fingerprint:
        raise _invalid(served, "it has other roots with the same sequence")
    served.check_time(now)


def _check_not_older(before: VerifiedPackage, after: VerifiedPackage) -> None:
    old, new = before.content, after.content
    if new.trust_domain != old.trust_domain:
        raise PackageRefused("wrong_trust_domain", found=new.trust_domain, expected=old.trust_domain)
    defect = ""
    if new.sequence < old.sequence:
        defect = f"sequence {new.sequence} after {old.sequence}"
    elif new.issued < old.issued:
        defect = f"made at {utc_seconds(new.issued)} after {utc_seconds(old.issued)}"
    if defect:
        raise PackageRefused("package_rolled_back", trust_domain=new.trust_domain, defect=defect)


def _check_successor(before: VerifiedPackage, after: VerifiedPackage) -> None:
    _check_not_older(before, after)
    previous = after.content.previous
    if previous is None or previous.sequence != before.content.sequence:
        raise _invalid(after, f"it does not follow sequence {before.content.sequence}")
    if previous.fingerprint != before.content.fingerprint:
        raise _invalid(after, "the roots before it are others than the pinned ones")
    if not after.package.previous_signatures:
        raise _invalid(after, "the roots before it have not signed it")
    after.package.check_signatures(after.package.previous_signatures, before.content.roots)


def _invalid(found: VerifiedPackage, defect: str) -> PackageRefused:
    content = found.content
    return PackageRefused(
        "successor_invalid", sequence=content.sequence, trust_domain=content.trust_domain, defect=defect
    )


def _missing(served: VerifiedPackage, sequence: int) -> PackageRefused:
    content = served.content
    return PackageRefused(
        "packages_missing", sequence=content.sequence, trust_domain=content.trust_domain, missing=sequence
    )
