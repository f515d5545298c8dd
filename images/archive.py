"""
OCI images as single files: layers from trees of files, and archives that ``ctr images import`` and ``skopeo`` read.

The same files give the same octets: names are sorted, and owners, times and the compression do not depend on when and
by whom they were made. Specification: OCI Image Format 1.1.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
#: Levels above it cost seconds and save little.
_LEVEL: Final = 6
_SETUID: Final = stat.S_ISUID | stat.S_ISGID
#: Machine names of the kernel, as Go calls them.
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


@dataclass(frozen=True)
class Layer:
    """
    One layer in a file.

    Args:
        path: of the compressed tar archive.
        digest: of that file.
        diff_id: the digest of what it contains.
    """

    path: Path
    digest: str
    diff_id: str


@dataclass(frozen=True)
class Content:
    """
    What a layer has at a path, beside what is copied from a tree.

    Args:
        data: of a file; None for a folder, or for a symbolic link.
        target: of a symbolic link.
        mode: the permissions.
        mtime: seconds since 1970.
    """

    data: bytes | None = None
    target: str | None = None
    mode: int = 0o644
    mtime: int = 0


@dataclass(frozen=True)
class Image:
    """
    What an archive says of its image.

    Args:
        name: with a tag, as ``svc.internal/svc:0.2.0``.
        layers: the lowest first.
        config: ``config`` of the image configuration: User, Entrypoint, Env, Labels.
        created: RFC 3339.
    """

    name: str
    layers: Sequence[Layer]
    config: Mapping[str, Any]
    created: str = "1970-01-01T00:00:00Z"
    annotations: Mapping[str, str] = field(default_factory=dict)


class _Digesting(io.RawIOBase):
    """Passes on what is written, and hashes it."""

    def __init__(self, below: BinaryIO | gzip.GzipFile, digest: _Hash) -> None:
        self._below, self._digest = below, digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._digest.update(data)
        return self._below.write(data)


def write_layer(path: Path, entries: Iterable[tuple[str, Path | Content]]) -> Layer:
    """
    Write a layer.

    Args:
        path: of the file.
        entries: paths from the root without a leading slash, each with the file, link or folder that it is a copy of;
            of those with the same path the last one counts. All belong to root; nothing is setuid.

    Returns:
        The layer.
    """
    content, compressed = hashlib.sha256(), hashlib.sha256()
    with path.open("wb") as file:
        below = _Digesting(file, compressed)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=below, mtime=0) as zipped:
            above = _Digesting(zipped, content)
            with tarfile.open(fileobj=above, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                for name, source in sorted(_with_parents(dict(entries)).items()):
                    _add(archive, name, source)
    return Layer(path, f"sha256:{compressed.hexdigest()}", f"sha256:{content.hexdigest()}")


def tree(folder: Path, at: str = "", wanted: Callable[[str], bool] = lambda _path: True) -> Iterator[tuple[str, Path]]:
    """
    Give everything below a folder as entries of a layer.

    Args:
        folder: the folder.
        at: where it goes, from the root; "" for the root itself.
        wanted: is asked with each path from the folder; what is below a folder that is not wanted is left out.
    """
    for name in sorted(os.listdir(folder)):
        yield from _below(folder, name, f"{at}/" if at else "", wanted)


def _below(folder: Path, name: str, prefix: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Path]]:
    path = folder / name
    if not wanted(name):
        return
    yield prefix + name, path
    if path.is_dir() and not path.is_symlink():
        for each in sorted(os.listdir(path)):
            yield from _below(folder, f"{name}/{each}", prefix, wanted)


def write_archive(path: Path, image: Image) -> str:
    """
    Write an OCI archive: an OCI layout as a tar file.

    Args:
        path: of the file.
        image: the image.

    Returns:
        The digest of its manifest, which names the image.
    """
    architecture = _ARCHITECTURES.get(os.uname().machine, os.uname().machine)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": image.created,
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in image.layers]},
            "history": [{"created": image.created, "created_by": "bin/image"} for _ in image.layers],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described(_CONFIG, config),
            "layers": [
                {"mediaType": _LAYER, "digest": each.digest, "size": each.path.stat().st_size} for each in image.layers
            ],
            "annotations": dict(image.annotations),
        }
    )
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name.rpartition(":")[2]}
    listed = {**_described(_MANIFEST, manifest), "annotations": names}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [listed]})
    blobs: dict[str, Path | Content] = {_blob(each.digest): each.path for each in image.layers}
    blobs |= {_blob(_digest(data)): Content(data) for data in (config, manifest)}
    blobs |= {"index.json": Content(index), "oci-layout": Content(b'{"imageLayoutVersion":"1.0.0"}')}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, source in sorted(_with_parents(blobs).items()):
            _add(archive, name, source)
    return _digest(manifest)


def _add(archive: tarfile.TarFile, name: str, source: Path | Content) -> None:
    entry = tarfile.TarInfo(name)
    if isinstance(source, Content):
        entry.mode, entry.mtime = source.mode, source.mtime
        if source.target is not None:
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, source.target, 0o777
        elif source.data is None:
            entry.type = tarfile.DIRTYPE
        else:
            entry.size = len(source.data)
        archive.addfile(entry, None if source.data is None else io.BytesIO(source.data))
        return
    found = source.lstat()
    entry.mode = stat.S_IMODE(found.st_mode) & ~_SETUID
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(source), 0o777
        archive.addfile(entry)
    elif stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
        with source.open("rb") as file:
            archive.addfile(entry, file)
    else:
        raise ValueError(f"{source} is neither a file, nor a folder, nor a link")


def _with_parents(entries: Mapping[str, Path | Content]) -> dict[str, Path | Content]:
    """Add the folders that no entry names."""
    parents = {str(each) for name in entries for each in Path(name).parents} - {"."}
    return {**{each: Content(mode=0o755) for each in parents}, **entries}


def _described(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
