"""How an error speaks: codes from the class, sentence from the docstring, evidence from the instance."""

from __future__ import annotations

import copy
import pickle
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError, printable


class TooWarm(SvcError):
    """the room {room} has
    {degrees} degrees

    More about it that nobody is shown.
    """

    reason = "too_warm"
    hint = "open a window in {room}"
    room: str
    degrees: int


class Wordless(SvcError):
    reason = "wordless"


class Particular(SvcError):
    """a particular {thing}"""

    def __init__(self, *, thing: str, more: int = 1) -> None:
        super().__init__(thing=thing)
        self.more = more


class SvcErrorTests(SynchronousTestCase):
    """The root of all errors."""

    def test_the_docstring_is_the_sentence(self) -> None:
        """The first paragraph is filled with the evidence and put on one line."""
        self.assertEqual(str(TooWarm(room="7", degrees=31)), "the room 7 has 31 degrees")

    def test_evidence_stands_on_the_instance(self) -> None:
        """Evidence keeps its value and type."""
        error = TooWarm(room="7", degrees=31)
        self.assertEqual((error.room, error.degrees, error.evidence), ("7", 31, {"room": "7", "degrees": 31}))

    def test_codes_stand_on_the_class(self) -> None:
        """A class overrides the codes of the root and inherits the others."""
        self.assertEqual((TooWarm.reason, TooWarm.http_status, TooWarm.exit_status), ("too_warm", 500, 1))

    def test_the_hint_is_filled(self) -> None:
        """The advice uses the evidence too; without a hint there is none."""
        self.assertEqual(TooWarm(room="7", degrees=31).advice(), "open a window in 7")
        self.assertEqual(Wordless().advice(), "")

    def test_without_a_docstring_the_reason_speaks(self) -> None:
        """A class without a sentence shows its reason."""
        self.assertEqual(str(Wordless()), "wordless")

    def test_missing_evidence_shows_the_bare_sentence(self) -> None:
        """Showing an error never raises another one."""
        self.assertEqual(str(TooWarm(room="7")), "the room {room} has {degrees} degrees")

    def test_evidence_is_not_a_template(self) -> None:
        """Braces in evidence stay as they are."""
        self.assertEqual(str(TooWarm(room="{degrees}", degrees=1)), "the room {degrees} has 1 degrees")

    def test_evidence_cannot_hide_a_code(self) -> None:
        """Evidence named like a code or method is our own mistake and refused at once."""
        for name in ("reason", "hint", "http_status", "exit_status", "args", "advice", "evidence"):
            self.assertRaises(TypeError, TooWarm, **{name: "x"})

    def test_errors_can_be_copied(self) -> None:
        """Copies and pickles keep class, evidence, sentence and further attributes."""
        particular = Particular(thing="screw", more=2)
        for error in (TooWarm(room="7", degrees=31), particular):
            for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
                self.assertIs(type(twin), type(error))
                self.assertEqual((str(twin), twin.evidence), (str(error), error.evidence))
        self.assertEqual(copy.copy(particular).more, 2)


class PrintableTests(SynchronousTestCase):
    """Values from outside on a terminal."""

    def test_controls_are_written_out(self) -> None:
        """What moves the cursor, reorders or breaks a line is written as an escape."""
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
        """Text of any script stays readable."""
        self.assertEqual(printable("Grüße 世界 …"), "Grüße 世界 …")

    def test_length_is_bounded(self) -> None:
        """The limit passes whole, one more is cut with an ellipsis."""
        self.assertEqual(printable("x" * 5, 5), "x" * 5)
        self.assertEqual(printable("x" * 6, 5), "x" * 5 + "…")

    def test_any_object_is_shown(self) -> None:
        """What is not text is shown as its text."""
        self.assertEqual(printable(31), "31")

    @given(st.text(alphabet=st.characters(exclude_categories=())))
    def test_nothing_that_acts_on_a_terminal_passes(self, text: str) -> None:
        """No character of the categories control, format, surrogate, separator (but space) is left."""
        for character in printable(text):
            category = unicodedata.category(character)
            self.assertFalse(category in {"Cc", "Cf", "Cs", "Zl", "Zp"}, (character, category))
