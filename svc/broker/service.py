"""
The broker process: builds everything from the configuration, and stops it in order.

Owns the order of the start: pages, journal, broker, Workload API where it is needed, listeners; it is ready after that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.logger import Logger

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
from svc.pages.listening import ListenFailed
from svc.policyfiles.settings import load_deny_lists
from svc.policyfiles.watch import PolicyWatch, in_daemon_thread
from svc.process.clock import utc_now
from svc.process.daemon import Daemon
from svc.process.lifecycle import pause_gc, stop_if_running
from svc.sqlite.errors import DatabaseError, JournalStuck
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.transport.addresses import TcpAddress
from svc.transport.certificates import CertificateCreator
from svc.transport.creators import server_creator
from svc.transport.endpoints import (
    CertificateServerEndpoint,
    MutualTlsServerEndpoint,
    PlainServerEndpoint,
)
from svc.transport.handshake import address_text
from svc.transport.limits import Timeouts, connection_limit, handshake_limit
from svc.wire.mqtt import PacketLimits
from svc.workload.interface import WORKLOAD_API, report_health
from svc.workload.source import WorkloadSource

CONDITIONS: Final = ("credentials", "listeners")
#: Shown with persistence, and not required for readiness: clients that need no durable state are served meanwhile.
STORE: Final = ("store",)


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
        queued_octets=limits.queuedTotal,
        session=session,
    )


def connection_limits(limits: BrokerLimitSettings) -> ConnectionLimits:
    """Make the limits of connections."""
    packet = PacketLimits(limits.packet, limits.properties, limits.levels, limits.filters)
    return ConnectionLimits(packet, limits.connect, min(65_535, int(limits.keepAlive)))


class BrokerService(Daemon[BrokerSettings]):
    """
    One broker process; the arguments are those of :class:`~svc.process.daemon.Daemon`.

    Attributes:
        ports: the open listeners by name.
    """

    log = Logger()

    def __init__(
        self, settings: BrokerSettings, reactor: Any, fatal: Callable[[], None], load: Callable[[], BrokerSettings]
    ) -> None:
        source = self._source = self._make_source(settings, reactor)
        shown = (
            *CONDITIONS,
            *((WORKLOAD_API,) if source is not None else ()),
            *(STORE if settings.persistence is not None else ()),
        )
        super().__init__(settings, reactor, Health(shown, optional=(WORKLOAD_API, *STORE), now=utc_now), fatal, load)
        self._guard = ListenerGuard(
            rules_by_listener(settings),
            {each.name for each in settings.listeners if each.clients == "spiffe"},
            {each.name for each in settings.listeners if each.passwords},
        )
        self.ports: dict[str, IListeningPort] = {}
        self._reports = BrokerReports(reactor)
        self._deny_lists = self._watch_deny_lists() if settings.policy.files else None
        persistence = settings.persistence
        self._journal: SqliteJournal | None = None
        self._store = None if persistence is None else BrokerStoreReports(self._health, persistence.path)
        self._registry = CollectorRegistry()
        self.serve_pages(
            "broker",
            lambda: broker_totals(self._broker, self._reports),
            self._members,
            metrics=self._registry,
        )
        self._certificates = CertificateRenewal(reactor, self._rules_changed)
        self._certificates.setServiceParent(self.servers)
        self._users = _users_of(settings)
        self._logins = self._make_logins(self._users) if settings.passwordFile is not None else None
        lists = self._deny_lists
        self._check_evidence = EvidenceCheck(
            None if lists is None else lambda: lists.current, self._logins, self._certificates.creators
        )
        self._broker: Broker | None = None

    def _watch_deny_lists(self) -> PolicyWatch[BrokerSettings]:
        return PolicyWatch(
            self.settings,
            read=lambda settings, _former: load_deny_lists(settings.policy.files),
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

    def _make_source(self, settings: BrokerSettings, reactor: Any) -> WorkloadSource | None:
        if settings.trustDomain is None or not settings.needs_svid:
            return None
        return WorkloadSource(
            settings.spiffeSocketPath,
            reactor=reactor,
            start_timeout=settings.startTimeout,
            trust_domain=TrustDomain.parse(settings.trustDomain),
            changed=self._workload_api_changed,
        )

    def _workload_api_changed(self) -> None:
        if self._source is not None:
            report_health(self._health, self._source.state)

    async def open(self) -> None:
        """Open the journal, the broker, the Workload API where it is needed, the listeners."""
        settings, source = self.settings, self._source
        self._broker = broker = await self._make_broker()
        if self._deny_lists is not None:
            self._deny_lists.setServiceParent(self.servers)
        reports = self._reports
        self._registry.register(
            BrokerMetrics(
                broker.hub,
                self._store,
                self._certificates.expiries,
                reports.refusals,
                None if source is None else lambda: source.last_contact,
                reports.reloads,
            )
        )
        await self._await_credentials()
        broker.startService()
        for each in settings.listeners:
            await self._open(broker, each)
        self._health.holds("listeners")

    async def _make_broker(self) -> Broker:
        """Make the broker, in the thread that reads its database where it has one."""
        settings, store = self.settings, self._store
        if settings.persistence is None or store is None:
            return self._broker_on(None, None)
        self._health.fails("store", "starting", "the database is being read")
        try:
            with pause_gc():
                self._journal, broker = await open_journal(
                    settings.persistence.path,
                    self._broker_on,
                    reactor=self._reactor,
                    observer=store,
                    timeout=settings.startTimeout,
                )
        except JournalStuck:
            if not self.running:
                # The start was cancelled, and the thread that opens the database does not end.
                self._fatal()
            raise
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

    def _credentials_changed(self) -> None:
        """Reauthorize all clients under the bundles and the identity in force now."""
        self._check_credentials()
        if self._broker is not None and self._source is not None:
            self._broker.reauthorize(self._source, utc_now())

    def sweep(self) -> None:
        """End the connections of clients with expired certificates."""
        self._check_credentials()
        expiring = self._source is not None or any(each.clients == "certificate" for each in self.settings.listeners)
        if self._broker is not None and expiring:
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

    def _members(self) -> Mapping[str, Any]:
        svid = None
        if self._source is not None:
            # Without an SVID the condition ``credentials`` says why.
            with contextlib.suppress(SvcError):
                svid = self._source.svid
        addresses = {name: address_text(port.getHost()) for name, port in self.ports.items()}
        return broker_members(self.settings, self._broker, svid, addresses, self._certificates.expiries(), self._store)

    async def _open(self, broker: Broker, settings: BrokerListenerSettings) -> None:
        endpoint = self._endpoint(settings)
        who = {"spiffe": verified, "certificate": certified}.get(settings.clients, anonymous)
        logins = self._logins if settings.passwords else None
        factory = broker.factory(who(settings.name), logins, settings.connections)
        try:
            port = await endpoint.listen(factory)
        except CannotListenError as error:
            name = f"the listener {settings.name}"
            raise ListenFailed.from_error(
                error, what=name, address=settings.listen, key="listeners[].listen"
            ) from error
        self.ports[settings.name] = port
        attributes = {"listener": settings.name, "address": address_text(port.getHost())}
        emit(self.log, ProxyEvent.LISTENER_OPENED, attributes=attributes)

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

    def reload(self) -> Deferred[bool]:
        """Apply changed rules and users, or keep everything; the certificate files are checked in any case."""
        self._certificates.check_now()
        return super().reload()

    async def take(self, settings: BrokerSettings) -> Mapping[str, str | int]:
        """Put other rules and users in force; the password file is read again."""
        listeners = changed_rules(self.settings, settings)
        rules = rules_by_listener(settings)
        users = _users_of(settings)
        self.settings = settings
        self._guard.replace(rules)
        users_changed = sum(users.get(each) != self._users.get(each) for each in users.keys() | self._users.keys())
        self._users = users
        if self._logins is not None:
            self._logins.replace(users)
        if listeners or users_changed:
            self._rules_changed()
        return self._reports.reloaded(listeners, users_changed if self._logins is not None else None)

    def reload_refused(self, error: SvcError) -> None:
        """Count it, too."""
        self._reports.reload_refused()
        super().reload_refused(error)

    async def finish(self) -> None:
        """Close the listeners; clients are disconnected when the broker stops."""
        self._health.fails("listeners", "draining", "the listeners take no connections any more")
        for name, port in list(self.ports.items()):
            await maybeDeferred(port.stopListening)
            emit(self.log, ProxyEvent.LISTENER_CLOSED, attributes={"listener": name})

    def closing(self) -> Iterable[Callable[[], object]]:
        """Connections, credentials, the database."""
        return (
            lambda: stop_if_running(self._broker),
            lambda: stop_if_running(self._source),
            # After the broker: the ends of the connections are recorded too.
            lambda: Deferred.fromCoroutine(self._close_journal()),
            self._reports.close,
        )


def _users_of(settings: BrokerSettings) -> Users:
    return {} if settings.passwordFile is None else read_users(settings.passwordFile)
