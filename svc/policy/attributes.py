"""
Attributes of a workload that rules refer to beside its SPIFFE ID: namespace, service account, security level and
compartment.

They come from templates of SPIFFE IDs and from a table of the administrator, never from what a peer asserts of itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from svc.errors import SvcError
from svc.identity import SpiffeID, SpiffeIdMalformed, TrustDomain
from svc.identity.spiffeid import SCHEME

_COUNTRY: Final = re.compile(r"[A-Z]{2,3}\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,63}\Z")
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z]+)\}\Z")
#: Placeholders of a template.
_FIELDS: Final = ("namespace", "serviceAccount", "country", "sensitivity", "compartment")


class AttributeMalformed(SvcError):
    """'{text}' is not {expected}"""

    reason = "attribute_malformed"
    hint = "correct the value in the policy file or in the section policy"
    text: object
    expected: str


class Sensitivity(IntEnum):
    """Sensitivities in ascending order."""

    U = 1
    C = 2
    S = 3
    TS = 4


@dataclass(frozen=True, slots=True)
class SecurityLevel:
    """A country and a sensitivity: ``DE:S``."""

    country: str
    sensitivity: Sensitivity

    @classmethod
    def parse(cls, text: str) -> SecurityLevel:
        """Read ``COUNTRY:SENSITIVITY`` in either case; raises AttributeMalformed."""
        country, colon, sensitivity = text.upper().partition(":")
        if not colon or not _COUNTRY.match(country) or sensitivity not in Sensitivity.__members__:
            expected = "a security level such as DE:S: a country code, and U, C, S or TS"
            raise AttributeMalformed(text=text, expected=expected)
        return cls(country, Sensitivity[sensitivity])

    def dominates(self, other: SecurityLevel) -> bool:
        """Whether what has this level may access what has the other: same country, at least its sensitivity."""
        return self.country == other.country and self.sensitivity >= other.sensitivity

    def __str__(self) -> str:
        return f"{self.country}:{self.sensitivity.name}"


def parse_compartment(text: str) -> str:
    """Read the name of a compartment; raises AttributeMalformed."""
    if not _NAME.match(text):
        raise AttributeMalformed(text=text, expected="a name of 1 to 63 letters, digits, '.', '_' and '-'")
    return text


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is known of a workload; None for what is not."""

    namespace: str | None = None
    service_account: str | None = None
    level: SecurityLevel | None = None
    compartment: str | None = None


#: Of a workload of which nothing is known.
UNKNOWN: Final = Attributes()


@dataclass(frozen=True)
class IdTemplate:
    """SPIFFE IDs of one trust domain with attributes in their path: ``spiffe://td/ns/{namespace}/sa/{serviceAccount}``."""

    trust_domain: TrustDomain
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> IdTemplate:
        """Read a template; raises AttributeMalformed, for half of a level too."""
        names = re.findall(r"\{([^{}/]*)\}", text)
        if not names or len(set(names)) != len(names) or not set(names) <= set(_FIELDS):
            expected = (
                f"a SPIFFE ID with one or more of the placeholders {', '.join('{' + name + '}' for name in _FIELDS)}"
            )
            raise AttributeMalformed(text=text, expected=expected)
        if ("country" in names) != ("sensitivity" in names):
            raise AttributeMalformed(text=text, expected="a template with both {country} and {sensitivity}, or neither")
        trust_domain, slash, path = text.removeprefix(SCHEME).partition("/")
        try:
            bare = SpiffeID.parse(SCHEME + trust_domain + slash + re.sub(r"(?<![^/])\{[A-Za-z]+\}(?=/|\Z)", "x", path))
        except SpiffeIdMalformed as error:
            expected = "a SPIFFE ID in which each placeholder is one whole segment of the path"
            raise AttributeMalformed(text=text, expected=expected) from error
        if not text.startswith(SCHEME):
            raise AttributeMalformed(text=text, expected=f"a template that starts with {SCHEME}")
        return cls(bare.trust_domain, tuple(path.split("/")))

    def read(self, spiffe_id: SpiffeID) -> Attributes | None:
        """The attributes that an ID holds; None where it does not fit, or where what it holds is no attribute."""
        parts = spiffe_id.path.split("/")[1:]
        if spiffe_id.trust_domain != self.trust_domain or len(parts) != len(self.segments):
            return None
        values: dict[str, str] = {}
        for part, segment in zip(parts, self.segments, strict=True):
            if placeholder := _PLACEHOLDER.match(segment):
                values[placeholder[1]] = part
            elif part != segment:
                return None
        try:
            level = SecurityLevel.parse(f"{values['country']}:{values['sensitivity']}") if "country" in values else None
            compartment = parse_compartment(values["compartment"]) if "compartment" in values else None
        except AttributeMalformed:
            return None
        return Attributes(values.get("namespace"), values.get("serviceAccount"), level, compartment)

    def __str__(self) -> str:
        return "/".join((f"spiffe://{self.trust_domain}", *self.segments))


def default_template(trust_domain: TrustDomain) -> IdTemplate:
    """The template of Kubernetes workloads of a trust domain."""
    return IdTemplate(trust_domain, ("ns", "{namespace}", "sa", "{serviceAccount}"))


@dataclass(frozen=True)
class AttributeSource:
    """
    Where attributes come from.

    Attributes:
        templates: the first that fits an ID gives its attributes.
        given: attributes by SPIFFE ID; each that is not None replaces that of the template.
    """

    templates: tuple[IdTemplate, ...] = ()
    given: Mapping[SpiffeID, Attributes] = field(default_factory=dict)

    @classmethod
    def of(
        cls, trust_domain: TrustDomain, templates: Iterable[IdTemplate] = (), given: Mapping[SpiffeID, Attributes] = {}
    ) -> AttributeSource:
        """The given templates, then the default one of a trust domain."""
        return cls((*templates, default_template(trust_domain)), given)

    def attributes(self, spiffe_id: SpiffeID) -> Attributes:
        """The attributes of a workload."""
        found = next((each for template in self.templates if (each := template.read(spiffe_id))), UNKNOWN)
        given = self.given.get(spiffe_id)
        if given is None:
            return found
        return Attributes(
            found.namespace if given.namespace is None else given.namespace,
            found.service_account if given.service_account is None else given.service_account,
            found.level if given.level is None else given.level,
            found.compartment if given.compartment is None else given.compartment,
        )
