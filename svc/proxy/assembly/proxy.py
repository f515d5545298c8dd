"""The whole proxy: the parts that all listeners share, its policies, and its service."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc import __version__
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import BundleSet, SvidEvidence, TrustDomain, X509Svid
from svc.identity.matchers import parse_matcher
from svc.naming import ENV_PQ_BUNDLE
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.pqleaf import PqLeaf
from svc.notary.receipt import Redaction
from svc.pacing.turns import Turns
from svc.policy.engine import Denied
from svc.policyfiles.files import PolicyFiles
from svc.policyfiles.settings import Policies
from svc.process.clock import ClockService, utc_now
from svc.process.reauthorization import Reauthorization
from svc.proxy.assembly.endpoints import Endpoints
from svc.proxy.assembly.http import HttpListeners
from svc.proxy.assembly.mqtt import MqttListeners
from svc.proxy.assembly.policies import file_watch, manager_watches, read_files
from svc.proxy.assembly.shared import ContextParts, ProxyParts
from svc.proxy.assembly.statements import statement_watch
from svc.proxy.assembly.tcp import tcp_listener
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.context import decide_again
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.facts import read_facts
from svc.proxy.listener import Listener
from svc.proxy.listeners import ListenerGroup
from svc.proxy.observers import CredentialReports, ListenerObserver, NotaryStoreReports, Reports
from svc.proxy.policy_reports import PolicyReports
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.places import RecordPlaces
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.records.receipt_pages import ReceiptPages, ReceiptResource
from svc.proxy.records.release_points import ReleaseObserver, unobserved
from svc.proxy.records.room import RecordRoom
from svc.proxy.service import ProxyService
from svc.proxy.status import proxy_members, proxy_totals
from svc.proxy.stores import make_store, store_name
from svc.store.retention import RetentionService
from svc.telemetry.events.base import Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import NOTARY_CONDITIONS, PROXY_CONDITIONS, PROXY_OPTIONAL, Health
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ProxyMetrics
from svc.telemetry.records import Origin
from svc.workload.errors import PqFileMissing, PqIssuerError
from svc.workload.interface import report_health
from svc.workload.pqclient import fetch_pq_leaf, not_reached
from svc.workload.pqfile import PqBundleSource, pq_bundle_path, read_pq_bundles
from svc.workload.pqwatch import IssuerWatch
from svc.workload.source import WorkloadSource

_log = Logger()


class Assembly:
    """
    Builds the parts of one proxy.

    ``fatal`` is called when the proxy cannot start, ``load_settings`` reads the configuration for a reload.
    """

    def __init__(
        self,
        settings: ProxySettings,
        reactor: Any,
        fatal: Callable[[], None],
        load_settings: Callable[[], ProxySettings],
        *,
        released: ReleaseObserver = unobserved,
    ) -> None:
        self._settings = settings
        self._load_settings = load_settings
        self._reactor = reactor
        self._fatal = fatal
        self._on_release_point = released
        self._registry = CollectorRegistry()
        self._notarizes, self._stores = settings.notarizes, settings.stores
        self._metrics = ProxyMetrics(self._registry, notary=self._stores)
        absent = NOTARY_CONDITIONS if not self._stores else ("pqIssuer",) if not self._notarizes else ()
        self._health = Health(
            (each for each in PROXY_CONDITIONS if each not in absent),
            optional=PROXY_OPTIONAL,
            now=utc_now,
            changed=lambda _ready: _log_readiness(self._health),
        )
        self._credential_reports = CredentialReports(self._health)
        self._reports = Reports(self._metrics, reactor)
        # Without a notary nothing is signed for others, and no post-quantum leaf is needed.
        self._profile = Profile.parse(settings.notary.profile) if self._notarizes else Profile.CLASSICAL
        #: The one by which this proxy verifies, whether it signs or not.
        self._verified_profile = Profile.parse(settings.notary.profile)
        self._source = WorkloadSource(
            settings.spiffeSocketPath,
            reactor=reactor,
            start_timeout=settings.startTimeout,
            trust_domain=TrustDomain.parse(settings.trustDomain),
            hint=settings.spiffeHint,
            withdrawal_grace=settings.withdrawalGrace,
            changed=lambda: report_health(self._health, self._source.state),
        )
        self._store_reports = NotaryStoreReports(self._metrics, self._health, store_name(settings.notary))
        self._store = make_store(settings.notary, reactor, self._store_reports, opened=self._stores)
        self._proxy: ProxyService | None = None
        self._policy_reports = PolicyReports(self._metrics)
        self._policies = file_watch(settings, self._load_policies, self._apply_policies, self._policy_reports, reactor)
        self._room = RecordRoom(
            self._store,
            database=store_name(settings.notary),
            max_octets=settings.notary.maxBytes,
            clock=reactor,
            measured=self._store_reports.room_measured,
        )
        self._places = self._make_places()
        self._notarizer = self._make_notarizer()
        self._collector = ReceiptCollector(
            self._store, database=store_name(settings.notary), places=self._places, released=self._on_release_point
        )
        self._issuer_watch: IssuerWatch | None = None
        self._statements = statement_watch(
            settings, self._source, reactor, pq_bundles=self._pq_bundles, changed=self._statement_changed
        )
        self._rotation = self._make_rotation()
        self._reauthorization = Reauthorization(reactor, decide_again, self._reports.reauthorized)
        self._turns = Turns(reactor)
        parts = ProxyParts(
            settings=settings,
            reactor=reactor,
            metrics=self._metrics,
            health=self._health,
            reports=self._reports,
            policies=self._policies,
            profile=self._profile,
            verified_profile=self._verified_profile,
            rotation=self._rotation,
            turns=self._turns,
            store=self._store,
            notarizer=self._notarizer,
            collector=self._collector,
            released=released,
            endpoints=Endpoints(reactor, self._rotation, self._refuse_listed),
            client_endpoint=self._client_endpoint,
        )
        self._parts = parts
        self._http = HttpListeners(parts, self._watch_roots)
        self._mqtt = MqttListeners(parts)

    def build(self) -> ProxyService:
        """Build the service of the whole proxy; nothing starts yet."""
        settings = self._settings
        self._metrics.watch_svids(self._svid_expiries)
        self._metrics.watch_workload_api(lambda: self._source.last_contact)
        self._metrics.watch_signing(lambda: self._notarizer.waiting)
        self._metrics.watch_admissions(lambda: self._places.waiting)
        proxy = ProxyService(
            reactor=self._reactor,
            source=self._source,
            store=self._store,
            retention=RetentionService(
                self._store,
                retention=settings.notary.retention,
                clock=self._reactor,
                now=utc_now,
                pruned=self._store_reports.pruned,
            ),
            store_reports=self._store_reports,
            rotation=self._rotation,
            notarizer=self._notarizer,
            collector=self._collector,
            stored=self._mqtt.stored,
            listeners=ListenerGroup(self._listener, self._reauthorization),
            settings=settings,
            load=self._load_settings,
            policies=self._policies,
            configure_reports=self._configure_reports,
            health=self._health,
            reports=self._reports,
            wall=utc_now,
            fatal=self._fatal,
            origin=self._origin(),
        )
        self._serve_pages(proxy)
        clock = ClockService(utc_now, self._reactor, self._clock_stepped)
        for server in (clock, self._mqtt.publishers, *((self._room,) if self._stores else ())):
            server.setServiceParent(proxy.servers)
        if self._profile is not Profile.CLASSICAL:
            self._issuer_watch = IssuerWatch(settings.notary.pqIssuer or "", self._reactor, self._issuer_reached)
            self._issuer_watch.setServiceParent(proxy.servers)
        for watch in manager_watches(settings, self._policies, self._source, self._reactor, self._policy_reports):
            watch.setServiceParent(proxy.servers)
        if self._statements is not None:
            self._statements.setServiceParent(proxy.servers)
        self._proxy = proxy
        return proxy

    def _load_policies(self, settings: ProxySettings, former: PolicyFiles | None) -> Policies:
        return read_files(settings, former)

    def _apply_policies(self, policies: Policies) -> None:
        if self._proxy is not None:
            self._proxy.apply_policies(policies)

    def _listed(self, evidence: SvidEvidence) -> Denied | None:
        return self._policies.current.listed(evidence)

    def _refuse_listed(self, evidence: SvidEvidence) -> None:
        listed = self._listed(evidence)
        if listed is not None:
            raise listed

    def _origin(self) -> Origin:
        """The origin of the log records, as far as the facts of this proxy can be read."""
        workload = self._settings.workload
        try:
            facts = read_facts(workload)
        except SvcError:
            # Without facts no statement can be made either, which is logged.
            facts = WorkloadFacts()
        in_pod = workload.podInfo is not None or workload.podName is not None
        pod = facts.pod_name if in_pod else None
        return Origin("proxy", __version__, facts.namespace, pod, facts.node, self._own_id)

    def _own_id(self) -> str | None:
        current = self._rotation.current
        return None if current is None else str(current.spiffe_id)

    # -- Parts that all listeners share ------------------------------------------------------------------------------

    def _make_places(self) -> RecordPlaces:
        notary, budget = self._settings.notary, None
        if notary.receiptsPerSecond is not None or notary.recordOctetsPerSecond is not None:
            budget = RecordBudget(
                Allowance.of(notary.receiptsPerSecond, notary.receiptsBurst),
                Allowance.of(notary.recordOctetsPerSecond, notary.recordOctetsBurst),
                self._reactor,
                notary.rateWait,
            )
        held = self._reports.admission_held
        return RecordPlaces(notary.queue, self._reactor, notary.rateWait, budget, held, self._room)

    def _make_notarizer(self) -> Notarizer:
        notary = self._settings.notary
        return Notarizer(
            self._store,
            database=store_name(notary),
            redaction=Redaction.of(notary.redactHeaders, query=notary.redactQuery),
            places=self._places,
            random=os.urandom,
            released=self._on_release_point,
        )

    def _make_rotation(self) -> CredentialRotation:
        return CredentialRotation(
            self._source,
            profile=self._profile,
            facts=lambda: read_facts(self._current().workload),
            obtain_leaf=self._obtain_leaf if self._profile is not Profile.CLASSICAL else None,
            store=self._store if self._notarizes else None,
            observer=self._credential_reports,
            clock=self._reactor,
            wall=utc_now,
            random=os.urandom,
            jitter=lambda: 0.5 + secrets.randbelow(500) / 1000,
            withdrawal_grace=self._settings.withdrawalGrace,
            obtain_statement=None if self._statements is None else self._statements.obtain,
        )

    def _obtain_leaf(self, svid: X509Svid) -> Deferred[PqLeaf]:
        notary = self._settings.notary
        return fetch_pq_leaf(
            notary.pqIssuer or "",
            svid,
            self._source,
            self._reactor,
            now=utc_now,
            pq_bundles=self._pq_bundles(),
            expected=parse_matcher(notary.pqIssuerID) if notary.pqIssuerID else None,
            algorithm="ML-DSA-87" if self._profile is Profile.CNSA2 else "ML-DSA-65",
        ).addErrback(self._no_leaf)

    def _statement_changed(self) -> None:
        self._rotation.statement_changed()

    def _no_leaf(self, failure: Failure) -> Failure:
        if self._issuer_watch is not None and not_reached(failure.value):
            self._issuer_watch.look_soon()
        return failure

    def _issuer_reached(self, error: PqIssuerError | None) -> None:
        self._credential_reports.issuer_reached(error)
        if error is None and not_reached(self._rotation.last_error):
            self._rotation.retry()

    def _pq_bundles(self) -> BundleSet | None:
        """
        Read the roots that a post-quantum leaf has to chain to.

        A file that is named must exist; beside the Workload API socket it may be absent, since verifiers have
        their own.
        """
        given = self._settings.notary.pqBundle
        path = pq_bundle_path(given, os.environ, self._settings.spiffeSocketPath)
        if path is None:
            return None
        try:
            return read_pq_bundles(path).bundle_set()
        except PqFileMissing:
            if given or os.environ.get(ENV_PQ_BUNDLE):
                raise
            return None

    def _clock_stepped(self, seconds: float) -> None:
        emit(_log, DaemonEvent.CLOCK_STEPPED, attributes={"seconds": round(seconds, 3)})
        self._source.clock_stepped()

    def _svid_expiries(self) -> list[tuple[str, datetime]]:
        current = self._rotation.current
        return [] if current is None else [(str(current.spiffe_id), current.svid.not_after)]

    def _serve_pages(self, proxy: ProxyService) -> None:
        receipts: dict[str, Any] = {}
        if self._stores:
            pages = ReceiptPages(
                self._store,
                self._rotation,
                profile=self._verified_profile,
                pq_bundles=self._pq_bundles,
                address=self._settings.adminAddr,
                clock=self._reactor,
                now=utc_now,
            )
            receipts = {"tables": pages.tables, "children": {b"receipts": ReceiptResource(pages)}}
        proxy.serve_pages(
            "proxy",
            lambda: proxy_totals(self._metrics, self._reports, proxy.listeners.open_connections),
            lambda: proxy_members(proxy, self._rotation, self._store, self._store_reports),
            metrics=self._registry,
            drains=True,
            **receipts,
        )

    def _current(self) -> ProxySettings:
        """The configuration in force; a reload replaces it."""
        return self._settings if self._proxy is None else self._proxy.settings

    def _configure_reports(self, settings: ProxySettings) -> None:
        self._reports.configure(settings)
        if self._stores:
            self._health.require("store", any(_demands_records(each) for each in settings.listeners))
        if settings.policy.default == "allow" and any(each.direction == "inbound" for each in settings.listeners):
            emit(_log, ProxyEvent.POLICY_DEFAULT_ALLOW, attributes={"trust_domain": settings.trustDomain})
        if self._notarizes and self._profile is Profile.CLASSICAL:
            self._health.holds("pqIssuer", "the profile classical needs none")
            emit(_log, NotaryEvent.PROFILE_WEAK, attributes={"profile": self._profile.value})

    # -- One listener ------------------------------------------------------------------------------------------------

    def _listener(self, whole: ProxySettings, settings: ListenerSettings) -> Listener:
        inbound = settings.direction == "inbound"
        metrics = self._metrics.listener(settings.protocol, settings.direction, settings.name)
        observer = ListenerObserver(metrics, self._reports, settings.name)
        shared: ContextParts = {
            "name": settings.name,
            "inbound": inbound,
            "policies": self._policies.policies_of(whole) if inbound else None,
            "rotation": self._rotation,
            "reauthorization": self._reauthorization,
            "turns": self._turns,
            "metrics": metrics,
            "reporter": self._reports,
            "limits": settings.limits,
            "timeouts": settings.timeouts,
            "seconds": self._reactor.seconds,
            "wall": utc_now,
            "listed": self._listed,
            "on_rotation": settings.onRotation,
            "drain_seconds": lambda: self._current().drainTimeout,
        }
        if settings.protocol == "tcp":
            return tcp_listener(self._parts, settings, observer, shared)
        if settings.protocol == "mqtt":
            return self._mqtt.listener(settings, observer, shared)
        return self._http.listener(settings, observer, shared)

    def _client_endpoint(self, settings: ListenerSettings, observer: ListenerObserver) -> IStreamClientEndpoint:
        return self._parts.endpoints.client(settings, observer)

    def _watch_roots(self, roots: PqBundleSource) -> None:
        if self._proxy is not None:
            roots.subscribe(self._proxy.bundles_changed)
            roots.setServiceParent(self._proxy.servers)


def _demands_records(settings: ListenerSettings) -> bool:
    """Whether each request through a listener needs the notary database."""
    return Level.parse(settings.notarization).recorded or (settings.collectReceipts and "receipt" in settings.require)


def _log_readiness(health: Health) -> None:
    ready, failing = health.ready, health.failing
    calm = ready or health.draining
    emit(
        _log,
        DaemonEvent.HEALTH_CHANGED,
        severity=None if calm else Severity.WARN,
        outcome="success" if ready else "failure",
        detail_reason="draining" if health.draining else failing[0].reason if failing else None,
        detail=None if calm else "; ".join(each.message for each in failing if each.message),
        attributes={"ready": ready, "failing": ",".join(each.name for each in failing)},
    )
