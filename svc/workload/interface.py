"""
What a source of credentials offers to those who use it.

Owns the interface alone: the real source, its double for tests and any source of your own implement it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from svc.errors import SvcError
    from svc.identity.bundle import BundleSet
    from svc.identity.svid import X509Svid

#: ``starting``: nothing good has arrived; ``connected``: the stream is open and its last update was good;
#: ``stale``: the last good values are served, the stream is down or its last update was refused.
Phase = Literal["starting", "connected", "stale", "stopped"]


@dataclass(frozen=True, slots=True)
class SourceState:
    """
    What readiness and people want to know of a source.

    Args:
        phase: see :data:`Phase`.
        updates: updates taken since the start.
        rejected: updates refused since the start.
        failures: streams that failed or could not be opened.
        last_update: when the last good update was taken.
        last_error: what went wrong since then, or None.
        not_after: when the SVID in use expires.
    """

    phase: Phase
    updates: int = 0
    rejected: int = 0
    failures: int = 0
    last_update: datetime | None = None
    last_error: SvcError | None = None
    not_after: datetime | None = None


class CredentialSource(Protocol):
    """The current SVID and bundles, and a way to hear of new ones; all of it on the reactor's thread."""

    @property
    def svid(self) -> X509Svid:
        """The default SVID; raises :class:`~svc.workload.errors.CredentialsMissing` before the first update."""

    @property
    def bundles(self) -> BundleSet:
        """The bundles of the own and of federated trust domains; raises as :attr:`svid`."""

    @property
    def state(self) -> SourceState:
        """How the source does."""

    def when_ready(self) -> Deferred[None]:
        """Fire once credentials are there; fail with ``WorkloadApiUnavailable`` when the start-up wait is over."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change of SVID or bundles; returns what ends the subscription."""
