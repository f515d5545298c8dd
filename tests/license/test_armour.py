"""The text of a license file: what is written is read, whatever mail programs did to it; anything else is named."""

from __future__ import annotations

import quopri
from collections.abc import Callable
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.license.armour import MAX_FILE, MAX_HEADERS, ArmouredText, armoured, read_armour
from svc.license.errors import LicenseRefused
from tests.refusals import assert_refused

HEADERS: Final = (("Licensee", "ACME GmbH"), ("Expires", "2027-12-31T23:59:59Z"))

#: What is undone, each as a function of the text.
DAMAGE: Final[dict[str, Callable[[bytes], bytes]]] = {
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "quoted": lambda data: b"".join(b"> " + line for line in data.splitlines(keepends=True)),
    "indented": lambda data: b"".join(b"\t  " + line for line in data.splitlines(keepends=True)),
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "behind": lambda data: data + b"\n-- \nThe vendor: with regards\n",
    "before": lambda data: b"Subject: your license\n\nDear customer:\n" + data,
    "blanks": lambda data: data.replace(b"\n", b" \n"),
    "doubled": lambda data: data.replace(b"\n", b"\n\n"),
}


class WritingTests(SynchronousTestCase):
    """What is written."""

    def test_layout(self) -> None:
        """Two lines, headers, a blank line, base64 in 64 columns."""
        lines = armoured(ArmouredText(HEADERS, bytes(100))).splitlines()
        self.assertEqual(
            lines,
            [
                "-----BEGIN SVC LICENSE-----",
                "Licensee: ACME GmbH",
                "Expires: 2027-12-31T23:59:59Z",
                "",
                "A" * 64,
                "A" * 64,
                "AAAAAA==",
                "-----END SVC LICENSE-----",
            ],
        )

    def test_header_of_several_lines(self) -> None:
        """A value with line ends or the last line in it stays one line."""
        value = "ACME\n-----END SVC LICENSE-----\r\x1b[2J"
        text = armoured(ArmouredText((("Licensee", value),), b"content"))
        self.assertEqual(len(text.splitlines()), 5)
        self.assertEqual(read_armour(text.encode()).content, b"content")


class ReadingTests(SynchronousTestCase):
    """What is read."""

    @given(st.binary(min_size=1, max_size=300), st.lists(st.sampled_from(sorted(DAMAGE)), max_size=4))
    def test_round_trip(self, content: bytes, damage: list[str]) -> None:
        """Any content is read back, whatever was done to the text, and in which order."""
        data = armoured(ArmouredText(HEADERS, content)).encode()
        for each in damage:
            data = DAMAGE[each](data)
        self.assertEqual(read_armour(data).content, content, damage)

    @given(st.binary(min_size=1, max_size=300))
    def test_quoted_printable(self, content: bytes) -> None:
        """A message that was saved without being decoded is read."""
        text = armoured(ArmouredText((("Licensee", "Müller & Söhne = GmbH"),), content))
        self.assertEqual(read_armour(quopri.encodestring(text.encode())).content, content)

    @given(st.text(max_size=80), st.binary(min_size=1, max_size=99))
    def test_any_header(self, value: str, content: bytes) -> None:
        """No value of a header changes the content."""
        text = armoured(ArmouredText((("Licensee", value),), content))
        self.assertEqual(read_armour(text.encode()).content, content)

    @given(st.binary(max_size=400))
    def test_any_octets(self, data: bytes) -> None:
        """Any octets are read or refused, also between the two lines."""
        for each in (data, b"-----BEGIN SVC LICENSE-----\n" + data + b"\n-----END SVC LICENSE-----\n"):
            try:
                read_armour(each)
            except LicenseRefused as error:
                self.assertTrue(str(error) and error.hint)

    def test_headers(self) -> None:
        """Headers are read in their order, without blanks around them, and only the first ones."""
        self.assertEqual(read_armour(armoured(ArmouredText(HEADERS, b"x")).encode()).headers, HEADERS)
        for count in (MAX_HEADERS, MAX_HEADERS + 1):
            text = armoured(ArmouredText(tuple((f"Name{n}", "x") for n in range(count)), b"x"))
            self.assertEqual(len(read_armour(text.encode()).headers), MAX_HEADERS)

    def test_defects_are_named(self) -> None:
        """What is damaged is in the sentence, made safe to print."""
        text = armoured(ArmouredText(HEADERS, bytes(99)))
        for damaged, words in (
            (text.replace("\n\n", "\n\n\x1b", 1), r"\x1b is no character of base64"),
            (text.replace("AAAA", "", 1).replace("AAAA", "AAA", 1), "a part of the base64 is missing"),
            (text.replace("\n", " "), "line ends were lost"),
        ):
            error = assert_refused(self, "license_damaged", read_armour, damaged.encode())
            self.assertIn(words, str(error))

    def test_size(self) -> None:
        """The largest file is read, one octet more is refused before anything else is looked at."""
        text = armoured(ArmouredText(HEADERS, b"x")).encode()
        self.assertEqual(read_armour(text.ljust(MAX_FILE)).content, b"x")
        assert_refused(self, "license_too_large", read_armour, text.ljust(MAX_FILE + 1))
