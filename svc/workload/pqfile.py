"""
The PQ bundle as a file that is watched.

Owns where the file is found, when it is read again and what is kept when it turns bad. The format belongs to
``svc.identity.pqbundle``, the permission rule to ``files``. The file is never fetched from a peer.
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
from svc.telemetry.events import Event
from svc.telemetry.logs import emit
from svc.workload.address import beside
from svc.workload.errors import PqFileMalformed, PqFileMissing, PqFileRefused
from svc.workload.files import FileMissing, FileRefused, FileStamp, read_trusted

#: How often the file is looked at, in seconds.
INTERVAL: Final = 1.0


def pq_bundle_path(given: str | None, environment: Mapping[str, str], socket: str | None) -> str | None:
    """
    Find the PQ bundle file.

    Args:
        given: the option ``--pq-bundle`` or the key ``notary.pqBundle``.
        environment: where ``SVC_PQ_BUNDLE`` may stand.
        socket: the Workload API socket.

    Returns:
        The first of: what was given, the variable, ``pq-bundle.json`` beside the socket. None without any of them.

    Raises:
        SocketAddressInvalid: the socket is needed and no address.
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

    Returns:
        The bundles.

    Raises:
        PqFileMissing: there is no such file.
        PqFileRefused: others than root and the own user can write it or its folder.
        PqFileMalformed: its content is no PQ bundle.
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
    The last good content of a PQ bundle file.

    A file that is gone, refused, malformed or older than what was read keeps the last good content in force.

    Args:
        path: the file.
        reactor: the reactor whose clock paces the looks.
        interval: seconds between two looks.
        own_uid: the user allowed beside root; the effective user by default.
    """

    log = Logger()

    def __init__(
        self, path: str | Path, *, reactor: Any, interval: float = INTERVAL, own_uid: int | None = None
    ) -> None:
        self.path = str(path)
        self._own_uid = own_uid
        self._interval = interval
        self._poll = LoopingCall(self.look)
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
            PqFileRefused: no good content has been read yet; the subclass says why.
        """
        return self.pq_bundles.bundle_set()

    @property
    def pq_bundles(self) -> PqBundles:
        """
        The same with its sequences.

        Raises:
            PqFileRefused: as :attr:`bundles`.
        """
        if self._bundles is None:
            raise self._error if isinstance(self._error, PqFileRefused) else PqFileMissing(path=self.path)
        return self._bundles

    @property
    def last_error(self) -> SvcError | None:
        """Why the file as it is now is not in force, or None where it is."""
        return self._error

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Hear of changes.

        Args:
            callback: called without arguments after new content came into force.

        Returns:
            What ends the subscription; a second call does nothing.
        """
        token = object()
        self._subscribers[token] = callback
        return lambda: self._subscribers.pop(token, None) and None

    def startService(self) -> None:
        """Read the file and go on looking at it."""
        super().startService()
        self._poll.start(self._interval, now=True)

    def stopService(self) -> Deferred[None] | None:
        """
        Stop looking; the content stays readable.

        Returns:
            None: it is done at once.
        """
        if self._poll.running:
            self._poll.stop()
        super().stopService()
        return None

    def look(self) -> None:
        """Read the file if it has changed; a refused one is read again, since permissions of its folder may change."""
        stamp = FileStamp.of(self.path)
        if stamp is not None and stamp == self._stamp and self._error is None:
            return
        self._stamp = stamp
        try:
            read = read_pq_bundles(self.path, own_uid=self._own_uid)
            taken = read if self._bundles is None else self._bundles.advanced_by(read)
        except (PqFileRefused, SequenceFell) as error:
            self._refuse(error)
            return
        self._error = None
        if taken != self._bundles:
            self._bundles = taken
            emit(self.log, Event.PQ_BUNDLE_UPDATED, attributes={"path": self.path})
            self._publish()

    def _refuse(self, error: SvcError) -> None:
        if str(error) != str(self._error):
            facts = {"path": self.path}
            emit(self.log, Event.UPDATE_REJECTED, detail_reason=error.reason, detail=str(error), attributes=facts)
        self._error = error

    def _publish(self) -> None:
        for callback in tuple(self._subscribers.values()):
            try:
                callback()
            except Exception:  # noqa: BLE001 - one subscriber must not keep the change from the others
                self.log.failure("a subscriber of the PQ bundle failed")
