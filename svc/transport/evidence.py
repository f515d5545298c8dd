"""
What a completed handshake proved about the peer, and how a protocol asks its transport for it.

Owns the value and the question; the proving is done in ``verification``.
"""

from __future__ import annotations

from dataclasses import dataclass

from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence
from svc.transport.errors import PeerNotVerified


@dataclass(frozen=True)
class PeerEvidence:
    """
    The verified peer of one TLS connection.

    Attributes:
        svid: the result of ``verify_svid`` for the peer's chain.
        group: the key agreement group by its IANA name, such as ``X25519MLKEM768``.
        cipher: the cipher suite, such as ``TLS_AES_256_GCM_SHA384``.
        tls_version: always ``1.3``.
        post_quantum: whether ``group`` is a hybrid with ML-KEM (RFC 10024).
        own_svid: the SVID that this side presented on this connection.
    """

    svid: SvidEvidence
    group: str
    cipher: str
    tls_version: str
    post_quantum: bool
    own_svid: X509Svid


def peer_evidence(transport: object) -> PeerEvidence:
    """
    Say who is at the other end of a connection.

    Args:
        transport: the transport that a protocol behind one of this package's endpoints was connected to, or a wrapper
            of it that passes ``getHandle`` on.

    Returns:
        The evidence; the same object for the whole life of the connection.

    Raises:
        PeerNotVerified: the transport is not TLS with a verified peer, or its connection is gone.
    """
    get_handle = getattr(transport, "getHandle", None)
    handle = get_handle() if get_handle is not None else None
    found = getattr(handle, "peer_evidence", None)
    if not isinstance(found, PeerEvidence):
        raise PeerNotVerified()
    return found
