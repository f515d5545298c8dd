"""The man pages; ``tests.test_docs`` finds stale ones, and ``tests.integration.test_wheel`` has ``groff`` read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from docs.generator.manpages import escaped, page, paths
from svc.cli.commands import COMMANDS
from svc.data import FOLDER


class ManPagesTests(SynchronousTestCase):
    """One page a command."""

    def test_a_page_for_each_command(self) -> None:
        """Each command that the help shows has its page, and no command that is gone has one."""
        described = {f"{'-'.join(path)}.1" for path in paths()}
        shown = {f"svc-{name}.1" for name, (_place, _text, shown) in COMMANDS.items() if shown}
        self.assertLessEqual({"svc.1", "svc-receipts-list.1", *shown}, described)
        self.assertEqual({path.name for path in (FOLDER / "man").rglob("*.1")}, described)

    def test_sections(self) -> None:
        """A page has the sections that people look for, in the usual order."""
        text = page(("svc", "verify"))
        titles = [line.removeprefix(".SH ") for line in text.splitlines() if line.startswith(".SH ")]
        self.assertEqual(
            titles, ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "GLOBAL OPTIONS", "EXAMPLES", "SEE ALSO"]
        )
        self.assertIn("\nsvc\\-verify \\- verify saved evidence offline\n", text)
        self.assertIn("\n.TP\n\\fB\\-\\-trust\\-bundle FILE\\fR\n", text)

    @given(st.text(st.characters(codec="ascii", exclude_categories=("Cc",))))  # type: ignore[arg-type]
    def test_no_text_is_a_request(self, text: str) -> None:
        """Whatever a help text begins with, roff prints it."""
        self.assertFalse(escaped(text).startswith((".", "'")))
        self.assertNotIn("\\\\", escaped(text))
