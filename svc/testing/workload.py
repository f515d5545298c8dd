"""
A source of credentials that lives in memory, for tests of everything that takes one.

Implements :class:`svc.workload.interface.CredentialSource`; a test decides when it rotates, goes stale or never gets
ready.
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
    """
    Credentials handed in by a test.

    Args:
        svid: the SVID served, or None for a source that is not ready.
        bundles: the bundles served, or None.
    """

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
        The SVID served.

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
        The bundles served.

        Raises:
            CredentialsMissing: none were given.
        """
        if self._bundles is None:
            raise CredentialsMissing(socket="memory")
        return self._bundles

    @property
    def state(self) -> SourceState:
        """What the test made of it."""
        return self._state

    def when_ready(self) -> Deferred[None]:
        """
        Wait for credentials.

        Returns:
            A Deferred that fires now, at the first :meth:`rotate`, or fails by :meth:`fail`.
        """
        if self._svid is not None:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Hear of changes.

        Args:
            callback: called without arguments after each :meth:`rotate` and :meth:`withdraw`.

        Returns:
            What ends the subscription; calling it twice does nothing.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def rotate(self, svid: X509Svid | None = None, bundles: BundleSet | None = None) -> None:
        """
        Serve something new.

        Args:
            svid: the new SVID; None keeps the old one.
            bundles: the new bundles; None keeps the old ones.
        """
        self._svid = svid or self._svid
        self._withdrawn = None
        self._bundles = bundles if bundles is not None else self._bundles
        self._state = replace(self._state, phase="connected", updates=self._state.updates + 1, last_error=None)
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(None)
        self._tell()

    def withdraw(self) -> None:
        """Let the Workload API end the identity, until the next :meth:`rotate`."""
        name = None if self._svid is None else self._svid.spiffe_id
        self._withdrawn = IdentityWithdrawn(socket="memory", spiffe_id=name, what="told so by a test")
        self._state = replace(self._state, phase="withdrawn", last_error=self._withdrawn)
        self._tell()

    def _tell(self) -> None:
        for callback in tuple(self._subscribers):
            callback()

    def fail(self, error: SvcError | None = None) -> None:
        """
        Let the Workload API be gone.

        Args:
            error: what waiters get and :attr:`state` names.
        """
        problem = error or WorkloadApiUnavailable(socket="memory", seconds=0, what="told so by a test")
        phase: Phase = "starting" if self._svid is None else "stale"
        self._state = replace(self._state, phase=phase, failures=self._state.failures + 1, last_error=problem)
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.errback(problem)
