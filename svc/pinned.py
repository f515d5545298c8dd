"""
The public keys of the vendor that are part of a distribution, each as ``bin/license-sign new-key`` writes it.

The source has none. ``bin/release`` and ``bin/image`` write this module anew into what they make: ``--vendor-key``
fills the keys that sign licenses, ``--release-key`` those that sign releases.
"""

from __future__ import annotations

from typing import Final

#: Of licenses, newest first.
VENDOR_KEYS: Final[tuple[str, ...]] = ()
#: Of releases, newest first.
RELEASE_KEYS: Final[tuple[str, ...]] = ()
