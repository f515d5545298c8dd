"""Configuration files: reading, and reports of every defect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationInfo, field_validator, model_validator
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.settings import (
    MAX_FILE,
    Address,
    ConfigInvalid,
    ConfigProblem,
    ConfigUnreadable,
    ConfigVariableMissing,
    Duration,
    HostPort,
    Items,
    Settings,
    Size,
    load,
    parse,
)


class Listener(Settings):
    """One entry of a list."""

    name: str
    listen: Address
    upstream: Address | None = None
    protocol: Literal["http", "tcp"] = "http"
    require: Items[Literal["workload", "receipt"]] = ()

    @field_validator("name")
    @classmethod
    def short(cls, value: str, info: ValidationInfo) -> str:
        """Apply a rule of the model."""
        if len(value) > 8:
            raise ValueError("a name of at most 8 characters")
        return value


class Store(Settings):
    """A mapping inside the file."""

    path: str
    retention: Duration = 86400.0
    size: Size = 4096


class Example(Settings):
    """A configuration with every kind of value."""

    trustDomain: str
    count: Annotated[int, Field(ge=1, le=9)] = 1
    ready: bool = True
    labels: dict[str, str] = {}
    either: Listener | str | None = None
    store: Store | None = None
    listeners: Items[Listener] = ()

    @model_validator(mode="after")
    def different(self) -> Example:
        """Apply a rule on the whole configuration."""
        if len({listener.name for listener in self.listeners}) != len(self.listeners):
            raise ValueError("listeners with different names")
        return self


WHOLE = """
trustDomain: prod.example.org
ready: false
labels: {"1": on}
store: {path: /var/lib/x, retention: 90d, size: 4KiB}
listeners:
  - {name: web, listen: "0.0.0.0:8443", upstream: "[::1]:80", protocol: tcp, require: [workload]}
  - name: all
    listen: ":0"
"""


def problems_of(text: str) -> list[str]:
    """All problems of a text."""
    try:
        parse(text, Example)
    except ConfigInvalid as error:
        return [str(problem) for problem in error.problems]
    return []


class ParseTests(SynchronousTestCase):
    """From text to a model."""

    def test_a_whole_configuration(self) -> None:
        """Every kind of value has its type; absent keys have their defaults."""
        example = parse(WHOLE, Example)
        self.assertEqual((example.trustDomain, example.ready, example.count), ("prod.example.org", False, 1))
        self.assertEqual(example.labels, {"1": "on"})
        assert example.store is not None
        self.assertEqual((example.store.retention, example.store.size), (7776000.0, 4096))
        web, everything = example.listeners
        self.assertEqual((web.listen, web.upstream), (HostPort("0.0.0.0", 8443), HostPort("::1", 80)))
        self.assertEqual((web.require, everything.require), (("workload",), ()))
        self.assertEqual((everything.listen, everything.upstream), (HostPort("", 0), None))

    def test_frozen(self) -> None:
        """A configuration does not change."""
        example = parse("trustDomain: a", Example)
        self.assertRaises(ValueError, setattr, example, "trustDomain", "b")

    def test_yaml_1_2(self) -> None:
        """`on`, `off`, `yes` and `no` are text, and text is not converted to a boolean or number."""
        self.assertEqual(parse("trustDomain: off", Example).trustDomain, "off")
        self.assertEqual(problems_of("trustDomain: a\nready: on"), ["ready: 'on': expected true or false"])
        self.assertEqual(problems_of("trustDomain: a\nready: 'true'"), ["ready: 'true': expected true or false"])
        self.assertEqual(problems_of("trustDomain: a\nready: 1"), ["ready: 1: expected true or false"])
        self.assertEqual(problems_of("trustDomain: a\ncount: '1'"), ["count: '1': expected a whole number"])
        self.assertEqual(problems_of("trustDomain: a\ncount: 1.0"), ["count: 1.0: expected a whole number"])
        self.assertEqual(problems_of("trustDomain: a\ncount: true"), ["count: true: expected a whole number"])
        self.assertEqual(problems_of("trustDomain: 1"), ["trustDomain: 1: expected text"])
        self.assertEqual(problems_of("trustDomain:"), ["trustDomain: null: expected text"])
        self.assertEqual(parse("trustDomain: 2001-12-14", Example).trustDomain, "2001-12-14")

    def test_nothing(self) -> None:
        """An empty text has no keys, so the required ones are missing."""
        for text in ("", "# a comment\n", "---\n", "{}"):
            self.assertEqual(problems_of(text), ["trustDomain: missing: expected a value"])

    def test_unreadable(self) -> None:
        """A text that is not a mapping, or not strict YAML, is refused with line and column."""
        for text, what in (
            ("- a", "the file is not a mapping of keys to values"),
            ("a", "the file is not a mapping of keys to values"),
            ("false", "the file is not a mapping of keys to values"),
            ("trustDomain: a\ntrustDomain: b", "line 2, column 1: the key trustDomain appears twice"),
            ("labels: {a: b, a: c}", "line 1, column 16: the key a appears twice"),
            ("trustDomain: !secret a", "line 1, column 14: the tag !secret: tags are not read"),
            ("trustDomain: *a", "line 1, column 14: the alias *a: aliases are not read, write the value out"),
            ("trustDomain: 'a", "line 1, column 16: found unexpected end of stream"),
        ):
            error = self.assertRaises(ConfigUnreadable, parse, text, Example, "proxy.yaml")
            self.assertEqual(str(error), f"the configuration proxy.yaml cannot be read: {what}")
            self.assertEqual(error.reason, "config_unreadable")


class ProblemTests(SynchronousTestCase):
    """Reports of defects."""

    def test_every_problem(self) -> None:
        """All defects are reported at once, each with key, value and what was expected."""
        text = """
ready: maybe
cuont: 3
count: 10
labels: [a]
store: {retention: 5, size: 4k, paht: x}
listeners:
  - {name: web, listen: 8443}
  - {listen: ":1", protocol: amqp, require: [workload, all]}
  - name: a name that is too long
    listen: {host: a, port: 1}
  - web
"""
        duration = "a duration with its unit, such as 250ms, 10s, 5m, 1h or 90d, up to 36500d"
        size = "a size with its unit, such as 512B, 4KiB, 16MiB or 1GiB, below 2^63 octets"
        address = "an address host:port with a port up to 65535, IPv6 in brackets"
        self.assertEqual(
            sorted(problems_of(text)),
            sorted(
                [
                    "trustDomain: missing: expected a value",
                    "ready: 'maybe': expected true or false",
                    "cuont: 3: expected no such key, perhaps count",
                    "count: 10: expected less than or equal to 9",
                    "labels: a list: expected a mapping",
                    "store.path: missing: expected a value",
                    f"store.retention: 5: expected {duration}",
                    f"store.size: '4k': expected {size}",
                    "store.paht: 'x': expected no such key, perhaps path",
                    f"listeners[0].listen: 8443: expected {address}",
                    "listeners[1].name: missing: expected a value",
                    "listeners[1].protocol: 'amqp': expected 'http' or 'tcp'",
                    "listeners[1].require[1]: 'all': expected 'workload' or 'receipt'",
                    "listeners[2].name: 'a name that is too long': expected a name of at most 8 characters",
                    f"listeners[2].listen: a mapping: expected {address}",
                    "listeners[3]: 'web': expected a mapping",
                ]
            ),
        )

    def test_lists(self) -> None:
        """Where a list is expected, other values are refused."""
        for value, shown in (("{}", "a mapping"), ("a", "'a'"), ("1", "1"), ("null", "null")):
            self.assertEqual(
                problems_of(f"trustDomain: a\nlisteners: {value}"), [f"listeners: {shown}: expected a list"]
            )

    def test_alternatives(self) -> None:
        """Paths of keys below alternatives are written as in the file, without the names of the alternatives."""
        problems = problems_of("trustDomain: a\neither: {name: b, lisen: c}")
        self.assertIn("either.listen: missing: expected a value", problems)
        self.assertIn("either.lisen: 'c': expected no such key, perhaps listen", problems)
        self.assertIn("either: a mapping: expected text", problems)
        self.assertEqual(len(problems), 3)

    def test_a_rule_about_the_whole(self) -> None:
        """A defect of the whole configuration has the key `configuration`."""
        text = "trustDomain: a\nlisteners: [{name: b, listen: ':1'}, {name: b, listen: ':2'}]"
        self.assertEqual(problems_of(text), ["configuration: a mapping: expected listeners with different names"])

    def test_the_error(self) -> None:
        """The error contains the number of problems and the first one."""
        error = self.assertRaises(ConfigInvalid, parse, "ready: 1", Example, "proxy.yaml")
        self.assertEqual(str(error), "proxy.yaml has 2 problem(s): trustDomain: missing: expected a value")
        self.assertEqual(error.problems[0], ConfigProblem("trustDomain", None, "a value"))
        self.assertEqual((error.reason, error.path), ("config_invalid", "proxy.yaml"))

    def test_hostile_text(self) -> None:
        """Keys and values of a file are escaped and truncated in messages."""
        for problem in problems_of(
            'trustDomain: a\n"\\e[31mkey\\u202e": "\\e]0;a\\a"\ncount: "\\u202e' + "x" * 5000 + '"'
        ):
            self.assertTrue(problem.isprintable(), problem)
            self.assertNotIn("\u202e", problem)
            self.assertLess(len(problem), 500)


class LoadTests(SynchronousTestCase):
    """From a file to a model."""

    def setUp(self) -> None:
        """Choose the path of a file."""
        self.path = Path(self.mktemp())

    def refused(self, path: str | Path) -> str:
        """The reason why a file cannot be read."""
        error = self.assertRaises(ConfigUnreadable, load, path, Example)
        return str(error.evidence["what"])

    def test_a_file(self) -> None:
        """The path may be a str or a Path; errors contain it."""
        self.path.write_text(WHOLE)
        self.assertEqual(load(self.path, Example), parse(WHOLE, Example))
        self.assertEqual(load(str(self.path), Example), parse(WHOLE, Example))
        self.path.write_text("")
        self.assertEqual(self.assertRaises(ConfigInvalid, load, self.path, Example).path, str(self.path))

    def test_a_variable(self) -> None:
        """``env:NAME`` is an environment variable, which errors name; a file of such a name needs its folder."""
        self.addCleanup(os.environ.pop, "SVC_TEST_CONFIG", None)
        os.environ["SVC_TEST_CONFIG"] = WHOLE
        self.assertEqual(load("env:SVC_TEST_CONFIG", Example), parse(WHOLE, Example))
        os.environ["SVC_TEST_CONFIG"] = ""
        error = self.assertRaises(ConfigInvalid, load, "env:SVC_TEST_CONFIG", Example)
        self.assertEqual("env:SVC_TEST_CONFIG", error.path)
        os.environb[b"SVC_TEST_CONFIG"] = b"a: \xff"
        self.assertEqual("invalid UTF-8 at octet 3", self.refused("env:SVC_TEST_CONFIG"))
        os.environ["SVC_TEST_CONFIG"] = "#" * MAX_FILE
        self.assertRaises(ConfigInvalid, load, "env:SVC_TEST_CONFIG", Example)
        os.environ["SVC_TEST_CONFIG"] = "#" * (MAX_FILE + 1)
        self.assertEqual(f"it is larger than {MAX_FILE} octets", self.refused("env:SVC_TEST_CONFIG"))
        for absent in ("env:SVC_TEST_ABSENT", "env:"):
            missing = self.assertRaises(ConfigVariableMissing, load, absent, Example)
            self.assertIn(f"the configuration {absent} cannot be read", str(missing))

    def test_missing(self) -> None:
        """An absent file, in an existing or absent folder."""
        self.assertEqual(self.refused(self.path), "no such file or directory")
        self.assertEqual(self.refused(self.path / "a"), "no such file or directory")

    def test_a_folder(self) -> None:
        """A folder is refused."""
        self.path.mkdir()
        self.assertEqual(self.refused(self.path), "is a directory")

    def test_permissions(self) -> None:
        """A file without read permission is refused."""
        if os.geteuid() == 0:
            self.path.symlink_to(self.path.absolute())
            self.assertEqual(self.refused(self.path), "too many levels of symbolic links")
            return
        self.path.write_text(WHOLE)
        self.path.chmod(0)
        self.assertEqual(self.refused(self.path), "permission denied")

    def test_invalid_names(self) -> None:
        """NUL and lone surrogates in a path are reported like other errors."""
        for path in ("a\0b", "\ud800"):
            self.assertEqual(self.refused(path), "no file can have this name")
        self.assertEqual(self.refused("a" * 5000), "file name too long")

    def test_size(self) -> None:
        """A file of 1 MiB is read, one octet more is refused."""
        start = b"trustDomain: a\n#"
        self.path.write_bytes(start + b"x" * (MAX_FILE - len(start)))
        self.assertEqual(load(self.path, Example).trustDomain, "a")
        self.path.write_bytes(start + b"x" * (MAX_FILE - len(start) + 1))
        self.assertEqual(self.refused(self.path), "it is larger than 1048576 octets")
        self.assertEqual(self.refused("/dev/zero"), "it is larger than 1048576 octets")

    def test_encoding(self) -> None:
        """Only UTF-8 is read, with or without a byte order mark."""
        for data, at in ((b"trustDomain: \xff", 13), ("trustDomain: é".encode("latin-1"), 13), (b"\xff\xfet\0", 0)):
            self.path.write_bytes(data)
            self.assertEqual(self.refused(self.path), f"invalid UTF-8 at octet {at}")
        self.path.write_bytes(b"\xef\xbb\xbftrustDomain: \xc3\xa9")
        self.assertEqual(load(self.path, Example).trustDomain, "é")
        self.path.write_bytes("trustDomain: a".encode("utf-16"))
        self.assertEqual(self.refused(self.path), "invalid UTF-8 at octet 0")


KEYS = st.sampled_from(["trustDomain", "count", "ready", "labels", "either", "store", "listeners", "other"])
INNER = st.sampled_from(["name", "listen", "upstream", "protocol", "require", "path", "retention", "size"])
SCALARS = st.sampled_from(
    ["a", "1", "true", "null", "''", "1.5", "10s", "4KiB", "':80'", "'[::1]:80'", "-", "~", "[]", "{}"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(INNER, inner), max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
        )
    ),
    max_leaves=10,
)
FILES = st.lists(st.tuples(KEYS, VALUES), max_size=5).map(lambda pairs: "".join(f"{k}: {v}\n" for k, v in pairs))


class PropertyTests(SynchronousTestCase):
    """Properties of any text."""

    def setUp(self) -> None:
        """Choose the path of a file."""
        self.path = Path(self.mktemp())

    @given(st.text(max_size=200) | FILES | FILES.map(lambda text: "trustDomain: a\n" + text))
    def test_any_text(self, text: str) -> None:
        """Any text gives a model or a typed error with a message."""
        try:
            example = parse(text, Example)
        except (ConfigUnreadable, ConfigInvalid) as error:
            self.assertIsInstance(error, SvcError)
            self.assertTrue(str(error).isprintable(), str(error))
            problems = error.problems if isinstance(error, ConfigInvalid) else ()
            self.assertTrue(all(str(problem).isprintable() and problem.expected for problem in problems))
            self.assertEqual(isinstance(error, ConfigInvalid), bool(problems))
            return
        self.assertIsInstance(example, Example)

    @given(st.binary(max_size=100) | FILES.map(str.encode))
    def test_any_octets_in_a_file(self, data: bytes) -> None:
        """Any file gives a model or a typed error with a message."""
        self.path.write_bytes(data)
        try:
            self.assertIsInstance(load(self.path, Example), Example)
        except (ConfigUnreadable, ConfigInvalid) as error:
            self.assertEqual(str(error.evidence["path"]), str(self.path))
