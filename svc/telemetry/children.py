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
    LEVELS,
    OTHER,
    Direction,
    Level,
    NotaryProtocol,
    Protocol,
    Role,
    http_method,
    tls_group,
)
from svc.telemetry.plain import PlainCount, PlainDurations


class HandshakeEvidence(Structural):
    """What a metric needs of a finished handshake."""

    @property
    def group(self) -> str:
        """The key exchange group."""

    @property
    def post_quantum(self) -> bool:
        """Whether the group is post-quantum."""


class NotaryMetrics:
    """
    The resolved children of one protocol's notary.

    Args:
        families: what the notary moves.
        protocol: the protocol.

    Attributes:
        records_written: records that became durable.
        records_failed: records that did not.
        level: the counter of exchanges for each level.
    """

    def __init__(self, families: NotaryFamilies, protocol: NotaryProtocol) -> None:
        self.records_written: Final[Counter] = families.records.labels("success", protocol)
        self.records_failed: Final[Counter] = families.records.labels("error", protocol)
        self.level: Final[dict[Level, PlainCount]] = {level: families.levels.labels(level) for level in LEVELS}


class ListenerMetrics:
    """
    The resolved children of one listener; also counts what its TLS connections report.

    Args:
        connections: what connections move.
        tls: what handshakes move.
        protocol: what the listener speaks.
        direction: where its connections go.

    Attributes:
        role: the TLS role of this listener's connections.
        active: open connections; ``inc()`` when one is accepted, ``dec()`` when it is gone.
        succeeded: connections that were accepted for service; the listener counts them.
        auth_failed: connections refused for who their peer is; counted here for handshakes, by the listener for policy.
        failed: connections that failed otherwise; counted here for handshakes and limits.
        bytes_received: application octets from clients; ``inc(n)``.
        bytes_sent: application octets to backends; ``inc(n)``.
        auth_allowed: decisions that let something pass.
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
        self.auth_allowed: Final[Counter] = connections.decisions.labels("allowed", "ok", protocol, self.role)
        self.denied_svid: Final[Counter] = connections.decisions.labels("denied", "svid_invalid", protocol, self.role)
        self.denied_policy: Final[Counter] = connections.decisions.labels("denied", "policy_deny", protocol, self.role)
        self._handshake: Histogram = tls.handshakes.labels(protocol, self.role)
        self._groups: dict[tuple[str, bool], Counter] = {}
        self._closed: dict[str, Counter] = {}
        self._methods: dict[bytes, PlainDurations] = {}

    def request_duration(self, method: bytes) -> PlainDurations:
        """
        Find the histogram for a request.

        Args:
            method: the request's method as it stands on the wire.

        Returns:
            The child of that method; one child serves all methods that are not registered.
        """
        found = self._methods.get(method)
        if found is not None:
            return found
        name = http_method(method)
        child = self._connections.requests.labels(self.protocol, name)
        if name != OTHER:
            self._methods[method] = child
        return child

    def closed(self, cause: str) -> None:
        """
        Count a connection that was closed.

        Args:
            cause: one word for what ended it, such as ``client``, ``idle``, ``drain`` or ``reauthorization``.
        """
        counter = self._closed.get(cause)
        if counter is None:
            word = self._connections.causes.bounded(cause)
            counter = self._connections.closed.labels(self.protocol, word)
            if word != OTHER:
                self._closed[cause] = counter
        counter.inc()

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
            evidence: the negotiated group and its verdict.
        """
        self._handshake.observe(seconds)
        key = (evidence.group, evidence.post_quantum)
        counter = self._groups.get(key)
        if counter is None:
            group = tls_group(evidence.group)
            verdict = "true" if evidence.post_quantum else "false"
            counter = self._tls.tls_connections.labels(self.protocol, role, group, verdict)
            if group != OTHER:
                self._groups[key] = counter
        counter.inc()

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """
        Count a handshake that failed, its connection and, where the SVID was refused, the decision.

        Args:
            role: which side this process is.
            reason: the reason of the error.
            detail: the precise reason below it, or an empty string.
            address: the peer's address, not counted.
            alert: the TLS alert, not counted.
        """
        word = self._tls.reasons.bounded(detail or reason)
        self._tls.handshake_failures.labels(role, word).inc()
        if reason == "svid_invalid":
            self.auth_failed.inc()
            self.denied_svid.inc()
        else:
            self.failed.inc()

    def connection_refused(self, reason: str, address: str) -> None:
        """
        Count a connection that a limit closed before its handshake.

        Args:
            reason: which limit.
            address: the peer's address, not counted.
        """
        self.failed.inc()
        self.closed(reason)
