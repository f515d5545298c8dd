"""The spellings of a fingerprint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.federation.errors import ReferenceRefused
from svc.federation.fingerprint import ExpectedFingerprint, Fingerprint

OCTETS = st.binary(min_size=32, max_size=32)


class SpellingTests(SynchronousTestCase):
    """How a fingerprint is written."""

    def test_known(self) -> None:
        """Each spelling of known octets."""
        found = Fingerprint(bytes(range(32)))
        self.assertEqual(found.base32, "aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypq")
        self.assertEqual(found.grouped, "aaaq-eaye-auda-ocaj-bifq-ydio-b4ib-ceqt-cqkr-mfyy-denb-wha5-dypq")
        self.assertEqual(str(found), found.grouped)
        self.assertEqual(found.ssh, "SHA256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
        number = int("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 16)
        self.assertEqual(found.digits.replace(" ", ""), str(number)[-60:])
        self.assertEqual([len(each) for each in found.digits.split(" ")], [5] * 12)

    def test_small_numbers(self) -> None:
        """A number of few digits has zeros before it."""
        self.assertEqual(Fingerprint(bytes(31) + b"\x07").digits, " ".join(["00000"] * 11 + ["00007"]))

    def test_length(self) -> None:
        """Other numbers of octets are no fingerprint."""
        for size in (0, 31, 33):
            self.assertRaises(ValueError, Fingerprint, bytes(size))


class ExpectedFingerprintTests(SynchronousTestCase):
    """What a person gives."""

    @given(OCTETS, OCTETS)
    def test_every_spelling(self, octets: bytes, others: bytes) -> None:
        """Each spelling is read, in the ways in which people copy it, and matches these octets alone."""
        found, other = Fingerprint(octets), Fingerprint(others)
        texts = (
            found.base32,
            found.base32.upper(),
            found.grouped,
            found.grouped.replace("-", "\u00a0"),
            found.ssh,
            f"{found.ssh}=",
            found.ssh.replace("SHA", "sha"),
            found.digits,
            found.digits.replace(" ", "-"),
            found.digits.replace(" ", ""),
            f"\t{found.digits}\n",
        )
        for text in texts:
            expected = ExpectedFingerprint.parse(text)
            self.assertTrue(expected.matches(found), text)
            self.assertEqual(expected.matches(other), octets == others, text)
            self.assertEqual(expected.spelled(found), str(expected))

    @given(st.text(max_size=80) | st.text("abc234567 -", max_size=80) | st.text("0123456789 ", max_size=80))
    def test_any_text(self, text: str) -> None:
        """Any text is read, or refused with the one reason."""
        try:
            expected = ExpectedFingerprint.parse(text)
        except ReferenceRefused as error:
            self.assertEqual(error.reason, "bad_fingerprint")
        else:
            self.assertEqual(ExpectedFingerprint.parse(str(expected)), expected)
