"""The conditions of the authority, which ``/readyz`` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from svc.authority.federation import WatchedFile
from svc.errors import SvcError
from svc.pqissuer.rotation import KeyRing
from svc.telemetry.health import Health
from svc.workload.interface import WORKLOAD_API, CredentialSource, report_health

#: Every kind of root has one that has not expired.
ROOTS: Final = "roots"
#: Keys are stored and bundles are written. Not required: what was issued and published stays in use.
FILES: Final = "files"
LISTENERS: Final = "listeners"
#: Beside another SPIFFE implementation: it has given an SVID, without which no leaf can be issued.
CREDENTIALS: Final = "credentials"
#: The files and packages of federated trust domains are usable. Not required: their last usable version stays in use.
FEDERATION: Final = "federation"


class AuthorityHealth(Health):
    """
    The conditions of one authority.

    Args:
        pq_only: whether it runs beside another SPIFFE implementation.
        federated: whether it has files or packages of other trust domains.
    """

    def __init__(self, *, pq_only: bool, federated: bool, now: Callable[[], datetime]) -> None:
        names = [ROOTS, FILES, LISTENERS]
        if pq_only:
            names += [CREDENTIALS, WORKLOAD_API]
        if federated:
            names.append(FEDERATION)
        super().__init__(names, optional=(FILES, WORKLOAD_API, FEDERATION), now=now)

    def advanced(self, rings: Iterable[KeyRing[Any]], now: datetime, error: SvcError | None) -> None:
        """Set what the last rotation of keys and writing of files led to; ``error`` is why it failed."""
        current = all(any(now < slot.expires for slot in ring.announced) for ring in rings)
        if current:
            self.holds(ROOTS)
        elif error is not None:
            self.fails_with(ROOTS, error)
        self.report(FILES, error)

    def federated(self, files: Iterable[WatchedFile], ended: SvcError | None = None) -> None:
        """Set whether the files of federated trust domains are usable, and the packages of peers have not ended."""
        self.report(FEDERATION, next((each.error for each in files if each.error is not None), ended))

    def credentials(self, source: CredentialSource, now: datetime) -> None:
        """Set what the other SPIFFE implementation has given."""
        report_health(self, source.state)
        try:
            svid = source.svid
        except SvcError as error:
            self.fails_with(CREDENTIALS, error)
            return
        if now > svid.chain_not_after:
            until = svid.chain_not_after.isoformat(timespec="seconds")
            self.fails(CREDENTIALS, "expired", f"the SVID of {svid.spiffe_id} ended at {until}")
        else:
            self.holds(CREDENTIALS)
