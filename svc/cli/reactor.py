"""Running the reactor of this process until one piece of work is done; imported only where the network is needed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from svc.cli.errors import Interrupted
from svc.cli.globals import GlobalOptions
from svc.cli.logs import begin_logging
from svc.cli.output import Console
from svc.cli.trust import LocalTrust
from svc.envelope.profile import Profile
from svc.identity.bundle import BundleSet

_T = TypeVar("_T")


def run_until_done(
    reactor: Any, start: Callable[[], Deferred[_T]], close: Callable[[], Coroutine[Any, Any, None]]
) -> _T:
    """
    Run a reactor until work is done.

    Args:
        start: begins the work, in the running reactor.
        close: releases what the work used, whether it succeeded or not.

    Returns:
        The result of the work; its error is raised, ``Interrupted`` where a signal came first.
    """
    results: list[_T | Failure] = []
    started: list[Deferred[Any]] = []
    stopping: list[bool] = []

    def finish(result: _T | Failure) -> Deferred[None]:
        results.append(result)
        return Deferred.fromCoroutine(close()).addBoth(lambda _closed: None if stopping else reactor.stop())

    def cancel_at_shutdown() -> Deferred[Any] | None:
        """A signal stops the reactor: the work is cancelled, and what it used is released first."""
        stopping.append(True)
        if started and not results:
            started[0].cancel()
            return started[0]
        return None

    reactor.callWhenRunning(lambda: started.append(start().addBoth(finish)))
    reactor.addSystemEventTrigger("before", "shutdown", cancel_at_shutdown)
    reactor.run()
    if not results:
        raise Interrupted
    result = results[0]
    if isinstance(result, Failure):
        if result.check(CancelledError) is not None:
            raise Interrupted
        result.raiseException()
    return result


def read_workload_bundles(options: GlobalOptions, console: Console) -> BundleSet:
    """Read the bundles of the own and of federated trust domains from the Workload API."""
    from twisted.internet import reactor

    begin_logging(options, console)
    trust = LocalTrust(reactor, options.spiffe_socket, Profile.CLASSICAL, None)

    async def work() -> BundleSet:
        return (await trust.source()).bundles

    return run_until_done(reactor, lambda: Deferred.fromCoroutine(work()), trust.close)
