"""
A credential set: SVID, post-quantum leaf and statement that belong together and are replaced together.

Owns which keys sign under a profile and when the connections of a credential set have to end. Does not depend on
connections or of where SVIDs come from; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import SpiffeID, X509Svid, binding_of, key_algorithm, spki_sha256
from svc.notary.errors import NotaryRefused
from svc.notary.exchange import Peer
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import Statement, issue_statement
from svc.strictjson import b64u_encode

#: The algorithms of the profile cnsa2.
_CNSA2: Final = ("ES384", "ML-DSA-87")
#: From this share of the lifetime on, responses carry ``Connection: close``.
_RENEW_SHARE: Final = 0.8
#: No exchange is aborted before this share of the lifetime.
_CLOSE_SHARE: Final = 0.9
#: How long before the end running exchanges are aborted.
_CLOSE_BEFORE: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class CredentialSet:
    """
    The credentials that a connection was accepted with and keeps.

    Attributes:
        svid: the X.509-SVID that TLS presents.
        pq_leaf: the post-quantum leaf, None where the profile needs none.
        facts: the facts in the statement.
        profile: the local profile.
        statement: the statement, signed once.
        signers: the keys that sign statement and receipts.
        server: the identity that receipts name.
        central: the statement, where a central issuer has issued it; its end is that of the credentials.
    """

    svid: X509Svid
    pq_leaf: PqLeaf | None
    facts: WorkloadFacts
    profile: Profile
    statement: Statement
    signers: tuple[Signer, ...]
    server: Peer
    central: Statement | None = None

    @classmethod
    def issue(
        cls,
        svid: X509Svid,
        pq_leaf: PqLeaf | None,
        facts: WorkloadFacts,
        profile: Profile,
        now: datetime,
        random: Callable[[int], bytes],
        central: Statement | None = None,
    ) -> CredentialSet:
        """
        Make a credential set, and sign its statement where no central issuer has.

        Args:
            svid: the SVID.
            pq_leaf: the post-quantum leaf that is bound to it.
            facts: the facts in the statement.
            profile: the local profile.
            now: the time of issue, aware.
            random: returns that many secure random octets.
            central: the statement of a central issuer about this SVID; None where the workload issues its own.

        Raises:
            EnvelopeError: where the keys cannot satisfy the profile.
        """
        signers = signing_keys(svid, pq_leaf, profile)
        statement = central or issue_statement(svid, facts, signers, now, random)
        server = Peer(spiffe_id=svid.spiffe_id, thumbprint=signers[0].thumbprint)
        return cls(svid, pq_leaf, facts, profile, statement, signers, server, central)

    @property
    def spiffe_id(self) -> SpiffeID:
        """The workload's identity."""
        return self.svid.spiffe_id

    @cached_property
    def signature_octets(self) -> int:
        """Octets of its signatures in an envelope, with headers and chains: all but the payload."""
        envelope = self.statement.envelope
        return len(envelope.serialize()) - len(b64u_encode(envelope.payload))

    @cached_property
    def certificate_octets(self) -> int:
        """Octets of the certificates among them."""
        return sum(len(text) for entry in self.statement.envelope.signatures for text in entry.x5c)

    @cached_property
    def expires(self) -> datetime:
        """The earliest end of the signing leaves and the certificates that TLS presents."""
        return min(self.statement.expires, self.svid.chain_not_after)

    @cached_property
    def renew_connections_at(self) -> datetime:
        """From when on responses carry ``Connection: close``: at 80 % of the lifetime."""
        return self.statement.issued + (self.expires - self.statement.issued) * _RENEW_SHARE

    @cached_property
    def close_at(self) -> datetime:
        """
        When idle connections close and running exchanges are aborted.

        That is 60 s before the end; of a short lifetime 90 %, so that responses of busy connections carry ``Connection:
        close`` before.
        """
        lifetime = self.expires - self.statement.issued
        return max(self.expires - _CLOSE_BEFORE, self.statement.issued + lifetime * _CLOSE_SHARE)

    @property
    def issuer(self) -> str:
        """Who issued the statement."""
        return str(self.statement.claims["iss"])

    def is_built_from(
        self,
        svid: X509Svid,
        pq_leaf: PqLeaf | None,
        facts: WorkloadFacts,
        profile: Profile,
        central: Statement | None = None,
    ) -> bool:
        """Return whether these inputs would give the same credential set, so that no new statement is needed."""
        return (
            self.svid.leaf == svid.leaf
            and _leaf_of(self.pq_leaf) == _leaf_of(pq_leaf)
            and self.facts == facts
            and self.profile is profile
            and self.central is central
        )

    def valid_at(self, now: datetime) -> bool:
        """Return whether new connections may still be accepted with these credentials."""
        return now < self.close_at


def _leaf_of(pq_leaf: PqLeaf | None) -> object:
    return None if pq_leaf is None else pq_leaf.chain[0]


def signing_keys(svid: X509Svid, pq_leaf: PqLeaf | None, profile: Profile) -> tuple[Signer, ...]:
    """
    Return the keys that sign under a profile.

    Raises:
        NotaryRefused: ``notary_unavailable``, where SVID and leaf cannot satisfy it.
    """
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
        raise NotaryRefused("notary_unavailable", spiffe_id=svid.spiffe_id, profile=profile.value, lacking=lacking)
    return signers
