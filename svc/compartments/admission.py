"""Whether somebody may reach into a pod, by the groups of the API server and the label of the pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from svc import naming

#: With which the groups of compartments begin; who is in none of them is not concerned.
GROUP_PREFIX = "svc:"
_PARTS = (naming.GROUP_COUNTRY, naming.GROUP_SENSITIVITY, naming.GROUP_COMPARTMENT)


def is_concerned(groups: Iterable[str]) -> bool:
    """Whether somebody works in compartments at all."""
    return any(each.startswith(GROUP_PREFIX) for each in groups)


def admits(label: str | None, groups: Iterable[str]) -> bool:
    """
    Return whether a pod is in a compartment of somebody.

    Args:
        label: of the pod, such as ``DE-S-ALPHA``; None for a pod without compartment, which admits everybody.
        groups: the groups of the user; country, sensitivity and name have to be among them.
    """
    if label is None:
        return True
    parts = label.lower().split("-", 2)
    found = {each.lower() for each in groups}
    return len(parts) == 3 and all(f"{prefix}{part}" in found for prefix, part in zip(_PARTS, parts, strict=True))
