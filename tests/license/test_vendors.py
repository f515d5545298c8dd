"""The keys of vendors: their text, those that the program has, and the test vendor."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.pages import TOP
from svc.envelope.keys import jwk_thumbprint
from svc.license.payload import MAX_TEXT
from svc.license.vendors import TEST_VENDOR_KIDS, VendorKey, issuer_of, pem_parts, pinned_keys
from svc.pinned import RELEASE_KEYS, VENDOR_KEYS
from tests.license.material import TEST_VENDOR, TEST_VENDOR_FILE, signers, vendor_key
from tests.refusals import assert_refused


class TextTests(SynchronousTestCase):
    """The text of a key."""

    def test_round_trip(self) -> None:
        """What is written is read back, also with other text around it."""
        key = vendor_key()
        self.assertEqual(VendorKey.parse(key.render()), key)
        self.assertEqual(VendorKey.parse(f"a comment\n{key.render()}more\n"), key)
        self.assertEqual(key.kids["Ed25519"], jwk_thumbprint(key.classical))
        self.assertEqual(key.kids, {signer.alg: signer.thumbprint for signer in signers()})

    def test_defects(self) -> None:
        """A key that is missing, of another kind or in another place is refused, and so is a missing issuer."""
        text = vendor_key().render()
        first, second = pem_parts(text)
        for damaged in (
            "",
            text.replace("Issuer: ", "Vendor: "),
            f"Issuer: x\n{text}",
            f"Issuer: x\n{first}",
            f"Issuer: x\n{second}{first}",
            f"Issuer: x\n{first}{first}",
            f"Issuer: x\n{first}{second}{second}",
            text.replace("MC", "XX"),
            text.replace(TEST_VENDOR, "x" * (MAX_TEXT + 1)),
        ):
            assert_refused(self, "vendor_key_malformed", VendorKey.parse, damaged)
        self.assertEqual(issuer_of(text.replace(TEST_VENDOR, "x" * MAX_TEXT)), "x" * MAX_TEXT)


class PinnedTests(SynchronousTestCase):
    """The keys of the program."""

    def test_the_source_has_no_key(self) -> None:
        """Keys come into a distribution when it is built, never by the source."""
        self.assertEqual(((), ()), (VENDOR_KEYS, RELEASE_KEYS))

    def test_the_test_vendor(self) -> None:
        """A checkout has the test vendor's key, marked as such, and both halves of it are those of the file."""
        [key] = [each for each in pinned_keys() if each.test]
        self.assertEqual(key.kids, vendor_key().kids)
        self.assertEqual(set(key.kids.values()), TEST_VENDOR_KIDS)
        self.assertEqual(issuer_of(TEST_VENDOR_FILE.read_text()), key.issuer)

    def test_no_other_private_key(self) -> None:
        """No file of the package has a private key."""
        for path in (TOP / "svc" / "license").rglob("*.py"):
            self.assertIsNone(re.search("BEGIN [A-Z ]*PRIVATE KEY", path.read_text()), path)
