"""
Durable folders: a new name survives a loss of power only when the folder that contains it is synchronized.

``fsync`` of the named file or folder itself does not do that (fsync(2)).
"""

from __future__ import annotations

import contextlib
import errno
import os

__all__ = ["is_absent", "make_folder", "make_public_folder", "probe_folder", "sync_folder"]


def is_absent(path: str) -> bool:
    """Whether there is nothing of this name, not even a link; False where that cannot be found out."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def make_folder(path: str, mode: int = 0o700) -> None:
    """
    Create a folder and its missing parents (0755); each is durable before the next is created.

    Raises:
        OSError: one cannot be created or synchronized; ``NotADirectoryError`` where a file has its name.
    """
    folder = os.path.abspath(path)
    parent = os.path.dirname(folder)
    if os.path.isdir(folder):
        # A process may have been killed between mkdir and sync. Best effort: we did not create the folder in a parent
        # that we cannot read, or on a file system that refuses to synchronize.
        if os.access(parent, os.R_OK):
            with contextlib.suppress(OSError):
                sync_folder(parent)
        return
    if not os.path.isdir(parent):
        make_folder(parent, 0o755)
    try:
        os.mkdir(folder, mode)
    except FileExistsError as error:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from error
    sync_folder(parent)


def make_public_folder(path: str) -> None:
    """
    Create a folder that all may read (0755), whatever the umask and the folder around it, which must be there.

    Raises:
        OSError: it cannot be created.
    """
    folder = os.path.abspath(path)
    if os.path.isdir(folder):
        return
    os.mkdir(folder, 0o755)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Without the group bit that it has from a volume of Kubernetes.
        os.fchmod(descriptor, 0o755)
    finally:
        os.close(descriptor)
    sync_folder(os.path.dirname(folder))


def sync_folder(folder: str) -> None:
    """
    Synchronize the names in a folder: files that were created, renamed or removed there.

    Raises:
        OSError: the folder is absent, or the disk failed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        # The folder may be written but not read; without a descriptor only all file systems can be synchronized.
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def probe_folder(folder: str, uid: int = -1, gid: int = -1) -> None:
    """
    Find out whether files can be made in a folder, without making one that has a name.

    Args:
        folder: which must be there.
        uid: whom a file is given to; -1 for nobody else.
        gid: the group that it is given to.

    Raises:
        OSError: they cannot.
    """
    try:
        with open(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
            os.fchown(file.fileno(), uid, gid)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        # A file system without files that have no name.
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error
