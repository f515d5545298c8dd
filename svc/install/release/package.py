"""
The file of a release package: written in one go, read at random without unpacking, and verified as a whole.

A package is a tar archive that is not compressed: its layers are. The same release gives the same octets.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from svc.folders import sync_folder
from svc.install.release.document import DOCUMENT, MAX_DOCUMENT, MAX_MANIFEST, Content
from svc.install.release.errors import PackageRefused
from svc.install.release.headers import BLOCK, RECORD, header, padding, read_header
from svc.install.release.layout import (
    INDEX_FILE,
    MAX_ENTRIES,
    check_octets,
    entry_order,
    entry_size,
    package_entries,
    platforms_of,
)
from svc.install.release.manifests import Blob, Contents, read_all, read_contents
from svc.install.release.signature import MAX_SIGNATURE, SIGNATURE, SignedRelease, verify_release
from svc.license.vendors import VendorKey

_CHUNK: Final = 1024 * 1024
#: What the part of a name says that a package has while it is written.
PARTIAL: Final = ".tmp"


@dataclass(frozen=True)
class Entry:
    """Where the content of an entry is in the file."""

    offset: int
    size: int


class PackageFile:
    """
    A package that is open for reading; a context manager that closes it.

    Opening reads the headers alone: each must be as it is written, in order, up to the end of the file.

    Args:
        path: of the file.

    Raises:
        PackageRefused: it cannot be read, or is no package.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with _readable(self.path):
            # A pipe does not keep the reader waiting.
            self._file = open(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")  # noqa: SIM115
        try:
            with _readable(self.path):
                status = os.fstat(self._file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise PackageRefused("package_unreadable", path=self.path, detail="it is not a regular file")
                self._size = status.st_size
                self.entries: Mapping[str, Entry] = self._scan()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, name: str, limit: int = MAX_MANIFEST) -> bytes:
        """
        Read an entry as a whole.

        Raises:
            PackageRefused: there is none, or it has more octets than the limit.
        """
        entry = self._entry(name, "it is needed to verify the others")
        if entry.size > limit:
            raise PackageRefused("package_entry_size", entry=name, size=entry.size, expected=f"at most {limit}")
        with self.open(name) as file:
            return file.read()

    def open(self, name: str) -> BinaryIO:
        """
        Open an entry for reading, at a position of its own; its content is not compared with a digest.

        Raises:
            PackageRefused: there is none.
        """
        entry = self._entry(name, "it is to be read")
        return io.BufferedReader(_Window(self._file.fileno(), entry, name), _CHUNK)

    def digest(self, name: str) -> str:
        """Compute the digest of an entry."""
        hashed = hashlib.sha256()
        with _readable(self.path), self.open(name) as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
        return f"sha256:{hashed.hexdigest()}"

    def _entry(self, name: str, what: str) -> Entry:
        if name not in self.entries:
            raise PackageRefused("package_entry_missing", entry=name, what=what)
        return self.entries[name]

    def _scan(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        at, before = 0, ""
        while True:
            block = self._exactly(at, BLOCK, f"the header behind {before}" if before else "the first header")
            if block == bytes(BLOCK):
                break
            name, size = read_header(block, before)
            if not found and name != DOCUMENT:
                raise PackageRefused("package_entry_missing", entry=DOCUMENT, what=f"the first entry is {name}")
            if found and entry_order(name) <= entry_order(before):
                raise PackageRefused("package_order", entry=name, before=before)
            if len(found) == MAX_ENTRIES:
                raise PackageRefused("package_entries", limit=MAX_ENTRIES)
            found[name] = Entry(at + BLOCK, size)
            end = at + BLOCK + size
            if end > self._size:
                raise PackageRefused("package_cut", entry=name, size=self._size)
            if self._exactly(end, padding(size), name).strip(b"\0"):
                raise PackageRefused("package_padding", entry=name)
            at, before = end + padding(size), name
        end = at + 2 * BLOCK
        end += -end % RECORD
        if self._size > end:
            raise PackageRefused("package_trailing", size=self._size - end)
        if self._exactly(at, end - at, "its end").strip(b"\0"):
            raise PackageRefused("package_padding", entry=before or "the begin")
        return found

    def _exactly(self, at: int, size: int, entry: str) -> bytes:
        octets = os.pread(self._file.fileno(), size, at)
        if len(octets) < size:
            raise PackageRefused("package_cut", entry=entry, size=self._size)
        return octets


class _Window(io.RawIOBase):
    """The octets of one entry."""

    def __init__(self, descriptor: int, entry: Entry, name: str) -> None:
        self._descriptor, self._entry, self._name, self._at = descriptor, entry, name, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._entry.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._entry.size - self._at))
        octets = os.pread(self._descriptor, wanted, self._entry.offset + self._at)
        if wanted and not octets:
            # Somebody cuts the file while it is read.
            raise PackageRefused("package_cut", entry=self._name, size=self._entry.offset + self._at)
        buffer[: len(octets)] = octets
        self._at += len(octets)
        return len(octets)


@dataclass(frozen=True)
class VerifiedPackage:
    """
    A package of which every octet was compared with what the vendor signed. :func:`verify_package` makes it.

    Attributes:
        file: the open file; who closes it is who opened it.
    """

    signed: SignedRelease
    contents: Contents
    file: PackageFile = field(repr=False)

    def open(self, blob: Blob) -> BinaryIO:
        """
        Open a blob for reading. Compare its digest again where it is used: the file may change after it was verified.

        Raises:
            PackageRefused: there is none.
        """
        return self.file.open(blob.content.entry)


def verify_package(
    file: PackageFile, keys: Sequence[VendorKey], progress: Callable[[int], object] = lambda _size: None
) -> VerifiedPackage:
    """
    Verify a package: the signature first, then that it has each entry of the release and no other, with its content.

    Args:
        file: the package.
        keys: those that are accepted, normally :func:`svc.install.release.keys.release_keys`.
        progress: is called with the octets of each entry that was verified.

    Raises:
        ReleaseRefused: for document, signature and what they refer to.
        PackageRefused: for an entry; names it.
    """
    signed = verify_release(file.read(DOCUMENT, MAX_DOCUMENT), file.read(SIGNATURE, MAX_SIGNATURE), keys)
    index = file.read(INDEX_FILE)
    reading = read_contents(signed.release, platforms_of(index, signed.release))
    contents = read_all(reading, lambda blob: _checked(file, blob))
    expected = package_entries(signed, contents)
    wanted = {blob.content.entry: blob.what for each in contents.manifests for blob in (each.blob, *each.blobs)}
    for name in expected:
        if name not in file.entries:
            what = wanted.get(name, "the release has it")
            raise PackageRefused("package_entry_missing", entry=name, what=what)
    for name in file.entries:
        if name not in expected:
            raise PackageRefused("package_entry_extra", entry=name)
    for name, each in expected.items():
        _verify_entry(file, name, each)
        progress(entry_size(each))
    return VerifiedPackage(signed, contents, file)


def write_package(
    path: str | Path,
    signed: SignedRelease,
    contents: Contents,
    source: Callable[[str], BinaryIO],
    progress: Callable[[int], object] = lambda _size: None,
) -> str:
    """
    Write a package, verify what was written, and give it its name; returns its digest.

    A file of that name is replaced. What fails leaves no file behind.

    Args:
        path: of the package.
        signed: the release.
        contents: what belongs to the platforms of the package.
        source: opens the content of an entry by its path in the package, for blobs and the files of the release.
        progress: is called with the octets of each entry that was written, then of each that was verified.

    Raises:
        PackageRefused: it cannot be written, or a source gives other octets than those of the digest.
    """
    path = Path(path)
    partial = path.with_name(f"{path.name}{PARTIAL}")
    entries = package_entries(signed, contents)
    try:
        with _writable(path):
            # Of a run that was killed.
            partial.unlink(missing_ok=True)
        with _writable(path), partial.open("xb") as file:
            digest = _write(file, entries, source, progress)
            file.flush()
            os.fsync(file.fileno())
        with PackageFile(partial) as written:
            verify_package(written, (signed.key,), progress)
        with _writable(path):
            partial.replace(path)
            sync_folder(str(path.absolute().parent))
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    return digest


def _write(
    file: BinaryIO,
    entries: Mapping[str, bytes | Content],
    source: Callable[[str], BinaryIO],
    progress: Callable[[int], object],
) -> str:
    hashed = hashlib.sha256()
    written = 0

    def put(octets: bytes) -> None:
        nonlocal written
        hashed.update(octets)
        file.write(octets)
        written += len(octets)

    for name, entry in entries.items():
        size = entry_size(entry)
        put(header(name, size))
        if isinstance(entry, bytes):
            put(entry)
        else:
            with source(name) as opened:
                for chunk in _compared(opened, name, entry):
                    put(chunk)
        put(bytes(padding(size)))
        progress(size)
    put(bytes(2 * BLOCK))
    put(bytes(-written % RECORD))
    return f"sha256:{hashed.hexdigest()}"


def _compared(opened: BinaryIO, name: str, expected: Content) -> Iterator[bytes]:
    """Give the octets of a source, and refuse it where they are not those that were expected."""
    hashed = hashlib.sha256()
    size = 0
    while chunk := opened.read(_CHUNK):
        size += len(chunk)
        if size > expected.size:
            break
        hashed.update(chunk)
        yield chunk
    if size != expected.size:
        more = "more than " if size > expected.size else ""
        raise PackageRefused(
            "package_entry_size", entry=name, size=f"{more}{min(size, expected.size)}", expected=expected.size
        )
    _compare_digest(name, f"sha256:{hashed.hexdigest()}", expected)


def _verify_entry(file: PackageFile, name: str, expected: bytes | Content) -> None:
    size = file.entries[name].size
    if isinstance(expected, bytes):
        check_octets(name, file.read(name, max(MAX_MANIFEST, len(expected))), expected)
        return
    if size != expected.size:
        raise PackageRefused("package_entry_size", entry=name, size=size, expected=expected.size)
    _compare_digest(name, file.digest(name), expected)


def _checked(file: PackageFile, blob: Blob) -> bytes:
    """Read a manifest or a configuration and compare it."""
    name = blob.content.entry
    if name not in file.entries:
        raise PackageRefused("package_entry_missing", entry=name, what=blob.what)
    _verify_entry(file, name, blob.content)
    return file.read(name)


def _compare_digest(name: str, found: str, expected: Content) -> None:
    if found != expected.digest:
        raise PackageRefused("package_entry_digest", entry=name, found=found, expected=expected.digest)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
        raise PackageRefused("package_unreadable", path=path, detail=detail) from error


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
        raise PackageRefused("package_unwritable", path=path, detail=detail) from error
