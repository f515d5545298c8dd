"""Patterns in which ``*`` stands for any characters."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wildcards import fits

_TEXTS = st.text(alphabet="ab\n", max_size=12)


class FitsTests(SynchronousTestCase):
    """Compared with regular expressions."""

    @given(st.lists(_TEXTS, min_size=1, max_size=5), _TEXTS)
    @example(["ab", "ba"], "aba")
    @example(["a", "a", "a"], "aa")
    @example(["", ""], "")
    def test_any_pattern(self, pieces: list[str], text: str) -> None:
        """A text fits where the pattern as a regular expression matches all of it."""
        expression = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
        self.assertEqual(expression.fullmatch(text) is not None, fits(pieces, text))

    @given(st.lists(_TEXTS, min_size=2, max_size=5), st.lists(_TEXTS, min_size=4, max_size=4))
    def test_anything_between(self, pieces: list[str], between: list[str]) -> None:
        """The pieces with anything between them fit."""
        text = pieces[0] + "".join(other + piece for other, piece in zip(between, pieces[1:], strict=False))
        self.assertTrue(fits(pieces, text))

    def test_many_pieces(self) -> None:
        """What would take a regular expression for ever is one pass."""
        self.assertFalse(fits([*"a" * 500, "b"], "a" * 60_000))
