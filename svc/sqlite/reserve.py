"""
Space kept back for a full disk, and the lock that makes one process the owner of a database.

The file beside the database holds real blocks. When the disk is full they are released, so that records of exchanges
already running can still be stored. The size of the file, which costs no blocks, also records the state of the database
for the next start: none was created here, one was created, or one was found damaged while in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

_CREATED: Final = 1
_SUSPECT: Final = 2


class Reserve:
    """The preallocated file; a size of 0 keeps no space back, the lock remains."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        #: Whether a database was created here before; known after :meth:`lock`, as the next.
        self.created = False
        #: Whether it was found damaged while in use.
        self.suspect = False
        self._descriptor: int | None = None

    def lock(self) -> None:
        """
        Become the owner of the database, until :meth:`close` or the end of the process.

        Raises:
            BlockingIOError: another process is the owner.
            OSError: the file cannot be opened.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self.created, self.suspect = size > 0, size == _SUSPECT

    @property
    def filled(self) -> bool:
        """Whether there are blocks to release."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_size > _SUSPECT

    def fill(self) -> None:
        """
        Allocate the blocks; called when the database is open and in order.

        Raises:
            OSError: the disk does not have them; none is kept then.
        """
        if self._descriptor is None:
            return
        if not self.size:
            self.release()
            return
        try:
            os.posix_fallocate(self._descriptor, 0, self.size)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the blocks."""
        self._resize(_CREATED)

    def mark_absent(self) -> None:
        """Note that there is no database here any more."""
        self._resize(0)

    def mark_suspect(self) -> None:
        """Note that the database was found damaged, so that the next start checks every page."""
        self._resize(_SUSPECT)

    def close(self) -> None:
        """Release the lock; the blocks stay for the next start."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _resize(self, size: int) -> None:
        if self._descriptor is not None:
            # A disk that became read-only refuses this too, and another error is being handled already.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, size)
