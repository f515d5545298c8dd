"""What all connections of one HTTP listener share, beside what every listener has: pool, notary, its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography import x509

from svc.notary.level import Level, effective_level
from svc.notary.record_bound import RecordBound
from svc.proxy.context import ListenerContext
from svc.proxy.eviction import EvictionOrder
from svc.proxy.http.peer_verification import PeerVerifier
from svc.proxy.http.upstream import UpstreamPool
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.release_points import ReleaseObserver, unobserved
from svc.telemetry.labels import HTTP_METHODS
from svc.telemetry.metrics import NotaryMetrics
from svc.telemetry.unlocked import UnlockedCount, UnlockedDurations
from svc.wire.http1 import MessageLimits


@dataclass(slots=True, kw_only=True)
class HttpContext(ListenerContext):
    """What the connections of one HTTP listener share."""

    notarizer: Notarizer
    pool: UpstreamPool
    notary_metrics: NotaryMetrics
    #: The level that every request gets at least, and the strongest one; outbound what the peer is asked for.
    demanded: Level
    maximum: Level
    #: The wall clock in seconds since 1970, where each request reads it.
    unix_time: Callable[[], float]
    #: Inbound: whether requests get a ``Forwarded`` field.
    forwarded: bool = False
    #: Outbound: what replaces Host, None where it stays.
    host: bytes | None = None
    #: Host of requests that have none: the upstream's own.
    upstream_host: bytes = b"localhost"
    #: Outbound: what the peer has to prove, None where its SVID is enough.
    peers: PeerVerifier | None = None
    #: Called when a recorded exchange passes a point of its release.
    released: ReleaseObserver = unobserved
    message_limits: MessageLimits = field(init=False)
    #: The largest body of a request, None without a limit.
    body_limit: int | None = field(init=False)
    #: The largest record of an exchange, and what it takes in the database.
    record_bound: RecordBound = field(init=False)
    record_octets: int = field(init=False)
    #: Which connection a full listener closes for a new one.
    evictions: EvictionOrder = field(init=False)
    #: The level of an exchange whose client asks for none.
    unasked: Level = field(init=False)
    #: Counts exchanges at the level ``workload``.
    workload_exchanges: UnlockedCount = field(init=False)
    #: Histograms of durations by method, and that of all other methods.
    durations: dict[bytes, UnlockedDurations] = field(init=False)
    other_durations: UnlockedDurations = field(init=False)
    #: The leaf of the SVID under which new connections are made.
    _leaf: x509.Certificate | None = field(init=False)

    def __post_init__(self) -> None:
        # A class with slots is another one than that of its methods, which super() without arguments refers to.
        ListenerContext.__post_init__(self)
        self._leaf = self._own_leaf()
        if not self.inbound:
            self.pool.reauthorize_by(self.evaluate_upstream, self.reauthorization, self.drain_seconds, self._drained)
        self.evictions = EvictionOrder(self.limits.connections)
        self.message_limits = MessageLimits(head=self.limits.head, fields=self.limits.fields)
        self.body_limit = self.limits.body
        self.record_bound = RecordBound(self.limits.head, self.limits.fields, self.notarizer.redaction)
        self.record_octets = self.record_bound.stored
        self.unasked = effective_level(demanded=self.demanded, asked=Level.NONE, maximum=self.maximum)
        self.workload_exchanges = self.notary_metrics.level["workload"]
        methods = [name.encode("ascii") for name in HTTP_METHODS]
        self.durations = {method: self.metrics.request_duration(method) for method in methods}
        self.other_durations = self.metrics.request_duration(b"")

    def sweep(self, now: float) -> None:
        """See :meth:`ListenerContext.sweep`."""
        self.pool.sweep(now)

    def credentials_changed(self) -> None:
        """See :meth:`ListenerContext.credentials_changed`."""
        leaf = self._own_leaf()
        if leaf != self._leaf and not self.inbound:
            self.pool.retire()
        self._leaf = leaf

    def _own_leaf(self) -> x509.Certificate | None:
        return None if self.rotation.identity is None else self.rotation.svid.leaf

    def _drained(self) -> None:
        self.metrics.upstream_closed("rotation")

    def close(self) -> None:
        """See :meth:`ListenerContext.close`."""
        self.pool.close()
