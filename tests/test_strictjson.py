"""Strict JSON and base64url."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.strictjson import (
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_NODES,
    Base64Refused,
    JsonRefused,
    b64u_decode,
    b64u_encode,
    dumps,
    loads,
    loads_object,
)

_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)))  # type: ignore[arg-type]
_SCALAR = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | _TEXT
_VALUE = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=20
)


def _nodes(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _nodes(item) for item in value.values())
    return 1 + (sum(map(_nodes, value)) if isinstance(value, list) else 0)


class LoadsTests(SynchronousTestCase):
    """Reading JSON."""

    def refused(self, data: bytes, **limits: int) -> str:
        return self.assertRaises(JsonRefused, loads, data, **limits).defect

    def test_each_type_is_read(self) -> None:
        """Every type of JSON except fractions is read."""
        found = loads(b' {"a":[1,-2,true,false,null,"\\u00e9\\ud83d\\ude00"],"b":{}}\n')
        self.assertEqual(found, {"a": [1, -2, True, False, None, "é😀"], "b": {}})

    def test_duplicate_members_are_refused_at_any_depth(self) -> None:
        """The error for a duplicate member names it, also when one is written with escapes."""
        self.assertIn("duplicate member 'a'", self.refused(b'{"a":1,"a":1}'))
        self.assertIn("duplicate member 'a'", self.refused(b'[{"x":{"a":1,"\\u0061":2}}]'))

    def test_numbers_are_integers(self) -> None:
        """Fractions, exponents and constants are refused, whatever their value."""
        for text in (b"1.0", b"1e3", b"1E0", b"-0.0"):
            self.assertIn("not an integer", self.refused(text))
        for text in (b"NaN", b"Infinity", b"-Infinity"):
            self.assertIn("constant", self.refused(b"[" + text + b"]"))

    def test_the_largest_integer_is_the_limit(self) -> None:
        """2^53-1 is accepted with either sign, 2^53 and longer numbers are refused."""
        for value in (MAX_INTEGER, -MAX_INTEGER):
            self.assertEqual(loads(str(value).encode()), value)
        for value in (MAX_INTEGER + 1, -MAX_INTEGER - 1, 10**5000):
            text = "1" + "0" * 5000 if value == 10**5000 else str(value)
            self.assertIn("2^53-1", self.refused(text.encode()))

    def test_lone_surrogates_are_refused(self) -> None:
        """A lone surrogate is refused in values and in names."""
        for text in (b'"\\ud800"', b'["\\udc00x"]', b'{"\\ud800":1}', b'{"a":{"b":["\\ud83d"]}}'):
            self.assertIn("surrogate", self.refused(text))

    def test_nesting_is_bounded(self) -> None:
        """The maximum nesting is accepted, one more is refused; brackets in strings are not counted."""
        at_limit = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
        self.assertIsInstance(loads(at_limit), list)
        self.assertIn(str(MAX_DEPTH), self.refused(b"[" + at_limit + b"]"))
        self.assertIn("3", self.refused(b'{"a":[{"b":[]}]}', max_depth=3))
        quoted = b'"' + b"[{" * 40 + b'\\"' + b"[{" * 40 + b'"'
        self.assertIsInstance(loads(quoted), str)

    def test_size_is_bounded(self) -> None:
        """The maximum size is accepted, one octet more is refused."""
        self.assertEqual(loads(b'"aa"', max_bytes=4), "aa")
        self.assertIn("at most 3", self.refused(b'"aa"', max_bytes=3))

    def test_nodes_are_bounded(self) -> None:
        """The maximum number of values and member names is accepted, one more is refused; a string is one value."""
        for text, nodes in (
            (b"0", 1),
            (b"[]", 1),
            (b"{}", 1),
            (b"[[],[]]", 3),
            (b'{"a":1,"b":[true,null]}', 7),
            (b' [ -1 , "[,],{:}" , {"a" : "b"} ] ', 6),
        ):
            loads(text, max_nodes=nodes)
            self.assertIn(f"more than {nodes - 1} values", self.refused(text, max_nodes=nodes - 1))
        loads(b"[" + b"0," * (MAX_NODES - 2) + b"0]")
        self.assertIn(str(MAX_NODES), self.refused(b"[" + b"0," * (MAX_NODES - 1) + b"0]"))
        self.assertRaises(JsonRefused, loads_object, b'{"a":1}', max_nodes=2)

    def test_nodes_are_counted_before_they_are_built(self) -> None:
        """Four million octets of any repeated token are refused in a fraction of the time of decoding them."""
        size = 4 * 1024 * 1024
        for token in (b"[],", b'"",', b'""', b"0,", b"{},", b"]", b",", b":", b"0 ", b'{"":'):
            text = b"[" + token * (size // len(token) - 1)
            started = time.process_time()
            self.refused(text, max_bytes=size)
            self.assertLess(time.process_time() - started, 0.5, token)

    def test_encodings(self) -> None:
        """A byte order mark, octets that are not UTF-8 and encoded surrogates are refused."""
        self.assertIn("byte order mark", self.refused(b"\xef\xbb\xbf{}"))
        self.assertIn("octet 1", self.refused(b'"\xff"'))
        self.assertIn("UTF-8", self.refused(b'"\xed\xa0\x80"'))

    def test_malformed(self) -> None:
        """Malformed documents are refused with the position of the error."""
        for text in (b"", b"{", b"[1,]", b"{'a':1}", b'{"a" 1}', b"[1] 2", b'"\n"', b"01", b"+1", b"\x00", b"tru"):
            self.assertIn("character", self.refused(text))

    def test_unterminated_strings_take_linear_time(self) -> None:
        """An unterminated string of escaped quotes is refused in linear time."""
        started = time.process_time()
        self.assertIn("Unterminated string starting at character 1", self.refused(b'["' + b'\\"' * 120_000))
        self.refused(b'"' * 200_001)
        self.refused(b'"' + b"\\" * 200_001)
        self.assertLess(time.process_time() - started, 2.0)

    def test_loads_object(self) -> None:
        """loads_object refuses other values."""
        self.assertEqual(loads_object(b'{"a":1}'), {"a": 1})
        for text in (b"[]", b"1", b"null", b'"{}"'):
            self.assertRaises(JsonRefused, loads_object, text)

    @given(_VALUE)
    def test_any_value_has_its_nodes(self, value: object) -> None:
        """The number of nodes is that of values and member names, for any document."""
        nodes = _nodes(value)
        self.assertEqual(loads(dumps(value), max_depth=64, max_nodes=nodes), value)
        self.assertRaises(JsonRefused, loads, dumps(value), max_depth=64, max_nodes=nodes - 1)

    @given(_VALUE)
    def test_round_trip(self, value: object) -> None:
        """Serialized values are read back unchanged."""
        self.assertEqual(loads(dumps(value), max_depth=64), value)

    @given(st.binary(max_size=200) | st.text(alphabet='[]{}":,\\u0123456789abdEe+-. \n', max_size=60).map(str.encode))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets give the same value as the json module, or a typed error."""
        try:
            found = loads(data)
        except JsonRefused as error:
            self.assertEqual(error.reason, "malformed")
            self.assertTrue(error.defect)
        else:
            self.assertEqual(found, json.loads(data))


class DumpsTests(SynchronousTestCase):
    """Writing JSON."""

    def test_the_form_is_compact_utf8(self) -> None:
        """No white space, no escapes beyond ASCII, members in insertion order."""
        self.assertEqual(dumps({"b": ["é", 1], "a": None}), '{"b":["é",1],"a":null}'.encode())

    def test_values_without_json(self) -> None:
        """NaN and lone surrogates are refused."""
        self.assertRaises(ValueError, dumps, float("nan"))
        self.assertRaises(UnicodeEncodeError, dumps, "\ud800")


class Base64Tests(SynchronousTestCase):
    """Canonical base64url."""

    def test_defects_are_named(self) -> None:
        """The error names padding, other characters, unused bits, impossible lengths and other types."""
        for text, word in (
            ("QQ==", "alphabet"),
            ("Q+8", "alphabet"),
            ("QQ\n", "alphabet"),
            ("é", "alphabet"),
            ("QR", "spare bits"),
            ("QUF", "spare bits"),
            ("A", "length"),
            ("AAAAA", "length"),
            (b"QQ", "bytes"),
            (None, "NoneType"),
            (1, "int"),
        ):
            self.assertIn(word, self.assertRaises(Base64Refused, b64u_decode, text).defect)

    @given(st.binary())
    def test_round_trip(self, data: bytes) -> None:
        """Any octets are encoded and decoded unchanged."""
        self.assertEqual(b64u_decode(b64u_encode(data)), data)

    @given(st.text(alphabet="AQgw-_=+/ab1\n", max_size=9))
    def test_one_text_for_each_octet_string(self, text: str) -> None:
        """A text is accepted exactly when it is the encoding of its octets."""
        try:
            data = b64u_decode(text)
        except Base64Refused as error:
            self.assertTrue(error.defect)
        else:
            self.assertEqual(b64u_encode(data), text)


class FractionsTests(SynchronousTestCase):
    """``fractions=True``, for measurements."""

    def test_fractions(self) -> None:
        """Numbers with fraction or exponent are floats, whole ones stay integers; the limits stay."""
        self.assertEqual([1, 0.5, 1e-7], loads(b"[1, 0.5, 1E-7]", fractions=True))
        for text in (b"[1e999]", b"[-1e999]", b"[NaN]", b"[9007199254740993]"):
            self.assertRaises(JsonRefused, loads, text, fractions=True)
        self.assertRaises(JsonRefused, loads, b"[0.5]")
