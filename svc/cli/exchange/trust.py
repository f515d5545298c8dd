"""
The local trust of one run: the Workload API and the file with the post-quantum roots.

Owns when each of them is asked, at most once, and what is told where one of them is missing. Never takes trust from the
server that is being judged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, Final

from svc.cli.exchange.judgement import Trust
from svc.identity.bundle import BundleSet
from svc.notary.profile import Profile
from svc.notary.verification import Anchors
from svc.workload.address import socket_path
from svc.workload.errors import PqFileMalformed, PqFileMissing, WorkloadSocketMissing
from svc.workload.interface import CredentialSource
from svc.workload.pqfile import pq_bundle_path, read_pq_bundles
from svc.workload.source import WorkloadSource

#: An agent that is there answers at once; one that has just started may need a moment.
START_SECONDS: Final = 10.0


class SocketAbsent(WorkloadSocketMissing):
    """the SPIFFE Workload API socket {socket} does not exist"""

    hint = "start svc-authority or a SPIRE agent, or name its socket with --spiffe-socket-path"


class SocketIsNone(WorkloadSocketMissing):
    """the SPIFFE Workload API socket {socket} is {kind}, no socket"""

    hint = "name the socket of svc-authority or of a SPIRE agent with --spiffe-socket-path or SPIFFE_ENDPOINT_SOCKET"


class NoPqBundle(PqFileMalformed):
    """the PQ bundle file {path} is not used: {defect}"""

    hint = "is it the right file? svc-authority writes pq-bundle.json beside its socket"


def read_pq_anchors(profile: Profile, named: str | None, socket: str) -> BundleSet:
    """
    Read the post-quantum roots.

    Args:
        profile: the local profile; ``classical`` reads none.
        named: the file that a person or the environment names.
        socket: the Workload API socket, beside which the file is by default.

    Returns:
        The roots; none where no file was named and none is beside the socket: the verification then says whose roots
        it misses.

    Raises:
        PqFileRefused: the file is not to be used; or it was named and is missing.
    """
    if not profile.needs_post_quantum:
        return BundleSet()
    path = pq_bundle_path(named, {}, socket)
    if path is None:
        return BundleSet()
    if named and not os.path.lexists(named):
        # Said before anything is said of the folder that it is not in.
        raise PqFileMissing(path=named)
    try:
        return read_pq_bundles(path).bundle_set()
    except PqFileMalformed as error:
        raise NoPqBundle(**error.evidence) from error
    except PqFileMissing:
        if named:
            raise
        return BundleSet()


class LocalTrust:
    """
    Credentials and anchors, got when they are first needed.

    Args:
        reactor: the reactor.
        socket: the Workload API socket.
        profile: the local profile.
        pq_bundle: the named file with post-quantum roots, or None.
        make_source: makes the source; tests give their own.
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

    async def source(self) -> CredentialSource:
        """
        Get our own credentials and the bundles.

        Returns:
            The source, ready.

        Raises:
            WorkloadError: they did not come in time.
        """
        if self._source is None:
            path = socket_path(self._socket)
            _refuse_no_socket(path)
            self._source = self._make_source(self._socket, reactor=self._reactor, start_timeout=START_SECONDS)
            self._source.startService()
        await self._source.when_ready()
        ready: CredentialSource = self._source
        return ready

    async def trust(self) -> Trust:
        """
        Get the anchors as they are now.

        Returns:
            The trust.

        Raises:
            WorkloadError: the Workload API or the file with post-quantum roots does not give them.
        """
        source = await self.source()
        if self._pq is None:
            self._pq = read_pq_anchors(self._profile, self._pq_bundle, self._socket)
        state = source.state
        stale = state.last_update if state.phase == "stale" else None
        return Trust(Anchors(source.bundles, self._pq), stale, self._pq_file())

    def _pq_file(self) -> str | None:
        return pq_bundle_path(self._pq_bundle, {}, self._socket)

    async def close(self) -> None:
        """Stop listening to the Workload API."""
        if self._source is not None:
            await self._source.stopService()


def _refuse_no_socket(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise SocketAbsent(socket=path, seconds=0) from error
    except OSError:  # whoever may not look will be told so by the attempt to connect
        return
    if not stat.S_ISSOCK(mode):
        raise SocketIsNone(socket=path, seconds=0, kind="a folder" if stat.S_ISDIR(mode) else "a file of another kind")
