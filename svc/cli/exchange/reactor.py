"""
Running an exchange on the reactor of this process.

Owns start and end: log records before anything happens, the limit on the time, signals, and that the Workload API is
left in order. Imported only by a command that needs the network.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from svc.cli.errors import Interrupted
from svc.cli.exchange.conduct import Means
from svc.cli.exchange.dialing import PlainDialer, TlsDialer
from svc.cli.exchange.engine import Work
from svc.cli.exchange.errors import MaxTimeExceeded
from svc.cli.exchange.judgement import Trust
from svc.cli.exchange.line import Dialer
from svc.cli.exchange.plan import CurlPlan
from svc.cli.exchange.trust import LocalTrust
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.logs import begin_logging
from svc.cli.output import Console
from svc.identity.bundle import BundleSet
from svc.notary.profile import Profile
from svc.transport.reactor import run_timers_evenly

_T = TypeVar("_T")


def utc_now() -> datetime:
    """
    Read the clock.

    Returns:
        The time, aware, UTC.
    """
    return datetime.now(UTC)


class NetworkMeans:
    """
    The means of the real network.

    Args:
        reactor: the reactor.
        plan: says which server and which trust.
    """

    def __init__(self, reactor: Any, plan: CurlPlan) -> None:
        self.clock = reactor
        self.now: Callable[[], datetime] = utc_now
        self._plan = plan
        self._trust = LocalTrust(reactor, plan.options.spiffe_socket, plan.demands.profile, plan.pq_bundle)

    async def trust(self) -> Trust:
        """See :meth:`svc.cli.exchange.conduct.Means.trust`."""
        return await self._trust.trust()

    def dialer(self) -> Dialer:
        """See :meth:`svc.cli.exchange.conduct.Means.dialer`."""
        target = self._plan.request.target
        if not target.secure:
            return PlainDialer(self.clock, target)
        return TlsDialer(self.clock, target, self._plan.demands, self._trust.source, self.now)

    async def close(self) -> None:
        """Give everything back."""
        await self._trust.close()


class ReactorEngine:
    """Runs work on the global reactor, once in the life of the process."""

    def run(self, plan: CurlPlan, invocation: Invocation, work: Work[_T]) -> _T:
        """See :meth:`svc.cli.exchange.engine.Engine.run`."""
        from twisted.internet import reactor

        run_timers_evenly(reactor)
        begin_logging(plan.options, invocation.console)
        means = NetworkMeans(reactor, plan)
        return run_on(reactor, lambda: limited(reactor, plan.max_time, work, means), means.close)


def limited(clock: Any, seconds: float | None, work: Work[_T], means: Means) -> Deferred[_T]:
    """
    Start work that may take only so long.

    Args:
        clock: keeps the time.
        seconds: the limit; None for none.
        work: what is done.
        means: given to it.

    Returns:
        A Deferred with its result; it fails with ``MaxTimeExceeded`` when the time is over.
    """
    working: Deferred[_T] = Deferred.fromCoroutine(work(means))
    if seconds is None:
        return working

    def overdue(_result: object, _seconds: float) -> Failure:
        return Failure(MaxTimeExceeded(seconds=f"{seconds:g}"))

    working.addTimeout(seconds, clock, overdue)
    return working


def run_on(reactor: Any, start: Callable[[], Deferred[_T]], close: Callable[[], Coroutine[Any, Any, None]]) -> _T:
    """
    Run a reactor until something is done.

    Args:
        reactor: not running yet.
        start: begins it, in the running reactor.
        close: gives everything back, whether it was done or not.

    Returns:
        What was done.

    Raises:
        Interrupted: a signal came first.
        Exception: what it failed with.
    """
    results: list[_T | Failure] = []
    begun: list[Deferred[Any]] = []
    stopping: list[bool] = []

    def finish(result: _T | Failure) -> Deferred[None]:
        results.append(result)
        closing: Deferred[None] = Deferred.fromCoroutine(close())
        closing.addBoth(lambda _closed: stop())
        return closing

    def stop() -> None:
        if not stopping:
            reactor.stop()

    def run() -> None:
        begun.append(start().addBoth(finish))

    def cut_short() -> Deferred[Any] | None:
        """A signal stops the reactor: what runs is cancelled, so that it can leave in order."""
        stopping.append(True)
        if begun and not results:
            begun[0].cancel()
            return begun[0]
        return None

    reactor.callWhenRunning(run)
    reactor.addSystemEventTrigger("before", "shutdown", cut_short)
    reactor.run()
    if not results:
        raise Interrupted
    result = results[0]
    if isinstance(result, Failure):
        if result.check(CancelledError) is not None:
            raise Interrupted
        result.raiseException()
    return result


def workload_bundles(options: GlobalOptions, console: Console) -> BundleSet:
    """
    Get the bundles of the Workload API once.

    Args:
        options: name its socket.
        console: the standard streams, for log records.

    Returns:
        The bundles of the own and of federated trust domains.

    Raises:
        WorkloadError: they did not come in time.
    """
    from twisted.internet import reactor

    begin_logging(options, console)
    trust = LocalTrust(reactor, options.spiffe_socket, Profile.CLASSICAL, None)

    async def work() -> BundleSet:
        return (await trust.source()).bundles

    return run_on(reactor, lambda: Deferred.fromCoroutine(work()), trust.close)
