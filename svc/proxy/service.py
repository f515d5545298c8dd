"""
The running proxy: the order of start, reload and end.

Starts notary database, credential source, first credential set, listeners; readiness is last. Stops in reverse order:
listeners close, exchanges finish within the drain time, records become durable, the database closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc.errors import SvcError
from svc.policyfiles.settings import Policies
from svc.policyfiles.watch import PolicyWatch
from svc.process.daemon import Daemon
from svc.process.lifecycle import FreedMemory, return_memory, stop_if_running
from svc.proxy.config import ProxySettings, redacted_config
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.listeners import ListenerGroup, ProxyEnding
from svc.proxy.observers import NotaryStoreReports, Reports
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.reload import RestartNeeded, plan_reload
from svc.sqlite.errors import JournalStuck
from svc.store.errors import StoreError
from svc.store.interface import INotaryStore
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit
from svc.telemetry.records import Origin
from svc.workload.source import WorkloadSource

if TYPE_CHECKING:
    from svc.proxy.mqtt.stored.forwarders import StoreAndForward

_DRAIN_CHECK_EVERY: Final = 0.05
#: Seconds for the first requests of connections that were accepted while the end was announced.
_LAST_ARRIVALS: Final = 1.0


class CredentialsLate(SvcError):
    """no credentials for the notary within {seconds} s: {what}"""

    reason = "notary_unavailable"
    hint = "does the post-quantum issuer at notary.pqIssuer run? or choose notary.profile: classical, which warns"


class CredentialsEnded(SvcError):
    """the credentials of {spiffe_id} serve until {until}, and no newer ones came: {what}"""

    reason = "expired"
    hint = "look at the agent that serves spiffeSocketPath, at the registration entry of this workload, and at pqIssuer"


class ProxyService(Daemon[ProxySettings]):
    """The life of one proxy."""

    log = Logger()
    sweep_every = 0.5

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
        health: Health,
        reports: Reports,
        wall: Callable[[], datetime],
        fatal: Callable[[], None],
        store_reports: NotaryStoreReports,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(settings, reactor, health, fatal, load)
        self.origin = origin
        self._source = source
        self._store = store
        self._retention = retention
        self._rotation = rotation
        self._notarizer = notarizer
        self._collector = collector
        self.stored = stored
        self.listeners = listeners
        self._reports = reports
        self._policies = policies
        self._configure_reports = configure_reports
        self._wall = wall
        self._store_reports = store_reports
        #: Decided once: what a notary needs is opened at the start.
        self._notarizes, self._stores = settings.notarizes, settings.stores
        self._freed = FreedMemory()

    async def open(self) -> None:
        """Open notary database, credential source, first credential set, listeners."""
        self._configure_reports(self.settings)
        self._policies.startService()
        if self._stores:
            self._open_notary()
        if self.stored is not None:
            await self.stored.open()
        self._rotation.subscribe(self.listeners.take_credentials)
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
        self._check_listeners()

    def _open_notary(self) -> None:
        self._store.init()
        if self._store.writable:
            self._health.holds("store")
        self._retention.startService()

    async def _first_credentials(self) -> None:
        seconds = self.settings.startTimeout
        if seconds is None:
            await self._rotation.when_ready()
            return
        try:
            await self._rotation.when_ready().addTimeout(seconds, self._reactor)
        except DeferredTimeout as error:
            last = self._rotation.last_error
            raise CredentialsLate(seconds=seconds, what=last or "no answer") from error

    def bundles_changed(self) -> None:
        """Verify all peers by other roots from now on, those of open connections too."""
        self.listeners.reauthorize()

    def sweep(self) -> None:
        """Check the end of the credentials, and the time limits of connections."""
        now, seconds = self._wall(), self._reactor.seconds()
        self._check_credentials(now)
        self.listeners.sweep(seconds, now)
        if self._freed.due(self.listeners.open_connections, seconds):
            return_memory()

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
        if self.draining:
            self._health.fails("listeners", "draining", "the listeners take no connections any more")
        elif absent:
            self._health.fails("listeners", "listen_failed", f"not open: {', '.join(absent)}")
        else:
            self._health.holds("listeners")

    # -- Reload ------------------------------------------------------------------------------------------------------

    async def take(self, settings: ProxySettings) -> Mapping[str, str | int]:
        """Put a configuration in force with its policies and listeners, or keep the one before."""
        if not self.serving or self.draining:
            raise ProxyEnding()
        policies = await self._policies.load(settings)
        if self.draining:
            raise ProxyEnding()
        self._check_opened(settings)
        plan = plan_reload(self.settings, settings)
        try:
            await self.listeners.apply(plan, self.settings, settings)
            self.settings = settings
        finally:
            self._check_listeners()
        self._configure_reports(settings)
        if self._policies.take(settings, policies):
            self.apply_policies(policies)
        return {
            "changed": ", ".join(plan.changed),
            "kept": len(plan.keep),
            "closed": len(plan.close),
            "opened": len(plan.open),
        }

    def _check_opened(self, settings: ProxySettings) -> None:
        """Refuse what needs something that is opened at the start alone."""
        for needed, opened, first in (
            (settings.notarizes, self._notarizes, "inbound one for HTTP, or for MQTT with records or artifacts"),
            (settings.stores, self._stores, "one with collectReceipts"),
            (settings.buffers, self.stored is not None, "one with ack: middleware"),
        ):
            if needed and not opened:
                raise RestartNeeded(keys=f"listeners, to the first {first}")

    def shown_settings(self) -> Mapping[str, object]:
        return redacted_config(self.settings)

    def apply_policies(self, policies: Policies) -> None:
        """Decide by other policies from now on, also on the connections that are open."""
        self.listeners.take_policies(policies)

    # -- The end -----------------------------------------------------------------------------------------------------

    def announce_end(self, delay: float) -> None:
        """Log it; with a delay, ask clients to connect elsewhere."""
        attributes: dict[str, float] = {"connections": self.listeners.open_connections}
        if delay:
            attributes["delay"] = delay
            self.listeners.announce_end()
        emit(self.log, ProxyEvent.DRAIN_STARTED, attributes=attributes)

    async def finish(self) -> None:
        """Accept no new connections; return when nothing is open any more or the drain time is over."""
        self._health.fails("listeners", "draining", "the listeners take no connections any more")
        if await self.listeners.close_announced_ports():
            # What was accepted just before is in its handshake, or its first request is on the way.
            await deferLater(self._reactor, _LAST_ARRIVALS)
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
            ProxyEvent.DRAIN_FINISHED,
            outcome="failure" if left or self._records_in_flight else "success",
            attributes={"connections_cut": left, "records_lost": self._records_in_flight},
        )

    @property
    def _records_in_flight(self) -> int:
        return self._notarizer.in_flight + self._collector.in_flight

    def closing(self) -> Iterable[Callable[[], object]]:
        """Credentials, retention, databases."""
        return (
            lambda: stop_if_running(self._policies),
            lambda: stop_if_running(self._rotation),
            lambda: stop_if_running(self._source),
            lambda: stop_if_running(self._retention),
            lambda: Deferred.fromCoroutine(self._close_buffer()),
            lambda: Deferred.fromCoroutine(self._close_store()),
            self._reports.close,
        )

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
