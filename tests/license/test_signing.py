"""``bin/license-sign``: keys and licenses by the vendor's tool, which the product accepts."""

from __future__ import annotations

import contextlib
import io
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from twisted.trial.unittest import SynchronousTestCase

from licensing.__main__ import main
from licensing.keyfile import MIN_PASSPHRASE, SigningKey
from svc.identity import TrustDomain
from svc.license.payload import MAX_TEXT, Enforcement
from svc.license.vendors import VendorKey, pinned_keys
from svc.license.verification import VerifiedLicense, verify_license
from tests.license.material import TEST_VENDOR_FILE

NOW = datetime(2026, 11, 21, 0, 25, 32, 5, tzinfo=UTC)
SMALL = "licensee: ACME GmbH\ncustomer: acme-17\nedition: enterprise\nexpires: 2027-12-31T23:59:59Z\n"


class ToolCase(SynchronousTestCase):
    """Runs the tool in a folder of its own."""

    def setUp(self) -> None:
        """Make the folder."""
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, text: str) -> str:
        """Write a file; returns its path."""
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def run_tool(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Run the tool; returns standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = main(words, lambda: NOW)
        self.assertEqual(found, status, err.getvalue())
        return out.getvalue(), err.getvalue()

    def refused(self, words: str, *arguments: str) -> None:
        """Run the tool, which fails with these words and prints nothing else."""
        out, err = self.run_tool(*arguments, status=1)
        self.assertEqual(out, "")
        self.assertIn(words, err)


class KeyTests(ToolCase):
    """``new-key``."""

    def test_new_key(self) -> None:
        """Both files are there, the private one for its owner alone, and belong together."""
        path = self.folder / "vendor.pem"
        _, err = self.run_tool("new-key", "--issuer", "The Vendor Ltd", "--output", str(path))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        public = VendorKey.parse((self.folder / "vendor.pem.pub").read_text())
        self.assertEqual(SigningKey.parse(path.read_text(), None, "x").public, public)
        self.assertEqual(public.issuer, "The Vendor Ltd")
        for kid in public.kids.values():
            self.assertIn(f"kid {kid}\n", err)
        self.assertIn("not encrypted: keep it offline", err)

    def test_nothing_is_replaced(self) -> None:
        """A file that is there, of either kind, is an error, and stays."""
        for name in ("a.pem", "b.pem.pub"):
            path = self.file(name, "precious")
            target = str(self.folder / name.removesuffix(".pub"))
            self.refused("exists already (file_exists)", "new-key", "--issuer", "x", "--output", target)
            self.assertEqual(Path(path).read_text(), "precious")
        self.assertFalse((self.folder / "b.pem").exists())

    def test_issuer(self) -> None:
        """The issuer is one line of printable characters, as long as a license may have it."""
        for issuer in ("", " ", " x", "a\nb", "a\x1bb", "x" * (MAX_TEXT + 1)):
            path = str(self.folder / "key.pem")
            self.refused("(issuer_unfit)", "new-key", "--issuer", issuer, "--output", path)
        self.run_tool("new-key", "--issuer", "x" * MAX_TEXT, "--output", str(self.folder / "key.pem"))

    def test_passphrase(self) -> None:
        """An encrypted key signs with its passphrase alone."""
        phrase = self.file("phrase", "p" * MIN_PASSPHRASE + "\nsecond line\n")
        wrong, short = self.file("wrong", "q" * MIN_PASSPHRASE), self.file("short", "p" * (MIN_PASSPHRASE - 1))
        path, description = str(self.folder / "key.pem"), self.file("acme.yaml", SMALL)
        new = ("new-key", "--issuer", "x", "--output", path, "--passphrase-file")
        self.refused("(passphrase_short)", *new, short)
        self.run_tool(*new, phrase)
        self.assertEqual(Path(path).read_text().count("BEGIN ENCRYPTED PRIVATE KEY"), 2)
        sign = ("sign", "--key", path, description)
        self.refused("no --passphrase-file was given (passphrase_unfit)", *sign)
        self.refused("another one (passphrase_unfit)", *sign, "--passphrase-file", wrong)
        out, _ = self.run_tool(*sign, "--passphrase-file", phrase)
        self.assertIn("-----BEGIN SVC LICENSE-----", out)
        plain = ("sign", "--key", str(TEST_VENDOR_FILE), description, "--passphrase-file", phrase)
        self.refused("is not encrypted (passphrase_unfit)", *plain)


class SignTests(ToolCase):
    """``sign``."""

    def signed(self, description: str) -> tuple[VerifiedLicense, str]:
        """Sign with the test vendor's key; returns what the product verifies, and what was said."""
        path = self.file("description.yaml", description)
        out, err = self.run_tool("sign", "--key", str(TEST_VENDOR_FILE), path)
        return verify_license(out.encode(), pinned_keys()), err

    def test_everything(self) -> None:
        """Each key of the file is in the license; the headers say whose it is and when it ends."""
        verified, err = self.signed(
            SMALL + "notBefore: 2026-01-01T00:00:00Z\nfeatures: [federation]\nlimits: {workloads: 500}\ngraceDays: 7\n"
            "warnDays: [1, 9]\nmaintenanceUntil: 2027-01-01T00:00:00Z\ntrustDomains: [prod.example.org]\n"
            "enforcement: hard\n"
        )
        found = verified.license
        self.assertEqual((found.issuer, found.customer, found.licensee), ("svc test vendor", "acme-17", "ACME GmbH"))
        self.assertEqual(found.issued, NOW.replace(microsecond=0))
        self.assertEqual(found.not_before, datetime(2026, 1, 1, tzinfo=UTC))
        self.assertEqual((found.features, found.limits), (("federation",), {"workloads": 500}))
        self.assertEqual((found.grace_days, found.warn_days), (7, (9, 1)))
        self.assertEqual(found.maintenance_until, datetime(2027, 1, 1, tzinfo=UTC))
        self.assertEqual(found.trust_domains, (TrustDomain.parse("prod.example.org"),))
        self.assertIs(found.enforcement, Enforcement.HARD)
        self.assertIn(f"license {found.id} for ACME GmbH: valid from 2026-01-01T00:00:00Z until 2027-12-31T23", err)
        self.assertIn("only svc run from a checkout accepts the license", err)

    def test_defaults(self) -> None:
        """What is left out has the values of the help text; each license has an identifier of its own."""
        verified, _ = self.signed(SMALL)
        found = verified.license
        self.assertEqual(found.not_before, NOW.replace(microsecond=0))
        self.assertEqual((found.grace_days, found.warn_days), (30, (60, 30, 14, 7, 1)))
        self.assertEqual((found.features, found.limits, found.trust_domains), ((), {}, ()))
        self.assertNotEqual(found.id, self.signed(SMALL)[0].license.id)

    def test_defects_of_the_description(self) -> None:
        """Every defect is named with its key; what no program would accept is refused too."""
        key = str(TEST_VENDOR_FILE)
        path = self.file("a.yaml", SMALL.replace("Z", "") + "seats: 3\ngraceDays: many\ntrustDomains: [Prod]\n")
        _, err = self.run_tool("sign", "--key", key, path, status=1)
        for name in ("expires", "seats", "graceDays", "trustDomains[0]"):
            self.assertIn(f"license-sign: {path}: {name}: ", err)
        for line in (
            "notBefore: 2027-12-31T23:59:59Z",
            "features: [a, a]",
            "limits: {workloads: -1}",
            "warnDays: [4000]",
        ):
            self.refused("(malformed)", "sign", "--key", key, self.file("b.yaml", f"{SMALL}{line}\n"))
        many = ", ".join(f"d{n}{'€' * 250}" for n in range(64))
        limits = ", ".join(f"{n}{'é' * 250}: 1" for n in range(32))
        large = f"{SMALL}features: [{many}]\nlimits: {{{limits}}}\n"
        self.refused("(too_large)", "sign", "--key", key, self.file("c.yaml", large))

    def test_files(self) -> None:
        """Files that cannot be read, are no keys, or are there already."""
        description = self.file("a.yaml", SMALL)
        self.refused("(file_unreadable)", "sign", "--key", str(self.folder / "none"), description)
        self.refused("(config_unreadable)", "sign", "--key", str(TEST_VENDOR_FILE), str(self.folder / "none"))
        text = TEST_VENDOR_FILE.read_text()
        for damaged in ("", text.replace("Issuer", "Vendor"), text + text, text.replace("MC4C", "MC4D")):
            self.refused("(key_file_malformed)", "sign", "--key", self.file("bad.pem", damaged), description)
        output = self.folder / "acme.license"
        words = ("sign", "--key", str(TEST_VENDOR_FILE), "--output", str(output), description)
        self.assertEqual(self.run_tool(*words)[0], "")
        before = output.read_text()
        verify_license(before.encode(), pinned_keys())
        self.refused("(file_exists)", *words)
        self.assertEqual(output.read_text(), before)

    def test_a_key_that_nobody_knows(self) -> None:
        """A license of a key that is not in the list is signed, and said to be of no use yet."""
        path = str(self.folder / "key.pem")
        self.run_tool("new-key", "--issuer", "x", "--output", path)
        out, err = self.run_tool("sign", "--key", path, self.file("a.yaml", SMALL))
        self.assertIn(f"bin/release --vendor-key {path}.pub", err)
        public = VendorKey.parse(Path(f"{path}.pub").read_text())
        self.assertEqual(verify_license(out.encode(), [public]).license.issuer, "x")
