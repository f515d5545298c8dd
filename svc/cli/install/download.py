"""``svc install --download``: the release of a registry as one file, for a cluster that reaches no registry."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.install.errors import DownloadRefused
from svc.cli.install.progress import amount, shown
from svc.cli.install.registries import Access, registry_address, with_password, work_with
from svc.cli.install.request import Request
from svc.errors import SvcError, printable
from svc.install.registry.credentials import REGISTRY
from svc.install.release.keys import release_keys
from svc.install.release.layout import entry_size, package_entries
from svc.install.release.manifests import Contents
from svc.install.release.package import PackageFile, verify_package, write_package
from svc.install.release.signature import SignedRelease
from svc.install.remote import LATEST, Remote, download_size
from svc.license.vendors import VendorKey

#: Free octets beside those of the package, for the file system itself.
_MARGIN = 16 << 20


def run_download(request: Request, options: GlobalOptions, invocation: Invocation) -> int:
    """
    Download, or list what would be; returns the exit status.

    What an interrupted run has left in ``FILE.partial`` is continued.

    Raises:
        SvcError: the release cannot be had or is refused, or the file cannot be written.
    """
    registry = registry_address(request.registry, invocation)
    keys = release_keys(request.release_keys, invocation.environ)
    flags = with_password(request.registry, REGISTRY, invocation)
    console = invocation.console

    async def run(access: Access) -> tuple[SignedRelease, Contents, Path] | None:
        with TemporaryDirectory(prefix="svc-release-") as folder:
            first = Remote(registry, access.client, Path(folder))
            found = await first.find(request.version or LATEST, keys)
            signed, release = found.signed, found.signed.release
            console.write_stderr(f"release: {request.version or LATEST} is {release.version}, {found.digest}")
            contents = await first.contents(release, release.selected(request.platforms or None))
        if request.wishes.dry_run:
            console.write_text("".join(f"{line}\n" for line in _listed(signed, contents)))
            return None
        path = Path(request.file or f"svc-release-{release.version}.tar")
        if _complete(path, signed, contents, keys):
            console.write_text(f"{printable(path)} is complete already: release {release.version}\n")
            return None
        partial = path.with_name(f"{path.name}.partial")
        _check_space(path, partial, signed, contents)
        with shown("download", download_size(signed, contents)) as added:
            await Remote(registry, access.client, partial).download(signed, contents, added)
        return signed, contents, path

    if (ready := work_with(run, registry, flags, REGISTRY, options, invocation)) is None:
        return 0
    signed, contents, path = ready
    partial = path.with_name(f"{path.name}.partial")

    def opened(name: str) -> BinaryIO:
        wanted = signed.release.files.get(name)
        return (partial / (name if wanted is None else wanted.entry)).open("rb")

    with shown("write and verify", 2 * _size(signed, contents)) as added:
        digest = write_package(path, signed, contents, opened, added)
    shutil.rmtree(partial, ignore_errors=True)
    size = amount(path.stat().st_size)
    console.write_text(f"release {signed.release.version} for {', '.join(contents.platforms)}: {size}\n")
    console.write_text(f"{digest.removeprefix('sha256:')}  {printable(path)}\n")
    return 0


def _listed(signed: SignedRelease, contents: Contents) -> Sequence[str]:
    lines = [f"release {signed.release.version}, for {', '.join(contents.platforms)}"]
    for each in contents.images:
        for one, platform in zip(each.manifests, contents.platforms, strict=True):
            size = amount(sum(blob.content.size for blob in one.blobs))
            lines.append(f"{each.image.repository}:{each.image.tag} {platform} {one.blob.content.digest} {size}")
    chart = contents.chart.blob
    lines.append(f"{chart.repository}:{signed.release.chart.version} {chart.content.digest}")
    lines += [f"{path} {each.digest} {amount(each.size)}" for path, each in signed.release.files.items()]
    return [*lines, f"in all {amount(_size(signed, contents))}"]


def _size(signed: SignedRelease, contents: Contents) -> int:
    return sum(map(entry_size, package_entries(signed, contents).values()))


def _complete(path: Path, signed: SignedRelease, contents: Contents, keys: Sequence[VendorKey]) -> bool:
    """
    Whether the file is there with this release and these platforms.

    Raises:
        DownloadRefused: another file is there.
    """
    if not path.exists():
        return False
    try:
        with PackageFile(path) as file:
            package = verify_package(file, keys)
    except SvcError as error:
        raise DownloadRefused("package_there", path=path, what=f"no package that can be used: {error}") from error
    there, platforms = package.signed.release, package.contents.platforms
    if (there.to_octets(), platforms) != (signed.release.to_octets(), contents.platforms):
        what = f"release {there.version} for {', '.join(platforms)}"
        raise DownloadRefused("package_there", path=path, what=what)
    return True


def _check_space(path: Path, partial: Path, signed: SignedRelease, contents: Contents) -> None:
    """Check that parts and package fit on the disk, less what is there already."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise DownloadRefused("download_folder_missing", path=folder)
    there = sum(each.stat().st_size for each in partial.rglob("*") if each.is_file()) if partial.is_dir() else 0
    needed = download_size(signed, contents) + _size(signed, contents) + _MARGIN - there
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        raise DownloadRefused("download_folder_closed", path=folder)
    if free < needed:
        raise DownloadRefused("download_no_space", path=folder, free=amount(free), needed=amount(needed))
