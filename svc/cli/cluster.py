"""
Which cluster a command works on, and its client; the client of Kubernetes is loaded here alone, and only then.

A command has :data:`CLUSTER_FLAGS` among its flags, makes a :class:`Choice` of their values, and names the cluster in
its answer: :func:`on_cluster` gives its work the client, and returns which :class:`Cluster` it was.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from svc.cli.compartments.compiled import load
from svc.cli.compartments.session import check_selected
from svc.cli.errors import CliError, CommandFailed
from svc.cli.flags import value_flag
from svc.compartments.config import kubeconfig_of, resolve
from svc.errors import SvcError, printable

if TYPE_CHECKING:
    from svc.kube.client import Client

_T = TypeVar("_T")
CLUSTER_FLAGS: Final = (
    value_flag("-K --kubeconfig", "path", "the kubeconfig of the cluster", default=""),
    value_flag("--context", "string", "the context of the kubeconfig", default=""),
)
#: For the help of a command.
CLUSTER_HELP: Final = """
    The cluster is that of --kubeconfig and --context. Without them it is that of the svc context in effect, where there
    is a ~/.svc/config.yaml; else that of KUBECONFIG or ~/.kube/config, or the one around the pod.
"""


class Cluster(NamedTuple):
    """
    The cluster that was asked; as a text it stands in answers.

    Args:
        context: of the kubeconfig; empty for the cluster around the pod.
    """

    server: str
    context: str

    def __str__(self) -> str:
        found = f"context {printable(self.context)}" if self.context else "around the pod"
        return f"{printable(self.server)} ({found})"


@dataclass(frozen=True, slots=True)
class Choice:
    """
    A cluster that was chosen.

    Args:
        kubeconfig: a file; empty for what ``environ`` says.
        context: of the kubeconfig; empty for its current one.
        environ: with ``KUBECONFIG`` as the configuration file has it.
    """

    kubeconfig: str
    context: str
    environ: Mapping[str, str]


def choose(kubeconfig: str, context: str, environ: Mapping[str, str], *, changes: bool) -> Choice:
    """
    Find out which cluster is meant.

    Args:
        kubeconfig: of the flag; then its own contexts are those that count.
        context: of the flag; it is one of the kubeconfig that is in effect where none is named.
        changes: whether something is to be changed there.

    Raises:
        CommandFailed, ConfigUnreadable: the configuration file is not valid.
        CompartmentError: the svc context is not there, or was not selected in this session where it has to be.
    """
    config = None if kubeconfig else load(environ)
    if config is None:
        return Choice(kubeconfig, context, environ)
    paths = kubeconfig_of(config, environ)
    if not context and config.current:
        context = resolve(config, environ).kube_context
        if changes:
            check_selected(config, environ)
    return Choice("", context, {**environ, "KUBECONFIG": paths} if paths else environ)


def cluster_named(choice: Choice) -> bool:
    """Whether there is a cluster to ask: a kubeconfig or a context was named, or there is one where kubectl looks."""
    environ = choice.environ
    if choice.kubeconfig or choice.context or environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in environ:
        return True
    return os.path.exists(os.path.join(environ.get("HOME", "/"), ".kube/config"))


def on_cluster(work: Callable[[Client], Awaitable[_T]], choice: Choice) -> tuple[_T, Cluster]:
    """
    Run something with a cluster.

    Returns:
        What it returns, and the cluster that it was.

    Raises:
        CliError: ``kubernetes_missing``.
        KubernetesError: ``kubeconfig_unusable``.
        CommandFailed: for an error of the work, with the cluster behind it.
    """
    import asyncio

    try:
        from svc.kube.client import connect
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("svc"):
            raise
        raise CliError("kubernetes_missing", module=error.name) from error

    async def run() -> tuple[_T, Cluster]:
        async with aclosing(await connect(choice.kubeconfig, choice.context, environment=choice.environ)) as client:
            cluster = Cluster(client.server, client.context)
            try:
                return await work(client), cluster
            except SvcError as error:
                raise CommandFailed(error, error.exit_status, remarks=(f"the cluster is {cluster}",)) from error

    return asyncio.run(run())
