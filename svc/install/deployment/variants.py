"""Which variant of Kubernetes a cluster is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

#: Those of ``--kubernetes-variant``; ``unknown`` is every other one.
VARIANTS: Final = ("eks", "kind", "microk8s", "openshift", "unknown")
UNKNOWN: Final = "unknown"


def detect(version: str, nodes: Iterable[Mapping[str, Any]], resources: Iterable[str]) -> str:
    """
    Return the variant.

    Args:
        version: ``gitVersion`` of the API server.
        nodes: empty where they could not be read.
        resources: names of the custom resources; empty where they could not be read.
    """
    if any(each.endswith(".config.openshift.io") for each in resources):
        return "openshift"
    for node in nodes:
        labels = (node.get("metadata") or {}).get("labels") or {}
        provider = str((node.get("spec") or {}).get("providerID") or "")
        if "node.openshift.io/os_id" in labels:
            return "openshift"
        if "microk8s.io/cluster" in labels:
            return "microk8s"
        if provider.startswith("kind://"):
            return "kind"
        if provider.startswith("aws://") and "-eks-" in version:
            return "eks"
    return "eks" if "-eks-" in version else UNKNOWN
