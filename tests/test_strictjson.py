"""Strict JSON and base64url: one document for all readers, or a refusal by name."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.strictjson import (
    MAX_DEPTH,
    MAX_INTEGER,
    Base64Refused,
    JsonRefused,
    b64u_decode,
    b64u_encode,
    dumps,
    loads,
    loads_object,
)

_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)))
_SCALAR = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | _TEXT
_VALUE = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=20
)


class LoadsTests(SynchronousTestCase):
    """Reading JSON."""

    def refused(self, data: bytes, **limits: int) -> str:
        return self.assertRaises(JsonRefused, loads, data, **limits).defect

    def test_each_type_is_read(self) -> None:
        """Every type of JSON but fractions has its Python value."""
        found = loads(b' {"a":[1,-2,true,false,null,"\\u00e9\\ud83d\\ude00"],"b":{}}\n')
        self.assertEqual(found, {"a": [1, -2, True, False, None, "é😀"], "b": {}})

    def test_duplicate_members_are_refused_at_any_depth(self) -> None:
        """Two members of one name are refused by that name, also when an escape spells it."""
        self.assertIn("duplicate member 'a'", self.refused(b'{"a":1,"a":1}'))
        self.assertIn("duplicate member 'a'", self.refused(b'[{"x":{"a":1,"\\u0061":2}}]'))

    def test_numbers_are_integers(self) -> None:
        """Fractions, exponents and constants are refused, whatever their value."""
        for text in (b"1.0", b"1e3", b"1E0", b"-0.0"):
            self.assertIn("not an integer", self.refused(text))
        for text in (b"NaN", b"Infinity", b"-Infinity"):
            self.assertIn("constant", self.refused(b"[" + text + b"]"))

    def test_the_largest_integer_is_the_limit(self) -> None:
        """2^53-1 passes with either sign; one more does not, and neither does a number of any length."""
        for value in (MAX_INTEGER, -MAX_INTEGER):
            self.assertEqual(loads(str(value).encode()), value)
        for value in (MAX_INTEGER + 1, -MAX_INTEGER - 1, 10**5000):
            text = "1" + "0" * 5000 if value == 10**5000 else str(value)
            self.assertIn("2^53-1", self.refused(text.encode()))

    def test_lone_surrogates_are_refused(self) -> None:
        """Half of a surrogate pair is refused in values and in names."""
        for text in (b'"\\ud800"', b'["\\udc00x"]', b'{"\\ud800":1}', b'{"a":{"b":["\\ud83d"]}}'):
            self.assertIn("surrogate", self.refused(text))

    def test_nesting_is_bounded(self) -> None:
        """The limit of nesting passes and one more does not; brackets inside strings do not count."""
        at_limit = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
        self.assertIsInstance(loads(at_limit), list)
        self.assertIn(str(MAX_DEPTH), self.refused(b"[" + at_limit + b"]"))
        self.assertIn("3", self.refused(b'{"a":[{"b":[]}]}', max_depth=3))
        quoted = b'"' + b"[{" * 40 + b'\\"' + b"[{" * 40 + b'"'
        self.assertIsInstance(loads(quoted), str)

    def test_size_is_bounded(self) -> None:
        """The largest size passes and one octet more does not."""
        self.assertEqual(loads(b'"aa"', max_bytes=4), "aa")
        self.assertIn("at most 3", self.refused(b'"aa"', max_bytes=3))

    def test_encodings_are_refused_by_name(self) -> None:
        """A byte order mark, octets that are not UTF-8 and encoded surrogates are refused."""
        self.assertIn("byte order mark", self.refused(b"\xef\xbb\xbf{}"))
        self.assertIn("octet 1", self.refused(b'"\xff"'))
        self.assertIn("UTF-8", self.refused(b'"\xed\xa0\x80"'))

    def test_what_is_not_json_is_refused(self) -> None:
        """Broken documents are refused with the place."""
        for text in (b"", b"{", b"[1,]", b"{'a':1}", b'{"a" 1}', b"[1] 2", b'"\n"', b"01", b"+1", b"\x00", b"tru"):
            self.assertIn("character", self.refused(text))

    def test_strings_that_never_end_cost_linear_time(self) -> None:
        """A string of escaped quotes that never ends is refused at once."""
        started = time.process_time()
        self.assertIn("Unterminated string starting at character 1", self.refused(b'["' + b'\\"' * 120_000))
        self.refused(b'"' * 200_001)
        self.refused(b'"' + b"\\" * 200_001)
        self.assertLess(time.process_time() - started, 2.0)

    def test_an_object_is_demanded(self) -> None:
        """Where an object is demanded, nothing else passes."""
        self.assertEqual(loads_object(b'{"a":1}'), {"a": 1})
        for text in (b"[]", b"1", b"null", b'"{}"'):
            self.assertRaises(JsonRefused, loads_object, text)

    @given(_VALUE)
    def test_round_trip(self, value: object) -> None:
        """What is written is read back as it was."""
        self.assertEqual(loads(dumps(value), max_depth=64), value)

    @given(st.binary(max_size=200) | st.text(alphabet='[]{}":,\\u0123456789abdEe+-. \n', max_size=60).map(str.encode))
    def test_any_octets_are_read_as_others_read_them_or_refused(self, data: bytes) -> None:
        """Any octets give the value that a plain reader sees, or a typed refusal."""
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
        """No space, no escapes for text beyond ASCII, members in the order given."""
        self.assertEqual(dumps({"b": ["é", 1], "a": None}), '{"b":["é",1],"a":null}'.encode())

    def test_what_has_no_json_is_refused(self) -> None:
        """NaN and lone surrogates are not written."""
        self.assertRaises(ValueError, dumps, float("nan"))
        self.assertRaises(UnicodeEncodeError, dumps, "\ud800")


class Base64Tests(SynchronousTestCase):
    """Canonical base64url."""

    def test_defects_are_named(self) -> None:
        """Padding, foreign characters, spare bits, impossible lengths and other types are refused by name."""
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
        """Any octets are written and read back."""
        self.assertEqual(b64u_decode(b64u_encode(data)), data)

    @given(st.text(alphabet="AQgw-_=+/ab1\n", max_size=9))
    def test_one_text_for_each_octet_string(self, text: str) -> None:
        """What is accepted is exactly what would be written."""
        try:
            data = b64u_decode(text)
        except Base64Refused as error:
            self.assertTrue(error.defect)
        else:
            self.assertEqual(b64u_encode(data), text)
