"""Which variant of Kubernetes a cluster is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.checks.facts import ClusterFacts, Object, metadata
from svc.errors import SvcError
from svc.kube.kinds import CUSTOM_RESOURCES, NODES, Kind

#: Those of ``--kubernetes-variant``; ``unknown`` is every other one.
VARIANTS: Final = ("eks", "kind", "microk8s", "openshift", "unknown")
UNKNOWN: Final = "unknown"


def variant_of(facts: ClusterFacts) -> str:
    """Return the variant, by what could be read: custom resources, the nodes, the version of the API server."""
    if any(each["metadata"]["name"].endswith(".config.openshift.io") for each in _readable(facts, CUSTOM_RESOURCES)):
        return "openshift"
    version = "" if isinstance(facts.server, SvcError) else str(facts.server.version.get("gitVersion", ""))
    for node in _readable(facts, NODES):
        labels, provider = metadata(node, "labels"), str((node.get("spec") or {}).get("providerID") or "")
        if "node.openshift.io/os_id" in labels:
            return "openshift"
        if "microk8s.io/cluster" in labels:
            return "microk8s"
        if provider.startswith("kind://"):
            return "kind"
    return "eks" if "-eks-" in version else UNKNOWN


def _readable(facts: ClusterFacts, kind: Kind) -> Sequence[Object]:
    objects = facts.objects[kind]
    return () if isinstance(objects, SvcError) else objects
