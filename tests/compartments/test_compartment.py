"""Compartments, and what is derived of them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import MAX_COUNTRY, MAX_LABEL, SENSITIVITIES, Compartment

#: Kubernetes: "Labels and Selectors".
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


class CompartmentTests(SynchronousTestCase):
    """The value."""

    def test_derived(self) -> None:
        """The label is in upper case; name, annotations and groups in lower case, whatever was given."""
        for parts in (("DE", "TS", "Alpha.1"), ("de", "ts", "ALPHA.1")):
            found = Compartment.parse(*parts)
            self.assertEqual("DE-TS-ALPHA.1", found.label)
            self.assertEqual("de-ts-alpha.1", found.context_name)
            self.assertEqual(
                {"mls.svc.internal/level": "de:ts", "mls.svc.internal/compartment": "de:alpha.1"}, found.annotations
            )
            self.assertEqual(("svc:country:de", "svc:sensitivity:ts", "svc:compartment:alpha.1"), found.groups)

    def test_limits(self) -> None:
        """A country has up to 8 characters, a label up to 63."""
        self.assertEqual("A" * 8, Compartment.parse("a" * MAX_COUNTRY, "S", "X").country)
        self.assertRaises(ValueError, Compartment.parse, "A" * (MAX_COUNTRY + 1), "S", "X")
        longest = MAX_LABEL - len("DE-S-")
        self.assertEqual(MAX_LABEL, len(Compartment.parse("DE", "S", "X" * longest).label))
        error = self.assertRaises(ValueError, Compartment.parse, "DE", "S", "X" * (longest + 1))
        self.assertIn("at most 63 characters", str(error))

    def test_refused(self) -> None:
        """Each part by what it may be; digits and letters of other scripts are none."""
        for parts, expected in (
            (("", "S", "A"), "a code of up to 8"),
            (("D-E", "S", "A"), "a code of up to 8"),
            (("D\u00c9", "S", "A"), "a code of up to 8"),
            (("DE\n", "S", "A"), "a code of up to 8"),
            (("DE", "", "A"), "one of U, C, S, TS"),
            (("DE", "TC", "A"), "one of U, C, S, TS"),
            (("DE", "T\u017f", "A"), "one of U, C, S, TS"),
            (("DE", "S", ""), "letters, digits"),
            (("DE", "S", "-A"), "letters, digits"),
            (("DE", "S", "A."), "letters, digits"),
            (("DE", "S", "A\u0661"), "letters, digits"),
        ):
            error = self.assertRaises(ValueError, Compartment.parse, *parts)
            self.assertIn(expected, str(error))

    @given(st.text(max_size=10), st.sampled_from(SENSITIVITIES) | st.text(max_size=3), st.text("aZ0-_.", max_size=70))
    def test_any_text(self, country: str, sensitivity: str, name: str) -> None:
        """What is accepted makes a valid label, from which the parts are read back."""
        try:
            found = Compartment.parse(country, sensitivity, name)
        except ValueError:
            return
        self.assertLessEqual(len(found.label), MAX_LABEL)
        self.assertTrue(LABEL.fullmatch(found.label))
        self.assertEqual(found, Compartment.parse(*found.label.split("-", 2)))
        self.assertEqual(found, Compartment.parse(*found.context_name.split("-", 2)))
