"""
TLS and sockets under SPIFFE identities: connection creators, fast transports, endpoints and their limits.

``endpoints`` listen and connect, ``creators`` make TLS contexts from a source of SVIDs, ``evidence`` says who is at the
other end, ``observer`` what happened to connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.transport.addresses import TcpAddress, UnixAddress, parse_address
    from svc.transport.creators import ClientCreator, ServerCreator, client_creator, server_creator
    from svc.transport.endpoints import (
        MutualTlsClientEndpoint,
        MutualTlsServerEndpoint,
        PlainClientEndpoint,
        PlainServerEndpoint,
    )
    from svc.transport.errors import (
        AddressInvalid,
        AlpnRefused,
        ConnectFailed,
        ConnectionLimitReached,
        ConnectTimeout,
        CredentialsMissing,
        CredentialsUnusable,
        GroupNotAllowed,
        HandshakeFailed,
        HandshakeLimitReached,
        HandshakeTimeout,
        HybridGroupsUnavailable,
        PeerDenied,
        PeerIdentityUnexpected,
        PeerNotVerified,
        PeerSvidInvalid,
        PqRequired,
        TransportError,
    )
    from svc.transport.evidence import PeerEvidence, peer_evidence
    from svc.transport.limits import Limit, Timeouts, connection_limit, handshake_limit
    from svc.transport.observer import ConnectionObserver, NullObserver
    from svc.transport.verification import TlsIdentity
else:
    __getattr__ = exports(
        __name__,
        {
            "addresses": "TcpAddress UnixAddress parse_address",
            "creators": "ClientCreator ServerCreator client_creator server_creator",
            "endpoints": "MutualTlsClientEndpoint MutualTlsServerEndpoint PlainClientEndpoint PlainServerEndpoint",
            "errors": (
                "AddressInvalid AlpnRefused ConnectFailed ConnectTimeout ConnectionLimitReached "
                "CredentialsMissing CredentialsUnusable GroupNotAllowed HandshakeFailed HandshakeLimitReached "
                "HandshakeTimeout HybridGroupsUnavailable PeerDenied PeerIdentityUnexpected PeerNotVerified "
                "PeerSvidInvalid PqRequired TransportError"
            ),
            "evidence": "PeerEvidence peer_evidence",
            "limits": "Limit Timeouts connection_limit handshake_limit",
            "observer": "ConnectionObserver NullObserver",
            "verification": "TlsIdentity",
        },
    )

__all__ = [
    "AddressInvalid",
    "AlpnRefused",
    "ClientCreator",
    "ConnectFailed",
    "ConnectTimeout",
    "ConnectionLimitReached",
    "ConnectionObserver",
    "CredentialsMissing",
    "CredentialsUnusable",
    "GroupNotAllowed",
    "HandshakeFailed",
    "HandshakeLimitReached",
    "HandshakeTimeout",
    "HybridGroupsUnavailable",
    "Limit",
    "MutualTlsClientEndpoint",
    "MutualTlsServerEndpoint",
    "NullObserver",
    "PeerDenied",
    "PeerEvidence",
    "PeerIdentityUnexpected",
    "PeerNotVerified",
    "PeerSvidInvalid",
    "PlainClientEndpoint",
    "PlainServerEndpoint",
    "PqRequired",
    "ServerCreator",
    "TcpAddress",
    "Timeouts",
    "TlsIdentity",
    "TransportError",
    "UnixAddress",
    "client_creator",
    "connection_limit",
    "handshake_limit",
    "parse_address",
    "peer_evidence",
    "server_creator",
]
