"""
SVIDs as files, for programs that do not speak the Workload API.

All files of a renewal are put in force together (:mod:`svc.agent.versions`), and none without its post-quantum leaf
where there is to be one. The last good files stay whatever happens, also after they have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.agent.config import FilesSettings
from svc.agent.notifying import NotifyFailed, ProgramNotRunning
from svc.agent.versions import VersionedFile, VersionedFolder
from svc.envelope.keys import MlDsaPrivateKey
from svc.errors import SvcError
from svc.identity.algorithms import SvidPrivateKey
from svc.identity.bundle import BundleSet
from svc.identity.svid import X509Svid
from svc.notary.pqleaf import PqLeaf
from svc.process.lifecycle import when_finished
from svc.telemetry.events.agent import AgentEvent
from svc.telemetry.logs import emit
from svc.workload.errors import CredentialsMissing

#: Seconds between two looks at whether the files are still there.
CHECK_EVERY: Final = 10.0
#: Seconds between the starts of two attempts, whatever arrives meanwhile.
AT_LEAST: Final = 1.0
#: Seconds after a failure, doubled each time up to the last.
FIRST_RETRY: Final = 1.0
LAST_RETRY: Final = 30.0


class FilesExpired(SvcError):
    """the files in {folder} have expired at {not_after}, and no newer ones could be written"""

    reason = "expired"
    hint = "look at the Workload API and at the log of svc-agent"


class FilesFailed(SvcError):
    """the files in {folder} could not be made: {what}"""

    reason = "internal_error"


class FilesSource(Protocol):
    """What the files need of a source of SVIDs."""

    @property
    def bundles(self) -> BundleSet:
        """The latest bundles of the own and of federated trust domains."""

    def select(self, hint: str | None) -> X509Svid:
        """The SVID with a hint, the default one for None; raises ``CredentialsMissing`` or ``NoOwnSvid``."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change; returns what ends that."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files of one renewal are made of, without the leaf; equal ones make equal files."""

    svid: X509Svid
    bundles: BundleSet
    pq_bundle: bytes | None

    def files(self, settings: FilesSettings, leaf: PqLeaf | None) -> list[VersionedFile]:
        """Make the files."""
        own = self.svid.spiffe_id.trust_domain
        public = {
            settings.svid: _pem(self.svid.chain),
            settings.bundle: _pem(self.bundles.bundle_for(own).certificates),
        }
        keys = {settings.key: _key_pem(self.svid.private_key)}
        if settings.federated is not None:
            foreign = (each for each in self.bundles if each.trust_domain != own)
            public |= {f"{settings.federated}/{each.trust_domain}.pem": _pem(each.certificates) for each in foreign}
        if leaf is not None:
            public[settings.pqSvid], keys[settings.pqKey] = _pem(leaf.chain), _key_pem(leaf.private_key)
        if settings.pqBundle is not None and self.pq_bundle is not None:
            public[settings.pqBundle] = self.pq_bundle
        owner = -1 if settings.owner is None else settings.owner
        group = -1 if settings.group is None else settings.group
        return [
            *(VersionedFile(name, data, 0o644, owner, group) for name, data in public.items()),
            *(VersionedFile(name, data, settings.mode, owner, group) for name, data in keys.items()),
        ]


class SvidFiles(Service):
    """
    Keeps the files of one entry as new as what the Workload API gives.

    Args:
        settings: of the entry.
        source: of SVIDs and bundles.
        folder: writes them.
        obtain_leaf: gets the post-quantum leaf of an SVID; None where there is to be none.
        pq_bundle: gives the post-quantum roots, or raises ``SvcError``; None where they are not written.
        notify: tells the program that reads the files; fails with ``NotifyFailed``.
        in_thread: calls a function that blocks.
        clock: a reactor's.
        now: returns the time, aware.
        report: called after each attempt with None, or with why the files may be old.
    """

    log = Logger()

    def __init__(
        self,
        settings: FilesSettings,
        source: FilesSource,
        folder: VersionedFolder,
        *,
        obtain_leaf: Callable[[X509Svid], Deferred[PqLeaf]] | None,
        pq_bundle: Callable[[], bytes] | None,
        notify: Callable[[], Deferred[None]] | None,
        in_thread: Callable[..., Deferred[Any]],
        clock: IReactorTime,
        now: Callable[[], datetime],
        report: Callable[[SvcError | None], None],
    ) -> None:
        self._settings = settings
        self._source = source
        self._folder = folder
        self._obtain_leaf = obtain_leaf
        self._pq_bundle = pq_bundle
        self._notify = notify
        self._in_thread = in_thread
        self._clock = clock
        self._now = now
        self._report = report
        self._written: Contents | None = None
        self._version = ""
        self._leaf: tuple[X509Svid, PqLeaf] | None = None
        self._expires: datetime | None = None
        self._unnotified = False
        self._attempt: Deferred[None] | None = None
        self._again = False
        self._next: IDelayedCall | None = None
        #: When the next attempt may begin, and after which pause it begins by itself.
        self._earliest, self._pause, self._retry = 0.0, CHECK_EVERY, FIRST_RETRY
        self._error: SvcError | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def startService(self) -> None:
        """Write what is there; the files are written at each start, since nothing says whether the program has them."""
        super().startService()
        self._unsubscribe = self._source.subscribe(self.look)
        self.look()

    def stopService(self) -> Deferred[None] | None:
        """Write no more; the files stay. Fires when what was begun has ended."""
        super().stopService()
        self._unsubscribe()
        self._cancel_next()
        if self._attempt is None:
            return None
        ended = when_finished(self._attempt)
        self._attempt.cancel()
        return ended

    def look(self) -> None:
        """Make the files again where what they are made of has changed."""
        if self._attempt is not None:
            self._again = True
        elif self.running:
            self._schedule(self._earliest - self._clock.seconds())

    def check(self) -> None:
        """Report files that have expired; called each second."""
        expired = self._expired()
        if expired is not None and (self._error is None or isinstance(self._error, ProgramNotRunning)):
            self._settle(expired)

    def _schedule(self, seconds: float) -> None:
        self._cancel_next()
        if seconds > 0:
            self._next = self._clock.callLater(seconds, self._begin)
        else:
            self._begin()

    def _cancel_next(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _begin(self) -> None:
        self._earliest = self._clock.seconds() + AT_LEAST
        self._again = False
        attempt = self._attempt = Deferred.fromCoroutine(self._keep())
        attempt.addCallbacks(self._kept, self._failed).addErrback(self._defect).addCallback(self._attempted)

    async def _keep(self) -> None:
        if self._contents() != self._written or not await self._in_thread(self._folder.has, self._version):
            await self._write()
        if self._unnotified and self._notify is not None:
            await self._notify()
            self._unnotified = False
            emit(self.log, AgentEvent.FILES_NOTIFIED, attributes={"folder": self._folder.path})

    def _contents(self) -> Contents:
        svid = self._source.select(self._settings.hint)
        return Contents(svid, self._source.bundles, None if self._pq_bundle is None else self._pq_bundle())

    async def _write(self) -> None:
        found, leaf = self._contents(), None
        while self._obtain_leaf is not None:
            leaf = await self._leaf_of(found.svid, self._obtain_leaf)
            # Meanwhile there may be a newer SVID, or none any more.
            asked, found = found, self._contents()
            if found.svid == asked.svid:
                break
        self._version = await self._in_thread(lambda: self._folder.write(found.files(self._settings, leaf)))
        self._written, self._unnotified = found, True
        self._expires = found.svid.chain_not_after if leaf is None else min(found.svid.chain_not_after, leaf.not_after)
        attributes = {
            "folder": self._folder.path,
            "serial": f"{found.svid.leaf.serial_number:x}",
            "not_after": self._expires.isoformat(),
        }
        emit(self.log, AgentEvent.FILES_WRITTEN, spiffe_id=str(found.svid.spiffe_id), attributes=attributes)

    async def _leaf_of(self, svid: X509Svid, obtain: Callable[[X509Svid], Deferred[PqLeaf]]) -> PqLeaf:
        if self._leaf is None or self._leaf[0] != svid:
            self._leaf = svid, await obtain(svid)
        return self._leaf[1]

    def _kept(self, _none: None) -> None:
        self._pause, self._retry = CHECK_EVERY, FIRST_RETRY
        self._settle(self._expired())

    def _failed(self, failure: Failure) -> None:
        if not self.running or failure.check(CancelledError):
            return
        error = failure.value
        if not isinstance(error, SvcError):
            # The next attempt follows after any error: without it the files would expire.
            self.log.failure("making files failed unexpectedly", failure)
            error = FilesFailed(folder=self._folder.path, what=type(error).__name__)
        self._pause, self._retry = self._retry, min(self._retry * 2, LAST_RETRY)
        self._settle(self._expired() or error if isinstance(error, ProgramNotRunning) else error)

    def _attempted(self, _none: None) -> None:
        self._attempt = None
        if self.running:
            self._schedule(self._earliest - self._clock.seconds() if self._again else self._pause)

    def _expired(self) -> FilesExpired | None:
        if self._expires is None or self._now() < self._expires:
            return None
        return FilesExpired(folder=self._folder.path, not_after=self._expires)

    def _settle(self, error: SvcError | None) -> None:
        """Report how it stands, and log each failure once."""
        known, self._error = self._error, error
        # The files are there, and a program that does not run yet reads them when it starts.
        self._report(None if isinstance(error, ProgramNotRunning) else error)
        # Before the first SVID there is nothing to say that the Workload API does not say.
        if error is None or str(error) == str(known) or type(error) is CredentialsMissing:
            return
        event = AgentEvent.FILES_NOT_NOTIFIED if isinstance(error, NotifyFailed) else AgentEvent.FILES_FAILED
        attributes = {"folder": self._folder.path}
        emit(self.log, event, detail_reason=error.reason, detail=str(error), attributes=attributes)

    def _defect(self, failure: Failure) -> None:
        self.log.failure("the state of files could not be reported", failure)


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def _key_pem(key: SvidPrivateKey | MlDsaPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
