"""
A folder of files that change together, as Kubernetes writes the files of a volume.

The files of a version are in a folder ``..VERSION``. The link ``..data`` names the version in force and is replaced
atomically; each name in the folder is a link through it. Who opens ``..data`` once reads one version. Everything whose
name begins with two dots belongs to the writer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from svc.errors import SvcError
from svc.folders import make_public_folder, probe_folder
from svc.workload.files import refuse_open_folder

DATA: Final = "..data"


class FilesUnwritable(SvcError):
    """the files in {folder} could not be written: {why}"""

    reason = "files_unwritable"
    hint = "is the folder around it there, may this user write it and give files away, and is there room on its disk?"


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """
    One file of a version.

    Args:
        path: relative; at most one folder and a name.
        data: its content.
        mode: its permissions, which are never wider.
        uid: its owner, -1 for the user of this process.
        gid: its group, -1 for that of this process.
    """

    path: str
    data: bytes = field(repr=False)
    mode: int = 0o644
    uid: int = -1
    gid: int = -1


class VersionedFolder:
    """
    One folder and its versions; the methods block.

    Args:
        path: the folder, which is made where the one around it is there. It must belong to root or to the own user, and
            be writable for nobody else.
        own_uid: the user allowed beside root; the effective user by default.
    """

    def __init__(self, path: str, *, own_uid: int | None = None) -> None:
        self.path = path
        self._own_uid = own_uid

    def write(self, files: Sequence[VersionedFile]) -> str:
        """
        Put another version in force, durably, and remove all others.

        Returns:
            The name of the version.

        Raises:
            FilesUnwritable, FileRefused: the version before stays, and nothing of the new one.
        """
        try:
            make_public_folder(self.path)
            with self._opened() as folder:
                return self._write(folder, files)
        except OSError as error:
            raise FilesUnwritable(folder=self.path, why=error.strerror or str(error)) from error

    def has(self, version: str) -> bool:
        """Whether a version is in force."""
        try:
            return os.readlink(os.path.join(self.path, DATA)) == version
        except OSError:
            return False

    def probe(self, uid: int = -1, gid: int = -1) -> None:
        """Find out whether such files can be written, without making one; raises as :meth:`write`."""
        try:
            if not os.path.isdir(self.path):
                probe_folder(os.path.dirname(self.path), uid, gid)
                return
            with self._opened():
                probe_folder(self.path, uid, gid)
        except OSError as error:
            raise FilesUnwritable(folder=self.path, why=error.strerror or str(error)) from error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            refuse_open_folder(self.path, own_uid=self._own_uid, opened=folder)
            yield folder
        finally:
            os.close(folder)

    def _write(self, folder: int, files: Sequence[VersionedFile]) -> str:
        names = {each.path.partition("/")[0] for each in files}
        _refuse_folders(folder, names)
        # What a process left that was killed; on a full disk it takes up room.
        _remove_versions(folder, but=_target(folder, DATA))
        version = f"..{secrets.token_hex(8)}"
        try:
            _make_version(folder, version, files)
            os.fsync(folder)
            _link(folder, DATA, version)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(folder, version)
            raise
        os.fsync(folder)
        _link_names(folder, names)
        _remove_versions(folder, but=version)
        os.fsync(folder)
        return version


def _refuse_folders(folder: int, names: set[str]) -> None:
    """A link replaces a file of its name, but no folder."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, f"there is a folder named {name}")


def _make_version(folder: int, version: str, files: Iterable[VersionedFile]) -> None:
    # Closed to others while it is filled.
    os.mkdir(version, 0o700, dir_fd=folder)
    made = [version]
    for each in files:
        path = f"{version}/{each.path}"
        around = os.path.dirname(path)
        if around not in made:
            os.mkdir(around, 0o700, dir_fd=folder)
            made.append(around)
        _make_file(folder, path, each)
    for name in reversed(made):
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fchmod(descriptor, 0o755)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_file(folder: int, path: str, file: VersionedFile) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600, dir_fd=folder), "wb") as opened:
        opened.write(file.data)
        opened.flush()
        # The mode comes last: until then nobody but this process's user may read it.
        os.fchown(opened.fileno(), file.uid, file.gid)
        os.fchmod(opened.fileno(), file.mode)
        os.fsync(opened.fileno())


def _link_names(folder: int, names: set[str]) -> None:
    """Have the names of the files, and no others, lead to the version in force."""
    for name in sorted(names):
        if _target(folder, name) != f"{DATA}/{name}":
            _link(folder, name, f"{DATA}/{name}")
    for name in os.listdir(folder):
        if name not in names and _target(folder, name) == f"{DATA}/{name}":
            os.unlink(name, dir_fd=folder)


def _link(folder: int, name: str, target: str) -> None:
    """Make a link, or replace what has its name."""
    temporary = f"..new.{name}"
    os.symlink(target, temporary, dir_fd=folder)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _target(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _remove_versions(folder: int, *, but: str | None) -> None:
    for name in os.listdir(folder):
        if name.startswith("..") and name not in (DATA, but):
            _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
