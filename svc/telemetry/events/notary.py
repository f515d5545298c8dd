"""What the notary emits, in the proxy and in programs that embed it."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import ERROR, INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class NotaryEvent(Event):
    """What the notary emits, in the proxy and in programs that embed it."""

    GENERATION_ISSUED = ("svc.notary.generation.issued", OPERATIONAL, INFO, "success", "new credentials in use")
    IDENTITY_ENDED = (
        "svc.notary.identity.ended",
        SECURITY,
        ERROR,
        "failure",
        "the identity has expired or was withdrawn and is no longer used",
    )
    ISSUER_LOST = (
        "svc.notary.central_issuer.lost",
        OPERATIONAL,
        WARN,
        "failure",
        "the manager gives no statement; the last one serves until its end, then a self-issued one",
    )
    ISSUER_FOUND = (
        "svc.notary.central_issuer.found",
        OPERATIONAL,
        INFO,
        "success",
        "the manager issues statements again",
    )
    GENERATION_FAILED = ("svc.notary.generation.failed", OPERATIONAL, ERROR, "failure", "no new credentials")
    RECORD_FAILED = ("svc.notary.record.failed", OPERATIONAL, ERROR, "failure", "record not written")
    NOTARY_OVERLOADED = (
        "svc.notary.overloaded",
        OPERATIONAL,
        WARN,
        "failure",
        "notary refused records, its limits are reached",
    )
    ADMISSIONS_HELD = (
        "svc.notary.admissions_held",
        OPERATIONAL,
        INFO,
        "unknown",
        "an identity wants more records than it may have now and is held back",
    )
    PROFILE_WEAK = ("svc.notary.profile.weak", SECURITY, WARN, "unknown", "signatures are not quantum-safe")
