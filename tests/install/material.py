"""Small releases, made as ``bin/release package`` makes them, of images that have a few octets."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

from licensing.keyfile import SigningKey
from release.package import BuiltImage, Plan, write_release
from svc.install.release.document import Content
from svc.install.release.headers import BLOCK, RECORD
from svc.install.release.manifests import CONFIG, LAYERS, content, descriptor, manifest
from svc.license.vendors import VendorKey
from svc.strictjson import dumps
from tests.license.material import STRANGER
from tests.vectors.material import make_key

PLATFORMS: Final = ("linux/amd64", "linux/arm64")
PLAN: Final = Plan("1.4.2", "stable", "1.3.0", datetime(2026, 11, 28, 12, tzinfo=UTC))
CHART: Final = """\
apiVersion: v2
name: svc-core
version: 1.4.2
description: a chart
kubeVersion: ">=1.33.0-0"
"""


@cache
def signing_key(name: str = STRANGER, issuer: str = "A vendor") -> SigningKey:
    """Both private keys of a vendor, made from a name."""
    return SigningKey(issuer, make_key("Ed25519", name), make_key("ML-DSA-87", name))


def keys() -> tuple[VendorKey, ...]:
    """The keys that the tests accept."""
    return (signing_key().public,)


def built_image(name: str, platform: str, **config: object) -> BuiltImage:
    """An image with two layers, of which the first is that of all images of the platform."""
    layers = [f"base of {platform}".encode() * 100, f"{name} for {platform}".encode()]
    system, architecture = platform.split("/")
    settings = {
        "os": system,
        "architecture": architecture,
        "rootfs": {"type": "layers", "diff_ids": [content(each).digest for each in layers]},
        **config,
    }
    configuration = dumps(settings)
    listed = [descriptor(LAYERS[1], content(each)) for each in layers]
    octets = manifest(CONFIG, content(configuration), listed)
    blobs = {content(each).digest: _opener(each) for each in (*layers, configuration)}
    return BuiltImage(name, platform, octets, blobs)


def images() -> Iterator[BuiltImage]:
    """Two images for two platforms."""
    return (built_image(name, platform) for name in ("svc", "spire-server") for platform in PLATFORMS)


def write_small_release(folder: Path, name: str = "release.tar") -> Path:
    """Write a package; gives its path."""
    chart, path = folder / "chart", folder / name
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text(CHART)
    (chart / "templates" / "a.yaml").write_text("{}\n")
    contents = folder / "svc.spdx.json"
    contents.write_text("{}\n")
    write_release(path, PLAN, images(), chart, {"sbom/svc-linux-amd64.spdx.json": contents}, signing_key())
    return path


def read_entries(path: Path) -> dict[str, tuple[bytes, bytes]]:
    """The header and the content of each entry of a package, by its name."""
    octets, found, at = path.read_bytes(), {}, 0
    while (block := octets[at : at + BLOCK]) != bytes(BLOCK):
        size = int(block[124:135], 8)
        found[block[:100].rstrip(b"\0").decode()] = (block, octets[at + BLOCK : at + BLOCK + size])
        at += BLOCK + size + -size % BLOCK
    return found


def archive(entries: list[tuple[bytes, bytes]]) -> bytes:
    """An archive of headers and contents."""
    parts = b"".join(block + data + bytes(-len(data) % BLOCK) for block, data in entries) + bytes(2 * BLOCK)
    return parts + bytes(-len(parts) % RECORD)


def digest_entry(octets: bytes) -> str:
    """The path of a blob."""
    return Content(content(octets).digest, 0).entry


def _opener(octets: bytes):  # type: ignore[no-untyped-def]
    def opened() -> BinaryIO:
        return io.BytesIO(octets)

    return opened
