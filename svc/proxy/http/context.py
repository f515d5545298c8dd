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
from svc.notary.generation import Generation
from svc.notary.level import Level, level_in_force
from svc.policy import Policy
from svc.proxy.config import LimitSettings, TimeoutSettings
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.notarizer import Notarizer
from svc.proxy.steps import StepObserver, unobserved
from svc.telemetry.children import ListenerMetrics, NotaryMetrics
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import Limits


class Generations(Protocol):
    """Where connections find the credentials they were accepted with."""

    @property
    def svid(self) -> X509Svid:
        """The SVID of the current generation."""

    @property
    def identity(self) -> SpiffeID | None:
        """Who this proxy is; None where it has no credentials."""

    def of_evidence(self, evidence: PeerEvidence) -> Generation | None:
        """The generation whose SVID this side presented, None where it has none for the notary."""


class Reporter(Protocol):
    """What an operator must see; implemented by the service, which knows the log."""

    def denied(self, reason: str, address: str, peer: str, detail: str) -> None:
        """A verified peer was denied something."""

    def exchange_failed(self, reason: str, peer: str, detail: str) -> None:
        """An exchange was cut or answered by the proxy for a fault of the application or the notary."""

    def request_served(self, peer: str, method: bytes, status: int | None, seconds: float) -> None:
        """A request is over; told only where the access log is on."""


@dataclass(slots=True)
class ListenerContext:
    """
    One listener's shared things.

    Args:
        name: the listener's name.
        inbound: whether clients come by mTLS; outbound listeners take plain clients.
        policy: who is admitted; None outbound.
        generations: the credentials of connections.
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
        access_log: whether each request is reported.
        step: told how far recorded exchanges have come.
    """

    name: str
    inbound: bool
    policy: Policy | None
    generations: Generations
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
    access_log: bool = False
    step: StepObserver = unobserved
    #: The monotonic time of the last sweep: exact enough for idle times, and no system call for each read.
    tick: float = 0.0
    #: Set when the listener is to end: responses then ask clients to connect elsewhere.
    draining: bool = False
    message_limits: Limits = field(init=False)
    #: The level of an exchange whose client asks for none.
    unasked: Level = field(init=False)

    def __post_init__(self) -> None:
        self.message_limits = Limits(head=self.limits.head, fields=self.limits.fields)
        self.unasked = level_in_force(demanded=self.demanded, asked=Level.NONE, maximum=self.maximum)
        self.tick = self.seconds()
