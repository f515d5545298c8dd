"""What the source of SVIDs and bundles and the client of the post-quantum issuer emit."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class WorkloadEvent(Event):
    """What the source of SVIDs and bundles and the client of the post-quantum issuer emit."""

    SOURCE_CONNECTED = ("svc.workload.source.connected", OPERATIONAL, INFO, "success", "Workload API connected")
    SOURCE_STALE = ("svc.workload.source.stale", OPERATIONAL, WARN, "failure", "Workload API not reachable")
    SVID_UPDATED = ("svc.workload.svid.updated", SECURITY, INFO, "success", "new SVID")
    IDENTITY_WITHDRAWN = (
        "svc.workload.identity.withdrawn",
        SECURITY,
        WARN,
        "failure",
        "the identity was withdrawn and is no longer used",
    )
    IDENTITY_CHANGED = ("svc.workload.identity.changed", SECURITY, WARN, "unknown", "another identity than before")
    BUNDLE_UPDATED = ("svc.workload.bundle.updated", SECURITY, INFO, "success", "new trust bundle")
    UPDATE_REJECTED = (
        "svc.workload.update.rejected",
        SECURITY,
        WARN,
        "failure",
        "update rejected, the last good one stays",
    )
    PQ_BUNDLE_UPDATED = ("svc.pq.bundle.updated", SECURITY, INFO, "success", "new post-quantum bundle")
    PQ_LEAF_OBTAINED = ("svc.pq.leaf.obtained", SECURITY, INFO, "success", "new post-quantum leaf")
    PQ_LEAF_FAILED = ("svc.pq.leaf.failed", SECURITY, WARN, "failure", "no post-quantum leaf")
    PQ_ISSUER_UNREACHABLE = (
        "svc.pq.issuer.unreachable",
        OPERATIONAL,
        WARN,
        "failure",
        "post-quantum issuer not reachable",
    )
    PQ_ISSUER_REACHABLE = (
        "svc.pq.issuer.reachable",
        OPERATIONAL,
        INFO,
        "success",
        "post-quantum issuer reachable again",
    )
