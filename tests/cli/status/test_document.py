"""Tests of svc.cli.status.document."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import StatusUnavailable
from svc.cli.status.addresses import AdminAddress
from svc.cli.status.document import parse_status
from svc.cli.status.rendering import Answer, render, written
from tests.cli.status.documents import NOW, encoded, proxy_document

ADDRESS = AdminAddress("127.0.0.1", 9902)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**54), 2**54) | st.floats() | st.text(max_size=8) | st.just(NOW),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def replaced(document: Any, path: list[int], value: object) -> Any:
    """A document in which the value at the end of a path is another one."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    place, rest = path[0] % len(document), path[1:]
    if isinstance(document, list):
        return [replaced(each, rest, value) if at == place else each for at, each in enumerate(document)]
    return {
        name: replaced(each, rest, value) if at == place else each for at, (name, each) in enumerate(document.items())
    }


class DocumentTests(SynchronousTestCase):
    """:func:`parse_status`."""

    def defect(self, data: bytes) -> str:
        """The sentence of the error."""
        return str(self.assertRaises(StatusUnavailable, parse_status, data, ADDRESS)).partition("authority: ")[2]

    def test_proxy(self) -> None:
        """Each member has its value, members of a newer version are ignored."""
        document = proxy_document(moonPhase={"is": "new"})
        status, raw = parse_status(encoded(document), ADDRESS)
        self.assertEqual(raw, document)
        self.assertEqual(status.now, datetime(2026, 11, 21, 12, tzinfo=UTC))
        [listener], [identity] = status.listeners, status.identities
        self.assertEqual(("web", "signRequest", 5), (listener.name, listener.max_level, listener.refusals))
        self.assertEqual(("spiffe://prod.example.org/ns/pay/sa/api", "id"), (identity.spiffe_id, identity.statement_id))
        assert status.rates is not None
        self.assertEqual((10.0, 0.1, None), (status.rates.seconds, status.rates.refusals, status.rates.sent))
        self.assertEqual({"policy_deny": 2, "svid_expired": 1}, status.denials)
        self.assertEqual(("", True), (status.conditions[0].reason, status.conditions[0].holds))

    def test_null(self) -> None:
        """A value that is not known may be null."""
        document = proxy_document() | {"store": None, "rates": {"seconds": 10, "p50": None}, "trustDomain": None}
        status, _raw = parse_status(encoded(document), ADDRESS)
        self.assertEqual((None, None), (status.store, status.trust_domain))

    def test_defects(self) -> None:
        """What is wrong is named with its place."""
        rates = {"seconds": 10, "p50": "fast"}
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({"schema": "svc.log/1"}, "its schema is 'svc.log/1', not 'svc.status/1'"),
            ({"v": 2}, "its v is 2, not 1"),
            ({"process": None}, "process is missing"),
            ({"pid": True}, "pid is not a whole number"),
            ({"now": "noon"}, "now is not a time with a time zone"),
            ({"now": "2026-11-21T12:00:00"}, "now is not a time with a time zone"),
            ({"now": "0001-01-01T00:00:00+23:00"}, "now is not a time with a time zone"),
            ({"ready": 1}, "ready is not true or false"),
            ({"listeners": {}}, "listeners is not a list"),
            ({"listeners": [{"name": "a"}]}, "listeners[0].protocol is missing"),
            ({"rates": rates}, "rates.p50 is not a number"),
            ({"store": []}, "store is not an object"),
            ({"denials": {"x": "1"}}, "denials.x is not a whole number"),
            ({"conditions": [{"name": "a", "ok": None}]}, "conditions[0].holds is missing"),
        )
        for members, expected in cases:
            self.assertEqual(expected, self.defect(encoded(proxy_document(**members))))
        self.assertIn("not acceptable JSON: Expecting value", self.defect(b"<html>"))
        self.assertIn("beyond the range of a double", self.defect(b'{"v": 1e999}'))
        self.assertIn("duplicate member", self.defect(b'{"v": 1, "v": 1}'))
        self.assertIn("are accepted", self.defect(b" " * (2**20 + 1)))

    def printed_or_refused(self, data: bytes) -> None:
        """Assert that octets give lines without control characters, or the typed error."""
        try:
            status, raw = parse_status(data, ADDRESS)
        except StatusUnavailable as error:
            text = str(error)
        else:
            json.dumps(raw)
            text = "".join(written(line, colour=False) for line in render([Answer(str(ADDRESS), status)], 80))
        self.assertFalse([each for each in text if ord(each) < 32 or 0x7F <= ord(each) < 0xA0])

    @given(st.lists(st.integers(0, 30), max_size=4), _VALUES)
    def test_any_value_anywhere(self, path: list[int], value: object) -> None:
        """Whatever stands in place of a value of a good document is shown, or refused with the typed error."""
        self.printed_or_refused(encoded(replaced(proxy_document(), path, value)))

    @given(_VALUES)
    def test_any_document(self, value: object) -> None:
        """Any JSON gives lines or the typed error."""
        self.printed_or_refused(encoded(value))

    @given(st.binary(max_size=60))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets give lines or the typed error."""
        self.printed_or_refused(data)
