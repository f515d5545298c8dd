"""Lines of ``kubectl describe``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import Compartment
from svc.compartments.highlight import highlighted

CURRENT = Compartment("DE", "S", "ALPHA")


class HighlightTests(SynchronousTestCase):
    """Which lines are highlighted."""

    def test_lines(self) -> None:
        """The label and the annotations, wherever they stand; another compartment in yellow."""
        for before, text, colour in (
            ("              ", "svc.internal/compartment=DE-S-ALPHA", "1"),
            ("Labels:       ", "svc.internal/compartment=US-TS-BRAVO", "1;33"),
            ("  Labels:  ", "svc.internal/compartment=de-s-alpha", "1"),
            ("Annotations:  ", "mls.svc.internal/level: de:s", "1"),
            ("  Annotations:  ", "mls.svc.internal/level: us:ts", "1;33"),
            ("    ", "mls.svc.internal/compartment: de:alpha", "1"),
        ):
            self.assertEqual(f"{before}\x1b[{colour}m{text}\x1b[0m\n", highlighted(f"{before}{text}\n", CURRENT))

    def test_others(self) -> None:
        """What only mentions them stays."""
        for line in (
            "svc.internal/compartment=X",
            "  Normal  x  svc.internal/compartment=X",
            "  a.svc.internal/compartment=X",
            "  svc.internal/compartment=X Y",
            "",
        ):
            self.assertEqual(line, highlighted(line, CURRENT))

    @given(st.text(), st.sampled_from(["", "  svc.internal/compartment=", "Labels:  svc.internal/compartment="]))
    def test_any_line(self, text: str, before: str) -> None:
        """Nothing is added but colour."""
        shown = highlighted(before + text, CURRENT)
        for colour in ("\x1b[1m", "\x1b[1;33m", "\x1b[0m"):
            if colour not in text:
                shown = shown.replace(colour, "")
        self.assertEqual(before + text, shown)
