"""
What a source of credentials offers to those who use it.

Owns the interface alone: the real source, its double for tests and any source of your own implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from svc.errors import SvcError
    from svc.identity.bundle import BundleSet
    from svc.identity.svid import X509Svid

#: ``starting``: nothing good has arrived; ``connected``: the stream is open and its last update was good;
#: ``stale``: the last good values are served, the stream is down or its last update was refused;
#: ``withdrawn``: the Workload API has ended the identity, and nothing is served until it issues one again.
Phase = Literal["starting", "connected", "stale", "withdrawn", "stopped"]

#: What moves a source, in the words of diagrams; ``tests.workload.test_phases`` holds it and the source together.
#: ``no identity for long`` is an answer without one that lasts :data:`WITHDRAWAL_GRACE_SECONDS`.
PHASE_CHANGES: Final[Mapping[tuple[Phase, str], Phase]] = {
    ("starting", "good update"): "connected",
    ("starting", "bad update or outage"): "starting",
    ("connected", "good update"): "connected",
    ("connected", "bad update or outage"): "stale",
    ("stale", "good update"): "connected",
    ("stale", "bad update or outage"): "stale",
    ("stale", "no identity for long"): "withdrawn",
    ("withdrawn", "good update"): "connected",
    ("withdrawn", "bad update or outage"): "withdrawn",
    ("withdrawn", "no identity for long"): "withdrawn",
    ("starting", "no identity for long"): "starting",
    ("starting", "stop"): "stopped",
    ("connected", "stop"): "stopped",
    ("stale", "stop"): "stopped",
    ("withdrawn", "stop"): "stopped",
}

#: How many seconds the Workload API must go on saying that this process has no identity before its identity ends. Twice
#: the five seconds in which an agent of SPIRE learns of its entries, so that one that is replaced is not missed.
WITHDRAWAL_GRACE_SECONDS: Final = 10.0


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
        """
        The default SVID.

        Raises :class:`~svc.workload.errors.CredentialsMissing` before the first update, and its subclass
        :class:`~svc.workload.errors.IdentityWithdrawn` once the identity has been withdrawn.
        """

    @property
    def bundles(self) -> BundleSet:
        """The bundles of the own and of federated trust domains, the last ones; raises before the first update."""

    @property
    def state(self) -> SourceState:
        """How the source does."""

    def when_ready(self) -> Deferred[None]:
        """Fire once credentials are there; fail with ``WorkloadApiUnavailable`` when the start-up wait is over."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change of SVID or bundles, and at a withdrawal; returns what ends that."""
