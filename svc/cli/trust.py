"""
The local trust of one run: the Workload API and the file with the post-quantum roots, read again when it changes.

Nothing here ever comes from the server that is being verified.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger

from svc.client.verification import Trust
from svc.envelope.profile import Profile
from svc.identity.bundle import BundleSet
from svc.notary.verification import Anchors
from svc.workload.address import socket_path
from svc.workload.errors import PqFileMalformed, PqFileMissing, WorkloadSocketMissing
from svc.workload.files import FileStamp
from svc.workload.interface import CredentialSource
from svc.workload.pqfile import pq_bundle_path, read_pq_bundles
from svc.workload.source import WorkloadSource

#: A running agent answers at once; one that has just started may need some seconds.
START_SECONDS: Final = 10.0
_log = Logger(namespace="svc.cli")


class SocketAbsent(WorkloadSocketMissing):
    """the SPIFFE Workload API socket {socket} does not exist"""

    hint = "start svc-authority or a SPIRE agent, or name its socket with --spiffe-socket-path"


class NotASocket(WorkloadSocketMissing):
    """the SPIFFE Workload API socket {socket} is {kind}, no socket"""

    hint = "name the socket of svc-authority or of a SPIRE agent with --spiffe-socket-path or SPIFFE_ENDPOINT_SOCKET"


class PqBundleUnusable(PqFileMalformed):
    """the PQ bundle file {path} is not used: {defect}"""

    hint = "is it the right file? svc-authority writes pq-bundle.json beside its socket"


def read_pq_anchors(profile: Profile, named: str | None, socket: str) -> BundleSet:
    """
    Read the post-quantum roots.

    Args:
        profile: ``classical`` reads none.
        named: the file that a flag or the environment names.
        socket: the Workload API socket, beside which the file is by default.

    Returns:
        The roots; none where no file was named and none is beside the socket: the verification then reports whose roots
        are missing.
    """
    path = pq_bundle_path(named, {}, socket) if profile.needs_post_quantum else None
    if path is None:
        return BundleSet()
    if named and not os.path.lexists(named):
        # Reported before the checks of its folder.
        raise PqFileMissing(path=named)
    try:
        return read_pq_bundles(path).bundle_set()
    except PqFileMalformed as error:
        raise PqBundleUnusable(**error.evidence) from error
    except PqFileMissing:
        if named:
            raise
        return BundleSet()


class LocalTrust:
    """
    Credentials and trust anchors, read when they are first needed.

    Args:
        pq_bundle: the file with post-quantum roots that a flag or the environment names.
        make_source: tests give their own.
    """

    def __init__(
        self,
        reactor: Any,
        socket: str,
        profile: Profile,
        pq_bundle: str | None,
        make_source: Callable[..., Any] = WorkloadSource,
    ) -> None:
        self._reactor = reactor
        self._socket = socket
        self._profile = profile
        self._pq_bundle = pq_bundle
        self._make_source = make_source
        self._source: Any = None
        self._pq: BundleSet | None = None
        self._pq_stamp: FileStamp | None = None

    async def source(self) -> CredentialSource:
        """Wait for our own credentials and the bundles; raises a ``WorkloadError`` where they do not come in time."""
        if self._source is None:
            _check_socket(socket_path(self._socket))
            self._source = self._make_source(self._socket, reactor=self._reactor, start_timeout=START_SECONDS)
            self._source.startService()
        await self._source.when_ready()
        ready: CredentialSource = self._source
        return ready

    async def trust(self) -> Trust:
        """Read the trust anchors; raises a ``WorkloadError`` where a source of them fails."""
        source = await self.source()
        pq_file = pq_bundle_path(self._pq_bundle, {}, self._socket)
        stamp = None if pq_file is None else FileStamp.of(pq_file)
        if self._pq is None or stamp != self._pq_stamp:
            self._pq_stamp = stamp
            self._pq = read_pq_anchors(self._profile, self._pq_bundle, self._socket)
            log_roots(source.bundles, self._pq, self._socket, pq_file)
        state = source.state
        stale = state.last_update if state.phase == "stale" else None
        return Trust(Anchors(source.bundles, self._pq), stale, pq_file)

    async def close(self) -> None:
        """Stop the stream of the Workload API."""
        if self._source is not None:
            await self._source.stopService()


def log_roots(spiffe: BundleSet, pq: BundleSet, socket: str, pq_file: str | None) -> None:
    """Log whose roots there are, and where they were read."""
    _log.debug("SPIFFE roots of {domains} from {socket}", domains=_domains(spiffe), socket=socket)
    _log.debug("post-quantum roots of {domains} from {file}", domains=_domains(pq), file=pq_file or "no file")


def _domains(bundles: BundleSet) -> str:
    return ", ".join(str(bundle.trust_domain) for bundle in bundles) or "no trust domain"


def _check_socket(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise SocketAbsent(socket=path, seconds=0) from error
    except OSError:  # the attempt to connect reports it
        return
    if not stat.S_ISSOCK(mode):
        raise NotASocket(socket=path, seconds=0, kind="a folder" if stat.S_ISDIR(mode) else "a file of another kind")
