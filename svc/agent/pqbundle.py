"""
The PQ bundle of the node: what the issuer publishes, as the file that verifiers read.

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
from svc.identity.pqbundle import PqBundles
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
    Keeps the file of a node as new as the issuer's bundle.

    Args:
        path: of the file.
        fetch: gets the bundle of the issuer, and reports to it what the file has, None for nothing; fails with
            ``SvcError``.
        every: seconds between two attempts.
        clock: a reactor's.
        state: called after each attempt with None, or with why the file may be old.
        own_uid: the user allowed beside root to have written the file; the effective user by default.
    """

    log = Logger()

    def __init__(
        self,
        path: str,
        fetch: Callable[[PqBundles | None], Deferred[PqBundles]],
        every: float,
        clock: object,
        state: Callable[[SvcError | None], None],
        *,
        own_uid: int | None = None,
    ) -> None:
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
        known = self._known()
        bundles = newer if known is None else known.advanced_to(newer)
        again = self._every
        if known is None or bundles.serialize() != known.serialize():
            try:
                write_atomically(self._path, bundles.serialize())
            except OSError as error:
                raise PqBundleUnwritable(path=self._path, why=error.strerror or str(error)) from error
            again = min(EAGER_SECONDS, again)
            emit(self.log, AgentEvent.PQ_BUNDLE_WRITTEN, attributes={"path": str(self._path), **_sequences(bundles)})
        self._loop.interval = again
        self._said = ""
        self._state(None)

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


def _sequences(bundles: PqBundles) -> dict[str, int]:
    return {f"sequence.{name.name}": entry.sequence for name, entry in sorted(bundles.entries.items())}
