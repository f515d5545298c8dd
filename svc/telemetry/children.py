"""
Metric children resolved once, so that nothing looks up labels for a request.

Owns what a listener and a notary move; must not know what a connection or a request is.
"""

from __future__ import annotations

from typing import Final
from typing import Protocol as Structural

from prometheus_client import Counter, Gauge, Histogram

from svc.telemetry.families import ConnectionFamilies, NotaryFamilies, TlsFamilies
from svc.telemetry.labels import (
    CAUSES,
    HANDSHAKE_REASONS,
    HTTP_METHODS,
    LEVELS,
    OTHER,
    TLS_GROUPS,
    UPSTREAM_CAUSES,
    Cause,
    Direction,
    Level,
    NotaryProtocol,
    Protocol,
    Role,
    UpstreamCause,
    tls_group,
)
from svc.telemetry.unlocked import UnlockedCount, UnlockedDurations

#: A verified peer is refused for who it is, by the configuration of the listener.
_UNWANTED: Final = frozenset(("identity_unexpected", "policy_deny"))


class HandshakeEvidence(Structural):
    """What a metric needs of a finished handshake."""

    @property
    def group(self) -> str:
        """The key exchange group."""


class NotaryMetrics:
    """
    The resolved children of one protocol's notary.

    Args:
        families: what the notary moves.
        protocol: the protocol.

    Attributes:
        records_written: records that became durable.
        records_failed: records that did not, or were refused because the notary cannot write now.
        level: the counter of exchanges for each level.
        lookups: durations of requests for statements and receipts.
    """

    def __init__(self, families: NotaryFamilies, protocol: NotaryProtocol) -> None:
        self.records_written: Final[Counter] = families.records.labels("success", protocol)
        self.records_failed: Final[Counter] = families.records.labels("error", protocol)
        self.level: Final[dict[Level, UnlockedCount]] = {level: families.levels.labels(level) for level in LEVELS}
        self.lookups: Final[UnlockedDurations] = families.lookups.labels()


class ListenerMetrics:
    """
    The resolved children of one listener; also counts what its TLS connections report.

    Args:
        connections: what connections move.
        tls: what handshakes move.
        protocol: what the listener speaks.
        direction: where its connections go.

    Attributes:
        role: the TLS role of this listener's connections: towards clients inbound, towards the peer outbound.
        active: open connections; ``inc()`` when one is accepted, ``dec()`` when it is gone.
        succeeded: connections that were accepted for service, each once; counted here for verified peers, else by the
            listener.
        auth_failed: connections refused for who their peer is; counted here for handshakes, by the listener for policy.
        failed: connections that failed otherwise; counted here for handshakes, limits and unreachable peers.
        bytes_received: application octets from clients; ``inc(n)``.
        bytes_sent: application octets to backends; ``inc(n)``.
        auth_allowed: decisions that let something pass: requests inbound, verified peers outbound.
        denied_svid: decisions that refused an invalid SVID.
        denied_policy: decisions of policy that refused something.
    """

    def __init__(
        self, connections: ConnectionFamilies, tls: TlsFamilies, protocol: Protocol, direction: Direction
    ) -> None:
        self.protocol: Final = protocol
        self.direction: Final = direction
        self.role: Final[Role] = "server" if direction == "inbound" else "client"
        self._connections = connections
        self._tls = tls
        self.active: Final[Gauge] = connections.active.labels(protocol, direction)
        self.succeeded: Final[Counter] = connections.connections.labels(protocol, direction, "success")
        self.auth_failed: Final[Counter] = connections.connections.labels(protocol, direction, "auth_failed")
        self.failed: Final[Counter] = connections.connections.labels(protocol, direction, "error")
        self.bytes_received: Final[Counter] = connections.received.labels(protocol)
        self.bytes_sent: Final[Counter] = connections.sent.labels(protocol)
        decisions = connections.decisions
        self.auth_allowed: Final[UnlockedCount] = decisions.labels("allowed", "ok", protocol, self.role)
        self.denied_svid: Final[UnlockedCount] = decisions.labels("denied", "svid_invalid", protocol, self.role)
        self.denied_policy: Final[UnlockedCount] = decisions.labels("denied", "policy_deny", protocol, self.role)
        self._handshake: Histogram = tls.handshakes.labels(protocol, self.role)
        self._groups = {
            name: tls.tls_connections.labels(protocol, self.role, name, "true" if post_quantum else "false")
            for name, post_quantum in (*TLS_GROUPS.items(), (OTHER, False))
        }
        self._failures = {
            reason: tls.handshake_failures.labels(self.role, reason) for reason in HANDSHAKE_REASONS[self.role]
        }
        self._closed: dict[str, Counter] = {cause: connections.closed.labels(protocol, cause) for cause in CAUSES}
        self._upstream_closed = {
            cause: connections.upstream_closed.labels(protocol, cause) for cause in UPSTREAM_CAUSES
        }
        self._other_methods: UnlockedDurations = connections.requests.labels(protocol, OTHER)
        self._methods: dict[bytes, UnlockedDurations] = {
            name.encode("ascii"): connections.requests.labels(protocol, name) for name in HTTP_METHODS
        }

    def request_duration(self, method: bytes) -> UnlockedDurations:
        """
        Find the histogram for a request.

        Args:
            method: the request's method as it stands on the wire.

        Returns:
            The child of that method; one child serves all methods that are not registered.
        """
        return self._methods.get(method, self._other_methods)

    def closed(self, cause: Cause) -> None:
        """
        Count a connection of a client that was closed.

        Args:
            cause: what ended it.
        """
        self._closed[cause].inc()

    def upstream_closed(self, cause: UpstreamCause) -> None:
        """
        Count a connection to a peer that was closed for the credentials of one side.

        Args:
            cause: what ended it.
        """
        self._upstream_closed[cause].inc()

    def upstream_unreachable(self) -> None:
        """Count a peer that no connection could be made to; an application behind an inbound listener is no peer."""
        if self.direction == "outbound":
            self.failed.inc()

    def upstream_accepted(self) -> None:
        """Count a connection to a peer that did not refuse the SVID of this side."""
        self.succeeded.inc()

    # What a TLS connection reports: svc.transport.observer.ConnectionObserver.

    def handshake_started(self, role: Role) -> None:
        """
        Count nothing: only handshakes that ended are counted.

        Args:
            role: which side this process is.
        """

    def handshake_done(self, role: Role, seconds: float, evidence: HandshakeEvidence) -> None:
        """
        Observe a finished handshake.

        Args:
            role: which side this process is.
            seconds: its duration, validation of the SVID included.
            evidence: the negotiated group.
        """
        self._handshake.observe(seconds)
        self._groups[tls_group(evidence.group)].inc()
        if self.role == "client":
            # Inbound a handshake only says who asks: there each request is a decision.
            self.auth_allowed.inc()

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """
        Count a handshake that failed, its connection and, where the peer was refused for who it is, the decision.

        Args:
            role: which side this process is.
            reason: the reason of the error.
            detail: the precise reason below it, or an empty string.
            address: the peer's address, not counted.
            alert: the TLS alert, not counted.
        """
        word = detail if reason == "svid_invalid" else reason
        (self._failures.get(word) or self._failures[OTHER]).inc()
        if reason == "svid_invalid":
            self.auth_failed.inc()
            self.denied_svid.inc()
        elif reason in _UNWANTED:
            self.auth_failed.inc()
            self.denied_policy.inc()
        else:
            self.failed.inc()
        if self.role == "server":
            self.closed("handshake")

    def connection_refused(self, reason: str, address: str) -> None:
        """
        Count a connection that was closed before its handshake.

        Args:
            reason: which limit.
            address: the peer's address, not counted.
        """
        self.failed.inc()
        (self._closed.get(reason) or self._closed[OTHER]).inc()
