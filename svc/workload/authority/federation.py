"""
Bundles of federated trust domains, read from files that somebody keeps current.

Owns when a file is read again and what stays when it turns bad; gives what it read to those who serve it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from svc.errors import SvcError
from svc.identity.bundle import X509Bundle
from svc.identity.spiffeid import TrustDomain
from svc.identity.trustbundle import parse_bundle_file
from svc.workload.authority.bundlefile import read_jwt_keys
from svc.workload.authority.domain import ForeignDomain
from svc.workload.files import FileStamp, read_trusted
from svc.workload.pqfile import read_pq_bundles


class ForeignRootsMissing(SvcError):
    """{path} has no roots of {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "name the file that the other trust domain's authority writes"


@dataclass(frozen=True, slots=True)
class ForeignPq:
    """
    The PQ roots of a federated trust domain.

    Args:
        bundle: its roots.
        sequence: the number of their version.
    """

    bundle: X509Bundle
    sequence: int


class WatchedFile:
    """
    A file that is read again when it has changed.

    Args:
        path: the file.
        take: reads it and hands on what it says; raises :class:`~svc.errors.SvcError` where it is not usable.
        refused: hears of each new reason why it is not usable.
    """

    def __init__(self, path: str, take: Callable[[], None], refused: Callable[[str, SvcError], None]) -> None:
        self.path = path
        self._take = take
        self._refused = refused
        self._stamp: FileStamp | None = None
        self._error: str | None = ""

    def look(self) -> None:
        """Read the file if it has changed, or was not usable when it was last read."""
        stamp = FileStamp.of(self.path)
        if stamp is not None and stamp == self._stamp and self._error is None:
            return
        self._stamp = stamp
        try:
            self._take()
        except SvcError as error:
            if str(error) != self._error:
                self._refused(self.path, error)
            self._error = str(error)
        else:
            self._error = None


def read_foreign(path: str, trust_domain: TrustDomain) -> ForeignDomain:
    """
    Read the bundle of a federated trust domain.

    Args:
        path: a SPIFFE bundle, a bundle map or PEM certificates.
        trust_domain: whose bundle is wanted; nothing else of the file is believed.

    Returns:
        Its roots and JWT keys.

    Raises:
        FileMissing: there is no such file.
        FileRefused: others than root and the own user can write it or its folder.
        ForeignRootsMissing: it has no roots of this trust domain.
        SvcError: its content is not readable.
    """
    data = read_trusted(path)
    bundles = parse_bundle_file(data, trust_domain)
    if trust_domain not in bundles or not bundles.bundle_for(trust_domain).anchors:
        raise ForeignRootsMissing(path=path, trust_domain=trust_domain)
    return ForeignDomain(bundles.bundle_for(trust_domain), read_jwt_keys(data))


def read_foreign_pq(path: str, trust_domain: TrustDomain) -> ForeignPq:
    """
    Read the PQ roots of a federated trust domain.

    Args:
        path: a PQ bundle, such as the one of the other trust domain's authority.
        trust_domain: whose roots are wanted; nothing else of the file is believed.

    Returns:
        Its roots and their sequence.

    Raises:
        PqFileRefused: as :func:`~svc.workload.pqfile.read_pq_bundles`.
        ForeignRootsMissing: it has no roots of this trust domain.
    """
    entry = read_pq_bundles(path).entries.get(trust_domain)
    if entry is None:
        raise ForeignRootsMissing(path=path, trust_domain=trust_domain)
    return ForeignPq(entry.bundle, entry.sequence)
