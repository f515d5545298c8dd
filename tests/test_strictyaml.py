"""Strict YAML 1.2: values, and what is refused."""

from __future__ import annotations

import json
import string
import time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.strictyaml import MAX_DEPTH, YamlRefused, loads, loads_all

#: Plain scalars and their values (YAML 1.2.2, section 10.3.2).
SCALARS: dict[str, object] = {
    "true": True,
    "True": True,
    "FALSE": False,
    "null": None,
    "~": None,
    "on": "on",
    "off": "off",
    "yes": "yes",
    "No": "No",
    "y": "y",
    "tRUE": "tRUE",
    "0": 0,
    "-12": -12,
    "+12": 12,
    "0o17": 15,
    "0x1F": 31,
    "0b11": "0b11",
    "1_000": "1_000",
    "190:20:30": "190:20:30",
    "1.5": 1.5,
    "1.": 1.0,
    ".5": 0.5,
    "-1e3": -1000.0,
    "1e": "1e",
    ".": ".",
    "-": [None],
    "10s": "10s",
    "2001-12-14": "2001-12-14",
    "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "=": "=",
    "'true'": "true",
    '"1"': "1",
    '"\\x41\\u00e9"': "Aé",
    "99999999999999999999": 99999999999999999999,
    "٣": "٣",
}

REFUSED = {
    "a duplicate key": ("a: 1\na: 2", "line 2, column 1: the key a appears twice"),
    "a duplicate key, quoted once": ("a: 1\n'a': 2", "the key a appears twice"),
    "a duplicate key inside": ("a: {b: 1, c: 2, b: 3}", "line 1, column 17: the key b appears twice"),
    "a number for a key": ("1: a", "the key 1 is not text: put it in quotes"),
    "a truth for a key": ("true: a", "the key true is not text"),
    "null for a key": (": a", "the key null is not text"),
    "a list for a key": ("? [a]\n: b", "a key that is not text"),
    "a mapping for a key": ("{a: b}: c", "a key that is not text"),
    "an anchor": ("a: &x 1", "the anchor &x"),
    "an anchor of a key": ("&x a: 1", "the anchor &x"),
    "an anchor of a list": ("a: &x [1]", "the anchor &x"),
    "an alias": ("a: *x", "the alias *x"),
    "a mapping inside itself": ("a: &x {b: *x}", "the anchor &x"),
    "a merge key": ("<<: {a: 1}", "the merge key <<"),
    "a tag of one's own": ("a: !mine 1", "the tag !mine"),
    "a tag without a name": ("a: ! 1", "the tag !"),
    "a standard tag": ("a: !!str 1", "the tag tag:yaml.org,2002:str"),
    "a tag of a list": ("a: !!set {b}", "the tag tag:yaml.org,2002:set"),
    "a tag that names code": ("a: !!python/object/apply:os.system [id]", "the tag tag:yaml.org,2002:python/"),
    "a verbatim tag": ("a: !<tag:yaml.org,2002:bool> x", "the tag tag:yaml.org,2002:bool"),
    "another version": ("%YAML 1.1\n---\na: on", "a directive"),
    "a version that there is not": ("%YAML 1.3\n---\na: on", "a directive"),
    "this version by name": ("%YAML 1.2\n---\na: on", "a directive"),
    "a tag directive": ("# one\n\n  # two\n%TAG ! tag:a,2000:\n---\na: !b c", "a directive"),
    "an unknown directive": ("\ufeff%OTHER\n---\na: 1", "a directive"),
    "a directive behind the document": ("a: 1\n...\n%YAML 1.3\n---\nb: 2", ""),
    "a second document": ("a: 1\n---\nb: 2", "line 2, column 1: a second document"),
    "a leading zero": ("a: 010", "with a leading zero it is octal for some readers"),
    "a leading zero behind a sign": ("a: -010", "with a leading zero"),
    "infinity": ("a: -.inf", "which is not finite"),
    "no number": ("a: .NaN", "which is not finite"),
    "a number beyond floating point": ("a: 1e999", "beyond all floating-point numbers"),
    "a number of 21 digits": ("a: 999999999999999999999", "more than 20 digits"),
    "a number of many digits": ("a: " + "9" * 5000, "more than 20 digits"),
    "NUL": ("a: b\x00", "special characters are not allowed"),
    "a lone surrogate": ("a: \ud800", "special characters are not allowed"),
    "NUL by escape": ('a: "b\\0"', "line 1, column 4: a NUL or a lone surrogate"),
    "a lone surrogate by escape": ('"\\ud800": a', "line 1, column 1: a NUL or a lone surrogate"),
    "NEL": ("# a \x85b: c", "the character U+0085"),
    "a line separator": ("# a \u2028b: c", "the character U+2028"),
    "a paragraph separator": ("a: 'b\u2029c'", "the character U+2029"),
    "an open quote": ("a: 'b", "unexpected end of stream"),
    "an unknown escape": ('a: "\\q"', "unknown escape character"),
    "a tab for indentation": ("a:\n\tb: c", "cannot start any token"),
    "an open list": ("a: [1", "line 1, column 6: expected ',' or ']'"),
    "two values": ("a: b: c", "line 1, column 5: mapping values are not allowed"),
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(
        st.characters(exclude_characters="\ufffe\uffff\u2028\u2029", exclude_categories=["Cc", "Cs"]), max_size=8
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(string.ascii_letters + "<:-#", max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [
        "a",
        "b: ",
        ": ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\n",
        "\n  ",
        "#",
        "'",
        '"',
        "\\",
        "&x ",
        "*x",
        "!t ",
        "!!str ",
    ]
    + ["%YAML 1.3\n", "---\n", "...\n", "|\n", ">-\n", "<<", "1", "01", "true", "~", "\t", "\r", "é", "\ufeff"]
)


class ScalarTests(SynchronousTestCase):
    """Plain and quoted scalars."""

    def test_scalars(self) -> None:
        """Plain scalars have the types of the core schema only."""
        self.assertEqual({text: loads(f"- {text}") for text in SCALARS}, {text: [v] for text, v in SCALARS.items()})
        self.assertEqual(
            {text: type(loads(f"a: {text}")["a"]) for text in SCALARS if text != "-"},  # type: ignore[index]
            {text: type(value) for text, value in SCALARS.items() if text != "-"},
        )

    def test_keys_are_text(self) -> None:
        """Booleans of YAML 1.1, such as `on`, are text keys."""
        self.assertEqual(loads("on: 1\nyes: 2\n'1': 3\n'<<': 4"), {"on": 1, "yes": 2, "1": 3, "<<": 4})

    def test_documents(self) -> None:
        """An empty text is null; structures nest."""
        self.assertEqual([loads(text) for text in ("", "# a", "---", "---\n...\n", "\ufeff")], [None] * 5)
        text = "a:\n  - b: [c, {d: e}]\n    f:\n  - |\n    g\n  -\n    - h\n"
        text += "empty: {}\nnone: []\nflow: {i, j: }\npair: [k: l]\n"
        self.assertEqual(
            loads(text),
            {
                "a": [{"b": ["c", {"d": "e"}], "f": None}, "g\n", ["h"]],
                "empty": {},
                "none": [],
                "flow": {"i": None, "j": None},
                "pair": [{"k": "l"}],
            },
        )

    def test_several_documents(self) -> None:
        """Documents of one text follow each other, up to a limit; each is read as strictly as a single one."""
        self.assertEqual([{"a": 1}, None, ["b"]], loads_all("a: 1\n---\n---\n- b\n...\n"))
        self.assertEqual([], loads_all("# nothing"))
        self.assertEqual([1, 2], loads_all("1\n---\n2", max_documents=2))
        for text, defect in (
            ("1\n---\n2\n---\n3", "line 4, column 1: more than 2 documents"),
            ("a: 1\n---\na: 1\na: 2", "line 4, column 1: the key a appears twice"),
            ("a: 1\n...\n%YAML 1.1\n---\nb: on", "a directive"),
            ("a: 1\n...\n%TAG ! tag:a,2000:\n---\nb: 1", "a directive"),
            ("a: &x 1\n---\nb: *x", "the anchor &x"),
        ):
            error = self.assertRaises(YamlRefused, loads_all, text, max_documents=2)
            self.assertIn(defect, error.defect)

    def test_a_percent_sign_elsewhere(self) -> None:
        """It begins a directive only before the document."""
        self.assertEqual(loads("a: 5%\n# %YAML 1.1\nb: '%'"), {"a": "5%", "b": "%"})


class RefusedTests(SynchronousTestCase):
    """Texts that readers interpret differently or that are not YAML."""

    def test_refused(self) -> None:
        """The error names the defect, with line and column where known."""
        for name, (text, words) in REFUSED.items():
            error = self.assertRaises(YamlRefused, loads, text)
            self.assertIn(words, error.defect, name)
            self.assertEqual(error.reason, "malformed")

    def test_depth(self) -> None:
        """Mappings and lists may nest up to the limit."""
        for opened, closed in (("[", "]"), ("{a: ", "}"), ("- ", ""), ("[{a: ", "}]")):
            levels = len(opened.replace("a: ", "").replace(" ", ""))
            count = MAX_DEPTH // levels
            loads(opened * count + "1" + closed * count)
            for more in (1, 50, 3000):
                error = self.assertRaises(YamlRefused, loads, opened * (count + more) + "1" + closed * (count + more))
                self.assertIn(f"nesting deeper than {MAX_DEPTH}", error.defect)
        self.assertEqual(loads("[[1]]", max_depth=2), [[1]])
        self.assertRaises(YamlRefused, loads, "[[1]]", max_depth=1)

    def test_bombs(self) -> None:
        """A small text does not expand, and the cost of a large one is linear."""
        laughs = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
        opened = {"laughs": laughs, "lists": "[" * 20000, "mappings": "{a: " * 20000, "keys": "? " * 20000}
        for name, text in opened.items():
            begun = time.process_time()
            self.assertRaises(YamlRefused, loads, text)
            self.assertLess(time.process_time() - begun, 3.0, name)


class PropertyTests(SynchronousTestCase):
    """Properties of any text."""

    @given(st.text(max_size=100) | st.lists(PIECES | st.text(max_size=3), max_size=25).map("".join))
    def test_any_text(self, text: str) -> None:
        """Any text gives a value of the documented types or YamlRefused."""
        try:
            value = loads(text)
        except YamlRefused as error:
            self.assertTrue(error.defect)
            return
        self.check(value)

    def check(self, value: object) -> None:
        """Assert that a value has only types of JSON, with text keys."""
        self.assertIn(type(value), (dict, list, str, int, float, bool, type(None)))
        if isinstance(value, dict):
            for key, inner in value.items():
                self.assertIs(type(key), str)
                self.check(inner)
        elif isinstance(value, list):
            for inner in value:
                self.check(inner)

    @given(JSON)
    def test_json(self, value: object) -> None:
        """JSON documents are read."""
        self.assertEqual(loads(json.dumps(value, ensure_ascii=False)), value)
        self.assertEqual(loads(json.dumps({"a": value}, ensure_ascii=False, indent=2)), {"a": value})
