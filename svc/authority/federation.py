"""Bundles of federated trust domains, read from files that an operator keeps current."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from svc.authority.bundlefile import read_jwt_keys
from svc.authority.config import FederationSettings
from svc.authority.domain import ForeignDomain, LocalDomain
from svc.authority.report import AuthorityLog
from svc.errors import SvcError
from svc.identity.bundle import X509Bundle
from svc.identity.spiffeid import TrustDomain
from svc.identity.trustbundle import parse_bundle_file
from svc.pqissuer.roots import PqRootRing
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


def watched_files(
    federated: Iterable[FederationSettings],
    domain: LocalDomain | None,
    pq: Callable[[], PqRootRing | None],
    report: AuthorityLog,
) -> list[WatchedFile]:
    """The files of federated trust domains; their roots go into the domain, and into the PQ roots if there are any."""
    found = []
    for each in federated:
        if each.bundleFile is not None:
            found.append((each.bundleFile, partial(_take_bundle, each.bundleFile, each.trustDomain, domain, report)))
        if each.pqBundleFile is not None:
            found.append((each.pqBundleFile, partial(_take_pq, each.pqBundleFile, each.trustDomain, pq, report)))
    return [WatchedFile(path, take, report.file_refused) for path, take in found]


def _take_bundle(path: str, name: TrustDomain, domain: LocalDomain | None, report: AuthorityLog) -> None:
    if domain is not None and domain.set_foreign(read_foreign(path, name)):
        report.federated(name, path)


def _take_pq(path: str, name: TrustDomain, pq: Callable[[], PqRootRing | None], report: AuthorityLog) -> None:
    found, roots = read_foreign_pq(path, name), pq()
    if roots is not None and roots.set_foreign(found.bundle, found.sequence):
        report.federated(name, path)


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
