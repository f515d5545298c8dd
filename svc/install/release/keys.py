"""Which keys sign releases: those that are given, else those with which the distribution was built."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from svc.install.release.errors import ReleaseRefused
from svc.license.vendors import TEST_VENDOR_KIDS, VendorKey, VendorKeyMalformed
from svc.pinned import RELEASE_KEYS

#: Names of files, separated as those of ``KUBECONFIG``.
VARIABLE: Final = "SVC_RELEASE_KEYS"
_MAX_FILE: Final = 64 * 1024


def release_keys(
    files: Sequence[str], environ: Mapping[str, str], pinned: Sequence[str] = RELEASE_KEYS
) -> tuple[VendorKey, ...]:
    """
    Return the keys that are accepted; what is given replaces what comes behind it.

    Args:
        files: those of ``--release-key``, each with one public key.
        environ: the environment, of which :data:`VARIABLE` counts where there are no files.
        pinned: the texts of the keys of the distribution.

    Raises:
        ReleaseRefused: there is none, a file is no public key, or it is that of the test vendor.
    """
    given = list(files) or [path for path in environ.get(VARIABLE, "").split(os.pathsep) if path]
    if given:
        return tuple(map(_read, given))
    if not pinned:
        raise ReleaseRefused("release_keys_missing")
    return tuple(map(VendorKey.parse, pinned))


def _read(path: str) -> VendorKey:
    try:
        with open(path, "rb") as file:
            key = VendorKey.parse(file.read(_MAX_FILE).decode("utf-8"))
    except OSError as error:
        defect = (error.strerror or str(error)).lower()
        raise ReleaseRefused("release_key_unreadable", path=path, defect=defect) from error
    except UnicodeDecodeError as error:
        raise ReleaseRefused("release_key_unreadable", path=path, defect="it is no text") from error
    except VendorKeyMalformed as error:
        raise ReleaseRefused("release_key_unreadable", path=path, defect=error.evidence["defect"]) from error
    if TEST_VENDOR_KIDS & set(key.kids.values()):
        raise ReleaseRefused("release_key_of_tests", path=path)
    return key
