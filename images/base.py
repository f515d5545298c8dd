"""
The base of the image ``svc``: a Debian with the interpreter that Debian has, and little else.

It comes by debootstrap from the mirrors of this machine, with the security updates of that day, and is kept: remove its
folder to get newer packages.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from images.archive import Content, Layer, tree, write_layer
from images.cache import ImageFailed, checked, kept, report

_PACKAGES: Final = ("python3-minimal", "libpython3-stdlib")
#: What debootstrap needs and a container does not: it gets no packages, no users, no file systems and no logins.
_PURGED: Final = (
    *(
        "adduser",
        "apt",
        "debian-archive-keyring",
        "e2fsprogs",
        "gpgv",
        "libapt-pkg6.0",
        "libext2fs2",
        "libss2",
        "logsave",
    ),
    *("login", "mount", "passwd", "util-linux-extra"),
)
#: What the scripts of the former need.
_PURGED_LAST: Final = ("debconf", "init-system-helpers", "perl-base")
_LEFT_OUT: Final = (
    *("boot", "dev", "home", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp"),
    *(
        "usr/share/man",
        "usr/share/locale",
        "usr/share/info",
        "usr/share/lintian",
        "usr/share/bug",
        "usr/share/doc-base",
    ),
    *("usr/share/common-licenses", "usr/share/zoneinfo/posix", "usr/share/zoneinfo/right"),
    *("var/backups", "var/cache", "var/lib/apt", "var/lib/dpkg/info", "var/lib/dpkg/triggers", "var/log", "var/mail"),
    *("var/spool", "var/tmp", "var/local", "var/opt"),
    *("etc/hostname", "etc/machine-id", "etc/resolv.conf", "etc/apt", "etc/shadow", "etc/gshadow", "etc/subuid"),
    *("etc/subgid", "etc/mtab", "etc/cron.d", "etc/cron.daily", "etc/systemd", "etc/logrotate.d"),
)
#: Empty folders that programs expect; ``tmp`` may be written where the root is not read-only.
_FOLDERS: Final = {
    **dict.fromkeys(
        ("dev", "proc", "root", "run", "sys", "var/cache", "var/lib", "var/log", "etc"), Content(mode=0o755)
    ),
    **dict.fromkeys(("tmp", "var/tmp"), Content(mode=0o1777)),
}


@dataclass(frozen=True)
class Base:
    """
    The base in the cache.

    Args:
        files: its tree, before anything was left out.
        layer: the layer.
    """

    files: Path
    layer: Layer

    @cached_property
    def python(self) -> str:
        """The version of its interpreter, as ``3.11``."""
        return self.run("-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()

    @cached_property
    def glibc(self) -> int:
        """The minor version of its C library, which decides which wheels it can load."""
        return int(self.run("-c", "import platform; print(platform.libc_ver()[1].split('.')[1])"))

    def run(self, *arguments: str, path: str = "") -> str:
        """
        Run its interpreter, with its own libraries and none of this machine's.

        Args:
            arguments: those of ``python3``.
            path: of packages, beside the standard library.

        Returns:
            What it printed.
        """
        [loader] = (
            self.files.glob("lib64/ld-linux-*.so.2")
            if platform.machine() == "x86_64"
            else self.files.glob("lib/ld-linux-*")
        )
        libraries = ":".join(str(each) for each in self.files.glob("usr/lib/*-linux-gnu"))
        return checked(
            [loader, "--library-path", libraries, self.files / "usr/bin/python3", "-P", *arguments],
            "the interpreter of the image",
            PYTHONHOME=str(self.files / "usr"),
            PYTHONPATH=path,
            PYTHONHASHSEED="0",
            PYTHONDONTWRITEBYTECODE="1",
        )

    def compile(self, folder: Path, at: str) -> None:
        """
        Compile what is below a folder, so that a container needs neither to do it nor to compare times.

        Args:
            folder: the folder.
            at: its path in the image.
        """
        modes = ("--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", at)
        # Some packages have templates that are no Python; such files make the status 1, and are not imported.
        self.run("-c", f"import compileall, sys; sys.argv[1:] = {[*modes, '-qq', str(folder)]!r}; compileall.main()")


def base() -> Base:
    """Find the base, or make it."""
    suite, sources = _sources()
    found = kept(
        "base",
        [Path(__file__).read_text(), *sources, platform.machine()],
        lambda files, path: _make(suite, sources, files, path),
    )
    return Base(found.files, found.layer)


def given_base(tree_of: Path, work: Path) -> Base:
    """
    Take another base: a Debian with ``python3-minimal`` and ``libpython3-stdlib``, as debootstrap makes one.

    Args:
        tree_of: its files, which stay as they are.
        work: an empty folder for a copy and the layer.
    """
    files = work / "base"
    shutil.copytree(tree_of, files, symlinks=True, ignore=_not_copied)
    return Base(files, _layer(files, work / "base.tar.gz"))


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """Devices, sockets and pipes, which a tree of debootstrap has below ``dev``, and compiled modules."""
    kinds = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    copied = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return {name for name, mode in kinds.items() if name == "__pycache__" or not any(each(mode) for each in copied)}


def _sources() -> tuple[str, list[str]]:
    """The suite of this machine, and its lines for ``sources.list`` that come from Debian."""
    form = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
    lines = checked(["apt-get", "indextargets", "--format", form, "Identifier: Packages"], "the image").splitlines()
    found = [line.split() for line in lines]
    debian = [
        f"deb {uri} {suite} {part}" for uri, suite, part, *origin in found if origin == ["Debian"] and part == "main"
    ]
    main = [line.split()[2] for line in debian if "-" not in line.split()[2]]
    if not main:
        raise ImageFailed(
            "the image svc is made from Debian packages, and apt has no source of them", "run it on Debian"
        )
    return main[0], debian


def _make(suite: str, sources: list[str], files: Path, path: Path) -> Layer:
    if os.geteuid() != 0:
        raise ImageFailed("the base of the image is not there, and making it needs root", "run it once as root")
    if shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        raise ImageFailed("the base of the image needs debootstrap", "as root: apt-get install debootstrap")
    report(f"making the base of the image, Debian {suite} (a minute, once)")
    mirror = next(line.split()[1] for line in sources if line.split()[2] == suite)
    checked(
        ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", suite, files, mirror], "debootstrap"
    )
    (files / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in sources))
    with _in_use(files):
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        purge = ["dpkg", "--purge", "--force-depends", "--force-remove-essential"]
        for command in (
            ["apt-get", "update"],
            ["apt-get", "-y", "upgrade"],
            [*purge, *_PURGED],
            [*purge, *_PURGED_LAST],
        ):
            checked(["chroot", files, *command], "the base of the image", **quiet)
    for each in files.rglob("__pycache__"):
        shutil.rmtree(each)
    return _layer(files, path)


def _layer(files: Path, path: Path) -> Layer:
    """Compile the standard library in a tree, and write what of the tree goes into images."""
    libraries = list(files.glob("usr/lib/python3.*"))
    if not libraries:
        raise ImageFailed(f"{files} has no usr/lib/python3.*", "a base needs python3-minimal and libpython3-stdlib")
    made = Base(files, Layer(path, "", ""))
    for library in libraries:
        made.compile(library, f"/{library.relative_to(files)}")
    return write_layer(path, [*tree(files, wanted=_wanted), *_FOLDERS.items()])


def _wanted(path: str) -> bool:
    if path.startswith("usr/share/doc/"):
        # Licences stay.
        return path.count("/") == 3 or path.endswith("/copyright")
    return path not in _LEFT_OUT and not path.endswith(("-old", "~", "/passwd-", "/group-", "/shadow-", "/gshadow-"))


@contextlib.contextmanager
def _in_use(files: Path) -> Iterator[None]:
    """Let programs in the tree reach the network."""
    shutil.copy("/etc/resolv.conf", files / "etc/resolv.conf")
    checked(["mount", "-t", "proc", "proc", files / "proc"], "the base of the image")
    try:
        yield
    finally:
        checked(["umount", files / "proc"], "the base of the image")
