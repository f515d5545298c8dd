"""The evidence of a completed handshake, and how a protocol reads it from its transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence, verify_svid
from svc.transport.errors import OwnCredentialsEnded, OwnIdentityWithdrawn, PeerCredentialsEnded, PeerNotVerified


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
        own_svid: what this side presented on this connection.
        server_name: the name that the client asked for (SNI), in lower case; empty without one.
        alpn: the application protocol that both agreed on; empty without one.
    """

    svid: SvidEvidence
    group: str
    cipher: str
    tls_version: str
    post_quantum: bool
    own_svid: X509Svid
    server_name: str = ""
    alpn: str = ""
    #: The bundle by which the peer was verified last.
    _accepted_by: X509Bundle = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_accepted_by", self.svid.bundle)

    @cached_property
    def ends(self) -> datetime:
        """When the connection must end: the earliest end of the peer's verified path and of the own chain."""
        return min(self.svid.chain_not_after, self.own_svid.chain_not_after)

    def verify_time(self, now: datetime) -> None:
        """
        Verify that the credentials of both sides are still valid at an aware time; cheap.

        Raises:
            PeerCredentialsEnded: those of the peer have ended.
            OwnCredentialsEnded: those that this side presented have ended.
        """
        if now <= self.ends:
            return
        self.verify_peer_time(now)
        raise OwnCredentialsEnded(spiffe_id=self.own_svid.spiffe_id, ended=_text(self.own_svid.chain_not_after))

    def verify_peer_time(self, now: datetime) -> None:
        """
        Verify the peer's alone, where a connection may outlive the credentials that this side presented.

        Raises:
            PeerCredentialsEnded: they have ended.
        """
        if now > self.svid.chain_not_after:
            raise PeerCredentialsEnded(spiffe_id=self.svid.spiffe_id, ended=_text(self.svid.chain_not_after))

    def reauthorize(self, own: SpiffeID | None, bundles: BundleSet, now: datetime) -> None:
        """
        Verify again what the handshake verified, by what is in force now.

        Args:
            own: the identity of this process, None while it has none.
            bundles: the bundles.
            now: the time, aware.

        Raises:
            OwnIdentityWithdrawn: the connection was made under another identity of this process.
            SvidInvalid: the peer's SVID would now be refused.
        """
        presented = self.own_svid.spiffe_id
        if presented != own:
            raise OwnIdentityWithdrawn(presented=presented, own=own or "none")
        bundle = bundles.bundle_for(self.svid.spiffe_id.trust_domain)
        if bundle == self._accepted_by and not bundle.windowed and now <= self.svid.chain_not_after:
            # The signatures lead to a root of this bundle, and nothing else but time could end that.
            return
        # It was valid when it was accepted: a clock that was set back meanwhile revokes nothing.
        verify_svid(self.svid.chain[:-1], bundles, max(now, self.svid.chain_not_before))
        object.__setattr__(self, "_accepted_by", bundle)


def peer_evidence(transport: object) -> PeerEvidence:
    """
    Return the evidence of a connection's peer, the same object for the life of the connection.

    Args:
        transport: of a protocol behind one of this package's endpoints, or a wrapper that forwards ``getHandle``.

    Raises:
        PeerNotVerified: the transport is not TLS with a verified peer, or its connection is closed.
    """
    get_handle = getattr(transport, "getHandle", None)
    handle = get_handle() if get_handle is not None else None
    found = getattr(handle, "peer_evidence", None)
    if not isinstance(found, PeerEvidence):
        raise PeerNotVerified()
    return found


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
