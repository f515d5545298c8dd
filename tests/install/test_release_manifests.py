"""What a release refers to: manifests and configurations that are signed, but not as they should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.install.release import layout
from svc.install.release.document import MAX_BLOB, MAX_MANIFEST
from svc.install.release.manifests import MAX_LAYERS, Blob, Contents, read_all, read_contents
from svc.install.release.package import PackageFile, verify_package
from svc.strictjson import dumps
from tests.install.material import PLATFORMS, keys, write_small_release
from tests.refusals import assert_refused

Change = Callable[[dict[str, Any]], object]


class ContentsTests(SynchronousTestCase):
    """Reading what a release refers to; whoever fetches it compares the digests."""

    def setUp(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        with PackageFile(write_small_release(folder)) as file:
            verified = verify_package(file, keys())
            self.signed, self.contents = verified.signed, verified.contents
            self.octets: dict[str, bytes] = {}
            reading = read_contents(self.signed.release, PLATFORMS)
            read_all(reading, lambda blob: self.octets.setdefault(blob.what, file.read(blob.content.entry)))

    def read(self, what: str = "", change: Change = lambda _document: None) -> Contents:
        """Read everything, where one document is changed."""

        def fetch(blob: Blob) -> bytes:
            if blob.what != what:
                return self.octets[blob.what]
            document = json.loads(self.octets[what])
            change(document)
            return dumps(document)

        return read_all(read_contents(self.signed.release, PLATFORMS), fetch)

    def refused(self, what: str, change: Change, *said: str) -> None:
        """A document that is changed is refused by its name."""
        error = assert_refused(self, "release_malformed", self.read, what, change)
        for each in (what, *said):
            self.assertIn(each, str(error))

    def test_read(self) -> None:
        """Manifests and configurations are asked for, layers are not; each has the platform that is wanted."""
        self.assertEqual(self.contents, self.read())
        self.assertEqual(2 * (2 * len(PLATFORMS)) + 2, len(self.octets))
        [image] = [each for each in self.contents.images if each.image.name == "svc"]
        self.assertEqual(list(image.image.platforms.values()), [each.blob.content for each in image.manifests])
        # What both images have is there once.
        self.assertEqual(4 * 3 - len(PLATFORMS) + 2, len(self.contents.blobs))
        order = [each.blob.what for each in self.contents.manifests]
        self.assertLess(order.index("the manifest of svc for linux/arm64"), order.index("the index of svc"))

    def test_members_of_manifests(self) -> None:
        """Each member of a manifest, and of its descriptors, that is missing, of another kind or unknown."""
        for what in ("the manifest of svc for linux/amd64", "the manifest of the chart svc-core"):
            for path in (
                *(("schemaVersion",), ("mediaType",), ("config",), ("layers",)),
                *(("config", each) for each in ("mediaType", "digest", "size")),
                *(("layers", 0, each) for each in ("mediaType", "digest", "size")),
            ):
                name = str(path[-1])
                for value in (None, -1, "x", [], {}):
                    self.refused(what, lambda found, path=path, value=value: put(found, path, value), name)  # type: ignore[misc]
                self.refused(what, lambda found, path=path: put(found, (*path[:-1], "urls"), ["x"]), "urls")  # type: ignore[misc]
            self.refused(what, lambda found: put(found, ("layers", 0, "data"), "e30="), "data")
            self.refused(what, lambda found: put(found, ("subject",), {}), "subject")

    def test_configurations(self) -> None:
        """A configuration is of the platform and the layers, or of the chart, that refers to it."""
        for what in ("the configuration of spire-server for linux/arm64",):
            self.refused(
                what, lambda found: put(found, ("architecture",), "amd64"), "linux/amd64 instead of linux/arm64"
            )
            self.refused(what, lambda found: put(found, ("os",), "windows"), "windows/arm64")
            self.refused(
                what, lambda found: put(found, ("rootfs", "diff_ids"), ["x"]), "1 layers, and the manifest has 2"
            )
            self.refused(what, lambda found: put(found, ("rootfs",), None), "rootfs")
        chart = "the configuration of the chart svc-core"
        self.refused(chart, lambda found: put(found, ("name",), "other"), "svc-core")
        self.refused(chart, lambda found: put(found, ("version",), "1.4.3"), "1.4.2")

    def test_bounds(self) -> None:
        """Layers and sizes at their bounds are accepted, and one more is refused."""
        manifest, config = "the manifest of svc for linux/amd64", "the configuration of svc for linux/amd64"
        layer = json.loads(self.octets[manifest])["layers"][0]
        self.octets[config] = dumps({**json.loads(self.octets[config]), "rootfs": {"diff_ids": ["x"] * MAX_LAYERS}})
        self.read(manifest, lambda found: put(found, ("layers",), [layer] * MAX_LAYERS))
        self.refused(manifest, lambda found: put(found, ("layers",), [layer] * (MAX_LAYERS + 1)), "layers")
        many = [{**layer, "size": MAX_BLOB}] * MAX_LAYERS
        self.read(manifest, lambda found: put(found, ("layers",), many))
        self.refused(manifest, lambda found: put(found, ("layers",), [{**layer, "size": MAX_BLOB + 1}]), "size")
        self.octets[config] = bytes(MAX_MANIFEST + 1)
        assert_refused(self, "release_malformed", self.read)

    def test_two_sizes(self) -> None:
        """A layer that two manifests describe with different sizes, and a package that is too large, is refused."""
        what = "the manifest of spire-server for linux/amd64"
        lying = self.read(what, lambda found: put(found, ("layers", 0, "size"), 7))
        assert_refused(self, "release_malformed", layout.package_entries, self.signed, lying)
        size = sum(map(layout.entry_size, layout.package_entries(self.signed, self.contents).values()))
        with patch.object(layout, "MAX_PACKAGE", size):
            layout.package_entries(self.signed, self.contents)
        with patch.object(layout, "MAX_PACKAGE", size - 1):
            assert_refused(self, "release_too_large", layout.package_entries, self.signed, self.contents)

    def test_index_of_all_platforms(self) -> None:
        """The index of all platforms is the one that the document names."""
        document = json.loads(self.signed.document)
        document["images"][0]["index"]["size"] += 1
        release = type(self.signed.release).parse(dumps(document))
        error = self.assertRaises(
            SvcError, read_all, read_contents(release, PLATFORMS), lambda blob: self.octets[blob.what]
        )
        self.assertIn("images.svc.index", str(error))


def put(document: Any, path: tuple[Any, ...], value: object) -> None:
    """Replace a member."""
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value
