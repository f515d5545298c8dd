"""
Verification of the peer inside the TLS handshake.

``PeerVerification`` verifies the peer's chain once for each connection, as ``verify_svid`` does, with the injected
clock. OpenSSL's verify callback returns that result for each of its calls, so neither OpenSSL's chain building nor its
clock nor its policy decides anything. Fails closed: without evidence there is no connection, whatever OpenSSL found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.matchers import Matcher
from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence
from svc.transport.binding import ffi, lib
from svc.transport.chain_cache import Chain, VerifiedChainCache
from svc.transport.errors import PeerDenied, PeerIdentityUnexpected, PeerSvidInvalid, TransportError
from svc.transport.evidence import PeerEvidence
from svc.transport.peerchain import sent_chain, sent_chain_is_readable

#: Decides whether a verified identity may connect; raises an ``SvcError`` when it may not.
Authorize = Callable[[SvidEvidence], None]

# X509_V_ERR_* to the alert that OpenSSL derives from it (RFC 8446, 6.2).
_ALERTS: Final[dict[int, str]] = {
    lib.X509_V_ERR_CERT_HAS_EXPIRED: "certificate_expired",
    lib.X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "unknown_ca",
    lib.X509_V_ERR_INVALID_PURPOSE: "unsupported_certificate",
    lib.X509_V_ERR_CERT_REJECTED: "bad_certificate",
    lib.X509_V_ERR_APPLICATION_VERIFICATION: "handshake_failure",
}
_REJECTED: Final[int] = lib.X509_V_ERR_CERT_REJECTED
_INTERNAL: Final[int] = lib.X509_V_ERR_APPLICATION_VERIFICATION
_CODES: Final[dict[str, int]] = {
    "expired": lib.X509_V_ERR_CERT_HAS_EXPIRED,
    "chain_untrusted": lib.X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    "trust_domain_unknown": lib.X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    "key_not_allowed": lib.X509_V_ERR_INVALID_PURPOSE,
}


class TlsIdentity(Protocol):
    """A source of credentials; its current values are read for each new connection."""

    @property
    def svid(self) -> X509Svid:
        """The SVID to present."""

    @property
    def bundles(self) -> BundleSet:
        """The trust bundles that peers are verified against."""


@dataclass(frozen=True)
class PeerRules:
    """
    What a peer must satisfy.

    Attributes:
        source: its bundles are read at the moment of verification.
        clock: the time of verification, aware UTC.
        expected: the accepted identities, or None for every identity that verifies.
        authorize: a further decision on the verified identity, or None.
    """

    source: TlsIdentity
    clock: Callable[[], datetime]
    expected: Matcher | None = None
    authorize: Authorize | None = None
    chain_cache: VerifiedChainCache = field(default_factory=VerifiedChainCache, compare=False)

    def verify(self, chain: Chain) -> SvidEvidence:
        """
        Verify a chain, DER, leaf first, and the identity in it.

        Raises:
            SvidInvalid: the chain is not a valid SVID.
            UnexpectedIdentity: the identity is not one of ``expected``.
            IdentityDenied: ``authorize`` refused it; its error is the cause.
        """
        evidence = self.chain_cache.verify(chain, self.source.bundles, self.clock())
        if self.expected is not None and not self.expected.matches(evidence.spiffe_id):
            raise UnexpectedIdentity(spiffe_id=evidence.spiffe_id, expected=self.expected)
        if self.authorize is not None:
            try:
                self.authorize(evidence)
            except SvcError as error:
                raise IdentityDenied(spiffe_id=evidence.spiffe_id, cause=error) from error
        return evidence


class UnexpectedIdentity(SvcError):
    """{spiffe_id} is not {expected}"""

    reason = "identity_unexpected"
    spiffe_id: object
    expected: object


class IdentityDenied(SvcError):
    """{spiffe_id} may not connect: {cause}"""

    reason = "policy_deny"
    spiffe_id: object
    cause: SvcError


class PeerVerification:
    """
    The verification of one connection's peer, made at most once.

    Attributes:
        evidence: the result, or None.
        refusal: why the peer was refused, or None; a defect of ours refuses the peer too.
    """

    def __init__(self, rules: PeerRules) -> None:
        self._rules = rules
        self.evidence: SvidEvidence | None = None
        self.refusal: Exception | None = None
        self._refused_leaf = b""

    def verify(self, read_chain: Callable[[], Chain]) -> bool:
        """
        Verify the chain, or repeat the result; returns whether the peer is accepted.

        Never raises, since OpenSSL calls it. ``read_chain`` gives the chain as sent and is called the first time only.
        """
        if self.evidence is None and self.refusal is None:
            chain: Chain = ()
            try:
                chain = read_chain()
                self.evidence = self._rules.verify(chain)
            except Exception as error:  # noqa: BLE001 - any failure of the verification must refuse the peer
                self.refusal = error
                self._refused_leaf = chain[0] if chain else b""
        return self.evidence is not None and self.refusal is None

    @property
    def presented_leaf(self) -> bytes:
        """The DER of the peer's leaf certificate; empty where none was received."""
        return self._refused_leaf if self.evidence is None else self.evidence.chain[0].public_bytes(Encoding.DER)

    @property
    def code(self) -> int:
        """The ``X509_V_ERR_*`` code of the refusal."""
        if isinstance(self.refusal, SvcError):
            return _CODES.get(self.refusal.reason, _REJECTED)
        return _INTERNAL

    def error(self, address: str) -> TransportError:
        """The refusal as an error for the application, with the peer's address; the refusal is its cause."""
        refusal, alert = self.refusal, _ALERTS.get(self.code, "certificate_unknown")
        error: TransportError
        if isinstance(refusal, UnexpectedIdentity):
            error = PeerIdentityUnexpected(
                address=address, alert=alert, spiffe_id=refusal.spiffe_id, expected=refusal.expected
            )
        elif isinstance(refusal, IdentityDenied):
            error = PeerDenied(
                address=address,
                alert=alert,
                detail=refusal.cause.reason,
                spiffe_id=refusal.spiffe_id,
                cause=refusal.cause,
            )
        elif isinstance(refusal, SvcError):
            error = PeerSvidInvalid(address=address, alert=alert, detail=refusal.reason, cause=refusal)
        else:
            cause = "the verification failed" if refusal is not None else "it was not verified"
            error = PeerSvidInvalid(address=address, alert=alert, detail="internal_error", cause=cause)
        error.__cause__ = refusal
        return error


class VerifiedConnection(SSL.Connection):
    """
    A TLS connection with the verification of its peer.

    Attributes:
        own_svid: what this side presents.
        alpn_allowed: the application protocols of this side.
        alpn_offered: the refused offer of a client, or None.
        peer_evidence: set when the handshake is complete.
    """

    def __init__(
        self,
        context: SSL.Context,
        verification: PeerVerification,
        own_svid: X509Svid,
        alpn_allowed: tuple[bytes, ...] = (),
    ) -> None:
        super().__init__(context, None)
        self.verification = verification
        self.own_svid = own_svid
        self.alpn_allowed = alpn_allowed
        self.alpn_offered: tuple[bytes, ...] | None = None
        self.peer_evidence: PeerEvidence | None = None


def _on_verify(preverified: int, store_context: Any) -> int:
    ssl = lib.X509_STORE_CTX_get_ex_data(store_context, lib.SSL_get_ex_data_X509_STORE_CTX_idx())
    connection = SSL.Connection._reverse_mapping[ssl]
    if isinstance(connection, VerifiedConnection):
        verification = connection.verification
        accepted = verification.verify(lambda: sent_chain(store_context))
        lib.X509_STORE_CTX_set_error(store_context, lib.X509_V_OK if accepted else verification.code)
        return accepted
    return 0


# ``error=0``: should anything be raised nevertheless, the certificate is refused. The callback is never freed, so no
# connection can outlive it.
_CALLBACK: Final[Any] = ffi.callback("int (*)(int, X509_STORE_CTX *)", _on_verify, error=0)

#: The depth at which OpenSSL builds no chain beyond the leaf (-1 means its default). It then checks no signatures of
#: certificates: its result decides nothing, our verifier checks them all, and each costs a tenth of a handshake.
_LEAF_ONLY: Final = -2


def require_verified_peer(context: SSL.Context) -> None:
    """Make a new context, whose connections are ``VerifiedConnection``, request and verify the peer's certificate."""
    mode = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
    lib.SSL_CTX_set_verify(context._context, mode, _CALLBACK)
    if sent_chain_is_readable():
        lib.SSL_CTX_set_verify_depth(context._context, _LEAF_ONLY)
