"""
A source of credentials in memory, whose rotations, failures and withdrawals a test decides.

Implements :class:`svc.workload.interface.CredentialSource`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from svc.workload.errors import CredentialsMissing, IdentityWithdrawn, WorkloadApiUnavailable
from svc.workload.interface import Phase, SourceState

if TYPE_CHECKING:
    from svc.errors import SvcError
    from svc.identity.bundle import BundleSet
    from svc.identity.svid import X509Svid


class MemorySource:
    """A source of the credentials that a test provides; without an SVID it is not ready."""

    def __init__(self, svid: X509Svid | None = None, bundles: BundleSet | None = None) -> None:
        self._svid = svid
        self._bundles = bundles
        self._withdrawn: IdentityWithdrawn | None = None
        self._state = SourceState("starting" if svid is None else "connected", updates=int(svid is not None))
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: list[Deferred[None]] = []

    @property
    def svid(self) -> X509Svid:
        """
        The current SVID.

        Raises:
            CredentialsMissing: none was given.
            IdentityWithdrawn: after :meth:`withdraw`.
        """
        if self._withdrawn is not None:
            raise copy(self._withdrawn)
        if self._svid is None:
            raise CredentialsMissing(socket="memory")
        return self._svid

    @property
    def bundles(self) -> BundleSet:
        """
        The current bundles.

        Raises:
            CredentialsMissing: none were given.
        """
        if self._bundles is None:
            raise CredentialsMissing(socket="memory")
        return self._bundles

    @property
    def state(self) -> SourceState:
        return self._state

    def when_ready(self) -> Deferred[None]:
        """Return a Deferred that fires at once, or at the first :meth:`rotate`, or fails by :meth:`fail`."""
        if self._svid is not None:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def rotate(self, svid: X509Svid | None = None, bundles: BundleSet | None = None) -> None:
        """Replace the SVID, the bundles or both; None keeps the old ones."""
        self._svid = svid or self._svid
        self._withdrawn = None
        self._bundles = bundles if bundles is not None else self._bundles
        self._state = replace(
            self._state, phase="connected", updates=self._state.updates + 1, last_error=None, outage=None
        )
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)
        self._notify()

    def withdraw(self) -> None:
        """Withdraw the identity, as the Workload API can, until the next :meth:`rotate`."""
        name = None if self._svid is None else self._svid.spiffe_id
        self._withdrawn = IdentityWithdrawn(socket="memory", spiffe_id=name, what="set by a test")
        self._state = replace(self._state, phase="withdrawn", last_error=self._withdrawn, outage=self._withdrawn)
        self._notify()

    def _notify(self) -> None:
        for callback in tuple(self._subscribers):
            callback()

    def fail(self, error: SvcError | None = None) -> None:
        """Make the Workload API unavailable; :meth:`when_ready` fails with the error, and :attr:`state` names it."""
        problem = error or WorkloadApiUnavailable(socket="memory", seconds=0, what="set by a test")
        phase: Phase = "starting" if self._svid is None else "stale"
        failures = self._state.failures + 1
        self._state = replace(self._state, phase=phase, failures=failures, last_error=problem, outage=problem)
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.errback(problem)
