"""
Log records of schema ``svc.log/1`` (``svc/data/schemas/svc.log.1.json``).

Converts a log event of Twisted into one record, and a record into one line. Owns the members, their limits and the
escaping.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, get_args

from twisted.logger import LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure

from svc.errors import printable
from svc.strictjson import b64u_encode
from svc.telemetry.events.base import Category, Event, EventOutcome, Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.registry import EVENTS

SCHEMA: Final = "svc.log/1"
MAX_RECORD: Final = 16 * 1024
MAX_ATTRIBUTES: Final = 32
MAX_MESSAGE: Final = 1024
MAX_VALUE: Final = 1024
MAX_STACK_LINES: Final = 80
MAX_NAME: Final = 64

#: Keys under which :func:`svc.telemetry.logs.emit` puts its part into a Twisted log event.
KEY_EVENT: Final = "svc_event"
KEY_FIELDS: Final = "svc_fields"
KEY_ATTRIBUTES: Final = "svc_attributes"
KEY_SENTENCE: Final = "svc_sentence"
KEY_SEVERITY: Final = "svc_severity"
#: The format of our events for other observers; records are built from the event itself.
FORMAT: Final = "{svc_sentence}"

Value = str | int | float | bool | None
Record = dict[str, object]

_TEXT_FIELDS: Final = (
    "reason",
    "detail_reason",
    "detail",
    "spiffe_id",
    "peer_spiffe_id",
    "claimed_spiffe_id",
    "namespace",
    "user",
    "trace_id",
    "span_id",
)
#: A tuple, whose test for a member accepts what has no hash.
_OUTCOMES: Final[tuple[str, ...]] = get_args(EventOutcome)
_STACK: Final = "exception.stacktrace"
_RUNTIME: Final = (DaemonEvent.RUNTIME_MESSAGE, DaemonEvent.RUNTIME_FAILURE)
#: Formats that Twisted logs for each connection of a client, at level info.
_DEBUG_FORMATS: Final = ("Starting factory {factory!r}", "Stopping factory {factory!r}")
#: What Twisted logs for each port, by the name of a class; ``svc.proxy.listener.opened`` names listener and address.
_PORT_MESSAGE: Final = re.compile(r"\S+(?: \(\w+\))* starting on \S+|\([A-Z]+ Port \S+ Closed\)")
#: Last parts of the names of attributes whose values are never logged.
_NEVER: Final = frozenset(
    (
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "token",
        "password",
        "secret",
        "private_key",
        "body",
        "headers",
    )
)
_SEVERITIES: Final = (
    (LogLevel.info, Severity.INFO),
    (LogLevel.debug, Severity.DEBUG),
    (LogLevel.warn, Severity.WARN),
    (LogLevel.error, Severity.ERROR),
    # Twisted's level for unhandled failures, after which the process continues.
    (LogLevel.critical, Severity.ERROR),
)
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Origin:
    """
    What emits the records.

    Attributes:
        component: ``proxy``, ``authority``, ``broker``, ``svc``.
        namespace: the Kubernetes namespace of the process.
        pod: the Kubernetes pod of the process.
        node: the Kubernetes node of the process.
        spiffe_id: gives the current SPIFFE ID of the process; None while it has none.
    """

    component: str
    version: str
    namespace: str | None = None
    pod: str | None = None
    node: str | None = None
    spiffe_id: Callable[[], str | None] = lambda: None


class RecordBuilder:
    """
    Builds records, and chains those of the category audit: each has a counter and the hash of the one before it.

    Args:
        random: gives that many random octets, for event ids.
        stacktraces: whether failures include their traceback.

    Attributes:
        origin: can be replaced when more of it is available.
    """

    def __init__(self, origin: Origin, *, random: Callable[[int], bytes], stacktraces: bool = False) -> None:
        self.origin = origin
        self._random = random
        self._stacktraces = stacktraces
        self._audit_count = 0
        self._audit_hash: str | None = None

    def severity(self, event: LogEvent) -> Severity:
        """The severity that the record of an event will have."""
        given = event.get(KEY_SEVERITY)
        if isinstance(given, Severity):
            return given
        kind = _kind(event)
        if kind not in _RUNTIME:
            return kind.severity
        format_ = event.get("log_format")
        if type(format_) is str and (format_ in _DEBUG_FORMATS or _is_port_message(format_, event)):
            return Severity.DEBUG
        given = event.get("log_level")
        level = next((severity for each, severity in _SEVERITIES if each is given), Severity.INFO)
        if _is_error(event) and level < Severity.ERROR:
            return Severity.ERROR
        return level

    def build(self, event: LogEvent) -> Record:
        """
        Build the record of a log event; each text in it is safe to print and within its limit.

        An event that cannot be converted, because of the objects in it, gives a record that reports this.
        """
        try:
            return self._built(event)
        except Exception as error:  # noqa: BLE001 (whatever an object from outside raises when it is looked at)
            return self._built(_unbuildable(event, error))

    def _built(self, event: LogEvent) -> Record:
        kind = _kind(event)
        ours = kind not in _RUNTIME
        severity = self.severity(event)
        fields = _fields(event, ours)
        cut = _Cutter()
        seconds = _seconds(event)
        record: Record = {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "severity": severity.name,
            "severity_number": int(severity),
            "schema": SCHEMA,
            "component": self.origin.component,
            "version": self.origin.version,
            "event": {
                "name": kind.event_name,
                "category": kind.category.value,
                "outcome": given if (given := fields.get("outcome")) in _OUTCOMES else kind.outcome,
                "id": ulid(seconds, self._random(10)),
            },
            "message": cut.text(
                fields.get("message") or (kind.message if ours else _library_message(event)), MAX_MESSAGE
            ),
        }
        self._add_context(record, fields, cut)
        attributes = self._attributes(event, ours, cut)
        if attributes:
            record["attributes"] = attributes
        if cut.happened:
            record["truncated"] = True
        return record

    def line(self, event: LogEvent) -> bytes:
        """
        The record of a log event as one line of ASCII JSON, at most :data:`MAX_RECORD` octets; audit records are
        chained.
        """
        record = self.build(event)
        if record["event"]["category"] != Category.AUDIT.value:  # type: ignore[index]
            return encode(record) + b"\n"
        self._audit_count += 1
        record["audit"] = {"seq": self._audit_count, "prev": self._audit_hash}
        data = encode(record)
        self._audit_hash = b64u_encode(hashlib.sha256(data).digest())
        return data + b"\n"

    def _add_context(self, record: Record, fields: Mapping[str, object], cut: _Cutter) -> None:
        for name in _TEXT_FIELDS:
            value = fields.get(name)
            if value is not None:
                record[name] = cut.text(value, MAX_VALUE)
        origin = self.origin
        own_id = None if "spiffe_id" in record else origin.spiffe_id()
        if own_id is not None:
            record["spiffe_id"] = cut.text(own_id, MAX_VALUE)
        if origin.namespace is not None:
            record.setdefault("namespace", cut.text(origin.namespace, MAX_VALUE))
        known = (("pod", origin.pod), ("node", origin.node))
        k8s = {name: cut.text(value, 256) for name, value in known if value is not None}
        if k8s:
            record["k8s"] = k8s

    def _attributes(self, event: LogEvent, ours: bool, cut: _Cutter) -> dict[str, Value]:
        given = event.get(KEY_ATTRIBUTES)
        if not isinstance(given, Mapping):
            given = {}
        attributes: dict[str, Value] = {}
        for name, value in given.items():
            if len(attributes) >= MAX_ATTRIBUTES:
                cut.happened = True
                break
            if value is not None:
                shown = cut.text(name, MAX_NAME)
                # By the whole name: the part that makes a value secret may be cut off.
                attributes[shown] = _attribute(name if isinstance(name, str) else shown, value, cut)
        if not ours:
            attributes["logger"] = cut.text(event.get("log_namespace") or event.get("log_system") or "-", 128)
        failure = _failure(event)
        if failure is not None:
            attributes["exception.type"] = cut.text(getattr(failure.type, "__qualname__", failure.type), 128)
            attributes["exception.message"] = cut.text(failure.getErrorMessage(), MAX_VALUE)
            if self._stacktraces:
                attributes[_STACK] = _stack(failure)
        return attributes


def encode(record: Record) -> bytes:
    """
    Encode a record as ASCII JSON without a line feed, shorter than :data:`MAX_RECORD`.

    What is too long is cut and marked ``truncated``. ASCII, so that no character can end a line or move a cursor.
    """
    data = _dump(record)
    for limit in (512, 128, 32):
        if len(data) < MAX_RECORD:
            return data
        data = _dump(_shrunk(record, limit))
    if len(data) < MAX_RECORD:
        return data
    return _dump({name: value for name, value in _shrunk(record, 32).items() if name != "attributes"})


def ulid(seconds: float, random: bytes) -> str:
    """
    An event id that sorts by time: 26 characters of Crockford's base 32 for 48 bits of milliseconds, 80 random bits.
    """
    milliseconds = max(0, round(seconds * 1_000_000)) // 1000 & (2**48 - 1)
    number = milliseconds << 80 | int.from_bytes(random[:10], "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


class _Cutter:
    """Makes texts printable and notes whether any was cut."""

    def __init__(self) -> None:
        self.happened = False

    def text(self, value: object, limit: int) -> str:
        raw = value if isinstance(value, str) else scalar_text(value)
        if len(raw) > limit:
            self.happened = True
        return printable(raw, limit)


def scalar_text(value: object) -> str:
    """The text of a scalar; of any other object the name of its type, since its text may be secret or unsafe."""
    scalar = _scalar(value)
    return f"<{type(value).__name__}>" if scalar is None else str(scalar)


def _scalar(value: object) -> bool | int | float | str | None:
    """A bool or number that readers of JSON can represent, other numbers as text; None for other objects."""
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        # Not str(): a subclass may override it.
        number = int.__index__(value)
        return number if number.bit_length() < 64 else f"<integer of {number.bit_length()} bits>"
    if isinstance(value, float):
        plain = float.__add__(value, 0.0)
        return round(plain, 6) if abs(plain) < 1e15 else float.__repr__(plain)
    return None


def _attribute(name: str, value: object, cut: _Cutter) -> Value:
    if name.lower().rpartition(".")[2] in _NEVER:
        return "<left out>"
    scalar = _scalar(value)
    return cut.text(value, MAX_VALUE) if scalar is None else scalar


def _seconds(event: LogEvent) -> float:
    """The time of an event; 0 for what is not a time between 1970 and 9999."""
    given = event.get("log_time")
    return float(given) if isinstance(given, int | float) and 0 <= given < 253402300800 else 0.0


def _unbuildable(event: LogEvent, error: Exception) -> LogEvent:
    attributes = {"exception.type": type(error).__name__, "event": ""}
    kind = event.get(KEY_EVENT)
    if isinstance(kind, Event):
        attributes["event"] = kind.event_name
    return {
        KEY_EVENT: DaemonEvent.RUNTIME_FAILURE,
        KEY_SEVERITY: DaemonEvent.RUNTIME_FAILURE.severity,
        KEY_FIELDS: {"message": "a log event could not be converted to a record"},
        KEY_ATTRIBUTES: attributes,
        "log_time": event.get("log_time"),
        "log_text": "a log event could not be converted to a record",
    }


def _kind(event: LogEvent) -> Event:
    given = event.get(KEY_EVENT)
    kind = given if isinstance(given, Event) else EVENTS.get(given) if isinstance(given, str) else None
    if kind is not None:
        return kind
    failed = _failure(event) is not None or _is_error(event)
    return DaemonEvent.RUNTIME_FAILURE if failed else DaemonEvent.RUNTIME_MESSAGE


def _is_port_message(format_: str, event: LogEvent) -> bool:
    text = event.get("log_text")
    return format_ == "{log_text}" and type(text) is str and _PORT_MESSAGE.fullmatch(text) is not None


def _is_error(event: LogEvent) -> bool:
    given = event.get("isError")
    return isinstance(given, int) and given != 0


def _fields(event: LogEvent, ours: bool) -> Mapping[str, object]:
    given = event.get(KEY_FIELDS)
    fields: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    if not ours or "detail" in fields or event.get("log_format") in (None, "", FORMAT):
        return fields
    return {**fields, "detail": formatEvent(event)}


def _library_message(event: LogEvent) -> str:
    failure = _failure(event)
    if failure is not None and "log_text" in event:
        # The legacy logger has put the whole traceback into the text.
        return str(event.get("why") or failure.getErrorMessage() or "-")
    return formatEvent(event) or (failure.getErrorMessage() if failure is not None else "") or "-"


def _failure(event: LogEvent) -> Failure | None:
    for key in ("log_failure", "failure"):
        failure = event.get(key)
        if isinstance(failure, Failure):
            return failure
    return None


def _stack(failure: Failure) -> str:
    lines = failure.getTraceback().splitlines()
    return "\n".join(printable(line, 300) for line in lines[-MAX_STACK_LINES:])


def _dump(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def _shrunk(record: Record, limit: int) -> Record:
    shrunk = {name: _shortened(name, value, limit) for name, value in record.items()}
    attributes = record.get("attributes")
    if isinstance(attributes, dict):
        shrunk["attributes"] = {name: _shortened(name, value, limit) for name, value in attributes.items()}
    shrunk["truncated"] = True
    return shrunk


def _shortened(name: str, value: object, limit: int) -> object:
    if not isinstance(value, str) or len(value) <= limit:
        return value
    # The end of a stack is where the exception was raised.
    return "…" + value[-limit:] if name == _STACK else value[:limit] + "…"
