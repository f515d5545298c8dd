"""
Emits and writes log records.

``emit`` logs a registered event; :class:`RecordObserver` turns it, and every log event of Twisted and the libraries,
into one line of JSON or text. Packages below this one log through Twisted's logger with the keywords ``svc_event`` (a
registered name), ``svc_fields`` and ``svc_attributes``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, Literal

from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.telemetry.events.base import Event, EventOutcome, Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.log_limits import EventLimiter
from svc.telemetry.records import (
    FORMAT,
    KEY_ATTRIBUTES,
    KEY_EVENT,
    KEY_FIELDS,
    KEY_SENTENCE,
    KEY_SEVERITY,
    MAX_MESSAGE,
    MAX_VALUE,
    Origin,
    Record,
    RecordBuilder,
    Value,
    scalar_text,
)

LogFormat = Literal["json", "text"]

_LEVELS: Final = {
    Severity.TRACE: LogLevel.debug,
    Severity.DEBUG: LogLevel.debug,
    Severity.INFO: LogLevel.info,
    Severity.WARN: LogLevel.warn,
    Severity.ERROR: LogLevel.error,
    Severity.FATAL: LogLevel.critical,
}


def emit(
    log: Logger,
    event: Event,
    *,
    severity: Severity | None = None,
    outcome: EventOutcome | None = None,
    message: str | None = None,
    reason: str | None = None,
    detail_reason: str | None = None,
    detail: str | None = None,
    spiffe_id: str | None = None,
    peer_spiffe_id: str | None = None,
    claimed_spiffe_id: str | None = None,
    namespace: str | None = None,
    user: str | None = None,
    trace_id: str | None = None,
    span_id: str | None = None,
    failure: Failure | None = None,
    attributes: Mapping[str, Value] | None = None,
) -> None:
    """
    Log an event.

    Args:
        severity: where it differs from the event's usual one.
        outcome: where it differs from the event's usual one.
        message: replaces the event's own sentence.
        reason: the reason as the metric of this event has it.
        detail_reason: the precise reason, ``SvcError.reason``.
        detail: the sentence of the error.
        spiffe_id: own identity, where it is not the process's.
        claimed_spiffe_id: the identity in a certificate of the peer that was not verified.
        namespace: where it is not the process's.
        user: the verified identity whose action an audit record reports.
        attributes: further facts, at most 32; never header values, bodies, tokens or keys.
    """
    given = {
        "outcome": outcome,
        "message": message,
        "reason": reason,
        "detail_reason": detail_reason,
        "detail": detail,
        "spiffe_id": spiffe_id,
        "peer_spiffe_id": peer_spiffe_id,
        "claimed_spiffe_id": claimed_spiffe_id,
        "namespace": namespace,
        "user": user,
        "trace_id": trace_id,
        "span_id": span_id,
    }
    weight = event.severity if severity is None else severity
    fields = {name: value for name, value in given.items() if value is not None}
    facts = dict(attributes or {})
    values: dict[str, object] = {
        KEY_EVENT: event,
        KEY_SEVERITY: weight,
        KEY_FIELDS: fields,
        KEY_ATTRIBUTES: facts,
        KEY_SENTENCE: _Sentence(event, fields, facts),
    }
    if failure is not None:
        values["log_failure"] = failure
    log.emit(_LEVELS[weight], FORMAT, **values)


class _Sentence:
    """An event as a line of text, formatted only when it is read."""

    __slots__ = ("_event", "_facts", "_fields")

    def __init__(self, event: Event, fields: Mapping[str, object], facts: Mapping[str, object]) -> None:
        self._event = event
        self._fields = fields
        self._facts = facts

    def __str__(self) -> str:
        shown = {name: self._fields[name] for name in _SHOWN if name in self._fields} | dict(self._facts)
        head = printable(self._fields.get("message") or self._event.message, MAX_MESSAGE)
        texts = ((name, value if isinstance(value, str) else scalar_text(value)) for name, value in shown.items())
        return " ".join([head, *(f"{name}={_quoted(printable(text, MAX_VALUE))}" for name, text in texts)])


@implementer(ILogObserver)
class RecordObserver:
    """
    Writes one line for each log event of at least the severity ``minimum``.

    Args:
        write: takes a whole line; raises OSError where it cannot be written.

    Attributes:
        dropped: lines that could not be written since the last one that could.
    """

    def __init__(
        self,
        line: Callable[[LogEvent], bytes],
        builder: RecordBuilder,
        write: Callable[[bytes], object],
        *,
        minimum: Severity = Severity.INFO,
    ) -> None:
        self._line = line
        self._builder = builder
        self._write = write
        self._minimum = minimum
        self._limiter = EventLimiter()
        self.dropped = 0

    def describe(self, origin: Origin) -> None:
        """Replace the origin of the records, once more of it is available."""
        self._builder.origin = origin

    def __call__(self, event: LogEvent) -> None:
        if self._builder.severity(event) < self._minimum:
            return
        admitted = self._limiter.admit(event)
        if admitted is None:
            return
        missing = self.dropped
        try:
            if missing:
                self._write(self._line(missing_event(missing)))
                self.dropped = 0
            self._write(self._line(admitted))
        except OSError:
            # A log that cannot be written must not stop the process; the next line reports how many are missing.
            self.dropped += 1


def log_observer(
    origin: Origin,
    *,
    log_format: LogFormat = "json",
    stream: BinaryIO | None = None,
    minimum: Severity = Severity.INFO,
    stacktraces: bool = False,
    random: Callable[[int], bytes] = os.urandom,
) -> RecordObserver:
    """
    Make the observer of a process, which writes to ``stream``, or to standard output as it is now.

    Args:
        log_format: ``json`` for schema svc.log/1, ``text`` for people.
        random: gives random octets for event ids.
    """
    builder = RecordBuilder(origin, random=random, stacktraces=stacktraces)
    line = builder.line if log_format == "json" else lambda event: text_line(builder.build(event))
    return RecordObserver(line, builder, _whole_lines(stream or sys.stdout.buffer), minimum=minimum)


def text_line(record: Record) -> bytes:
    """
    A record as one line of UTF-8 for people: time, severity, message, ``name=value``; a traceback follows indented.
    """
    attributes = record.get("attributes")
    shown: dict[str, object] = {name: record[name] for name in _SHOWN if name in record}
    if isinstance(attributes, dict):
        shown |= attributes
    stack = shown.pop("exception.stacktrace", None)
    words = [f"{name}={_quoted(value)}" for name, value in shown.items()]
    head = f"{record['timestamp']} {record['severity']:<5} {record['message']}"
    lines = [" ".join([head, *words])]
    if isinstance(stack, str):
        lines += [f"    {line}" for line in stack.split("\n")]
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


_SHOWN: Final = ("reason", "detail_reason", "detail", "peer_spiffe_id", "claimed_spiffe_id")


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and " " not in text and '"' not in text else '"' + text.replace('"', '\\"') + '"'


def missing_event(count: int) -> LogEvent:
    """The log event that reports how many lines are missing."""
    return {
        KEY_EVENT: DaemonEvent.LOGS_DROPPED,
        KEY_SEVERITY: DaemonEvent.LOGS_DROPPED.severity,
        KEY_ATTRIBUTES: {"count": count},
        "log_time": time.time(),
    }


def _whole_lines(stream: BinaryIO) -> Callable[[bytes], None]:
    def write(line: bytes) -> None:
        stream.write(line)
        stream.flush()

    return write


def log_reload(log: Logger, event: Event, **fields: Any) -> None:
    """
    Log a reload twice: as an administrative action in the audit chain, and as an operational event.

    ``fields`` are passed to :func:`emit`; a ``failure`` is in the audit record only.
    """
    emit(log, event, **fields)
    fields.pop("failure", None)
    emit(
        log,
        DaemonEvent.CONFIG_RELOADED,
        severity=event.severity,
        outcome=event.outcome,
        message=event.message,
        **fields,
    )


def log_reload_refused(log: Logger, error: SvcError) -> None:
    """Log a reload that was refused, with every problem of the configuration."""
    problems = "; ".join(str(each) for each in getattr(error, "problems", ())) or str(error)
    log_reload(log, DaemonEvent.CONFIG_REJECTED, detail_reason=error.reason, detail=problems)
