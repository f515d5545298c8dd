"""
Space kept back for a full disk, and the lock that makes one process the owner of a database.

The file beside the database holds real blocks. When the disk is full they are given back, so that the records of
exchanges that are already running still find a place.
"""

from __future__ import annotations

import fcntl
import os

from svc.store.errors import StoreInUse


class Reserve:
    """
    The preallocated file.

    Args:
        path: of the file.
        size: octets kept back; 0 keeps none, the lock remains.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
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

    def fill(self) -> None:
        """
        Take the blocks.

        Raises:
            OSError: where the disk does not have them; nothing is kept then.
        """
        if self._descriptor is None or not self.size:
            return
        try:
            os.posix_fallocate(self._descriptor, 0, self.size)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the blocks back."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """Give up the lock; the blocks stay for the next start."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
