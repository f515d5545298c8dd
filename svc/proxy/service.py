"""
The running proxy: the order of start, reload and end.

Starts notary database, credential source, first credential set, listeners; readiness is last. Stops in reverse order:
listeners close, exchanges finish within the drain time, records become durable, the database closes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.policyfiles.settings import Policies
from svc.policyfiles.watch import PolicyWatch
from svc.process.lifecycle import (
    FreedMemory,
    freeze_gc,
    return_memory,
    stop_if_running,
    stop_in_order,
    when_finished,
)
from svc.proxy.config import ProxySettings
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.listeners import ListenerGroup, ProxyEnding
from svc.proxy.notarizer import Notarizer
from svc.proxy.observers import NotaryStoreReports, Reports
from svc.proxy.receipt_collector import ReceiptCollector
from svc.proxy.reload import RestartNeeded, plan_reload
from svc.sqlite.errors import JournalStuck
from svc.store.errors import StoreError
from svc.store.interface import INotaryStore
from svc.telemetry.events import Event
from svc.telemetry.health import Health
from svc.telemetry.logs import emit, log_reload, log_reload_refused
from svc.workload.source import WorkloadSource

if TYPE_CHECKING:
    from svc.proxy.mqtt.forwarders import StoreAndForward

SWEEP_EVERY: Final = 0.5
_DRAIN_CHECK_EVERY: Final = 0.05


class CredentialsLate(SvcError):
    """no credentials for the notary within {seconds} s: {what}"""

    reason = "notary_unavailable"
    hint = "does the post-quantum issuer at notary.pqIssuer run? or choose notary.profile: classical, which warns"


class CredentialsEnded(SvcError):
    """the credentials of {spiffe_id} serve until {until}, and no newer ones came: {what}"""

    reason = "expired"
    hint = "look at the agent that serves spiffeSocketPath, at the registration entry of this workload, and at pqIssuer"


class ProxyService(Service):
    """The life of one proxy."""

    log = Logger()

    def __init__(
        self,
        *,
        reactor: Any,
        source: WorkloadSource,
        store: INotaryStore,
        retention: Service,
        rotation: CredentialRotation,
        notarizer: Notarizer,
        collector: ReceiptCollector,
        stored: StoreAndForward | None,
        listeners: ListenerGroup,
        settings: ProxySettings,
        load: Callable[[], ProxySettings],
        policies: PolicyWatch[ProxySettings],
        configure_reports: Callable[[ProxySettings], None],
        servers: MultiService,
        health: Health,
        reports: Reports,
        wall: Callable[[], datetime],
        fatal: Callable[[], None],
        store_reports: NotaryStoreReports,
    ) -> None:
        self._reactor = reactor
        self._source = source
        self._store = store
        self._retention = retention
        self._rotation = rotation
        self._notarizer = notarizer
        self._collector = collector
        self.stored = stored
        self.listeners = listeners
        self.servers = servers
        self._health = health
        self._reports = reports
        self.settings = settings
        self._load = load
        self._policies = policies
        self._configure_reports = configure_reports
        self._wall = wall
        self._fatal = fatal
        self._store_reports = store_reports
        #: Decided once: what a notary needs is opened at the start.
        self._notarizes, self._stores = settings.notarizes, settings.stores
        self._freed = FreedMemory()
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = reactor
        self._starting: Deferred[None] | None = None
        self._start_over = False
        self._start_failure: Failure | None = None
        self._start_awaited: list[Deferred[None]] = []
        self._serving = False
        self._draining: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None
        # The start and each reload, one after the other.
        self._changing = DeferredLock()

    def startService(self) -> None:
        """Begin to start; :meth:`when_started` fires when everything runs."""
        super().startService()
        self._starting = self._changing.run(lambda: Deferred.fromCoroutine(self._start()))
        self._starting.addBoth(self._start_finished).addErrback(self._start_failed)

    def when_started(self) -> Deferred[None]:
        """Fires when everything runs, or fails with the error of the start; after :meth:`startService`."""
        waiting: Deferred[None] = Deferred()
        self._start_awaited.append(waiting)
        if self._start_over:
            self._start_finished(self._start_failure)
        return waiting

    def _start_finished(self, result: Failure | None) -> Failure | None:
        self._start_over, self._start_failure = True, result
        awaited, self._start_awaited = self._start_awaited, []
        for waiting in awaited:
            waiting.callback(result)
        return result

    async def _start(self) -> None:
        self._configure_reports(self.settings)
        self._policies.startService()
        self.servers.startService()
        if self._stores:
            self._open_notary()
        if self.stored is not None:
            await self.stored.open()
        self._rotation.subscribe(self._credentials_changed)
        self._source.startService()
        self._health.fails("credentials", "starting", "no SVID has arrived yet")
        await self._source.when_ready()
        self._health.fails("credentials", "starting", "there is no workload statement yet")
        self._rotation.startService()
        await self._first_credentials()
        try:
            await self.listeners.open(self.settings, self.settings.listeners)
        except ProxyEnding:
            # The drain was requested before anything was open.
            return
        if self.stored is not None:
            self.stored.report_absent()
        self._serving = True
        self._sweeping.start(SWEEP_EVERY, now=False)
        self._check_listeners()
        freeze_gc()
        emit(self.log, Event.PROCESS_STARTED, attributes={"pid": os.getpid()})

    def _open_notary(self) -> None:
        self._store.init()
        if self._store.writable:
            self._health.holds("store")
        self._retention.startService()

    async def _first_credentials(self) -> None:
        seconds = self.settings.startTimeout
        try:
            await self._rotation.when_ready().addTimeout(seconds, self._reactor)
        except DeferredTimeout as error:
            last = self._rotation.last_error
            raise CredentialsLate(seconds=seconds, what=last or "no answer") from error

    def _start_failed(self, failure: Failure) -> None:
        if not self.running:
            return
        error = failure.value
        known = isinstance(error, SvcError)
        emit(
            self.log,
            Event.PROCESS_START_FAILED,
            detail_reason=error.reason if isinstance(error, SvcError) else None,
            message=f"could not start: {error}",
            detail=error.hint if isinstance(error, SvcError) else None,
            failure=None if known else failure,
        )
        self._fatal()

    def bundles_changed(self) -> None:
        """Verify all peers by other roots from now on, those of open connections too."""
        self._credentials_changed()

    def _credentials_changed(self) -> None:
        self.listeners.reauthorize()

    def _sweep(self) -> None:
        try:
            now = self._wall()
            self._check_credentials(now)
            seconds = self._reactor.seconds()
            self.listeners.sweep(seconds, now)
            if self._freed.due(self.listeners.open_connections, seconds):
                return_memory()
        except Exception:  # noqa: BLE001 (an error in one connection must not end all time limits)
            self.log.failure("checking the time limits of connections failed")

    def _check_credentials(self, now: datetime) -> None:
        """Not ready with expired credentials: each connection is closed, so clients should not be sent here."""
        current, error = self._rotation.current, self._rotation.last_error
        if current is None:
            return
        if current.valid_at(now):
            self._health.holds("credentials", "" if error is None else f"not renewed: {error}")
        else:
            until = current.close_at.isoformat(timespec="seconds")
            ended = CredentialsEnded(
                spiffe_id=current.spiffe_id,
                until=until,
                what=error or self._source.state.outage or "the Workload API answers and has no newer SVID",
            )
            self._health.fails_with("credentials", ended)

    def _check_listeners(self) -> None:
        """A reload that failed may have left a listener without its port."""
        absent = self.listeners.absent(self.settings.listeners)
        if self._draining is not None:
            self._health.fails("listeners", "draining", "the listeners take no connections any more")
        elif absent:
            self._health.fails("listeners", "listen_failed", f"not open: {', '.join(absent)}")
        else:
            self._health.holds("listeners")

    # -- Reload ------------------------------------------------------------------------------------------------------

    def reload(self) -> Deferred[bool]:
        """Read the configuration again and apply it, or keep the one in force; fires with whether it was applied."""
        return self._changing.run(lambda: Deferred.fromCoroutine(self._reload()))

    async def _reload(self) -> bool:
        applied = await self._apply_configuration()
        if self._serving:
            self._check_listeners()
        return applied

    async def _apply_configuration(self) -> bool:
        try:
            if not self._serving or self._draining is not None:
                raise ProxyEnding()
            settings = self._load()
            policies = await self._policies.load(settings)
            if self._draining is not None:
                raise ProxyEnding()
            if settings.notarizes and not self._notarizes:
                keys = "listeners, to the first inbound one for HTTP, or for MQTT with records or artifacts"
                raise RestartNeeded(keys=keys)
            if settings.stores and not self._stores:
                raise RestartNeeded(keys="listeners, to the first one with collectReceipts")
            if settings.buffers and self.stored is None:
                raise RestartNeeded(keys="listeners, to the first one with ack: middleware")
            plan = plan_reload(self.settings, settings)
            await self.listeners.apply(plan, self.settings, settings)
        except SvcError as error:
            log_reload_refused(self.log, error)
            return False
        except Exception:  # noqa: BLE001 (the configuration in force stays, and the reason is logged)
            log_reload(self.log, Event.CONFIG_REJECTED, failure=Failure())
            return False
        self.settings = settings
        self._configure_reports(settings)
        if self._policies.take(settings, policies):
            self.apply_policies(policies)
        attributes = {"changed": ", ".join(plan.changed), "kept": len(plan.keep)}
        attributes |= {"closed": len(plan.close), "opened": len(plan.open)}
        log_reload(self.log, Event.CONFIG_LOADED, attributes=attributes)
        return True

    def apply_policies(self, policies: Policies) -> None:
        """Decide by other policies from now on, also on the connections that are open."""
        self.listeners.take_policies(policies)
        self._credentials_changed()

    # -- The end -----------------------------------------------------------------------------------------------------

    def drain(self) -> Deferred[None]:
        """Accept no new connections; fires when nothing is open any more or the drain time is over."""
        if self._draining is None:
            self._health.drain()
            emit(self.log, Event.DRAIN_STARTED, attributes={"connections": self.listeners.open_connections})
            self._draining = Deferred.fromCoroutine(self._drain())
            self._draining.addErrback(self._not_ended)
        return when_finished(self._draining)

    async def _drain(self) -> None:
        self._health.fails("listeners", "draining", "the listeners take no connections any more")
        await self.listeners.stop_accepting()
        until = self._reactor.seconds() + self.settings.drainTimeout
        while self.listeners.open_connections and self._reactor.seconds() < until:
            await deferLater(self._reactor, _DRAIN_CHECK_EVERY)
            self._sweep()
        left = self.listeners.open_connections
        self.listeners.close()
        while self._records_in_flight and self._reactor.seconds() < until + 5.0:
            await deferLater(self._reactor, _DRAIN_CHECK_EVERY)
        emit(
            self.log,
            Event.DRAIN_FINISHED,
            outcome="failure" if left or self._records_in_flight else "success",
            attributes={"connections_cut": left, "records_lost": self._records_in_flight},
        )

    @property
    def _records_in_flight(self) -> int:
        return self._notarizer.in_flight + self._collector.in_flight

    def stopService(self) -> Deferred[None]:
        """End in order. Fires when the database is closed."""
        super().stopService()
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop())
        return when_finished(self._stopping)

    async def _stop(self) -> None:
        self._serving = False
        if self._starting is not None:
            self._starting.cancel()
        steps: tuple[Callable[[], object], ...] = (
            self.drain,
            self._stop_sweeping,
            lambda: stop_if_running(self._policies),
            lambda: stop_if_running(self._rotation),
            lambda: stop_if_running(self._source),
            lambda: stop_if_running(self._retention),
            lambda: Deferred.fromCoroutine(self._close_buffer()),
            lambda: Deferred.fromCoroutine(self._close_store()),
            self._reports.close,
            lambda: stop_if_running(self.servers),
        )
        # The database is closed even where an earlier part cannot end.
        await stop_in_order(steps, self._not_ended)
        emit(self.log, Event.PROCESS_STOPPED)

    async def _close_store(self) -> None:
        self._store_reports.closing()
        try:
            await self._store.close()
        except StoreError:
            # The store has logged why. No record is lost, but the end was not in order.
            self._fatal()
        else:
            self._store_reports.closed()

    async def _close_buffer(self) -> None:
        if self.stored is not None:
            try:
                await self.stored.close()
            except JournalStuck:
                # It is reported. What was acknowledged is durable, but the end was not in order.
                self._fatal()

    def _stop_sweeping(self) -> None:
        if self._sweeping.running:
            self._sweeping.stop()

    def _not_ended(self, failure: Failure) -> None:
        self.log.failure("a part of the proxy did not end in order", failure)
