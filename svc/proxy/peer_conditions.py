"""
What the verified statement of a peer must say beside its identity, where a central issuer confirms the facts in it.

Owns which claims of a statement become attributes; how attributes are compared is in :mod:`svc.policy.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from svc import naming
from svc.identity import SpiffeID
from svc.notary.statement import StatementEvidence
from svc.policy.attributes import AttributeMalformed, Attributes, SecurityLevel, parse_compartment
from svc.policy.engine import Denied
from svc.policy.rules import ConnectionFacts, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeerConditions:
    """
    The conditions of one outbound listener.

    Attributes:
        listener: its name.
        issuers: the central issuers whose statements are accepted; none means the manager of the peer's trust domain.
        sources: of which the facts of a statement must match one; none demands nothing beside the issuer.
        own: returns the attributes of this workload, as the policies have them.
    """

    listener: str
    issuers: tuple[SpiffeID, ...]
    sources: tuple[Source, ...]
    own: Callable[[], Attributes]

    def refusal(self, statement: StatementEvidence) -> Denied | None:
        """The refusal of a verified statement that satisfies no condition."""
        facts = ConnectionFacts(self.listener, 0, statement.subject, attested_attributes(statement), self.own())
        if not self.sources or any(each.matches(facts, unknown=False) for each in self.sources):
            return None
        return Denied(identity=statement.subject, policy=self.listener, rule="peerStatement.conditions")


def attested_attributes(statement: StatementEvidence) -> Attributes:
    """What a statement says of its workload; what is absent or no attribute is not known."""
    facts = statement.claims.get("svc")
    facts = facts if isinstance(facts, Mapping) else {}
    annotations = facts.get("annotations")
    annotations = annotations if isinstance(annotations, Mapping) else {}
    return Attributes(
        _text(facts.get("namespace")),
        _text(facts.get("serviceAccount")),
        _read(SecurityLevel.parse, annotations.get(naming.ANNOTATION_LEVEL)),
        _read(parse_compartment, annotations.get(naming.ANNOTATION_COMPARTMENT)),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read(parse: Callable[[str], T], value: object) -> T | None:
    try:
        return parse(value) if isinstance(value, str) else None
    except AttributeMalformed:
        return None
