"""From the buffer and its sessions to metrics, log records and an optional condition of readiness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.errors import SvcError, printable
from svc.proxy.mqtt.stored.buffer.records import DeadLetter, RejectionCause, SessionKey
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from svc.proxy.mqtt.stored.forwarding import AckSource, DropCause, LinkFailure, RefusalCause
from svc.telemetry.events.base import Event
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import GroupedLimiter, RecordLimiter
from svc.telemetry.logs import emit
from svc.telemetry.metrics import MqttMetrics
from svc.telemetry.records import Value
from svc.wire.mqtt import ReasonCode, ReturnCode

CONDITION: Final = "mqttBuffer"
#: Seconds in which one event of a session is logged once for each reason, and how many are tracked.
LOG_INTERVAL: Final = 60.0
MAX_LOGGED: Final = 1024
#: Records of one event in that time that clients of one identity can cause, by whatever identifiers and topics.
IDENTITY_SHARE: Final = 16
#: Characters of a topic in a log record.
MAX_TOPIC: Final = 256

_LINK_FAILURES: Final[dict[LinkFailure, str]] = {
    "session_kept": "the broker: session present, although the session was to begin anew",
    "unexpected_packet": "the broker sent a packet that does not belong there",
    "disconnected": "the broker closed the connection",
    "no_response": "the broker did not answer PINGREQ",
}


class BufferReports:
    """
    What is reported of the buffer; implements :class:`svc.sqlite.groups.GroupObserver`.

    Attributes:
        path: the file.
        trouble: why nothing new is accepted; empty while it is.
    """

    log = Logger()

    def __init__(self, metrics: MqttMetrics, health: Health, path: str, clock: IReactorTime) -> None:
        self.metrics: Final = metrics
        self.path: Final = path
        self.trouble = ""
        self._health = health
        self._clock = clock
        self._limiter = RecordLimiter(LOG_INTERVAL, MAX_LOGGED)
        self._of_identities = GroupedLimiter(LOG_INTERVAL, MAX_LOGGED, IDENTITY_SHARE)
        self._refused = self._closing = False
        health.add_optional(CONDITION)

    def opened(self, sessions: int, messages: int, dead_letters: int) -> None:
        """The buffer is open, with what a former process left."""
        self.metrics.queued.inc(messages)
        self.metrics.dead_letters_kept.set(dead_letters)
        attributes: dict[str, Value] = {"sessions": sessions, "messages": messages, "path": self.path}
        emit(self.log, ProxyEvent.BUFFER_OPENED, attributes=attributes)

    def closing(self) -> None:
        """The process ends: from now on a buffer that accepts nothing is not reported."""
        self._closing = True

    def closed(self) -> None:
        """The buffer is closed, and everything in it is durable."""
        emit(self.log, ProxyEvent.BUFFER_CLOSED, attributes={"path": self.path})

    def listener_gone(self, listener: str, messages: int) -> None:
        """Messages wait for a listener that is not there."""
        emit(self.log, ProxyEvent.BUFFER_WAITS, attributes={"listener": listener, "messages": messages})

    def log_limited(
        self,
        event: Event,
        key: SessionKey,
        reason: str | None = None,
        detail: str | None = None,
        *,
        most: Callable[[], tuple[str, int]] | None = None,
        **more: Value,
    ) -> None:
        """Log an event of a session, and of a topic where there is one; ``most`` finds who holds most octets."""
        group, kind = (event, key.listener, key.owner), (key.client_id, reason, more.get("topic"))
        omitted = self._of_identities.admit(group, kind, self._clock.seconds())
        if omitted is not None and most is not None:
            more["owner"] = key.holder
            more["most"], more["most_octets"] = most()
        self._log(omitted, event, key, reason, detail, **more)

    def _log(
        self, omitted: int | None, event: Event, key: SessionKey, reason: str | None, detail: str | None, **more: Value
    ) -> None:
        if omitted is not None:
            attributes: dict[str, Value] = {"listener": key.listener, "client_id": printable(key.client_id, 64), **more}
            attributes["repeated"] = omitted or None
            emit(self.log, event, detail_reason=reason, detail=detail, attributes=attributes)

    def dead_letter_over(self, letter: DeadLetter | None, decision: Literal["send", "delete"]) -> None:
        """Count and log what an operator decided; None is a dead letter that cannot be read."""
        self.metrics.dead_letters_kept.dec()
        self._log_letter(ProxyEvent.BUFFER_DEAD_LETTER_OVER, letter, decision)

    def dead_letter_kept(
        self, letter: DeadLetter | None, reason: Literal["another_identity", "no_room", "unreadable"]
    ) -> None:
        """Log that a dead letter cannot be sent as an operator wants."""
        self._log_letter(ProxyEvent.BUFFER_DEAD_LETTER_KEPT, letter, reason)

    def _log_letter(self, event: Event, letter: DeadLetter | None, reason: str) -> None:
        key = SessionKey("", "", "") if letter is None else letter.key
        topic = None if letter is None else printable(letter.message.topic, MAX_TOPIC)
        # What an operator wants is not bounded by identity.
        omitted = self._limiter.admit((event, key, reason, topic), self._clock.seconds())
        self._log(omitted, event, key, reason, None, topic=topic)

    # svc.sqlite.groups.GroupObserver

    def committed(self, count: int, seconds: float) -> None:
        """Nothing is counted."""

    def accepting_changed(self, trouble: SvcError | None) -> None:
        """Show and log whether new messages are accepted."""
        self.trouble = "" if trouble is None else str(trouble)
        if trouble is None:
            self._health.holds(CONDITION)
            if self._refused:
                self._refused = False
                emit(self.log, ProxyEvent.BUFFER_ACCEPTS, attributes={"path": self.path})
        elif not self._closing:
            self._refused = True
            self._health.fails_with(CONDITION, trouble)
            detail = f"{trouble}; {trouble.hint}"
            emit(
                self.log,
                ProxyEvent.BUFFER_REFUSES,
                detail_reason=trouble.reason,
                detail=detail,
                attributes={"path": self.path},
            )

    def left_behind(self, operations: int, octets: int) -> None:
        """Log that the process ends before all was durable; none of it was acknowledged."""
        attributes: dict[str, Value] = {"operations": operations, "octets": octets, "path": self.path}
        emit(self.log, ProxyEvent.BUFFER_LEFT_BEHIND, attributes=attributes)

    def db_error(self, op: Literal["put", "init", "close"], detail: str = "") -> None:
        """Log an error of the database, once a minute."""
        omitted = self._limiter.admit((ProxyEvent.BUFFER_FAILED, op), self._clock.seconds())
        if omitted is not None:
            attributes: dict[str, Value] = {"op": op, "path": self.path, "repeated": omitted or None}
            emit(self.log, ProxyEvent.BUFFER_FAILED, detail=detail or None, attributes=attributes)

    def damaged(self, path: str) -> None:
        """Log that the database is damaged."""
        emit(self.log, ProxyEvent.BUFFER_DAMAGED, attributes={"path": path})

    def set_aside(self, path: str, aside: str) -> None:
        """Log that a damaged database was renamed."""
        emit(self.log, ProxyEvent.BUFFER_SET_ASIDE, attributes={"path": path, "aside": aside})

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Log that there are damaged databases that were renamed."""
        emit(self.log, ProxyEvent.BUFFER_LIES_ASIDE, attributes={"databases": len(paths), "newest": paths[-1]})


class SessionReports:
    """The :class:`svc.proxy.mqtt.stored.forwarding.ForwarderObserver` of a session with ``waiting`` messages."""

    def __init__(self, reports: BufferReports, key: SessionKey, waiting: int, shares: BufferShares) -> None:
        self._reports = reports
        self._metrics = reports.metrics
        self._key = key
        self._shares = shares
        self._waiting = waiting
        self._replaying = 0

    def upstream_connected(self) -> None:
        """The broker takes messages: those that wait are replayed."""
        if self._waiting and not self._replaying:
            self._replaying = self._waiting
            self._reports.log_limited(ProxyEvent.REPLAY_BEGAN, self._key, messages=self._waiting)

    def upstream_failed(self, error: SvcError) -> None:
        """There is no connection to the broker, or no longer."""
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, error.reason, str(error))

    def page_failed(self, error: SvcError) -> None:
        """Stored messages cannot be read."""
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, error.reason, f"{error}; {error.hint}")

    # svc.proxy.mqtt.stored.forwarding.ForwarderObserver

    def queued(self, change: int) -> None:
        """Count the messages in the buffer."""
        self._metrics.queued.inc(change)
        self._waiting += change
        if self._replaying and not self._waiting:
            replayed, self._replaying = self._replaying, 0
            self._reports.log_limited(ProxyEvent.REPLAY_ENDED, self._key, messages=replayed)

    def stored(self) -> None:
        """Count a durable message."""
        self._metrics.durable.inc()

    def forwarded(self, qos: int) -> None:
        """Count a message that the broker was sent."""
        self._metrics.forwarded.inc(qos > 0)

    def acked(self, source: AckSource) -> None:
        """Count an acknowledgement."""
        (self._metrics.acknowledged if source == "upstream" else self._metrics.acknowledged_early).inc()

    def refused(self, cause: RefusalCause) -> None:
        """Log a message that was not accepted; the client got no acknowledgement."""
        most = self._shares.messages.most if cause == "share" else None
        self._reports.log_limited(ProxyEvent.BUFFER_FULL, self._key, cause, most=most)

    def dropped(self, cause: DropCause, code: int) -> None:
        """Log a message that is not forwarded."""
        name = ReasonCode(code).name.lower() if code else None
        self._reports.log_limited(ProxyEvent.BUFFER_MESSAGE_DROPPED, self._key, cause, code=name)

    def dead_letter(self, topic: str, cause: RejectionCause, code: int) -> None:
        """Count and log a message that is kept for an operator."""
        self._metrics.dead_letters[cause].inc()
        self._metrics.dead_letters_kept.inc()
        name = ReasonCode(code).name.lower() if code else None
        self._reports.log_limited(
            ProxyEvent.BUFFER_DEAD_LETTER, self._key, cause, topic=printable(topic, MAX_TOPIC), code=name
        )

    def dead_letters_full(self, topic: str) -> None:
        """Log that a message holds back others."""
        self._reports.log_limited(
            ProxyEvent.BUFFER_DEAD_LETTERS_FULL,
            self._key,
            most=self._shares.letter_octets.most,
            topic=printable(topic, MAX_TOPIC),
        )

    def held(self, code: int) -> None:
        """Log that a message is kept, and those behind it with it."""
        detail = f"the broker: {ReasonCode(code).name.lower()}; the message is kept and sent again"
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, "message_refused", detail)

    def reconnected(self, success: bool) -> None:
        """Count an attempt."""
        (self._metrics.reconnected if success else self._metrics.not_reconnected).inc()

    def connack_rejected(self, code: int) -> None:
        """Count and log a session that the broker refuses."""
        name = (ReasonCode if code >= ReasonCode.UNSPECIFIED_ERROR else ReturnCode)(code).name.lower()
        self._metrics.connack_rejected(name)
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, "upstream_refused", f"the broker: {name}")

    def link_failed(self, failure: LinkFailure, code: int) -> None:
        """Log that the broker accepted a session, and it is closed."""
        detail = _LINK_FAILURES[failure]
        if code:
            detail = f"{detail}: {ReasonCode(code).name.lower()}"
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, failure, detail)

    def replay_failed(self) -> None:
        """Count and log that the broker is away for long."""
        self._metrics.replay_failures.inc()
        self._reports.log_limited(ProxyEvent.REPLAY_FAILED, self._key, messages=self._waiting)

    def session_lost(self, resent: int) -> None:
        """Log that the broker forgot the session."""
        self._reports.log_limited(ProxyEvent.BUFFER_SESSION_LOST, self._key, resent=resent)

    def credentials_missing(self) -> None:
        """Log that messages wait for their client."""
        detail = "its user name and password are not stored without mqttBuffer.keys: it has to connect again"
        self._reports.log_limited(ProxyEvent.FORWARDING_FAILED, self._key, "credentials_missing", detail)
