"""
What a release refers to: image indexes, manifests and configurations (OCI Image Format 1.1), and the chart (Helm's).

An image index is written here from the platforms that are wanted, so an index never names what is absent. Everything
below it is read strictly: what a manifest may have is what ``bin/release package`` writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from svc.envelope.claims import Claims
from svc.envelope.errors import Malformed
from svc.install.release.document import (
    DIGEST,
    DOCUMENT,
    MAX_BLOB,
    MAX_FILES,
    MAX_MANIFEST,
    Content,
    Release,
    ReleaseChart,
    ReleaseImage,
    content_of,
    exactly,
    matching,
)
from svc.install.release.errors import ReleaseRefused
from svc.install.release.signature import MAX_SIGNATURE, SIGNATURE, SignedRelease
from svc.strictjson import JsonRefused, dumps, loads_object

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYERS: Final = tuple(f"application/vnd.oci.image.layer.v1.tar{suffix}" for suffix in ("", "+gzip", "+zstd"))
CHART_CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CHART_LAYER: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
#: Of the artifact in a registry that has the document and its signature, ``svc/release:VERSION``.
ARTIFACT: Final = "application/vnd.svc.release.v1+json"
ARTIFACT_REPOSITORY: Final = "svc/release"
_ARTIFACT_SIGNATURE: Final = "application/vnd.svc.release.signature.v1+json"
_ARTIFACT_FILE: Final = "application/octet-stream"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
TITLE: Final = "org.opencontainers.image.title"
MAX_LAYERS: Final = 128
#: A chart that is packed.
MAX_CHART: Final = 16 * 1024 * 1024
#: The empty configuration of an artifact (OCI Image Format 1.1, "Guidance for an Empty Descriptor").
EMPTY_CONFIG: Final = b"{}"
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Blob:
    """
    A part of a release in its repository.

    Attributes:
        repository: below the registry.
        media_type: as its manifest names it.
        what: for people, as ``a layer of svc for linux/amd64``.
    """

    repository: str
    media_type: str
    content: Content
    what: str


@dataclass(frozen=True)
class Manifest:
    """A manifest with what it refers to, the configuration first; ``octets`` are its own."""

    blob: Blob
    octets: bytes = field(repr=False)
    blobs: tuple[Blob, ...] = ()


@dataclass(frozen=True)
class ImageContents:
    """An image with the manifests of some platforms, and the index that names these alone."""

    image: ReleaseImage
    index: Manifest
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True)
class Contents:
    """All of a release that belongs to some platforms."""

    platforms: tuple[str, ...]
    images: tuple[ImageContents, ...]
    chart: Manifest

    @property
    def manifests(self) -> Iterator[Manifest]:
        """Manifests and indexes, each behind what it refers to: the order in which a registry takes them."""
        for image in self.images:
            yield from image.manifests
            yield image.index
        yield self.chart

    @property
    def blobs(self) -> Mapping[str, Blob]:
        """Configurations, layers and the chart by digest, each once."""
        return {blob.content.digest: blob for each in self.manifests for blob in each.blobs}


def content(octets: bytes) -> Content:
    """Describe octets."""
    return Content(f"sha256:{hashlib.sha256(octets).hexdigest()}", len(octets))


def image_index(image: ReleaseImage, platforms: Sequence[str]) -> bytes:
    """Write the index of an image with some platforms."""
    return dumps(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {
                    **descriptor(MANIFEST, image.platforms[each]),
                    "platform": dict(zip(("os", "architecture"), each.split("/"), strict=True)),
                }
                for each in platforms
            ],
        }
    )


def manifest(media_type: str, config: Content, layers: Sequence[dict[str, object]], **members: object) -> bytes:
    """Write a manifest; ``media_type`` is that of its configuration, ``layers`` are descriptors."""
    return dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(media_type, config),
            "layers": list(layers),
            **members,
        }
    )


def descriptor(media_type: str, described: Content) -> dict[str, object]:
    """Describe content in a manifest."""
    return {"mediaType": media_type, "digest": described.digest, "size": described.size}


def read_contents(release: Release, platforms: Sequence[str]) -> Generator[Blob, bytes, Contents]:
    """
    Read all that a release refers to: yields each manifest and configuration that is to be read, takes its octets, and
    returns the contents.

    The octets must have the digest that was asked for.

    Args:
        release: the release.
        platforms: those that are wanted, by :meth:`Release.selected`.

    Raises:
        ReleaseRefused: for a document that is not as it should be.
    """
    images = []
    for image in release.images:
        octets = image_index(image, platforms)
        if tuple(platforms) == release.platforms and content(octets) != image.index:
            raise ReleaseRefused(
                "release_malformed",
                where=f"{DOCUMENT}.images.{image.name}.index",
                defect=f"expected {content(octets).digest}, which has the platforms of the release",
            )
        manifests = []
        for platform in platforms:
            manifests.append((yield from _image_manifest(image, platform)))
        listed = Blob(image.repository, INDEX, content(octets), f"the index of {image.name}")
        images.append(ImageContents(image, Manifest(listed, octets), tuple(manifests)))
    return Contents(tuple(platforms), tuple(images), (yield from _chart_manifest(release.chart)))


def read_all(reading: Generator[Blob, bytes, _Read], fetch: Callable[[Blob], bytes]) -> _Read:
    """Run :func:`read_contents` with a function that gives the octets of each."""
    try:
        wanted = next(reading)
        while True:
            wanted = reading.send(fetch(wanted))
    except StopIteration as end:
        found: _Read = end.value
        return found


def release_artifact(signed: SignedRelease) -> tuple[bytes, Mapping[str, Content]]:
    """
    Write the manifest of the artifact that has a release in a registry.

    Returns:
        Its octets, and its layers by their path in a package: document, signature, and the files of the release.
        Its configuration is :data:`EMPTY_CONFIG`.
    """
    layers = {DOCUMENT: content(signed.document), SIGNATURE: content(signed.signature), **signed.release.files}
    types = {DOCUMENT: ARTIFACT, SIGNATURE: _ARTIFACT_SIGNATURE}
    listed = [
        {**descriptor(types.get(path, _ARTIFACT_FILE), each), "annotations": {TITLE: path}}
        for path, each in layers.items()
    ]
    return manifest(_EMPTY, content(EMPTY_CONFIG), listed, artifactType=ARTIFACT), layers


def read_artifact(octets: bytes) -> tuple[Content, Content]:
    """
    Read the manifest of the artifact, of which nothing is proved; returns document and signature.

    The files behind them are those that the document names.

    Raises:
        ReleaseRefused: it is none.
    """

    def read(claims: Claims) -> tuple[Content, Content]:
        if claims.text("artifactType") != ARTIFACT:
            raise claims.mistyped("artifactType", ARTIFACT)
        layers = claims.objects("layers")
        if not 2 <= len(layers) <= MAX_FILES + 2:
            raise claims.mistyped("layers", f"2 to {MAX_FILES + 2} layers")
        wanted = ((layers[0], ARTIFACT, MAX_MANIFEST), (layers[1], _ARTIFACT_SIGNATURE, MAX_SIGNATURE))
        document, signature = (_described(each, (kind,), limit) for each, kind, limit in wanted)
        return document, signature

    return _read(octets, f"{ARTIFACT_REPOSITORY} manifest", read)


def _image_manifest(image: ReleaseImage, platform: str) -> Generator[Blob, bytes, Manifest]:
    of = f"{image.name} for {platform}"
    blob = Blob(image.repository, MANIFEST, image.platforms[platform], f"the manifest of {of}")
    octets = yield blob
    config, layers = _read(octets, blob.what, lambda claims: _manifest(claims, CONFIG, LAYERS, MAX_LAYERS, MAX_BLOB))
    configuration = Blob(image.repository, CONFIG, config, f"the configuration of {of}")

    def check(claims: Claims) -> None:
        found = f"{claims.text('os')}/{claims.text('architecture')}"
        if found != platform:
            raise Malformed(where=f"{claims.where}.architecture", defect=f"{found} instead of {platform}")
        count = len(claims.member("rootfs").texts("diff_ids"))
        if count != len(layers):
            defect = f"{count} layers, and the manifest has {len(layers)}"
            raise Malformed(where=f"{claims.where}.rootfs.diff_ids", defect=defect)

    _read((yield configuration), configuration.what, check)
    named = (Blob(image.repository, kind, each, f"a layer of {of}") for kind, each in layers)
    return Manifest(blob, octets, (configuration, *named))


def _chart_manifest(chart: ReleaseChart) -> Generator[Blob, bytes, Manifest]:
    blob = Blob(chart.repository, MANIFEST, chart.manifest, f"the manifest of the chart {chart.name}")
    octets = yield blob
    config, layers = _read(
        octets, blob.what, lambda claims: _manifest(claims, CHART_CONFIG, (CHART_LAYER,), 1, MAX_CHART)
    )
    configuration = Blob(chart.repository, CHART_CONFIG, config, f"the configuration of the chart {chart.name}")

    def check(claims: Claims) -> None:
        for name, expected in (("name", chart.name), ("version", chart.version)):
            if claims.text(name) != expected:
                raise claims.mistyped(name, expected)

    _read((yield configuration), configuration.what, check)
    [(kind, layer)] = layers
    return Manifest(blob, octets, (configuration, Blob(chart.repository, kind, layer, f"the chart {chart.name}")))


def _manifest(
    claims: Claims, config: str, layers: Sequence[str], most: int, limit: int
) -> tuple[Content, tuple[tuple[str, Content], ...]]:
    exactly(claims, ("schemaVersion", "mediaType", "config", "layers", "annotations"))
    if claims.integer("schemaVersion") != 2:
        raise claims.mistyped("schemaVersion", "2")
    if claims.text("mediaType") != MANIFEST:
        raise claims.mistyped("mediaType", MANIFEST)
    listed = claims.objects("layers")
    if not 1 <= len(listed) <= most:
        raise claims.mistyped("layers", f"1 to {most} layers")
    found = tuple((each.text("mediaType"), _described(each, layers, limit)) for each in listed)
    return _described(claims.member("config"), (config,), MAX_MANIFEST), found


def _described(claims: Claims, media_types: Sequence[str], limit: int) -> Content:
    exactly(claims, ("mediaType", "digest", "size", "annotations"))
    if claims.text("mediaType") not in media_types:
        raise claims.mistyped("mediaType", " or ".join(media_types))
    matching(claims, "digest", DIGEST, "sha256: and 64 hexadecimal digits")
    return content_of(claims, limit)


def _read(octets: bytes, what: str, read: Callable[[Claims], _Read]) -> _Read:
    try:
        return read(Claims(loads_object(octets, max_bytes=MAX_MANIFEST, fractions=True), what))
    except JsonRefused as error:
        raise ReleaseRefused("release_malformed", where=what, defect=error.defect) from error
    except Malformed as error:
        raise ReleaseRefused("release_malformed", where=error.where, defect=error.defect) from error
