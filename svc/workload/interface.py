"""The interface of a source of credentials, and its states."""

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
    from svc.telemetry.health import Health

#: ``starting``: no valid update has arrived; ``connected``: the stream is open and its last update was accepted;
#: ``stale``: the last valid values are in use, the stream is down or its last update was refused;
#: ``withdrawn``: the Workload API has ended the identity, and there is no SVID until it issues one again.
Phase = Literal["starting", "connected", "stale", "withdrawn", "stopped"]

#: The transitions, named as in the diagram; ``tests.workload.test_phases`` compares them with the source. ``no identity
#: for long`` is an answer without one that persists for :data:`WITHDRAWAL_GRACE_SECONDS`.
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

#: Seconds for which the Workload API must answer that this process has no identity before it is withdrawn. Twice the
#: five seconds in which a SPIRE agent fetches its entries, so that an entry that is replaced does not count as removed.
WITHDRAWAL_GRACE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class SourceState:
    """
    The state of a source, for readiness and people.

    Attributes:
        phase: see :data:`Phase`.
        updates: updates accepted since the start.
        rejected: updates refused since the start.
        failures: streams that failed or could not be opened.
        last_update: when the last update was accepted.
        last_error: what went wrong since then, or None.
        not_after: when the current SVID expires.
        outage: what is wrong with the Workload API, and since when; None while the phase is ``connected``, and before
            the first answer.
    """

    phase: Phase
    updates: int = 0
    rejected: int = 0
    failures: int = 0
    last_update: datetime | None = None
    last_error: SvcError | None = None
    not_after: datetime | None = None
    outage: SvcError | None = None


class CredentialSource(Protocol):
    """The current SVID and bundles, with notification of changes; all of it on the reactor's thread."""

    @property
    def svid(self) -> X509Svid:
        """
        The default SVID.

        Raises :class:`~svc.workload.errors.CredentialsMissing` before the first update, and its subclass
        :class:`~svc.workload.errors.IdentityWithdrawn` once the identity has been withdrawn.
        """

    @property
    def bundles(self) -> BundleSet:
        """The latest bundles of the own and of federated trust domains; raises before the first update."""

    @property
    def state(self) -> SourceState:
        """The current state."""

    def when_ready(self) -> Deferred[None]:
        """Fire once there are credentials; fail with ``WorkloadApiUnavailable`` when the start timeout is over."""

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` after each change of SVID or bundles, and at a withdrawal; returns what ends that."""


#: The condition of :class:`~svc.telemetry.health.Health` for the Workload API. It is not required for readiness: the
#: current credentials stay in use during an outage.
WORKLOAD_API: Final = "workloadApi"


def report_health(health: Health, state: SourceState) -> None:
    """Set the condition :data:`WORKLOAD_API` by the state of a source."""
    if state.outage is not None:
        health.fails_with(WORKLOAD_API, state.outage)
    elif state.phase == "connected":
        health.holds(WORKLOAD_API)
