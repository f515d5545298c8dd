"""The file that says what a license is to contain: YAML with every key that a person decides."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator

from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.license.payload import Enforcement, License, parse_instant
from svc.settings import Items, Settings

Instant = Annotated[datetime, BeforeValidator(parse_instant)]


def _trust_domain(value: object) -> str:
    try:
        return str(TrustDomain.parse(str(value)))
    except SvcError as error:
        raise ValueError("a trust domain such as prod.example.org") from error


class Description(Settings):
    """The keys of the file; those without a default are required."""

    licensee: str
    customer: str
    edition: str
    expires: Instant
    notBefore: Instant | None = None
    features: Items[str] = ()
    limits: dict[str, int] = {}
    graceDays: int = 30
    warnDays: Items[int] = (60, 30, 14, 7, 1)
    maintenanceUntil: Instant | None = None
    trustDomains: Items[Annotated[str, BeforeValidator(_trust_domain)]] = ()
    enforcement: Literal["soft", "hard"] = "soft"

    def license(self, issuer: str, id: str, now: datetime) -> License:  # noqa: A002 - the attribute's name
        """
        Make the license.

        Args:
            issuer: the vendor.
            id: 22 characters that no other license has.
            now: the time, from which on it is valid where the file does not say.

        Raises:
            EnvelopeError: for what no program would accept, such as more features than a license may have.
        """
        begin = now.replace(microsecond=0)
        made = License(
            id=id,
            issuer=issuer,
            customer=self.customer,
            issued=begin,
            not_before=self.notBefore or begin,
            not_after=self.expires,
            licensee=self.licensee,
            edition=self.edition,
            features=self.features,
            limits=self.limits,
            grace_days=self.graceDays,
            warn_days=self.warnDays,
            maintenance_until=self.maintenanceUntil,
            trust_domains=tuple(map(TrustDomain.parse, self.trustDomains)),
            enforcement=Enforcement(self.enforcement),
        )
        return License.from_payload(made.to_payload())
