"""What all connections of one listener share, whatever its protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.logger import Logger

from svc.errors import SvcError
from svc.identity import SvidEvidence
from svc.identity.errors import SvidInvalid
from svc.notary.level import Level
from svc.pacing.turns import Turns
from svc.policy.engine import ConnectionPolicy, Denied, Permit
from svc.policy.rules import RequestFacts
from svc.policyfiles.settings import Policies
from svc.process.reauthorization import Reauthorization
from svc.proxy.connection_settings import LimitSettings, OnRotation, TimeoutSettings
from svc.proxy.errors import FormerSvidRefused
from svc.proxy.evaluation import Evaluation, Refused, evaluated
from svc.proxy.reporter import PolicyDecision, Reporter
from svc.telemetry.metrics import ListenerMetrics
from svc.transport.chain_cache import VerifiedChainCache
from svc.transport.errors import OwnIdentityWithdrawn
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.credential_rotation import CredentialRotation

_log = Logger()
_rank: Final = attrgetter("rank")
#: Former SVIDs of this proxy whose verification is remembered; a connection lasts for two of them at most, unless SVIDs
#: are renewed far more often than they end.
MAX_FORMER: Final = 16


def level_bounds(permit: Permit, demanded: Level, maximum: Level) -> tuple[Level, Level]:
    """
    Return the least and the strongest level under rules: the strongest minimum, the weakest maximum.

    A minimum is stronger than a maximum of another rule, and what the listener allows is stronger than both.
    """
    minima = [Level.parse(each.minimum) for each in permit.matched if each.minimum is not None]
    maxima = [Level.parse(each.maximum) for each in permit.matched if each.maximum is not None]
    least = max(minima, key=_rank, default=Level.NONE)
    most = max(min(maxima, key=_rank, default=Level.SIGN_REQUEST), least, key=_rank)
    return max(demanded, least, key=_rank), min(maximum, most, key=_rank)


class AuthorizedConnection(Protocol):
    """A connection with a verified peer, of a client or to an upstream, that is decided on again after changes."""

    def reauthorize(self) -> bool:
        """
        Verify and authorize again by what is in force now.

        Returns:
            Whether the peer, or this side to the peer, would now be refused; the connection then is ended and reported.
        """

    def abort_defective(self) -> None:
        """Drop the connection, which a defect of this proxy left undecided."""


def decide_again(connection: AuthorizedConnection) -> bool:
    """Have a connection decided; a defect in one drops it and leaves the others alone."""
    try:
        return connection.reauthorize()
    except Exception:  # noqa: BLE001 (what cannot be decided is refused)
        _log.failure("a connection could not be reauthorized; it is dropped")
        connection.abort_defective()
        return True


@dataclass(slots=True, kw_only=True)
class ListenerContext:
    """The settings, the policies and the clocks of a listener, and where its connections are counted and reported."""

    name: str
    #: Whether clients come by mTLS; outbound listeners accept plain clients of this machine.
    inbound: bool
    #: Who is admitted to what; None outbound.
    policies: Policies | None
    rotation: CredentialRotation
    #: Where connections with a verified peer are registered.
    reauthorization: Reauthorization[AuthorizedConnection]
    #: Where connections wait with octets that take longer than a turn of the reactor.
    turns: Turns
    metrics: ListenerMetrics
    reporter: Reporter
    limits: LimitSettings
    timeouts: TimeoutSettings
    #: The monotonic clock.
    seconds: Callable[[], float]
    #: The wall clock, aware UTC.
    wall: Callable[[], datetime]
    #: What becomes of connections that were made under a former SVID of this proxy, and after how many seconds those
    #: that cannot be asked to end are closed.
    on_rotation: OnRotation = "keep"
    drain_seconds: Callable[[], float] = lambda: 0.0
    #: Former SVIDs of this proxy that would still be accepted.
    former: VerifiedChainCache = field(default_factory=lambda: VerifiedChainCache(MAX_FORMER))
    #: Returns the refusal of a peer that is on a deny list.
    listed: Callable[[SvidEvidence], Denied | None] = lambda _evidence: None
    #: The port, once it listens.
    port: int = 0
    #: The monotonic time of the last sweep: exact enough for idle times, without a system call for each read.
    tick: float = 0.0
    #: Set when the listener is to end soon: clients are still accepted, and each response ends its connection.
    leaving: bool = False
    #: Set when the listener is to end.
    draining: bool = False

    def __post_init__(self) -> None:
        self.tick = self.seconds()

    def narrowed(self, policies: Policies, evidence: PeerEvidence) -> ConnectionPolicy:
        """The policies, narrowed to a connection of a verified client."""
        return policies.connection(
            self.name,
            self.port,
            evidence.svid.spiffe_id,
            evidence.own_svid.spiffe_id,
            post_quantum=evidence.post_quantum,
            sni=evidence.server_name,
            alpn=evidence.alpn,
        )

    def observe(
        self, rules: ConnectionPolicy, facts: RequestFacts, peer: str, request: RequestHead | None, *, permitted: bool
    ) -> None:
        """Count and report what policies in dry run would decide, and what Audit policies match."""
        trial = rules.dry_run(facts)
        if trial is not None:
            (self.metrics.dry_run_allowed if trial.allowed else self.metrics.dry_run_denied).inc()
            if trial.allowed != permitted:
                self.reporter.dry_run_differs(peer, trial, listener=self.name, request=request)
        for matched in rules.audited(facts):
            self.reporter.audited(peer, matched, permitted=permitted, listener=self.name, request=request)

    def evaluate(self, evidence: PeerEvidence, authorize: Callable[[], object]) -> Evaluation:
        """
        Decide again on a connection with a verified peer.

        Args:
            evidence: of its handshake.
            authorize: raises Denied where the peer would now be refused; called once the peer is verified.
        """

        def decide() -> bool:
            evidence.reauthorize(self.rotation.identity, self.rotation.bundles, self.wall())
            authorize()
            return self._apply_rotation(evidence)

        return evaluated(decide)

    def evaluate_upstream(self, evidence: PeerEvidence) -> Evaluation:
        """Decide again on a connection to a peer; count and report where it is refused."""

        def authorize() -> None:
            listed = self.listed(evidence.svid)
            if listed is not None:
                raise listed

        evaluation = self.evaluate(evidence, authorize)
        if isinstance(evaluation, Refused):
            self.metrics.upstream_closed(evaluation.cause)
            self.report_refused(evaluation.error, "", str(evidence.svid.spiffe_id))
        return evaluation

    def report_refused(
        self, error: SvcError, address: str, peer: str, request: RequestHead | None = None, decision_id: str = ""
    ) -> PolicyDecision | None:
        """
        Count and report that a verified peer was refused.

        Args:
            error: what refuses it; of an identity that this side no longer has nothing is reported for each peer.
            address: the host of the peer, empty where this side connects.
            peer: its identity.
            request: what it is refused, where not the connection.
            decision_id: the identifier of the decision that the peer is told.

        Returns:
            The decision, where policies refuse it.
        """
        decision = None
        if isinstance(error, OwnIdentityWithdrawn):
            return None
        if isinstance(error, Denied):
            self.metrics.denied_policy.inc()
            decision = PolicyDecision(error.policy, error.rule, decision_id)
        elif isinstance(error, SvidInvalid):
            self.metrics.denied_svid.inc()
        self.reporter.denied(
            error.reason, address, peer, str(error), listener=self.name, request=request, decision=decision
        )
        return decision

    def _apply_rotation(self, evidence: PeerEvidence) -> bool:
        """
        Apply ``onRotation`` to a connection whose peer is not refused; returns whether it is to end in order.

        Raises:
            FormerSvidRefused: this side's own SVID on it would now be refused.
        """
        own, rotation = evidence.own_svid, self.rotation
        if self.on_rotation == "keep" or own.leaf == rotation.svid.leaf:
            return False
        if self.on_rotation == "drain":
            return True
        try:
            chain = tuple(each.public_bytes(Encoding.DER) for each in own.chain)
            # It was valid when it was presented, whatever the clock says.
            listed = self.listed(self.former.verify(chain, rotation.bundles, max(self.wall(), own.not_before)))
            if listed is not None:
                raise listed
        except (SvidInvalid, Denied) as error:
            raise FormerSvidRefused(cause=error) from error
        return False

    def opened(self) -> None:
        """The listener accepts connections."""

    def sweep(self, now: float) -> None:
        """Check the time limits of what is not a client's connection."""

    def credentials_changed(self) -> None:
        """Let new exchanges use new credentials."""

    def close(self) -> None:
        """Close what is not a client's connection."""
