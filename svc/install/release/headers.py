"""
The headers of a package's tar archive (ustar, POSIX.1-2001): each entry has exactly one header that it can have.

No owner, no time, one mode, plain files alone; so there is nothing that a reader could interpret in another way.
"""

from __future__ import annotations

import re
import tarfile
from typing import Final

from svc.install.release.errors import PackageRefused

BLOCK: Final = tarfile.BLOCKSIZE
#: The end: two blocks of zeros, filled up to a record.
RECORD: Final = tarfile.RECORDSIZE
_MODE: Final = 0o644
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_SIZE: Final = re.compile(rb"[0-7]{11}\0")
#: Field, offset and octets, in the order in which they are compared.
FIELDS: Final = (
    *(("magic", 257, 6), ("version", 263, 2), ("typeflag", 156, 1), ("linkname", 157, 100), ("prefix", 345, 155)),
    *(("mode", 100, 8), ("uid", 108, 8), ("gid", 116, 8), ("size", 124, 12), ("mtime", 136, 12)),
    *(("uname", 265, 32), ("gname", 297, 32), ("devmajor", 329, 8), ("devminor", 337, 8), ("padding", 500, 12)),
    *(("name", 0, 100), ("chksum", 148, 8)),
)


def header(name: str, size: int) -> bytes:
    """
    Write the header of an entry.

    Raises:
        ValueError: for a size that it cannot say, or a name of more than 100 characters.
    """
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, _MODE, 0
    octets = entry.tobuf(tarfile.USTAR_FORMAT)
    if octets[345:500].strip(b"\0"):
        raise ValueError(f"{name} has more than 100 characters")
    return octets


def read_header(block: bytes, before: str) -> tuple[str, int]:
    """
    Read name and size of an entry from its header of :data:`BLOCK` octets.

    Args:
        block: the header.
        before: the name of the entry before it, for the error.

    Raises:
        PackageRefused: for a header that :func:`header` does not write.
    """
    raw = block[:100].rstrip(b"\0")
    name = raw.decode("ascii", "replace")
    if not _NAME.fullmatch(name):
        where = f"the entry behind {before}" if before else "the first entry"
        raise PackageRefused("package_header", entry=where, field="name", found=name, expected="a plain relative path")
    size = int(block[124:135], 8) if _SIZE.fullmatch(block[124:136]) else 0
    expected = header(name, size)
    for field, start, length in FIELDS:
        found, wanted = block[start : start + length], expected[start : start + length]
        if found != wanted:
            raise PackageRefused(
                "package_header", entry=name, field=field, found=_shown(found), expected=_shown(wanted)
            )
    return name, size


def _shown(value: bytes) -> str:
    return value.rstrip(b"\0").decode("latin-1") or "nothing"


def padding(size: int) -> int:
    """The number of zeros behind content of a size."""
    return -size % BLOCK
