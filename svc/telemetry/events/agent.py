"""What the agent of a node emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, WARN, Event


@unique
class AgentEvent(Event):
    """What the agent of a node emits."""

    CSI_REGISTERED = ("svc.agent.csi.registered", OPERATIONAL, INFO, "success", "the kubelet uses the driver")
    CSI_FAILED = ("svc.agent.csi.failed", OPERATIONAL, ERROR, "failure", "the kubelet does not use the driver")
    PQ_BUNDLE_WRITTEN = (
        "svc.agent.pq_bundle.written",
        AUDIT,
        INFO,
        "success",
        "new post-quantum roots of the node",
    )
    PQ_BUNDLE_FAILED = (
        "svc.agent.pq_bundle.failed",
        OPERATIONAL,
        WARN,
        "failure",
        "the post-quantum roots of the node may be old",
    )
    VOLUME_PUBLISHED = (
        "svc.agent.volume.published",
        AUDIT,
        INFO,
        "success",
        "the Workload API was mounted into a pod",
    )
    VOLUME_UNPUBLISHED = (
        "svc.agent.volume.unpublished",
        OPERATIONAL,
        INFO,
        "success",
        "a volume was unmounted",
    )
    FILES_WRITTEN = ("svc.agent.files.written", AUDIT, INFO, "success", "an SVID was written to files")
    FILES_FAILED = ("svc.agent.files.failed", OPERATIONAL, ERROR, "failure", "the files of an SVID may be old")
    FILES_NOTIFIED = (
        "svc.agent.files.notified",
        OPERATIONAL,
        INFO,
        "success",
        "a program was told of its new files",
    )
    FILES_NOT_NOTIFIED = (
        "svc.agent.files.not_notified",
        OPERATIONAL,
        WARN,
        "failure",
        "a program could not be told of its new files",
    )
    VOLUME_FAILED = ("svc.agent.volume.failed", OPERATIONAL, WARN, "failure", "a volume could not be served")
