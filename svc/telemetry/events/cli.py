"""What the command line emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import ERROR, INFO, OPERATIONAL, WARN, Event


@unique
class CliEvent(Event):
    """What the command line emits."""

    FAILED = ("svc.cli.failed", OPERATIONAL, ERROR, "failure", "the command failed")
    WARNING = ("svc.cli.warning", OPERATIONAL, WARN, "unknown", "a warning of the command line")
    NOTICE = ("svc.cli.notice", OPERATIONAL, INFO, "unknown", "a notice of the command line")
