"""
Which process gets which identities.

Owns the matching of a caller against the registration entries; knows nothing of sockets and certificates. Every
selector that an entry names must match, and an entry without a selector cannot be made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from svc.identity.spiffeid import SpiffeID
from svc.workload.authority.attestation import Caller, FileIdentity


@dataclass(frozen=True, slots=True)
class Selectors:
    """
    What a caller must be.

    Args:
        uid: its user, or None for any.
        gid: its primary group, or None for any.
        executable: the absolute path of the program it runs, or None for any. Symbolic links are resolved.
        sha256: the digest of that program in lower-case hexadecimal, or None for any.

    Raises:
        ValueError: no selector is given.
    """

    uid: int | None = None
    gid: int | None = None
    executable: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.uid is None and self.gid is None and self.executable is None and self.sha256 is None:
            raise ValueError("an entry without a selector would match every caller")

    def match(self, caller: Caller, digest: Callable[[], str | None]) -> bool:
        """
        Judge a caller.

        Args:
            caller: what the kernel says of it.
            digest: reads the SHA-256 of its program; asked only where a digest is demanded and all else matches.

        Returns:
            Whether every selector matches.
        """
        if self.uid is not None and caller.uid != self.uid:
            return False
        if self.gid is not None and caller.gid != self.gid:
            return False
        if self.executable is not None and not _runs(caller, self.executable):
            return False
        return self.sha256 is None or digest() == self.sha256


def _runs(caller: Caller, executable: str) -> bool:
    """
    Compare the very file, not only its name.

    A process in another mount namespace can run a file of any name; so the path must be equal and the file that stands
    at this path here must be the one that it runs.
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
    One registration entry.

    Args:
        spiffe_id: the identity that matching callers get.
        selectors: what a caller must be.
        ttl: how long an X.509-SVID lives.
        jwt_ttl: how long a JWT-SVID lives.
        hint: how a caller with several identities tells them apart (Workload API, section 5.2.1); may be empty.
    """

    spiffe_id: SpiffeID
    selectors: Selectors
    ttl: timedelta
    jwt_ttl: timedelta
    hint: str = ""


class Registry:
    """
    The registration entries in the order of the configuration.

    Args:
        entries: the entries; the first one that matches gives the default identity.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    def match(self, caller: Caller, digest: Callable[[], str | None]) -> tuple[Entry, ...]:
        """
        Find what a caller is entitled to.

        Args:
            caller: what the kernel says of it.
            digest: as in :meth:`Selectors.match`; called at most once.

        Returns:
            The matching entries, one for each SPIFFE ID, the first one of the configuration winning.
        """
        once = _Once(digest)
        found: dict[SpiffeID, Entry] = {}
        for entry in self.entries:
            if entry.spiffe_id not in found and entry.selectors.match(caller, once):
                found[entry.spiffe_id] = entry
        return tuple(found.values())


class _Once:
    """Remembers the answer of a call without arguments."""

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._answers: list[str | None] = []

    def __call__(self) -> str | None:
        if not self._answers:
            self._answers.append(self._ask())
        return self._answers[0]
