"""
The keys of the vendor that are built into a distribution: ``svc/pinned.py``, written anew from files of public keys.

Wheels and images have no other way to a key: whoever uses a license cannot name the key that it is verified with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from images.cache import ImageFailed
from svc.license.vendors import TEST_VENDOR_KIDS, VendorKey, VendorKeyMalformed

#: Where the module is, from the folder with the package.
MODULE: Final = Path("svc/pinned.py")
_TEXT: Final = '''"""The public keys of the vendor that are part of this distribution; written when it was built."""

from __future__ import annotations

from typing import Final

VENDOR_KEYS: Final[tuple[str, ...]] = {vendor!r}
RELEASE_KEYS: Final[tuple[str, ...]] = {release!r}
'''
_NONE: Final = (
    ("vendor_key", "no vendor key is built in: it accepts no license; --vendor-key FILE builds one in"),
    ("release_key", "no release key is built in: svc install needs --release-key; --release-key FILE builds one in"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--vendor-key`` and ``--release-key`` to a tool that builds a distribution."""
    for name, what in (("--vendor-key", "licenses"), ("--release-key", "releases")):
        text = f"a public key that signs {what}, as bin/license-sign new-key writes it; may be repeated, newest first"
        parser.add_argument(name, type=Path, action="append", default=[], metavar="FILE", help=text)


def pinned_module(options: argparse.Namespace) -> str:
    """
    Make the module from the files of the two options.

    Raises:
        ImageFailed: a file cannot be read, is no public key, or is that of the test vendor.
    """
    vendor, release = _texts(options.vendor_key), _texts(options.release_key)
    return _TEXT.format(vendor=vendor, release=release)


def remarks(options: argparse.Namespace) -> Iterator[str]:
    """Give a line for each kind of key that is not built in, with what follows from it."""
    return (line for name, line in _NONE if not getattr(options, name))


def _texts(paths: Sequence[Path]) -> tuple[str, ...]:
    keys: dict[str, Path] = {}
    for path in paths:
        try:
            key = VendorKey.parse(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            detail = (getattr(error, "strerror", None) or "it is no text").lower()
            raise ImageFailed(f"{path} cannot be read: {detail}", "give a file of bin/license-sign new-key") from error
        except VendorKeyMalformed as error:
            raise ImageFailed(f"{path} is no public key of a vendor: {error.evidence['defect']}", error.hint) from error
        if TEST_VENDOR_KIDS & set(key.kids.values()):
            raise ImageFailed(f"{path} is the key of the test vendor, whose private key everybody has")
        if key.render() in keys:
            raise ImageFailed(f"{path} has the same key as {keys[key.render()]}")
        keys[key.render()] = path
    return tuple(keys)
