"""
The broker process: builds everything from the configuration, and stops it in order.

Owns the order of the start: pages, journal, broker, Workload API where it is needed, listeners; it is ready after that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry
from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.broker.access import AccessRule, AllowAll, Guard, ListenerGuard, Rules
from svc.broker.broker import Broker, anonymous, certified, verified
from svc.broker.certificates import CertificateRenewal
from svc.broker.config import (
    BrokerLimitSettings,
    BrokerListenerSettings,
    BrokerSettings,
    changed_rules,
    parse_who,
)
from svc.broker.connection import ConnectionLimits
from svc.broker.evidence import EvidenceCheck
from svc.broker.hub import HubLimits
from svc.broker.journal import RecoveredState
from svc.broker.logins import PasswordLogins
from svc.broker.passwordfile import Users, read_users
from svc.broker.persistence.journal import SqliteJournal
from svc.broker.persistence.opening import open_journal
from svc.broker.reports import BrokerMetrics, BrokerReports, BrokerStoreReports
from svc.broker.session import SessionLimits
from svc.broker.status import broker_members, broker_totals
from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.policyfiles.settings import load_deny_lists
from svc.policyfiles.watch import PolicyWatch, in_daemon_thread
from svc.process.admin import OperatorPages, admin_root
from svc.process.clock import utc_now
from svc.process.lifecycle import freeze_gc, pause_gc, stop_if_running, stop_in_order, when_finished
from svc.process.listening import ListenFailed
from svc.process.metrics import metrics_root
from svc.process.monitor import Monitor
from svc.process.pages import HttpService
from svc.process.status import Status
from svc.sqlite.errors import DatabaseError, JournalStuck
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.transport.addresses import TcpAddress
from svc.transport.certificates import CertificateCreator
from svc.transport.creators import server_creator
from svc.transport.endpoints import (
    CertificateServerEndpoint,
    MutualTlsServerEndpoint,
    PlainServerEndpoint,
    TransportReactor,
)
from svc.transport.handshake import address_text
from svc.transport.limits import Timeouts, connection_limit, handshake_limit
from svc.wire.mqtt import PacketLimits
from svc.workload.interface import WORKLOAD_API, report_health
from svc.workload.source import WorkloadSource

CONDITIONS: Final = ("credentials", "listeners")
#: Shown with persistence, and not required for readiness: clients that need no durable state are served meanwhile.
STORE: Final = ("store",)
#: Seconds between two checks for expired SVIDs.
SWEEP_EVERY: Final = 1.0


def rules_of(settings: BrokerListenerSettings) -> Guard:
    """Make the rules of a listener; without ``acl``, which only a plain loopback listener may omit, all is allowed."""
    if settings.acl is None:
        return AllowAll()
    return Rules(
        tuple(
            AccessRule(parse_who(each.who), each.publish, each.subscribe, each.denyPublish, each.denySubscribe)
            for each in settings.acl
        )
    )


def rules_by_listener(settings: BrokerSettings) -> dict[str, Guard]:
    """Make the rules of all listeners, by their names."""
    return {each.name: rules_of(each) for each in settings.listeners}


def hub_limits(limits: BrokerLimitSettings) -> HubLimits:
    """Make the limits of the core."""
    session = SessionLimits(limits.queued, limits.queuedOctets, limits.received, limits.subscriptions, limits.aliases)
    return HubLimits(
        sessions=limits.sessions,
        sessions_of_identity=limits.sessionsOfIdentity,
        session_expiry=int(limits.sessionExpiry),
        retained=limits.retained,
        retained_octets=limits.retainedOctets,
        session=session,
    )


def connection_limits(limits: BrokerLimitSettings) -> ConnectionLimits:
    """Make the limits of connections."""
    packet = PacketLimits(limits.packet, limits.properties, limits.levels, limits.filters)
    return ConnectionLimits(packet, limits.connect, min(65_535, int(limits.keepAlive)))


class BrokerService(Service):
    """
    One broker process.

    Args:
        settings: the configuration.
        reactor: the reactor.
        fatal: called when it cannot start.
        load: reads the configuration again, for a reload.

    Attributes:
        settings: the configuration in force.
        ports: the open listeners by name.
    """

    log = Logger()

    def __init__(
        self, settings: BrokerSettings, reactor: Any, fatal: Callable[[], None], load: Callable[[], BrokerSettings]
    ) -> None:
        self.settings = settings
        self._load = load
        #: Whether a reload was requested before the broker was made.
        self._reload_due = False
        self._guard = ListenerGuard(
            rules_by_listener(settings),
            {each.name for each in settings.listeners if each.clients == "spiffe"},
            {each.name for each in settings.listeners if each.passwords},
        )
        self.ports: dict[str, IListeningPort] = {}
        self._reactor = reactor
        self._fatal = fatal
        self._reports = BrokerReports(reactor)
        self._deny_lists = self._watch_deny_lists() if settings.policy.files else None
        persistence = settings.persistence
        self._journal: SqliteJournal | None = None
        self._source = source = self._make_source()
        shown = (
            *CONDITIONS,
            *((WORKLOAD_API,) if source is not None else ()),
            *(STORE if persistence is not None else ()),
        )
        self._health = Health(shown, optional=(WORKLOAD_API, *STORE), now=utc_now)
        self._store = None if persistence is None else BrokerStoreReports(self._health, persistence.path)
        self._pages = MultiService()
        self._monitor = Monitor(
            "broker",
            self._health,
            clock=reactor,
            now=utc_now,
            read=lambda: broker_totals(self._broker, self._reports),
        )
        self._monitor.setServiceParent(self._pages)
        self._certificates = CertificateRenewal(reactor, self._rules_changed)
        self._certificates.setServiceParent(self._pages)
        self._users = _users_of(settings)
        self._logins = self._make_logins(self._users) if settings.passwordFile is not None else None
        lists = self._deny_lists
        self._check_evidence = EvidenceCheck(
            None if lists is None else lambda: lists.current, self._logins, self._certificates.creators
        )
        self._broker: Broker | None = None
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = reactor
        self._starting: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None

    def _watch_deny_lists(self) -> PolicyWatch[BrokerSettings]:
        return PolicyWatch(
            self.settings,
            read=lambda settings: load_deny_lists(settings.policy.files),
            apply=lambda _lists: self._rules_changed(),
            observer=self._reports,
            clock=self._reactor,
            in_thread=in_daemon_thread(self._reactor),
        )

    def _make_logins(self, users: Users) -> PasswordLogins:
        return PasswordLogins(
            users,
            seconds=self._reactor.seconds,
            in_thread=in_daemon_thread(self._reactor, "svc-login"),
            waiting=self.settings.limits.logins,
        )

    def _rules_changed(self) -> None:
        # While it stops, nothing may be recorded any more.
        if self._broker is not None and self.running:
            self._broker.rules_changed()

    def _make_source(self) -> WorkloadSource | None:
        settings = self.settings
        if settings.trustDomain is None or not settings.needs_svid:
            return None
        return WorkloadSource(
            settings.spiffeSocketPath,
            reactor=self._reactor,
            start_timeout=settings.startTimeout,
            trust_domain=TrustDomain.parse(settings.trustDomain),
            changed=self._workload_api_changed,
        )

    def _workload_api_changed(self) -> None:
        if self._source is not None:
            report_health(self._health, self._source.state)

    def startService(self) -> None:
        """Start; readiness follows."""
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._start_failed)

    async def _start(self) -> None:
        settings, source = self.settings, self._source
        registry = self._open_pages()
        self._broker = broker = await self._make_broker()
        if self._deny_lists is not None:
            self._deny_lists.setServiceParent(self._pages)
        reports = self._reports
        registry.register(
            BrokerMetrics(
                broker.hub,
                self._store,
                self._certificates.expiries,
                reports.refusals,
                None if source is None else lambda: source.last_contact,
                reports.reloads,
            )
        )
        if self._reload_due:
            self.reload()
        await self._await_credentials()
        broker.startService()
        for each in settings.listeners:
            await self._open(broker, each)
        self._health.holds("listeners")
        freeze_gc()
        emit(self.log, Event.PROCESS_STARTED, attributes={"pid": os.getpid()})

    async def _make_broker(self) -> Broker:
        """Make the broker, in the thread that reads its database where it has one."""
        settings, store = self.settings, self._store
        if settings.persistence is None or store is None:
            return self._broker_on(None, None)
        self._health.fails("store", "starting", "the database is being read")
        with pause_gc():
            self._journal, broker = await open_journal(
                settings.persistence.path,
                self._broker_on,
                reactor=self._reactor,
                observer=store,
                timeout=settings.startTimeout,
            )
        store.opened(len(broker.hub.sessions), len(broker.hub.retained), broker.hub.statistics.revoked)
        return broker

    def _broker_on(self, journal: SqliteJournal | None, recovered: RecoveredState | None) -> Broker:
        settings = self.settings
        return Broker(
            self._reactor,
            self._guard,
            limits=hub_limits(settings.limits),
            connection_limits=connection_limits(settings.limits),
            journal=journal,
            recovered=recovered,
            reporter=self._reports,
            wall=time.time,
            check=self._check_evidence,
        )

    async def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is None or self._store is None:
            return
        try:
            await journal.close()
        except DatabaseError:
            # The journal has logged it. Nothing that was acknowledged is lost, but the stop was not in order.
            self._fatal()
        else:
            self._store.closed()

    async def _await_credentials(self) -> None:
        if self._source is None:
            self._health.holds("credentials", "no listener needs any")
        else:
            self._source.startService()
            self._health.fails("credentials", "starting", "no SVID has arrived yet")
            await self._source.when_ready()
            self._health.holds("credentials")
            self._source.subscribe(self._credentials_changed)
        if self._source is not None or any(each.clients == "certificate" for each in self.settings.listeners):
            self._sweeping.start(SWEEP_EVERY, now=False)

    def _credentials_changed(self) -> None:
        """Reauthorize all clients under the bundles and the identity in force now."""
        self._check_credentials()
        if self._broker is not None and self._source is not None:
            self._broker.reauthorize(self._source, utc_now())

    def _sweep(self) -> None:
        """End the connections of clients with expired certificates."""
        self._check_credentials()
        if self._broker is not None:
            self._broker.end_expired(utc_now())

    def _check_credentials(self) -> None:
        if self._source is None:
            return
        try:
            svid = self._source.svid
        except SvcError as error:
            self._health.fails_with("credentials", error)
            return
        if utc_now() > svid.chain_not_after:
            until = svid.chain_not_after.isoformat(timespec="seconds")
            cause = self._source.state.outage or "the Workload API answers and has no newer one"
            message = f"the SVID of {svid.spiffe_id} ended at {until}: {cause}"
            self._health.fails("credentials", "expired", message)
        else:
            self._health.holds("credentials")

    def _open_pages(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        settings = self.settings
        operators = OperatorPages(self._status, self._monitor.history, settings.adminAddr)
        pages = admin_root(self._health, config=lambda: self.settings.model_dump(mode="json"), operators=operators)
        key = settings.key_text
        reactor: Any = TransportReactor(self._reactor)
        for server in (
            HttpService(settings.metricsAddr, metrics_root(registry), reactor=reactor, key=key("metricsAddr")),
            HttpService(settings.adminAddr, pages, reactor=reactor, key=key("adminAddr")),
        ):
            server.setServiceParent(self._pages)
        self._pages.startService()
        return registry

    def _status(self) -> Status:
        svid = None
        if self._source is not None:
            # Without an SVID the condition ``credentials`` says why.
            with contextlib.suppress(SvcError):
                svid = self._source.svid
        addresses = {name: address_text(port.getHost()) for name, port in self.ports.items()}
        certificates = self._certificates.expiries()
        members = broker_members(self.settings, self._broker, svid, addresses, certificates, self._store)
        return self._monitor.status(**members)

    async def _open(self, broker: Broker, settings: BrokerListenerSettings) -> None:
        endpoint = self._endpoint(settings)
        who = {"spiffe": verified, "certificate": certified}.get(settings.clients, anonymous)
        factory = broker.factory(who(settings.name), self._logins if settings.passwords else None)
        try:
            port = await endpoint.listen(factory)
        except CannotListenError as error:
            name = f"the listener {settings.name}"
            raise ListenFailed.from_error(
                error, what=name, address=settings.listen, key="listeners[].listen"
            ) from error
        self.ports[settings.name] = port
        attributes = {"listener": settings.name, "address": address_text(port.getHost())}
        emit(self.log, Event.LISTENER_OPENED, attributes=attributes)

    def _endpoint(self, settings: BrokerListenerSettings) -> IStreamServerEndpoint:
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
            identity = server_creator(self._source, clock=utc_now, alpn=(b"mqtt",), groups=tls.keyExchange)
            return MutualTlsServerEndpoint(self._reactor, address, identity, **options)
        source = self._source if tls.svid else None
        certificate = CertificateCreator(tls.certificate or "", tls.key or "", source=source, clients=tls.authorities)
        self._certificates.add(settings.name, certificate)
        return CertificateServerEndpoint(self._reactor, address, certificate, **options)

    def reload(self) -> None:
        """
        Read configuration and password file again and apply changed rules and users, or keep everything and log why.

        The certificate files of listeners are checked in any case.
        """
        self._certificates.check_now()
        if self._broker is None:
            self._reload_due = True
            return
        try:
            settings = self._load()
            listeners = changed_rules(self.settings, settings)
            rules = rules_by_listener(settings)
            users = _users_of(settings)
        except SvcError as error:
            self._reports.reload_rejected(error)
            return
        self.settings = settings
        self._guard.replace(rules)
        users_changed = sum(users.get(each) != self._users.get(each) for each in users.keys() | self._users.keys())
        self._users = users
        if self._logins is not None:
            self._logins.replace(users)
        self._reports.reloaded(listeners, users_changed if self._logins is not None else None)
        if listeners or users_changed:
            self._rules_changed()

    def _start_failed(self, failure: Failure) -> None:
        error = failure.value
        if not self.running:
            if isinstance(error, JournalStuck):
                self._fatal()
            return
        if isinstance(error, SvcError):
            emit(self.log, Event.PROCESS_START_FAILED, detail_reason=error.reason, detail=f"{error}; {error.hint}")
        else:
            emit(self.log, Event.PROCESS_START_FAILED, failure=failure)
        self._fatal()

    def stopService(self) -> Deferred[None]:
        """
        Stop in order: listeners, connections, the database, the pages last.

        Returns:
            Fires when all is closed.
        """
        super().stopService()
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop())
        return when_finished(self._stopping)

    async def _stop(self) -> None:
        self._health.fails("listeners", "draining", "the listeners take no connections any more")
        if self._starting is not None:
            self._starting.cancel()
            # A thread that opens the database closes it first.
            await self._starting
        if self._sweeping.running:
            self._sweeping.stop()
        for name, port in list(self.ports.items()):
            await maybeDeferred(port.stopListening)
            emit(self.log, Event.LISTENER_CLOSED, attributes={"listener": name})
        steps: tuple[Callable[[], object], ...] = (
            lambda: stop_if_running(self._broker),
            lambda: stop_if_running(self._source),
            # After the broker: the ends of the connections are recorded too.
            lambda: Deferred.fromCoroutine(self._close_journal()),
            lambda: stop_if_running(self._pages),
        )
        await stop_in_order(steps, self._not_stopped)
        self._reports.close()
        emit(self.log, Event.PROCESS_STOPPED)

    def _not_stopped(self, failure: Failure) -> None:
        self.log.failure("a part of the broker could not be stopped in order", failure)


def _users_of(settings: BrokerSettings) -> Users:
    return {} if settings.passwordFile is None else read_users(settings.passwordFile)
