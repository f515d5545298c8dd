"""
What can go wrong between an address and a verified peer.

Owns the reasons of the transport. A reason of certificate verification belongs to ``svc.identity``; it is carried here
as ``detail``. Nothing in this module knows Twisted or OpenSSL.
"""

from __future__ import annotations

from svc.errors import SvcError


class TransportError(SvcError):
    """the connection failed"""

    reason = "transport_error"
    http_status = 502
    #: The precise reason under ``reason``; empty where there is none.
    detail: str = ""
    #: The TLS alert that was sent or received, by its name in RFC 8446, section 6; empty where there was none.
    alert: str = ""


class AddressInvalid(TransportError):
    """{text!r} is not an address; expected {expected}"""

    reason = "address_invalid"
    text: str
    expected: str


class ConnectFailed(TransportError):
    """cannot connect to {address}: {detail}"""

    reason = "connect_failed"
    address: str
    detail: str


class ConnectTimeout(ConnectFailed):
    """no connection to {address} within {detail}"""

    reason = "connect_timeout"
    http_status = 504


class CredentialsMissing(TransportError):
    """there are no credentials to present: {detail}"""

    reason = "credentials_missing"
    http_status = 503
    detail: str


class CredentialsUnusable(TransportError):
    """OpenSSL does not take the credentials of {spiffe_id}: {detail}"""

    reason = "credentials_unusable"
    http_status = 503
    spiffe_id: str
    detail: str


class HandshakeFailed(TransportError):
    """TLS with {address} failed: {detail}

    TLS 1.3 lets a client finish before the server has judged it, so a server's refusal may come as the end of an
    established connection; it has this class too.
    """

    reason = "handshake_failed"
    address: str
    alert: str
    detail: str


class HandshakeTimeout(TransportError):
    """the TLS handshake with {address} was not complete after {seconds} s"""

    reason = "handshake_timeout"
    http_status = 504
    address: str
    seconds: float


class PeerSvidInvalid(TransportError):
    """the SVID of {address} is not valid: {cause}"""

    reason = "svid_invalid"
    address: str
    alert: str
    detail: str
    cause: object


class PeerIdentityUnexpected(TransportError):
    """the peer at {address} is {spiffe_id}; expected {expected}"""

    reason = "identity_unexpected"
    address: str
    alert: str
    spiffe_id: object
    expected: object


class PeerDenied(TransportError):
    """{spiffe_id} may not connect: {cause}"""

    reason = "policy_deny"
    http_status = 403
    address: str
    alert: str
    detail: str
    spiffe_id: object
    cause: object


class PqRequired(TransportError):
    """the peer at {address} offers no post-quantum key agreement, and this side requires one"""

    reason = "pq_required"
    hint = "use a TLS library that has X25519MLKEM768 (RFC 10024)"
    address: str
    alert: str


class GroupNotAllowed(TransportError):
    """the peer at {address} offers no key agreement that is allowed here"""

    reason = "group_not_allowed"
    address: str
    alert: str


class AlpnRefused(TransportError):
    """the peer at {address} offers only the protocols {offered}; allowed are {allowed}"""

    reason = "alpn_refused"
    address: str
    alert: str
    offered: str
    allowed: str


class ConnectionLimitReached(TransportError):
    """the listener already has its limit of {limit} connections"""

    reason = "connection_limit"
    http_status = 503
    limit: int


class WaitingLimitReached(TransportError):
    """{limit} connections already wait for the first octet of their peers"""

    reason = "waiting_limit"
    http_status = 503
    limit: int


class HandshakeLimitReached(TransportError):
    """{limit} TLS handshakes are already running"""

    reason = "handshake_limit"
    http_status = 503
    limit: int


class HybridGroupsUnavailable(TransportError):
    """post-quantum key agreement is required, but this OpenSSL cannot do it: {detail}"""

    reason = "pq_unavailable"
    hint = "install cryptography >= 50, whose OpenSSL has ML-KEM"
    detail: str


class PeerNotVerified(TransportError):
    """the transport carries no verified peer"""

    reason = "peer_not_verified"
