"""Compressed archives of which the same content has the same octets, as layers of images."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

from images.archive import Content, write_layer


def write_tar(path: Path, seconds: int, files: Iterable[tuple[str, bytes, int]]) -> None:
    """
    Write an archive.

    Args:
        path: of the archive.
        seconds: the time of the files, since 1970.
        files: name, content and mode of each.
    """
    write_layer(path, ((name, Content(data, mode=mode, mtime=seconds)) for name, data, mode in files))


def rewrite_tar(path: Path, seconds: int) -> None:
    """
    Give the files of an archive one time and no owner: setuptools notes in an sdist when it made its own files.

    Args:
        path: of the archive, which holds files and folders only.
        seconds: the time of the files, since 1970.
    """
    with tarfile.open(path) as archive:
        found = [(each, archive.extractfile(each)) for each in archive.getmembers()]
        files = [(each.name, file.read(), 0o755 if each.mode & 0o100 else 0o644) for each, file in found if file]
    write_tar(path, seconds, files)
