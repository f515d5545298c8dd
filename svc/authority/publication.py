"""
The files that an authority writes for others: SPIFFE bundle, PQ bundle, archive of roots.

Each is replaced atomically, and only when its content changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime

from svc.authority.bundlefile import pem_bundle, spiffe_bundle
from svc.authority.jwtsvid import JwtBundle
from svc.errors import SvcError
from svc.folders import make_public_folder
from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.pqbundle import PqBundles
from svc.workload.archive import ArchiveFile
from svc.workload.files import write_atomically


class PublicationFailed(SvcError):
    """{path} cannot be written: {what}"""

    reason = "publication_failed"
    hint = (
        "the user of svc-authority must be able to write the folder; an absent one is made, in a folder that is there"
    )


def make_folders(paths: Iterable[str]) -> None:
    """Make the folders of files and sockets, as far as they are absent; raises :class:`PublicationFailed`."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in paths):
        try:
            make_public_folder(folder)
        except OSError as error:
            raise PublicationFailed(path=f"the folder {folder}", what=error.strerror or str(error)) from error


class Publication:
    """Writes the files; None disables one. A SPIFFE bundle whose path ends in ``.pem`` is written as PEM."""

    def __init__(self, archive_path: str | None, pq_path: str | None, bundle_path: str | None) -> None:
        self._archive = ArchiveFile(archive_path) if archive_path else None
        self._pq_path = pq_path
        self._bundle_path = bundle_path
        self._written: dict[str, bytes] = {}
        self._pq: PqBundles | None = None

    def load(self) -> None:
        """Read the archive of an earlier instance; raises ``ArchiveUnusable``."""
        if self._archive is not None:
            self._archive.load()

    def publish_bundle(self, bundle: X509Bundle, jwt: JwtBundle, sequence: int) -> None:
        """Write the SPIFFE bundle; raises :class:`PublicationFailed`."""
        if self._bundle_path is None:
            return
        as_pem = self._bundle_path.endswith(".pem")
        self._write(self._bundle_path, pem_bundle(bundle) if as_pem else spiffe_bundle(bundle, jwt, sequence))

    def publish_roots(self, spiffe: BundleSet, pq: PqBundles | None, now: datetime) -> None:
        """Write the PQ bundle, if ``pq`` is known, and the archive; raises :class:`PublicationFailed`."""
        if pq is not None and self._pq_path is not None and pq is not self._pq:
            self._write(self._pq_path, pq.serialize())
            self._pq = pq
        if self._archive is not None:
            try:
                self._archive.observe(spiffe, now, pq=None if pq is None else pq.bundle_set())
            except OSError as error:
                raise PublicationFailed(path=self._archive.path, what=error.strerror or str(error)) from error

    def _write(self, path: str, data: bytes) -> None:
        if self._written.get(path) == data:
            return
        try:
            write_atomically(path, data)
        except OSError as error:
            raise PublicationFailed(path=path, what=error.strerror or str(error)) from error
        self._written[path] = data
