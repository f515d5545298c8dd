"""
The package of a release: four images, the chart and the lists of contents, signed, as one file.

Images are taken as ``bin/image`` made them: their manifests, and so their digests, stay what they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from images.__main__ import NAMES
from images.archive import tree, write_layer
from images.cache import ImageFailed
from licensing.keyfile import SigningKey
from svc import strictyaml
from svc.install.release.document import MAX_MANIFEST, Content, Release, ReleaseChart, ReleaseImage
from svc.install.release.manifests import (
    CHART_CONFIG,
    CHART_LAYER,
    content,
    descriptor,
    image_index,
    manifest,
    read_all,
    read_contents,
)
from svc.install.release.package import write_package
from svc.install.release.signature import sign_release, verify_release
from svc.strictjson import dumps

#: Below the registry; the chart's values have the same names behind their registry.
_REPOSITORIES: Final = "svc"
_CHARTS: Final = "svc/charts"
_TITLE: Final = "org.opencontainers.image.title"
_VERSION: Final = "org.opencontainers.image.version"
_MINOR: Final = re.compile(r">=(1\.[0-9]+)\.0-0")

Opener = Callable[[], BinaryIO]


@dataclass(frozen=True)
class BuiltImage:
    """
    An image for one platform.

    Args:
        name: of the image.
        platform: as ``linux/amd64``.
        manifest: the octets of its manifest.
        blobs: opens configuration and layers, by their digest.
    """

    name: str
    platform: str
    manifest: bytes = field(repr=False)
    blobs: Mapping[str, Opener] = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """What a release says beside its parts."""

    version: str
    channel: str
    upgrade_from: str
    created_at: datetime


def read_images(folder: Path, version: str, stack: ExitStack) -> list[BuiltImage]:
    """
    Read the archives of ``bin/image`` in a folder, each ``NAME.tar``.

    Args:
        folder: with all images, for one platform.
        version: that they must have.
        stack: closes them.

    Raises:
        ImageFailed: one is missing, is no archive of an image, or is of another version.
    """
    return [_read_image(folder / f"{name}.tar", name, version, stack) for name in NAMES]


def contents_files(folder: Path, images: Iterable[BuiltImage]) -> dict[str, Path]:
    """
    Give the lists of contents that ``bin/image`` wrote beside images, by their path in a package.

    Raises:
        ImageFailed: one is missing.
    """
    found = {}
    for each in images:
        path = folder / f"{each.name}.spdx.json"
        if not path.is_file():
            raise ImageFailed(f"{path} is missing", "bin/image --output DIR writes it beside the image")
        found[f"sbom/{each.name}-{each.platform.replace('/', '-')}.spdx.json"] = path
    return found


def write_release(
    path: Path, plan: Plan, images: Iterable[BuiltImage], chart: Path, files: Mapping[str, Path], key: SigningKey
) -> str:
    """
    Write a package; it has been verified when this returns.

    Args:
        path: of the package.
        plan: version and the like.
        images: each for all platforms, which are those of the first.
        chart: the folder of the chart.
        files: further files by their path in the package.
        key: signs it.

    Returns:
        The digest of the package.

    Raises:
        ImageFailed: an image is missing for a platform, or the chart cannot be packed.
        SvcError: the release is none that svc would accept, or the package cannot be written.
    """
    sources: dict[str, Opener] = {}

    def add(octets: bytes) -> Content:
        found = content(octets)
        sources[found.entry] = partial(BytesIO, octets)
        return found

    by_name: dict[str, dict[str, BuiltImage]] = {}
    for each in images:
        by_name.setdefault(each.name, {})[each.platform] = each
        sources |= {Content(digest, 0).entry: opener for digest, opener in each.blobs.items()}
    platforms = sorted({platform for each in by_name.values() for platform in each})
    listed = []
    for name, found in by_name.items():
        if missing := sorted(set(platforms) - set(found)):
            raise ImageFailed(f"the image {name} is missing for {', '.join(missing)}", "build all images for each")
        manifests = {platform: add(found[platform].manifest) for platform in platforms}
        bare = ReleaseImage(name, f"{_REPOSITORIES}/{name}", plan.version, Content("", 0), manifests)
        index = content(image_index(bare, platforms))
        listed.append(ReleaseImage(name, bare.repository, bare.tag, index, manifests))
    metadata = _chart_metadata(chart)
    packed = _packed_chart(chart, metadata["name"])
    config = add(dumps(dict(sorted(metadata.items()))))
    chart_manifest = add(
        manifest(
            CHART_CONFIG,
            config,
            [descriptor(CHART_LAYER, add(packed))],
            annotations={
                _TITLE: metadata["name"],
                _VERSION: metadata["version"],
                "org.opencontainers.image.description": metadata["description"],
            },
        )
    )
    for name, file in files.items():
        sources[name] = partial(_opened, file)
    release = Release(
        version=plan.version,
        channel=plan.channel,
        created_at=plan.created_at,
        min_kubernetes=_minimum(metadata),
        upgrade_from=plan.upgrade_from,
        platforms=tuple(platforms),
        images=tuple(listed),
        chart=ReleaseChart(metadata["name"], f"{_CHARTS}/{metadata['name']}", metadata["version"], chart_manifest),
        files={name: _described(file) for name, file in sorted(files.items())},
        signing_keys=key.public.kids,
    )
    document = release.to_octets()
    signed = verify_release(document, sign_release(document, key.issuer, key.signers), (key.public,))

    def read(entry: str) -> bytes:
        with sources[entry]() as file:
            return file.read(MAX_MANIFEST + 1)

    contents = read_all(read_contents(signed.release, release.platforms), lambda blob: read(blob.content.entry))
    return write_package(path, signed, contents, lambda entry: sources[entry]())


def _read_image(path: Path, name: str, version: str, stack: ExitStack) -> BuiltImage:
    try:
        archive = stack.enter_context(tarfile.open(path, "r:"))  # noqa: SIM115 - the stack closes it

        def opened(entry: str) -> BinaryIO:
            file = archive.extractfile(entry)
            if file is None:
                raise KeyError(entry)
            return cast(BinaryIO, file)

        [listed] = json.load(opened("index.json"))["manifests"]
        octets = opened(_blob(listed["digest"])).read(MAX_MANIFEST)
        found = json.loads(octets)
        config = json.load(opened(_blob(found["config"]["digest"])))
        digests = [each["digest"] for each in (found["config"], *found["layers"])]
        platform = f"{config['os']}/{config['architecture']}"
        of = found["annotations"][_VERSION]
    except OSError as error:
        detail = (error.strerror or str(error)).lower()
        raise ImageFailed(f"{path} cannot be read: {detail}", "bin/image --output DIR makes all images") from error
    except (tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise ImageFailed(f"{path} is no archive of an image", "bin/image --output DIR makes such archives") from error
    if of != version:
        raise ImageFailed(f"{path} is of version {of}, not {version}", "run bin/image in the same checkout")
    return BuiltImage(name, platform, octets, {each: partial(opened, _blob(each)) for each in digests})


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _packed_chart(chart: Path, name: str) -> bytes:
    """Pack the chart as helm does, with the same octets each time."""
    with tempfile.TemporaryDirectory(prefix="svc-release-") as folder:
        packed = Path(folder) / "chart.tgz"
        write_layer(packed, tree(chart, name))
        return packed.read_bytes()


def _chart_metadata(chart: Path) -> dict[str, Any]:
    found = strictyaml.loads((chart / "Chart.yaml").read_text())
    return cast(dict[str, Any], found)


def _minimum(metadata: Mapping[str, Any]) -> str:
    found = _MINOR.fullmatch(metadata["kubeVersion"])
    if found is None:
        raise ImageFailed(f"kubeVersion of the chart is {metadata['kubeVersion']}", "it is of the form >=1.33.0-0")
    return found[1]


def _described(path: Path) -> Content:
    with path.open("rb") as file:
        return Content(f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", path.stat().st_size)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")
