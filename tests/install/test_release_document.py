"""``svc-release.json``: its members and bounds, its signature, and the keys that are accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from unittest.mock import ANY

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope, sign_envelope
from svc.errors import SvcError
from svc.install.release.document import (
    MAX_BLOB,
    MAX_DOCUMENT,
    MAX_FILES,
    MAX_IMAGES,
    MAX_MANIFEST,
    MAX_PLATFORMS,
    Release,
)
from svc.install.release.keys import release_keys
from svc.install.release.manifests import read_artifact, release_artifact
from svc.install.release.signature import SIGNATURE, sign_release, verify_release
from svc.strictjson import dumps
from tests.install.material import keys, signing_key
from tests.license.material import SECOND, vendor_key
from tests.refusals import assert_refused

CONTENT: Final = {"digest": f"sha256:{'0' * 64}", "size": 1}
DOCUMENT: Final[dict[str, Any]] = {
    "schemaVersion": 1,
    "version": "1.4.2",
    "channel": "stable",
    "createdAt": "2026-11-28T12:00:00Z",
    "minKubernetes": "1.33",
    "upgradeFrom": "1.3.0",
    "platforms": ["linux/amd64", "linux/arm64"],
    "images": [
        {
            "name": "svc",
            "repository": "svc/svc",
            "tag": "1.4.2",
            "index": CONTENT,
            "platforms": {"linux/amd64": CONTENT, "linux/arm64": CONTENT},
        }
    ],
    "chart": {"name": "svc-core", "repository": "svc/charts/svc-core", "version": "1.4.2", "manifest": CONTENT},
    "files": {"sbom/svc-linux-amd64.spdx.json": CONTENT, "tools/helm-linux-amd64": CONTENT},
    "signingKeys": dict(signing_key().public.kids),
}


def with_member(path: tuple[Any, ...], value: object) -> bytes:
    """The document with another value, or without it where the value is ... ."""
    document: Any = json.loads(dumps(DOCUMENT))
    holder = document
    for each in path[:-1]:
        holder = holder[each]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return dumps(document)


class DocumentTests(SynchronousTestCase):
    """The document."""

    def test_round_trip(self) -> None:
        """What is written is read back."""
        release = Release.parse(dumps(DOCUMENT))
        self.assertEqual(DOCUMENT, json.loads(release.to_octets()))
        self.assertEqual(release, Release.parse(release.to_octets()))

    def test_members(self) -> None:
        """Each member that is missing, of another type or another text, and one more in each object, is named."""
        self.assertGreater(len(list(paths(DOCUMENT))), 30)
        for path in paths(DOCUMENT):
            # A release may have fewer files.
            for value in (..., None, [], "\n", -1, {"x": 1}):
                if path[0] == "files" and len(path) == 2 and value is ...:
                    continue
                error = assert_refused(self, ANY, Release.parse, with_member(path, value))
                self.assertIn(error.reason, ("release_malformed", "release_version_unknown"), (path, value))
            holder: Any = DOCUMENT
            for each in path[:-1]:
                holder = holder[each]
            if isinstance(holder, dict):
                error = assert_refused(self, ANY, Release.parse, with_member((*path[:-1], "more"), CONTENT))
                self.assertIn("more", str(error))

    def test_other_version(self) -> None:
        """A format that is not known says so, whatever else it has."""
        error = assert_refused(
            self, "release_version_unknown", Release.parse, dumps({**DOCUMENT, "schemaVersion": 2, "more": 1})
        )
        self.assertIn("svc of the same release", error.hint)

    def test_bounds(self) -> None:
        """Sizes and counts at their bounds are accepted, and one more is refused."""
        names = [f"linux/a{number}" for number in range(MAX_PLATFORMS + 1)]
        image = DOCUMENT["images"][0]

        def numbered(count: int) -> list[dict[str, Any]]:
            return [{**image, "name": f"i{each}", "repository": f"r/i{each}"} for each in range(count)]

        def platforms(count: int) -> bytes:
            some = dict.fromkeys(names[:count], CONTENT)
            return dumps({**DOCUMENT, "platforms": names[:count], "images": [{**image, "platforms": some}]})

        def files(count: int) -> bytes:
            return with_member(("files",), {f"sbom/{each}.spdx.json": CONTENT for each in range(count)})

        for accepted, refused in (
            (platforms(MAX_PLATFORMS), platforms(MAX_PLATFORMS + 1)),
            (with_member(("images",), numbered(MAX_IMAGES)), with_member(("images",), numbered(MAX_IMAGES + 1))),
            (files(MAX_FILES), files(MAX_FILES + 1)),
            *(
                (with_member((*path, "size"), limit), with_member((*path, "size"), limit + 1))
                for path, limit in (
                    (("files", "tools/helm-linux-amd64"), MAX_BLOB),
                    (("chart", "manifest"), MAX_MANIFEST),
                    (("images", 0, "index"), MAX_MANIFEST),
                )
            ),
        ):
            Release.parse(accepted)
            assert_refused(self, "release_malformed", Release.parse, refused)
        padded = dumps(DOCUMENT)
        Release.parse(padded + b" " * (MAX_DOCUMENT - len(padded)))
        assert_refused(self, "release_too_large", Release.parse, padded + b" " * (MAX_DOCUMENT + 1 - len(padded)))

    def test_values(self) -> None:
        """Paths that lead elsewhere, repositories and names that are there twice, and an image without a platform."""
        image = DOCUMENT["images"][0]
        for path, value in (
            (("files",), {"../x": CONTENT}),
            (("files",), {"sbom/../x.spdx.json": CONTENT}),
            (("files",), {"svc-release.json": CONTENT}),
            (("files",), {"blobs/sha256/x": CONTENT}),
            (("images",), [image, image]),
            (("images",), [image, {**image, "name": "other"}]),
            (("chart", "repository"), "svc/svc"),
            (("images", 0, "platforms"), {"linux/amd64": CONTENT}),
            (("images", 0, "repository"), "/svc"),
            (("images", 0, "repository"), "a/" * 65 + "a"),
            (("platforms",), ["linux/amd64", "linux/amd64"]),
            (("version",), "1.4"),
            (("createdAt",), "2026-11-28"),
        ):
            assert_refused(self, "release_malformed", Release.parse, with_member(path, value))

    def test_selected(self) -> None:
        """Platforms are in the order of the release; one that it does not have is named with those that it has."""
        release = Release.parse(dumps(DOCUMENT))
        self.assertEqual(("linux/amd64", "linux/arm64"), release.selected(None))
        self.assertEqual(("linux/amd64", "linux/arm64"), release.selected(["linux/arm64", "linux/amd64"]))
        error = assert_refused(self, "release_platform_unknown", release.selected, ["linux/s390x"])
        self.assertIn("linux/amd64, linux/arm64", error.hint)
        assert_refused(self, "release_platform_unknown", release.selected, [])

    @given(
        st.binary(max_size=200)
        | st.builds(
            dumps,
            st.recursive(
                st.none() | st.booleans() | st.integers(-1, 2**40) | st.text(st.characters(exclude_categories=["Cs"])),
                lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(DOCUMENT)), inner),
            ),
        )
    )
    def test_any_octets(self, octets: bytes) -> None:
        """Nothing but a refusal comes of any octets."""
        error = self.assertRaises(SvcError, Release.parse, octets)
        assert isinstance(error, SvcError)
        self.assertTrue(error.reason.startswith("release_"), error.reason)


class SignatureTests(SynchronousTestCase):
    """The signature."""

    def setUp(self) -> None:
        self.document = dumps(DOCUMENT)
        self.signature = sign_release(self.document, "A vendor", signing_key().signers)

    def test_accepted(self) -> None:
        """Of several keys the one that signed it is found."""
        other = vendor_key(SECOND)
        verified = verify_release(self.document, self.signature, (other, *keys()))
        self.assertEqual(("1.4.2", keys()[0]), (verified.release.version, verified.key))

    def test_refused(self) -> None:
        """Other documents, keys, types and sets of signatures, and each octet of a signature."""
        key, other = signing_key(), signing_key("another key")
        payload = Envelope.parse(self.signature).payload
        mixed = (key.signers[0], other.signers[1])
        lying = sign_release(self.document, "Somebody", key.signers)
        for reason, document, signature in (
            ("release_signature_other", self.document + b" ", self.signature),
            ("release_signature_other", self.document, lying),
            ("release_key_unknown", self.document, sign_release(self.document, "A vendor", other.signers)),
            ("release_key_unknown", self.document, sign_release(self.document, "A vendor", mixed)),
            ("release_signatures", self.document, sign_release(self.document, "A vendor", key.signers[:1])),
            ("release_signatures", self.document, sign_release(self.document, "A vendor", key.signers[1:])),
            (
                "release_signature_invalid",
                self.document,
                sign_envelope(payload, naming.TYPE_LICENSE, key.signers).serialize(),
            ),
            ("release_signature_invalid", self.document, self.signature + b" "),
            ("release_signature_invalid", self.document, b""),
            ("release_signatures", self.document, Envelope.parse(self.signature).with_extra(more=1).serialize()),
            ("release_too_large", self.document, bytes(64 * 1024 + 1)),
        ):
            assert_refused(self, reason, verify_release, document, signature, keys())
        assert_refused(self, "release_key_unknown", verify_release, self.document, self.signature, ())
        for at in range(0, len(self.signature), 97):
            changed = bytearray(self.signature)
            changed[at] ^= 1
            self.assertRaises(SvcError, verify_release, self.document, bytes(changed), keys())

    def test_keys_of_the_document(self) -> None:
        """The document names the keys that sign it."""
        document = with_member(("signingKeys", "Ed25519"), "A" * 43)
        signature = sign_release(document, "A vendor", signing_key().signers)
        assert_refused(self, "release_malformed", verify_release, document, signature, keys())

    def test_artifact(self) -> None:
        """The manifest of the artifact in a registry leads to document and signature, with the files behind them."""
        signed = verify_release(self.document, self.signature, keys())
        octets, layers = release_artifact(signed)
        self.assertEqual(["svc-release.json", SIGNATURE, *DOCUMENT["files"]], list(layers))
        self.assertEqual((layers["svc-release.json"], layers[SIGNATURE]), read_artifact(octets))
        manifest = json.loads(octets)
        self.assertEqual("application/vnd.svc.release.v1+json", manifest["artifactType"])
        for damaged in (
            {**manifest, "artifactType": "x"},
            {**manifest, "layers": manifest["layers"][:1]},
            {**manifest, "layers": manifest["layers"][::-1]},
            {**manifest, "layers": manifest["layers"] * 100},
            [],
        ):
            assert_refused(self, "release_malformed", read_artifact, dumps(damaged))


class KeyTests(SynchronousTestCase):
    """Which keys are accepted."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def file(self, name: str, text: str) -> str:
        """Write a file; gives its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def test_precedence(self) -> None:
        """Files that are given stand above the variable, and this above what is built in."""
        texts = [signing_key(name).public.render() for name in "abc"]
        first, second = (self.file(str(at), text) for at, text in enumerate(texts[:2]))
        pinned = (texts[2],)
        environ = {"SVC_RELEASE_KEYS": f"{second}:{first}"}

        def found(*given: Any) -> list[str]:
            return [each.render() for each in release_keys(*given)]

        self.assertEqual([texts[0]], found([first], environ, pinned))
        self.assertEqual([texts[1], texts[0]], found([], environ, pinned))
        self.assertEqual([texts[2]], found([], {"SVC_RELEASE_KEYS": ""}, pinned))

    def test_refused(self) -> None:
        """No key at all names both ways to one; files that have none, and the key of the test vendor, are refused."""
        error = assert_refused(self, "release_keys_missing", release_keys, [], {})
        self.assertIn("neither --release-key nor SVC_RELEASE_KEYS", str(error))
        for path in (str(self.folder), str(self.folder / "none"), self.file("empty", "")):
            error = assert_refused(self, "release_key_unreadable", release_keys, [path], {})
            self.assertIn(path, str(error))
        binary = self.folder / "binary"
        binary.write_bytes(b"\xff")
        assert_refused(self, "release_key_unreadable", release_keys, [str(binary)], {})
        test = self.file("test", vendor_key().render())
        for files, environ in (([test], {}), ([], {"SVC_RELEASE_KEYS": test})):
            assert_refused(self, "release_key_of_tests", release_keys, files, environ)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each member and item of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, inner in pairs for each in ((*at, key), *paths(inner, (*at, key)))]
