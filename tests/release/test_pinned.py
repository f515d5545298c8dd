"""The keys that are built into a distribution."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from images.cache import ImageFailed
from images.pinned import MODULE, add_options, pinned_module, remarks
from svc.license.vendors import VendorKey, pem_parts
from tests.license.material import SECOND, STRANGER, vendor_key
from tests.peers.waiting import TOP


class PinnedTests(SynchronousTestCase):
    """The module with the keys."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.first = self.file("first.pub", vendor_key(SECOND, "First").render())
        self.second = self.file("second.pub", vendor_key(STRANGER, 'The "second" \\ one').render())

    def file(self, name: str, text: str) -> str:
        """Write a file; gives its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def options(self, *given: str) -> argparse.Namespace:
        """The options as a tool parses them."""
        parser = argparse.ArgumentParser()
        add_options(parser)
        return parser.parse_args(given)

    def test_module(self) -> None:
        """It has the names of that of the source, and the keys of each kind in their order."""
        options = self.options("--vendor-key", self.first, "--vendor-key", self.second, "--release-key", self.second)
        found: dict[str, Any] = {}
        exec(pinned_module(options), found)
        source: dict[str, Any] = {}
        exec((TOP / MODULE).read_text(), source)
        self.assertEqual(set(source), set(found))
        first, second = (VendorKey.parse(Path(each).read_text()) for each in (self.first, self.second))
        self.assertEqual([first, second], [VendorKey.parse(each) for each in found["VENDOR_KEYS"]])
        self.assertEqual([second], [VendorKey.parse(each) for each in found["RELEASE_KEYS"]])
        self.assertEqual([], list(remarks(options)))

    def test_none(self) -> None:
        """A distribution without a kind of key has an empty list, and a line says what follows."""
        found: dict[str, Any] = {}
        options = self.options("--release-key", self.first)
        exec(pinned_module(options), found)
        self.assertEqual((), found["VENDOR_KEYS"])
        [line] = remarks(options)
        self.assertIn("no vendor key is built in: it accepts no license; --vendor-key FILE", line)

    def test_refused(self) -> None:
        """What is no public key, the same key twice, and the key of the test vendor."""
        text = Path(self.first).read_text()
        for what, *paths in (
            ("cannot be read: no such file", str(self.folder / "none")),
            ("is no public key of a vendor", self.file("empty", "")),
            ("is no public key of a vendor", self.file("half", f"Issuer: x\n{pem_parts(text)[0]}")),
            ("has the same key as", self.first, self.file("again", f"a comment\n{text}")),
            ("of the test vendor", self.file("test", vendor_key().render())),
        ):
            options = self.options(*(f"--vendor-key={path}" for path in paths))
            self.assertIn(what, str(self.assertRaises(ImageFailed, pinned_module, options)))
