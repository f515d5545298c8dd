"""What the notary database emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, WARN, Event


@unique
class StoreEvent(Event):
    """What the notary database emits."""

    OPENED = ("svc.store.opened", OPERATIONAL, INFO, "success", "notary database opened")
    CLOSED = ("svc.store.closed", OPERATIONAL, INFO, "success", "notary database closed")
    FAILED = ("svc.store.failed", OPERATIONAL, ERROR, "failure", "notary database failed")
    READ_ONLY = (
        "svc.store.read_only",
        OPERATIONAL,
        ERROR,
        "failure",
        "notary database is read-only, no new records",
    )
    WRITABLE = ("svc.store.writable", OPERATIONAL, INFO, "success", "notary database is writable again")
    DAMAGED = ("svc.store.damaged", OPERATIONAL, ERROR, "failure", "notary database is damaged")
    SET_ASIDE = ("svc.store.set_aside", AUDIT, ERROR, "failure", "damaged notary database quarantined")
    LIES_ASIDE = (
        "svc.store.lies_aside",
        OPERATIONAL,
        WARN,
        "unknown",
        "older records are in quarantined databases",
    )
    PRUNED = ("svc.store.pruned", OPERATIONAL, INFO, "success", "old records deleted")
