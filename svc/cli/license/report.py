"""
A license as people and programs read it: a report, and the document of ``-o json`` and ``-o yaml``.

Pure: licenses and the time in, lines and values out. Every text of a license is escaped in a report; nothing of one
that was refused is shown without the mark UNVERIFIED.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from svc.envelope.claims import utc_seconds
from svc.errors import printable
from svc.license.payload import Enforcement, License
from svc.license.states import Assessment
from svc.license.verification import UnverifiedLicense, VerifiedLicense
from svc.reports.report import ABSENT, Report, ReportLine

_MAX_VALUE: Final = 2048
#: Characters of claims that are no license.
_MAX_CLAIMS: Final = 4096
_DAY: Final = timedelta(days=1)
_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"))
_ENFORCEMENT: Final[Mapping[Enforcement, str]] = {
    Enforcement.SOFT: "soft: warnings alone",
    Enforcement.HARD: "hard: new policies are refused while it has expired, is missing or exceeded",
}


def license_report(verified: VerifiedLicense, assessment: Assessment, now: datetime) -> Report:
    """Describe a verified license in a state."""
    found, key = verified.license, verified.key
    change = assessment.next_change
    following = f"{change.state.value} {distance(change.at, now)}" if change is not None else ""
    return Report(
        f"License {found.id}",
        (
            ReportLine("State", assessment.state.value, mark=f"next: {following}" if following else ""),
            *_content(found, now),
            ReportLine("Signatures", ", ".join(f"{alg} valid" for alg in key.kids)),
            ReportLine("Key", printable(key.issuer, _MAX_VALUE), mark="test vendor" if key.test else ""),
            *(ReportLine(alg, kid, depth=1) for alg, kid in key.kids.items()),
        ),
    )


def unverified_report(unverified: UnverifiedLicense, assessment: Assessment, now: datetime) -> Report:
    """Describe what could be read of a license that was refused."""
    found, text = unverified.license, unverified.text
    lines = [ReportLine("State", assessment.state.value, mark=printable(assessment.reason))]
    if found is not None:
        lines += _content(found, now)
    elif unverified.claims is not None:
        lines.append(ReportLine("Claims", printable(json.dumps(unverified.claims), _MAX_CLAIMS)))
    elif text is not None:
        lines += [
            ReportLine(printable(name, 80), printable(value, _MAX_VALUE), mark="header") for name, value in text.headers
        ]
    lines += [
        ReportLine("Signature", printable(alg, 80), mark=f"not verified, kid {kid or 'missing'}")
        for alg, kid in unverified.algorithms.items()
    ]
    return Report(f"UNVERIFIED License {ABSENT if found is None else found.id}", tuple(lines))


def license_document(verified: VerifiedLicense, assessment: Assessment, now: datetime) -> dict[str, object]:
    """Return the document of a verified license."""
    key, change = verified.key, assessment.next_change
    return {
        "verified": True,
        "state": assessment.state.value,
        "reason": None,
        "license": _members(verified.license, now),
        "nextChange": None if change is None else {"at": utc_seconds(change.at), "state": change.state.value},
        "signatures": [{"alg": alg, "kid": kid, "valid": True} for alg, kid in key.kids.items()],
        "key": {"issuer": key.issuer, "test": key.test},
        "digest": verified.digest,
    }


def unverified_document(unverified: UnverifiedLicense, assessment: Assessment, now: datetime) -> dict[str, object]:
    """Return the document of a license that was refused; nothing in it is proved."""
    found, text = unverified.license, unverified.text
    claims = None if unverified.claims is None else dict(unverified.claims)
    return {
        "verified": False,
        "state": assessment.state.value,
        "reason": assessment.reason,
        "license": None if found is None else _members(found, now),
        "nextChange": None,
        "signatures": [{"alg": alg, "kid": kid or None, "valid": None} for alg, kid in unverified.algorithms.items()],
        "key": None,
        "digest": None,
        "headers": None if text is None else dict(text.headers),
        "claims": None if found is not None else claims,
    }


def _content(found: License, now: datetime) -> Iterator[ReportLine]:
    yield ReportLine("Licensee", shown(found.licensee))
    yield ReportLine("Customer", shown(found.customer))
    yield ReportLine("Edition", shown(found.edition))
    yield ReportLine("Features", shown(", ".join(found.features)))
    limits = (f"{name} {limit}" for name, limit in sorted(found.limits.items()))
    yield ReportLine("Limits", shown(", ".join(limits) or "none"))
    yield ReportLine("Trust Domains", shown(", ".join(map(str, found.trust_domains)) or "any"))
    yield ReportLine("Enforcement", _ENFORCEMENT[found.enforcement])
    yield ReportLine("Issued", f"{utc_seconds(found.issued)} by {shown(found.issuer)}")
    yield instant("Valid From", found.not_before, now)
    if found.warned_from is not None:
        yield instant("Warnings From", found.warned_from, now)
    yield instant("Valid Until", found.not_after, now)
    yield instant("Grace Until", found.grace_until, now)
    if found.maintenance_until is not None:
        yield instant("Maintenance Until", found.maintenance_until, now)


def _members(found: License, now: datetime) -> dict[str, object]:
    warned, maintained = found.warned_from, found.maintenance_until
    return {
        "id": found.id,
        "issuer": found.issuer,
        "customer": found.customer,
        "licensee": found.licensee,
        "edition": found.edition,
        "features": list(found.features),
        "limits": dict(found.limits),
        "trustDomains": [str(each) for each in found.trust_domains],
        "enforcement": found.enforcement.value,
        "issuedAt": utc_seconds(found.issued),
        "notBefore": utc_seconds(found.not_before),
        "warningsFrom": None if warned is None else utc_seconds(warned),
        "notAfter": utc_seconds(found.not_after),
        "daysRemaining": max(0, (found.not_after - now) // _DAY),
        "graceUntil": utc_seconds(found.grace_until),
        "maintenanceUntil": None if maintained is None else utc_seconds(maintained),
    }


def instant(label: str, moment: datetime, now: datetime) -> ReportLine:
    """Return the line of an instant, with how far away it is."""
    return ReportLine(label, utc_seconds(moment), mark=distance(moment, now))


def distance(moment: datetime, now: datetime) -> str:
    """Return the time between two instants in its largest unit, rounded down: ``in 12 days``, ``1 hour ago``."""
    seconds = int(abs(moment - now).total_seconds())
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "second"))
    if seconds == 0:
        return "now"
    count = seconds // size
    span = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"in {span}" if moment > now else f"{span} ago"


def shown(text: str) -> str:
    """Escape a text of a license; a dash stands for an empty one."""
    return printable(text, _MAX_VALUE) or ABSENT
