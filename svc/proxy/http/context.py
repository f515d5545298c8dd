"""
What all connections of one listener share.

Owns nothing that changes with a request: settings, policy, pool, notary, metrics, and the coarse clock that the sweep
moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from svc.identity import SpiffeID, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.level import Level, effective_level
from svc.notary.record_bound import RecordBound
from svc.policy import Policy
from svc.proxy.config import LimitSettings, TimeoutSettings
from svc.proxy.eviction import EvictionOrder
from svc.proxy.http.summary import ExchangeSummary
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.notarizer import Notarizer
from svc.proxy.release_points import ReleaseObserver, unobserved
from svc.telemetry.metrics import ListenerMetrics, NotaryMetrics
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import MessageLimits, RequestHead


class CredentialRotation(Protocol):
    """Where connections find the credentials they were accepted with."""

    @property
    def svid(self) -> X509Svid:
        """The SVID of the current credentials."""

    @property
    def identity(self) -> SpiffeID | None:
        """Who this proxy is; None where it has no credentials."""

    def of_evidence(self, evidence: PeerEvidence) -> CredentialSet | None:
        """The credentials whose SVID this side presented, None where it has none for the notary."""


class Reporter(Protocol):
    """What an operator must see; implemented by the service, which knows the log."""

    #: Whether complete exchanges without a record are reported too; asked before a summary of them is made.
    every_exchange: bool

    def denied(
        self, reason: str, address: str, peer: str, detail: str, *, listener: str, request: RequestHead | None = None
    ) -> None:
        """A verified peer was denied a request, or the connection that it had."""

    def evicted(self, reason: str, address: str, peer: str, detail: str) -> None:
        """A full listener closed a connection for a new one."""

    def exchange_failed(self, reason: str, peer: str, detail: str, precise: str = "") -> None:
        """
        An exchange was cut or answered by the proxy for a fault of the upstream or the notary.

        ``precise`` is the reason below ``reason``, where there is one.
        """

    def exchange_ended(self, summary: ExchangeSummary) -> None:
        """An exchange is over, and its record durable or failed; called once for each that is reported."""


@dataclass(slots=True)
class ListenerContext:
    """
    One listener's shared things.

    Args:
        name: the listener's name.
        inbound: whether clients come by mTLS; outbound listeners take plain clients.
        policy: who is admitted; None outbound.
        rotation: the credentials of connections.
        notarizer: makes records durable.
        pool: the connections to the upstream.
        metrics: the listener's resolved counters.
        notary_metrics: the notary's resolved counters.
        reporter: the log.
        demanded: the level that the listener demands.
        maximum: the strongest level it gives.
        limits: sizes and counts.
        timeouts: waits in seconds.
        seconds: the monotonic clock.
        wall: the wall clock, aware UTC.
        step: told how far recorded exchanges have come.
    """

    name: str
    inbound: bool
    policy: Policy | None
    rotation: CredentialRotation
    notarizer: Notarizer
    pool: UpstreamPool
    metrics: ListenerMetrics
    notary_metrics: NotaryMetrics
    reporter: Reporter
    demanded: Level
    maximum: Level
    limits: LimitSettings
    timeouts: TimeoutSettings
    seconds: Callable[[], float]
    wall: Callable[[], datetime]
    released: ReleaseObserver = unobserved
    #: The monotonic time of the last sweep: exact enough for idle times, and no system call for each read.
    tick: float = 0.0
    #: Set when the listener is to end: responses then ask clients to connect elsewhere.
    draining: bool = False
    message_limits: MessageLimits = field(init=False)
    #: The largest record of an exchange, and what it takes in the database.
    record_bound: RecordBound = field(init=False)
    record_octets: int = field(init=False)
    #: Who is closed for a new connection where the listener has all that it may have.
    evictions: EvictionOrder = field(init=False)
    #: The level of an exchange whose client asks for none.
    unasked: Level = field(init=False)

    def __post_init__(self) -> None:
        self.evictions = EvictionOrder(self.limits.connections)
        self.message_limits = MessageLimits(head=self.limits.head, fields=self.limits.fields)
        self.record_bound = RecordBound(self.limits.head, self.limits.fields, self.notarizer.redaction)
        self.record_octets = self.record_bound.stored
        self.unasked = effective_level(demanded=self.demanded, asked=Level.NONE, maximum=self.maximum)
        self.tick = self.seconds()
