"""
The interface through which the transport reports what happened to connections.

Telemetry implements it; the transport never imports telemetry. All calls are made on the reactor thread and must not
raise.
"""

from __future__ import annotations

from typing import Literal, Protocol

from svc.transport.evidence import PeerEvidence

#: Which side of the handshake this process is.
Role = Literal["server", "client"]


class ConnectionObserver(Protocol):
    """Is told of each handshake and of each connection that a limit refused."""

    def handshake_started(self, role: Role) -> None:
        """
        A TCP connection exists and its TLS handshake begins.

        Args:
            role: which side this process is.
        """

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """
        The handshake is complete and the peer verified; its protocol is connected next.

        Not called where peers show nothing: there is nobody to tell of.

        Args:
            role: which side this process is.
            seconds: the time since ``handshake_started``.
            evidence: who the peer is and what was negotiated.
        """

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """
        The handshake ended without a verified peer; no protocol was connected.

        Args:
            role: which side this process is.
            reason: the ``reason`` of the error, such as ``svid_invalid`` or ``handshake_timeout``.
            detail: the precise reason below it (``expired``), or an empty string.
            address: the peer's address, ``host:port``.
            alert: the TLS alert sent or received (RFC 8446, section 6), or an empty string.
        """

    def connection_refused(self, reason: str, address: str) -> None:
        """
        A limit closed an accepted connection before anything was read.

        Args:
            reason: ``connection_limit``, ``handshake_limit`` or ``credentials_missing``.
            address: the peer's address, ``host:port``.
        """


class NullObserver:
    """An observer that keeps nothing."""

    def handshake_started(self, role: Role) -> None:
        """See :class:`ConnectionObserver`."""

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """See :class:`ConnectionObserver`."""

    def handshake_failed(self, role: Role, reason: str, detail: str, address: str, alert: str) -> None:
        """See :class:`ConnectionObserver`."""

    def connection_refused(self, reason: str, address: str) -> None:
        """See :class:`ConnectionObserver`."""
