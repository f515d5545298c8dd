"""
The life of a daemon: start, readiness, sweep, reload, drain, and the end in order.

A daemon is a subclass of :class:`Daemon`, which says what is opened and how that ends, and a module ``tap``, whose
``makeService`` calls :func:`daemon_tree`. ``tests/process/example.py`` is a whole one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource

from svc import __version__
from svc.errors import SvcError
from svc.pages.site import HttpService
from svc.process.admin import OperatorPages, admin_root, probes_root
from svc.process.clock import use_monotonic_clock, utc_now
from svc.process.history import Totals
from svc.process.lifecycle import (
    freeze_gc,
    install_signal_handlers,
    stop_if_running,
    stop_in_order,
    stop_with_failure,
    when_finished,
)
from svc.process.log import LoggedService, process_log
from svc.process.metrics import MetricsGuard, metrics_root
from svc.process.monitor import Monitor
from svc.process.notify import READY, STOPPING, notify
from svc.process.options import ProcessOptions, settings_or_exit
from svc.process.settings import DaemonSettings
from svc.process.status import Status
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit, log_reload, log_reload_refused
from svc.telemetry.records import Origin
from svc.transport.endpoints import TransportReactor

SettingsT = TypeVar("SettingsT", bound=DaemonSettings)


class Daemon(Service, Generic[SettingsT]):
    """
    One process, from its start to its end.

    Args:
        settings: the configuration.
        reactor: the reactor.
        health: the conditions, whose required ones decide about readiness.
        fatal: called when the process cannot start, or does not end in order.
        load: reads the configuration again, for a reload.

    Attributes:
        settings: the configuration in force.
        servers: what starts first and ends last: the pages, and what watches the process.
        serving: whether everything runs.
        config: where the configuration comes from, as given on the command line.
    """

    log = Logger()
    #: Seconds between two calls of :meth:`sweep`.
    sweep_every = 1.0
    #: Of its log records, where it knows more than its name.
    origin: Origin | None = None

    def __init__(
        self,
        settings: SettingsT,
        reactor: Any,
        health: Health,
        fatal: Callable[[], None],
        load: Callable[[], SettingsT],
    ) -> None:
        self.settings = settings
        self.servers = MultiService()
        self.serving = False
        self.config: str | None = None
        self._reactor = reactor
        self._health = health
        self._load = load
        self._fatal = fatal
        self._sweeping = LoopingCall(self._sweep)
        self._sweeping.clock = reactor
        self._starting: Deferred[None] | None = None
        self._start_over = False
        self._start_failure: Failure | None = None
        self._start_awaited: list[Deferred[None]] = []
        self._draining: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None
        # The start and each reload, one after the other.
        self._changing = DeferredLock()

    # -- What a daemon says ------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open everything but the pages, which are open by then; what it raises fails the start."""
        raise NotImplementedError

    def closing(self) -> Iterable[Callable[[], object]]:
        """
        The steps of the end, after the drain and before the pages close, each begun when the one before has ended.

        They are run after a start that failed, too.
        """
        raise NotImplementedError

    def sweep(self) -> None:
        """Do what is due by time; called while everything runs."""

    async def take(self, settings: SettingsT) -> Mapping[str, str | int | bool]:
        """
        Put another configuration in force as a whole, or raise and keep the one before.

        Returns:
            What has changed, for the log.
        """
        raise NotImplementedError

    def announce_end(self, delay: float) -> None:
        """The end begins; for ``delay`` seconds new work is still taken, and clients are asked to go elsewhere."""

    async def finish(self) -> None:
        """Take no new work; return when what was begun has ended, or its time is over."""

    def start_failed(self, failure: Failure) -> None:
        """Called when the start has failed, after it was logged."""

    def shown_settings(self) -> Mapping[str, object]:
        """The configuration for ``/config``, without secrets."""
        return self.settings.model_dump(mode="json")

    # -- The pages ---------------------------------------------------------------------------------------------------

    def serve_pages(
        self,
        process: str,
        totals: Callable[[], Totals],
        members: Callable[[], Mapping[str, Any]],
        *,
        metrics: CollectorRegistry | None = None,
        metrics_guard: MetricsGuard | None = None,
        drains: bool = False,
        **shown: Any,
    ) -> Callable[[], Status]:
        """
        Serve metrics, operators' pages and probes from the start to the end; called before the start.

        Args:
            process: ``proxy`` for ``svc-proxy``.
            totals: the counters, read every ten seconds.
            members: what the status document has for this process alone.
            metrics: the families of ``/metrics``, where there are any.
            metrics_guard: who may read them, by HTTPS; None for everybody, by plain HTTP.
            drains: whether there is ``/drain``.
            shown: ``tables`` and ``children`` of :class:`~svc.process.admin.OperatorPages`.

        Returns:
            The status document.
        """
        settings, health = self.settings, self._health
        monitor = Monitor(process, health, clock=self._reactor, now=utc_now, read=totals)
        monitor.setServiceParent(self.servers)

        def status() -> Status:
            return monitor.status(**members())

        operators = OperatorPages(status, monitor.history, settings.adminAddr, **shown)
        drain = self.drain if drains else None
        roots: dict[str, IResource] = {}
        if metrics is not None:
            roots["metricsAddr"] = metrics_root(metrics, None if metrics_guard is None else metrics_guard.admit)
        roots["adminAddr"] = admin_root(health, drain=drain, config=self._shown, operators=operators)
        roots["probesAddr"] = probes_root(health)
        for key, root in roots.items():
            address, named = getattr(settings, key), settings.key_text(key)
            reactor: Any = TransportReactor(self._reactor)
            creator = metrics_guard.creator if metrics_guard is not None and key == "metricsAddr" else None
            HttpService(address, root, reactor=reactor, key=named, creator=creator).setServiceParent(self.servers)
        return status

    def _shown(self) -> Mapping[str, object]:
        return {"config": self.config, **self.shown_settings()}

    # -- The start ---------------------------------------------------------------------------------------------------

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

    async def _start(self) -> None:
        self.servers.startService()
        await self.open()
        if self._draining is not None:
            # The drain was requested before everything was open.
            return
        self.serving = True
        self._sweeping.start(self.sweep_every, now=False)
        freeze_gc()
        emit(self.log, DaemonEvent.PROCESS_STARTED, attributes={"pid": os.getpid()})
        self._notify(READY)

    def _start_finished(self, result: Failure | None) -> Failure | None:
        self._start_over, self._start_failure = True, result
        awaited, self._start_awaited = self._start_awaited, []
        for waiting in awaited:
            waiting.callback(result)
        return result

    def _start_failed(self, failure: Failure) -> None:
        if not self.running:
            return
        error = failure.value
        known = isinstance(error, SvcError)
        emit(
            self.log,
            DaemonEvent.PROCESS_START_FAILED,
            detail_reason=error.reason if isinstance(error, SvcError) else None,
            message=f"could not start: {error}",
            detail=error.hint if isinstance(error, SvcError) else None,
            failure=None if known else failure,
        )
        self.start_failed(failure)
        self._fatal()

    def _notify(self, state: str) -> None:
        try:
            notify(state)
        except OSError:
            self.log.failure("the service manager could not be told {state}", state=state)

    def _sweep(self) -> None:
        try:
            self.sweep()
        except Exception:  # noqa: BLE001 (an error in one part must not end all time limits)
            self.log.failure("what is due by time could not all be done")

    # -- Reload ------------------------------------------------------------------------------------------------------

    def reload(self) -> Deferred[bool]:
        """Read the configuration again and apply it, or keep the one in force; fires with whether it was applied."""
        return self._changing.run(lambda: Deferred.fromCoroutine(self._reload()))

    async def _reload(self) -> bool:
        try:
            changed = await self.take(self._load())
        except SvcError as error:
            self.reload_refused(error)
            return False
        except Exception:  # noqa: BLE001 (the configuration in force stays, and the reason is logged)
            log_reload(self.log, DaemonEvent.CONFIG_REJECTED, failure=Failure())
            return False
        log_reload(self.log, DaemonEvent.CONFIG_LOADED, attributes=changed)
        return True

    def reload_refused(self, error: SvcError) -> None:
        """Log that the configuration in force stays."""
        log_reload_refused(self.log, error)

    # -- The end -----------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether the end has begun."""
        return self._health.draining

    def drain(self, delay: float = 0.0) -> Deferred[None]:
        """
        Take no new work; fires when what was begun has ended, or its time is over.

        Args:
            delay: seconds in which new work is still taken, and the process is not ready any more.
        """
        if self._draining is None:
            self._health.drain()
            self._draining = Deferred.fromCoroutine(self._drain(delay if self.serving else 0.0))
            self._draining.addErrback(self._not_ended)
        return when_finished(self._draining)

    async def _drain(self, delay: float) -> None:
        self.announce_end(delay)
        if delay:
            await deferLater(self._reactor, delay)
        await self.finish()

    def leave(self, end: Callable[[], object]) -> None:
        """Drain with the configured delay, then call ``end``; the pods of Kubernetes end so, on SIGUSR1."""
        self.drain(self.settings.drainDelay).addCallback(lambda _none: end())

    def stopService(self) -> Deferred[None]:
        """End in order; fires when everything is closed."""
        super().stopService()
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop())
        return when_finished(self._stopping)

    async def _stop(self) -> None:
        self.serving = False
        self._notify(STOPPING)
        starting = self._starting
        if starting is not None:
            starting.cancel()
        steps: tuple[Callable[[], object], ...] = (
            self.drain,
            # What a thread is opening, it closes first.
            lambda: None if starting is None else when_finished(starting),
            self._stop_sweeping,
            lambda: Deferred.fromCoroutine(stop_in_order(self.closing(), self._not_ended)),
            lambda: stop_if_running(self.servers),
        )
        # All is closed even where an earlier part cannot end.
        await stop_in_order(steps, self._not_ended)
        emit(self.log, DaemonEvent.PROCESS_STOPPED)

    def _stop_sweeping(self) -> None:
        if self._sweeping.running:
            self._sweeping.stop()

    def _not_ended(self, failure: Failure) -> None:
        self.log.failure("a part of the process did not end in order", failure)


def daemon_tree(
    options: ProcessOptions,
    process: str,
    make: Callable[[Any, Any, Callable[[], None], Callable[[], Any]], Daemon[Any]],
) -> IService:
    """
    Build a daemon and what is around it, for ``twistd``: log, clock, signals; nothing runs yet.

    Args:
        options: parsed.
        process: ``proxy`` for ``svc-proxy``.
        make: gets settings, reactor, ``fatal`` and ``load`` of :class:`Daemon`. It imports what it needs: by then the
            log has standard output for itself, since what libraries print while they are loaded is no record.
    """
    from twisted.internet import reactor

    given = getattr(options, "parent", None) or {}
    observer, log_writer = process_log(Origin(process, __version__), given, options["log-format"])
    use_monotonic_clock(reactor)
    root = LoggedService(observer, log_writer)

    def made(path: str) -> Daemon[Any]:
        return make(
            options["settings"], reactor, lambda: stop_with_failure(reactor, log_writer), lambda: options.read(path)
        )

    daemon = settings_or_exit(made, options["config"])
    if daemon.origin is not None:
        observer.describe(daemon.origin)
    daemon.config = options["config"]
    daemon.setServiceParent(root)
    reactor.callWhenRunning(install_signal_handlers, reactor, daemon.reload, daemon.leave)
    return root
