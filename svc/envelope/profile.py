"""
The verification profile: which of the two chains must be valid, and with which algorithms.

The local operator chooses it; it is never read from a message.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from svc.envelope.errors import EnvelopeError
from svc.errors import SvcError

#: JOSE names of the classical signatures (RFC 7518, RFC 9864), one of which may sign as chain A.
CLASSICAL_ALGORITHMS: Final = frozenset({"ES256", "ES384", "Ed25519", "PS256"})
#: JOSE names of the post-quantum signatures (RFC 9964), one of which may sign as chain B.
POST_QUANTUM_ALGORITHMS: Final = frozenset({"ML-DSA-44", "ML-DSA-65", "ML-DSA-87"})
#: What a chain B leaf may sign with: category 3 and above.
CHAIN_B_ALGORITHMS: Final = frozenset({"ML-DSA-65", "ML-DSA-87"})


class ProfileUnknown(SvcError):
    """there is no verification profile {text}"""

    reason = "profile_unknown"
    hint = "use one of hybrid, pq, classical, cnsa2"


class Profile(Enum):
    """What a verifier demands; chosen locally."""

    #: Both chains verify (the default).
    HYBRID = "hybrid"
    #: Chain B verifies; chain A, where present, must be the one it is bound to.
    PQ = "pq"
    #: Chain A verifies, chain B is ignored; for a migration only.
    CLASSICAL = "classical"
    #: Hybrid with ES384 and ML-DSA-87 alone.
    CNSA2 = "cnsa2"

    @classmethod
    def parse(cls, text: str) -> Profile:
        """
        Read the name of a profile, as it is written in options and settings.

        Raises:
            ProfileUnknown: for any other text.
        """
        try:
            return cls(text)
        except ValueError as error:
            raise ProfileUnknown(text=text) from error

    def check_algorithms(self, classical: str | None, post_quantum: str | None) -> None:
        """
        Check that the algorithms of the signatures, None where there is no signature, are those that this profile
        needs.

        Raises:
            EnvelopeError: where a signature that is needed is missing, or one that counts is too weak for the profile.
        """
        if self.needs_classical and classical is None:
            raise EnvelopeError("hybrid_incomplete", profile=self.value, missing="a classical signature")
        if self.needs_post_quantum and post_quantum is None:
            raise EnvelopeError("hybrid_incomplete", profile=self.value, missing="an ML-DSA signature")
        if self is Profile.CNSA2:
            for alg, demanded in ((classical, "ES384"), (post_quantum, "ML-DSA-87")):
                if alg != demanded:
                    raise EnvelopeError("alg_not_allowed", alg=alg, detail=f"the profile cnsa2 demands {demanded}")
        if self.needs_post_quantum and classical is not None and post_quantum is not None:
            check_chain_b_algorithm(post_quantum)

    @property
    def needs_classical(self) -> bool:
        """Whether the classical signature and chain A must verify."""
        return self is not Profile.PQ

    @property
    def needs_post_quantum(self) -> bool:
        """Whether the ML-DSA signature and its chain must verify."""
        return self is not Profile.CLASSICAL

    @property
    def warning(self) -> str:
        """A line for the person who runs this profile, or an empty string."""
        if self is Profile.CLASSICAL:
            return "the profile classical ignores post-quantum signatures: evidence is not quantum-safe"
        return ""


def check_chain_b_algorithm(alg: str) -> None:
    """Refuse ML-DSA-44 for a post-quantum leaf beside an SVID; only an SVID may have it."""
    if alg not in CHAIN_B_ALGORITHMS:
        raise EnvelopeError("alg_not_allowed", alg=alg, detail="a post-quantum leaf is ML-DSA-65 or ML-DSA-87")
