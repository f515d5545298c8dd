"""
The authority as a Twisted service: the composition of its parts, the order of the start, and the tick of one second.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from cryptography import x509
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from svc.authority.conditions import LISTENERS, AuthorityHealth
from svc.authority.config import AuthoritySettings, PqSettings, load_settings
from svc.authority.domain import LocalDomain, make_domain
from svc.authority.federating import Federating, begin_federation, read_peers
from svc.authority.federation import WatchedFile, watched_files
from svc.authority.federation_site import federation_site
from svc.authority.keystore import KeyStore, ReadOnlyKeys, StoredKeys, serialized_keys
from svc.authority.listeners import OwnIdentity, UnixListener, WorkloadApiListener
from svc.authority.pqcallers import Attest, UnixCaller, listed, registered
from svc.authority.publication import Publication, make_folders
from svc.authority.report import AuthorityLog, HandshakeLog, LibraryLogHandler
from svc.authority.socketfile import check_free
from svc.authority.status import authority_members, authority_tables, authority_totals
from svc.authority.workload_api import WorkloadApi
from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.verification import SvidEvidence
from svc.notary.errors import NotaryRefused
from svc.notary.pqissuer import PqIssuer
from svc.pages.callers import TlsCaller
from svc.pages.elements import Table
from svc.pages.mutual_tls import TlsListener
from svc.pqissuer.endpoint import PqService, pq_site
from svc.pqissuer.nodes import NodeReport, ServingNodes
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import KeyRing, Slot
from svc.process.clock import ClockWatch, utc_now
from svc.process.daemon import Daemon
from svc.process.lifecycle import stop_if_running
from svc.process.options import print_error
from svc.settings import ENVIRONMENT
from svc.transport.addresses import TcpAddress
from svc.transport.creators import TlsIdentity
from svc.workload.errors import CredentialsMissing, PqFileMissing
from svc.workload.pqfile import read_pq_bundles
from svc.workload.source import WorkloadSource

_LIBRARIES: Final = ("grpclib", "asyncio")


class Authority(Daemon[AuthoritySettings]):
    """
    An authority with a trust domain of its own, or a PQ issuer only.

    ``config_path`` is read again when it changes, for its entries; an environment variable does not. Further arguments
    are those of :class:`~svc.process.daemon.Daemon`.
    """

    def __init__(
        self,
        settings: AuthoritySettings,
        reactor: Any,
        *fatal_and_load: Callable[[], Any],
        config_path: str | None = None,
        now: Callable[[], datetime] = utc_now,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        health = AuthorityHealth(pq_only=settings.pq_only, federated=_federates(settings), now=now)
        super().__init__(settings, reactor, health, *fatal_and_load)
        self._health: AuthorityHealth = health
        self._now = now
        self._random = random
        self._report = AuthorityLog(reactor.seconds)
        self._clock_watch = ClockWatch(now, reactor.seconds)
        self._status = self.serve_pages(
            "authority", lambda: authority_totals(self._report), self._members, tables=self._tables
        )
        self._listeners: list[Service] = []
        self._api: WorkloadApi | None = None
        self._registry = settings.registry
        self._domain = None if settings.pq_only else self._make_domain()
        self._source = self._make_source()
        self._pq: PqRootRing | None = None
        self._federating: Federating | None = None
        life = (settings.pqIssuer or PqSettings()).reportLife
        self._nodes = ServingNodes(reactor.seconds(), life)
        self._signing: x509.Certificate | None = None
        self._keys = _stored_keys(settings)
        pq_path = settings.pq_bundle_path if self._has_pq else None
        self._publication = Publication(settings.archive_path, pq_path, settings.bundleFile)
        self._federated_files = watched_files(settings.federatesWith, self._domain, lambda: self._pq, self._report)
        self._files = (*self._federated_files, *self._own_file(config_path), *self._keys_file())
        self._failed = ""
        self._library_log = LibraryLogHandler(logging.WARNING)

    @property
    def _has_pq(self) -> bool:
        settings = self.settings
        by_files = any(each.pqBundleFile for each in settings.federatesWith)
        return settings.pqIssuer is not None or settings.federation is not None or by_files

    async def open(self) -> None:
        """Write the files, open the sockets."""
        for name in _LIBRARIES:
            logging.getLogger(name).addHandler(self._library_log)
        make_folders(self.settings.made_paths)
        self._publication.load()
        # Before anything is written: a second authority must not change the files of the running one.
        for path in self.settings.socket_paths:
            check_free(path)
        self._load_keys(self._now())
        self._advance(self._now())
        self._show_health(self._now(), None)
        for each in self._make_listeners():
            self._listeners.append(each)
            each.startService()
        if self._source is not None:
            self._source.startService()
            self._source.when_ready().addErrback(self._still_waiting)
        self._health.holds(LISTENERS)
        self._report.record(
            "svc.authority.started",
            {},
            {"trust_domain": str(self.settings.trustDomain), "pq_only": self.settings.pq_only},
        )

    def start_failed(self, failure: Failure) -> None:
        """Print why, too: the log may be a file."""
        if isinstance(failure.value, SvcError):
            print_error(failure.value)

    async def finish(self) -> None:
        self._health.fails(LISTENERS, "draining", "the sockets are being closed")

    def closing(self) -> Iterable[Callable[[], object]]:
        """Sockets and keys; without a ``dataDir`` the keys end with the process."""
        services = (*self._listeners, self._source)
        return (*(partial(stop_if_running, each) for each in services), self._close_keys, self._leave_library_logs)

    def _leave_library_logs(self) -> None:
        for name in _LIBRARIES:
            logging.getLogger(name).removeHandler(self._library_log)

    def reload(self) -> Deferred[bool]:
        """Look at the files at once; entries that have changed are in force then."""
        self.tick()
        return succeed(True)

    def sweep(self) -> None:
        """See :meth:`tick`."""
        self.tick()

    def tick(self) -> None:
        """Rotate keys, read changed files, write changed ones; a failure is logged once and retried."""
        self._check_clock()
        failure = None
        try:
            self._advance(self._now())
            self._failed = ""
        except SvcError as error:
            failure = error
            if str(error) != self._failed:
                self._failed = str(error)
                self._report.record(
                    "svc.runtime.failure", {"detail_reason": error.reason, "detail": str(error)}, {}, warn=True
                )
        self._show_health(self._now(), failure)

    async def _tables(self) -> tuple[Table, ...]:
        return authority_tables(self._status())

    def _members(self) -> Mapping[str, Any]:
        svid = None
        if self._source is not None:
            # Without an SVID the condition ``credentials`` says why.
            with suppress(SvcError):
                svid = self._source.svid
        return authority_members(
            self.settings,
            self._now(),
            domain=self._domain,
            pq=self._pq,
            registry=self._registry,
            held=() if self._api is None else self._api.held,
            svid=svid,
            issued=self._report.issued,
            nodes=self._nodes.known(self._reactor.seconds()),
            seconds=self._reactor.seconds(),
        )

    def _show_health(self, now: datetime, failure: SvcError | None) -> None:
        rings: list[KeyRing[Any]] = [] if self._domain is None else [self._domain.x509.ring, self._domain.jwt.ring]
        if self._pq is not None:
            rings.append(self._pq.ring)
        self._health.advanced(rings, now, failure)
        if _federates(self.settings):
            ended = None if self._federating is None else self._federating.ended(now)
            self._health.federated(self._federated_files, ended)
        if self._source is not None:
            self._health.credentials(self._source, now)

    def _load_keys(self, now: datetime) -> None:
        """Read stored keys or make new ones."""
        kept = StoredKeys() if self._keys is None else self._keys.open(now)
        peers = None
        if self.settings.federation is not None and isinstance(self._keys, KeyStore):
            peers = read_peers(self._keys.file)
        self._pq = self._make_pq_roots(now, () if peers is None else peers.packages)
        if peers is not None and self._domain is not None and self._pq is not None:
            self._federating = begin_federation(
                self.settings, peers, self._domain, self._pq, self._report, self._now, self.tick
            )
        if self._keys is None:
            return
        if self._domain is not None:
            self._keys.keep("x509", self._domain.x509.ring, kept.x509)
            self._keys.keep("jwt", self._domain.jwt.ring, kept.jwt)
            self._domain.x509.ensure_algorithm(now)
        if self._pq is not None:
            self._keys.keep("pq", self._pq.ring, kept.pq)
            self._pq.ensure_algorithm(now)
        counts = {"x509": len(kept.x509), "jwt": len(kept.jwt), "pq": len(kept.pq)}
        event = "svc.authority.keys.loaded" if kept.found else "svc.authority.keys.begun"
        self._report.record(event, {}, {"path": self._keys.path, **counts}, warn=not kept.found)

    def _close_keys(self) -> None:
        if self._keys is not None:
            self._keys.close()

    def _check_clock(self) -> None:
        step = self._clock_watch.check()
        if step is not None:
            self._report.record("svc.runtime.clock_stepped", {}, {"seconds": round(step, 3)}, warn=True)
            if self._domain is not None:
                self._domain.clock_stepped(step)
            if self._source is not None:
                self._source.clock_stepped()

    def _advance(self, now: datetime) -> None:
        for file in self._files:
            file.check()
        rotated = [self._domain.advance(now)] if self._domain is not None else []
        if self._pq is not None:
            rotated.append(self._advance_pq(self._pq, now))
        if any(rotated):
            self._report.record("svc.authority.rotated", {}, {"trust_domain": str(self.settings.trustDomain)})
        domain, pq = self._domain, self._pq.bundles if self._pq is not None else None
        if domain is not None:
            self._publication.publish_bundle(domain.x509.bundle(), domain.jwt.bundle(), domain.sequence)
        self._publication.publish_roots(self._bundles(), pq, now)

    def _advance_pq(self, roots: PqRootRing, now: datetime) -> bool:
        """Rotate; a root that all nodes have signs before its time, and one that signs at its time whoever lacks it."""
        seconds = self._reactor.seconds()
        # Peers learn of a root by a package alone: it may not sign before its time.
        if self._federating is None:
            roots.begin_served(lambda sequence: self._nodes.all_serve(sequence, seconds), now)
        changed = roots.advance(now)
        before, self._signing = self._signing, roots.issuer(now).certificate
        if before not in (None, self._signing):
            self._report.nodes_behind(self._nodes.behind(roots.published(now), seconds))
        return changed

    def _reported(self, report: NodeReport, caller: Collection[SpiffeID]) -> None:
        """Store what a node serves, if its agent says so."""
        if any(self.settings.agents.matches(each) for each in caller):
            self._nodes.report(report, self._reactor.seconds())

    def _bundles(self) -> BundleSet:
        if self._domain is not None:
            return self._domain.bundles()
        try:
            return self._source.bundles if self._source is not None else BundleSet()
        except CredentialsMissing:
            # The other SPIFFE implementation has not answered yet: there is nothing to archive.
            return BundleSet()

    def _audience(self) -> SpiffeID:
        return self.settings.issuer_id if self._source is None else self._source.svid.spiffe_id

    def _identity(self) -> TlsIdentity:
        if self._source is not None:
            return self._source
        if self._domain is None:
            raise CredentialsMissing(socket=self.settings.folder_socket)
        return OwnIdentity(self._domain, self.settings.issuer_id, self._now)

    def _make_domain(self) -> LocalDomain:
        keys = self.settings.keys
        return make_domain(
            self.settings.trustDomain,
            algorithm=keys.caAlgorithm,
            leaf_algorithm=keys.svidAlgorithm,
            ttl=timedelta(seconds=keys.caTtl),
            random=self._random,
        )

    def _make_source(self) -> WorkloadSource | None:
        if self.settings.workloadApi is None:
            return None
        trust_domain = self.settings.trustDomain
        source = WorkloadSource(
            self.settings.workloadApi, reactor=self._reactor, trust_domain=trust_domain, now=self._now
        )
        # A new root is archived before the first leaf for an SVID below it is issued.
        source.subscribe(self.tick)
        return source

    def _make_pq_roots(self, now: datetime, peers: Collection[TrustDomain]) -> PqRootRing | None:
        if not self._has_pq:
            return None
        settings = self.settings
        try:
            before = read_pq_bundles(settings.pq_bundle_path)
        except PqFileMissing:
            before = PqBundles()
            if settings.keysFile is not None:
                # An earlier process may have published these roots from another disk. Changes are rarer than seconds,
                # so its sequence is lower than the time.
                before = PqBundles.after(settings.trustDomain, int(now.timestamp()))
        roots = _pq_roots(settings, before, self._random)
        roots.keep_federated(frozenset((*(each.trustDomain for each in settings.federatesWith), *peers)))
        return roots

    def _make_listeners(self) -> Iterator[Service]:
        settings, reactor = self.settings, self._reactor
        if settings.socket is not None and self._domain is not None:
            self._api = api = WorkloadApi(
                self._domain, lambda: self._registry, self._now, self._report, open_bundles=settings.openBundles
            )
            yield WorkloadApiListener(settings.socket, settings.socketMode, settings.socketGroup, api, reactor)
        if settings.federation is not None and self._federating is not None:
            federation = federation_site(self._federating, self._report, reactor)
            yield UnixListener(settings.federation.socket, 0o600, None, federation, reactor)
        pq = settings.pqIssuer
        if pq is None or self._pq is None:
            return
        roots = self._pq
        service = PqService(
            roots.issuer,
            self._bundles,
            self._audience,
            self._now,
            self._random,
            self._report,
            lambda: roots.bundles,
            self._reported,
        )
        if pq.socket is not None:
            site = pq_site(service, partial(UnixCaller, attest=self._attest(pq)), reactor)
            yield UnixListener(pq.socket, pq.socketMode, pq.socketGroup, site, reactor)
        if pq.listen is not None:
            address = TcpAddress(pq.listen.host, pq.listen.port)
            site = pq_site(service, TlsCaller, reactor)
            yield TlsListener(
                address,
                self._identity(),
                self._own_domain_only,
                site,
                self._now,
                reactor,
                HandshakeLog(self._report),
                what="the post-quantum issuer",
                key="pqIssuer.listen",
            )

    def _own_domain_only(self, peer: SvidEvidence) -> None:
        """Refuse an identity of a federated trust domain in the handshake: it gets no leaf here."""
        if peer.spiffe_id.trust_domain != self.settings.trustDomain:
            raise NotaryRefused("wrong_trust_domain", spiffe_id=peer.spiffe_id, trust_domain=self.settings.trustDomain)

    def _attest(self, pq: PqSettings) -> Attest:
        if self.settings.entries or not self.settings.pq_only:
            return registered(lambda: self._registry)
        return listed(pq.allowUids if pq.allowUids is not None else (os.geteuid(),))

    def _keys_file(self) -> tuple[WatchedFile, ...]:
        path = self.settings.keysFile
        return () if path is None else (WatchedFile(path, self._adopt_keys, self._report.file_refused),)

    def _adopt_keys(self) -> None:
        """Take the keys of a changed ``keysFile``: whoever writes it announces a root before it signs."""
        if self._keys is None or self._pq is None:
            return
        found, before = self._keys.open(self._now()).pq, self._pq.ring.announced
        if _contents(found) != _contents(before):
            self._keys.keep("pq", self._pq.ring, found)
            self._report.record("svc.authority.keys.loaded", {}, {"path": self._keys.path, "pq": len(found)})

    def _own_file(self, config_path: str | None) -> tuple[WatchedFile, ...]:
        if config_path is None or config_path.startswith(ENVIRONMENT):
            return ()
        return (WatchedFile(config_path, lambda: self._read_entries(config_path), self._report.file_refused),)

    def _read_entries(self, path: str) -> None:
        """Apply the entries of a changed file; other keys need a restart."""
        settings = load_settings(path)
        if settings.model_copy(update={"entries": self.settings.entries}) != self.settings:
            self._report.record(
                "svc.config.warning",
                {"detail": "only entries are read again; other keys need a restart"},
                {"path": path},
                warn=True,
            )
        registry = settings.registry
        if registry.entries != self._registry.entries:
            self._registry = registry
            if self._domain is not None:
                self._domain.changes.notify()
            self._report.record("svc.config.loaded", {}, {"path": path, "entries": len(registry.entries)})

    def _still_waiting(self, failure: Failure) -> None:
        """Log that the other SPIFFE implementation does not answer; requests are refused until it does."""
        error = failure.value
        if isinstance(error, SvcError) and self.running:
            fields = {"detail_reason": error.reason, "detail": f"{error}; {error.hint}"}
            self._report.record("svc.workload.source.stale", fields, {}, warn=True)


def _federates(settings: AuthoritySettings) -> bool:
    return bool(settings.federatesWith) or settings.federation is not None


def _contents(slots: tuple[Slot[PqIssuer], ...]) -> list[tuple[Any, ...]]:
    return [(each.key.certificate, each.active_from, each.succeeded_at, each.expires) for each in slots]


def _stored_keys(settings: AuthoritySettings) -> KeyStore | ReadOnlyKeys | None:
    if settings.keysFile is not None:
        return ReadOnlyKeys(settings.keysFile, settings.trustDomain)
    return None if settings.dataDir is None else KeyStore(settings.dataDir, settings.trustDomain)


def _pq_roots(settings: AuthoritySettings, before: PqBundles, random: Callable[[int], bytes]) -> PqRootRing:
    pq = settings.pqIssuer or PqSettings()
    ttl = timedelta(seconds=pq.rootTtl)
    return PqRootRing(settings.trustDomain, before, ttl=ttl, algorithm=pq.algorithm, random=random)


def new_issuer_keys(settings: AuthoritySettings, now: datetime, random: Callable[[int], bytes]) -> bytes:
    """The content of a ``keysFile`` with a new root for what a configuration says."""
    roots = _pq_roots(settings, PqBundles(), random)
    roots.advance(now)
    return serialized_keys(settings.trustDomain, {"pq": roots.ring.announced})
