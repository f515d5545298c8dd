"""Tests of the rules by which words become flags and arguments."""

from __future__ import annotations

import shlex
from typing import Any

import click
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import UsageRefused
from svc.cli.flags import Arguments, Flag, Integer, OneOf, bool_flag, parse_bool, value_flag
from svc.cli.globals import GLOBAL_FLAGS, HELP_FLAG
from svc.cli.pflag import PflagCommand, PflagGroup, PflagParser


class _Command(PflagCommand):
    """A command that takes the global flags too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


class _Group(PflagGroup):
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


def parsed(line: str) -> dict[str, Any]:
    """Parse a line with a tree like that of the product and give all values."""
    found: dict[str, Any] = {}

    def run(ctx: click.Context, **values: Any) -> None:
        found.update(ctx.meta.get("svc.globals", {}))
        found.update({name: list(value) if isinstance(value, tuple) else value for name, value in values.items()})

    curl = _Command(
        "curl",
        params=[
            bool_flag("-i --show-headers", "h"),
            bool_flag("-s --silent", "s"),
            bool_flag("--validate", "v", default=True),
            value_flag("-H --header", "string", "h", multiple=True),
            value_flag("-X --request", "string", "x", default="GET"),
            value_flag("-w --watch", "seconds", "w", implied="2"),
            value_flag("-d --data", "string", "d", default=""),
            value_flag("--inject-faults", "strings", "f", multiple=True),
            Arguments("url", "<url>", minimum=0, maximum=None, noun="URL"),
        ],
        callback=click.pass_context(run),
        add_help_option=False,
    )
    connect = _Command(
        "connect",
        params=[
            value_flag("-K --kubeconfig", "string", "k", multiple=True),
            value_flag("--context", "string", "c", multiple=True),
            Arguments("reference", "[reference]", minimum=0, maximum=1, noun="reference"),
        ],
        callback=click.pass_context(run),
        add_help_option=False,
    )
    federation = _Group("federation", commands={"connect": connect}, add_help_option=False)
    root = _Group("svc", commands={"curl": curl, "federation": federation}, add_help_option=False)
    root.main(shlex.split(line), standalone_mode=False)
    return found


class SpecificationTests(SynchronousTestCase):
    """The argument lines that the specification makes."""

    def check(self, line: str, **expected: Any) -> None:
        found = parsed(line)
        self.assertEqual({name: found.get(name) for name in expected}, expected, line)

    def test_boolean_never_eats_a_word(self) -> None:
        """The word after a boolean flag is an argument."""
        self.check("curl https://x -i", url=["https://x"], show_headers=True)
        self.check("curl -i https://x", url=["https://x"], show_headers=True)
        self.check("curl --validate https://x", url=["https://x"], validate=True)
        self.check("--debug curl https://x", url=["https://x"], debug=True)
        self.check("curl --debug true", url=["true"], debug=True)

    def test_boolean_with_value(self) -> None:
        """A boolean takes its value behind an equals sign only."""
        self.check("curl --validate=false https://x", url=["https://x"], validate=False)
        self.check("curl https://x --debug", url=["https://x"], debug=True)
        self.check("curl https://x --debug=false", url=["https://x"], debug=False)
        self.check("curl -i=false https://x", show_headers=False)
        self.check("curl -is=F https://x", show_headers=True, silent=False)

    def test_optional_value(self) -> None:
        """A flag whose value is optional takes one behind an equals sign only."""
        self.check("curl --watch 5", url=["5"], watch="2")
        self.check("curl --watch=5 x", url=["x"], watch="5")
        self.check("curl -iw x", url=["x"], show_headers=True, watch="2")
        self.check("curl -w=0.5 x", watch="0.5")
        self.check("curl x", watch=None)

    def test_negative_values(self) -> None:
        """A flag with a value takes the next word whatever it looks like."""
        self.check("curl https://x --verbose=-2", url=["https://x"], verbose=-2)
        self.check("curl https://x --verbose -2", url=["https://x"], verbose=-2)
        self.check("-v -2 curl https://x", url=["https://x"], verbose=-2)
        self.check("-v-2 curl https://x", verbose=-2)
        self.check("-v=-2 curl https://x", verbose=-2)
        self.check("curl -d -x https://x", url=["https://x"], data="-x")
        self.check("curl -d -- https://x", url=["https://x"], data="--")
        self.check("curl --data '' https://x", url=["https://x"], data="")

    def test_short_flags(self) -> None:
        """Short flags combine, and take their value directly, after an equals sign, or as the next word."""
        self.check("curl -is https://x", url=["https://x"], show_headers=True, silent=True)
        self.check("curl -X=PUT https://x", url=["https://x"], request="PUT")
        self.check("curl -XPUT https://x", request="PUT")
        self.check("curl -isXPUT https://x", request="PUT", silent=True)
        self.check("curl -iX PUT https://x", url=["https://x"], request="PUT")
        self.check("curl -X= https://x", url=["https://x"], request="=")

    def test_repeated(self) -> None:
        """Repeatable flags collect, others take the last value."""
        self.check("curl -H a:1 -H b:2 -XPUT https://x", header=["a:1", "b:2"], request="PUT")
        self.check("curl --inject-faults=a,b --inject-faults c https://x", inject_faults=["a,b", "c"])
        self.check("curl -X PUT -X POST https://x", request="POST")
        self.check("-v 1 curl -v 0 https://x", verbose=0)

    def test_nested(self) -> None:
        """Commands below commands take their own flags, and flags before the name are the group's."""
        self.check(
            "federation connect -K a --context c1 -K b --context c2",
            kubeconfig=["a", "b"],
            context=["c1", "c2"],
            reference=[],
        )
        self.check("federation connect ref -K a", reference=["ref"], kubeconfig=["a"])
        self.check("-v 1 federation --debug connect -v 2", verbose=2, debug=True)

    def test_end_of_flags(self) -> None:
        """After two dashes everything is an argument; a single dash is one."""
        self.check("curl -- -i https://x", url=["-i", "https://x"], show_headers=False)
        self.check("curl - https://x", url=["-", "https://x"])


class RefusedTests(SynchronousTestCase):
    """Invalid lines, and the sentence of each."""

    def check(self, line: str, sentence: str, suggestion: str | None = None) -> None:
        error = self.assertRaises(UsageRefused, parsed, line)
        self.assertEqual(str(error), sentence)
        if suggestion is not None:
            self.assertEqual(error.hint, suggestion)

    def test_unknown(self) -> None:
        """Unknown flags are named, with the nearest one; no name is abbreviated."""
        self.check("curl --sillent", "unknown flag --sillent", "did you mean --silent")
        self.check("curl --sil", "unknown flag --sil")
        self.check("curl --no-validate", "unknown flag --no-validate", "did you mean --validate")
        self.check("curl -iZ", "unknown flag -Z in -iZ")
        self.check("curl -Z", "unknown flag -Z")
        self.check("--silent curl", "unknown flag --silent")

    def test_value_missing(self) -> None:
        """A flag at the end of the line without its value is named."""
        self.check("curl -X", "flag -X needs a value")
        self.check("curl --request", "flag --request needs a value", "expected: --request string")

    def test_values(self) -> None:
        """Values of the wrong kind are named with what was expected."""
        self.check("curl --validate=maybe", '--validate does not accept "maybe"', "expected: true or false")
        self.check("curl -v loud", '--verbose does not accept "loud"', "expected: a whole number, such as -v 1")
        self.check("curl -v 1e3", '--verbose does not accept "1e3"')
        self.check(f"curl -v {2**63}", f'--verbose does not accept "{2**63}"')
        self.check("curl --log-format xml", '--log-format does not accept "xml"', "expected: one of text, json")

    def test_bad_syntax(self) -> None:
        """Dashes without a name are refused."""
        self.check("curl ---x", 'bad flag syntax "---x"')
        self.check("curl --=x", 'bad flag syntax "--=x"')

    def test_count(self) -> None:
        """Too many arguments are counted."""
        self.check("federation connect a b", "connect takes at most 1 reference, 2 were given")


_FLAGS = (
    bool_flag("-b --bool", "b"),
    bool_flag("-c --choose", "c"),
    value_flag("-s --text", "string", "s"),
    value_flag("-m --many", "string", "m", multiple=True),
)
_WORD = st.text("abcxyz=-:/. é", max_size=6)


class PropertyTests(SynchronousTestCase):
    """Properties of any line."""

    @given(st.lists(_WORD, max_size=8))
    def test_any_words(self, words: list[str]) -> None:
        """Any words are parsed or refused as usage; nothing else happens."""
        try:
            values, rest, _order = PflagParser(_FLAGS).parse_args(words)
        except UsageRefused:
            return
        self.assertTrue(all(word in words for word in rest))
        self.assertTrue(all(isinstance(values.get(name, False), bool) for name in ("bool", "choose")))

    @given(st.lists(st.tuples(st.sampled_from("bcsm"), _WORD, st.booleans(), st.integers(0, 3)), max_size=6))
    def test_round_trip(self, given_flags: list[tuple[str, str, bool, int]]) -> None:
        """Flags in any of the accepted forms are parsed, with the arguments between in order."""
        longs = {"b": "bool", "c": "choose", "s": "text", "m": "many"}
        words: list[str] = []
        expected: dict[str, Any] = {}
        arguments: list[str] = []
        for letter, text, truth, form in given_flags:
            name = longs[letter]
            if letter in "bc":
                word = "true" if truth else "false"
                words += [[f"--{name}={word}"], [f"-{letter}={word}"], [f"--{name}={word[0]}"], [f"-{letter}={word}"]][
                    form
                ]
                expected[name] = truth
            else:
                glued = [f"-{letter}{text}"] if text and not text.startswith("=") else [f"-{letter}", text]
                words += [[f"--{name}={text}"], [f"--{name}", text], [f"-{letter}", text], glued][form]
                expected[name] = [*expected.get(name, []), text] if letter == "m" else text
            arguments.append(f"argument{len(arguments)}")
            words.append(arguments[-1])
        values, rest, _order = PflagParser(_FLAGS).parse_args(words)
        self.assertEqual((dict(values), rest), (expected, arguments))

    @given(st.lists(st.sampled_from(["--bool", "-b", "-s", "x", "run", "--text=1", "--"]), max_size=6))
    def test_group_stops_at_the_command(self, words: list[str]) -> None:
        """On a group everything from the first argument on is left unparsed."""
        try:
            _values, rest, _order = PflagParser(_FLAGS, interspersed=False).parse_args([*words, "command", "--bool"])
        except UsageRefused:
            return
        if rest:
            self.assertEqual(rest, [*words, "command", "--bool"][-len(rest) :])

    @given(st.text(max_size=6))
    def test_booleans(self, text: str) -> None:
        """Exactly the words of Go's ParseBool are booleans."""
        known = {"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"}
        self.assertEqual(parse_bool(text) is not None, text in known)


class TypeTests(SynchronousTestCase):
    """Flags as values."""

    def test_integer(self) -> None:
        """Integers have 64 bits and an optional sign."""
        for text, value in (("-2", -2), ("+3", 3), ("007", 7), (str(-(2**63)), -(2**63))):
            self.assertEqual(Integer().convert(text, None, None), value)
        for text in ("", "-", "1.0", "0x10", "٣", "--1", str(2**63)):
            self.assertRaises(UsageRefused, Integer().convert, text, None, None)

    def test_one_of(self) -> None:
        """Choices are compared exactly."""
        self.assertEqual(OneOf("a", "b").convert("b", None, None), "b")
        self.assertRaises(UsageRefused, OneOf("a", "b").convert, "B", None, None)

    def test_takes_value(self) -> None:
        """Only booleans take no value."""
        self.assertEqual([flag.takes_value for flag in _FLAGS], [False, False, True, True])
        self.assertIsInstance(_FLAGS[0], Flag)
