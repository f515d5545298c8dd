"""
The log of refused connections: at most one record a second for each reason and source.

Owns the event and the words for a refused handshake, for every process that listens.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final
from typing import Protocol as Structural

from twisted.logger import Logger

from svc.telemetry.events.base import Event
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.labels import OTHER, Role
from svc.telemetry.log_limits import DenialLimiter, source_fields
from svc.telemetry.logs import emit

#: The metric's reason for a handshake that failed because of the peer's identity.
_DENIALS: Final = {"svid_invalid": "svid_invalid", "identity_unexpected": "policy_deny", "policy_deny": "policy_deny"}
#: Reasons that are counted apart; the code has fewer.
MAX_REASONS: Final = 64
_REASON: Final = re.compile(r"[a-z][a-z0-9_]*\Z")


class HandshakeError(Structural):
    """What is logged of a :class:`svc.transport.errors.TransportError`; the transport is not imported here."""

    @property
    def reason(self) -> str:
        """The reason."""

    @property
    def detail(self) -> str:
        """The precise reason below it, or OpenSSL's text."""

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
    """The precise reason below the reason of an error; empty where ``detail`` is a text of OpenSSL."""
    return error.detail if _REASON.match(error.detail) else ""


def handshake_record(role: Role, error: HandshakeError, address: str) -> tuple[Event, dict[str, Any]]:
    """The event of a failed handshake, and the arguments for :func:`svc.telemetry.logs.emit`."""
    word, peer, precise = _DENIALS.get(error.reason), error.peer_spiffe_id, precise_reason(error)
    attributes = {"source.address": address, "role": role, "tls.alert": error.alert}
    if error.expected_spiffe_id:
        attributes["expected_spiffe_id"] = error.expected_spiffe_id
    return ProxyEvent.HANDSHAKE_FAILED if word is None else ProxyEvent.AUTH_DENIED, {
        "reason": word,
        "detail_reason": precise or error.reason,
        "detail": str(error) if precise else error.detail or str(error),
        "peer_spiffe_id": peer or None,
        "claimed_spiffe_id": None if peer else error.claimed_spiffe_id or None,
        "attributes": attributes,
    }


class DenialCounts(Counter[str]):
    """Denials since the start by precise reason; what goes beyond :data:`MAX_REASONS` reasons is ``other``."""

    def add(self, reason: str) -> None:
        """Count one."""
        self[reason if reason in self or len(self) < MAX_REASONS else OTHER] += 1


class ConnectionLog:
    """
    Logs refused connections; a :class:`svc.transport.observer.ConnectionObserver`.

    Attributes:
        denials: all that were reported, logged or not.
    """

    log = Logger()

    def __init__(self, limiter: DenialLimiter) -> None:
        self._limiter = limiter
        self.denials = DenialCounts()

    def close(self) -> None:
        """Log how many records were omitted, and stop the timer."""
        self._limiter.close()

    def handshake_started(self, role: Role) -> None:
        """Not logged."""

    def handshake_done(self, role: Role, seconds: float, evidence: object) -> None:
        """Not logged: a fleet that reconnects must not flood the log."""

    def handshake_failed(self, role: Role, error: HandshakeError, address: str) -> None:
        """Log the refused handshake, with the identity of the peer where it was verified."""
        reason = precise_reason(error) or error.reason
        self.denials.add(reason)
        if self._limiter.admit(reason, address):
            event, fields = handshake_record(role, error, address)
            emit(self.log, event, **fields)

    def connection_refused(self, reason: str, address: str) -> None:
        self.denials.add(reason)
        if self._limiter.admit(reason, "*"):
            emit(self.log, ProxyEvent.CONNECTION_REFUSED, detail_reason=reason, attributes={"source.address": address})

    def connection_aborted(self, reason: str, address: str) -> None:
        """Log an established connection that was closed because its peer exceeded a limit of TLS."""
        if self._limiter.admit(reason, address):
            emit(self.log, ProxyEvent.CONNECTION_ABORTED, detail_reason=reason, attributes={"source.address": address})


def log_suppressed(log: Logger, event: Event, reason: str, source: str, count: int) -> None:
    """Log how many denials of one precise reason and source were not logged one by one."""
    identity, address = source_fields(source)
    attributes: dict[str, str | int | float | bool | None] = {"source.address": address, "suppressed": count}
    emit(log, event, detail_reason=reason, peer_spiffe_id=identity, attributes=attributes)
