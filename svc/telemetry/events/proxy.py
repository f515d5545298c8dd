"""What the proxy emits."""

from __future__ import annotations

from enum import unique

from svc.telemetry.events.base import AUDIT, ERROR, INFO, OPERATIONAL, SECURITY, WARN, Event


@unique
class ProxyEvent(Event):
    """What the proxy emits."""

    LISTENER_OPENED = ("svc.proxy.listener.opened", OPERATIONAL, INFO, "success", "listener opened")
    LISTENER_CLOSED = ("svc.proxy.listener.closed", OPERATIONAL, INFO, "success", "listener closed")
    LISTENER_FAILED = ("svc.proxy.listener.failed", OPERATIONAL, ERROR, "failure", "listener could not be opened")
    CONNECTION_REFUSED = (
        "svc.proxy.connection.refused",
        OPERATIONAL,
        WARN,
        "failure",
        "connection refused before its handshake",
    )
    CONNECTION_EVICTED = (
        "svc.proxy.connection.evicted",
        OPERATIONAL,
        WARN,
        "failure",
        "connection of a verified peer closed, the listener is full",
    )
    CONNECTION_REVOKED = (
        "svc.proxy.connection.revoked",
        SECURITY,
        WARN,
        "failure",
        "open connection closed, its peer is no longer allowed or credentials have ended",
    )
    CONNECTION_ABORTED = (
        "svc.proxy.connection.aborted",
        SECURITY,
        WARN,
        "failure",
        "open connection closed, its peer exceeded a limit of TLS",
    )
    CONNECTIONS_REAUTHORIZED = (
        "svc.proxy.connections.reauthorized",
        SECURITY,
        INFO,
        "success",
        "open connections decided on again after a change",
    )
    HANDSHAKE_FAILED = ("svc.proxy.handshake.failed", SECURITY, WARN, "failure", "TLS handshake failed")
    AUTH_DENIED = (
        "svc.proxy.auth.denied",
        SECURITY,
        WARN,
        "failure",
        "connection denied, the peer's identity is refused",
    )
    REQUEST_DENIED = ("svc.proxy.request.denied", SECURITY, WARN, "failure", "request denied")
    REQUEST_REJECTED = ("svc.proxy.request.rejected", SECURITY, WARN, "failure", "request not acceptable")
    DENIALS_SUPPRESSED = ("svc.proxy.denials.suppressed", SECURITY, WARN, "failure", "further denials not logged")
    ACCESS_DENIED = ("svc.proxy.access.denied", AUDIT, WARN, "failure", "access denied")
    ACCESS_SUPPRESSED = (
        "svc.proxy.access.suppressed",
        AUDIT,
        WARN,
        "failure",
        "further denials not audited one by one",
    )
    ACCESS_RECORDED = ("svc.proxy.access.recorded", AUDIT, INFO, "success", "recorded exchange ended")
    REQUEST_SERVED = ("svc.proxy.request.served", OPERATIONAL, INFO, "success", "request served")
    CONNECTION_SERVED = ("svc.proxy.connection.served", OPERATIONAL, INFO, "success", "connection relayed")
    POLICY_DEFAULT_ALLOW = (
        "svc.proxy.policy.default_allow",
        SECURITY,
        WARN,
        "unknown",
        "every verified identity of the trust domain is allowed",
    )
    POLICY_LOADED = ("svc.proxy.policy.loaded", AUDIT, INFO, "success", "policy loaded")
    POLICY_REJECTED = (
        "svc.proxy.policy.rejected",
        AUDIT,
        ERROR,
        "failure",
        "policy files rejected, the old ones stay",
    )
    POLICY_MANAGER_LOST = (
        "svc.proxy.policy.manager_lost",
        OPERATIONAL,
        WARN,
        "failure",
        "the manager gives no policies, those in force stay",
    )
    POLICY_MANAGER_FOUND = (
        "svc.proxy.policy.manager_found",
        OPERATIONAL,
        INFO,
        "success",
        "the manager gives policies again",
    )
    POLICY_DRY_RUN = (
        "svc.proxy.policy.dry_run",
        OPERATIONAL,
        INFO,
        "unknown",
        "policies in dry run would decide otherwise",
    )
    POLICY_AUDITED = ("svc.proxy.policy.audited", AUDIT, INFO, "success", "request matches a rule of an Audit policy")
    UPSTREAM_FAILED = ("svc.proxy.upstream.failed", OPERATIONAL, WARN, "failure", "upstream failed")
    UPSTREAM_MISBEHAVED = ("svc.proxy.upstream.misbehaved", OPERATIONAL, WARN, "failure", "upstream broke HTTP")
    ARTIFACTS_BEGAN = (
        "svc.proxy.artifacts.began",
        OPERATIONAL,
        INFO,
        "success",
        "artifacts are published on the upstream broker",
    )
    ARTIFACTS_FAILED = (
        "svc.proxy.artifacts.failed",
        OPERATIONAL,
        WARN,
        "failure",
        "no session with the upstream broker to publish artifacts",
    )
    ARTIFACTS_REFUSED = (
        "svc.proxy.artifacts.refused",
        OPERATIONAL,
        WARN,
        "failure",
        "the upstream broker refuses artifacts",
    )
    ARTIFACTS_DROPPED = ("svc.proxy.artifacts.dropped", OPERATIONAL, WARN, "failure", "receipts are not published")
    BUFFER_OPENED = ("svc.proxy.buffer.opened", OPERATIONAL, INFO, "success", "buffer of MQTT messages opened")
    BUFFER_CLOSED = ("svc.proxy.buffer.closed", OPERATIONAL, INFO, "success", "buffer of MQTT messages closed")
    BUFFER_FAILED = ("svc.proxy.buffer.failed", OPERATIONAL, ERROR, "failure", "buffer of MQTT messages failed")
    BUFFER_REFUSES = (
        "svc.proxy.buffer.refuses",
        OPERATIONAL,
        ERROR,
        "failure",
        "the buffer cannot store, messages are refused",
    )
    BUFFER_ACCEPTS = ("svc.proxy.buffer.accepts", OPERATIONAL, INFO, "success", "the buffer stores messages again")
    BUFFER_LEFT_BEHIND = (
        "svc.proxy.buffer.left_behind",
        OPERATIONAL,
        ERROR,
        "failure",
        "stopped before everything in the buffer was durable",
    )
    BUFFER_DAMAGED = ("svc.proxy.buffer.damaged", OPERATIONAL, ERROR, "failure", "buffer of MQTT messages is damaged")
    BUFFER_SET_ASIDE = (
        "svc.proxy.buffer.set_aside",
        AUDIT,
        ERROR,
        "failure",
        "damaged buffer of MQTT messages quarantined",
    )
    BUFFER_LIES_ASIDE = (
        "svc.proxy.buffer.lies_aside",
        OPERATIONAL,
        WARN,
        "unknown",
        "older messages are in quarantined buffers",
    )
    BUFFER_WAITS = (
        "svc.proxy.buffer.waits",
        OPERATIONAL,
        WARN,
        "failure",
        "messages wait for a listener that is not there",
    )
    BUFFER_FULL = ("svc.proxy.buffer.full", OPERATIONAL, WARN, "failure", "messages of a client are not accepted")
    BUFFER_MESSAGE_DROPPED = (
        "svc.proxy.buffer.dropped",
        AUDIT,
        WARN,
        "failure",
        "an acknowledged message was not forwarded",
    )
    BUFFER_DEAD_LETTER = (
        "svc.proxy.buffer.dead_letter",
        AUDIT,
        WARN,
        "failure",
        "an acknowledged message is not accepted and is kept",
    )
    BUFFER_DEAD_LETTER_OVER = (
        "svc.proxy.buffer.dead_letter_over",
        AUDIT,
        INFO,
        "success",
        "an operator decided about a message that was not accepted",
    )
    BUFFER_DEAD_LETTER_KEPT = (
        "svc.proxy.buffer.dead_letter_kept",
        OPERATIONAL,
        WARN,
        "failure",
        "a message that an operator wants to be sent cannot be stored now",
    )
    BUFFER_DEAD_LETTERS_FULL = (
        "svc.proxy.buffer.dead_letters_full",
        OPERATIONAL,
        ERROR,
        "failure",
        "a message that is not accepted holds back others, for want of room",
    )
    BUFFER_SESSION_LOST = (
        "svc.proxy.buffer.session_lost",
        OPERATIONAL,
        WARN,
        "failure",
        "the broker lost a session, what was in flight is sent again",
    )
    REPLAY_BEGAN = ("svc.proxy.replay.began", OPERATIONAL, INFO, "success", "stored messages are forwarded")
    REPLAY_ENDED = ("svc.proxy.replay.ended", OPERATIONAL, INFO, "success", "stored messages were forwarded")
    REPLAY_FAILED = (
        "svc.proxy.replay.failed",
        OPERATIONAL,
        ERROR,
        "failure",
        "the broker has been away for long, messages wait",
    )
    FORWARDING_FAILED = (
        "svc.proxy.forwarding.failed",
        OPERATIONAL,
        WARN,
        "failure",
        "messages are not forwarded at present",
    )
    DRAIN_STARTED = ("svc.proxy.drain.started", OPERATIONAL, INFO, "success", "draining")
    DRAIN_FINISHED = ("svc.proxy.drain.finished", OPERATIONAL, INFO, "success", "drained")
