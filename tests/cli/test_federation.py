"""``svc federation`` as transcripts, and what no transcript shows."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.cli.errors import PackageNotWritten
from svc.cli.federation.packagefile import write_package
from svc.envelope.claims import utc_seconds
from svc.envelope.envelope import MAX_ENVELOPE
from svc.federation.package import verify_package
from svc.strictjson import b64u_encode, dumps, loads_object
from tests.cli.doubles import Ran, run_svc
from tests.cli.test_transcripts import runs, transcript_of
from tests.federation.material import DAY, PARTNER, signed
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


class ExportedFileTests(FederationCase):
    """The file that export writes."""

    def test_replaced(self) -> None:
        """Only an earlier package of the same trust domain is replaced; everything else is left as it was."""
        package = signed().package
        path = Path(self.folder, "own.json")
        for before in (None, signed(issued=NOW - DAY).package.serialize()):
            if before is not None:
                path.write_bytes(before)
            write_package(str(path), package)
            self.assertEqual(package.serialize(), path.read_bytes())
        for name, data in (
            ("text.txt", b"notes"),
            ("empty", b""),
            ("other.json", signed(trust_domain=PARTNER).package.serialize()),
            ("large", b" " * (MAX_ENVELOPE + 1)),
        ):
            other = Path(self.folder, name)
            other.write_bytes(data)
            error = self.assertRaises(PackageNotWritten, write_package, str(other), package)
            self.assertEqual(("package_not_replaced", data), (error.reason, other.read_bytes()))
        for path_, reason in (
            (self.folder, "package_not_replaced"),
            ("/dev/null", "package_not_replaced"),
            (f"{self.folder}/absent/own.json", "package_not_written"),
            (f"{self.folder}/empty/own.json", "package_not_written"),
        ):
            self.assertEqual(reason, self.assertRaises(PackageNotWritten, write_package, path_, package).reason)

    def test_interrupted(self) -> None:
        """An export that fails halfway leaves the file before, and no other."""
        path = Path(self.folder, "own.json")
        before = signed(issued=NOW - DAY).package.serialize()
        path.write_bytes(before)
        names = sorted(os.listdir(self.folder))

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        self.patch(os, "fsync", full)
        error = self.assertRaises(PackageNotWritten, write_package, str(path), signed().package)
        self.assertIn("no space left", str(error))
        self.assertEqual((before, names), (path.read_bytes(), sorted(os.listdir(self.folder))))


class AuthorityAnswerTests(FederationCase):
    """What the commands make of what a socket answers."""

    def setUp(self) -> None:
        """Listen on a socket with a short name."""
        super().setUp()
        folder = tempfile.mkdtemp(prefix="svc-fed-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.path = f"{folder}/f.sock"
        self.server = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.server.close)
        self.server.bind(self.path)
        self.server.listen()

    def answered(self, pieces: list[bytes], *words: str) -> tuple[Ran, bytes]:
        """Run a command while the socket gives an answer in pieces; returns the head of the request, too."""
        asked: list[bytes] = []

        def answer() -> None:
            connection, _address = self.server.accept()
            with connection:
                request = connection.recv(65536)
                head, _, body = request.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head.lower())
                left = int(length[1]) - len(body) if length else 0
                while left > 0:
                    left -= len(connection.recv(65536))
                asked.append(request)
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=answer)
        thread.start()
        ran = run_svc("federation", *words, "--authority", f"unix://{self.path}", now=NOW)
        thread.join()
        return ran, asked[0]

    def test_pieces(self) -> None:
        """An answer octet by octet is the same as one at once."""
        body = dumps({"reference": "svcfed1:x"})
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for pieces in ([whole], [whole[i : i + 1] for i in range(len(whole))]):
            ran, asked = self.answered(pieces, "info")
            self.assertEqual((0, b"svcfed1:x\n", ""), (ran.status, ran.stdout, ran.stderr))
            self.assertTrue(asked.startswith(b"GET /v1/federation HTTP/1.1\r\n"))

    def test_request(self) -> None:
        """An import sends the package, what is expected, and the flags that were given."""
        words = ("import", "bootstrap-package", "-f", f"{self.folder}/package-good.json")
        digits = "12340 56327 06666 73297 60060 39092 34705 28319 83054 84163 35946 55634"
        body = dumps({"result": "pinned"})
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for flags, query in (
            ((), "expect="),
            (("--rebootstrap", "--expect-fingerprint", digits), f"expect={digits.replace(' ', '+')}&rebootstrap=1"),
            (("--force-rebootstrap",), "expect=&force=1"),
        ):
            ran, asked = self.answered([whole], *words, *flags)
            self.assertEqual(0, ran.status, ran.stderr)
            self.assertTrue(asked.startswith(f"POST /v1/import?{query} HTTP/1.1\r\n".encode()), asked[:200])
            self.assertEqual("--expect-fingerprint" not in flags, "no fingerprint was expected" in ran.stderr)
            self.assertIn(b'm2mEndpoint: "m2m.prod.example.org:31443"', ran.stdout)

    def test_refusals(self) -> None:
        """What the authority refuses is printed with its reason and hint; other answers are named as what they are."""
        refusal = dumps({"reason": "already_federated", "message": "there is\u001b one", "hint": "replace it"})
        for pieces, expected in (
            ([b"HTTP/1.1 403 No\r\n\r\n", refusal], ("there is\\x1b one (already_federated)", "replace it")),
            ([b"HTTP/1.1 404 No\r\n\r\n", b'{"code":"not_found"}'], ("status 404 (authority_foreign)",)),
            ([b"HTTP/1.1 200 OK\r\n\r\n<html>"], ("status 200 (authority_foreign)",)),
            ([b"SSH-2.0-OpenSSH\r\n"], ("(authority_unreachable)",)),
            ([], ("(authority_unreachable)",)),
            ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"], ("(authority_unreachable)",)),
        ):
            ran, _asked = self.answered(pieces, "info")
            self.assertEqual((1, b""), (ran.status, ran.stdout))
            for text in expected:
                self.assertIn(text, ran.stderr)

    def test_forged_package(self) -> None:
        """A package that the socket gives and that is not valid is not written."""
        package = loads_object(signed().package.serialize())
        for broken in (None, {}, {**package, "payload": "e30"}):
            body = dumps({"package": broken, "rootsUntil": "2026-11-21T00:00:00Z"})
            whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            ran, _asked = self.answered([whole], "export", "bootstrap-package", "-f", f"{self.folder}/own.json")
            self.assertEqual((1, b""), (ran.status, ran.stdout))
            self.assertFalse(Path(self.folder, "own.json").exists())
