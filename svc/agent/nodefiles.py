"""All SVIDs that an agent keeps as files, and how they stand together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from svc.agent.config import AgentSettings, FilesSettings
from svc.agent.notifying import notifier
from svc.agent.svidfiles import SvidFiles
from svc.agent.versions import VersionedFolder
from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.matchers import parse_matcher
from svc.identity.svid import X509Svid
from svc.notary.pqleaf import PqLeaf
from svc.workload.errors import PqFileMissing
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.pqfile import PqBundleSource, pq_bundle_path
from svc.workload.source import WorkloadSource


@dataclass(frozen=True, slots=True)
class _Identity:
    """One of several SVIDs, for TLS."""

    svid: X509Svid
    bundles: BundleSet


class NodeFiles(MultiService):
    """
    The files of all entries.

    Args:
        settings: the configuration.
        source: of SVIDs and bundles.
        reactor: the reactor.
        now: returns the time, aware.
        report: called with the first of the errors, or with None once all files are there and none may be old.
    """

    def __init__(
        self,
        settings: AgentSettings,
        source: WorkloadSource,
        reactor: Any,
        now: Callable[[], datetime],
        report: Callable[[SvcError | None], None],
    ) -> None:
        super().__init__()
        self._source = source
        self._reactor = reactor
        self._now = now
        self._report = report
        self._states: dict[int, SvcError | None] = {}
        written = None if settings.pqBundle is None else settings.pqBundle.file
        path = pq_bundle_path(written, {}, settings.spiffeSocketPath) or ""
        self._roots = PqBundleSource(path, reactor=reactor)
        if any(each.pqBundle is not None or each.pqIssuer is not None for each in settings.files):
            self._roots.setServiceParent(self)
        self._entries = [self._entry(number, each) for number, each in enumerate(settings.files)]
        for entry in self._entries:
            entry.setServiceParent(self)
            self._roots.subscribe(entry.look)

    def check(self) -> None:
        """Report files that have expired; called each second."""
        for entry in self._entries:
            entry.check()

    def _entry(self, number: int, settings: FilesSettings) -> SvidFiles:
        return SvidFiles(
            settings,
            self._source,
            VersionedFolder(settings.folder),
            obtain_leaf=None if settings.pqIssuer is None else partial(self._obtain_leaf, settings),
            pq_bundle=None if settings.pqBundle is None else lambda: self._roots.pq_bundles.serialize(),
            notify=notifier(settings, self._in_thread),
            in_thread=self._in_thread,
            clock=self._reactor,
            now=self._now,
            report=partial(self._settled, number),
        )

    def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call, *arguments)

    def _obtain_leaf(self, settings: FilesSettings, svid: X509Svid) -> Deferred[PqLeaf]:
        return fetch_pq_leaf(
            str(settings.pqIssuer),
            svid,
            # Over TLS the issuer wants to see the very identity that the leaf is for.
            _Identity(svid, self._source.bundles),
            self._reactor,
            now=self._now,
            pq_bundles=self._known_roots(),
            expected=None if settings.pqIssuerID is None else parse_matcher(settings.pqIssuerID),
            algorithm=settings.pqAlgorithm,
        )

    def _known_roots(self) -> BundleSet | None:
        """The roots that a leaf has to chain to; None without a file, since verifiers have their own."""
        try:
            return self._roots.bundles
        except PqFileMissing:
            return None

    def _settled(self, number: int, error: SvcError | None) -> None:
        self._states[number] = error
        errors = [each for _number, each in sorted(self._states.items()) if each is not None]
        if errors or len(self._states) == len(self._entries):
            self._report(errors[0] if errors else None)
