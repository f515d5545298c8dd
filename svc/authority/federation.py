"""Bundles of federated trust domains, read from files that an operator keeps current."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from svc.authority.bundlefile import read_jwt_keys
from svc.authority.domain import ForeignDomain
from svc.errors import SvcError
from svc.identity.bundle import X509Bundle
from svc.identity.spiffeid import TrustDomain
from svc.identity.trustbundle import parse_bundle_file
from svc.workload.files import FileStamp, read_trusted
from svc.workload.pqfile import read_pq_bundles


class ForeignRootsMissing(SvcError):
    """{path} has no roots of {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "name the file that the other trust domain's authority writes"


@dataclass(frozen=True, slots=True)
class ForeignPq:
    """The PQ roots of a federated trust domain, with the sequence number of their version."""

    bundle: X509Bundle
    sequence: int


class WatchedFile:
    """
    A file that is read again when it has changed.

    ``read`` reads and applies it, and raises ``SvcError`` if it is not usable. ``refused`` is called once for each new
    error; ``error`` is why the file is not usable now.
    """

    def __init__(self, path: str, read: Callable[[], None], refused: Callable[[str, SvcError], None]) -> None:
        self.path = path
        self._read = read
        self._refused = refused
        self._stamp: FileStamp | None = None
        self.error: SvcError | None = None

    def check(self) -> None:
        """Read the file if it has changed, or was not usable when it was last read."""
        stamp = FileStamp.of(self.path)
        if stamp is not None and stamp == self._stamp and self.error is None:
            return
        self._stamp = stamp
        try:
            self._read()
        except SvcError as error:
            if str(error) != str(self.error):
                self._refused(self.path, error)
            self.error = error
        else:
            self.error = None


def read_foreign(path: str, trust_domain: TrustDomain) -> ForeignDomain:
    """
    The roots and JWT keys of ``trust_domain`` in a SPIFFE bundle, a bundle map or PEM certificates.

    Raises ``FileMissing``, ``FileRefused`` if others can write it or its folder, or :class:`ForeignRootsMissing`.
    """
    data = read_trusted(path)
    bundles = parse_bundle_file(data, trust_domain)
    if trust_domain not in bundles or not bundles.bundle_for(trust_domain).anchors:
        raise ForeignRootsMissing(path=path, trust_domain=trust_domain)
    return ForeignDomain(bundles.bundle_for(trust_domain), read_jwt_keys(data))


def read_foreign_pq(path: str, trust_domain: TrustDomain) -> ForeignPq:
    """
    The PQ roots of ``trust_domain`` in a PQ bundle; raises as :func:`read_pq_bundles`, or :class:`ForeignRootsMissing`.
    """
    entry = read_pq_bundles(path).entries.get(trust_domain)
    if entry is None:
        raise ForeignRootsMissing(path=path, trust_domain=trust_domain)
    return ForeignPq(entry.bundle, entry.sequence)
