"""
``bin/release``: the options and the steps, each of which is one line of output.

A release is a commit whose version, changelog and artifacts agree; making one again gives the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from images.cache import ImageFailed
from images.pinned import MODULE, add_options, pinned_module, remarks
from licensing.keyfile import read_signing_key
from release.changelog import newest_section
from release.package import Plan, contents_files, read_images, write_release
from release.plugin import write_archive, write_manifest
from release.push import push
from release.tar import rewrite_tar
from release.versions import newer_than_tags
from svc import __version__
from svc.data import FOLDER
from svc.errors import SvcError

TOP: Final = Path(__file__).resolve().parents[1]
FRAGMENTS: Final = Path("docs/newsfragments")
_KEPT: Final = "template.md.jinja"


class ReleaseFailed(Exception):
    """
    The commit is not a release.

    Args:
        sentence: what is wrong.
        hint: what to do.
    """

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class Release:
    """
    The steps, in a checkout.

    Args:
        top: the checkout.
        version: of the sources.
        output: where the artifacts go.
        report: takes each line.
    """

    def __init__(self, top: Path, version: str, output: Path, report: Callable[[str], object]) -> None:
        self._top = top
        self._version = version
        self._output = output
        self._report = report

    def write_changelog(self, date: str) -> None:
        """
        Make a section of ``CHANGELOG.md`` of the fragments, and remove these; nothing is committed.

        Args:
            date: of the release, as ``2026-11-27``; empty: today.

        Raises:
            ReleaseFailed: the version has a section, there are no fragments, or towncrier fails.
        """
        if newest_section((self._top / "CHANGELOG.md").read_text())[0] == self._version:
            raise ReleaseFailed(
                f"CHANGELOG.md has a section of {self._version} already", "set the next __version__ in svc/__init__.py"
            )
        if not self._fragments():
            raise ReleaseFailed(f"{FRAGMENTS} has no fragments", "a release without a change is none")
        given = ["--date", date] if date else []
        self._run([sys.executable, "-m", "towncrier", "build", "--yes", "--version", self._version, *given])
        self._report(f"changelog: {self._version}; commit it with the removal of the fragments")

    def check(self) -> str:
        """
        Compare version, tags, changelog and working tree; gives the section of the changelog.

        Raises:
            ReleaseFailed: they do not agree.
        """
        if problem := newer_than_tags(self._version, self._run(["git", "tag", "--list", "v*"]).split()):
            raise ReleaseFailed(problem, "set __version__ in svc/__init__.py, then python -m docs.generator")
        self._report(f"version: {self._version}")
        changed = self._run(["git", "status", "--porcelain"]).splitlines()
        if changed:
            raise ReleaseFailed(f"{len(changed)} files are not committed: {changed[0][3:]}", "a release is a commit")
        if left := self._fragments():
            raise ReleaseFailed(
                f"{len(left)} fragments are not in CHANGELOG.md, the first is {left[0]}",
                "bin/release --write-changelog, then commit",
            )
        text = (self._top / "CHANGELOG.md").read_text()
        found, section = newest_section(text)
        if found != self._version:
            raise ReleaseFailed(
                f"the newest section of CHANGELOG.md is {found or 'missing'}, not {self._version}",
                "bin/release --write-changelog, then commit",
            )
        self._report(f"changelog: {len(section.splitlines())} lines for {self._version}")
        return section

    def build(self, url: str, pinned: str) -> None:
        """
        Make sdist and wheel, the wheel from the sdist, and the plugin of kubectl; check and list them.

        Args:
            url: the folder from which the plugin's archive will be downloaded.
            pinned: the module with the vendor's keys.

        Raises:
            ReleaseFailed: a tool fails.
        """
        self._output.mkdir(parents=True, exist_ok=True)
        seconds = self._run(["git", "log", "-1", "--format=%ct"]).strip()
        environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
        with tempfile.TemporaryDirectory(prefix="svc-release-") as temporary:
            source = Path(temporary)
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=self._top, capture_output=True, check=True)
            subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
            (source / MODULE).write_text(pinned)
            self._run(
                [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(self._output)], source, environment
            )
        made = sorted(path for path in self._output.iterdir() if path.name.startswith(f"svc-{self._version}"))
        rewrite_tar(self._output / f"svc-{self._version}.tar.gz", int(seconds))
        self._run([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)])
        plugin = write_archive(self._output, self._version, int(seconds), self._top / "LICENSE")
        manifest = write_manifest(self._output, self._version, plugin, url)
        for path in (*made, plugin, manifest):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            self._report(f"built: {path.name}  {path.stat().st_size} octets  sha256:{digest}")

    def tag(self, section: str, *, really: bool) -> None:
        """
        Tag the commit, with the section as the message, or say what would be tagged.

        Args:
            section: of the changelog.
            really: false: only say it.
        """
        commit = self._run(["git", "rev-parse", "--short", "HEAD"]).strip()
        name = f"v{self._version}"
        if really:
            self._run(["git", "tag", "--annotate", "--cleanup=verbatim", "--message", f"svc {section}", name])
            self._report(f"tagged {commit} as {name}; nothing was pushed or uploaded")
        else:
            self._report(f"would tag {commit} as {name}; --tag does it")

    def _fragments(self) -> list[str]:
        folder = self._top / FRAGMENTS
        return sorted(path.name for path in folder.iterdir() if path.name not in (_KEPT, ".gitignore"))

    def _run(
        self, command: Sequence[str], folder: Path | None = None, environment: dict[str, str] | None = None
    ) -> str:
        ran = subprocess.run(
            list(command), cwd=folder or self._top, env=environment, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            lines = (ran.stderr + ran.stdout).strip().splitlines()
            name = " ".join(each for each in command[:4] if each != sys.executable)
            raise ReleaseFailed(f"{name}: {lines[-1] if lines else 'it wrote nothing'}", "run it by hand to see more")
        return ran.stdout


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/release",
        allow_abbrev=False,
        description="Check that this commit is a release, make its artifacts, and say what would be tagged.",
        epilog="Nothing is pushed or uploaded. A release: set __version__, python -m docs.generator, "
        "bin/release --write-changelog, commit, bin/release, bin/release --tag. What svc install "
        "installs is made by bin/release package, and published by bin/release push.",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="keep the artifacts there (default: thrown away)")
    parser.add_argument(
        "--plugin-url",
        default="https://svc.internal/releases",
        metavar="URL",
        help="where the archive of the kubectl plugin will be downloaded, for its manifest (default: %(default)s)",
    )
    parser.add_argument("--write-changelog", action="store_true", help="make the section of the fragments, and exit")
    parser.add_argument("--date", default="", metavar="YYYY-MM-DD", help="of that section (default: today)")
    parser.add_argument("--tag", action="store_true", help="tag the commit, after all checks")
    add_options(parser)
    return parser.parse_args(given)


def _package_arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/release package",
        allow_abbrev=False,
        description="Make the package of a release: the images, the chart and the lists of contents, signed, as one "
        "file that svc install reads, and skopeo as an OCI layout.",
        epilog="bin/license-sign new-key makes the keys. The same images and chart give the same file, but for the "
        "ML-DSA signature. SOURCE_DATE_EPOCH is the time of the release; by default it is that of the commit.",
    )
    parser.add_argument(
        "--images",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="what bin/image --output DIR made; once for each platform",
    )
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="the private keys that sign it")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="its first line decrypts the keys")
    parser.add_argument(
        "--upgrade-from", required=True, metavar="VERSION", help="the lowest version that may be upgraded to this one"
    )
    parser.add_argument("--channel", default="stable", metavar="NAME", help="default: %(default)s")
    parser.add_argument(
        "--helm",
        action="append",
        default=[],
        metavar="OS-ARCH=FILE",
        help="put helm for hosts of this kind, as linux-amd64, into the package; may be repeated",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help=f"the package (default: svc-release-{__version__}.tar)"
    )
    return parser.parse_args(given)


def _package(given: Sequence[str]) -> None:
    arguments = _package_arguments(given)
    key = read_signing_key(arguments.key, arguments.passphrase_file)
    path = arguments.output or Path(f"svc-release-{__version__}.tar")
    plan = Plan(__version__, arguments.channel, arguments.upgrade_from, _time_of_release())
    files: dict[str, Path] = {}
    for each in arguments.helm:
        kind, _equals, file = each.partition("=")
        if not Path(file).is_file():
            raise ReleaseFailed(f"--helm {each} names no file", "as in --helm linux-amd64=/usr/local/bin/helm")
        files[f"tools/helm-{kind}"] = Path(file)
    images = []
    with ExitStack() as stack:
        for folder in arguments.images:
            found = read_images(folder, __version__, stack)
            images += found
            files |= contents_files(folder, found)
        digest = write_release(path, plan, images, FOLDER / "chart", files, key)
    print(f"release: {path}  {path.stat().st_size} octets  {digest}")
    print(f"release: it is verified with the public key of {key.issuer}, {key.public.kids['Ed25519']}")


def _time_of_release() -> datetime:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        command = ["git", "log", "-1", "--format=%ct"]
        given = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout
    return datetime.fromtimestamp(int(given), UTC)


def main(given: Sequence[str]) -> int:
    """Run ``bin/release``; gives the exit status."""
    try:
        if given[:1] == ["package"]:
            _package(given[1:])
            return 0
        if given[:1] == ["push"]:
            push(given[1:])
            return 0
        return _release(given)
    except SvcError as error:
        sentence, hint = f"{error} ({error.reason})", error.hint
    except ImageFailed as error:
        sentence, hint = error.sentence, error.hint
    except ReleaseFailed as error:
        sentence, hint = str(error), error.hint
    print(f"release: {sentence}" + (f"\n         {hint}" if hint else ""), file=sys.stderr)
    return 1


def _release(given: Sequence[str]) -> int:
    arguments = _arguments(given)
    temporary = None if arguments.output else tempfile.mkdtemp(prefix="svc-release-")
    output = Path(temporary or arguments.output).absolute()
    release = Release(TOP, __version__, output, lambda line: print(f"release: {line}", flush=True))
    try:
        if arguments.write_changelog:
            release.write_changelog(arguments.date)
            return 0
        pinned = pinned_module(arguments)
        for line in remarks(arguments):
            print(f"release: {line}", flush=True)
        section = release.check()
        release.build(arguments.plugin_url, pinned)
        release.tag(section, really=arguments.tag)
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
