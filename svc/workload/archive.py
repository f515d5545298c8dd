"""
The archive of roots beside a Workload API socket: each root with first and last seen.

Owns reading and replacing the file; what an archive is belongs to ``svc.identity.archive``.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from svc.identity.archive import BundleArchive
from svc.identity.bundle import BundleMalformed, BundleSet
from svc.workload.errors import ArchiveUnusable
from svc.workload.files import FileMissing, FileRefused, read_trusted, write_atomically


class ArchiveFile:
    """
    An archive and its file; evidence of years ago is judged by it, so nothing is ever dropped silently.

    Args:
        path: the file; made at the first change.
        own_uid: the user allowed beside root; the effective user by default.
    """

    def __init__(self, path: str | Path, *, own_uid: int | None = None) -> None:
        self.path = str(path)
        self._own_uid = own_uid
        self._archive: BundleArchive | None = None

    @property
    def archive(self) -> BundleArchive:
        """
        The archive as last read or written.

        Raises:
            ArchiveUnusable: as :meth:`load`.
        """
        return self._archive if self._archive is not None else self.load()

    def load(self) -> BundleArchive:
        """
        Read the file.

        Returns:
            The archive; an empty one where there is no file.

        Raises:
            ArchiveUnusable: the file is refused or malformed; it is left as it is.
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
        Enter the bundles in force and write the file where that changed something.

        Args:
            spiffe: all SPIFFE bundles in force.
            now: the time.
            pq: all post-quantum bundles in force; None leaves what the archive has.

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
