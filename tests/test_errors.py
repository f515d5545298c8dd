"""SvcError: codes of the class, sentence of the docstring, evidence of the instance."""

from __future__ import annotations

import ast
import copy
import pickle
import unicodedata
from collections.abc import Mapping
from string import Formatter
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from docs.generator.reasons import entries
from svc.errors import Reason, SvcError, printable
from tests.peers.waiting import TOP


class TooWarm(SvcError):
    """the room {room} has
    {degrees} degrees

    A second paragraph, which is not shown.
    """

    reason = "too_warm"
    hint = "open a window in {room}"
    room: str
    degrees: int


class NoSentence(SvcError):
    reason = "wordless"


class Particular(SvcError):
    """a particular {thing}"""

    def __init__(self, *, thing: str, more: int = 1) -> None:
        super().__init__(thing=thing)
        self.more = more


class Cold(SvcError):
    """the room is too cold"""

    reason = "too_cold"
    http_status = 409
    reasons: ClassVar[Mapping[str, Reason]] = {
        "window_open": Reason("the window of {room} is open", "close the window of {room}"),
        "stove_out": Reason("the stove is out", http_status=503),
    }


class SvcErrorTests(SynchronousTestCase):
    """The base class of all errors."""

    def test_the_docstring_is_the_sentence(self) -> None:
        """The first paragraph is filled with the evidence and put on one line."""
        self.assertEqual(str(TooWarm(room="7", degrees=31)), "the room 7 has 31 degrees")

    def test_evidence_is_on_the_instance(self) -> None:
        """Evidence keeps its value and type."""
        error = TooWarm(room="7", degrees=31)
        self.assertEqual((error.room, error.degrees, error.evidence), ("7", 31, {"room": "7", "degrees": 31}))

    def test_codes_are_on_the_class(self) -> None:
        """A class overrides codes of the base class and inherits the others."""
        self.assertEqual((TooWarm.reason, TooWarm.http_status, TooWarm.exit_status), ("too_warm", 500, 1))

    def test_the_hint_is_filled(self) -> None:
        """The hint uses the evidence too; without one it is empty."""
        for error in (TooWarm(room="7", degrees=31), copy.copy(TooWarm(room="7", degrees=31))):
            self.assertEqual(error.hint, "open a window in 7")
        self.assertEqual((NoSentence().hint, TooWarm.hint), ("", "open a window in {room}"))

    def test_without_a_docstring(self) -> None:
        """A class without a sentence shows its reason."""
        self.assertEqual(str(NoSentence()), "wordless")

    def test_missing_evidence_shows_the_bare_sentence(self) -> None:
        """Formatting an error without its evidence does not raise."""
        self.assertEqual(str(TooWarm(room="7")), "the room {room} has {degrees} degrees")

    def test_reasons_of_a_table(self) -> None:
        """A reason of the table gives sentence and hint, and may give its own HTTP status; the other codes stay."""
        error = Cold("window_open", room="7")
        self.assertEqual((error.reason, error.http_status, error.evidence), ("window_open", 409, {"room": "7"}))
        self.assertEqual((str(error), error.hint), ("the window of 7 is open", "close the window of 7"))
        self.assertEqual((Cold("stove_out").hint, Cold("stove_out").http_status), ("", 503))
        self.assertEqual((Cold().reason, str(Cold())), ("too_cold", "the room is too cold"))

    def test_unknown_reason(self) -> None:
        """A reason that is not in the table of the class is a programming error and refused."""
        self.assertRaises(KeyError, Cold, "too_warm")

    def test_evidence_is_not_a_template(self) -> None:
        """Braces in evidence stay as they are."""
        self.assertEqual(str(TooWarm(room="{degrees}", degrees=1)), "the room {degrees} has 1 degrees")

    def test_evidence_cannot_hide_a_code(self) -> None:
        """Evidence named like a code or method is a programming error and refused."""
        for name in ("reason", "hint", "http_status", "exit_status", "args", "evidence"):
            self.assertRaises(TypeError, TooWarm, **{name: "x"})

    def test_errors_can_be_copied(self) -> None:
        """Copies and pickles keep class, evidence, sentence and further attributes."""
        particular = Particular(thing="screw", more=2)
        for error in (TooWarm(room="7", degrees=31), particular, Cold("window_open", room="7")):
            for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
                self.assertIs(type(twin), type(error))
                self.assertEqual((str(twin), twin.evidence), (str(error), error.evidence))
                self.assertEqual((twin.reason, twin.hint), (error.reason, error.hint))
        self.assertEqual(copy.copy(particular).more, 2)


class TableTests(SynchronousTestCase):
    """Tables of reasons against their use in the code."""

    def test_reasons_in_code(self) -> None:
        """Each reason that is passed to an error class is in its table, and each row is used."""
        tables = {
            (each.kind.__name__, reason)
            for reason, found in entries().items()
            for each in found
            if reason in each.kind.__dict__.get("reasons", {})
        }
        names = {name for name, _ in tables}
        used = set()
        for path in (TOP / "svc").rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in names) else ():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    used |= {(node.func.id, each.value) for each in node.args if isinstance(each, ast.Constant)}
        self.assertGreater(len(tables), 15)
        self.assertEqual(used ^ tables, set())

    def test_evidence_of_every_error(self) -> None:
        """Wherever an error is raised, it has the evidence that its sentence and its hint name: no braces are shown."""
        kinds = {each.kind.__name__: each.kind for found in entries().values() for each in found}
        checked, lacking = 0, []
        for path in (TOP / "svc").rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in kinds) else ():
                name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
                if not isinstance(node, ast.Call) or name not in kinds:
                    continue
                kind, given = kinds[name], {each.arg for each in node.keywords}
                reasons = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if reasons and reasons[0] not in kind.reasons:
                    continue  # another class of that name
                if None in given or "__init__" in vars(kind) or len(reasons) != len(node.args):
                    continue  # evidence of another error, or a signature of its own
                row = kind.reasons[reasons[0]] if reasons else Reason(kind.__doc__ or "", kind.hint)  # type: ignore[index]
                named = {name.split(".")[0] for text in (row.sentence, row.hint) for name in placeholders(text)}
                checked += 1
                if named - given:
                    lacking.append(f"{path.name}:{node.lineno}: {name}{reasons} without {named - given}")
        self.assertEqual(lacking, [])
        self.assertGreater(checked, 300)


def placeholders(template: str) -> list[str]:
    """What a sentence or a hint names."""
    return [name for _text, name, _spec, _conversion in Formatter().parse(template.split("\n\n")[0]) if name]


class PrintableTests(SynchronousTestCase):
    """Untrusted values on a terminal."""

    def test_controls_are_written_out(self) -> None:
        """Characters that move the cursor, reorder or break a line are escaped."""
        for character, shown in (
            ("\x1b", "\\x1b"),
            ("\n", "\\x0a"),
            ("\x00", "\\x00"),
            ("\x7f", "\\x7f"),
            ("\x9b", "\\x9b"),
            ("\u202e", "\\u202e"),
            ("\u2066", "\\u2066"),
            ("\u2028", "\\u2028"),
            ("\u200f", "\\u200f"),
            ("\ufeff", "\\ufeff"),
            ("\ud800", "\\ud800"),
            ("\U000e0041", "\\U000e0041"),
        ):
            self.assertEqual(printable(f"a{character}b"), f"a{shown}b")

    def test_letters_stay(self) -> None:
        """Text of any script is unchanged."""
        self.assertEqual(printable("Grüße 世界 …"), "Grüße 世界 …")

    def test_length_is_bounded(self) -> None:
        """Text of the maximum length is unchanged, longer text is truncated with an ellipsis."""
        self.assertEqual(printable("x" * 5, 5), "x" * 5)
        self.assertEqual(printable("x" * 6, 5), "x" * 5 + "…")

    def test_any_object_is_shown(self) -> None:
        """Other objects are converted with str()."""
        self.assertEqual(printable(31), "31")

    @given(st.text(alphabet=st.characters(exclude_categories=())))
    def test_any_text(self, text: str) -> None:
        """No character of the categories control, format, surrogate, separator (but space) is left."""
        for character in printable(text):
            category = unicodedata.category(character)
            self.assertFalse(category in {"Cc", "Cf", "Cs", "Zl", "Zp"}, (character, category))
