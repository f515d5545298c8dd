"""
The controller of NetworkPolicies: the metrics of injected proxies are read from the namespace of the monitoring alone.

Policies add up. One that leaves all other ports open would cancel what the policies of a namespace close, so it is only
where there is no other one for ingress, and is deleted as soon as there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.logger import Logger

from svc import naming
from svc.errors import SvcError
from svc.kube.cache import Cache, run_all
from svc.kube.client import Client, Object
from svc.kube.errors import Conflict, KubernetesError, NotFound
from svc.kube.kinds import NAMESPACES, NETWORK_POLICIES
from svc.manager.config import ClusterSettings
from svc.telemetry.events import Event
from svc.telemetry.logs import emit

#: Seconds between two attempts while one namespace refuses: meanwhile a policy of a user in another one is not seen.
LONGEST_PAUSE: Final = 5.0
_LAST_PORT: Final = 65535


class PolicyChanges(NamedTuple):
    """The policies to create and to replace, and the namespaces where the own one is deleted."""

    create: list[Object]
    replace: list[Object]
    delete: list[str]


def policy_spec(port: int, monitoring: str) -> Object:
    """
    Return what a policy says: one port is closed to all but a namespace, and all others are open.

    Args:
        port: of the metrics.
        monitoring: the namespace.
    """
    ranges = [(1, port - 1), (port + 1, _LAST_PORT)]
    others: list[Object] = [
        {"protocol": "TCP", "port": first, "endPort": last} for first, last in ranges if first <= last
    ]
    others += [{"protocol": "UDP"}, {"protocol": "SCTP"}]
    source = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": monitoring}}}
    return {
        "podSelector": {"matchLabels": {naming.LABEL_INJECTED: "true"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": others}, {"from": [source], "ports": [{"protocol": "TCP", "port": port}]}],
    }


def wanted_spec(cluster: ClusterSettings) -> Object | None:
    """Return what the policies of a cluster say; None where there are none, as without metrics."""
    settings, injection = cluster.networkPolicies, cluster.injection
    if settings is None or injection is None or injection.metricsAddr is None:
        return None
    return policy_spec(injection.metricsAddr.port, settings.monitoringNamespace)


def due_changes(
    enabled: Collection[Object], policies: Mapping[tuple[str, str], Object], spec: Object | None
) -> PolicyChanges:
    """
    Compare the policies of a cluster with what there should be.

    Args:
        enabled: the namespaces.
        policies: all of the cluster, by namespace and name.
        spec: what each says; None where there shall be none.
    """
    own = {namespace: each for (namespace, _name), each in policies.items() if _is_own(each)}
    others = {namespace for (namespace, _name), each in policies.items() if not _is_own(each) and _decides(each)}
    # Nothing is made in a namespace that ends, and what is there goes with it.
    ending = {each["metadata"]["name"] for each in enabled if "deletionTimestamp" in each["metadata"]}
    wanted = set() if spec is None else {each["metadata"]["name"] for each in enabled} - others
    different = {namespace for namespace, each in own.items() if each["spec"] != spec}
    return PolicyChanges(
        create=[_policy(each, spec) for each in sorted(wanted - own.keys() - ending)],
        replace=[{**own[each], "spec": spec} for each in sorted(wanted & different - ending)],
        delete=sorted(own.keys() - wanted - ending),
    )


def _policy(namespace: str, spec: Object | None) -> Object:
    labels = {naming.LABEL_MANAGED_BY: naming.MANAGER}
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.name,
        "metadata": {"name": naming.NETWORK_POLICY, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def _is_own(policy: Object) -> bool:
    metadata: dict[str, Any] = policy["metadata"]
    labels = metadata.get("labels") or {}
    return metadata["name"] == naming.NETWORK_POLICY and labels.get(naming.LABEL_MANAGED_BY) == naming.MANAGER


def _decides(policy: Object) -> bool:
    """Whether a policy of somebody else is for ingress, or has the name."""
    types = policy["spec"].get("policyTypes", ["Ingress"])
    return policy["metadata"]["name"] == naming.NETWORK_POLICY or "Ingress" in types


class NetworkPolicyController:
    """
    Follows namespaces and policies, and makes those of the manager as they should be.

    Args:
        namespace: that of the manager, which is never enabled.
        failed: receives why a watch ended.
        changed: called when :meth:`reconcile` has something to do.
    """

    log = Logger()
    name = "network-policies"

    def __init__(
        self,
        client: Client,
        cluster: ClusterSettings,
        namespace: str,
        failed: Callable[[SvcError], object],
        changed: Callable[[], object],
    ) -> None:
        self._client = client
        self._spec = wanted_spec(cluster)
        self._namespaces = Cache(
            *(client, NAMESPACES, changed, failed),
            labels=f"{naming.LABEL_INJECTION}={naming.INJECTION_ENABLED}",
            fields=f"metadata.name!={namespace}",
        )
        self._policies = Cache(client, NETWORK_POLICIES, changed, failed)

    @property
    def caches(self) -> Sequence[Cache]:
        return self._namespaces, self._policies

    async def follow(self) -> None:
        await run_all(self.caches)

    async def reconcile(self) -> None:
        """
        Write and delete.

        Raises:
            KubernetesError: one was refused; the others are as they should be.
        """
        todo = due_changes(self._namespaces.objects.values(), self._policies.objects, self._spec)
        calls: list[tuple[str, str, Callable[[], Awaitable[object]]]] = []
        # First what is open where a policy of a user closes it.
        for name in todo.delete:
            delete = partial(self._client.delete, NETWORK_POLICIES, naming.NETWORK_POLICY, name)
            calls.append(("deleted", name, delete))
        for action, write, bodies in (
            ("replaced", self._client.replace, todo.replace),
            ("created", self._client.create, todo.create),
        ):
            for body in bodies:
                calls.append((action, body["metadata"]["namespace"], partial(write, NETWORK_POLICIES, body)))
        failures: list[KubernetesError] = []
        for action, name, call in calls:
            try:
                await call()
            except (Conflict, NotFound):
                # Somebody was faster: the watch brings what it is now.
                continue
            except KubernetesError as error:
                failures.append(error)
            else:
                emit(self.log, Event.MANAGER_NETWORK_POLICY, attributes={"namespace": name, "action": action})
        if failures:
            raise failures[0]
