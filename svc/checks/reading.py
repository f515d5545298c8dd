"""Reads the facts of a cluster. What cannot be read is kept as the error, for the check that needs it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from svc.checks.facts import ClusterFacts, Object, Right, ServerFacts
from svc.checks.preflight import needed_rights
from svc.checks.webhook import enabled_namespaces
from svc.errors import SvcError
from svc.kube.client import Client
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import (
    CLUSTER_POLICIES,
    CSI_DRIVERS,
    CSI_NODES,
    CUSTOM_RESOURCES,
    DAEMON_SETS,
    DEPLOYMENTS,
    FOREIGN_CLUSTERS,
    LICENSE_STATUSES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    SECRETS,
    SELF_ACCESS_REVIEWS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOKS,
    Kind,
)
from svc.naming import DEFAULT_NAMESPACE, WEBHOOK_SECRET

_T = TypeVar("_T")
#: Requests that are under way at the same time.
_AT_ONCE: Final = 8
_PREFLIGHT: Final = (CUSTOM_RESOURCES, NAMESPACES, NODES, STORAGE_CLASSES, CSI_DRIVERS, MUTATING_WEBHOOKS, DEPLOYMENTS)
_CLUSTER: Final = (
    *(CUSTOM_RESOURCES, NAMESPACES, NODES, CSI_DRIVERS, CSI_NODES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS),
    *(DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, LICENSE_STATUSES, CLUSTER_POLICIES, POLICIES, FOREIGN_CLUSTERS),
)
#: Read in the namespace of the installation alone.
_INSTALLED: Final = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)


async def read_preflight(
    client: Client, now: Callable[[], datetime], namespace: str = DEFAULT_NAMESPACE
) -> ClusterFacts:
    """Read what :data:`svc.checks.preflight.CHECKS` need."""
    facts = await _read(client, now, namespace, _PREFLIGHT)
    if isinstance(facts.server, SvcError):
        return facts
    rights = await _kept(_missing_rights(client, needed_rights(namespace)))
    return ClusterFacts(facts.now, facts.server, facts.objects, rights, (), namespace)


async def read_cluster(client: Client, now: Callable[[], datetime], namespace: str = DEFAULT_NAMESPACE) -> ClusterFacts:
    """Read what :data:`svc.checks.cluster.CHECKS` need."""
    facts = await _read(client, now, namespace, _CLUSTER)
    if isinstance(facts.server, SvcError):
        return facts
    pods = await _kept(_pods(client, facts))
    authorities = await _kept(_authorities(client, namespace))
    return ClusterFacts(facts.now, facts.server, {**facts.objects, PODS: pods}, (), authorities, namespace)


async def _read(client: Client, now: Callable[[], datetime], namespace: str, kinds: Sequence[Kind]) -> ClusterFacts:
    server = await _kept(_server(client, now))
    if isinstance(server, SvcError):
        # Each further request would wait for its time limit.
        return ClusterFacts(now(), server, dict.fromkeys(kinds, server), namespace=namespace)
    lists = await _all([_list(client, kind, namespace if kind in _INSTALLED else "") for kind in kinds])
    return ClusterFacts(now(), server, dict(zip(kinds, lists, strict=True)), namespace=namespace)


async def _kept(work: Awaitable[_T]) -> _T | SvcError:
    try:
        return await work
    except SvcError as error:
        return error


async def _all(works: Sequence[Awaitable[_T]]) -> list[_T | SvcError]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(work: Awaitable[_T]) -> _T | SvcError:
        async with places:
            return await _kept(work)

    return list(await asyncio.gather(*map(one, works)))


async def _server(client: Client, now: Callable[[], datetime]) -> ServerFacts:
    before = now()
    version, date = await client.version()
    # The server wrote its time, cut to a second, somewhere between the request and its answer.
    ahead = None if date is None else (before + (now() - before) / 2) - date
    return ServerFacts(version, ahead)


async def _list(client: Client, kind: Kind, namespace: str) -> Sequence[Object]:
    try:
        return (await client.list(kind, namespace))[0]
    except KubernetesError as error:
        # That a custom resource is not there is the finding of another check.
        if error.reason != "kubernetes_no_kind":
            raise
        return ()


async def _pods(client: Client, facts: ClusterFacts) -> Sequence[Object]:
    lists = await _all([_list(client, PODS, namespace) for namespace in enabled_namespaces(facts)])
    if error := next((each for each in lists if isinstance(each, SvcError)), None):
        raise error
    return [pod for each in lists if not isinstance(each, SvcError) for pod in each]


async def _authorities(client: Client, namespace: str) -> Sequence[str]:
    """Read the certificates of the webhook, the one that signs first; the keys beside them are not kept."""
    try:
        data = (await client.get(SECRETS, WEBHOOK_SECRET, namespace)).get("data") or {}
    except NotFound:
        return ()
    try:
        return [
            base64.b64decode(data[f"{part}.crt"]).decode("ascii")
            for part in ("current", "next", "previous")
            if f"{part}.crt" in data
        ]
    except (binascii.Error, UnicodeDecodeError):
        return ()


async def _missing_rights(client: Client, rights: Sequence[Right]) -> Sequence[Right]:
    answers = await _all([_allowed(client, right) for right in rights])
    if error := next((each for each in answers if isinstance(each, SvcError)), None):
        raise error
    return [right for right, allowed in zip(rights, answers, strict=True) if not allowed]


async def _allowed(client: Client, right: Right) -> bool:
    attributes = {"verb": right.verb, "group": right.group, "resource": right.resource, "namespace": right.namespace}
    review = await client.create(SELF_ACCESS_REVIEWS, {"metadata": {}, "spec": {"resourceAttributes": attributes}})
    return bool((review.get("status") or {}).get("allowed"))
