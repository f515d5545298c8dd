"""
The status of the licenses of a cluster: Secrets, time and usage in, the status of ``SvcLicenseStatus`` out.

Pure. The states are those of :mod:`svc.license.states`, evaluated at each call.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from svc import naming
from svc.envelope.errors import EnvelopeError
from svc.identity import TrustDomain
from svc.kube.client import Object
from svc.kube.status import with_condition
from svc.kube.times import from_time, to_time
from svc.license.errors import LicenseRefused
from svc.license.states import MISSING, Assessment, Change, LicenseState, assess, best, refused
from svc.license.vendors import VendorKey
from svc.license.verification import VerifiedLicense, verify_license

#: Licenses that the status lists; of more, those in the best states.
MAX_LISTED: Final = 64


class FoundLicense(NamedTuple):
    """The content of a Secret: a license, or why it was refused."""

    namespace: str
    name: str
    content: VerifiedLicense | EnvelopeError


class Assessed(NamedTuple):
    """A Secret and the state of its license at one instant."""

    found: FoundLicense
    assessment: Assessment


def read_secret(secret: Object, keys: Sequence[VendorKey]) -> FoundLicense:
    """Verify the license in a Secret; whatever is wrong with it is part of what is returned."""
    names = secret["metadata"]["namespace"], secret["metadata"]["name"]
    text = (secret.get("data") or {}).get(naming.LICENSE_SECRET_KEY)
    try:
        if not text:
            raise LicenseRefused("license_not_found")
        return FoundLicense(*names, verify_license(base64.b64decode(text), keys))
    except EnvelopeError as error:
        return FoundLicense(*names, error)


def assess_all(
    licenses: Iterable[FoundLicense],
    now: datetime,
    trust_domain: TrustDomain,
    usage: Mapping[str, int],
    latest_seen: datetime | None,
) -> list[Assessed]:
    """
    Evaluate all licenses, the one that counts first.

    Args:
        usage: what is in use, by the names of limits.
        latest_seen: the latest time that was ever seen, as the status has it.
    """

    def assessment(content: VerifiedLicense | EnvelopeError) -> Assessment:
        if isinstance(content, EnvelopeError):
            return refused(content)
        return assess(content, now, trust_domain=trust_domain, usage=usage, latest_seen=latest_seen)

    assessed = [Assessed(each, assessment(each.content)) for each in licenses]
    first = best(each.assessment for each in assessed)
    return sorted(
        assessed,
        key=lambda each: (each.assessment is not first, each.assessment.state.rank, each.found[:2]),
    )


def counting(assessed: Sequence[Assessed]) -> Assessment:
    """Return the assessment that counts, of what :func:`assess_all` returned."""
    return assessed[0].assessment if assessed else MISSING


def license_status(
    assessed: Sequence[Assessed], now: datetime, usage: Mapping[str, int], former: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Return the status.

    Args:
        assessed: what :func:`assess_all` returned.
        former: the status that the object has; ``observedTime`` and the transitions of conditions go on from it.
    """
    first = counting(assessed)
    seen = from_time(former.get("observedTime"))
    status: dict[str, Any] = {
        "observedTime": to_time(now if seen is None else max(now, seen)),
        "state": first.state.value,
        "conditions": _conditions(first, usage, former.get("conditions") or [], now),
        "licenses": [_listed(each, counts=not at) for at, each in enumerate(assessed[:MAX_LISTED])],
    }
    if first.reason:
        status["reason"] = first.reason
    if first.warning is not None:
        status["warning"] = first.warning
    if first.next_change is not None:
        status["nextChange"] = _change(first.next_change)
    if assessed:
        status["secretRef"] = {"namespace": assessed[0].found.namespace, "name": assessed[0].found.name}
    if usage:
        status["usage"] = dict(usage)
    if first.verified is not None:
        status |= _content(first.verified)
    elif "enforcement" in former:
        # What a license says of the time without one outlives it.
        status["enforcement"] = former["enforcement"]
    return {name: value for name, value in status.items() if value not in ([], {})}


def _content(verified: VerifiedLicense) -> dict[str, Any]:
    found = verified.license
    content: dict[str, Any] = {
        "id": found.id,
        "issuer": found.issuer,
        "customer": found.customer,
        "licensee": found.licensee,
        "edition": found.edition,
        "notBefore": to_time(found.not_before),
        "notAfter": to_time(found.not_after),
        "graceUntil": to_time(found.grace_until),
        "enforcement": found.enforcement.value,
        "features": list(found.features),
        "trustDomains": [str(each) for each in found.trust_domains],
        "limits": dict(found.limits),
        "kids": dict(verified.key.kids),
    }
    if found.maintenance_until is not None:
        content["maintenanceUntil"] = to_time(found.maintenance_until)
    return content


def _listed(each: Assessed, *, counts: bool) -> dict[str, Any]:
    listed: dict[str, Any] = {
        "namespace": each.found.namespace,
        "name": each.found.name,
        "state": each.assessment.state.value,
        "counts": counts,
    }
    if each.assessment.reason:
        listed["reason"] = each.assessment.reason
    if each.assessment.verified is not None:
        found = each.assessment.verified.license
        listed |= {"id": found.id, "licensee": found.licensee, "notAfter": to_time(found.not_after)}
    return listed


def _change(change: Change) -> dict[str, str]:
    return {"time": to_time(change.at), "state": change.state.value}


_SENTENCES: Final = {
    LicenseState.VALID: "the license is valid until {not_after}",
    LicenseState.EXPIRING_SOON: "the license is valid until {not_after}",
    LicenseState.GRACE: "the license has ended at {not_after} and counts until {grace_until}",
    LicenseState.OVER_LIMIT: "more is in use than the license allows",
    LicenseState.NOT_YET_VALID: "the license is valid from {not_before}",
    LicenseState.CLOCK_SUSPECT: "the clock is more than a day behind the latest time that was seen",
    LicenseState.EXPIRED: "the license has ended at {not_after}, and its days of grace at {grace_until}",
    LicenseState.WRONG_TRUST_DOMAIN: "the license is for other trust domains",
    LicenseState.INVALID: "the license was refused: {reason}",
    LicenseState.MISSING: "there is no license",
}


def sentence(assessment: Assessment) -> str:
    """Say the state for people."""
    found = None if assessment.verified is None else assessment.verified.license
    times = ("not_before", "not_after", "grace_until")
    shown = {} if found is None else {name: to_time(getattr(found, name)) for name in times}
    return _SENTENCES[assessment.state].format(reason=assessment.reason, **shown)


def _conditions(first: Assessment, usage: Mapping[str, int], former: list[Object], now: datetime) -> list[Object]:
    state = first.state
    conditions = with_condition(former, "Valid", _truth(state.in_force), state.value, sentence(first), now)
    conditions = with_condition(conditions, "ExpiringSoon", *_expiring(first, now), now)
    return with_condition(conditions, "WithinLimits", *_within_limits(first, usage), now)


_Condition = tuple[Literal["True", "False", "Unknown"], str, str]


def _truth(holds: bool) -> Literal["True", "False"]:
    return "True" if holds else "False"


def _expiring(first: Assessment, now: datetime) -> _Condition:
    """The license ends within its days of warning, or has ended; whether it is exceeded plays no part."""
    if first.verified is None:
        return "Unknown", "NoLicense", "there is no license whose end could be near"
    found = first.verified.license
    if now >= found.not_after:
        return "True", "Ended", f"it has ended at {to_time(found.not_after)}"
    warned_from = found.warned_from
    if warned_from is None or now < warned_from:
        return "False", "NotExpiring", f"it ends at {to_time(found.not_after)}"
    return "True", "EndIsNear", f"it ends at {to_time(found.not_after)}"


def _within_limits(first: Assessment, usage: Mapping[str, int]) -> _Condition:
    if first.verified is None:
        return "Unknown", "NoLicense", "there is no license that could have limits"
    if first.exceeded:
        shown = ", ".join(f"{each.name}: {each.used} in use, {each.limit} allowed" for each in first.exceeded)
        return "False", "OverLimit", shown
    unmeasured = sorted(set(first.verified.license.limits) - set(usage))
    note = f"not measured: {', '.join(unmeasured)}" if unmeasured else "no more is in use than it allows"
    return "True", "WithinLimits", note
