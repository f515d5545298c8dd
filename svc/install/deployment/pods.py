"""Why the pods of an installation are not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: Reasons of a container that waits for others, or is being made: they say nothing of a defect.
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing"})


def unready_pods(pods: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """
    Yield a line for each pod that is to be ready and is not: its name, and what it waits for.

    Args:
        pods: as the API server lists them.
    """
    for pod in pods:
        status = pod.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        if pod["metadata"].get("deletionTimestamp") or status.get("phase") == "Succeeded":
            continue
        if conditions.get("Ready", {}).get("status") == "True":
            continue
        yield f"pod {pod['metadata']['name']} is not ready: {_why(status, conditions)}"


def _why(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("message") or scheduled.get("reason") or "it has no node"
    containers = [
        each
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in status.get(kind) or ()
        if not each.get("ready")
    ]
    for each in containers:
        state = each.get("state") or {}
        for found in (state.get("waiting"), state.get("terminated"), (each.get("lastState") or {}).get("terminated")):
            reason = (found or {}).get("reason") or ""
            if found and reason not in _ORDINARY and found.get("exitCode") != 0:
                text = found.get("message") or (f"status {found['exitCode']}" if "exitCode" in found else "")
                return f"container {each['name']}: {reason}{f': {text.strip()}' if text else ''}"
    if containers:
        return f"container {containers[-1]['name']} is not ready"
    return "it has not started"
