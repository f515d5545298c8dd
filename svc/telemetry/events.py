"""
The registry of event names.

Every log record has one of these names in ``event.name``. Operators filter and alert on them, so a name is never reused
for another event.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique
from typing import Final, Literal

EventOutcome = Literal["success", "failure", "unknown"]


class Category(Enum):
    """The audience of a record."""

    SECURITY = "security"
    OPERATIONAL = "operational"
    AUDIT = "audit"


class Severity(IntEnum):
    """Severity numbers of the OpenTelemetry log data model."""

    TRACE = 1
    DEBUG = 5
    INFO = 9
    WARN = 13
    ERROR = 17
    FATAL = 21


_SECURITY: Final = Category.SECURITY
_OPERATIONAL: Final = Category.OPERATIONAL
_AUDIT: Final = Category.AUDIT
_INFO: Final = Severity.INFO
_WARN: Final = Severity.WARN
_ERROR: Final = Severity.ERROR


@unique
class Event(Enum):
    """
    One kind of event; the value is (name, category, severity, outcome, message).

    Log events of libraries become ``RUNTIME_MESSAGE`` and ``RUNTIME_FAILURE``.
    """

    RUNTIME_MESSAGE = ("svc.runtime.message", _OPERATIONAL, _INFO, "unknown", "a message of the runtime")
    RUNTIME_FAILURE = ("svc.runtime.failure", _OPERATIONAL, _ERROR, "failure", "an unexpected failure")
    CLOCK_STEPPED = ("svc.runtime.clock_stepped", _OPERATIONAL, _WARN, "unknown", "the clock of this machine was set")
    LOGS_DROPPED = ("svc.runtime.logs_dropped", _OPERATIONAL, _WARN, "failure", "log records could not be written")

    PROCESS_STARTED = ("svc.process.started", _OPERATIONAL, _INFO, "success", "started")
    PROCESS_STOPPED = ("svc.process.stopped", _OPERATIONAL, _INFO, "success", "stopped")
    PROCESS_START_FAILED = ("svc.process.start_failed", _OPERATIONAL, _ERROR, "failure", "could not start")
    CONFIG_LOADED = ("svc.config.loaded", _AUDIT, _INFO, "success", "configuration loaded")
    CONFIG_REJECTED = ("svc.config.rejected", _AUDIT, _ERROR, "failure", "configuration rejected, the old one stays")
    CONFIG_RELOADED = ("svc.config.reloaded", _OPERATIONAL, _INFO, "success", "configuration reloaded")
    CONFIG_WARNING = ("svc.config.warning", _OPERATIONAL, _WARN, "unknown", "the configuration is valid but risky")
    HEALTH_CHANGED = ("svc.health.changed", _OPERATIONAL, _INFO, "unknown", "readiness changed")
    ADMIN_DRAIN = ("svc.admin.drain", _AUDIT, _INFO, "success", "drain requested")

    LISTENER_OPENED = ("svc.proxy.listener.opened", _OPERATIONAL, _INFO, "success", "listener opened")
    LISTENER_CLOSED = ("svc.proxy.listener.closed", _OPERATIONAL, _INFO, "success", "listener closed")
    LISTENER_FAILED = ("svc.proxy.listener.failed", _OPERATIONAL, _ERROR, "failure", "listener could not be opened")
    CONNECTION_REFUSED = (
        "svc.proxy.connection.refused",
        _OPERATIONAL,
        _WARN,
        "failure",
        "connection refused before its handshake",
    )
    CONNECTION_EVICTED = (
        "svc.proxy.connection.evicted",
        _OPERATIONAL,
        _WARN,
        "failure",
        "connection of a verified peer closed, the listener is full",
    )
    CONNECTION_REVOKED = (
        "svc.proxy.connection.revoked",
        _SECURITY,
        _WARN,
        "failure",
        "open connection closed, its peer is no longer allowed or credentials have ended",
    )
    CONNECTION_ABORTED = (
        "svc.proxy.connection.aborted",
        _SECURITY,
        _WARN,
        "failure",
        "open connection closed, its peer exceeded a limit of TLS",
    )
    CONNECTIONS_REAUTHORIZED = (
        "svc.proxy.connections.reauthorized",
        _SECURITY,
        _INFO,
        "success",
        "open connections decided on again after a change",
    )
    HANDSHAKE_FAILED = ("svc.proxy.handshake.failed", _SECURITY, _WARN, "failure", "TLS handshake failed")
    AUTH_DENIED = (
        "svc.proxy.auth.denied",
        _SECURITY,
        _WARN,
        "failure",
        "connection denied, the peer's identity is refused",
    )
    REQUEST_DENIED = ("svc.proxy.request.denied", _SECURITY, _WARN, "failure", "request denied")
    REQUEST_REJECTED = ("svc.proxy.request.rejected", _SECURITY, _WARN, "failure", "request not acceptable")
    DENIALS_SUPPRESSED = ("svc.proxy.denials.suppressed", _SECURITY, _WARN, "failure", "further denials not logged")
    ACCESS_DENIED = ("svc.proxy.access.denied", _AUDIT, _WARN, "failure", "access denied")
    ACCESS_SUPPRESSED = (
        "svc.proxy.access.suppressed",
        _AUDIT,
        _WARN,
        "failure",
        "further denials not audited one by one",
    )
    ACCESS_RECORDED = ("svc.proxy.access.recorded", _AUDIT, _INFO, "success", "recorded exchange ended")
    REQUEST_SERVED = ("svc.proxy.request.served", _OPERATIONAL, _INFO, "success", "request served")
    CONNECTION_SERVED = ("svc.proxy.connection.served", _OPERATIONAL, _INFO, "success", "connection relayed")
    POLICY_DEFAULT_ALLOW = (
        "svc.proxy.policy.default_allow",
        _SECURITY,
        _WARN,
        "unknown",
        "every verified identity of the trust domain is allowed",
    )
    POLICY_LOADED = ("svc.proxy.policy.loaded", _AUDIT, _INFO, "success", "policy loaded")
    POLICY_REJECTED = (
        "svc.proxy.policy.rejected",
        _AUDIT,
        _ERROR,
        "failure",
        "policy files rejected, the old ones stay",
    )
    POLICY_DRY_RUN = (
        "svc.proxy.policy.dry_run",
        _OPERATIONAL,
        _INFO,
        "unknown",
        "policies in dry run would decide otherwise",
    )
    POLICY_AUDITED = ("svc.proxy.policy.audited", _AUDIT, _INFO, "success", "request matches a rule of an Audit policy")
    UPSTREAM_FAILED = ("svc.proxy.upstream.failed", _OPERATIONAL, _WARN, "failure", "upstream failed")
    UPSTREAM_MISBEHAVED = ("svc.proxy.upstream.misbehaved", _OPERATIONAL, _WARN, "failure", "upstream broke HTTP")
    ARTIFACTS_BEGAN = (
        "svc.proxy.artifacts.began",
        _OPERATIONAL,
        _INFO,
        "success",
        "artifacts are published on the upstream broker",
    )
    ARTIFACTS_FAILED = (
        "svc.proxy.artifacts.failed",
        _OPERATIONAL,
        _WARN,
        "failure",
        "no session with the upstream broker to publish artifacts",
    )
    ARTIFACTS_REFUSED = (
        "svc.proxy.artifacts.refused",
        _OPERATIONAL,
        _WARN,
        "failure",
        "the upstream broker refuses artifacts",
    )
    ARTIFACTS_DROPPED = ("svc.proxy.artifacts.dropped", _OPERATIONAL, _WARN, "failure", "receipts are not published")
    BUFFER_OPENED = ("svc.proxy.buffer.opened", _OPERATIONAL, _INFO, "success", "buffer of MQTT messages opened")
    BUFFER_CLOSED = ("svc.proxy.buffer.closed", _OPERATIONAL, _INFO, "success", "buffer of MQTT messages closed")
    BUFFER_FAILED = ("svc.proxy.buffer.failed", _OPERATIONAL, _ERROR, "failure", "buffer of MQTT messages failed")
    BUFFER_REFUSES = (
        "svc.proxy.buffer.refuses",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "the buffer cannot store, messages are refused",
    )
    BUFFER_ACCEPTS = ("svc.proxy.buffer.accepts", _OPERATIONAL, _INFO, "success", "the buffer stores messages again")
    BUFFER_LEFT_BEHIND = (
        "svc.proxy.buffer.left_behind",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "stopped before everything in the buffer was durable",
    )
    BUFFER_DAMAGED = ("svc.proxy.buffer.damaged", _OPERATIONAL, _ERROR, "failure", "buffer of MQTT messages is damaged")
    BUFFER_SET_ASIDE = (
        "svc.proxy.buffer.set_aside",
        _AUDIT,
        _ERROR,
        "failure",
        "damaged buffer of MQTT messages quarantined",
    )
    BUFFER_LIES_ASIDE = (
        "svc.proxy.buffer.lies_aside",
        _OPERATIONAL,
        _WARN,
        "unknown",
        "older messages are in quarantined buffers",
    )
    BUFFER_WAITS = (
        "svc.proxy.buffer.waits",
        _OPERATIONAL,
        _WARN,
        "failure",
        "messages wait for a listener that is not there",
    )
    BUFFER_FULL = ("svc.proxy.buffer.full", _OPERATIONAL, _WARN, "failure", "messages of a client are not accepted")
    BUFFER_MESSAGE_DROPPED = (
        "svc.proxy.buffer.dropped",
        _AUDIT,
        _WARN,
        "failure",
        "an acknowledged message was not forwarded",
    )
    BUFFER_DEAD_LETTER = (
        "svc.proxy.buffer.dead_letter",
        _AUDIT,
        _WARN,
        "failure",
        "an acknowledged message is not accepted and is kept",
    )
    BUFFER_DEAD_LETTER_OVER = (
        "svc.proxy.buffer.dead_letter_over",
        _AUDIT,
        _INFO,
        "success",
        "an operator decided about a message that was not accepted",
    )
    BUFFER_DEAD_LETTER_KEPT = (
        "svc.proxy.buffer.dead_letter_kept",
        _OPERATIONAL,
        _WARN,
        "failure",
        "a message that an operator wants to be sent cannot be stored now",
    )
    BUFFER_DEAD_LETTERS_FULL = (
        "svc.proxy.buffer.dead_letters_full",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "a message that is not accepted holds back others, for want of room",
    )
    BUFFER_SESSION_LOST = (
        "svc.proxy.buffer.session_lost",
        _OPERATIONAL,
        _WARN,
        "failure",
        "the broker lost a session, what was in flight is sent again",
    )
    REPLAY_BEGAN = ("svc.proxy.replay.began", _OPERATIONAL, _INFO, "success", "stored messages are forwarded")
    REPLAY_ENDED = ("svc.proxy.replay.ended", _OPERATIONAL, _INFO, "success", "stored messages were forwarded")
    REPLAY_FAILED = (
        "svc.proxy.replay.failed",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "the broker has been away for long, messages wait",
    )
    FORWARDING_FAILED = (
        "svc.proxy.forwarding.failed",
        _OPERATIONAL,
        _WARN,
        "failure",
        "messages are not forwarded at present",
    )
    DRAIN_STARTED = ("svc.proxy.drain.started", _OPERATIONAL, _INFO, "success", "draining")
    DRAIN_FINISHED = ("svc.proxy.drain.finished", _OPERATIONAL, _INFO, "success", "drained")

    GENERATION_ISSUED = ("svc.notary.generation.issued", _OPERATIONAL, _INFO, "success", "new credentials in use")
    IDENTITY_ENDED = (
        "svc.notary.identity.ended",
        _SECURITY,
        _ERROR,
        "failure",
        "the identity has expired or was withdrawn and is no longer used",
    )
    GENERATION_FAILED = ("svc.notary.generation.failed", _OPERATIONAL, _ERROR, "failure", "no new credentials")
    RECORD_FAILED = ("svc.notary.record.failed", _OPERATIONAL, _ERROR, "failure", "record not written")
    NOTARY_OVERLOADED = (
        "svc.notary.overloaded",
        _OPERATIONAL,
        _WARN,
        "failure",
        "notary refused records, its limits are reached",
    )
    ADMISSIONS_HELD = (
        "svc.notary.admissions_held",
        _OPERATIONAL,
        _INFO,
        "unknown",
        "an identity wants more records than it may have now and is held back",
    )
    PROFILE_WEAK = ("svc.envelope.profile.weak", _SECURITY, _WARN, "unknown", "signatures are not quantum-safe")

    STORE_OPENED = ("svc.store.opened", _OPERATIONAL, _INFO, "success", "notary database opened")
    STORE_CLOSED = ("svc.store.closed", _OPERATIONAL, _INFO, "success", "notary database closed")
    STORE_FAILED = ("svc.store.failed", _OPERATIONAL, _ERROR, "failure", "notary database failed")
    STORE_READ_ONLY = (
        "svc.store.read_only",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "notary database is read-only, no new records",
    )
    STORE_WRITABLE = ("svc.store.writable", _OPERATIONAL, _INFO, "success", "notary database is writable again")
    STORE_DAMAGED = ("svc.store.damaged", _OPERATIONAL, _ERROR, "failure", "notary database is damaged")
    STORE_SET_ASIDE = ("svc.store.set_aside", _AUDIT, _ERROR, "failure", "damaged notary database quarantined")
    STORE_LIES_ASIDE = (
        "svc.store.lies_aside",
        _OPERATIONAL,
        _WARN,
        "unknown",
        "older records are in quarantined databases",
    )
    STORE_PRUNED = ("svc.store.pruned", _OPERATIONAL, _INFO, "success", "old records deleted")

    SOURCE_CONNECTED = ("svc.workload.source.connected", _OPERATIONAL, _INFO, "success", "Workload API connected")
    SOURCE_STALE = ("svc.workload.source.stale", _OPERATIONAL, _WARN, "failure", "Workload API not reachable")
    SVID_UPDATED = ("svc.workload.svid.updated", _SECURITY, _INFO, "success", "new SVID")
    IDENTITY_WITHDRAWN = (
        "svc.workload.identity.withdrawn",
        _SECURITY,
        _WARN,
        "failure",
        "the identity was withdrawn and is no longer used",
    )
    IDENTITY_CHANGED = ("svc.workload.identity.changed", _SECURITY, _WARN, "unknown", "another identity than before")
    BUNDLE_UPDATED = ("svc.workload.bundle.updated", _SECURITY, _INFO, "success", "new trust bundle")
    UPDATE_REJECTED = (
        "svc.workload.update.rejected",
        _SECURITY,
        _WARN,
        "failure",
        "update rejected, the last good one stays",
    )
    PQ_BUNDLE_UPDATED = ("svc.pq.bundle.updated", _SECURITY, _INFO, "success", "new post-quantum bundle")
    PQ_LEAF_OBTAINED = ("svc.pq.leaf.obtained", _SECURITY, _INFO, "success", "new post-quantum leaf")
    PQ_LEAF_FAILED = ("svc.pq.leaf.failed", _SECURITY, _WARN, "failure", "no post-quantum leaf")
    PQ_ISSUER_UNREACHABLE = (
        "svc.pq.issuer.unreachable",
        _OPERATIONAL,
        _WARN,
        "failure",
        "post-quantum issuer not reachable",
    )
    PQ_ISSUER_REACHABLE = (
        "svc.pq.issuer.reachable",
        _OPERATIONAL,
        _INFO,
        "success",
        "post-quantum issuer reachable again",
    )

    BROKER_CLIENT_REFUSED = ("svc.broker.client.refused", _SECURITY, _WARN, "failure", "client not admitted")
    BROKER_CLIENT_BROKEN = ("svc.broker.client.broken", _SECURITY, _WARN, "failure", "connection of a client ended")
    BROKER_CONNECTIONS_REAUTHORIZED = (
        "svc.broker.connections.reauthorized",
        _SECURITY,
        _INFO,
        "success",
        "open connections decided on again after a change",
    )
    BROKER_ACCESS_DENIED = ("svc.broker.access.denied", _SECURITY, _WARN, "failure", "no access rule allows it")
    BROKER_NO_ROOM = (
        "svc.broker.message.no_room",
        _OPERATIONAL,
        _WARN,
        "failure",
        "message not queued or not retained",
    )
    BROKER_DENY_LISTS_LOADED = ("svc.broker.deny_lists.loaded", _AUDIT, _INFO, "success", "deny lists loaded")
    BROKER_DENY_LISTS_REJECTED = (
        "svc.broker.deny_lists.rejected",
        _AUDIT,
        _ERROR,
        "failure",
        "deny lists rejected, the old ones stay",
    )
    BROKER_CERTIFICATE_RENEWED = (
        "svc.broker.certificate.renewed",
        _SECURITY,
        _INFO,
        "success",
        "new certificate of a listener in use",
    )
    BROKER_CERTIFICATE_REJECTED = (
        "svc.broker.certificate.rejected",
        _SECURITY,
        _WARN,
        "failure",
        "new certificate of a listener not usable, the old one stays",
    )
    BROKER_STORE_OPENED = ("svc.broker.store.opened", _OPERATIONAL, _INFO, "success", "broker's database opened")
    BROKER_STORE_CLOSED = ("svc.broker.store.closed", _OPERATIONAL, _INFO, "success", "broker's database closed")
    BROKER_STORE_LEFT_BEHIND = (
        "svc.broker.store.left_behind",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "stopped before everything was durable",
    )
    BROKER_STORE_FAILED = ("svc.broker.store.failed", _OPERATIONAL, _ERROR, "failure", "broker's database failed")
    BROKER_STORE_REFUSES = (
        "svc.broker.store.refuses",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "messages and sessions that must be stored are refused",
    )
    BROKER_STORE_ACCEPTS = (
        "svc.broker.store.accepts",
        _OPERATIONAL,
        _INFO,
        "success",
        "messages and sessions are stored again",
    )
    BROKER_STORE_DAMAGED = ("svc.broker.store.damaged", _OPERATIONAL, _ERROR, "failure", "broker's database is damaged")
    BROKER_STORE_SET_ASIDE = (
        "svc.broker.store.set_aside",
        _AUDIT,
        _ERROR,
        "failure",
        "damaged database of the broker quarantined",
    )
    BROKER_STORE_LIES_ASIDE = (
        "svc.broker.store.lies_aside",
        _OPERATIONAL,
        _WARN,
        "unknown",
        "older sessions are in quarantined databases",
    )

    AUTHORITY_STARTED = ("svc.authority.started", _OPERATIONAL, _INFO, "success", "authority serves")
    AUTHORITY_KEYS_LOADED = ("svc.authority.keys.loaded", _AUDIT, _INFO, "success", "existing keys loaded")
    AUTHORITY_KEYS_BEGUN = (
        "svc.authority.keys.begun",
        _AUDIT,
        _WARN,
        "success",
        "no keys found, new keys generated",
    )
    AUTHORITY_SVID_ISSUED = ("svc.authority.svid.issued", _AUDIT, _INFO, "success", "SVID issued")
    AUTHORITY_PQ_LEAF_ISSUED = ("svc.authority.pq_leaf.issued", _AUDIT, _INFO, "success", "post-quantum leaf issued")
    AUTHORITY_REFUSED = ("svc.authority.refused", _SECURITY, _WARN, "failure", "caller refused")

    AGENT_CSI_REGISTERED = ("svc.agent.csi.registered", _OPERATIONAL, _INFO, "success", "the kubelet uses the driver")
    AGENT_CSI_FAILED = ("svc.agent.csi.failed", _OPERATIONAL, _ERROR, "failure", "the kubelet does not use the driver")
    AGENT_PQ_BUNDLE_WRITTEN = (
        "svc.agent.pq_bundle.written",
        _AUDIT,
        _INFO,
        "success",
        "new post-quantum roots of the node",
    )
    AGENT_PQ_BUNDLE_FAILED = (
        "svc.agent.pq_bundle.failed",
        _OPERATIONAL,
        _WARN,
        "failure",
        "the post-quantum roots of the node may be old",
    )
    AGENT_VOLUME_PUBLISHED = (
        "svc.agent.volume.published",
        _AUDIT,
        _INFO,
        "success",
        "the Workload API was mounted into a pod",
    )
    AGENT_VOLUME_UNPUBLISHED = (
        "svc.agent.volume.unpublished",
        _OPERATIONAL,
        _INFO,
        "success",
        "a volume was unmounted",
    )
    AGENT_FILES_WRITTEN = ("svc.agent.files.written", _AUDIT, _INFO, "success", "an SVID was written to files")
    AGENT_FILES_FAILED = ("svc.agent.files.failed", _OPERATIONAL, _ERROR, "failure", "the files of an SVID may be old")
    AGENT_FILES_NOTIFIED = (
        "svc.agent.files.notified",
        _OPERATIONAL,
        _INFO,
        "success",
        "a program was told of its new files",
    )
    AGENT_FILES_NOT_NOTIFIED = (
        "svc.agent.files.not_notified",
        _OPERATIONAL,
        _WARN,
        "failure",
        "a program could not be told of its new files",
    )
    AGENT_VOLUME_FAILED = ("svc.agent.volume.failed", _OPERATIONAL, _WARN, "failure", "a volume could not be served")

    MANAGER_LEADING = ("svc.manager.leading", _OPERATIONAL, _INFO, "success", "this replica leads")
    MANAGER_LEASE_LOST = ("svc.manager.lease_lost", _OPERATIONAL, _WARN, "failure", "this replica leads no more")
    MANAGER_LICENSE_CHANGED = ("svc.manager.license.changed", _AUDIT, _INFO, "success", "the license state changed")
    MANAGER_WEBHOOK_CERTIFICATE = (
        "svc.manager.webhook.certificate",
        _OPERATIONAL,
        _INFO,
        "success",
        "the webhook has a new certificate",
    )
    MANAGER_INJECTION_DENIED = (
        "svc.manager.injection.denied",
        _SECURITY,
        _WARN,
        "failure",
        "a pod was refused, it cannot have the proxy",
    )
    MANAGER_ENTRIES_CHANGED = (
        "svc.manager.entries.changed",
        _AUDIT,
        _INFO,
        "success",
        "registration entries of service accounts changed",
    )
    MANAGER_CONNECTION_DENIED = (
        "svc.manager.connection.denied",
        _SECURITY,
        _WARN,
        "failure",
        "a connection to a pod of another compartment was refused",
    )
    MANAGER_ISSUER_KEYS = (
        "svc.manager.issuer_keys.changed",
        _AUDIT,
        _INFO,
        "success",
        "the roots of the post-quantum issuer changed",
    )
    MANAGER_NETWORK_POLICY = (
        "svc.manager.network_policy.changed",
        _AUDIT,
        _INFO,
        "success",
        "the network policy of a namespace changed",
    )
    MANAGER_RECONCILE_FAILED = (
        "svc.manager.reconcile.failed",
        _OPERATIONAL,
        _ERROR,
        "failure",
        "a controller could not do its work, it tries again",
    )
    MANAGER_KUBERNETES_FAILED = (
        "svc.manager.kubernetes.failed",
        _OPERATIONAL,
        _WARN,
        "failure",
        "the API server could not be asked",
    )
    MANAGER_METRICS_DENIED = (
        "svc.manager.metrics.denied",
        _SECURITY,
        _WARN,
        "failure",
        "a client may not read the metrics",
    )

    REGISTRAR_CHANGED = ("svc.registrar.entries.changed", _AUDIT, _INFO, "success", "registration entries changed")
    REGISTRAR_FAILED = (
        "svc.registrar.entries.failed",
        _OPERATIONAL,
        _WARN,
        "failure",
        "registration entries are not those of the configuration",
    )

    CLI_FAILED = ("svc.cli.failed", _OPERATIONAL, _ERROR, "failure", "the command failed")
    CLI_WARNING = ("svc.cli.warning", _OPERATIONAL, _WARN, "unknown", "a warning of the command line")
    CLI_NOTICE = ("svc.cli.notice", _OPERATIONAL, _INFO, "unknown", "a notice of the command line")
    AUTHORITY_ROTATED = ("svc.authority.rotated", _AUDIT, _INFO, "success", "signing keys rotated")
    AUTHORITY_NODES_BEHIND = (
        "svc.authority.nodes.behind",
        _OPERATIONAL,
        _WARN,
        "failure",
        "a post-quantum root signs that not all nodes have",
    )
    AUTHORITY_FEDERATED = ("svc.authority.federated", _AUDIT, _INFO, "success", "foreign trust bundle loaded")

    def __init__(
        self, event_name: str, category: Category, severity: Severity, outcome: EventOutcome, message: str
    ) -> None:
        self.event_name = event_name
        self.category = category
        self.severity = severity
        self.outcome = outcome
        self.message = message


#: Every event by its name.
EVENTS: Final = {event.event_name: event for event in Event}
