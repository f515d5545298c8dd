"""What the broker emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class BrokerEvent(Event):
    """What the broker emits."""

    CLIENT_REFUSED = ("svc.broker.client.refused", SECURITY, WARN, "failure", "client not admitted")
    CLIENT_BROKEN = ("svc.broker.client.broken", SECURITY, WARN, "failure", "connection of a client ended")
    CONNECTIONS_REAUTHORIZED = (
        "svc.broker.connections.reauthorized",
        SECURITY,
        INFO,
        "success",
        "open connections decided on again after a change",
    )
    ACCESS_DENIED = ("svc.broker.access.denied", SECURITY, WARN, "failure", "no access rule allows it")
    NO_ROOM = (
        "svc.broker.message.no_room",
        OPERATIONAL,
        WARN,
        "failure",
        "message not queued or not retained",
    )
    DENY_LISTS_LOADED = ("svc.broker.deny_lists.loaded", AUDIT, INFO, "success", "deny lists loaded")
    DENY_LISTS_REJECTED = (
        "svc.broker.deny_lists.rejected",
        AUDIT,
        ERROR,
        "failure",
        "deny lists rejected, the old ones stay",
    )
    CERTIFICATE_RENEWED = (
        "svc.broker.certificate.renewed",
        SECURITY,
        INFO,
        "success",
        "new certificate of a listener in use",
    )
    CERTIFICATE_REJECTED = (
        "svc.broker.certificate.rejected",
        SECURITY,
        WARN,
        "failure",
        "new certificate of a listener not usable, the old one stays",
    )
    STORE_OPENED = ("svc.broker.store.opened", OPERATIONAL, INFO, "success", "broker's database opened")
    STORE_CLOSED = ("svc.broker.store.closed", OPERATIONAL, INFO, "success", "broker's database closed")
    STORE_LEFT_BEHIND = (
        "svc.broker.store.left_behind",
        OPERATIONAL,
        ERROR,
        "failure",
        "stopped before everything was durable",
    )
    STORE_FAILED = ("svc.broker.store.failed", OPERATIONAL, ERROR, "failure", "broker's database failed")
    STORE_REFUSES = (
        "svc.broker.store.refuses",
        OPERATIONAL,
        ERROR,
        "failure",
        "messages and sessions that must be stored are refused",
    )
    STORE_ACCEPTS = (
        "svc.broker.store.accepts",
        OPERATIONAL,
        INFO,
        "success",
        "messages and sessions are stored again",
    )
    STORE_DAMAGED = ("svc.broker.store.damaged", OPERATIONAL, ERROR, "failure", "broker's database is damaged")
    STORE_SET_ASIDE = (
        "svc.broker.store.set_aside",
        AUDIT,
        ERROR,
        "failure",
        "damaged database of the broker quarantined",
    )
    STORE_LIES_ASIDE = (
        "svc.broker.store.lies_aside",
        OPERATIONAL,
        WARN,
        "unknown",
        "older sessions are in quarantined databases",
    )
