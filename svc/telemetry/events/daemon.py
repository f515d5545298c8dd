"""What every process emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, WARN, Event


@unique
class DaemonEvent(Event):
    """What every process emits. Log events of libraries become ``RUNTIME_MESSAGE`` and ``RUNTIME_FAILURE``."""

    RUNTIME_MESSAGE = ("svc.runtime.message", OPERATIONAL, INFO, "unknown", "a message of the runtime")
    RUNTIME_FAILURE = ("svc.runtime.failure", OPERATIONAL, ERROR, "failure", "an unexpected failure")
    CLOCK_STEPPED = ("svc.runtime.clock_stepped", OPERATIONAL, WARN, "unknown", "the clock of this machine was set")
    LOGS_DROPPED = ("svc.runtime.logs_dropped", OPERATIONAL, WARN, "failure", "log records could not be written")
    PROCESS_STARTED = ("svc.process.started", OPERATIONAL, INFO, "success", "started")
    PROCESS_STOPPED = ("svc.process.stopped", OPERATIONAL, INFO, "success", "stopped")
    PROCESS_START_FAILED = ("svc.process.start_failed", OPERATIONAL, ERROR, "failure", "could not start")
    CONFIG_LOADED = ("svc.config.loaded", AUDIT, INFO, "success", "configuration loaded")
    CONFIG_REJECTED = ("svc.config.rejected", AUDIT, ERROR, "failure", "configuration rejected, the old one stays")
    CONFIG_RELOADED = ("svc.config.reloaded", OPERATIONAL, INFO, "success", "configuration reloaded")
    CONFIG_WARNING = ("svc.config.warning", OPERATIONAL, WARN, "unknown", "the configuration is valid but risky")
    HEALTH_CHANGED = ("svc.health.changed", OPERATIONAL, INFO, "unknown", "readiness changed")
    ADMIN_DRAIN = ("svc.admin.drain", AUDIT, INFO, "success", "drain requested")
