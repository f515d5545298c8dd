"""
The authority as a Twisted service: puts the parts together and moves them every second.

Owns the wiring, the order of starting and the tick. What is served and issued is decided in ``domain``, ``pqroots`` and
``server``; how it listens in ``listeners``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import SpiffeID
from svc.telemetry.clock import ClockWatch
from svc.transport.addresses import TcpAddress
from svc.transport.creators import TlsIdentity
from svc.workload.authority.config import AuthoritySettings, FederationSettings, PqSettings, load_settings
from svc.workload.authority.domain import LocalDomain, make_domain
from svc.workload.authority.federation import WatchedFile, read_foreign, read_foreign_pq
from svc.workload.authority.keystore import KeptKeys, KeyStore
from svc.workload.authority.listeners import OwnIdentity, TlsListener, UnixListener, WorkloadApiListener
from svc.workload.authority.pqendpoint import PqService, RegisteredProcess, TrustedUser, Vouch, pq_site, tls_peer
from svc.workload.authority.pqroots import PqRoots
from svc.workload.authority.publication import Publication
from svc.workload.authority.report import AuthorityLog, LibraryLog
from svc.workload.authority.server import WorkloadApi
from svc.workload.authority.socketfile import check_free
from svc.workload.errors import CredentialsMissing, PqFileMissing
from svc.workload.pqfile import read_pq_bundles
from svc.workload.source import WorkloadSource, utc_now

TICK_SECONDS: Final = 1.0
_LIBRARIES: Final = ("grpclib", "asyncio")


class Authority(MultiService):
    """
    An embedded authority, full or as PQ issuer only.

    Args:
        settings: the configuration, judged as a whole.
        reactor: the asyncio reactor.
        config_path: the file of the configuration; its entries are read again when it changes. None for no file.
        now: tells the time.
        random: gives unpredictable octets.
    """

    def __init__(
        self,
        settings: AuthoritySettings,
        reactor: Any,
        *,
        config_path: str | None = None,
        now: Callable[[], datetime] = utc_now,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._reactor = reactor
        self._now = now
        self._random = random
        self._report = AuthorityLog(reactor.seconds)
        self._clock_watch = ClockWatch(now, reactor.seconds)
        self._registry = settings.registry
        self._domain = None if settings.pq_only else self._make_domain()
        self._source = self._make_source()
        self._pq: PqRoots | None = None
        self._keys = None if settings.dataDir is None else KeyStore(settings.dataDir, settings.trustDomain)
        self._begun = False
        pq_path = settings.pq_bundle_path if self._has_pq else None
        self._publication = Publication(settings.archive_path, pq_path, settings.bundleFile)
        self._files = self._watched_files(config_path)
        self._tick = LoopingCall(self.tick)
        self._tick.clock = reactor
        self._failed = ""
        self._listening = False
        self._library_log = LibraryLog(logging.WARNING)

    @property
    def _has_pq(self) -> bool:
        return self._settings.pqIssuer is not None or any(each.pqBundleFile for each in self._settings.federatesWith)

    def startService(self) -> None:
        """
        Write the files, open the sockets, begin to tick.

        Raises:
            SvcError: what keeps the authority from starting; sockets that were opened are closed again.
        """
        for name in _LIBRARIES:
            logging.getLogger(name).addHandler(self._library_log)
        self._publication.load()
        # Before anything is written: a second authority must not touch the files of the one that runs.
        for path in self._socket_paths():
            check_free(path)
        try:
            self._load_keys(self._now())
            self._advance(self._now())
            if not self._listening:
                self._add_listeners()
                self._listening = True
            super().startService()
        except SvcError:
            for service in self.services:
                service.stopService()
            self._close_keys()
            raise
        self._tick.start(TICK_SECONDS, now=False).addErrback(self._tick_died)
        if self._source is not None:
            self._source.when_ready().addErrback(self._still_waiting)
        self._report.say(
            "svc.authority.started",
            {},
            {"trust_domain": str(self._settings.trustDomain), "pq_only": self._settings.pq_only},
        )

    def stopService(self) -> Deferred[None]:
        """
        Close everything; without a ``dataDir`` the keys are forgotten with the process.

        Returns:
            A Deferred that fires when all is closed.
        """
        if self._tick.running:
            self._tick.stop()
        for name in _LIBRARIES:
            logging.getLogger(name).removeHandler(self._library_log)
        stopped: Deferred[None] = super().stopService()
        stopped.addCallback(lambda _result: self._close_keys())
        return stopped

    def tick(self) -> None:
        """Do what is due: rotate, read changed files, write changed ones; a failure is told once and tried again."""
        self._look_at_clock()
        try:
            self._advance(self._now())
            self._failed = ""
        except SvcError as error:
            if str(error) != self._failed:
                self._failed = str(error)
                self._report.say(
                    "svc.runtime.failure", {"detail_reason": error.reason, "detail": str(error)}, {}, warn=True
                )

    def _load_keys(self, now: datetime) -> None:
        """Take the keys of an earlier process, or begin with new ones; a second start goes on with what it has."""
        kept = KeptKeys() if self._keys is None else self._keys.open(now)
        if self._begun:
            return
        self._begun = True
        self._pq = self._make_pq_roots()
        if self._keys is None:
            return
        if self._domain is not None:
            self._keys.keep("x509", self._domain.x509.ring, kept.x509)
            self._keys.keep("jwt", self._domain.jwt.ring, kept.jwt)
            self._domain.x509.want_algorithm(now)
        if self._pq is not None:
            self._keys.keep("pq", self._pq.ring, kept.pq)
            self._pq.want_algorithm(now)
        counts = {"x509": len(kept.x509), "jwt": len(kept.jwt), "pq": len(kept.pq)}
        event = "svc.authority.keys.loaded" if kept.found else "svc.authority.keys.begun"
        self._report.say(event, {}, {"path": self._keys.path, **counts}, warn=not kept.found)

    def _close_keys(self) -> None:
        if self._keys is not None:
            self._keys.close()

    def _look_at_clock(self) -> None:
        step = self._clock_watch.look()
        if step is not None:
            self._report.say("svc.runtime.clock_stepped", {}, {"seconds": round(step, 3)}, warn=True)
            if self._domain is not None:
                self._domain.clock_stepped(step)
            if self._source is not None:
                self._source.clock_stepped()

    def _advance(self, now: datetime) -> None:
        for file in self._files:
            file.look()
        rotated = [self._domain.advance(now)] if self._domain is not None else []
        if self._pq is not None:
            rotated.append(self._pq.advance(now))
        if any(rotated):
            self._report.say("svc.authority.rotated", {}, {"trust_domain": str(self._settings.trustDomain)})
        domain, pq = self._domain, self._pq.bundles if self._pq is not None else None
        if domain is not None:
            self._publication.publish_bundle(domain.x509.bundle(), domain.jwt.bundle(), domain.sequence)
        self._publication.publish_roots(self._bundles(), pq, now)

    def _bundles(self) -> BundleSet:
        if self._domain is not None:
            return self._domain.bundles()
        try:
            return self._source.bundles if self._source is not None else BundleSet()
        except CredentialsMissing:
            # Beside a SPIRE that has not answered yet: nothing is in force that could be archived.
            return BundleSet()

    def _audience(self) -> SpiffeID:
        return self._settings.issuer_id if self._source is None else self._source.svid.spiffe_id

    def _identity(self) -> TlsIdentity:
        if self._source is not None:
            return self._source
        if self._domain is None:
            raise CredentialsMissing(socket=self._settings.folder_socket)
        return OwnIdentity(self._domain, self._settings.issuer_id, self._now)

    def _make_domain(self) -> LocalDomain:
        keys = self._settings.keys
        return make_domain(
            self._settings.trustDomain,
            algorithm=keys.caAlgorithm,
            leaf_algorithm=keys.svidAlgorithm,
            ttl=timedelta(seconds=keys.caTtl),
            random=self._random,
        )

    def _make_source(self) -> WorkloadSource | None:
        if self._settings.workloadApi is None:
            return None
        trust_domain = self._settings.trustDomain
        source = WorkloadSource(
            self._settings.workloadApi, reactor=self._reactor, trust_domain=trust_domain, now=self._now
        )
        # A new root stands in the archive before the first leaf for an SVID below it is issued.
        source.subscribe(self.tick)
        source.setServiceParent(self)
        return source

    def _make_pq_roots(self) -> PqRoots | None:
        if not self._has_pq:
            return None
        settings, pq = self._settings, self._settings.pqIssuer or PqSettings()
        try:
            before = read_pq_bundles(settings.pq_bundle_path)
        except PqFileMissing:
            before = PqBundles()
        roots = PqRoots(
            settings.trustDomain,
            before,
            ttl=timedelta(seconds=pq.rootTtl),
            algorithm=pq.algorithm,
            random=self._random,
        )
        roots.keep_only(frozenset(each.trustDomain for each in settings.federatesWith))
        return roots

    def _socket_paths(self) -> list[str]:
        pq = self._settings.pqIssuer
        return [path for path in (self._settings.socket, pq.socket if pq is not None else None) if path is not None]

    def _add_listeners(self) -> None:
        settings, reactor = self._settings, self._reactor
        if settings.socket is not None and self._domain is not None:
            api = WorkloadApi(
                self._domain, lambda: self._registry, self._now, self._report, open_bundles=settings.openBundles
            )
            WorkloadApiListener(
                settings.socket, settings.socketMode, settings.socketGroup, api, reactor
            ).setServiceParent(self)
        pq = settings.pqIssuer
        if pq is None or self._pq is None:
            return
        service = PqService(self._pq.issuer, self._bundles, self._audience, self._now, self._random, self._report)
        if pq.socket is not None:
            site = pq_site(service, self._vouch(pq), reactor)
            UnixListener(pq.socket, pq.socketMode, pq.socketGroup, site, reactor).setServiceParent(self)
        if pq.listen is not None:
            address = TcpAddress(pq.listen.host, pq.listen.port)
            site = pq_site(service, tls_peer, reactor)
            TlsListener(address, self._identity(), site, self._now, reactor).setServiceParent(self)

    def _vouch(self, pq: PqSettings) -> Vouch:
        if self._settings.entries or not self._settings.pq_only:
            return RegisteredProcess(lambda: self._registry)
        return TrustedUser(pq.allowUids if pq.allowUids is not None else (os.geteuid(),))

    def _watched_files(self, config_path: str | None) -> tuple[WatchedFile, ...]:
        files: list[WatchedFile] = []
        for federated in self._settings.federatesWith:
            files.extend(self._federated_files(federated))
        if config_path is not None:
            files.append(WatchedFile(config_path, lambda: self._reload(config_path), self._report.file_refused))
        return tuple(files)

    def _federated_files(self, federated: FederationSettings) -> list[WatchedFile]:
        name = federated.trustDomain

        def take(path: str) -> None:
            if self._domain is not None and self._domain.set_foreign(read_foreign(path, name)):
                self._federated(str(name), path)

        def take_pq(path: str) -> None:
            found = read_foreign_pq(path, name)
            if self._pq is not None and self._pq.set_foreign(found.bundle, found.sequence):
                self._federated(str(name), path)

        pairs = ((federated.bundleFile, take), (federated.pqBundleFile, take_pq))
        return [
            WatchedFile(path, partial(taker, path), self._report.file_refused)
            for path, taker in pairs
            if path is not None
        ]

    def _federated(self, trust_domain: str, path: str) -> None:
        self._report.say("svc.authority.federated", {}, {"trust_domain": trust_domain, "path": path})

    def _reload(self, path: str) -> None:
        """Take over the entries of a changed file; every other key needs a new start."""
        settings = load_settings(path)
        if settings.model_copy(update={"entries": self._settings.entries}) != self._settings:
            self._report.say(
                "svc.config.warning",
                {"detail": "only entries are read again; other keys need a restart"},
                {"path": path},
                warn=True,
            )
        registry = settings.registry
        if registry.entries != self._registry.entries:
            self._registry = registry
            if self._domain is not None:
                self._domain.changes.bump()
            self._report.say("svc.config.loaded", {}, {"path": path, "entries": len(registry.entries)})

    def _still_waiting(self, failure: Failure) -> None:
        """Beside a SPIRE that does not answer, say so and go on waiting: requests are refused until then."""
        error = failure.value
        if isinstance(error, SvcError) and self.running:
            fields = {"detail_reason": error.reason, "detail": f"{error}; {error.advice()}"}
            self._report.say("svc.workload.source.stale", fields, {}, warn=True)

    def _tick_died(self, failure: Failure) -> None:
        """A defect of ours in one tick must not stop rotation for ever."""
        self._report.log.failure("the tick of the authority failed", failure)
        if self.running:
            self._reactor.callLater(TICK_SECONDS, self._tick_again)

    def _tick_again(self) -> None:
        if self.running and not self._tick.running:
            self._tick.start(TICK_SECONDS, now=False).addErrback(self._tick_died)
