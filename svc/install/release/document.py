"""
``svc-release.json``: what a release consists of, with the digest of each part. It alone is signed.

Unknown members are refused: what this version does not know, it cannot install.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from svc.envelope.claims import Claims, utc_seconds
from svc.envelope.errors import Malformed
from svc.install.release.errors import ReleaseRefused
from svc.license.payload import parse_instant
from svc.strictjson import JsonRefused, dumps, loads_object

SCHEMA_VERSION: Final = 1
DOCUMENT: Final = "svc-release.json"
MAX_DOCUMENT: Final = 256 * 1024
MAX_IMAGES: Final = 16
MAX_PLATFORMS: Final = 8
MAX_FILES: Final = 128
#: Octets of a blob or a file: what the size of a tar header can say.
MAX_BLOB: Final = 8 * 1024**3 - 1
#: Octets of an index, a manifest or a configuration.
MAX_MANIFEST: Final = 256 * 1024

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")
_KUBERNETES: Final = re.compile(r"1\.[1-9][0-9]{0,2}")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PLATFORM: Final = re.compile(r"[a-z0-9]{1,16}/[a-z0-9]{1,16}")
_KID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FILE: Final = re.compile(
    r"sbom/[a-z0-9][a-z0-9._-]{0,63}\.spdx\.json"
    r"|provenance/[a-z0-9][a-z0-9._-]{0,63}\.intoto\.jsonl"
    r"|tools/helm-[a-z0-9]{1,16}-[a-z0-9]{1,16}"
)
_MAX_REPOSITORY: Final = 128
_MEMBERS: Final = (
    *("schemaVersion", "version", "channel", "createdAt", "minKubernetes", "upgradeFrom", "platforms"),
    *("images", "chart", "files", "signingKeys"),
)
_Each = TypeVar("_Each")


@dataclass(frozen=True, order=True)
class Content:
    """Octets that are named by their digest, ``sha256:`` and 64 hexadecimal digits; ``size`` is their number."""

    digest: str
    size: int

    @property
    def entry(self) -> str:
        """The path of the blob in an OCI image layout."""
        return f"blobs/sha256/{self.digest.removeprefix('sha256:')}"


@dataclass(frozen=True)
class ReleaseImage:
    """
    An image of a release.

    Attributes:
        name: of the image, as ``svc-manager``.
        repository: below the registry, as ``svc/svc-manager``.
        index: the image index with all platforms of the release.
        platforms: the manifest of each platform, such as ``linux/amd64``.
    """

    name: str
    repository: str
    tag: str
    index: Content
    platforms: Mapping[str, Content] = field(hash=False)


@dataclass(frozen=True)
class ReleaseChart:
    """The Helm chart of a release; ``manifest`` is that of its OCI artifact."""

    name: str
    repository: str
    version: str
    manifest: Content


@dataclass(frozen=True)
class Release:
    """
    What ``svc-release.json`` says.

    Attributes:
        channel: for which it is, as ``stable``.
        min_kubernetes: the lowest minor version on which it runs, as ``1.33``.
        upgrade_from: the lowest version that can be upgraded to it.
        platforms: for which its images are.
        files: further files of a package, by their path in it.
        signing_keys: the thumbprint of each key that signs it, by algorithm.
    """

    version: str
    channel: str
    created_at: datetime
    min_kubernetes: str
    upgrade_from: str
    platforms: tuple[str, ...]
    images: tuple[ReleaseImage, ...]
    chart: ReleaseChart
    files: Mapping[str, Content] = field(hash=False)
    signing_keys: Mapping[str, str] = field(hash=False)

    @classmethod
    def parse(cls, octets: bytes) -> Release:
        """
        Read the document; no signature is verified here.

        Raises:
            ReleaseRefused: for more octets than :data:`MAX_DOCUMENT`, JSON that is not strict, another version of the
                format, and a member that is unknown, missing, mistyped or beyond its bound.
        """
        if len(octets) > MAX_DOCUMENT:
            raise ReleaseRefused("release_too_large", what=DOCUMENT, size=len(octets), limit=MAX_DOCUMENT)
        try:
            return _release(Claims(loads_object(octets, max_bytes=MAX_DOCUMENT), DOCUMENT))
        except JsonRefused as error:
            raise ReleaseRefused("release_malformed", where=DOCUMENT, defect=error.defect) from error
        except Malformed as error:
            raise ReleaseRefused("release_malformed", where=error.where, defect=error.defect) from error

    def to_octets(self) -> bytes:
        """Write the document; :meth:`parse` reads it back to an equal release."""
        return dumps(
            {
                "schemaVersion": SCHEMA_VERSION,
                "version": self.version,
                "channel": self.channel,
                "createdAt": utc_seconds(self.created_at),
                "minKubernetes": self.min_kubernetes,
                "upgradeFrom": self.upgrade_from,
                "platforms": list(self.platforms),
                "images": [
                    {
                        "name": each.name,
                        "repository": each.repository,
                        "tag": each.tag,
                        "index": _members(each.index),
                        "platforms": {name: _members(content) for name, content in each.platforms.items()},
                    }
                    for each in self.images
                ],
                "chart": {
                    "name": self.chart.name,
                    "repository": self.chart.repository,
                    "version": self.chart.version,
                    "manifest": _members(self.chart.manifest),
                },
                "files": {path: _members(content) for path, content in self.files.items()},
                "signingKeys": dict(self.signing_keys),
            }
        )

    def selected(self, platforms: Iterable[str] | None) -> tuple[str, ...]:
        """
        Choose platforms, in the order of the release; None for all.

        Raises:
            ReleaseRefused: for one that the release does not have, and for none.
        """
        wanted = self.platforms if platforms is None else tuple(platforms)
        for each in wanted or ("",):
            if each not in self.platforms:
                raise ReleaseRefused("release_platform_unknown", platform=each, available=", ".join(self.platforms))
        return tuple(each for each in self.platforms if each in wanted)


def exactly(claims: Claims, names: Sequence[str]) -> None:
    """Refuse a member that is not among the names."""
    for name in claims.members:
        if name not in names:
            raise Malformed(where=f"{claims.where}.{name}", defect="a member that this version does not know")


def matching(claims: Claims, name: str, pattern: re.Pattern[str], expected: str) -> str:
    """Read a text that a pattern matches as a whole."""
    value = claims.text(name)
    if not pattern.fullmatch(value):
        raise claims.mistyped(name, expected)
    return value


def content_of(claims: Claims, limit: int) -> Content:
    """Read digest and size."""
    digest = matching(claims, "digest", DIGEST, "sha256: and 64 hexadecimal digits")
    size = claims.integer("size")
    if not 1 <= size <= limit:
        raise claims.mistyped("size", f"1 to {limit} octets")
    return Content(digest, size)


def _release(claims: Claims) -> Release:
    found = claims.integer("schemaVersion")
    if found != SCHEMA_VERSION:
        raise ReleaseRefused("release_version_unknown", found=found, supported=SCHEMA_VERSION)
    exactly(claims, _MEMBERS)
    platforms = claims.texts("platforms")
    if not 1 <= len(platforms) <= MAX_PLATFORMS or not _distinct(platforms, _PLATFORM.fullmatch):
        raise claims.mistyped("platforms", f"1 to {MAX_PLATFORMS} different platforms such as linux/amd64")
    images = claims.objects("images")
    if not 1 <= len(images) <= MAX_IMAGES:
        raise claims.mistyped("images", f"1 to {MAX_IMAGES} images")
    read = tuple(_image(each, platforms) for each in images)
    chart = _chart(claims.member("chart"))
    if len({each.name for each in read}) < len(read):
        raise claims.mistyped("images", "images of different names")
    if len({*(each.repository for each in read), chart.repository}) <= len(read):
        raise claims.mistyped("images", "images and a chart of different repositories")
    return Release(
        version=matching(claims, "version", _VERSION, "a version such as 1.4.2"),
        channel=matching(claims, "channel", _NAME, "a name such as stable"),
        created_at=_instant(claims, "createdAt"),
        min_kubernetes=matching(claims, "minKubernetes", _KUBERNETES, "a version such as 1.33"),
        upgrade_from=matching(claims, "upgradeFrom", _VERSION, "a version such as 1.4.2"),
        platforms=platforms,
        images=read,
        chart=chart,
        files=_files(claims.member("files")),
        signing_keys=_signing_keys(claims.member("signingKeys")),
    )


def _image(claims: Claims, platforms: tuple[str, ...]) -> ReleaseImage:
    exactly(claims, ("name", "repository", "tag", "index", "platforms"))
    found = claims.member("platforms")
    if tuple(found.members) != platforms:
        defect = f"expected {', '.join(platforms)}, as the release has, found {', '.join(found.members) or 'none'}"
        raise Malformed(where=found.where, defect=defect)
    return ReleaseImage(
        name=matching(claims, "name", _NAME, "a name such as svc-manager"),
        repository=_repository(claims),
        tag=matching(claims, "tag", _TAG, "a tag"),
        index=_content(claims, "index"),
        platforms={each: _content(found, each) for each in platforms},
    )


def _chart(claims: Claims) -> ReleaseChart:
    exactly(claims, ("name", "repository", "version", "manifest"))
    return ReleaseChart(
        name=matching(claims, "name", _NAME, "a name such as svc-core"),
        repository=_repository(claims),
        version=matching(claims, "version", _VERSION, "a version such as 1.4.2"),
        manifest=_content(claims, "manifest"),
    )


def _files(claims: Claims) -> Mapping[str, Content]:
    if len(claims.members) > MAX_FILES:
        raise Malformed(where=claims.where, defect=f"more than {MAX_FILES} files")
    for path in claims.members:
        if not _FILE.fullmatch(path):
            raise Malformed(where=f"{claims.where}.{path}", defect="a path that no file of a release has")
    return {path: _content(claims, path, MAX_BLOB) for path in claims.members}


def _signing_keys(claims: Claims) -> Mapping[str, str]:
    names = ("Ed25519", "ML-DSA-87")
    exactly(claims, names)
    return {name: matching(claims, name, _KID, "the thumbprint of a key") for name in names}


def _repository(claims: Claims) -> str:
    value = matching(claims, "repository", _REPOSITORY, "a repository such as svc/svc-manager")
    if len(value) > _MAX_REPOSITORY:
        raise claims.mistyped("repository", f"at most {_MAX_REPOSITORY} characters")
    return value


def _instant(claims: Claims, name: str) -> datetime:
    try:
        return parse_instant(claims.text(name))
    except ValueError as error:
        raise claims.mistyped(name, str(error)) from error


def _content(claims: Claims, name: str, limit: int = MAX_MANIFEST) -> Content:
    inner = claims.member(name)
    exactly(inner, ("digest", "size"))
    return content_of(inner, limit)


def _members(content: Content) -> dict[str, object]:
    return {"digest": content.digest, "size": content.size}


def _distinct(items: Sequence[_Each], accepted: Callable[[_Each], object]) -> bool:
    return len(set(items)) == len(items) and all(map(accepted, items))
