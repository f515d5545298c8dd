"""
The log of connections that are refused: what the transport reports, one record a second for each reason and source.

Owns which event and which words a refused handshake gets, for every process that listens. Counts nothing; the errors of
the transport are known here by their attributes alone.
"""

from __future__ import annotations

import re
from typing import Any, Final
from typing import Protocol as Structural

from twisted.logger import Logger

from svc.telemetry.events import Event
from svc.telemetry.labels import Role
from svc.telemetry.log_limits import DenialLimiter, source_fields
from svc.telemetry.logs import emit

#: The metric's word for a handshake that failed for who the peer is; other reasons are no decision about an identity.
_DENIALS: Final = {"svid_invalid": "svid_invalid", "identity_unexpected": "policy_deny", "policy_deny": "policy_deny"}
_REASON: Final = re.compile(r"[a-z][a-z0-9_]*\Z")


class HandshakeError(Structural):
    """What a record needs of a :class:`svc.transport.errors.TransportError`."""

    @property
    def reason(self) -> str:
        """The reason."""

    @property
    def detail(self) -> str:
        """The precise reason below it, or OpenSSL's words."""

    @property
    def alert(self) -> str:
        """The TLS alert."""

    @property
    def peer_spiffe_id(self) -> str:
        """The identity in a certificate that was verified."""

    @property
    def expected_spiffe_id(self) -> str:
        """The identity that was required."""

    @property
    def claimed_spiffe_id(self) -> str:
        """The identity in a certificate that was not verified."""


def precise_reason(error: HandshakeError) -> str:
    """
    Give the precise reason below the reason of an error.

    Args:
        error: why a handshake failed.

    Returns:
        The word; empty where there is none, as OpenSSL's sentences are no reasons.
    """
    return error.detail if _REASON.match(error.detail) else ""


def handshake_record(role: Role, error: HandshakeError, address: str) -> tuple[Event, dict[str, Any]]:
    """
    Say how a failed handshake is logged.

    Args:
        role: of this side.
        error: why it failed.
        address: the peer's.

    Returns:
        The event, and what :func:`svc.telemetry.logs.emit` takes with it.
    """
    word, peer, precise = _DENIALS.get(error.reason), error.peer_spiffe_id, precise_reason(error)
    attributes = {"source.address": address, "role": role, "tls.alert": error.alert}
    if error.expected_spiffe_id:
        attributes["expected_spiffe_id"] = error.expected_spiffe_id
    return Event.HANDSHAKE_FAILED if word is None else Event.AUTH_DENIED, {
        "reason": word,
        "detail_reason": precise or error.reason,
        "detail": str(error) if precise else error.detail or str(error),
        "peer_spiffe_id": peer or None,
        "claimed_spiffe_id": None if peer else error.claimed_spiffe_id or None,
        "attributes": attributes,
    }


class ConnectionLog:
    """
    Logs refused connections; a :class:`svc.transport.observer.ConnectionObserver`.

    Args:
        limiter: decides what is logged and reports what is not.
    """

    log = Logger()

    def __init__(self, limiter: DenialLimiter) -> None:
        self._limiter = limiter

    def close(self) -> None:
        """Log how many records were left out, and stop the timer."""
        self._limiter.close()

    def handshake_started(self, role: Role) -> None:
        """Log nothing."""

    def handshake_done(self, role: Role, seconds: float, evidence: object) -> None:
        """Log nothing: a fleet that reconnects must not flood the log."""

    def handshake_failed(self, role: Role, error: HandshakeError, address: str) -> None:
        """Log who was refused where that is the cause, and what is known of the peer."""
        if self._limiter.admit(precise_reason(error) or error.reason, address):
            event, fields = handshake_record(role, error, address)
            emit(self.log, event, **fields)

    def connection_refused(self, reason: str, address: str) -> None:
        """Log that a limit closed a connection."""
        if self._limiter.admit(reason, "*"):
            emit(self.log, Event.CONNECTION_REFUSED, detail_reason=reason, attributes={"source.address": address})

    def connection_aborted(self, reason: str, address: str) -> None:
        """Log that an established connection was closed for what its peer did to TLS."""
        if self._limiter.admit(reason, address):
            emit(self.log, Event.CONNECTION_ABORTED, detail_reason=reason, attributes={"source.address": address})


def log_suppressed(log: Logger, event: Event, reason: str, source: str, count: int) -> None:
    """
    Log how many denials were not logged one by one.

    Args:
        log: the emitting class's logger.
        event: the event that counts them.
        reason: the precise reason that they share.
        source: where they came from.
        count: how many.
    """
    identity, address = source_fields(source)
    attributes: dict[str, str | int | float | bool | None] = {"source.address": address, "suppressed": count}
    emit(log, event, detail_reason=reason, peer_spiffe_id=identity, attributes=attributes)
