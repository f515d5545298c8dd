"""Who may ask the PQ issuer on its Unix socket: processes, attested by the kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from svc.authority.attestation import CallerNotAttested, CallingProcess
from svc.authority.registration import Registry
from svc.identity.spiffeid import SpiffeID
from svc.pqissuer.endpoint import CallerRefused

#: The identities of a process, see :meth:`svc.pqissuer.endpoint.PqCaller.identities`.
Attest = Callable[[CallingProcess], Collection[SpiffeID] | None]


class UnixCaller:
    """
    The process at the other end of a Unix socket, held from the moment it was accepted.

    Raises :class:`CallerNotAttested` if it has exited or the kernel does not identify it.
    """

    def __init__(self, transport: Any, attest: Attest) -> None:
        try:
            self._process = CallingProcess(transport.getHandle())
        except OSError as error:
            raise CallerNotAttested(defect=error.strerror or "it cannot be read") from error
        self._attest = attest
        self.share = self._process.uid

    def identities(self) -> Collection[SpiffeID] | None:
        return self._attest(self._process)

    def close(self) -> None:
        self._process.close()


def registered(registry: Callable[[], Registry]) -> Attest:
    """Attest by registration entries; a process that no entry matches is refused."""

    def attest(process: CallingProcess) -> Collection[SpiffeID]:
        entries = registry().match(process.observe(), process.digest)
        if not entries:
            raise CallerRefused(defect="no entry gives it an identity")
        return tuple(entry.spiffe_id for entry in entries)

    return attest


def listed(uids: Collection[int]) -> Attest:
    """Attest without entries: any process with an SVID that runs as one of these users."""
    allowed = frozenset(uids)

    def attest(process: CallingProcess) -> None:
        uid = process.observe().uid
        if uid not in allowed:
            raise CallerRefused(defect=f"user {uid} is none of those allowed")

    return attest
