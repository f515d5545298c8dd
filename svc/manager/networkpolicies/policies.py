"""
The NetworkPolicies of enabled namespaces: the metrics of injected proxies are read from that of the monitoring alone.

Pure. Policies add up. One that leaves all other ports open would cancel what the policies of a namespace close, so it
is only where there is no other one for ingress, and is deleted as soon as there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from svc import naming
from svc.kube.client import Object
from svc.kube.kinds import NETWORK_POLICIES
from svc.manager.config import ClusterSettings

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
