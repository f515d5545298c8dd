"""``svc install --online``: the release of a registry onto a cluster."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.install.registries import Access, for_nodes, registry_address, with_password, work_with
from svc.cli.install.request import Request
from svc.cli.install.rollout import Release, images_of, roll_out
from svc.install.registry.credentials import REGISTRY
from svc.install.release.keys import release_keys
from svc.install.remote import LATEST, Remote


def run_online(request: Request, options: GlobalOptions, invocation: Invocation) -> int:
    """
    Install or upgrade; returns the exit status.

    Raises:
        SvcError: the release cannot be had or is refused, or see :func:`svc.cli.install.rollout.roll_out`.
    """
    registry = registry_address(request.registry, invocation)
    keys = release_keys(request.release_keys, invocation.environ)
    flags = with_password(request.registry, REGISTRY, invocation)
    wanted = request.version or LATEST

    async def fetch(access: Access) -> Release:
        with TemporaryDirectory(prefix="svc-release-") as folder:
            remote = Remote(registry, access.client, Path(folder))
            found = await remote.find(wanted, keys)
            release = found.signed.release
            invocation.console.write_stderr(f"release: {wanted} is {release.version}, {found.digest}")
            contents = await remote.contents(release, release.platforms)
            return Release(
                release.version,
                await remote.chart(contents),
                str(registry),
                images_of(contents),
                for_nodes(access.credentials),
                release.selected(request.platforms or None),
                upgrade_from=release.upgrade_from,
                min_kubernetes=release.min_kubernetes,
            )

    release = work_with(fetch, registry, flags, REGISTRY, options, invocation)
    return roll_out(release, request.wishes, invocation)
