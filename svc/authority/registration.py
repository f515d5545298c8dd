"""
Matches callers against the registration entries.

Every selector that an entry names must match, and an entry without user or group is impossible: the program of a
process is read after it connected, so any local user could connect, pass the connection on, and then run the program.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from svc.authority.attestation import Caller, FileIdentity
from svc.identity.spiffeid import SpiffeID


@dataclass(frozen=True, slots=True)
class Selectors:
    """
    What a caller must be; None matches any value.

    Symbolic links in ``executable`` are resolved; ``sha256`` is that of the program, in lower-case hexadecimal.
    """

    uid: int | None = None
    gid: int | None = None
    executable: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.uid is None and self.gid is None:
            raise ValueError("an entry without user or group would give its identity to every local user")

    def match(self, caller: Caller, digest: Callable[[], str | None]) -> bool:
        """Whether every selector matches; ``digest`` is called only if a digest is required and all else matches."""
        if self.uid is not None and caller.uid != self.uid:
            return False
        if self.gid is not None and caller.gid != self.gid:
            return False
        if self.executable is not None and not _runs(caller, self.executable):
            return False
        return self.sha256 is None or digest() == self.sha256


def _runs(caller: Caller, executable: str) -> bool:
    """
    Compare the file itself, not only its path.

    A process in another mount namespace can run a file of any path, so the path must be equal and the file at this path
    must be the one that it runs.
    """
    real = os.path.realpath(executable)
    if caller.executable != real or caller.file is None:
        return False
    try:
        status = os.stat(real)
    except OSError:
        return False
    return caller.file == FileIdentity(status.st_dev, status.st_ino)


@dataclass(frozen=True, slots=True)
class Entry:
    """
    A registration entry: an identity, who gets it, and the lifetimes of its SVIDs.

    With ``hint`` a caller distinguishes its identities (Workload API, section 5.2.1).
    """

    spiffe_id: SpiffeID
    selectors: Selectors
    ttl: timedelta
    jwt_ttl: timedelta
    hint: str = ""


class Registry:
    """The registration entries in the order of the configuration; the first match gives the default identity."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    def match(self, caller: Caller, digest: Callable[[], str | None]) -> tuple[Entry, ...]:
        """The matching entries, the first one for each SPIFFE ID; ``digest`` is called at most once."""
        once = functools.cache(digest)
        found: dict[SpiffeID, Entry] = {}
        for entry in self.entries:
            if entry.spiffe_id not in found and entry.selectors.match(caller, once):
                found[entry.spiffe_id] = entry
        return tuple(found.values())
