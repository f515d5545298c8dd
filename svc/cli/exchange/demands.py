"""
What the user demands of an exchange before its answer is shown.

Owns the values alone; :mod:`svc.cli.exchange.judgement` decides by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from svc.identity.spiffeid import SpiffeID
from svc.notary.level import Level
from svc.notary.profile import Profile


@dataclass(frozen=True, slots=True)
class Demands:
    """
    The local choices of a verification; none of them ever comes from a message.

    Args:
        level: the notarization level asked for.
        validate: whether a verified statement is required.
        profile: which signatures must hold.
        expected: the identities that may answer; none means any of the own trust domain.
        issuers: the central issuers; with one given, no workload speaks for itself.
        faults: the faults to inject.
    """

    level: Level = Level.WORKLOAD
    validate: bool = True
    profile: Profile = Profile.HYBRID
    expected: tuple[SpiffeID, ...] = ()
    issuers: tuple[SpiffeID, ...] = ()
    faults: frozenset[str] = field(default_factory=frozenset)

    @property
    def wants_receipt(self) -> bool:
        """Whether a receipt is fetched and judged."""
        return self.validate and self.level is Level.SIGN_REQUEST
