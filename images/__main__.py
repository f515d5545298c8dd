"""``python -m images``, which ``bin/image`` calls."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from images import sbom
from images.archive import Content, Image, Layer, write_archive, write_layer
from images.base import base, given_base
from images.cache import TOP, ImageFailed, checked, report
from images.pinned import add_options, pinned_module, remarks
from images.python import dependencies, own_files
from svc import __version__
from svc.naming import DOMAIN

USER: Final = 65532
#: Images of one static program each: the program, and the tool of ``bin/tools`` that has it.
STATIC: Final = {
    "spire-server": ("spire-server", "spire"),
    "spire-agent": ("spire-agent", "spire"),
}
#: Images of the product, with the extras of svc that each has.
PYTHON: Final[dict[str, tuple[str, ...]]] = {"svc": (), "svc-manager": ("kubernetes",)}
NAMES: Final = (*PYTHON, *STATIC)
_SBOM_PATH: Final = "usr/share/sbom/{name}.spdx.json"
_USERS: Final = f"nonroot:x:{USER}:{USER}:nonroot:/nonexistent:/usr/sbin/nologin\n"
_GROUPS: Final = f"nonroot:x:{USER}:\n"


def build(name: str, folder: Path, base_tree: Path | None = None, pinned: str | None = None) -> str:
    """
    Build an image as ``NAME.tar``, and its list of contents as ``NAME.spdx.json``.

    Args:
        name: one of :data:`NAMES`.
        folder: where they go.
        base_tree: the files of another base for images of the product; by default it is made by debootstrap.
        pinned: the module with the vendor's keys, for images of the product; None for that of the source.

    Returns:
        The digest of the image.

    Raises:
        ImageFailed: it could not be made.
    """
    with tempfile.TemporaryDirectory(prefix=f"svc-image-{name}-") as work:
        made = _python(name, Path(work), base_tree, pinned) if name in PYTHON else _static(name, Path(work))
        layers, contents, config = made
        (folder / f"{name}.spdx.json").write_bytes(contents)
        labels = {
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": __version__,
            "org.opencontainers.image.vendor": "The svc project",
        }
        config = {"User": f"{USER}:{USER}", "WorkingDir": "/", "Labels": labels, **config}
        image = Image(f"{DOMAIN}/{name}:{__version__}", layers, config, _created(), labels)
        return write_archive(folder / f"{name}.tar", image)


def _python(
    name: str, work: Path, base_tree: Path | None, pinned: str | None
) -> tuple[list[Layer], bytes, dict[str, Any]]:
    below = base() if base_tree is None else given_base(base_tree, work)
    extras = PYTHON[name]
    needed = dependencies(below, extras)
    entries = own_files(below, needed.files, extras, work, pinned)
    packages = [
        *sbom.debian_packages(below.files / "var/lib/dpkg/status"),
        *sbom.python_packages(needed.files),
        *sbom.python_packages(work / "packages"),
    ]
    contents = _encoded(sbom.document(name, __version__, packages, _created()))
    entries |= {
        "etc/passwd": Content((below.files / "etc/passwd").read_bytes() + _USERS.encode()),
        "etc/group": Content((below.files / "etc/group").read_bytes() + _GROUPS.encode()),
        _SBOM_PATH.format(name=name): Content(contents),
    }
    own = write_layer(work / "own.tar.gz", entries.items())
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    config = {"Cmd": ["svc", "--help"], "Env": [f"{key}={value}" for key, value in environment.items()]}
    return [below.layer, needed.layer, own], contents, config


def _static(name: str, work: Path) -> tuple[list[Layer], bytes, dict[str, Any]]:
    program, tool = STATIC[name]
    path = Path(checked([TOP / "bin" / "tools", tool], tool).strip()) / program
    contents = _encoded(sbom.document(name, __version__, sbom.go_packages(path), _created()))
    entries: dict[str, Path | Content] = {
        f"usr/local/bin/{program}": path,
        "tmp": Content(mode=0o1777),
        "etc/passwd": Content(b"root:x:0:0:root:/:/usr/sbin/nologin\n" + _USERS.encode()),
        "etc/group": Content(b"root:x:0:\n" + _GROUPS.encode()),
        _SBOM_PATH.format(name=name): Content(contents),
    }
    layer = write_layer(work / "layer.tar.gz", entries.items())
    return [layer], contents, {"Entrypoint": [f"/usr/local/bin/{program}"], "Env": ["PATH=/usr/local/bin"]}


def push(folder: Path, name: str, registry: str, *, insecure: bool) -> None:
    """
    Push an image to a registry.

    Args:
        folder: with its archive.
        name: of the image.
        registry: host and path, before the name of the image.
        insecure: by HTTP, or by HTTPS without a verified certificate; so is one on this host, as container runtimes
            have it.

    Raises:
        ImageFailed: skopeo is missing, or the registry refused it.
    """
    target = f"docker://{registry}/{name}:{__version__}"
    local = registry.partition("/")[0].partition(":")[0] in ("localhost", "127.0.0.1")
    options = ["--dest-tls-verify=false"] if insecure or local else []
    command = ["skopeo", "--insecure-policy", "copy", "--quiet", *options]
    try:
        checked([*command, f"oci-archive:{folder / name}.tar", target], f"{target} was not pushed")
    except ImageFailed as error:
        hint = "is the registry there, and skopeo logged in? --insecure pushes to one without TLS"
        raise ImageFailed(error.sentence, error.hint or hint) from error


def _created() -> str:
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _encoded(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/image",
        description=f"Build the images {', '.join(NAMES)} as OCI archives, which bin/cluster load and skopeo read, and "
        "the SPDX document of each. The same sources give the same digests.",
        epilog="The base of svc, and its dependencies, are kept in ${XDG_CACHE_HOME:-~/.cache}/svc-tools: remove "
        "image-base-* there to get newer Debian packages. SOURCE_DATE_EPOCH is the time of creation that images state.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="where NAME.tar and NAME.spdx.json go (default: build/images)"
    )
    parser.add_argument(
        "--base", type=Path, metavar="DIR", help="a Debian tree with python3 instead of the one that debootstrap makes"
    )
    parser.add_argument("--only", choices=NAMES, metavar="NAME", help="this image alone")
    parser.add_argument(
        "--push", metavar="REGISTRY/PREFIX", help="push them as REGISTRY/PREFIX/NAME:VERSION, by skopeo"
    )
    parser.add_argument("--insecure", action="store_true", help="with --push: a registry without TLS")
    add_options(parser)
    return parser


def main(given: Sequence[str]) -> int:
    """Build what is asked for; gives the exit status."""
    options = _parser().parse_args(given)
    try:
        pinned = pinned_module(options)
        for line in remarks(options):
            report(line)
        with tempfile.TemporaryDirectory(prefix="svc-images-") as temporary:
            # What is only pushed is not kept.
            folder = options.output or Path(temporary if options.push else "build/images")
            folder.mkdir(parents=True, exist_ok=True)
            for name in NAMES if options.only is None else (options.only,):
                began = time.monotonic()
                digest = build(name, folder, options.base, pinned)
                size = (folder / f"{name}.tar").stat().st_size / 1e6
                report(f"{name}: {size:.0f} MB in {time.monotonic() - began:.1f} s")
                if options.push:
                    push(folder, name, options.push, insecure=options.insecure)
                    print(f"{options.push}/{name}:{__version__}@{digest}")
                else:
                    print(f"{folder / name}.tar {digest}")
    except ImageFailed as error:
        report(error.sentence)
        if error.hint:
            print(f"     {error.hint}", file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        report(f"the images could not be made: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
