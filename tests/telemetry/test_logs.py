"""Log records: their members, their limits, and that nothing breaks a line."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import Logger, LogLevel, LogPublisher, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.strictjson import b64u_encode
from svc.telemetry.events.base import Category, Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.registry import ENUMERATIONS, EVENTS
from svc.telemetry.events.workload import WorkloadEvent
from svc.telemetry.logs import (
    RecordObserver,
    emit,
    log_observer,
)
from svc.telemetry.records import MAX_ATTRIBUTES, MAX_NAME, MAX_RECORD, Origin, RecordBuilder, encode, ulid
from tests.telemetry.schema import defects

TIME = 1_795_220_732.101223


def fixed_random(count: int) -> bytes:
    return bytes(range(count))


class LogCase(SynchronousTestCase):
    """Collects what an observer writes."""

    def setUp(self) -> None:
        self.stream = io.BytesIO()
        self.log = self.logger()

    def logger(self, origin: Origin | None = None, **options: Any) -> Logger:
        origin = origin or Origin("proxy", "1.2.0", spiffe_id=lambda: "spiffe://example.org/api")
        self.observer = log_observer(origin, stream=self.stream, random=fixed_random, **options)

        def timed(event: dict[str, Any]) -> None:
            event["log_time"] = TIME
            self.observer(event)

        return Logger(namespace="svc.test", observer=LogPublisher(timed))  # type: ignore[arg-type]

    def records(self) -> list[dict[str, Any]]:
        lines = self.stream.getvalue().decode("ascii").split("\n")
        self.assertEqual("", lines.pop(), "every line is ended")
        return [json.loads(line) for line in lines]

    def record(self) -> dict[str, Any]:
        found = self.records()
        self.assertEqual(1, len(found))
        return found[0]


class RecordTests(LogCase):
    """Each member is where the schema requires it."""

    def test_whole_record(self) -> None:
        """A denial has exactly the members of the format."""
        origin = Origin("proxy", "1.2.0", namespace="pay", pod="api-7c", node="n1", spiffe_id=lambda: "spiffe://p/api")
        log = self.logger(origin)
        emit(
            log,
            ProxyEvent.AUTH_DENIED,
            reason="policy_deny",
            detail_reason="no_rule",
            detail="no rule for spiffe://p/fe",
            peer_spiffe_id="spiffe://p/fe",
            trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
            attributes={"protocol": "http", "tls.group": "X25519MLKEM768", "suppressed": None},
        )
        expected = {
            "timestamp": "2026-11-21T00:25:32.101223Z",
            "severity": "WARN",
            "severity_number": 13,
            "schema": "svc.log/1",
            "component": "proxy",
            "version": "1.2.0",
            "event": {
                "name": "svc.proxy.auth.denied",
                "category": "security",
                "outcome": "failure",
                "id": ulid(TIME, fixed_random(10)),
            },
            "message": "connection denied, the peer's identity is refused",
            "reason": "policy_deny",
            "detail_reason": "no_rule",
            "detail": "no rule for spiffe://p/fe",
            "peer_spiffe_id": "spiffe://p/fe",
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spiffe_id": "spiffe://p/api",
            "namespace": "pay",
            "k8s": {"pod": "api-7c", "node": "n1"},
            "attributes": {"protocol": "http", "tls.group": "X25519MLKEM768"},
        }
        self.assertEqual(expected, self.record())

    def test_every_event_validates(self) -> None:
        """A record of each registered event satisfies the published schema."""
        for event in EVENTS.values():
            emit(
                self.log, event, severity=Severity.INFO, reason="r", detail="d", user="u", attributes={"n": 1, "f": 0.5}
            )
        records = self.records()
        self.assertEqual(len(EVENTS), len(records))
        for record in records:
            self.assertEqual([], defects(record), record)

    def test_runtime_records_validate(self) -> None:
        """Lines, failures and legacy events of Twisted satisfy the schema too."""
        self.log.info("hello {who}", who="world")
        self.log.failure("it broke", Failure(ValueError("no")))
        self.log.critical("bad")
        self.observer({"log_time": TIME, "log_text": "old", "message": ("old style",), "isError": 0})
        records = self.records()
        self.assertEqual(4, len(records))
        for record in records:
            self.assertEqual([], defects(record), record)
            self.assertEqual("operational", record["event"]["category"])

    def test_the_check_itself(self) -> None:
        """The structural check finds a wrong type, a missing, an unknown and a malformed member."""
        self.log.info("hello")
        record = self.record()
        for name, value in (("message", 1), ("unknown", "x"), ("severity", "LOUD"), ("timestamp", "today")):
            self.assertTrue(defects(record | {name: value}), name)
        del record["event"]
        self.assertTrue(defects(record))

    def test_registry(self) -> None:
        """Event names are dotted, unique, and few."""
        self.assertEqual(sum(map(len, ENUMERATIONS)), len(EVENTS))
        for name in EVENTS:
            self.assertRegex(name, r"\Asvc(\.[a-z][a-z0-9_]*){2,3}\Z")

    def test_severities(self) -> None:
        """Twisted's levels map to the OpenTelemetry numbers."""
        log = self.logger(minimum=Severity.DEBUG)
        for level in (LogLevel.debug, LogLevel.info, LogLevel.warn, LogLevel.error, LogLevel.critical):
            log.emit(level, "x")
        found = [(record["severity"], record["severity_number"]) for record in self.records()]
        self.assertEqual([("DEBUG", 5), ("INFO", 9), ("WARN", 13), ("ERROR", 17), ("ERROR", 17)], found)

    def test_ports_of_twisted(self) -> None:
        """What Twisted says of a port, by the name of a factory, is not written; a sentence like it of ours is."""
        for text in (
            "_ClientFactory (TLS) starting on 8443",
            "QuietSite (BoundedFactory) starting on 9092",
            "TlsFactory starting on '/run/svc/pq.sock'",
            "(TCP Port 8443 Closed)",
        ):
            self.log.info("{log_text}", log_text=text)
        self.assertEqual([], self.records())
        self.log.info("{log_text}", log_text="the upgrade is starting on 8443 machines")
        self.assertEqual("svc.runtime.message", self.record()["event"]["name"])

    def test_minimum(self) -> None:
        """What is less severe than the minimum is not written, trace below debug included."""
        log = self.logger(minimum=Severity.DEBUG)
        emit(log, DaemonEvent.HEALTH_CHANGED, severity=Severity.TRACE)
        emit(log, DaemonEvent.HEALTH_CHANGED, severity=Severity.DEBUG)
        self.assertEqual("DEBUG", self.record()["severity"])

    def test_event_by_name(self) -> None:
        """A package below telemetry names its event; its own text becomes the detail."""
        self.log.warn(
            "socket {path} is gone",
            path="/run/x",
            svc_event="svc.workload.source.stale",
            svc_fields={"detail_reason": "unavailable"},
            svc_attributes={"attempt": 3},
        )
        record = self.record()
        self.assertEqual("svc.workload.source.stale", record["event"]["name"])
        self.assertEqual("socket /run/x is gone", record["detail"])
        self.assertEqual(("unavailable", {"attempt": 3}), (record["detail_reason"], record["attributes"]))

    def test_other_observers(self) -> None:
        """In a program's own log of Twisted an event is a sentence with its facts, each safe to print."""
        texts: list[str] = []
        own = Logger(namespace="svc.test", observer=LogPublisher(lambda event: texts.append(formatEvent(event))))  # type: ignore[arg-type]
        facts: dict[str, Any] = {"socket": "/run/x", "what": b"secret"}
        emit(own, WorkloadEvent.SOURCE_STALE, detail_reason="gone", detail="no {such}\nfile", attributes=facts)
        emit(own, WorkloadEvent.SOURCE_STALE, message="a sentence of its own")
        shown = r'Workload API not reachable detail_reason=gone detail="no {such}\x0afile" socket=/run/x what=<bytes>'
        self.assertEqual([shown, "a sentence of its own"], texts)

    def test_own_record_without_the_sentence(self) -> None:
        """The sentence for other observers is no detail of the record."""
        emit(self.log, WorkloadEvent.SOURCE_STALE, detail_reason="gone")
        self.assertNotIn("detail", self.record())

    def test_unregistered_name(self) -> None:
        """A name that is not registered cannot reach the record."""
        self.log.info("hello", svc_event="svc.made.up")
        self.assertEqual("svc.runtime.message", self.record()["event"]["name"])

    def test_failure_without_traceback(self) -> None:
        """A failure is logged by type and message; its traceback only where that is configured."""
        self.log.failure("it broke", Failure(ValueError("no\nway")))
        record = self.record()
        self.assertEqual(("svc.runtime.failure", "it broke"), (record["event"]["name"], record["message"]))
        self.assertEqual("ValueError", record["attributes"]["exception.type"])
        self.assertEqual("no\\x0away", record["attributes"]["exception.message"])
        self.assertNotIn("exception.stacktrace", record["attributes"])

    def test_failure_with_traceback(self) -> None:
        """A configured traceback keeps its lines inside the one line."""
        log = self.logger(stacktraces=True)
        try:
            raise ValueError("no")
        except ValueError:
            log.failure("it broke")
        self.assertIn("\n", self.record()["attributes"]["exception.stacktrace"])

    def test_audit_chain(self) -> None:
        """Audit records count up and carry the hash of the one before; other records carry nothing of it."""
        emit(self.log, DaemonEvent.CONFIG_LOADED)
        emit(self.log, ProxyEvent.AUTH_DENIED)
        emit(self.log, DaemonEvent.ADMIN_DRAIN)
        emit(self.log, DaemonEvent.CONFIG_LOADED)
        lines = self.stream.getvalue().splitlines()
        audits = [json.loads(line).get("audit") for line in lines]
        digest = [b64u_encode(hashlib.sha256(line).digest()) for line in lines]
        self.assertEqual(
            [{"seq": 1, "prev": None}, None, {"seq": 2, "prev": digest[0]}, {"seq": 3, "prev": digest[2]}], audits
        )
        self.assertEqual(Category.AUDIT, DaemonEvent.CONFIG_LOADED.category)


class LimitTests(LogCase):
    """No value makes a record long, and none that must not be there gets in."""

    def test_long_values(self) -> None:
        """A record of long texts is cut to 16 KiB and says so."""
        emit(
            self.log,
            ProxyEvent.AUTH_DENIED,
            detail="\U0001f600" * 100_000,
            attributes={f"name{number}": "\u202e" * 5000 for number in range(MAX_ATTRIBUTES)},
        )
        self.assertLessEqual(len(self.stream.getvalue()), MAX_RECORD)
        record = self.record()
        self.assertTrue(record["truncated"])
        self.assertEqual([], defects(record))

    def test_many_attributes(self) -> None:
        """As many attributes as the limit says are kept, one more is cut."""
        for count, truncated in ((MAX_ATTRIBUTES, False), (MAX_ATTRIBUTES + 1, True)):
            self.stream.seek(0)
            self.stream.truncate()
            emit(self.log, ProxyEvent.AUTH_DENIED, attributes={f"n{number}": number for number in range(count)})
            record = self.record()
            self.assertEqual(MAX_ATTRIBUTES, len(record["attributes"]))
            self.assertEqual(truncated, record.get("truncated", False))

    def test_secrets_are_left_out(self) -> None:
        """Attributes named like secrets, and octets of any name, never show their values."""
        secret: Any = b"hunter2"
        emit(
            self.log,
            ProxyEvent.AUTH_DENIED,
            attributes={"request.authorization": "hunter2", "Cookie": "hunter2", "body": "hunter2", "raw": secret},
        )
        self.assertNotIn(b"hunter2", self.stream.getvalue())
        self.assertEqual("<bytes>", self.record()["attributes"]["raw"])

    def test_secret_behind_a_long_name(self) -> None:
        """The whole name of an attribute decides, also where the record cuts it."""
        emit(self.log, ProxyEvent.AUTH_DENIED, attributes={"a" * MAX_NAME + ".password": "hunter2"})
        self.assertNotIn(b"hunter2", self.stream.getvalue())

    def test_unknown_outcome(self) -> None:
        """A text that is no outcome is replaced by the event's own, and no number of an audit record is left out."""
        for outcome in ("\ud800", "later", object()):
            emit(self.log, ProxyEvent.ACCESS_DENIED, outcome=cast(Any, outcome))
        records = self.records()
        self.assertEqual([ProxyEvent.ACCESS_DENIED.outcome] * 3, [each["event"]["outcome"] for each in records])
        self.assertEqual([1, 2, 3], [each["audit"]["seq"] for each in records])

    def test_long_stack(self) -> None:
        """Of a stack that is too long the end is kept, where the exception was raised."""
        record = {"attributes": {"exception.stacktrace": "begin" + "." * MAX_RECORD + "end", "other": 1}}
        shrunk = json.loads(encode(cast(Any, record)))
        self.assertTrue(shrunk["attributes"]["exception.stacktrace"].endswith("...end"))
        self.assertEqual(({"exception.stacktrace", "other"}, True), (set(shrunk["attributes"]), shrunk["truncated"]))

    @given(st.text(), st.text(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.floats())))
    def test_any_text_is_one_line(self, message: str, detail: str, attributes: dict[str, Any]) -> None:
        """Any text anywhere gives one line of ASCII that is valid JSON, satisfies the schema and stays short."""
        self.stream.seek(0)
        self.stream.truncate()
        emit(self.log, ProxyEvent.AUTH_DENIED, message=message or "-", detail=detail, attributes=attributes)
        self.log.info("{text}", text=detail)
        data = self.stream.getvalue()
        for record in self.records():
            self.assertEqual([], [defect for defect in defects(record) if "attributes" not in defect])
            shown = record["message"] + record.get("detail", "")
            self.assertFalse([character for character in shown if ord(character) < 32 or 0x7F <= ord(character) < 0xA0])
        self.assertLessEqual(max(map(len, data.splitlines())), MAX_RECORD)

    @given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5))
    def test_encoding_never_exceeds(self, value: object) -> None:
        """Whatever a record holds, its line stays within the limit when it can be cut."""
        data = encode({"message": str(value) * 500, "attributes": {"a": str(value) * 500}})
        self.assertLess(len(data), MAX_RECORD)
        self.assertNotIn(b"\n", data)


class TextTests(LogCase):
    """The format for people."""

    def test_line(self) -> None:
        """Time, severity, message, then what else is known."""
        log = self.logger(log_format="text")
        emit(log, ProxyEvent.AUTH_DENIED, reason="policy_deny", detail='no "rule"', attributes={"protocol": "http"})
        self.assertEqual(
            "2026-11-21T00:25:32.101223Z WARN  connection denied, the peer's identity is refused"
            ' reason=policy_deny detail="no \\"rule\\"" protocol=http\n',
            self.stream.getvalue().decode(),
        )

    def test_traceback(self) -> None:
        """A configured traceback follows indented."""
        log = self.logger(log_format="text", stacktraces=True)
        log.failure("it broke", Failure(ValueError("no")))
        first, *rest = self.stream.getvalue().decode().splitlines()
        self.assertIn("ERROR it broke", first)
        self.assertTrue(rest)
        self.assertTrue(all(line.startswith("    ") for line in rest))

    @given(st.text())
    def test_any_text_is_one_line(self, message: str) -> None:
        """No message can begin a second line."""
        self.stream.seek(0)
        self.stream.truncate()
        log = self.logger(log_format="text")
        emit(log, DaemonEvent.HEALTH_CHANGED, message=message, detail=message)
        self.assertEqual(1, len(self.stream.getvalue().decode().splitlines()))


class BrokenStream:
    """Takes no more lines until it is mended."""

    def __init__(self) -> None:
        self.broken = True
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        if self.broken:
            raise BrokenPipeError
        self.lines.append(line)


class WritingTests(SynchronousTestCase):
    """Where lines go."""

    def test_a_broken_stream_costs_lines_only(self) -> None:
        """Lines that cannot be written are counted, and the first that can be is preceded by their number."""
        stream = BrokenStream()
        builder = RecordBuilder(Origin("proxy", "1"), random=fixed_random)
        observer = RecordObserver(builder.line, builder, stream.write)
        log = Logger(observer=observer)
        log.info("one")
        log.info("two")
        self.assertEqual(2, observer.dropped)
        stream.broken = False
        log.info("three")
        lost, third = (json.loads(line) for line in stream.lines)
        self.assertEqual(("svc.runtime.logs_dropped", {"count": 2}), (lost["event"]["name"], lost["attributes"]))
        self.assertEqual(("three", 0), (third["message"], observer.dropped))

    def test_more_is_known(self) -> None:
        """A new origin is used in all later records."""
        lines: list[bytes] = []
        builder = RecordBuilder(Origin("proxy", "1"), random=fixed_random)
        observer = RecordObserver(builder.line, builder, lines.append)
        log = Logger(observer=observer)
        log.info("one")
        observer.describe(Origin("proxy", "1", "shop", "api-7c", "n1", lambda: "spiffe://example.org/api"))
        log.info("two")
        names = ("namespace", "k8s", "spiffe_id")
        one, two = (tuple(json.loads(line).get(name) for name in names) for line in lines)
        self.assertEqual((None, None, None), one)
        self.assertEqual(("shop", {"pod": "api-7c", "node": "n1"}, "spiffe://example.org/api"), two)


class UlidTests(SynchronousTestCase):
    """Event ids."""

    def test_sorts_by_time(self) -> None:
        """A later id sorts after an earlier one, and the known value of the reference comes out."""
        self.assertLess(ulid(1.0, b"\xff" * 10), ulid(1.001, bytes(10)))
        self.assertEqual("01ARYZ6S41" + "0" * 16, ulid(1469918176.385, bytes(10)))
