"""What a set of NetworkPolicies lets into a pod, by the rules of Kubernetes, without a network that enforces them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

#: The fields that are evaluated; another one is an error, never ignored.
_FIELDS: Final = {
    "spec": {"podSelector", "policyTypes", "ingress", "egress"},
    "rule": {"from", "ports"},
    "peer": {"namespaceSelector", "podSelector"},
    "port": {"protocol", "port", "endPort"},
    "selector": {"matchLabels"},
}


@dataclass(frozen=True)
class Pod:
    """
    A pod at one end of a flow.

    Args:
        namespace: its name; the namespace has the label that the API server gives it.
    """

    namespace: str
    labels: dict[str, str] = field(default_factory=dict)


def allowed(
    policies: Iterable[dict[str, Any]], source: Pod | None, target: Pod, port: int, protocol: str = "TCP"
) -> bool:
    """
    Whether a flow reaches a pod.

    Args:
        source: None for an address that is no pod, such as that of the API server.
    """
    found = [each for each in policies if _concerns(each, target)]
    return not found or any(_admits(each, source, port, protocol) for each in found)


def _concerns(policy: dict[str, Any], target: Pod) -> bool:
    spec = _known("spec", policy["spec"])
    if policy["metadata"]["namespace"] != target.namespace or "Ingress" not in spec.get("policyTypes", ["Ingress"]):
        return False
    return _selects(spec.get("podSelector", {}), target.labels)


def _admits(policy: dict[str, Any], source: Pod | None, port: int, protocol: str) -> bool:
    for rule in policy["spec"].get("ingress", ()):
        peers, ports = _known("rule", rule).get("from"), rule.get("ports")
        if peers and not any(_is(peer, source, policy["metadata"]["namespace"]) for peer in peers):
            continue
        if not ports or any(_covers(each, port, protocol) for each in ports):
            return True
    return False


def _is(peer: dict[str, Any], source: Pod | None, namespace: str) -> bool:
    _known("peer", peer)
    if source is None:
        return False
    if "namespaceSelector" not in peer:
        here = source.namespace == namespace
    else:
        here = _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": source.namespace})
    return here and _selects(peer.get("podSelector", {}), source.labels)


def _covers(ports: dict[str, Any], port: int, protocol: str) -> bool:
    first = _known("port", ports).get("port")
    if ports.get("protocol", "TCP") != protocol:
        return False
    return first is None or first <= port <= ports.get("endPort", first)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = _known("selector", selector).get("matchLabels", {})
    return wanted.items() <= labels.items()


def _known(what: str, found: dict[str, Any]) -> dict[str, Any]:
    unknown = set(found) - _FIELDS[what]
    if unknown:
        raise AssertionError(f"not evaluated: {sorted(unknown)} of a {what}")
    return found
