"""``svc federation inspect bootstrap-package`` as transcripts, and what no transcript shows."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.envelope.claims import utc_seconds
from svc.envelope.envelope import MAX_ENVELOPE
from svc.federation.package import verify_package
from svc.strictjson import b64u_encode, loads_object
from tests.cli.doubles import Ran, run_svc
from tests.cli.test_transcripts import runs, transcript_of
from tests.federation.test_vectors import vectors
from tests.vectors.material import NOW

_TRANSCRIPT: Final = Path(__file__).parent / "transcripts" / "federation.txt"
_COMMAND: Final = ("federation", "inspect", "bootstrap-package")


class FederationCase(SynchronousTestCase):
    """A folder of bootstrap packages."""

    maxDiff = None

    def setUp(self) -> None:
        """Write each package of the vectors as a file."""
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)
        self.vectors = {each.name: each for each in vectors() if each.headers["kind"] == "package"}
        for name, vector in self.vectors.items():
            Path(self.folder, f"{Path(name).name}.json").write_bytes(vector.section("package"))

    def inspect(self, name: str, *words: str) -> Ran:
        """Run the command on the package of a vector."""
        return run_svc(*_COMMAND, "-f", f"{self.folder}/{Path(name).name}.json", *words, now=NOW)

    def document(self, name: str, *words: str) -> dict[str, Any]:
        """The document that the command prints."""
        found = strictyaml.loads(self.inspect(name, *words).stdout.decode())
        assert isinstance(found, dict)
        return found


class TranscriptTests(FederationCase):
    """The recorded runs."""

    def test_transcripts(self) -> None:
        """What is printed for good, ended and forged packages, for other files, and for wrong arguments."""
        recorded = runs(_TRANSCRIPT.read_text())
        self.assertGreater(len(recorded), 12)
        for environ, command, expected in recorded:
            now = environ.pop("NOW", utc_seconds(NOW))
            found = transcript_of(command.replace("DIR", self.folder), environ, now=now).replace(self.folder, "DIR")
            # It is another one whenever the vectors are made.
            found = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", found)
            self.assertEqual(found.strip(), expected.strip(), command)


class InspectTests(FederationCase):
    """The command."""

    def test_every_vector(self) -> None:
        """A package that is accepted gives status 0; of others one line says why, and those badly signed are shown."""
        for name, vector in self.vectors.items():
            ran = self.inspect(name)
            good = vector.expect == "ok"
            self.assertEqual((ran.status, ran.stderr == ""), (0, True) if good else (1, False), name)
            if not good:
                self.assertIn(f"({vector.expect})", ran.stderr.splitlines()[0], name)
            shown = good or vector.expect.startswith(("signature_invalid", "root_mismatch"))
            self.assertEqual(ran.stdout != b"", shown, name)
            if shown:
                document = strictyaml.loads(ran.stdout.decode())
                assert isinstance(document, dict)
                self.assertEqual((document["signaturesValid"], document["reference"] is not None), (good, good), name)

    def test_full(self) -> None:
        """With --full the payload and all signatures are there as they are in the file."""
        for name in ("package-good", "package-good-successor"):
            data = self.vectors[f"federation/{name}"].section("package")
            found, document = verify_package(data).package, self.document(name, "--full")
            self.assertEqual(document["payload"], loads_object(found.envelope.payload))
            for member, entries in (
                ("signatures", found.envelope.signatures),
                ("previousSignatures", found.previous_signatures),
            ):
                shown = [(each["alg"], each["kid"], each["signature"]) for each in document[member]]
                self.assertEqual(shown, [(e.alg, e.protected.kid, b64u_encode(e.signature)) for e in entries])

    def test_elided(self) -> None:
        """Without it no line is longer than a certificate's description, and everything else is the same."""
        full, elided = self.document("package-good", "--full"), self.document("package-good")
        text = self.inspect("package-good").stdout.decode()
        self.assertLess(max(map(len, text.splitlines())), 200)
        chains = full["payload"]["svc"]["chains"]
        for chain, other in zip(chains, elided["payload"]["svc"]["chains"], strict=True):
            self.assertEqual(chain["purpose"], other["purpose"])
            self.assertNotIn(chain["x5c"][0], text)
            self.assertTrue(base64.b64decode(chain["x5c"][0]))
            self.assertRegex(
                other["x5c"][0], r"^elided, CN=federation-\w+, valid until 2027-\S+Z, SHA-256 [0-9a-f]{64}$"
            )
        for name in ("fingerprint", "reference", "issuedAt", "expiresAt", "state", "unsignedHints"):
            self.assertEqual(full[name], elided[name])

    def test_file_that_does_not_end(self) -> None:
        """Of a file without an end no more is read than a package may have."""
        ran = run_svc(*_COMMAND, "--file=/dev/zero", now=NOW)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn(f"at most {MAX_ENVELOPE} are accepted (too_large)", ran.stderr)

    def test_untrusted_text(self) -> None:
        """Control characters in a member that is not known do not reach the terminal."""
        text = self.inspect("package-good-controls").stdout.decode()
        self.assertNotIn("\x1b", text)
        self.assertIn("\\x1b", text)
