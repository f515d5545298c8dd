"""The layers above the base: the dependencies of svc, which are kept, and svc itself, which is made anew each time."""

from __future__ import annotations

import configparser
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from images.archive import Content, Layer, tree, write_layer
from images.base import Base
from images.cache import TOP, Kept, checked, kept, report
from images.pinned import MODULE

#: Where Debian's interpreter looks, behind :data:`_OWN`.
_SHARED: Final = "usr/lib/python3/dist-packages"
_OWN: Final = "usr/local/lib/python{version}/dist-packages"
#: Debian has it too.
_TIME_ZONES: Final = "tzdata/zoneinfo"
#: Tests, sources of extensions, and what only type checkers and compilers read.
_UNWANTED_FOLDERS: Final = frozenset({"test", "tests", "testing_data", "include", "docs"})
_UNWANTED_SUFFIXES: Final = (".pyi", ".c", ".h", ".pyx", ".pxd", ".so.debug")
#: A module for each resource, generated and loaded when one is used: 110 MB. The dynamic client of svc.kube uses none.
_GENERATED: Final = tuple(
    f"kubernetes/{client}/{part}/*_*.py" for client in ("client", "aio/client") for part in ("api", "models")
)
#: As in ``setup.cfg`` for wheels: packages that only a checkout has.
_NOT_RELEASED: Final = ("testvendor",)
_SCRIPT: Final = """#!/usr/bin/python3
import sys

from {module} import {name}

sys.exit({name}())
"""
_SCRIPTS: Final = {"svc": ("svc.cli.entry", "main"), "twistd": ("twisted.scripts.twistd", "run")}
#: The list of Twisted's plugins, sorted; newer than the modules, or it is written again at each start.
_CACHE: Final = """
import pickle, sys
from pathlib import Path
import twisted.plugin, twisted.plugins
twisted.plugin.getCache(twisted.plugins)
for folder in map(Path, sys.argv[1:]):
    path = folder / "twisted/plugins/dropin.cache"
    path.write_bytes(pickle.dumps(dict(sorted(pickle.loads(path.read_bytes()).items())), protocol=4))
"""


def dependencies(base: Base, extras: Sequence[str]) -> Kept:
    """The packages that svc with these extras needs, in the versions of ``constraints.txt``."""
    constraints = (TOP / "constraints.txt").read_text()
    wanted = _requirements(extras)
    inputs = [Path(__file__).read_text(), base.layer.diff_id, constraints, *wanted]
    return kept("dependencies", inputs, lambda files, path: _install(base, wanted, files, path))


def own_files(
    base: Base, site: Path, extras: Sequence[str], folder: Path, pinned: str | None
) -> dict[str, Path | Content]:
    """
    Give the entries of the layer with svc.

    Args:
        base: its interpreter compiles them.
        site: the dependencies.
        extras: for which ``site`` was made.
        folder: an empty one for what is made.
        pinned: the module with the vendor's keys; None for that of the source.

    Returns:
        Files by their path in the image.
    """
    own = _OWN.format(version=base.python)
    packages = folder / "packages"
    ignored = shutil.ignore_patterns("__pycache__", "dropin.cache", "*.pyc", *_NOT_RELEASED)
    for name in ("svc", "twisted"):
        shutil.copytree(TOP / name, packages / name, ignore=ignored)
    if pinned is not None:
        (packages / MODULE).write_text(pinned)
    _write_metadata(packages, extras)
    base.compile(packages, f"/{own}")
    base.run("-c", _CACHE, str(packages), path=f"{packages}:{site}")
    entries: dict[str, Path | Content] = dict(tree(packages, own))
    plugins = "twisted/plugins/dropin.cache"
    entries[f"{own}/{plugins}"] = Content((packages / plugins).read_bytes(), mtime=1)
    for script, (module, name) in _SCRIPTS.items():
        entries[f"usr/local/bin/{script}"] = Content(_SCRIPT.format(module=module, name=name).encode(), mode=0o755)
    return entries


def _requirements(extras: Sequence[str]) -> list[str]:
    metadata = _metadata()
    listed = [metadata["options"]["install_requires"]]
    listed += [metadata["options.extras_require"][extra] for extra in extras]
    return [line for each in listed for line in each.splitlines() if line]


def _metadata() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(TOP / "setup.cfg")
    return parser


def _install(base: Base, wanted: list[str], files: Path, path: Path) -> Layer:
    report("installing the dependencies of svc for the image (some seconds, once)")
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(base.glibc, 4, -1)] + [f"manylinux2014_{machine}"]
    checked(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--target", files, "--constraint", TOP / "constraints.txt", "--only-binary", ":all:"),
            *("--implementation", "cp", "--python-version", base.python, *(f"--platform={each}" for each in tags)),
            *wanted,
        ],
        "installing the dependencies",
    )
    for unwanted in sorted(_unwanted(files)):
        if unwanted.is_dir():
            shutil.rmtree(unwanted)
        else:
            unwanted.unlink(missing_ok=True)
    base.compile(files, f"/{_SHARED}")
    base.run("-c", _CACHE, str(files), path=str(files))
    cache = "twisted/plugins/dropin.cache"
    listed = Content((files / cache).read_bytes(), mtime=1)
    return write_layer(path, [*tree(files, _SHARED), (f"{_SHARED}/{cache}", listed)])


def _unwanted(files: Path) -> Iterator[Path]:
    yield from (files / "bin", files / _TIME_ZONES)
    yield from (path for each in _GENERATED for path in files.glob(each) if path.name != "__init__.py")
    for path in files.rglob("*"):
        unwanted = path.name in _UNWANTED_FOLDERS and path.is_dir()
        # A RECORD lists the files before these were taken out.
        if unwanted or path.suffix in _UNWANTED_SUFFIXES or path.match("*.dist-info/RECORD"):
            yield path


def _write_metadata(packages: Path, extras: Sequence[str]) -> None:
    from svc import __version__

    found = _metadata()["metadata"]
    lines = ["Metadata-Version: 2.1", f"Name: {found['name']}", f"Version: {__version__}"]
    lines += [f"Summary: {found['description']}", f"License: {found['license']}"]
    lines += [f"Requires-Dist: {each}" for each in _requirements(extras)]
    folder = packages / f"svc-{__version__}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
