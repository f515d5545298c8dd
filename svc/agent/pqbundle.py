"""
The PQ bundle of the node, as the file that verifiers read: what the issuer publishes, and the roots of peers that the
manager has pinned.

Each request reports what the file has.

The file is never replaced by one that is malformed or older, and stays while the issuer is away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity.bundle import X509Bundle
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import TrustDomain
from svc.telemetry.events.agent import AgentEvent
from svc.telemetry.logs import emit
from svc.workload.errors import CredentialsMissing, PqFileRefused
from svc.workload.files import write_atomically
from svc.workload.pqfile import read_pq_bundles

#: Seconds between attempts while there is no file at all, since the first pods of a node wait for it, and until a new
#: one is reported.
EAGER_SECONDS: Final = 1.0


class PqBundleUnwritable(SvcError):
    """{path} cannot be written: {why}"""

    reason = "pq_bundle_unwritable"
    hint = "is the folder of the SPIRE agent's socket mounted for writing, and is there room on its disk?"


class NodePqBundle(Service):
    """
    Keeps the file of a node as new as the issuer's bundle and the manager's.

    Args:
        path: of the file.
        own: the own trust domain, whose roots are those of the issuer alone.
        fetch: gets the bundle of the issuer, and reports to it what the file has, None for nothing; fails with
            ``SvcError``.
        every: seconds between two attempts.
        clock: a reactor's.
        state: called after each attempt with None, or with why the file may be old.
        peers: whether :meth:`take_foreign` is called; those of the file stay until then.
        own_uid: the user allowed beside root to have written the file; the effective user by default.
    """

    log = Logger()

    def __init__(
        self,
        path: str,
        own: TrustDomain,
        fetch: Callable[[PqBundles | None], Deferred[PqBundles]],
        every: float,
        clock: object,
        state: Callable[[SvcError | None], None],
        *,
        peers: bool = False,
        own_uid: int | None = None,
    ) -> None:
        self._own = own
        #: The last answers of both; None before the first one.
        self._issued: PqBundles | None = None
        self._foreign: PqBundles | None = None
        self._peers = peers
        self._path = Path(path)
        self._fetch = fetch
        self._every = every
        self._state = state
        self._own_uid = own_uid
        self._said = ""
        self._attempt: Deferred[None] | None = None
        self._loop = LoopingCall(self._update)
        self._loop.clock = clock  # type: ignore[assignment]

    def startService(self) -> None:
        super().startService()
        self._loop.start(EAGER_SECONDS).addErrback(self._defect)

    def stopService(self) -> None:
        """Fetch no more; the file stays."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        if self._attempt is not None:
            self._attempt.cancel()

    def _update(self) -> Deferred[None]:
        self._attempt = self._fetch(self._known()).addCallback(self._got).addErrback(self._failed)
        return self._attempt

    def _got(self, newer: PqBundles) -> None:
        self._issued = newer
        self._loop.interval = min(EAGER_SECONDS, self._every) if self._write(newer) else self._every
        self._said = ""
        self._state(None)

    def take_foreign(self, foreign: PqBundles) -> None:
        """
        Take the roots of all peers; they are written with those of the issuer, at the latest when it has answered.

        Raises:
            PqBundleUnwritable: the file stays as it is until the next answer.
        """
        self._foreign = foreign
        if self._issued is not None:
            self._write(self._issued)

    def _write(self, issued: PqBundles) -> bool:
        """Write what is known, unless the file has it; returns whether it was written."""
        known = self._known()
        foreign = self._foreign
        if foreign is None and self._peers:
            foreign = known or PqBundles()
        bundles = combined(known, issued, foreign, self._own)
        if known is not None and bundles.serialize() == known.serialize():
            return False
        try:
            write_atomically(self._path, bundles.serialize())
        except OSError as error:
            raise PqBundleUnwritable(path=self._path, why=error.strerror or str(error)) from error
        emit(self.log, AgentEvent.PQ_BUNDLE_WRITTEN, attributes={"path": str(self._path), **_sequences(bundles)})
        return True

    def _known(self) -> PqBundles | None:
        """What the file has; None where it has nothing that a verifier would use."""
        try:
            return read_pq_bundles(self._path, own_uid=self._own_uid)
        except PqFileRefused:
            # Also where it is missing or malformed.
            return None

    def _failed(self, failure: Failure) -> None:
        if not self.running or failure.check(CancelledError):
            return
        failure.trap(SvcError)
        error = failure.value
        if not isinstance(error, SvcError):
            return
        self._state(error)
        # Before the first SVID there is nothing to say that the Workload API does not say.
        if str(error) != self._said and not isinstance(error, CredentialsMissing):
            self._said = str(error)
            emit(self.log, AgentEvent.PQ_BUNDLE_FAILED, detail_reason=error.reason, detail=str(error))

    def _defect(self, failure: Failure) -> None:
        self.log.failure("the PQ bundle of the node is not followed any more", failure)


def combined(known: PqBundles | None, issued: PqBundles, foreign: PqBundles | None, own: TrustDomain) -> PqBundles:
    """
    Return what the file has from now on.

    Args:
        known: what it has; None for nothing.
        issued: the bundle of the issuer; trust domains that it has are the issuer's.
        foreign: the bundles of peers; None where nobody gives any.
        own: the own trust domain, which is never a peer's.

    Returns:
        The bundles. A former peer stays without roots: verifiers remember its sequence, and it may come back.

    Raises:
        SequenceFell: the issuer's is older than what the file has.
    """
    before = known or PqBundles()
    if foreign is None:
        return before.advanced_to(issued)
    peers = {name: each for name, each in before.entries.items() if name != own and name not in issued.entries}
    found = before.advanced_to(PqBundles({**peers, **issued.entries}))
    for name, entry in foreign.entries.items():
        if name != own and name not in issued.entries:
            found = found.with_peer(entry.bundle, entry.sequence)
    for name in peers.keys() - foreign.entries.keys():
        found = found.with_peer(X509Bundle(name, ()), 0)
    return found


def _sequences(bundles: PqBundles) -> dict[str, int]:
    return {f"sequence.{name.name}": entry.sequence for name, entry in sorted(bundles.entries.items())}
