"""
The statements that an embedding program issues of itself.

Assembles :class:`svc.proxy.credential_rotation.CredentialRotation`, which makes a statement for each SVID of a source.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.embedding.errors import EmbeddingError
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import Statement
from svc.proxy.credential_rotation import CredentialRotation
from svc.store.interface import INotaryStore
from svc.workload.interface import CredentialSource

#: Seconds that the first statement may take after the identity is available.
STATEMENT_SECONDS: Final = 30.0


class _CredentialLog:
    """Logs new and failed statements, and the end of the identity."""

    log = Logger()

    def credentials_issued(self, generation: CredentialSet) -> None:
        self.log.info("statement {statement} is in use", statement=generation.statement.id)

    def credentials_failed(self, error: SvcError) -> None:
        self.log.warn("no new statement: {error} ({reason})", error=error, reason=error.reason)

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """Logged with the statement that follows."""

    def leaf_failed(self, error: SvcError) -> None:
        """Logged with the failure of the statement."""

    def identity_ended(self, error: SvcError) -> None:
        self.log.warn("this workload has no identity any more: {error} ({reason})", error=error, reason=error.reason)


class _NoStore:
    """Replaces the database: statements of an embedding program are not stored."""

    def put_statement(self, statement: Statement) -> Deferred[None]:
        return succeed(None)


def issue_statements(
    source: CredentialSource,
    obtain_leaf: Callable[[X509Svid], Deferred[PqLeaf]] | None,
    *,
    profile: Profile,
    facts: WorkloadFacts,
    reactor: Any,
    now: Callable[[], datetime],
) -> CredentialRotation:
    """
    Create the service that makes a statement for each SVID of a source.

    Args:
        source: gives SVID and bundles.
        obtain_leaf: fetches the post-quantum leaf of an SVID; None for a profile that needs none.
        profile: which signatures are made.
        facts: what statements contain besides the identity.
        reactor: the reactor.
        now: the wall clock.
    """
    return CredentialRotation(
        source,
        profile=profile,
        facts=lambda: facts,
        obtain_leaf=obtain_leaf,
        store=cast(INotaryStore, _NoStore()),
        observer=_CredentialLog(),
        clock=reactor,
        wall=now,
        random=os.urandom,
        jitter=lambda: 0.5 + secrets.randbelow(500) / 1000,
    )


async def first_statement(generations: CredentialRotation, reactor: Any) -> None:
    """
    Wait for the first statement.

    Raises:
        EmbeddingError: ``notary_unavailable``, with the last error, where none was made in time.
    """
    try:
        await generations.when_ready().addTimeout(STATEMENT_SECONDS, reactor)
    except DeferredTimeout as error:
        what = generations.last_error or "no answer"
        raise EmbeddingError("notary_unavailable", seconds=STATEMENT_SECONDS, what=what) from error
