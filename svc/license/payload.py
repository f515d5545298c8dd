"""
What a license says: the claims of its payload as values, and their bounds.

Owns reading and writing of the payload, version 1. All instants are exact, in UTC; none is the end of a day somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

from svc.envelope.claims import Claims, seconds, utc_seconds
from svc.envelope.errors import Malformed
from svc.identity import TrustDomain
from svc.license.errors import LicenseRefused
from svc.strictjson import dumps

VERSION: Final = 1
#: The product in ``aud``.
AUDIENCE: Final = "svc"
#: Characters of a name; a Kubernetes status holds them all.
MAX_TEXT: Final = 256
MAX_FEATURES: Final = 64
MAX_LIMITS: Final = 32
MAX_TRUST_DOMAINS: Final = 64
MAX_WARNINGS: Final = 16
#: Ten years, for days of grace and of warnings.
MAX_DAYS: Final = 3660
#: How times are written that are not NumericDates.
INSTANT: Final = "a time such as 2027-12-31T23:59:59Z"

_Item = TypeVar("_Item")


class Enforcement(Enum):
    """What follows when a license has ended, is missing, or a limit is exceeded; traffic never stops."""

    #: Warnings alone.
    SOFT = "soft"
    #: New policies are refused too.
    HARD = "hard"


@dataclass(frozen=True)
class License:
    """
    The content of a license; whether it is signed is :class:`svc.license.verification.VerifiedLicense`.

    Attributes:
        id: ``jti``, 22 characters.
        issuer: the vendor.
        customer: the vendor's identifier of the customer.
        not_before: the first instant at which it is valid.
        not_after: the first instant at which it is not valid any more.
        limits: numbers by name (``clusters``, ``workloads``, ``federatedPeers``); what is not named is unlimited.
        grace_days: how long after ``not_after`` it still counts.
        warn_days: how many days before ``not_after`` there are warnings, the largest first; none for no warnings.
        maintenance_until: until when new versions are included, None where the license does not say.
        trust_domains: for which it is; none for any.
    """

    id: str
    issuer: str
    customer: str
    issued: datetime
    not_before: datetime
    not_after: datetime
    licensee: str
    edition: str
    features: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    grace_days: int = 0
    warn_days: tuple[int, ...] = ()
    maintenance_until: datetime | None = None
    trust_domains: tuple[TrustDomain, ...] = ()
    enforcement: Enforcement = Enforcement.SOFT

    @property
    def grace_until(self) -> datetime:
        """The first instant at which it has expired for good."""
        return self.not_after + timedelta(days=self.grace_days)

    @property
    def warned_from(self) -> datetime | None:
        """When the warnings begin, None where there are none."""
        if not self.warn_days:
            return None
        return max(self.not_before, self.not_after - timedelta(days=self.warn_days[0]))

    @classmethod
    def from_payload(cls, payload: bytes) -> License:
        """
        Read a payload whose version and issuer may be unknown; no signature is verified here.

        Raises:
            EnvelopeError: for another version or product.
            Malformed: for JSON that is not strict, and for a claim that is missing, mistyped or beyond its bound.
        """
        claims = Claims.of_version(payload, VERSION)
        audience = claims.text("aud")
        if audience != AUDIENCE:
            raise LicenseRefused("audience_mismatch", audience=audience, expected=AUDIENCE)
        inner = claims.member("svc")
        found = cls(
            id=claims.nonce("jti"),
            issuer=_text(claims, "iss"),
            customer=_text(claims, "sub"),
            issued=claims.time("iat"),
            not_before=claims.time("nbf"),
            not_after=claims.time("exp"),
            licensee=_text(inner, "licensee"),
            edition=_text(inner, "edition"),
            features=_distinct(inner, "features", MAX_FEATURES, _is_text),
            limits=_limits(inner),
            grace_days=_days(inner),
            warn_days=tuple(sorted(_distinct(inner, "warnDays", MAX_WARNINGS, _is_days), reverse=True)),
            maintenance_until=_instant(inner, "maintenanceUntil"),
            trust_domains=_trust_domains(inner),
            enforcement=_enforcement(inner),
        )
        _check_instants(found)
        return found

    def to_payload(self) -> bytes:
        """Write the payload; :meth:`from_payload` reads it back to an equal license."""
        inner: dict[str, object] = {
            "licensee": self.licensee,
            "edition": self.edition,
            "features": list(self.features),
            "limits": dict(self.limits),
            "graceDays": self.grace_days,
            "warnDays": list(self.warn_days),
            "trustDomains": [str(each) for each in self.trust_domains],
            "enforcement": self.enforcement.value,
        }
        if self.maintenance_until is not None:
            inner["maintenanceUntil"] = utc_seconds(self.maintenance_until)
        return dumps(
            {
                "v": VERSION,
                "jti": self.id,
                "iss": self.issuer,
                "sub": self.customer,
                "aud": AUDIENCE,
                "iat": seconds(self.issued),
                "nbf": seconds(self.not_before),
                "exp": seconds(self.not_after),
                "svc": inner,
            }
        )


def parse_instant(value: object) -> datetime:
    """
    Read a time in the one spelling :data:`INSTANT`.

    Raises:
        ValueError: for any other value; its text says what was expected.
    """
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ValueError(INSTANT) from error
    if found.tzinfo is None or utc_seconds(found) != value:
        raise ValueError(INSTANT)
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_TEXT


def _is_days(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_DAYS


def _text(claims: Claims, name: str) -> str:
    value = claims.text(name)
    if not _is_text(value):
        raise claims.mistyped(name, f"a text of 1 to {MAX_TEXT} characters")
    return value


def _distinct(claims: Claims, name: str, most: int, accepted: Callable[[object], bool]) -> tuple[_Item, ...]:
    items: list[_Item] = claims.array(name)  # type: ignore[assignment]
    if len(items) > most or not all(map(accepted, items)) or len(set(items)) != len(items):
        limit = f"texts of 1 to {MAX_TEXT} characters" if accepted is _is_text else f"numbers of 0 to {MAX_DAYS}"
        raise claims.mistyped(name, f"at most {most} different {limit}")
    return tuple(items)


def _limits(claims: Claims) -> Mapping[str, int]:
    inner = claims.member("limits")
    if len(inner.members) > MAX_LIMITS or not all(map(_is_text, inner.members)):
        raise claims.mistyped("limits", f"at most {MAX_LIMITS} numbers")
    return {name: inner.integer(name) for name in inner.members}


def _days(claims: Claims) -> int:
    value = claims.integer("graceDays")
    if not _is_days(value):
        raise claims.mistyped("graceDays", f"0 to {MAX_DAYS} days")
    return value


def _instant(claims: Claims, name: str) -> datetime | None:
    text = claims.text_or_null(name)
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise claims.mistyped(name, INSTANT) from error


def _trust_domains(claims: Claims) -> tuple[TrustDomain, ...]:
    names: Sequence[str] = _distinct(claims, "trustDomains", MAX_TRUST_DOMAINS, _is_text)
    return tuple(Claims({"trustDomains": each}, claims.where).trust_domain("trustDomains") for each in names)


def _enforcement(claims: Claims) -> Enforcement:
    try:
        return Enforcement(claims.text("enforcement"))
    except ValueError as error:
        raise claims.mistyped("enforcement", "soft or hard") from error


def _check_instants(found: License) -> None:
    if found.not_after <= found.not_before:
        raise Malformed(where="payload.exp", defect="the license ends before it begins")
    try:
        found.grace_until  # noqa: B018 - the calendar ends with the year 9999
    except OverflowError as error:
        raise Malformed(where="payload.svc.graceDays", defect="the days of grace end after the year 9999") from error
