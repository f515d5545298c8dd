"""
The statements that an embedding program issues of itself.

Owns the assembly of a leaf issuer and the generations that follow a source. How generations come and go is in
``svc.proxy.generations``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.errors import SvcError
from svc.identity import X509Svid, parse_matcher
from svc.notary.facts import WorkloadFacts
from svc.notary.generation import Generation
from svc.notary.pqproof import PqLeaf
from svc.notary.profile import Profile
from svc.notary.statement import Statement
from svc.proxy.generations import Generations
from svc.store.interface import INotaryStore
from svc.transport.verification import TlsIdentity
from svc.workload.interface import CredentialSource
from svc.workload.pqclient import fetch_pq_leaf

#: Seconds that the first statement may take once the identity is there.
STATEMENT_SECONDS: Final = 30.0


class StatementLate(SvcError):
    """no statement of this workload within {seconds} s: {what}"""

    reason = "notary_unavailable"
    hint = "does the post-quantum issuer run, and does it know this workload?"


@dataclass(frozen=True)
class LeafIssuer:
    """
    Where post-quantum leaves come from.

    Args:
        address: ``unix:///path`` or ``host:port``.
        spiffe_id: who an issuer at ``host:port`` must be, a matcher; None takes any identity of the trust domain.
    """

    address: str
    spiffe_id: str | None = None

    def obtain(
        self, svid: X509Svid, source: TlsIdentity, profile: Profile, reactor: Any, now: Callable[[], datetime]
    ) -> Deferred[PqLeaf]:
        """
        Ask for a leaf.

        Args:
            svid: the SVID that it stands beside.
            source: the credentials for mutual TLS.
            profile: says which algorithm.
            reactor: the reactor.
            now: the wall clock.

        Returns:
            Fires with the leaf, or fails with a subclass of ``PqIssuerError``.
        """
        return fetch_pq_leaf(
            self.address,
            svid,
            source,
            reactor,
            now=now,
            expected=parse_matcher(self.spiffe_id) if self.spiffe_id is not None else None,
            algorithm="ML-DSA-87" if profile is Profile.CNSA2 else "ML-DSA-65",
        )


class _Told:
    """Tells the log what became of credentials."""

    log = Logger()

    def generation_issued(self, generation: Generation) -> None:
        """Say so."""
        self.log.info("statement {statement} is in use", statement=generation.statement.id)

    def generation_failed(self, error: SvcError) -> None:
        """Say why; the credentials of before serve on."""
        self.log.warn("no new statement: {error} ({reason})", error=error, reason=error.reason)

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """The statement that follows tells enough."""

    def leaf_failed(self, error: SvcError) -> None:
        """The failure of the generation tells enough."""

    def identity_ended(self, error: SvcError) -> None:
        """Say why; nothing is presented until there is an identity again."""
        self.log.warn("this workload has no identity any more: {error} ({reason})", error=error, reason=error.reason)


class _Unkept:
    """Statements of a program without a database live as long as it does."""

    def put_statement(self, statement: Statement) -> Deferred[None]:
        """Keep nothing."""
        return succeed(None)


def own_generations(
    source: CredentialSource,
    issuer: LeafIssuer | None,
    *,
    profile: Profile,
    facts: WorkloadFacts,
    reactor: Any,
    now: Callable[[], datetime],
) -> Generations:
    """
    Follow a source with statements.

    Args:
        source: gives SVID and bundles.
        issuer: gives post-quantum leaves; None for the profile that needs none.
        profile: which signatures are made.
        facts: what statements say besides the identity.
        reactor: the reactor.
        now: the wall clock.

    Returns:
        The service, not started.
    """
    return Generations(
        source,
        profile=profile,
        facts=lambda: facts,
        obtain_leaf=None if issuer is None else lambda svid: issuer.obtain(svid, source, profile, reactor, now),
        store=cast(INotaryStore, _Unkept()),
        watcher=_Told(),
        clock=reactor,
        wall=now,
        random=os.urandom,
        jitter=lambda: 0.5 + secrets.randbelow(500) / 1000,
    )


async def first_generation(generations: Generations, reactor: Any) -> None:
    """
    Wait for the first statement.

    Args:
        generations: what makes it.
        reactor: the reactor.

    Raises:
        StatementLate: none could be made in time; says why.
    """
    try:
        await generations.when_ready().addTimeout(STATEMENT_SECONDS, reactor)
    except DeferredTimeout as error:
        what = generations.last_error or "no answer"
        raise StatementLate(seconds=STATEMENT_SECONDS, what=what) from error
