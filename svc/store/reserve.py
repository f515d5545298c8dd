"""
Space kept back for a full disk, and the lock that makes one process the owner of a database.

The file beside the database holds real blocks. When the disk is full they are given back, so that the records of
exchanges that are already running still find a place. Its size also tells the next start what is known of the database,
and costs no block: none was made here, one was made, or one was found damaged while it was in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from svc.store.errors import StoreInUse

_MADE: Final = 1
_SUSPECT: Final = 2


class Reserve:
    """
    The preallocated file.

    Args:
        path: of the file.
        size: octets kept back; 0 keeps none, the lock remains.

    Attributes:
        made: whether a database was made here before; known after :meth:`lock`.
        suspect: whether it was found damaged while it was in use; known after :meth:`lock`.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.made = False
        self.suspect = False
        self._descriptor: int | None = None

    def lock(self, database: str) -> None:
        """
        Become the owner of the database, until :meth:`close` or the end of the process.

        Args:
            database: its path, for the error.

        Raises:
            StoreInUse: where another process is the owner.
            OSError: where the file cannot be opened.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StoreInUse(path=database) from error
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self.made, self.suspect = size > 0, size == _SUSPECT

    @property
    def filled(self) -> bool:
        """Whether there are blocks to give back."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_size > _SUSPECT

    def fill(self) -> None:
        """
        Take the blocks; the database is there and in order.

        Raises:
            OSError: where the disk does not have them; nothing is kept then.
        """
        if self._descriptor is None:
            return
        if not self.size:
            self._keep(_MADE)
            return
        try:
            os.posix_fallocate(self._descriptor, 0, self.size)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the blocks back."""
        self._keep(_MADE)

    def forget(self) -> None:
        """There is no database here any more."""
        self._keep(0)

    def doubt(self) -> None:
        """The database was found damaged: the next start looks at all of it."""
        self._keep(_SUSPECT)

    def close(self) -> None:
        """Give up the lock; the blocks stay for the next start."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _keep(self, size: int) -> None:
        if self._descriptor is not None:
            # A disk that has become read-only refuses this too; it is called where another error is being answered.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, size)
