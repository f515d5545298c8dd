"""
The configuration as ``GET /config`` shows it.

Owns what is left out. The file itself holds no secret: keys come from the Workload API, and a database URL with a
password is refused. Labels and annotations are a pod's own, and whatever its owner put there stays inside unless it may
leave in statements too.
"""

from __future__ import annotations

from typing import Any, Final

from svc.proxy.config import ProxySettings

LEFT_OUT: Final = "<left out>"


def shown_config(settings: ProxySettings) -> dict[str, Any]:
    """
    Write a configuration for people.

    Args:
        settings: what is in force.

    Returns:
        Values for JSON, under the names of the file.
    """
    shown = settings.model_dump(mode="json")
    allowed = frozenset(settings.workload.allowed)
    for kind in ("labels", "annotations"):
        values: dict[str, str] = shown["workload"][kind]
        shown["workload"][kind] = {name: value if name in allowed else LEFT_OUT for name, value in values.items()}
    return shown
