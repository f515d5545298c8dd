"""
Errors between an address and a verified peer.

The reason of a failed certificate verification belongs to ``svc.identity``; here it is the ``detail``.
"""

from __future__ import annotations

from svc.errors import Reason, SvcError
from svc.identity.certificate import claimed_spiffe_id


class TransportError(SvcError):
    """the connection failed"""

    reason = "transport_error"
    http_status = 502
    reasons = {
        "credentials_unusable": Reason(
            "OpenSSL does not take the credentials of {spiffe_id}: {detail}", http_status=503
        ),
        "pq_required": Reason(
            "the peer at {address} offers no post-quantum key agreement, and this side requires one",
            "use a TLS library that has X25519MLKEM768 (RFC 10024)",
        ),
        "group_not_allowed": Reason("the peer at {address} offers no key agreement that is allowed here"),
        "alpn_refused": Reason("the peer at {address} offers only the protocols {offered}; allowed are {allowed}"),
        "pq_unavailable": Reason(
            "post-quantum key agreement is required, but this OpenSSL cannot do it: {detail}",
            "install cryptography >= 50, whose OpenSSL has ML-KEM",
        ),
    }
    #: The precise reason under ``reason``; empty where there is none.
    detail: str = ""
    #: The TLS alert that was sent or received, by its name in RFC 8446, section 6; empty where there was none.
    alert: str = ""
    #: The DER of the peer's leaf certificate, where one was received before a handshake failed.
    presented_leaf: bytes = b""

    @property
    def peer_spiffe_id(self) -> str:
        """The identity in the peer's verified certificate, without a proof of its key; empty where there is none."""
        return ""

    @property
    def expected_spiffe_id(self) -> str:
        """The identity that was required of the peer; empty where that is not the cause."""
        return ""

    @property
    def claimed_spiffe_id(self) -> str:
        """The unverified identity in the peer's certificate, for logs and no decision; empty where there is none."""
        return claimed_spiffe_id(self.presented_leaf)


class AddressInvalid(TransportError):
    """{text!r} is not an address; expected {expected}"""

    reason = "address_invalid"
    hint = "write host:port, [IPv6 address]:port or unix:///path"
    text: str
    expected: str


class ConnectFailed(TransportError):
    """cannot connect to {address}: {detail}"""

    reason = "connect_failed"
    hint = "does a server listen there? check the address, the route to it and any firewall in between"
    address: str
    detail: str


class ConnectTimeout(ConnectFailed):
    """no connection to {address} within {detail}"""

    reason = "connect_timeout"
    http_status = 504


class OwnCredentialsMissing(TransportError):
    """there are no credentials to present: {detail}"""

    reason = "credentials_missing"
    http_status = 503
    detail: str


class HandshakeFailed(TransportError):
    """TLS with {address} failed: {detail}

    TLS 1.3 lets a client finish before the server has verified it, so a server's refusal may come as the end of an
    established connection, with this class too.
    """

    reason = "handshake_failed"
    hint = "the peer must use mutual TLS 1.3 with SPIFFE identities, and accept ours"
    address: str
    alert: str
    detail: str


class HandshakeTimeout(TransportError):
    """the TLS handshake with {address} was not complete after {seconds} s"""

    reason = "handshake_timeout"
    hint = "something listens there and does not answer TLS: is it the right port?"
    http_status = 504
    address: str
    seconds: float


class PeerSvidInvalid(TransportError):
    """the SVID of {address} is not valid: {cause}"""

    reason = "svid_invalid"
    hint = "its trust domain must be ours or federated, its certificate current, and both clocks right"
    address: str
    alert: str
    detail: str
    cause: object


class ServerCertificateInvalid(TransportError):
    """the certificate of {address} is not valid for {name}: {cause}"""

    reason = "certificate_invalid"
    hint = (
        "its chain must lead to a root of this system (SSL_CERT_FILE names another file of roots) and name the host of "
        "the URL"
    )
    address: str
    alert: str
    name: str
    cause: object


class ClientCertificateInvalid(TransportError):
    """the certificate of the client at {address} is not valid: {cause}"""

    reason = "client_certificate_invalid"
    hint = "it is issued by an authority of tls.clientAuthorities, for clients, and has one name of the configured kind"
    address: str
    alert: str
    cause: object


class PeerIdentityUnexpected(TransportError):
    """the peer at {address} is {spiffe_id}; expected {expected}"""

    reason = "identity_unexpected"
    hint = "is the address right? if this is the peer that you mean, correct the identity that is expected"
    address: str
    alert: str
    spiffe_id: object
    expected: object

    @property
    def peer_spiffe_id(self) -> str:
        """See :class:`TransportError`."""
        return str(self.spiffe_id)

    @property
    def expected_spiffe_id(self) -> str:
        """See :class:`TransportError`."""
        return str(self.expected)


class PeerDenied(TransportError):
    """{spiffe_id} may not connect: {cause}"""

    reason = "policy_deny"
    http_status = 403
    address: str
    alert: str
    detail: str
    spiffe_id: object
    cause: object

    @property
    def peer_spiffe_id(self) -> str:
        """See :class:`TransportError`."""
        return str(self.spiffe_id)


class PeerCredentialsEnded(TransportError):
    """a certificate by which {spiffe_id} was verified ended at {ended}"""

    reason = "expired"
    spiffe_id: object
    ended: object


class OwnIdentityWithdrawn(TransportError):
    """the connection was made as {presented}; the identity of this process is now {own}"""

    reason = "identity_withdrawn"
    http_status = 503
    hint = "connect again: new connections use the identity that is in force"


class OwnCredentialsEnded(TransportError):
    """a certificate that this side presented as {spiffe_id} ended at {ended}"""

    reason = "credentials_expired"
    http_status = 503
    hint = "the log (`svc.workload.*`) and `readyz` say why the SVID is not renewed"
    spiffe_id: object
    ended: object


class OwnSvidRefused(HandshakeFailed):
    """{address} refused our SVID ({spiffe_id}), whose validity ends at {ends}: it sent the alert {alert}

    Comes as the end of an established connection, before the peer has sent any data.
    """

    reason = "own_svid_refused"
    hint = "the log of the peer says why; it needs a trust bundle of our trust domain and a rule that permits us"
    spiffe_id: object
    ends: object


class OwnSvidExpired(OwnSvidRefused):
    """{address} refused our SVID ({spiffe_id}) as expired; its validity ends at {ends}"""

    reason = "credentials_expired"
    http_status = 503
    hint = OwnCredentialsEnded.hint


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


class KeyUpdateLimitReached(TransportError):
    """{address} sent more than {limit} KeyUpdates and requests to renegotiate in a minute"""

    reason = "key_update_limit"
    hint = "a TLS library needs one for millions of records; look for a peer that is faulty or hostile"
    address: str
    limit: int


class PeerNotVerified(TransportError):
    """the transport carries no verified peer"""

    reason = "peer_not_verified"
