"""``svc install --offline-install``: a package onto a cluster that reaches a mirror alone."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.install.errors import PackageOther
from svc.cli.install.progress import amount, shown
from svc.cli.install.registries import Access, for_nodes, with_password, work_with
from svc.cli.install.request import Request
from svc.cli.install.rollout import Release, images_of, roll_out
from svc.install.deployment.errors import DeploymentError
from svc.install.deployment.helm import find_helm
from svc.install.registry.credentials import MIRROR, given_credentials
from svc.install.registry.references import parse_registry
from svc.install.release.errors import ReleaseRefused
from svc.install.release.keys import release_keys
from svc.install.release.manifests import MAX_CHART, read_all, read_contents
from svc.install.release.package import PackageFile, VerifiedPackage, verify_package
from svc.install.remote import push_package, push_size

#: As Go and the package name it.
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_MAX_HELM: Final = 256 << 20


def run_offline(request: Request, options: GlobalOptions, invocation: Invocation) -> int:
    """
    Verify the package, check the cluster, push to the mirror, install; returns the exit status.

    Raises:
        SvcError: the package is refused, the mirror takes it not, or see :func:`svc.cli.install.rollout.roll_out`.
    """
    mirror = parse_registry(request.mirror.address)
    keys = release_keys(request.release_keys, invocation.environ)
    flags = with_password(request.mirror, MIRROR, invocation)
    given = given_credentials(mirror.host, MIRROR, flags.username, flags.password, invocation.environ)
    with ExitStack() as stack:
        file = stack.enter_context(PackageFile(request.file))
        with shown("verify", file.path.stat().st_size) as added:
            package = verify_package(file, keys, added)
        release = package.signed.release
        if request.version and request.version not in ("latest", release.version):
            raise PackageOther(found=release.version, wanted=request.version)
        package = _selected(package, request)
        contents = package.contents
        chart = file.read(contents.chart.blobs[-1].content.entry, MAX_CHART)
        found = Release(
            release.version,
            chart,
            str(mirror),
            images_of(contents),
            for_nodes(given),
            contents.platforms,
            helm=_packaged_helm(file, invocation.environ, stack),
            upgrade_from=release.upgrade_from,
            min_kubernetes=release.min_kubernetes,
        )
        size = push_size(package)

        async def push(access: Access) -> None:
            with shown("push", size) as added:
                await push_package(mirror, access.client, package, added)

        def before() -> None:
            work_with(push, mirror, flags, MIRROR, options, invocation)

        plan = [f"push: {each.blob.repository} {each.blob.content.digest} to {mirror}" for each in contents.manifests]
        plan.append(f"push: at most {amount(size)}; what the mirror has is left out")
        return roll_out(found, request.wishes, invocation, plan=plan, before=before)


def _selected(package: VerifiedPackage, request: Request) -> VerifiedPackage:
    """Return the package with the platforms that are wanted."""
    if not request.platforms:
        return package
    for each in request.platforms:
        if each not in package.contents.platforms:
            available = ", ".join(package.contents.platforms)
            raise ReleaseRefused("release_platform_unknown", platform=each, available=available)
    release = package.signed.release
    reading = read_contents(release, release.selected(request.platforms))
    return replace(package, contents=read_all(reading, lambda blob: package.file.read(blob.content.entry)))


def _packaged_helm(file: PackageFile, environ: Mapping[str, str], stack: ExitStack) -> str:
    """Return a Helm of the package where there is no other one; empty for none."""
    try:
        find_helm(environ)
    except DeploymentError:
        name = f"tools/helm-linux-{_MACHINES.get(platform.machine(), platform.machine())}"
        if name not in file.entries:
            return ""
        path = Path(stack.enter_context(TemporaryDirectory(prefix="svc-helm-")), "helm")
        path.write_bytes(file.read(name, _MAX_HELM))
        os.chmod(path, 0o700)
        return str(path)
    return ""
