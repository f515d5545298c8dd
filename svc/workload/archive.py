"""The file with the archive of roots, each with the times when it was first and last seen."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from svc.identity.archive import BundleArchive
from svc.identity.bundle import BundleMalformed, BundleSet
from svc.workload.errors import ArchiveUnusable
from svc.workload.files import FileMissing, FileRefused, read_trusted, write_atomically


class ArchiveFile:
    """
    An archive and its file. Evidence of years ago is verified with it, so nothing is ever dropped silently.

    The file may belong to root or ``own_uid``, the effective user by default.
    """

    def __init__(self, path: str | Path, *, own_uid: int | None = None) -> None:
        self.path = str(path)
        self._own_uid = own_uid
        self._archive: BundleArchive | None = None

    @property
    def archive(self) -> BundleArchive:
        """The archive as last read or written."""
        return self._archive if self._archive is not None else self.load()

    def load(self) -> BundleArchive:
        """
        Read the file; an absent one is an empty archive.

        Raises:
            ArchiveUnusable: the file is refused or malformed; it is not changed.
        """
        try:
            self._archive = BundleArchive.parse(read_trusted(self.path, own_uid=self._own_uid))
        except FileMissing:
            self._archive = BundleArchive()
        except (FileRefused, BundleMalformed) as error:
            raise ArchiveUnusable(path=self.path, defect=error.evidence["defect"]) from error
        return self._archive

    def observe(self, spiffe: BundleSet, now: datetime, *, pq: BundleSet | None = None) -> bool:
        """
        Add the current bundles and write the file if that changed the archive.

        Args:
            spiffe: all current SPIFFE bundles.
            now: the time, aware.
            pq: all current post-quantum bundles; None leaves those of the archive.

        Returns:
            Whether the file was written.

        Raises:
            ArchiveUnusable: as :meth:`load`.
            OSError: it cannot be written.
        """
        before = self.archive
        after = before.observe(spiffe, now, pq=pq)
        if after == before:
            return False
        write_atomically(self.path, after.serialize())
        self._archive = after
        return True
