"""What the authority emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class AuthorityEvent(Event):
    """What the authority emits."""

    STARTED = ("svc.authority.started", OPERATIONAL, INFO, "success", "authority serves")
    KEYS_LOADED = ("svc.authority.keys.loaded", AUDIT, INFO, "success", "existing keys loaded")
    KEYS_BEGUN = (
        "svc.authority.keys.begun",
        AUDIT,
        WARN,
        "success",
        "no keys found, new keys generated",
    )
    SVID_ISSUED = ("svc.authority.svid.issued", AUDIT, INFO, "success", "SVID issued")
    PQ_LEAF_ISSUED = ("svc.authority.pq_leaf.issued", AUDIT, INFO, "success", "post-quantum leaf issued")
    REFUSED = ("svc.authority.refused", SECURITY, WARN, "failure", "caller refused")
    ROTATED = ("svc.authority.rotated", AUDIT, INFO, "success", "signing keys rotated")
    NODES_BEHIND = (
        "svc.authority.nodes.behind",
        OPERATIONAL,
        WARN,
        "failure",
        "a post-quantum root signs that not all nodes have",
    )
    FEDERATED = ("svc.authority.federated", AUDIT, INFO, "success", "foreign trust bundle loaded")
    FEDERATION_BEGUN = (
        "svc.authority.federation.begun",
        AUDIT,
        WARN,
        "success",
        "no federation roots found, new ones generated",
    )
    PEER_PINNED = (
        "svc.authority.peer.pinned",
        AUDIT,
        INFO,
        "success",
        "the federation roots of a peer were pinned",
    )
