"""Runs what needs a cluster; the client of Kubernetes is loaded here alone, and only then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from svc.cli.errors import CliError

if TYPE_CHECKING:
    from svc.kube.client import Client

_T = TypeVar("_T")


def on_cluster(work: Callable[[Client], Awaitable[_T]], environ: Mapping[str, str]) -> _T:
    """
    Run something with the cluster that kubectl would use, or the one around the pod.

    Raises:
        CliError: ``kubernetes_missing``.
        KubernetesError: as the work raises it, or ``kubeconfig_unusable``.
    """
    import asyncio

    try:
        from svc.kube.client import connect
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("svc"):
            raise
        raise CliError("kubernetes_missing", module=error.name) from error

    async def run() -> _T:
        async with aclosing(await connect(environment=environ)) as client:
            return await work(client)

    return asyncio.run(run())
