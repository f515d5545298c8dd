"""
What a new configuration changes in a running proxy.

Pure: from two configurations to a plan. A change that needs a restart refuses the whole reload, so that one file is
always in force and never a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

from svc.errors import SvcError
from svc.proxy.config import ListenerSettings, ProxySettings

#: Keys that can change while the proxy runs; every other one needs a restart.
RELOADABLE = frozenset({"listeners", "policy", "workload", "accessLog", "auditLog", "drainTimeout", "drainDelay"})


class RestartNeeded(SvcError):
    """the new configuration changes {keys}, which needs a restart"""

    reason = "restart_needed"
    hint = "restart the proxy, or undo these changes and reload again"


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """The names of the listeners to close and to keep, those to open after that, and the keys that differ."""

    close: tuple[str, ...]
    open: tuple[ListenerSettings, ...]
    keep: tuple[str, ...]
    changed: tuple[str, ...]


def plan_reload(old: ProxySettings, new: ProxySettings) -> ReloadPlan:
    """Compare two configurations."""
    changed = tuple(name for name in type(new).model_fields if getattr(old, name) != getattr(new, name))
    fixed = [name for name in changed if name not in RELOADABLE]
    if fixed:
        raise RestartNeeded(keys=", ".join(fixed))
    before = {each.name: each for each in old.listeners}
    keep = tuple(each.name for each in new.listeners if before.get(each.name) == each)
    return ReloadPlan(
        close=tuple(name for name in before if name not in keep),
        open=tuple(each for each in new.listeners if each.name not in keep),
        keep=keep,
        changed=changed,
    )
