"""
The running broker: from the configuration to listeners, and back to nothing in order.

Owns what starts when: the pages, the journal, the broker, the Workload API where it is needed, the listeners; ready is
said last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.broker.access import Everything, Guard, Principal, Rule, Rules
from svc.broker.broker import Broker, anonymous, verified
from svc.broker.certificates import Certificates
from svc.broker.config import ANONYMOUS, BrokerSettings, LimitSettings, ListenerSettings
from svc.broker.connection import ConnectionTerms
from svc.broker.hub import HubLimits
from svc.broker.journal import Remains
from svc.broker.persistence.errors import PersistenceStuck
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.opening import open_journal
from svc.broker.reports import BrokerMetrics, BrokerReports, StoreReports
from svc.broker.session import SessionLimits
from svc.broker.standing import Standing
from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.identity.matchers import parse_matcher
from svc.store.errors import StoreError
from svc.telemetry.admin import admin_root
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.telemetry.server import HttpService, metrics_service
from svc.transport.addresses import TcpAddress
from svc.transport.certificates import CertificateCreator
from svc.transport.creators import server_creator
from svc.transport.endpoints import CertificateServerEndpoint, MutualTlsServerEndpoint, PlainServerEndpoint
from svc.transport.limits import Timeouts, connection_limit, handshake_limit
from svc.wire.mqtt import Limits
from svc.workload.process import resting_collector, settle_memory
from svc.workload.source import WorkloadSource

CONDITIONS: Final = ("credentials", "listeners")
#: Shown where there is persistence, and not required: what need not last is served while it fails.
STORE: Final = ("store",)
#: Seconds between two looks at the ends of SVIDs.
SWEEP_EVERY: Final = 1.0


class BrokerListenFailed(SvcError):
    """the listener {name} cannot be opened at {address}: {what}"""

    reason = "listen_failed"
    hint = "is another process using the port? choose another one in listeners[].listen"


class ListenerGuard:
    """
    A guard with rules for each listener.

    Args:
        rules: by the listener's name.
        denied: told of what is refused.
    """

    def __init__(self, rules: dict[str, Guard]) -> None:
        self._rules = rules

    def may_publish(self, principal: Principal, topic: str) -> bool:
        """Ask the rules of the client's listener."""
        return self._rules[principal.listener].may_publish(principal, topic)

    def may_subscribe(self, principal: Principal, topic_filter: str) -> bool:
        """Ask the rules of the client's listener."""
        return self._rules[principal.listener].may_subscribe(principal, topic_filter)


def rules_of(settings: ListenerSettings) -> Guard:
    """
    Make the rules of a listener.

    Args:
        settings: the listener.

    Returns:
        Its rules; those of a plain loopback listener that has none allow everything but writing below ``$SYS``.
    """
    if settings.acl is None:
        return Everything()
    return Rules(
        tuple(
            Rule(None if each.who == ANONYMOUS else parse_matcher(each.who), each.publish, each.subscribe)
            for each in settings.acl
        )
    )


def hub_limits(limits: LimitSettings) -> HubLimits:
    """
    Take what is held from the configuration.

    Args:
        limits: the configuration.

    Returns:
        The core's limits.
    """
    session = SessionLimits(limits.queued, limits.queuedOctets, limits.received, limits.subscriptions, limits.aliases)
    return HubLimits(
        sessions=limits.sessions,
        sessions_of_identity=limits.sessionsOfIdentity,
        session_expiry=int(limits.sessionExpiry),
        retained=limits.retained,
        retained_octets=limits.retainedOctets,
        session=session,
    )


def connection_terms(limits: LimitSettings) -> ConnectionTerms:
    """
    Take what a connection may use from the configuration.

    Args:
        limits: the configuration.

    Returns:
        The shell's limits.
    """
    packet = Limits(limits.packet, limits.properties, limits.levels, limits.filters)
    return ConnectionTerms(packet, limits.connect, min(65_535, int(limits.keepAlive)))


class BrokerService(Service):
    """
    The life of one broker process.

    Args:
        settings: the configuration.
        reactor: the reactor.
        fatal: called when it cannot start.

    Attributes:
        ports: the open listeners by name.
    """

    log = Logger()

    def __init__(self, settings: BrokerSettings, reactor: Any, fatal: Callable[[], None]) -> None:
        self.settings: Final = settings
        self.ports: dict[str, IListeningPort] = {}
        self._reactor = reactor
        self._fatal = fatal
        self._reports = BrokerReports(reactor)
        kept = settings.persistence is not None
        self._health = Health(CONDITIONS + (STORE if kept else ()), optional=STORE, now=_utc_now)
        self._store = StoreReports(self._health) if kept else None
        self._journal: SqliteJournal | None = None
        self._source = self._make_source()
        self._pages = MultiService()
        self._certificates = Certificates(reactor)
        self._certificates.setServiceParent(self._pages)
        self._broker: Broker | None = None
        self._standing: Standing | None = None
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = reactor
        self._starting: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None

    def _make_source(self) -> WorkloadSource | None:
        settings = self.settings
        if settings.trustDomain is None or not any(_is_spiffe(each) for each in settings.listeners):
            return None
        return WorkloadSource(
            settings.spiffeSocketPath,
            reactor=self._reactor,
            start_timeout=settings.startTimeout,
            trust_domain=TrustDomain.parse(settings.trustDomain),
        )

    def startService(self) -> None:
        """Begin to start."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._start_failed)

    async def _start(self) -> None:
        settings = self.settings
        registry = self._open_pages()
        self._broker = broker = await self._make_broker()
        registry.register(BrokerMetrics(broker.hub, self._store, self._certificates.ends))
        await self._await_credentials()
        broker.startService()
        for each in settings.listeners:
            await self._open(broker, each)
        self._health.holds("listeners")
        settle_memory()
        emit(self.log, Event.PROCESS_STARTED, attributes={"pid": os.getpid()})

    async def _make_broker(self) -> Broker:
        """Make the broker on what its database kept, in whose thread it is made."""
        settings, store = self.settings, self._store
        if settings.persistence is None or store is None:
            return self._broker_on(None, None)
        self._health.fails("store", "starting", "the database is being read")
        with resting_collector():
            self._journal, broker = await open_journal(
                settings.persistence.path,
                self._broker_on,
                reactor=self._reactor,
                observer=store,
                timeout=settings.startTimeout,
            )
        store.opened(len(broker.hub.sessions), len(broker.hub.retained))
        return broker

    def _broker_on(self, journal: SqliteJournal | None, remains: Remains | None) -> Broker:
        settings = self.settings
        return Broker(
            self._reactor,
            ListenerGuard({each.name: rules_of(each) for each in settings.listeners}),
            limits=hub_limits(settings.limits),
            terms=connection_terms(settings.limits),
            journal=journal,
            remains=remains,
            reporter=self._reports,
            wall=time.time,
        )

    async def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is None or self._store is None:
            return
        try:
            await journal.close()
        except StoreError:
            # The journal has told why. Nothing that was acknowledged is lost, and still the end was not in order.
            self._fatal()
        else:
            self._store.closed()

    async def _await_credentials(self) -> None:
        if self._source is None:
            self._health.holds("credentials", "no listener needs any")
            return
        self._source.startService()
        self._health.fails("credentials", "starting", "no SVID has arrived yet")
        await self._source.when_ready()
        self._health.holds("credentials")
        self._standing = Standing(self._source, _utc_now)
        self._source.subscribe(self._credentials_changed)
        self._sweeping.start(SWEEP_EVERY, now=False)

    def _credentials_changed(self) -> None:
        """Judge all clients again, by the bundles and the identity in force now."""
        self._judge_credentials()
        if self._broker is not None and self._standing is not None:
            self._broker.reauthorize(self._standing.after_change)

    def _sweep(self) -> None:
        """End the connections whose client's SVID has ended."""
        self._judge_credentials()
        if self._broker is not None and self._standing is not None:
            self._broker.reauthorize(self._standing.after_time)

    def _judge_credentials(self) -> None:
        assert self._source is not None  # noqa: S101 (only a source is judged)
        try:
            svid = self._source.svid
        except SvcError as error:
            self._health.fails_with("credentials", error)
            return
        if _utc_now() > svid.not_after:
            until = svid.not_after.isoformat(timespec="seconds")
            self._health.fails("credentials", "expired", f"the SVID of {svid.spiffe_id} ended at {until}")
        else:
            self._health.holds("credentials")

    def _open_pages(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        settings = self.settings
        pages = admin_root(self._health, config=lambda: settings.model_dump(mode="json"))
        metrics_service(str(settings.metricsAddr or ""), registry, reactor=self._reactor).setServiceParent(self._pages)
        HttpService(str(settings.adminAddr or ""), pages, reactor=self._reactor).setServiceParent(self._pages)
        self._pages.startService()
        return registry

    async def _open(self, broker: Broker, settings: ListenerSettings) -> None:
        endpoint = self._endpoint(settings)
        who = verified if _is_spiffe(settings) else anonymous
        try:
            port = await endpoint.listen(broker.factory(who(settings.name)))
        except CannotListenError as error:
            what = getattr(error.socketError, "strerror", None) or str(error.socketError)
            raise BrokerListenFailed(name=settings.name, address=str(settings.listen), what=what) from error
        self.ports[settings.name] = port
        host: Any = port.getHost()
        attributes = {"listener": settings.name, "address": f"{host.host}:{host.port}"}
        emit(self.log, Event.LISTENER_OPENED, attributes=attributes)

    def _endpoint(self, settings: ListenerSettings) -> IStreamServerEndpoint:
        address = TcpAddress(settings.listen.host, settings.listen.port)
        options: dict[str, Any] = {"connections": connection_limit(settings.connections), "observer": self._reports}
        tls = settings.tls
        if tls is None:
            return PlainServerEndpoint(self._reactor, address, **options)
        options["handshakes"] = handshake_limit(settings.handshakes)
        options["timeouts"] = Timeouts(handshake=self.settings.limits.connect)
        options["proxy_protocol"] = settings.proxyProtocol == "v2"
        if tls.spiffe:
            assert self._source is not None  # noqa: S101 (there is one where a listener needs it)
            identity = server_creator(self._source, clock=_utc_now, alpn=(b"mqtt",), groups=tls.keyExchange)
            return MutualTlsServerEndpoint(self._reactor, address, identity, **options)
        certificate = CertificateCreator(tls.certificate or "", tls.key or "")
        self._certificates.add(settings.name, certificate)
        return CertificateServerEndpoint(self._reactor, address, certificate, **options)

    def renew_certificates(self) -> None:
        """Look at once whether the certificates of listeners were renewed."""
        self._certificates.renew()

    def _start_failed(self, failure: Failure) -> None:
        error = failure.value
        if not self.running:
            if isinstance(error, PersistenceStuck):
                self._fatal()
            return
        if isinstance(error, SvcError):
            emit(self.log, Event.PROCESS_START_FAILED, detail_reason=error.reason, detail=f"{error}; {error.advice()}")
        else:
            emit(self.log, Event.PROCESS_START_FAILED, failure=failure)
        self._fatal()

    def stopService(self) -> Deferred[None]:
        """
        End in order: no new clients, goodbye to those that are there, the database, the pages last.

        Returns:
            Fires when all is closed.
        """
        super().stopService()
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop())
        waiting: Deferred[None] = Deferred()
        self._stopping.addBoth(lambda result: waiting.callback(None))
        return waiting

    async def _stop(self) -> None:
        self._health.fails("listeners", "draining", "the listeners take no connections any more")
        if self._starting is not None:
            self._starting.cancel()
            # A thread that opens the database lets go of it first.
            await self._starting
        if self._sweeping.running:
            self._sweeping.stop()
        for name, port in list(self.ports.items()):
            await maybeDeferred(port.stopListening)
            emit(self.log, Event.LISTENER_CLOSED, attributes={"listener": name})
        for end in (
            lambda: _stopped(self._broker),
            lambda: _stopped(self._source),
            # Behind the broker: the ends of the connections are to be kept too.
            lambda: Deferred.fromCoroutine(self._close_journal()),
            lambda: _stopped(self._pages),
        ):
            ended: Deferred[object] = maybeDeferred(end)
            await ended.addErrback(self._not_ended)
        self._reports.close()
        emit(self.log, Event.PROCESS_STOPPED)

    def _not_ended(self, failure: Failure) -> None:
        self.log.failure("a part of the broker did not end in order", failure)


def _stopped(service: Service | None) -> Deferred[object]:
    return maybeDeferred(service.stopService) if service is not None and service.running else succeed(None)


def _is_spiffe(settings: ListenerSettings) -> bool:
    return settings.tls is not None and settings.tls.spiffe


def _utc_now() -> datetime:
    return datetime.now(UTC)
