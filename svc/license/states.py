"""
The state of a license at an instant, and which of several licenses counts.

Evaluated at every use from the payload: there is no timer that could be late, and nothing is remembered but the latest
time that was seen, which the caller passes in. States are ordered; of those that hold at once the worst is the state of
the license, and of several licenses the one in the best state counts. Limits of licenses are not added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from svc.envelope.errors import EnvelopeError
from svc.identity import TrustDomain
from svc.license.payload import License
from svc.license.verification import VerifiedLicense

#: How far the clock may be behind the latest time that was seen; clocks of machines differ, and are corrected.
CLOCK_TOLERANCE: Final = timedelta(hours=24)


class LicenseState(Enum):
    """The states of a license, the best first."""

    VALID = "Valid"
    #: Valid, and its end is near.
    EXPIRING_SOON = "ExpiringSoon"
    #: It has ended, and its days of grace have not.
    GRACE = "Grace"
    #: More is in use than it allows.
    OVER_LIMIT = "OverLimit"
    NOT_YET_VALID = "NotYetValid"
    #: The clock is more than a day behind the latest time that was seen: its other instants are not to be believed.
    CLOCK_SUSPECT = "ClockSuspect"
    EXPIRED = "Expired"
    #: It is for other trust domains.
    WRONG_TRUST_DOMAIN = "WrongTrustDomain"
    #: It was refused.
    INVALID = "Invalid"
    #: There is no license at all.
    MISSING = "Missing"

    @property
    def rank(self) -> int:
        """0 for the best state, more for worse ones."""
        return _RANKS[self]

    @property
    def in_force(self) -> bool:
        """Whether a license in this state counts as a valid one."""
        return self.rank <= LicenseState.OVER_LIMIT.rank


_RANKS: Final = {state: rank for rank, state in enumerate(LicenseState)}


class Exceeded(NamedTuple):
    """A limit that is exceeded: its name, how much is in use, and how much the license allows."""

    name: str
    used: int
    limit: int


class Change(NamedTuple):
    """The next instant at which the state changes by time alone, and the state from then on."""

    at: datetime
    state: LicenseState


@dataclass(frozen=True)
class Assessment:
    """
    The state of one license, or of none, at one instant.

    Attributes:
        reason: the precise reason of an invalid license, else empty.
        verified: the license; None for one that was refused, and where there is none.
        exceeded: the limits that are exceeded, whatever the state is.
        warning: the number of days, out of ``warn_days``, whose warning is due; None where none is.
        next_change: None where time changes nothing any more.
    """

    state: LicenseState
    reason: str = ""
    verified: VerifiedLicense | None = None
    exceeded: tuple[Exceeded, ...] = ()
    warning: int | None = None
    next_change: Change | None = None


MISSING: Final = Assessment(LicenseState.MISSING)


def assess(
    verified: VerifiedLicense,
    now: datetime,
    *,
    trust_domain: TrustDomain | None = None,
    usage: Mapping[str, int] | None = None,
    latest_seen: datetime | None = None,
) -> Assessment:
    """
    Evaluate a license.

    Args:
        verified: the license.
        now: the time, aware.
        trust_domain: the one in which it is used; None where that is not known.
        usage: what is in use by the names of limits; what is not measured is left out.
        latest_seen: the latest time that was ever seen here; None where none was recorded.
    """
    found = verified.license
    exceeded = tuple(
        Exceeded(name, used, found.limits[name])
        for name, used in sorted((usage or {}).items())
        if name in found.limits and used > found.limits[name]
    )
    states = {state_at(found, now)}
    if exceeded:
        states.add(LicenseState.OVER_LIMIT)
    if latest_seen is not None and now < latest_seen - CLOCK_TOLERANCE:
        states.add(LicenseState.CLOCK_SUSPECT)
    if trust_domain is not None and found.trust_domains and trust_domain not in found.trust_domains:
        states.add(LicenseState.WRONG_TRUST_DOMAIN)
    return Assessment(
        max(states, key=lambda state: state.rank),
        verified=verified,
        exceeded=exceeded,
        warning=_warning(found, now),
        next_change=_next_change(found, now),
    )


def refused(error: EnvelopeError) -> Assessment:
    """Return the assessment of a license that was refused."""
    return Assessment(LicenseState.INVALID, error.detail_reason)


def best(assessments: Iterable[Assessment]) -> Assessment:
    """
    Choose the assessment that counts, :data:`MISSING` where there is none.

    Of licenses in the same state the one that ends last counts, then the one that was issued last.
    """
    return min(assessments, key=_order, default=MISSING)


def state_at(found: License, now: datetime) -> LicenseState:
    """Return the state by time alone; each state begins with its first instant."""
    if now < found.not_before:
        return LicenseState.NOT_YET_VALID
    if now >= found.grace_until:
        return LicenseState.EXPIRED
    if now >= found.not_after:
        return LicenseState.GRACE
    warned_from = found.warned_from
    return LicenseState.VALID if warned_from is None or now < warned_from else LicenseState.EXPIRING_SOON


def _warning(found: License, now: datetime) -> int | None:
    if not found.not_before <= now < found.not_after:
        return None
    return min((days for days in found.warn_days if now >= found.not_after - timedelta(days=days)), default=None)


def _next_change(found: License, now: datetime) -> Change | None:
    instants = (found.not_before, found.warned_from, found.not_after, found.grace_until)
    at = min((each for each in instants if each is not None and each > now), default=None)
    return None if at is None else Change(at, state_at(found, at))


def _order(assessment: Assessment) -> tuple[object, ...]:
    if assessment.verified is None:
        return assessment.state.rank, 0.0, 0.0, assessment.reason
    found = assessment.verified.license
    return assessment.state.rank, -found.not_after.timestamp(), -found.issued.timestamp(), found.id
