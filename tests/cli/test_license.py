"""``svc license info`` and ``install`` with the files of the vectors, as transcripts, and what no transcript shows."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.cli.documents import document_text
from svc.envelope.claims import utc_seconds
from svc.license.armour import MAX_FILE
from svc.license.verification import verify_license
from svc.testing.vectors import load_vectors
from tests.cli.doubles import Ran, run_svc
from tests.cli.test_transcripts import runs, transcript_of
from tests.license.material import KEYS, LICENSE, NOW, envelope, text_of
from tests.license.test_vectors import FOLDER, HEADERS, file_of
from tests.vectors.material import make_key

_TRANSCRIPT: Final = Path(__file__).parent / "transcripts" / "license.txt"

#: Vectors for other lists of keys than that of the program.
_OTHER_KEYS: Final = (
    *("good-second-key", "keys-mixed", "key-test-vendor-released"),
    *("key-stranger", "kid-of-other-algorithm"),
)
#: The strict reader refuses NUL, which a refused license may have.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
DOCUMENTS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


class LicenseCase(SynchronousTestCase):
    """A folder of license files."""

    maxDiff = None

    def setUp(self) -> None:
        """Make the folder."""
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)

    def write(self, name: str, data: bytes | str) -> str:
        """Write a file; returns its path."""
        path = Path(self.folder, name)
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        return str(path)

    def write_vectors(self) -> list[str]:
        """Write each vector as a license file; returns their names."""
        vectors = load_vectors(FOLDER, headers=HEADERS, kinds={"file"})
        for vector in vectors:
            self.write(f"{Path(vector.name).name}.license", file_of(vector))
        return [Path(vector.name).name for vector in vectors]

    def info(self, content: bytes | str, *words: str) -> Ran:
        """Run ``svc license info`` on a file with this content."""
        return run_svc("license", "info", *words, self.write("x.license", content), now=NOW)


class TranscriptTests(LicenseCase):
    """The recorded runs."""

    def test_transcripts(self) -> None:
        """What is printed for good, ended, damaged and forged licenses, and for wrong arguments."""
        self.write_vectors()
        recorded = runs(_TRANSCRIPT.read_text())
        self.assertGreater(len(recorded), 12)
        for environ, command, expected in recorded:
            now = environ.pop("NOW", utc_seconds(NOW))
            found = transcript_of(command.replace("DIR", self.folder), environ, now=now).replace(self.folder, "DIR")
            # It is another one whenever the vectors are made.
            found = re.sub(r'"?\b[0-9a-f]{64}\b"?', "DIGEST", found)
            found = re.sub(r"svc-license-[0-9a-f]{10}\b", "svc-license-DIGITS", found)
            found = re.sub(r'"LS0t[\w+/=]+"', "TEXT", found)
            self.assertEqual(found.strip(), expected.strip(), command)


class InfoTests(LicenseCase):
    """The command."""

    def test_every_vector(self) -> None:
        """The exit status says whether the license is signed; the documents of a refused one are marked."""
        expected = {vector.name: vector.expect for vector in load_vectors(FOLDER, headers=HEADERS, kinds={"file"})}
        for name in self.write_vectors():
            ran = run_svc("license", "info", "-o", "json", f"{self.folder}/{name}.license", now=NOW)
            document = json.loads(ran.stdout)
            state, _blank, reason = expected[f"license/{name}"].partition(" ")
            if name in _OTHER_KEYS:
                continue
            self.assertEqual(ran.status, 1 if state == "Invalid" else 0, name)
            self.assertEqual(document["verified"], state != "Invalid", name)
            if state == "Invalid":
                self.assertEqual((document["state"], document["reason"]), (state, reason), name)
                self.assertIn(f"({reason})", ran.stderr)

    def test_json_and_yaml(self) -> None:
        """Both documents are the same; the members are those of the page on licenses."""
        text = text_of(envelope())
        document = json.loads(self.info(text, "-o", "json").stdout)
        self.assertEqual(document["license"]["daysRemaining"], 405)
        self.assertEqual(document["license"]["id"], LICENSE.id)
        self.assertEqual([each["valid"] for each in document["signatures"]], [True, True])
        self.assertEqual(strictyaml.loads(self.info(text, "-o", "yaml").stdout.decode()), document)
        crlf = json.loads(self.info(text.replace("\n", "\r\n"), "-o", "json").stdout)
        self.assertEqual(crlf["digest"], document["digest"])

    def test_days_are_never_negative(self) -> None:
        """A license that has ended has no days left."""
        path = self.write("x.license", text_of(envelope()))
        ran = run_svc("license", "info", "-o", "json", path, now=LICENSE.grace_until)
        document = json.loads(ran.stdout)
        self.assertEqual((ran.status, document["state"], document["nextChange"]), (0, "Expired", None))
        self.assertEqual(document["license"]["daysRemaining"], 0)

    def test_nothing_is_shown_unescaped(self) -> None:
        """Texts of a license, of its headers and of its claims cannot move the cursor or forge a line."""
        evil = "\x1b[2J\n  State: Valid\r\u202e\u2028"
        payload = json.loads(LICENSE.to_payload())
        payload["iss"] = payload["sub"] = evil
        payload["svc"].update(licensee=evil, edition=evil, features=[evil], limits={evil: 1})
        header = text_of(b"no JSON").replace("ACME GmbH", "\x1b[2J\u202e")
        claims = text_of(envelope(json.dumps({**payload, "v": 2}).encode()))
        for text in (text_of(envelope(json.dumps(payload).encode())), header, claims):
            for output in ("text", "json", "yaml"):
                shown = self.info(text, "-o", output).stdout.decode()
                self.assertFalse(set(shown) & set("\x1b\r\u202e\u2028"), output)
                if output == "text":
                    self.assertTrue(shown.startswith("UNVERIFIED License "))
                    self.assertNotIn("\n  State: Valid", shown)

    def test_size(self) -> None:
        """No more of a file is read than a license may have."""
        text = text_of(envelope())
        self.assertEqual(self.info(text.ljust(MAX_FILE)).status, 0)
        ran = self.info(text.ljust(MAX_FILE + 1))
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("(license_too_large)", ran.stderr)

    def test_no_key_of_a_stranger(self) -> None:
        """The key in the file of a stranger is never taken from the file itself."""
        stranger = make_key("Ed25519", "license stranger").public_key().public_bytes_raw()
        self.assertEqual(len(stranger), 32)
        ran = self.info(text_of(envelope(name="license stranger")))
        self.assertEqual(ran.status, 1)
        self.assertTrue(ran.stdout.startswith(b"UNVERIFIED "))


class InstallTests(LicenseCase):
    """``svc license install`` as far as it needs no cluster."""

    def test_dry_run(self) -> None:
        """The Secret is the same whatever e-mail did to the file, and has a license file; no cluster is asked."""
        text = text_of(envelope())
        shown = []
        for content in (text, text.replace("\n", "\r\n"), f"> {text}".replace("\n", "\n> ")):
            ran = run_svc("license", "install", "-n", self.write("x.license", content), now=NOW)
            self.assertEqual(ran.status, 0, ran.stderr)
            shown.append(ran.stdout.decode())
        self.assertEqual({shown[0]}, set(shown))
        secret: Any = strictyaml.loads(shown[0])
        data = base64.b64decode(secret["data"]["license.svc"])
        digest = verify_license(data, KEYS).digest
        self.assertEqual(secret["metadata"]["name"], f"svc-license-{digest[:10]}")
        self.assertEqual(digest, json.loads(self.info(text, "-o", "json").stdout)["digest"])

    def test_namespaces(self) -> None:
        """Names that no namespace can have are refused, the longest one is accepted."""
        path = self.write("x.license", text_of(envelope()))
        for namespace, status in (("a" * 63, 0), ("a" * 64, 1), ("", 1), ("-a", 1), ("a-", 1), ("A", 1), ("a\n", 1)):
            ran = run_svc("license", "install", "-n", "--namespace", namespace, path, now=NOW)
            self.assertEqual((ran.status, not ran.stdout), (status, status == 1), namespace)

    def test_refused(self) -> None:
        """Of a license that is not signed by the vendor nothing is printed, and no cluster is asked."""
        path = self.write("x.license", text_of(envelope(name="license stranger")))
        for words in ((), ("-n",)):
            ran = run_svc("license", "install", *words, path, now=NOW)
            self.assertEqual((ran.status, ran.stdout), (1, b""))
            self.assertIn("(license_keys_none)", ran.stderr)


class DocumentTests(SynchronousTestCase):
    """Documents as text."""

    @given(DOCUMENTS)
    def test_round_trip(self, document: dict[str, Any]) -> None:
        """Any document is read back equal from both forms, by strict readers."""
        self.assertEqual(json.loads(document_text(document, "json")), document)
        self.assertEqual(strictyaml.loads(document_text(document, "yaml")), document)

    def test_layout(self) -> None:
        """Blocks are as kubectl prints them; texts that some reader takes for something else are quoted."""
        document = {
            "a": {"b": [1, {"c": "x", "d": ["z"]}], "e": {}, "f": []},
            "no": ["no", "12", "true", "", "x ", "a: b", "2027-12-31T23:59:59Z", "\x1b\\", None, True],
        }
        self.assertEqual(
            document_text(document, "yaml").splitlines(),
            [
                "a:",
                "  b:",
                "  - 1",
                "  - c: x",
                "    d:",
                "    - z",
                "  e: {}",
                "  f: []",
                '"no":',
                '- "no"',
                '- "12"',
                '- "true"',
                '- ""',
                '- "x "',
                '- "a: b"',
                '- "2027-12-31T23:59:59Z"',
                '- "\\x1b\\\\"',
                "- null",
                "- true",
            ],
        )
