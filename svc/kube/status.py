"""Conditions of objects, and their status, which is written only where it is another one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal

from svc.kube.client import Client, Object
from svc.kube.kinds import Kind
from svc.kube.times import to_time

#: Characters of a message, as the schemas of conditions have it.
MAX_MESSAGE: Final = 32768


def with_condition(
    conditions: Iterable[Object],
    kind: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    now: datetime,
    *,
    generation: int | None = None,
) -> list[Object]:
    """
    Return the conditions with one of them set, sorted by their types.

    Args:
        conditions: those that the object has; ``lastTransitionTime`` is kept while the status is the same.
        kind: the type, such as ``Ready``.
        reason: one word in CamelCase.
        now: aware.
        generation: of the object that was observed; None for an object without a ``spec``.
    """
    others = {each["type"]: each for each in conditions}
    found = others.pop(kind, {})
    condition: Object = {"type": kind, "status": status, "reason": reason, "message": message[:MAX_MESSAGE]}
    same = found.get("status") == status and "lastTransitionTime" in found
    condition["lastTransitionTime"] = found["lastTransitionTime"] if same else to_time(now)
    if generation is not None:
        condition["observedGeneration"] = generation
    return [each for _type, each in sorted({**others, kind: condition}.items())]


async def apply_status(client: Client, kind: Kind, found: Object, status: dict[str, Any], *, manager: str) -> bool:
    """
    Write the status of an object by server-side apply, unless the object has it already.

    Args:
        found: the object as it was read last; nobody else writes its status.
        status: all of it, without members that the API server removes, such as null.
        manager: the name by which its fields are owned.

    Returns:
        Whether it was written.

    Raises:
        NotFound: the object is gone.
        Conflict: it was changed since, or is another one of the same name; the watch brings what it is now.
        KubernetesError: it was refused otherwise.
    """
    if (found.get("status") or {}) == status:
        return False
    names = ("name", "namespace", "resourceVersion")
    metadata = {name: found["metadata"][name] for name in names if name in found["metadata"]}
    await client.apply(kind, {"metadata": metadata, "status": status}, manager=manager, subresource="status")
    return True
