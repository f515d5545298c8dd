"""The objects that a command of kubectl is aimed at, and whether they are in the current compartment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from svc import naming
from svc.compartments.compartment import Compartment
from svc.errors import printable

#: How many objects are named one by one.
MAX_NAMED: Final = 20
_OPERATORS: Final = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}
#: The kinds whose pods kubectl finds.
_WITH_PODS: Final = frozenset({
    "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "Service", "StatefulSet",
})  # fmt: skip
#: Later is better.
_PHASES: Final = ("Failed", "Succeeded", "Unknown", "Pending", "Running")


@dataclass(frozen=True, slots=True)
class Target:
    """
    An object.

    Args:
        namespace: empty where it is in none.
        label: the compartment; empty for none.
        document: as the API has it.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    label: str
    document: Any = field(repr=False)

    @classmethod
    def of(cls, document: Any) -> Target:
        """Read an object of the API."""
        metadata = document["metadata"]
        label = (metadata.get("labels") or {}).get(naming.LABEL_COMPARTMENT, "")
        namespace = metadata.get("namespace", "")
        return cls(document["apiVersion"], document["kind"], namespace, metadata["name"], label, document)

    @property
    def reference(self) -> str:
        """The object as one word of kubectl, with the group and the version of its kind."""
        group, _slash, version = self.api_version.rpartition("/")
        return f"{self.kind.lower()}.{version}.{group}/{self.name}"

    @property
    def title(self) -> str:
        """The object in a message."""
        return f'{printable(self.kind.lower())} "{printable(self.name)}"'

    def is_foreign(self, current: Compartment) -> bool:
        """Whether it is in another compartment; without a label it is in none."""
        return self.label.upper() not in ("", current.label)

    def compared(self, current: Compartment) -> str:
        """In which compartment it is, and in which one we are."""
        return f"{self.title} is in compartment {printable(self.label)}, current compartment is {current.label}"

    @property
    def selector(self) -> str:
        """What selects the pods of a workload or of a service; empty where it selects none."""
        spec = self.document.get("spec") or {}
        selector = (spec.get("selector") or {}) if self.kind in _WITH_PODS else {}
        if not {"matchLabels", "matchExpressions"} & set(selector):
            return ",".join(f"{key}={value}" for key, value in selector.items())
        parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
        for each in selector.get("matchExpressions") or ():
            values = ",".join(each.get("values") or ())
            parts.append(_OPERATORS[each["operator"]].format(key=each["key"], values=values))
        return ",".join(parts)


def foreign(targets: Iterable[Target], current: Compartment) -> list[Target]:
    """Those that are in another compartment."""
    return [each for each in targets if each.is_foreign(current)]


def comparison(targets: list[Target], current: Compartment) -> list[str]:
    """A sentence for each of some objects of other compartments; for many, the last one has only their number."""
    lines = [each.compared(current) for each in targets[:MAX_NAMED]]
    if more := len(targets) - MAX_NAMED:
        lines += [f"{more} more are in other compartments"] if more > 0 else []
    return lines


def best_pod(pods: Iterable[Target]) -> Target | None:
    """The pod of several in which a command runs best: one on a node, which runs, is ready, and is the oldest."""

    def key(pod: Target) -> tuple[bool, bool, int, bool]:
        status = pod.document.get("status") or {}
        ready = any((each["type"], each["status"]) == ("Ready", "True") for each in status.get("conditions") or ())
        phase = status.get("phase", "")
        assigned = bool((pod.document.get("spec") or {}).get("nodeName"))
        leaving = "deletionTimestamp" in pod.document["metadata"]
        return not leaving, assigned, _PHASES.index(phase) if phase in _PHASES else -1, ready

    by_age = sorted(pods, key=lambda pod: str(pod.document["metadata"].get("creationTimestamp", "")))
    return max(by_age, key=key, default=None)


def copied_pod(word: str) -> tuple[str, str]:
    """
    The namespace and the pod of a place that ``kubectl cp`` copies from or to.

    Returns:
        The namespace is empty where it names none, and both are where the place is a file here.
    """
    place, colon, _path = word.partition(":")
    namespace, _slash, pod = place.rpartition("/")
    return (namespace, pod) if colon else ("", "")
