"""What is added to ``kubectl get``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.argv import read_words
from svc.compartments.compartment import MAX_LABEL, Compartment
from svc.compartments.filtering import Filter, column, names_objects, parse_filter, selector_flag
from tests.refusals import assert_refused

CURRENT = Compartment("DE", "S", "ALPHA")


def filtered(text: str) -> Filter:
    """The filter of a command line."""
    return parse_filter(read_words(["get", *text.split()]), CURRENT)


class ColumnTests(SynchronousTestCase):
    """The column with the compartment."""

    def test_tables(self) -> None:
        """Tables get a column, once."""
        for text in (
            "pods",
            "-owide",
            "-A -w",
            "-o json -o wide",
            "--no-headers --show-labels",
            "-o wide --template=x",
            "-L a",
        ):
            self.assertEqual(
                ["--label-columns=svc.internal/compartment"], column(read_words(["get", *text.split()])), text
            )
        self.assertEqual([], column(read_words(["get", "-L", "app,svc.internal/compartment"])))

    def test_custom_columns(self) -> None:
        """Columns of the user get one more, where they have it not yet."""
        added = r",COMPARTMENT:.metadata.labels.svc\.internal/compartment"
        for text, wanted in (
            ("-o custom-columns=N:.metadata.name", f"--output=custom-columns=N:.metadata.name{added}"),
            ("-A -o custom-columns --template N:.x", f"--template=N:.x{added}"),
        ):
            self.assertEqual([wanted], column(read_words(["get", *text.split()])), text)
        for text in (
            f"-o custom-columns=N:.x{added}",
            "-o custom-columns=",
            "-o custom-columns",
            "-o custom-columns-file=x",
        ):
            self.assertEqual([], column(read_words(["get", *text.split()])), text)

    def test_other_formats(self) -> None:
        """What has no columns stays as it is."""
        for text in (
            "-o json",
            "-o yaml",
            "-oname",
            "-o jsonpath={.x}",
            "--template={{.x}}",
            "-o go-template=x",
            "--raw /api",
        ):
            self.assertEqual([], column(read_words(["get", *text.split()])), text)


class FilterTests(SynchronousTestCase):
    """The filters."""

    def test_selectors(self) -> None:
        """Values of the label that are shown, joined with the selector of the user."""
        key = "svc.internal/compartment"
        for text, wanted in (
            ("--current-compartment", f"{key}=DE-S-ALPHA"),
            ("--filter-compartment", f"{key}=DE-S-ALPHA"),
            ("--filter-compartment --compartment bravo", f"{key}=DE-S-BRAVO"),
            ("--compartment us-ts-x.y --compartment=Bravo", f"{key} in (US-TS-X.Y,DE-S-BRAVO)"),
            ("--current-compartment --compartment BRAVO", f"{key} in (DE-S-ALPHA,DE-S-BRAVO)"),
            ("--current-compartment --compartment ALPHA", f"{key}=DE-S-ALPHA"),
            ("--exclude-current-compartment", f"{key}!=DE-S-ALPHA"),
            ("--exclude-current-compartment --filter-compartment", f"{key}!=DE-S-ALPHA"),
            ("--exclude-current-compartment --compartment B", f"{key}=DE-S-B,{key}!=DE-S-ALPHA"),
        ):
            found = filtered(text)
            self.assertTrue(found)
            self.assertEqual(wanted, found.selector, text)
        line = read_words(["get", "pods", "-l", "a=b", "--selector", "c"])
        self.assertEqual(f"--selector=c,{key}=X", selector_flag(line, Filter(("X",))))
        self.assertFalse(filtered("--current-compartment=false pods"))

    def test_accepts(self) -> None:
        """The same decision for a label that is at hand."""
        self.assertEqual([True, False, False], [Filter(("A",)).accepts(each) for each in ("A", "B", "")])
        self.assertEqual([False, True, True], [Filter(excluded="A").accepts(each) for each in ("A", "B", "")])
        self.assertEqual([False, True, False], [Filter(("A", "B"), "A").accepts(each) for each in ("A", "B", "")])

    def test_refused(self) -> None:
        """Contradictions, and values that are no compartment."""
        for text, reason in (
            ("--current-compartment --exclude-current-compartment", "filter_contradiction"),
            ("--compartment=a=b", "flag_value_invalid"),
            ("--compartment", "flag_value_invalid"),
            (f"--compartment={'X' * (MAX_LABEL - len('DE-S-') + 1)}", "flag_value_invalid"),
            ("--current-compartment=maybe", "flag_value_invalid"),
        ):
            error = assert_refused(self, reason, filtered, text)
            self.assertTrue(error.hint)
        self.assertTrue(filtered(f"--compartment={'X' * (MAX_LABEL - len('DE-S-'))}"))

    def test_names(self) -> None:
        """Which words name objects."""
        for text, wanted in (
            ("pods", False),
            ("pods,svc", False),
            ("pods x", True),
            ("pods/x", True),
            ("pods -- x", True),
        ):
            self.assertEqual(wanted, names_objects(read_words(["get", *text.split()])), text)
