"""What an installation reads of a cluster and makes there itself, before Helm."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from svc.install.deployment.existing import LABELS, Existing, read_existing
from svc.install.deployment.pods import unready_pods
from svc.kube.client import Client
from svc.kube.kinds import NAMESPACES, PODS, SECRETS
from svc.naming import DEFAULT_NAMESPACE

#: Owns what the installation makes.
FIELD_MANAGER: Final = "svc-install"
#: The Secret with the credentials of the registry.
PULL_SECRET: Final = "svc-registry"  # noqa: S105 - a name
#: Copies it to the namespace NAME, where the image of an injected proxy is pulled.
COPY_SECRET: Final = (
    f"kubectl -n {DEFAULT_NAMESPACE} get secret {PULL_SECRET} -o jsonpath='{{.data.\\.dockerconfigjson}}' | "
    f"base64 -d | kubectl -n NAME create secret docker-registry {PULL_SECRET} --from-file=.dockerconfigjson=/dev/stdin"
)
POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"


async def existing_release(client: Client) -> Existing | None:
    """
    Read the release that is there.

    Raises:
        DeploymentError: ``release_unreadable``.
        KubernetesError: the cluster cannot be read.
    """
    return read_existing((await client.list(SECRETS, DEFAULT_NAMESPACE, labels=LABELS))[0])


async def pods_not_ready(client: Client) -> list[str]:
    """
    Return a line for each pod of the installation that is not ready.

    Raises:
        KubernetesError: the cluster cannot be read.
    """
    return list(unready_pods((await client.list(PODS, DEFAULT_NAMESPACE))[0]))


async def make_namespace(client: Client) -> None:
    """Make the namespace of the release, which admits the agents of nodes."""
    labels = {POD_SECURITY: "privileged"}
    body = {"metadata": {"name": DEFAULT_NAMESPACE, "labels": labels}}
    await client.apply(NAMESPACES, body, manager=FIELD_MANAGER)


async def make_pull_secret(client: Client, registry: str, username: str, password: str) -> None:
    """Make or renew the Secret by which nodes pull from the registry, a host with an optional port."""
    await client.apply(SECRETS, pull_secret(registry, username, password), manager=FIELD_MANAGER)


def pull_secret(registry: str, username: str, password: str) -> dict[str, Any]:
    """Return the Secret."""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
    document = {"auths": {registry: {"username": username, "password": password, "auth": auth}}}
    return {
        "metadata": {"name": PULL_SECRET, "namespace": DEFAULT_NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(json.dumps(document).encode()).decode("ascii")},
    }
