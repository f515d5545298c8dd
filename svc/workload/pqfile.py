"""
The PQ bundle file, and a source that reads it again when it changes.

The file is never fetched from a peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc import naming
from svc.errors import SvcError
from svc.identity.bundle import BundleMalformed, BundleSet
from svc.identity.pqbundle import PqBundles, SequenceFell
from svc.telemetry.events.workload import WorkloadEvent
from svc.telemetry.logs import emit
from svc.workload.address import beside
from svc.workload.errors import PqFileMalformed, PqFileMissing, PqFileRefused
from svc.workload.files import FileMissing, FileRefused, FileStamp, read_trusted

#: Seconds between two checks of the file.
INTERVAL: Final = 1.0


def pq_bundle_path(given: str | None, environment: Mapping[str, str], socket: str | None) -> str | None:
    """
    Find the PQ bundle file.

    Args:
        given: the option ``--pq-bundle`` or the key ``notary.pqBundle``.
        environment: may have ``SVC_PQ_BUNDLE``.
        socket: the Workload API socket.

    Returns:
        The first of: what was given, the variable, ``pq-bundle.json`` beside the socket. None without any of them.

    Raises:
        SocketAddressInvalid: ``socket`` is needed and invalid.
    """
    chosen = given or environment.get(naming.ENV_PQ_BUNDLE)
    if chosen:
        return chosen
    return beside(socket, naming.PQ_BUNDLE_FILE) if socket else None


def read_pq_bundles(path: str | Path, *, own_uid: int | None = None) -> PqBundles:
    """
    Read a PQ bundle file once.

    Args:
        path: the file.
        own_uid: the user allowed beside root; the effective user by default.

    Raises:
        PqFileMissing: there is no such file.
        PqFileRefused: others than root and the own user can write it or its folder.
        PqFileMalformed: its content is not a PQ bundle.
    """
    try:
        return PqBundles.parse(read_trusted(path, own_uid=own_uid))
    except FileMissing as error:
        raise PqFileMissing(path=path) from error
    except FileRefused as error:
        raise PqFileRefused(path=path, defect=error.evidence["defect"]) from error
    except BundleMalformed as error:
        raise PqFileMalformed(path=path, defect=error.defect) from error


class PqBundleSource(Service):
    """
    The last valid content of a PQ bundle file, which is checked for changes every ``interval`` seconds.

    A file that is missing, refused, malformed or older than what was read leaves the last valid content in force.
    """

    log = Logger()

    def __init__(
        self, path: str | Path, *, reactor: Any, interval: float = INTERVAL, own_uid: int | None = None
    ) -> None:
        self.path = str(path)
        self._own_uid = own_uid
        self._interval = interval
        self._poll = LoopingCall(self.check)
        self._poll.clock = reactor
        self._stamp: FileStamp | None = None
        self._bundles: PqBundles | None = None
        self._error: SvcError | None = None
        self._subscribers: dict[object, Callable[[], None]] = {}

    @property
    def bundles(self) -> BundleSet:
        """
        The PQ roots of each trust domain with their windows.

        Raises:
            PqFileRefused: no valid content has been read yet; the subclass says why.
        """
        return self.pq_bundles.bundle_set()

    @property
    def pq_bundles(self) -> PqBundles:
        """The same with sequence numbers; raises as :attr:`bundles`."""
        if self._bundles is None:
            raise self._error if isinstance(self._error, PqFileRefused) else PqFileMissing(path=self.path)
        return self._bundles

    @property
    def last_error(self) -> SvcError | None:
        """Why the current file is not in force; None if it is."""
        return self._error

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change; returns what ends that."""
        token = object()
        self._subscribers[token] = callback
        return lambda: self._subscribers.pop(token, None) and None

    def startService(self) -> None:
        super().startService()
        self._poll.start(self._interval, now=True)

    def stopService(self) -> Deferred[None] | None:
        """Stop checking; the content stays readable."""
        if self._poll.running:
            self._poll.stop()
        super().stopService()
        return None

    def check(self) -> None:
        """
        Read the file if it has changed; a refused one is read again, since permissions of its folder may have changed.
        """
        stamp = FileStamp.of(self.path)
        if stamp is not None and stamp == self._stamp and self._error is None:
            return
        self._stamp = stamp
        try:
            read = read_pq_bundles(self.path, own_uid=self._own_uid)
            advanced = read if self._bundles is None else self._bundles.advanced_to(read)
        except (PqFileRefused, SequenceFell) as error:
            self._refuse(error)
            return
        self._error = None
        if advanced != self._bundles:
            self._bundles = advanced
            emit(self.log, WorkloadEvent.PQ_BUNDLE_UPDATED, attributes={"path": self.path})
            self._publish()

    def _refuse(self, error: SvcError) -> None:
        if str(error) != str(self._error):
            facts = {"path": self.path}
            emit(
                self.log, WorkloadEvent.UPDATE_REJECTED, detail_reason=error.reason, detail=str(error), attributes=facts
            )
        self._error = error

    def _publish(self) -> None:
        for callback in tuple(self._subscribers.values()):
            try:
                callback()
            except Exception:  # noqa: BLE001 - a failing subscriber must not prevent the others
                self.log.failure("a subscriber of the PQ bundle failed")
