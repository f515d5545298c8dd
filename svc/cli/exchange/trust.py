"""
The local trust of one run: the Workload API and the file with the post-quantum roots.

Owns when each of them is asked, at most once, and what is told where one of them is missing. Never takes trust from the
server that is being judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from svc.cli.exchange.judgement import Trust
from svc.identity.bundle import BundleSet
from svc.notary.profile import Profile
from svc.notary.verification import Anchors
from svc.workload.address import socket_path
from svc.workload.errors import PqFileMissing, WorkloadSocketMissing
from svc.workload.interface import CredentialSource
from svc.workload.pqfile import pq_bundle_path, read_pq_bundles
from svc.workload.source import WorkloadSource

#: An agent that is there answers at once; one that has just started may need a moment.
START_SECONDS: Final = 10.0


class SocketAbsent(WorkloadSocketMissing):
    """the SPIFFE Workload API socket {socket} does not exist"""

    hint = "start svc-authority or a SPIRE agent, or name its socket with --spiffe-socket-path"


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
    try:
        return read_pq_bundles(path).bundle_set()
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
            if not os.path.exists(path):
                raise SocketAbsent(socket=path, seconds=0)
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
        return Trust(Anchors(source.bundles, self._pq), stale)

    async def close(self) -> None:
        """Stop listening to the Workload API."""
        if self._source is not None:
            await self._source.stopService()
