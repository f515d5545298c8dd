"""Whatever is logged, a line is one record that satisfies the schema, and it is there."""

from __future__ import annotations

import io
import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.registry import EVENTS
from svc.telemetry.logs import RecordObserver, log_observer
from svc.telemetry.records import KEY_ATTRIBUTES, KEY_EVENT, KEY_FIELDS, KEY_SEVERITY, MAX_RECORD, Origin, RecordBuilder
from tests.telemetry.schema import defects


class Hostile:
    """An object that does not want to be looked at."""

    def _refuse(self, *_arguments: object) -> Any:
        raise RuntimeError("no")

    __repr__ = __str__ = __format__ = __bool__ = __len__ = __iter__ = __eq__ = __hash__ = _refuse


class LyingInt(int):
    """A number that says that it is text."""

    def __repr__(self) -> str:
        return '"}\n{'


class Loud(str):
    """A text that cannot be measured."""

    def __len__(self) -> int:
        raise RuntimeError("no")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text(alphabet="\x00\n\r\x1b\x7f\x85\u2028\u202e\ud800\udfff\U000e0001\U0001f600", max_size=100).map(
        lambda text: text * 40
    ),
    st.binary(max_size=50),
    st.builds(Hostile),
    st.builds(LyingInt, st.integers()),
    st.builds(Loud, st.text(max_size=5)),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3))
)
KEYS = st.one_of(st.text(), st.integers(), st.none(), st.binary(), st.floats(allow_nan=False))
MAPPINGS = st.one_of(st.dictionaries(KEYS, VALUES, max_size=40), VALUES)
LOGGED = st.fixed_dictionaries(
    {},
    optional={
        KEY_EVENT: st.one_of(st.sampled_from(list(EVENTS.values())), VALUES),
        KEY_SEVERITY: VALUES,
        KEY_FIELDS: MAPPINGS,
        KEY_ATTRIBUTES: MAPPINGS,
        "log_time": VALUES,
        "log_level": st.one_of(st.sampled_from(list(LogLevel.iterconstants())), VALUES),
        "log_format": st.one_of(st.sampled_from(["{a}", "{a!r}", "{a()}", "{", "{a.b[c]}"]), VALUES),
        "log_namespace": VALUES,
        "log_system": VALUES,
        "log_text": VALUES,
        "log_failure": st.one_of(st.builds(Failure, st.builds(ValueError, VALUES)), VALUES),
        "isError": st.one_of(st.integers(0, 1), VALUES),
        "why": VALUES,
        "message": VALUES,
        "a": VALUES,
    },
)


class HostileTests(SynchronousTestCase):
    """Events that somebody made to break a record, or without thinking."""

    def written(self, event: dict[str, Any], **options: Any) -> bytes:
        """What one event leaves."""
        stream = io.BytesIO()
        log_observer(Origin("proxy", "1"), stream=stream, random=bytes, **options)(event)
        return stream.getvalue()

    @given(LOGGED)
    def test_one_record(self, event: dict[str, Any]) -> None:
        """One line, ASCII, at most 16 KiB, valid by the schema, without anything that moves a cursor."""
        data = self.written(event | {KEY_SEVERITY: DaemonEvent.RUNTIME_FAILURE.severity})
        self.assertEqual((1, True), (data.count(b"\n"), data.endswith(b"\n")))
        self.assertLessEqual(len(data), MAX_RECORD)
        record = json.loads(data.decode("ascii"), parse_constant=self.fail)
        self.assertEqual([], defects(record), record)
        for text in _texts(record):
            self.assertEqual([], [each for each in text if not (each.isprintable() or each == "…")], record)

    def test_formats_that_are_limited(self) -> None:
        """No value is too odd to be compared with the formats of which only some are written."""
        warning = "{filename}:{lineno}: {category}: {warning}"
        for event in ({"log_format": Hostile()}, {"log_format": warning, "category": Hostile(), "filename": Loud()}):
            self.assertEqual(1, self.written({**event, "log_time": 1.0}).count(b"\n"))

    @given(LOGGED)
    def test_text_is_one_line(self, event: dict[str, Any]) -> None:
        """The format for people holds to one line for the same events."""
        data = self.written(event | {KEY_SEVERITY: DaemonEvent.RUNTIME_FAILURE.severity}, log_format="text")
        self.assertEqual(1, len(data.decode("utf-8").splitlines()))

    @given(LOGGED)
    def test_severity_alone(self, event: dict[str, Any]) -> None:
        """Reading the severity of an event raises nothing either."""
        event.pop(KEY_SEVERITY, None)
        self.written(event)

    def test_conversion_failure_is_reported(self) -> None:
        """An event that cannot be converted gives a record with its kind and the exception."""
        fields = cast(Any, {"message": Hostile(), Hostile.__name__: 1})
        event = {KEY_EVENT: ProxyEvent.LISTENER_FAILED, KEY_FIELDS: {"outcome": Hostile(), **fields}, "log_time": 1.0}
        record = json.loads(self.written(event))
        self.assertEqual("svc.runtime.failure", record["event"]["name"])
        self.assertEqual("RuntimeError", record["attributes"]["exception.type"])
        self.assertEqual("svc.proxy.listener.failed", record["attributes"]["event"])

    def test_numbers(self) -> None:
        """Numbers stay numbers as far as every reader can hold them; others become words."""
        given_ = {
            "most": 2**63 - 1,
            "beyond": 2**64,
            "huge": 1 << 20000,
            "nan": float("nan"),
            "infinite": float("-inf"),
            "integer": LyingInt(7),
        }
        record = json.loads(self.written({KEY_EVENT: ProxyEvent.LISTENER_OPENED, KEY_ATTRIBUTES: given_}))
        shown = {
            "most": 2**63 - 1,
            "beyond": "<integer of 65 bits>",
            "huge": "<integer of 20001 bits>",
            "nan": "nan",
            "infinite": "-inf",
            "integer": 7,
        }
        self.assertEqual(shown, record["attributes"])

    def test_an_audit_record_that_fails(self) -> None:
        """The record that replaces an audit record is not one, and the chain continues without it."""
        builder = RecordBuilder(Origin("proxy", "1"), random=bytes)
        lines: list[bytes] = []
        observer = RecordObserver(builder.line, builder, lines.append)
        for outcome in ("success", Hostile(), "success"):
            observer({KEY_EVENT: DaemonEvent.CONFIG_LOADED, KEY_FIELDS: {"outcome": outcome}})
        audits = [json.loads(line).get("audit", {}).get("seq") for line in lines]
        self.assertEqual([1, None, 2], audits)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts(each)]
    return [value] if isinstance(value, str) else []
