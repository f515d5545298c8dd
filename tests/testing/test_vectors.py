"""The file format of test vectors."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.testing.vectors import Vector, VectorRefused, load_vectors, vector_anchors

HEADERS = ("now", "spiffe")
KINDS = ("envelope", "peer")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def parse(data: bytes) -> Vector:
    """Read a file with two accepted lines and kinds."""
    return Vector.parse("group/name", data, headers=HEADERS, kinds=KINDS)


class VectorTests(SynchronousTestCase):
    """One file."""

    def test_read(self) -> None:
        """Comment, header lines and sections are found; sections keep their octets."""
        vector = parse(
            b"# What it shows.\n# More.\nexpect: ok\nnow: 2026-11-21T00:25:32Z\n\n"
            b"--- envelope\n{}\n\n--- peer one\na\nb\n--- peer.base64 two\n/w==\n"
        )
        self.assertEqual((vector.comment, vector.expect), ("What it shows.\nMore.", "ok"))
        self.assertEqual(vector.sections, {"envelope": b"{}\n", "peer one": b"a\nb", "peer two": b"\xff"})
        self.assertEqual(vector.labelled("peer"), {"one": b"a\nb", "two": b"\xff"})
        self.assertEqual(vector.moment().isoformat(), "2026-11-21T00:25:32+00:00")

    def test_refused(self) -> None:
        """An unknown line or section is refused, so that a misspelling cannot make a vector pass."""
        for data in (
            b"",
            b"now: x\n",
            b"expect:\n",
            b"expect: ok\nExpect: ok\n",
            b"expect: ok\nexpect: malformed\n",
            b"expect: ok\nprofil: hybrid\n",
            b"expect: ok\nno colon\n",
            b"expect: ok\n--- envelop\n{}\n",
            b"expect: ok\n--- envelope\n{}\n--- envelope\n{}\n",
            b"expect: ok\n--- envelope.base64\n{}\n",
            b"expect: ok\n\xff\n",
        ):
            self.assertRaises(VectorRefused, parse, data)

    def test_missing(self) -> None:
        """A section, a time or anchors that are not there are refused when they are asked for."""
        vector = parse(b"expect: ok\nspiffe: example.org=absent\n")
        self.assertRaises(VectorRefused, vector.section, "envelope")
        self.assertRaises(VectorRefused, vector.moment)
        self.assertRaises(VectorRefused, vector_anchors, vector, Path(self.mktemp()))

    def test_folder(self) -> None:
        """A folder without vectors, or with a file that is none, is refused."""
        folder = Path(self.mktemp())
        folder.mkdir()
        self.assertRaises(VectorRefused, load_vectors, folder, headers=HEADERS, kinds=KINDS)
        (folder / "one.txt").write_bytes(b"expect: ok\n")
        (found,) = load_vectors(folder, headers=HEADERS, kinds=KINDS)
        self.assertEqual(found.name, f"{folder.name}/one")
        (folder / "two.text").write_bytes(b"expect: ok\n")
        self.assertRaises(VectorRefused, load_vectors, folder, headers=HEADERS, kinds=KINDS)

    @given(st.binary() | TEXT.map(lambda text: text.encode()))
    def test_any_section(self, data: bytes) -> None:
        """Any content of a section is written and read back."""
        vector = Vector("group/name", {"expect": "ok"}, {"envelope": data, "peer x": data}, "Shown.")
        self.assertEqual(parse(vector.render()), vector)
