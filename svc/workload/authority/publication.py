"""
The files that an authority keeps for others: SPIFFE bundle, PQ bundle, archive of roots.

Owns when each is written; every one is replaced atomically and only when its content changes.
"""

from __future__ import annotations

from datetime import datetime

from svc.errors import SvcError
from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.pqbundle import PqBundles
from svc.workload.archive import ArchiveFile
from svc.workload.authority.bundlefile import pem_bundle, spiffe_bundle
from svc.workload.authority.jwtsvid import JwtBundle
from svc.workload.files import write_atomically


class PublicationFailed(SvcError):
    """{path} cannot be written: {what}"""

    reason = "publication_failed"
    hint = "the folder must exist and be writable by the user of svc-authority"


class Publication:
    """
    Writes the files.

    Args:
        archive_path: the archive of roots, or None for none.
        pq_path: the PQ bundle, or None for none.
        bundle_path: the SPIFFE bundle, as JSON or, where it ends in ``.pem``, as PEM; None for none.
    """

    def __init__(self, archive_path: str | None, pq_path: str | None, bundle_path: str | None) -> None:
        self._archive = ArchiveFile(archive_path) if archive_path else None
        self._pq_path = pq_path
        self._bundle_path = bundle_path
        self._written: dict[str, bytes] = {}
        self._pq: PqBundles | None = None

    def load(self) -> None:
        """
        Read what an earlier instance left.

        Raises:
            ArchiveUnusable: the archive is refused or malformed.
        """
        if self._archive is not None:
            self._archive.load()

    def publish_bundle(self, bundle: X509Bundle, jwt: JwtBundle, sequence: int) -> None:
        """
        Write the SPIFFE bundle.

        Args:
            bundle: the roots.
            jwt: the JWT keys.
            sequence: the number of this version.

        Raises:
            PublicationFailed: it cannot be written.
        """
        if self._bundle_path is None:
            return
        as_pem = self._bundle_path.endswith(".pem")
        self._write(self._bundle_path, pem_bundle(bundle) if as_pem else spiffe_bundle(bundle, jwt, sequence))

    def publish_roots(self, spiffe: BundleSet, pq: PqBundles | None, now: datetime) -> None:
        """
        Write the PQ bundle and the archive.

        Args:
            spiffe: all SPIFFE bundles in force.
            pq: all PQ roots, or None where nothing is known of them.
            now: the time.

        Raises:
            PublicationFailed: one of them cannot be written.
        """
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
