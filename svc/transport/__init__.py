"""
TLS and sockets under SPIFFE identities: endpoints, connection creators, the evidence of peers, and limits.

``endpoints`` listen and connect, ``creators`` make TLS contexts from a source of SVIDs, ``evidence`` identifies the
peer, ``observer`` receives reports on connections. ``fast`` replaces parts of Twisted and pyOpenSSL for speed.
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
        ConnectFailed,
        ConnectionLimitReached,
        ConnectTimeout,
        HandshakeFailed,
        HandshakeLimitReached,
        HandshakeTimeout,
        OwnCredentialsEnded,
        OwnCredentialsMissing,
        OwnSvidExpired,
        OwnSvidRefused,
        PeerDenied,
        PeerIdentityUnexpected,
        PeerNotVerified,
        PeerSvidInvalid,
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
                "AddressInvalid ConnectFailed ConnectTimeout ConnectionLimitReached HandshakeFailed "
                "HandshakeLimitReached HandshakeTimeout OwnCredentialsEnded OwnCredentialsMissing OwnSvidExpired "
                "OwnSvidRefused PeerDenied PeerIdentityUnexpected PeerNotVerified PeerSvidInvalid TransportError"
            ),
            "evidence": "PeerEvidence peer_evidence",
            "limits": "Limit Timeouts connection_limit handshake_limit",
            "observer": "ConnectionObserver NullObserver",
            "verification": "TlsIdentity",
        },
    )

__all__ = [
    "AddressInvalid",
    "ClientCreator",
    "ConnectFailed",
    "ConnectTimeout",
    "ConnectionLimitReached",
    "ConnectionObserver",
    "HandshakeFailed",
    "HandshakeLimitReached",
    "HandshakeTimeout",
    "Limit",
    "MutualTlsClientEndpoint",
    "MutualTlsServerEndpoint",
    "NullObserver",
    "OwnCredentialsEnded",
    "OwnCredentialsMissing",
    "OwnSvidExpired",
    "OwnSvidRefused",
    "PeerDenied",
    "PeerEvidence",
    "PeerIdentityUnexpected",
    "PeerNotVerified",
    "PeerSvidInvalid",
    "PlainClientEndpoint",
    "PlainServerEndpoint",
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
