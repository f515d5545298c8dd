"""
Matchers of SPIFFE IDs: one ID, all below a path, or all of a trust domain.

Matching compares parsed identities and respects path boundaries: ``/ns/pay`` never covers ``/ns/payroll``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from svc.errors import SvcError
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain

_WILDCARD: Final = "/*"


class MatcherMalformed(SvcError):
    """'{text}' does not name identities: {defect}"""

    reason = "matcher_malformed"
    hint = (
        "write spiffe://td/path for one identity, spiffe://td/path/* for all below it, spiffe://td/* for a trust domain"
    )
    text: object
    defect: str


class Matcher(Protocol):
    """A set of SPIFFE IDs."""

    def matches(self, spiffe_id: SpiffeID) -> bool:
        """Whether a verified identity belongs to the set."""


@dataclass(frozen=True, slots=True)
class ExactID:
    """One identity."""

    spiffe_id: SpiffeID

    def matches(self, spiffe_id: SpiffeID) -> bool:
        return spiffe_id == self.spiffe_id

    def __str__(self) -> str:
        return str(self.spiffe_id)


@dataclass(frozen=True, slots=True)
class PathPrefix:
    """All identities strictly below a path of one trust domain; the path itself is not among them."""

    prefix: SpiffeID

    def __post_init__(self) -> None:
        if not self.prefix.path:
            raise MatcherMalformed(text=self.prefix, defect="a prefix needs a path")

    def matches(self, spiffe_id: SpiffeID) -> bool:
        return spiffe_id.trust_domain == self.prefix.trust_domain and spiffe_id.path.startswith(self.prefix.path + "/")

    def __str__(self) -> str:
        return f"{self.prefix}{_WILDCARD}"


@dataclass(frozen=True, slots=True)
class MemberOf:
    """All workload identities of a trust domain: those with a path."""

    trust_domain: TrustDomain

    def matches(self, spiffe_id: SpiffeID) -> bool:
        return spiffe_id.trust_domain == self.trust_domain and spiffe_id.path != ""

    def __str__(self) -> str:
        return f"{self.trust_domain.id}{_WILDCARD}"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The union of several matchers; without any it covers no identity."""

    matchers: tuple[Matcher, ...]

    def matches(self, spiffe_id: SpiffeID) -> bool:
        return any(matcher.matches(spiffe_id) for matcher in self.matchers)

    def __str__(self) -> str:
        return ", ".join(str(matcher) for matcher in self.matchers) or "nobody"


def parse_matcher(text: str) -> ExactID | PathPrefix | MemberOf:
    """
    Read the text form of a matcher: ``spiffe://td/path``, ``spiffe://td/path/*`` or ``spiffe://td/*``.

    Raises:
        MatcherMalformed: with ``defect`` naming what was found; an identity without a path is refused, since no
            workload has one (X.509-SVID 3.1).
    """
    if not isinstance(text, str):
        raise MatcherMalformed(text=type(text).__name__, defect="not text")
    wildcard = text.endswith(_WILDCARD)
    try:
        spiffe_id = SpiffeID.parse(text.removesuffix(_WILDCARD))
    except SpiffeIdMalformed as error:
        raise MatcherMalformed(text=text, defect=error.defect) from error
    if wildcard:
        return PathPrefix(spiffe_id) if spiffe_id.path else MemberOf(spiffe_id.trust_domain)
    if not spiffe_id.path:
        raise MatcherMalformed(text=text, defect="an identity without a path belongs to no workload")
    return ExactID(spiffe_id)
