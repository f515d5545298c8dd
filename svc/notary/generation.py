"""
A generation: SVID, post-quantum leaf and statement that belong together and are swapped together.

Owns which keys sign under a profile and when connections of a generation have to end. Knows nothing of connections,
of the clock, or of where SVIDs come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from svc.identity import SpiffeID, X509Svid, binding_of, key_algorithm, spki_sha256
from svc.notary.errors import NotaryError
from svc.notary.exchange import Peer
from svc.notary.facts import WorkloadFacts
from svc.notary.keys import Signer
from svc.notary.pqproof import PqLeaf
from svc.notary.profile import Profile
from svc.notary.statement import Statement, issue_statement

#: From this share of its life on, responses ask clients to connect anew.
_RENEW_SHARE: Final = 0.8
#: Before this share of its life, no exchange is cut.
_CUT_SHARE: Final = 0.9
#: So long before its end, running exchanges are cut.
_CUT_BEFORE: Final = timedelta(seconds=60)


class GenerationIncomplete(NotaryError):
    """the credentials of {spiffe_id} cannot serve the profile {profile}: {lacking}"""

    reason = "notary_unavailable"
    http_status = 503
    hint = "give the proxy a post-quantum issuer (notary.pqIssuer), or choose the profile classical"


@dataclass(frozen=True)
class Generation:
    """
    One generation of credentials; a connection keeps the one it was accepted with.

    Attributes:
        svid: the X.509-SVID that TLS presents.
        pq_leaf: the post-quantum leaf, None where the profile needs none.
        facts: the facts that the statement tells.
        profile: the local profile.
        statement: the statement, signed once.
        signers: the keys that sign statement and receipts.
        server: the identity that receipts name.
    """

    svid: X509Svid
    pq_leaf: PqLeaf | None
    facts: WorkloadFacts
    profile: Profile
    statement: Statement
    signers: tuple[Signer, ...]
    server: Peer

    @classmethod
    def issue(
        cls,
        svid: X509Svid,
        pq_leaf: PqLeaf | None,
        facts: WorkloadFacts,
        profile: Profile,
        now: datetime,
        random: Callable[[int], bytes],
    ) -> Generation:
        """
        Make a generation; its statement is signed here and never again.

        Args:
            svid: the SVID.
            pq_leaf: the post-quantum leaf that is bound to it.
            facts: what the statement tells.
            profile: the local profile.
            now: the time of issue.
            random: gives that many secure random octets.

        Returns:
            The generation.

        Raises:
            GenerationIncomplete: where the keys cannot satisfy the profile.
        """
        signers = _signers(svid, pq_leaf, profile)
        statement = issue_statement(svid, facts, signers, now, random)
        server = Peer(spiffe_id=svid.spiffe_id, thumbprint=signers[0].thumbprint)
        return cls(svid, pq_leaf, facts, profile, statement, signers, server)

    @property
    def spiffe_id(self) -> SpiffeID:
        """The workload's identity."""
        return self.svid.spiffe_id

    @cached_property
    def expires(self) -> datetime:
        """When the first of SVID and signing leaves ends."""
        return self.statement.expires

    @cached_property
    def renew_connections_at(self) -> datetime:
        """From when on responses carry ``Connection: close``: at 80 % of the life."""
        return self.statement.issued + (self.expires - self.statement.issued) * _RENEW_SHARE

    @cached_property
    def cut_at(self) -> datetime:
        """
        When idle connections close and running exchanges are cut.

        That is 60 s before the end. Of a short life it is 90 %, so that busy connections were asked to renew before.
        """
        life = self.expires - self.statement.issued
        return max(self.expires - _CUT_BEFORE, self.statement.issued + life * _CUT_SHARE)

    def serves(self, svid: X509Svid, pq_leaf: PqLeaf | None, facts: WorkloadFacts, profile: Profile) -> bool:
        """
        Say whether this generation still follows from the inputs, so that no new statement is to be signed.

        Args:
            svid: the current SVID.
            pq_leaf: the current post-quantum leaf.
            facts: the current facts.
            profile: the current profile.

        Returns:
            True where nothing changed.
        """
        return (
            self.svid.leaf == svid.leaf
            and _leaf_of(self.pq_leaf) == _leaf_of(pq_leaf)
            and self.facts == facts
            and self.profile is profile
        )

    def valid_at(self, now: datetime) -> bool:
        """
        Say whether new connections may still be accepted with this generation.

        Args:
            now: the time.

        Returns:
            True before the time of cutting.
        """
        return now < self.cut_at


def _leaf_of(pq_leaf: PqLeaf | None) -> object:
    return None if pq_leaf is None else pq_leaf.chain[0]


def _signers(svid: X509Svid, pq_leaf: PqLeaf | None, profile: Profile) -> tuple[Signer, ...]:
    own = Signer.from_svid(svid)
    signers: tuple[Signer, ...] = (own,)
    lacking = ""
    if key_algorithm(svid.leaf.public_key()).post_quantum:
        if profile is not Profile.PQ:
            lacking = "a post-quantum SVID signs alone, which only the profile pq accepts"
    elif profile is not Profile.CLASSICAL:
        if pq_leaf is None:
            lacking = "there is no post-quantum leaf"
        elif binding_of(pq_leaf.chain[0]) != spki_sha256(svid.leaf):
            lacking = "the post-quantum leaf belongs to another SVID"
        else:
            signers = (own, pq_leaf.signer())
            algorithms = tuple(signer.alg for signer in signers)
            if profile is Profile.CNSA2 and algorithms != _CNSA2:
                lacking = f"it needs {' and '.join(_CNSA2)}, and the keys are {' and '.join(algorithms)}"
    if lacking:
        raise GenerationIncomplete(spiffe_id=svid.spiffe_id, profile=profile.value, lacking=lacking)
    return signers


_CNSA2: Final = ("ES384", "ML-DSA-87")
