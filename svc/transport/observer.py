"""
The interface through which the transport reports on connections.

Telemetry implements it; the transport never imports telemetry. All calls are made on the reactor thread and must not
raise.
"""

from __future__ import annotations

from typing import Literal, Protocol

from svc.transport.errors import TransportError
from svc.transport.evidence import PeerEvidence

#: Which side of the handshake this process is.
Role = Literal["server", "client"]


class ConnectionObserver(Protocol):
    """Receives each handshake and each connection that a limit refused; addresses are ``host:port`` of the peer."""

    def handshake_started(self, role: Role) -> None:
        """A TCP connection exists and its TLS handshake begins."""

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None:
        """
        The handshake is complete and the peer verified; its protocol is connected next.

        ``seconds`` is the time since ``handshake_started``. Not called where clients present no certificate.
        """

    def handshake_failed(self, role: Role, error: TransportError, address: str) -> None:
        """
        The handshake ended without a verified peer and no protocol was connected, or the server refused the own SVID.

        TLS 1.3 lets a client finish before the server has verified it: such a refusal (``OwnSvidRefused``) comes after
        ``handshake_done``, and the protocol's connection ends with the same error. ``error.detail`` is the precise
        reason, ``peer_spiffe_id`` and ``claimed_spiffe_id`` are the peer's identity as far as it was received.
        """

    def connection_refused(self, reason: str, address: str) -> None:
        """A limit (``connection_limit``, ``handshake_limit`` ...) or missing credentials closed a new connection."""

    def connection_aborted(self, reason: str, address: str) -> None:
        """An established connection was closed for its peer's use of TLS (``key_update_limit``)."""


class NullObserver:
    """An observer that does nothing."""

    def handshake_started(self, role: Role) -> None: ...

    def handshake_done(self, role: Role, seconds: float, evidence: PeerEvidence) -> None: ...

    def handshake_failed(self, role: Role, error: TransportError, address: str) -> None: ...

    def connection_refused(self, reason: str, address: str) -> None: ...

    def connection_aborted(self, reason: str, address: str) -> None: ...
