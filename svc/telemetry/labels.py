"""
The values of metric labels.

Every label has a closed set of values, whatever a peer sends; other values are counted as ``other``.
docs/telemetry.md names the event behind each value.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Protocol = Literal["http", "tcp", "mqtt"]
Direction = Literal["inbound", "outbound"]
Role = Literal["server", "client"]
NotaryProtocol = Literal["http", "mqtt"]
Level = Literal["workload", "logRequest", "signRequest"]

LEVELS: Final[tuple[Level, ...]] = ("workload", "logRequest", "signRequest")
OTHER: Final = "other"

#: What closed a connection of a client.
Cause = Literal[
    "client",
    "application",
    "served",
    "idle",
    "timeout",
    "protocol",
    "drain",
    "reauthorization",
    "rotation",
    "identity_withdrawn",
    "peer_expired",
    "credentials_expired",
    "record",
    "server_aborted",
    "evicted_unpermitted",
    "evicted_idle",
    "handshake",
    "connection_limit",
    "handshake_limit",
    "waiting_limit",
    "credentials_missing",
    "proxy_header_invalid",
    "proxy_header_timeout",
    "key_update_limit",
    "policy_deny",
    "upstream",
    "lifetime",
    "defect",
    "other",
]
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
#: What does not close connections of a protocol.
FOREIGN_CAUSES: Final[dict[Protocol, frozenset[Cause]]] = {
    "http": frozenset(("policy_deny", "upstream", "lifetime")),
    "tcp": frozenset(("served", "timeout", "protocol", "record", "server_aborted", "evicted_unpermitted")),
    "mqtt": frozenset(("served", "server_aborted")),
}

#: Why a broker refuses a session: return codes of MQTT 3.1.1 and reason codes of CONNACK in MQTT 5.0, by their names.
CONNACK_REASONS: Final = (
    "unacceptable_protocol_version",
    "identifier_rejected",
    "server_unavailable",
    "bad_user_name_or_password",
    "not_authorized",
    "unspecified_error",
    "malformed_packet",
    "protocol_error",
    "implementation_specific_error",
    "unsupported_protocol_version",
    "client_identifier_not_valid",
    "server_busy",
    "banned",
    "bad_authentication_method",
    "topic_name_invalid",
    "packet_too_large",
    "quota_exceeded",
    "payload_format_invalid",
    "retain_not_supported",
    "qos_not_supported",
    "use_another_server",
    "server_moved",
    "connection_rate_exceeded",
)

#: Why the proxy closes an open connection to a peer.
UpstreamCause = Literal["peer_expired", "credentials_expired", "reauthorization", "rotation", "identity_withdrawn"]
UPSTREAM_CAUSES: Final[tuple[UpstreamCause, ...]] = get_args(UpstreamCause)

#: What became of artifacts for the upstream broker of an MQTT listener: (kind, result). With MQTT 3.1.1 a refused probe
#: stands for all artifacts of a session.
ARTIFACTS: Final = (
    ("workload", "published"),
    ("workload", "refused"),
    ("receipt", "published"),
    ("receipt", "refused"),
    ("receipt", "dropped"),
    ("probe", "refused"),
)

#: What an admission of a record waits for: a place in the queue, or its identity's own rate.
AdmissionWait = Literal["place", "rate"]
ADMISSION_WAITS: Final[tuple[AdmissionWait, ...]] = get_args(AdmissionWait)

#: Why a message is a dead letter of the buffer of MQTT messages.
DEAD_LETTERS: Final = ("rejected", "too_large", "age")

#: The methods of RFC 9110, section 9, and PATCH (RFC 5789), without CONNECT, which is refused before it is a request.
HTTP_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"))

#: Key exchange groups that this proxy agrees to, by their names in IANA's registry, and whether they are post-quantum.
TLS_GROUPS: Final = {
    "X25519MLKEM768": True,
    "SecP256r1MLKEM768": True,
    "SecP384r1MLKEM1024": True,
    "x25519": False,
    "secp256r1": False,
    "secp384r1": False,
}

#: Reasons for which the SVID of a peer is invalid, as in ``svc.identity.errors``.
SVID_REASONS: Final = frozenset(
    (
        "svid_malformed",
        "certificate_version",
        "critical_extension_unknown",
        "key_not_allowed",
        "signature_algorithm_not_allowed",
        "no_uri_san",
        "too_many_uri_sans",
        "spiffe_id_malformed",
        "root_path",
        "leaf_is_ca",
        "key_usage",
        "ext_key_usage",
        "leaf_is_anchor",
        "expired",
        "not_yet_valid",
        "trust_domain_unknown",
        "chain_untrusted",
        "chain_too_long",
        "signing_not_ca",
        "signing_key_usage",
        "signing_uri_san",
        "path_length",
        "name_constraints",
        "internal_error",
    )
)
_TLS_REASONS: Final = frozenset(("handshake_failed", "handshake_timeout", "pq_required", "group_not_allowed", OTHER))
#: Why a handshake fails: with clients (``server``), and with the peers of outbound listeners (``client``).
HANDSHAKE_REASONS: Final[dict[Role, frozenset[str]]] = {
    "server": SVID_REASONS | _TLS_REASONS | {"certificate_missing", "alpn_refused"},
    "client": SVID_REASONS | _TLS_REASONS | {"identity_unexpected", "credentials_expired", "own_svid_refused"},
}

#: Failed operations of the notary database: (operation, entity).
DB_ERRORS: Final = (
    ("init", "db"),
    ("put", "certificate_blob"),
    ("put", "workload_statement"),
    ("put", "receipt"),
    ("put", "db"),
    ("get", "certificate_blob"),
    ("get", "workload_statement"),
    ("get", "receipt"),
    ("get", "db"),
    ("close", "db"),
)

#: The kinds of denials that are counted but not logged one by one.
DENIALS: Final = ("svid_invalid", "policy_deny", "handshake", "limit", "request", "upstream", "notary")
_LIMITS: Final = frozenset(
    (
        "connection_limit",
        "handshake_limit",
        "waiting_limit",
        "evicted_unpermitted",
        "evicted_idle",
        "key_update_limit",
        "credentials_missing",
        "credentials_expired",
        "identity_withdrawn",
        "proxy_header_invalid",
        "proxy_header_timeout",
    )
)
_HANDSHAKE: Final = frozenset().union(*HANDSHAKE_REASONS.values()) - SVID_REASONS - _LIMITS
_GROUPS_BY_FOLDED: Final = {name.lower(): name for name in TLS_GROUPS}


def tls_group(name: str) -> str:
    """The group in the spelling of :data:`TLS_GROUPS`, or ``other``; ``name`` may be in any case."""
    return _GROUPS_BY_FOLDED.get(name.lower(), OTHER)


def denial(reason: str) -> str:
    """The one of :data:`DENIALS` that a precise reason belongs to; unknown reasons belong to the request."""
    if reason in SVID_REASONS or reason in ("svid_invalid", "certificate_missing"):
        return "svid_invalid"
    if reason in ("policy_deny", "policy_audited", "identity_unexpected"):
        return "policy_deny"
    if reason in _HANDSHAKE:
        return "handshake"
    if reason in _LIMITS:
        return "limit"
    if reason.startswith("upstream_"):
        return "upstream"
    return "notary" if reason.startswith("notary_") else "request"
