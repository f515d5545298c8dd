"""What the manager of a cluster emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class ManagerEvent(Event):
    """What the manager of a cluster emits."""

    LEADING = ("svc.manager.leading", OPERATIONAL, INFO, "success", "this replica leads")
    LEASE_LOST = ("svc.manager.lease_lost", OPERATIONAL, WARN, "failure", "this replica leads no more")
    LICENSE_CHANGED = ("svc.manager.license.changed", AUDIT, INFO, "success", "the license state changed")
    WEBHOOK_CERTIFICATE = (
        "svc.manager.webhook.certificate",
        OPERATIONAL,
        INFO,
        "success",
        "the webhook has a new certificate",
    )
    INJECTION_DENIED = (
        "svc.manager.injection.denied",
        SECURITY,
        WARN,
        "failure",
        "a pod was refused, it cannot have the proxy",
    )
    ENTRIES_CHANGED = (
        "svc.manager.entries.changed",
        AUDIT,
        INFO,
        "success",
        "registration entries of service accounts changed",
    )
    CONNECTION_DENIED = (
        "svc.manager.connection.denied",
        SECURITY,
        WARN,
        "failure",
        "a connection to a pod of another compartment was refused",
    )
    FEDERATION_ROOTS = (
        "svc.manager.federation_roots.changed",
        AUDIT,
        INFO,
        "success",
        "the federation roots of the cluster changed",
    )
    PEER_PINNED = (
        "svc.manager.peer.pinned",
        SECURITY,
        INFO,
        "success",
        "other federation roots of a peer are trusted",
    )
    ISSUER_KEYS = (
        "svc.manager.issuer_keys.changed",
        AUDIT,
        INFO,
        "success",
        "the roots of the post-quantum issuer changed",
    )
    WEBHOOK_REPAIRED = (
        "svc.manager.webhook.repaired",
        SECURITY,
        WARN,
        "success",
        "somebody else had changed the configuration of a webhook",
    )
    NETWORK_POLICY = (
        "svc.manager.network_policy.changed",
        AUDIT,
        INFO,
        "success",
        "the network policy of a namespace changed",
    )
    POLICIES_COMPILED = (
        "svc.manager.policies.compiled",
        OPERATIONAL,
        INFO,
        "success",
        "the proxies of a namespace have other policies",
    )
    POLICY_CHANGED = ("svc.manager.policy.changed", AUDIT, INFO, "success", "a policy is made, changed or deleted")
    POLICY_REFUSED = ("svc.manager.policy.refused", SECURITY, WARN, "failure", "a change of a policy was refused")
    POLICIES_DENIED = (
        "svc.manager.policies.denied",
        SECURITY,
        WARN,
        "failure",
        "a workload did not get policies",
    )
    SPIRE_INSTANCE = (
        "svc.manager.spire_instance.changed",
        OPERATIONAL,
        INFO,
        "success",
        "a SPIRE instance is ready, or no longer",
    )
    STATEMENT_DENIED = (
        "svc.manager.statement.denied",
        SECURITY,
        WARN,
        "failure",
        "a workload did not get a statement",
    )
    RECONCILE_FAILED = (
        "svc.manager.reconcile.failed",
        OPERATIONAL,
        ERROR,
        "failure",
        "a controller could not do its work, it tries again",
    )
    KUBERNETES_FAILED = (
        "svc.manager.kubernetes.failed",
        OPERATIONAL,
        WARN,
        "failure",
        "the API server could not be asked",
    )
    METRICS_DENIED = (
        "svc.manager.metrics.denied",
        SECURITY,
        WARN,
        "failure",
        "a client may not read the metrics",
    )
