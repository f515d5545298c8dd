"""
The entries of a release package: an OCI image layout, with the signed document before it.

All entries follow from the signed release and what it refers to; a package with another entry, or another content of
one, is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from svc.envelope.claims import Claims
from svc.envelope.errors import Malformed
from svc.errors import printable
from svc.install.release.document import DOCUMENT, MAX_MANIFEST, Content, Release
from svc.install.release.errors import PackageRefused, ReleaseRefused
from svc.install.release.manifests import INDEX, Contents, Manifest, descriptor
from svc.install.release.signature import SIGNATURE, SignedRelease
from svc.naming import DOMAIN
from svc.strictjson import JsonRefused, dumps, loads_object

LAYOUT: Final = "oci-layout"
INDEX_FILE: Final = "index.json"
CHECKSUMS: Final = "checksums.txt"
_LAYOUT: Final = b'{"imageLayoutVersion":"1.0.0"}'
#: Which platforms a package has, separated by commas.
_PLATFORMS: Final = f"{'.'.join(reversed(DOMAIN.split('.')))}.release.platforms"
#: Both have the full name: the one is read by skopeo and oras, the other by containerd.
_NAMES: Final = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
MAX_ENTRIES: Final = 8192
#: Octets of a package.
MAX_PACKAGE: Final = 64 * 1024**3


def package_entries(signed: SignedRelease, contents: Contents) -> dict[str, bytes | Content]:
    """
    Return the entries of a package in their order: octets, or the content that is taken from elsewhere.

    Raises:
        ReleaseRefused: for more than :data:`MAX_PACKAGE` octets, and a blob of two sizes.
        PackageRefused: for more than :data:`MAX_ENTRIES` entries.
    """
    plain: dict[str, bytes] = {
        DOCUMENT: signed.document,
        SIGNATURE: signed.signature,
        LAYOUT: _LAYOUT,
        INDEX_FILE: index_file(signed.release, contents),
    }
    entries: dict[str, bytes | Content] = dict(plain)
    entries[CHECKSUMS] = _checksums(plain, signed.release.files)
    entries |= signed.release.files
    for each in contents.manifests:
        for blob in each.blobs:
            if entries.setdefault(blob.content.entry, blob.content) != blob.content:
                defect = f"a size of {blob.content.size} octets, and another manifest gives another one"
                raise ReleaseRefused("release_malformed", where=blob.what, defect=defect)
        entries[each.blob.content.entry] = each.octets
    if len(entries) > MAX_ENTRIES:
        raise PackageRefused("package_entries", limit=MAX_ENTRIES)
    if (size := sum(map(entry_size, entries.values()))) > MAX_PACKAGE:
        raise ReleaseRefused("release_too_large", what="the release", size=size, limit=MAX_PACKAGE)
    return {name: entries[name] for name in sorted(entries, key=entry_order)}


def entry_size(entry: bytes | Content) -> int:
    """The octets of an entry."""
    return len(entry) if isinstance(entry, bytes) else entry.size


def entry_order(name: str) -> tuple[bool, str]:
    """The key by which entries are sorted: the document first."""
    return name != DOCUMENT, name


def index_file(release: Release, contents: Contents) -> bytes:
    """Write ``index.json``."""
    names = ((each.index, f"{each.image.repository}:{each.image.tag}") for each in contents.images)
    chart = (contents.chart, f"{release.chart.repository}:{release.chart.version}")
    return dumps(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [_listed(each, f"{DOMAIN}/{name}") for each, name in (*names, chart)],
            "annotations": {_PLATFORMS: ",".join(contents.platforms)},
        }
    )


def platforms_of(octets: bytes, release: Release) -> tuple[str, ...]:
    """
    Read from ``index.json`` which platforms a package has.

    Raises:
        PackageRefused: it does not say so, or names one that the release does not have.
    """
    try:
        text = Claims(loads_object(octets, max_bytes=MAX_MANIFEST), "it").member("annotations").text(_PLATFORMS)
    except JsonRefused as error:
        raise PackageRefused("package_entry_content", entry=INDEX_FILE, defect=error.defect) from error
    except Malformed as error:
        defect = f"{error.where.removeprefix('it.')}: {error.defect}"
        raise PackageRefused("package_entry_content", entry=INDEX_FILE, defect=defect) from error
    found = tuple(each for each in release.platforms if each in text.split(","))
    if not found or ",".join(found) != text:
        defect = f"annotations.{_PLATFORMS}: {text or 'nothing'}, and the release has {', '.join(release.platforms)}"
        raise PackageRefused("package_entry_content", entry=INDEX_FILE, defect=defect)
    return found


def check_octets(name: str, found: bytes, expected: bytes) -> None:
    """
    Compare an entry that is read as a whole.

    Raises:
        PackageRefused: it differs; says where.
    """
    if found != expected:
        raise PackageRefused("package_entry_content", entry=name, defect=_difference(found, expected))


def _listed(listed: Manifest, name: str) -> dict[str, object]:
    return {**descriptor(listed.blob.media_type, listed.blob.content), "annotations": dict.fromkeys(_NAMES, name)}


def _checksums(plain: Mapping[str, bytes], files: Mapping[str, Content]) -> bytes:
    """Write ``checksums.txt``, which ``sha256sum --check`` reads."""
    digests = {name: hashlib.sha256(octets).hexdigest() for name, octets in plain.items()}
    digests |= {name: each.digest.removeprefix("sha256:") for name, each in files.items()}
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode("ascii")


def _difference(found: bytes, expected: bytes) -> str:
    try:
        return _differing(loads_object(found), loads_object(expected), "") or "it is written in another way"
    except JsonRefused:
        if len(found) != len(expected):
            return f"{len(found)} octets, expected were {len(expected)}"
        at = next(number for number, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
        return f"octet {at} differs"


def _differing(found: object, expected: object, where: str) -> str:
    """The first member that differs, with both values; empty where none does."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in (*expected, *found):
            at = f"{where}.{name}" if where else str(name)
            if name not in found or name not in expected:
                return f"{printable(at)} is {'missing' if name in expected else 'unknown'}"
            if said := _differing(found[name], expected[name], at):
                return said
        return ""
    if isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return f"{where} has {len(found)} items, expected were {len(expected)}"
        pairs = zip(found, expected, strict=True)
        return next(filter(None, (_differing(*pair, f"{where}[{at}]") for at, pair in enumerate(pairs))), "")
    return "" if found == expected else f"{printable(where)} is {printable(found)}, expected was {printable(expected)}"
