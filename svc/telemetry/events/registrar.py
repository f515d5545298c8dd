"""What the registrar emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, INFO, OPERATIONAL, WARN, Event


@unique
class RegistrarEvent(Event):
    """What the registrar emits."""

    CHANGED = ("svc.registrar.entries.changed", AUDIT, INFO, "success", "registration entries changed")
    FAILED = (
        "svc.registrar.entries.failed",
        OPERATIONAL,
        WARN,
        "failure",
        "registration entries are not those of the configuration",
    )
