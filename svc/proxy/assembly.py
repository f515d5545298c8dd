"""
From the configuration to the running tree: the one place where the parts of the proxy meet.

Nothing starts here; :class:`svc.proxy.service.ProxyService` does that.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint, IStreamServerEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc import __version__
from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, SvidEvidence, TrustDomain, X509Svid
from svc.identity.matchers import AnyOf, parse_matcher
from svc.naming import ENV_PQ_BUNDLE
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.pqleaf import PqLeaf
from svc.notary.profile import Profile
from svc.notary.receipt import Redaction
from svc.notary.statement import StatementEvidence
from svc.notary.verification import Anchors
from svc.policy.attributes import UNKNOWN, Attributes
from svc.policy.engine import Denied
from svc.policyfiles.settings import Policies, load_policies
from svc.policyfiles.watch import PolicyWatch, in_daemon_thread
from svc.process.clock import ClockService, utc_now
from svc.process.reauthorization import Reauthorization
from svc.process.turns import Turns
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.context import decide_again
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.facts import label_files, read_facts, read_labels
from svc.proxy.http.client import ClientConnection
from svc.proxy.http.context import HttpContext
from svc.proxy.http.notary_endpoint import CollectedReceipts, NotaryEndpoint, ReservedPath
from svc.proxy.http.peer_verification import PeerVerifier, VerifiedEndpoint
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.listener import Listener
from svc.proxy.listeners import ListenerGroup
from svc.proxy.mqtt.artifact_reports import ArtifactReports
from svc.proxy.mqtt.artifacts import ArtifactPublisher, ArtifactPublishers
from svc.proxy.mqtt.client_ids import ClientIdTemplate
from svc.proxy.mqtt.connection import MqttConnection
from svc.proxy.mqtt.context import MqttContext
from svc.proxy.mqtt.interfaces import MqttLimits, MqttSession
from svc.proxy.mqtt.recorder import PublishRecords
from svc.proxy.mqtt.session import PassThroughSession
from svc.proxy.observers import CredentialReports, ListenerObserver, NotaryStoreReports, PolicyReports, Reports
from svc.proxy.peer_conditions import PeerConditions
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.places import RecordPlaces
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.records.receipt_pages import ReceiptPages, ReceiptResource
from svc.proxy.records.release_points import ReleaseObserver, unobserved
from svc.proxy.records.room import RecordRoom
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.service import ProxyService
from svc.proxy.status import proxy_members, proxy_totals
from svc.proxy.stores import make_store, store_name
from svc.proxy.tcp.connection import TcpConnection
from svc.settings import HostPort
from svc.store.retention import RetentionService
from svc.telemetry.events import Event, Severity
from svc.telemetry.health import NOTARY_CONDITIONS, PROXY_CONDITIONS, PROXY_OPTIONAL, Health
from svc.telemetry.logs import emit
from svc.telemetry.metrics import ProxyMetrics
from svc.telemetry.records import Origin
from svc.transport.addresses import TcpAddress, UnixAddress, parse_address
from svc.transport.creators import HTTP_1_1, MQTT, client_creator, server_creator
from svc.transport.endpoints import (
    MutualTlsClientEndpoint,
    MutualTlsServerEndpoint,
    PlainClientEndpoint,
    PlainServerEndpoint,
)
from svc.transport.limits import Timeouts, connection_limit, handshake_limit, waiting_limit
from svc.wire.http1 import MessageLimits
from svc.wire.mqtt import PacketLimits
from svc.workload.errors import PqFileMissing, PqIssuerError
from svc.workload.interface import report_health
from svc.workload.pqclient import fetch_pq_leaf, not_reached
from svc.workload.pqfile import PqBundleSource, pq_bundle_path, read_pq_bundles
from svc.workload.pqwatch import IssuerWatch
from svc.workload.source import WorkloadSource

if TYPE_CHECKING:
    from svc.proxy.mqtt.buffered_session import BufferedMqttSession
    from svc.proxy.mqtt.forwarders import ForwardingListener, StoreAndForward

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
        self._policies = PolicyWatch(
            settings,
            read=self._load_policies,
            apply=self._apply_policies,
            observer=PolicyReports(self._metrics),
            clock=reactor,
            in_thread=in_daemon_thread(reactor),
            watched=lambda given: (*given.policy.files, *label_files(given.workload)),
        )
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
        self._publishers = ArtifactPublishers()
        self._artifact_reports: ArtifactReports | None = None
        self._stored = self._make_stored() if settings.buffers else None
        #: Post-quantum roots for the verification of peers, once a listener demands it.
        self._pq_roots: PqBundleSource | None = None
        self._issuer_watch: IssuerWatch | None = None
        self._rotation = self._make_rotation()
        self._reauthorization = Reauthorization(reactor, decide_again, self._reports.reauthorized)
        self._turns = Turns(reactor)

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
            stored=self._stored,
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
        for server in (clock, self._publishers, *((self._room,) if self._stores else ())):
            server.setServiceParent(proxy.servers)
        if self._profile is not Profile.CLASSICAL:
            self._issuer_watch = IssuerWatch(settings.notary.pqIssuer or "", self._reactor, self._issuer_reached)
            self._issuer_watch.setServiceParent(proxy.servers)
        self._proxy = proxy
        return proxy

    def _load_policies(self, settings: ProxySettings) -> Policies:
        return load_policies(settings.policy, settings.trustDomain, lambda: read_labels(settings.workload))

    def _apply_policies(self, policies: Policies) -> None:
        if self._proxy is not None:
            self._proxy.apply_policies(policies)

    def _listed(self, evidence: SvidEvidence) -> Denied | None:
        return self._policies.current.listed(evidence)

    def _listed_statement(self, statement: StatementEvidence) -> Denied | None:
        return self._policies.current.listed_statement(statement.id, statement.subject)

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

    def _make_stored(self) -> StoreAndForward:
        # Loaded here: a proxy without a buffer does not need sqlite3 for it.
        from svc.proxy.mqtt.buffer.keys import BufferKeys
        from svc.proxy.mqtt.buffer.store import MessageBuffer
        from svc.proxy.mqtt.buffer_reports import BufferReports
        from svc.proxy.mqtt.forwarders import StoreAndForward
        from svc.proxy.mqtt.forwarding import ForwarderLimits

        settings = self._settings.mqttBuffer
        reports = BufferReports(self._metrics.mqtt(), self._health, settings.path, self._reactor)
        return StoreAndForward(
            lambda: MessageBuffer(
                settings.path,
                reactor=self._reactor,
                keys=BufferKeys.read(settings.keys),
                encrypt_stored=settings.encryptStored,
                observer=reports,
                limits=settings.limits,
                reserve_size=settings.reserve,
            ),
            ForwarderLimits(when_full=settings.whenFull),
            reports,
            clock=self._reactor,
            wall=time.time,
            random=secrets.SystemRandom().random,
        )

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
        emit(_log, Event.CLOCK_STEPPED, attributes={"seconds": round(seconds, 3)})
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
            emit(_log, Event.POLICY_DEFAULT_ALLOW, attributes={"trust_domain": settings.trustDomain})
        if self._notarizes and self._profile is Profile.CLASSICAL:
            self._health.holds("pqIssuer", "the profile classical needs none")
            emit(_log, Event.PROFILE_WEAK, attributes={"profile": self._profile.value})

    # -- One listener ------------------------------------------------------------------------------------------------

    def _listener(self, whole: ProxySettings, settings: ListenerSettings) -> Listener:
        inbound = settings.direction == "inbound"
        metrics = self._metrics.listener(settings.protocol, settings.direction, settings.name)
        observer = ListenerObserver(metrics, self._reports, settings.name)
        shared: dict[str, Any] = {
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
            return self._tcp_listener(settings, observer, shared)
        if settings.protocol == "mqtt":
            return self._mqtt_listener(settings, observer, shared)
        return self._http_listener(settings, observer, shared)

    def _tcp_listener(self, settings: ListenerSettings, observer: ListenerObserver, shared: dict[str, Any]) -> Listener:
        context = RelayedContext(**shared, **self._relayed(settings, observer))
        endpoint = self._server_endpoint(settings, observer)
        return Listener(context, endpoint, lambda connections: TcpConnection(context, connections))

    def _mqtt_listener(
        self, settings: ListenerSettings, observer: ListenerObserver, shared: dict[str, Any]
    ) -> Listener:
        limits, metrics = settings.limits, self._metrics.mqtt()
        session_limits = MqttLimits(
            PacketLimits(packet=limits.packet, filters=limits.subscriptions), limits.clientID, limits.subscriptions
        )

        forwarding = self._forwarding(settings, session_limits.packet)

        def session(connection: MqttConnection) -> MqttSession:
            if self._stored is not None and forwarding is not None:
                return self._buffered_session(self._stored, connection, session_limits, settings, records)
            return PassThroughSession(
                connection,
                connection,
                session_limits,
                metrics,
                _upstream_name(settings),
                peer_is_proxy=settings.direction == "outbound",
                recorder=None if records is None else partial(connection.recorder, records),
            )

        inbound = settings.direction == "inbound"
        artifacts = self._artifact_publisher(settings, observer)
        records = self._publish_records(settings, artifacts)
        context = MqttContext(
            **shared,
            **self._relayed(settings, observer),
            session=session,
            client_ids=tuple(ClientIdTemplate.parse(each) for each in settings.clientIDs),
            demanded=Level.parse(settings.notarization),
            maximum=Level.parse(settings.maxNotarization) if inbound else Level.NONE,
            records=records,
            artifacts=artifacts,
            forwarding=forwarding,
        )
        if forwarding is not None:
            forwarding.context = context
        evictions = context.evictions
        endpoint = self._server_endpoint(settings, observer, (evictions.evict_closing, evictions.evict_unpermitted))
        return Listener(context, endpoint, lambda connections: MqttConnection(context, connections))

    def _publish_records(
        self, settings: ListenerSettings, artifacts: ArtifactPublisher | None
    ) -> PublishRecords | None:
        if not settings.notarizes:
            return None
        return PublishRecords(
            self._notarizer,
            self._metrics.notary("mqtt"),
            self._reports,
            settings.publish_bound(self._notarizer.redaction),
            wall=utc_now,
            seconds=self._reactor.seconds,
            listener=settings.name,
            stored=None if artifacts is None else artifacts.stored,
            released=self._on_release_point,
        )

    def _forwarding(self, settings: ListenerSettings, packets: PacketLimits) -> ForwardingListener | None:
        if settings.ack != "middleware" or self._stored is None:
            return None
        from svc.proxy.mqtt.forwarders import ForwardingListener

        return ForwardingListener(self._stored, packets, settings.ackUpstream)

    def _buffered_session(
        self,
        stored: StoreAndForward,
        connection: MqttConnection,
        limits: MqttLimits,
        settings: ListenerSettings,
        records: PublishRecords | None,
    ) -> BufferedMqttSession:
        from svc.proxy.mqtt.buffered_session import BufferedMqttSession

        return BufferedMqttSession(
            connection,
            connection,
            limits,
            _upstream_name(settings),
            lambda session, connect: stored.attach(session, connect, connection),
            lambda: f"svc-{secrets.token_hex(8)}",
            receive_maximum=stored.limits.receive_maximum,
            peer_is_proxy=settings.direction == "outbound",
            recorder=None if records is None else partial(connection.recorder, records),
        )

    def _artifact_publisher(self, settings: ListenerSettings, observer: ListenerObserver) -> ArtifactPublisher | None:
        if settings.artifacts is None:
            return None
        if self._artifact_reports is None:
            self._artifact_reports = ArtifactReports(self._metrics.mqtt(), self._health, self._reactor)
        publisher = ArtifactPublisher(
            settings.artifacts,
            listener=settings.name,
            upstream=str(settings.upstream),
            endpoint=self._client_endpoint(settings, observer),
            clock=self._reactor,
            turns=self._turns,
            wall=utc_now,
            random=os.urandom,
            jitter=secrets.SystemRandom().random,
            observer=self._artifact_reports.listener(settings.name, settings.artifacts.prefix, str(settings.upstream)),
        )
        return self._publishers.add(publisher)

    def _relayed(self, settings: ListenerSettings, observer: ListenerObserver) -> dict[str, Any]:
        """What the context of a listener has whose clients have one connection to the upstream each."""
        return {
            "endpoint": self._client_endpoint(settings, observer),
            "upstream": _upstream_name(settings),
            "unreachable": observer.upstream_unreachable,
            "accepted": observer.upstream_accepted,
            "ended": observer.upstream_ended,
        }

    def _http_listener(
        self, settings: ListenerSettings, observer: ListenerObserver, shared: dict[str, Any]
    ) -> Listener:
        demanded = settings.notarization if settings.direction == "inbound" else settings.demanded_of_peer
        peers = None if settings.demanded_of_peer == "none" else self._peer_verification(settings, observer)
        context = HttpContext(
            **shared,
            notarizer=self._notarizer,
            pool=self._pool(settings, observer, peers),
            peers=peers,
            notary_metrics=self._metrics.notary("http"),
            demanded=Level.parse(demanded),
            maximum=Level.parse(settings.maxNotarization),
            unix_time=time.time,
            forwarded=settings.forwarded != "off",
            host=None if settings.host is None else settings.host.encode("ascii"),
            upstream_host=_upstream_host(settings),
            released=self._on_release_point,
        )
        evictions = context.evictions
        endpoint = self._server_endpoint(settings, observer, (evictions.evict_unpermitted,), (evictions.evict_idle,))
        notary: ReservedPath | None = self._notary_endpoint(settings) if settings.notarizes else None
        if settings.collectReceipts:
            notary = CollectedReceipts(self._store, self._collector, self._rotation)
        return Listener(
            context, endpoint, lambda connections: ClientConnection(context, notary, os.urandom, connections)
        )

    def _server_endpoint(
        self,
        settings: ListenerSettings,
        observer: ListenerObserver,
        first: tuple[Callable[[], bool], ...] = (),
        last: tuple[Callable[[], bool], ...] = (),
    ) -> IStreamServerEndpoint:
        """Listen; ``first`` and ``last`` evict a connection of a client, before and after those without a handshake."""
        address = TcpAddress(settings.listen.host, settings.listen.port)
        limits = settings.limits
        # With `tcp` and `mqtt` a full inbound listener still needs handshakes, to know whose connections come.
        relays_inbound = settings.protocol != "http" and settings.direction == "inbound"
        connections = connection_limit(limits.connections + (limits.handshakes if relays_inbound else 0))
        waiting, handshakes = waiting_limit(limits.waiting), handshake_limit(limits.handshakes)

        def evict() -> bool:
            return (
                any(each() for each in first)
                or waiting.evict()
                or handshakes.evict_stalled(self._reactor.seconds())
                or any(each() for each in last)
            )

        if settings.direction == "outbound":
            return PlainServerEndpoint(self._reactor, address, connections=connections, observer=observer, evict=evict)
        creator = server_creator(
            self._rotation, clock=utc_now, alpn=_alpn(settings), groups=settings.keyExchange, observer=observer
        )
        return MutualTlsServerEndpoint(
            self._reactor,
            address,
            creator,
            connections=connections,
            handshakes=handshakes,
            waiting=waiting,
            timeouts=Timeouts(handshake=settings.timeouts.handshake),
            observer=observer,
            proxy_protocol=settings.proxyProtocol == "v2",
            evict=evict,
        )

    def _peer_verification(self, settings: ListenerSettings, observer: ListenerObserver) -> PeerVerifier:
        notary, timeouts = self._settings.notary, settings.timeouts
        if self._verified_profile.needs_post_quantum and self._pq_roots is None:
            path = pq_bundle_path(notary.pqBundle, os.environ, self._settings.spiffeSocketPath)
            self._pq_roots = PqBundleSource(path or "", reactor=self._reactor)
            if self._proxy is not None:
                self._pq_roots.subscribe(self._proxy.bundles_changed)
                self._pq_roots.setServiceParent(self._proxy.servers)
        return PeerVerifier(
            upstream=_upstream_name(settings),
            host=_upstream_host(settings),
            level=Level.parse(settings.demanded_of_peer),
            profile=self._verified_profile,
            anchors=self._anchors,
            listed=self._listed_statement,
            pq_path=None if self._pq_roots is None else self._pq_roots.path,
            clock=self._reactor,
            wall=utc_now,
            statement_seconds=timeouts.connect,
            receipt_seconds=timeouts.response,
            observer=observer,
            collector=self._collector if settings.collectReceipts else None,
            conditions=self._peer_conditions(settings),
        )

    def _peer_conditions(self, settings: ListenerSettings) -> PeerConditions | None:
        given = settings.peerStatement
        if given is None:
            return None

        def own() -> Attributes:
            identity = self._rotation.identity
            return UNKNOWN if identity is None else self._policies.current.attributes.attributes(identity)

        issuers = tuple(SpiffeID.parse(text) for text in given.issuers)
        return PeerConditions(settings.name, issuers, tuple(each.source() for each in given.conditions), own)

    def _anchors(self) -> Anchors:
        """The roots by which peers are verified; raises where post-quantum ones are needed and none were ever read."""
        return Anchors(self._rotation.bundles, BundleSet() if self._pq_roots is None else self._pq_roots.bundles)

    def _pool(self, settings: ListenerSettings, observer: ListenerObserver, peers: PeerVerifier | None) -> UpstreamPool:
        endpoint = self._client_endpoint(settings, observer)
        return UpstreamPool(
            endpoint if peers is None else VerifiedEndpoint(endpoint, peers),
            _upstream_name(settings),
            connect_timeout=settings.timeouts.connect,
            limits=MessageLimits(head=settings.limits.head, fields=settings.limits.fields),
            max_idle=settings.limits.idleUpstream,
            idle_timeout=settings.timeouts.idleUpstream,
            seconds=self._reactor.seconds,
            wall=utc_now,
            turns=self._turns,
            unreachable=observer.upstream_unreachable,
            # Where the peer has to prove more, its verification counts it.
            accepted=observer.upstream_accepted if peers is None else lambda: None,
            ended=observer.upstream_ended,
            peers=peers,
        )

    def _client_endpoint(self, settings: ListenerSettings, observer: ListenerObserver) -> IStreamClientEndpoint:
        upstream, timeout = settings.upstream, settings.timeouts.connect
        address: TcpAddress | UnixAddress
        if isinstance(upstream, HostPort):
            address = TcpAddress(upstream.host, upstream.port)
        else:
            address = parse_address(upstream)
        if settings.direction == "inbound":
            return PlainClientEndpoint(self._reactor, address, timeout=timeout)
        creator = client_creator(
            self._rotation,
            clock=utc_now,
            expected=parse_matcher(settings.peer or ""),
            authorize=self._refuse_listed,
            server_name=upstream.host if isinstance(upstream, HostPort) else None,
            alpn=_alpn(settings),
            groups=settings.keyExchange,
            observer=observer,
        )
        return MutualTlsClientEndpoint(
            self._reactor,
            address,
            creator,
            connect_timeout=timeout,
            timeouts=Timeouts(handshake=settings.timeouts.handshake),
            observer=observer,
        )

    def _notary_endpoint(self, settings: ListenerSettings) -> NotaryEndpoint:
        notary = self._settings.notary
        readers = AnyOf(tuple(parse_matcher(each) for each in notary.readers)) if notary.readers else None
        return NotaryEndpoint(
            self._store,
            self._notarizer,
            self._rotation,
            profile=self._profile,
            readers=readers,
            receipts=Level.parse(settings.maxNotarization) is Level.SIGN_REQUEST,
            retention=notary.retention,
            limits={"head": settings.limits.head, "fields": settings.limits.fields},
        )


def _alpn(settings: ListenerSettings) -> tuple[bytes, ...]:
    if settings.protocol == "tcp":
        return tuple(each.encode("ascii") for each in settings.alpn)
    return HTTP_1_1 if settings.protocol == "http" else MQTT


def _upstream_name(settings: ListenerSettings) -> str:
    """What errors call the upstream of a listener."""
    own = "the broker" if settings.protocol == "mqtt" else "the application"
    return f"{own if settings.direction == 'inbound' else 'the peer'} at {settings.upstream}"


def _upstream_host(settings: ListenerSettings) -> bytes:
    """Host of requests of the proxy's own, and of those that have none."""
    return str(settings.upstream).encode("ascii") if isinstance(settings.upstream, HostPort) else b"localhost"


def _demands_records(settings: ListenerSettings) -> bool:
    """Whether each request through a listener needs the notary database."""
    return Level.parse(settings.notarization).recorded or (settings.collectReceipts and "receipt" in settings.require)


def _log_readiness(health: Health) -> None:
    ready, failing = health.ready, health.failing
    calm = ready or health.draining
    emit(
        _log,
        Event.HEALTH_CHANGED,
        severity=None if calm else Severity.WARN,
        outcome="success" if ready else "failure",
        detail_reason="draining" if health.draining else failing[0].reason if failing else None,
        detail=None if calm else "; ".join(each.message for each in failing if each.message),
        attributes={"ready": ready, "failing": ",".join(each.name for each in failing)},
    )
