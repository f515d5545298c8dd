"""
The judgement of a peer inside the TLS handshake.

``Verification`` is the state of one connection: it judges the peer's chain once, as ``verify_svid`` does and by the
injected clock, and remembers evidence or refusal. The callback below it gives OpenSSL that answer for each of OpenSSL's
own questions, so that neither OpenSSL's chain building nor its clock nor its policy decides anything: only our verdict
does. Fails closed: without evidence there is no connection, whatever OpenSSL says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from OpenSSL import SSL

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.matchers import Matcher
from svc.identity.svid import X509Svid
from svc.identity.verification import SvidEvidence
from svc.transport.binding import ffi, lib
from svc.transport.errors import PeerDenied, PeerIdentityUnexpected, PeerSvidInvalid, TransportError
from svc.transport.evidence import PeerEvidence
from svc.transport.peerchain import sent_chain, sent_chain_is_readable
from svc.transport.remembered import Chain, RememberedChains

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
    """A source of credentials: what it holds now is read for each new connection."""

    @property
    def svid(self) -> X509Svid:
        """The SVID to present."""

    @property
    def bundles(self) -> BundleSet:
        """Whom to trust."""


@dataclass(frozen=True)
class PeerRules:
    """
    What a peer must satisfy.

    Attributes:
        source: where the bundles come from, read at the moment of judgement.
        clock: the time of judgement, aware UTC.
        expected: the identities that are acceptable, or None for any that verifies.
        authorize: a further decision on the verified identity, or None.
        remembered: the chains that were accepted before.
    """

    source: TlsIdentity
    clock: Callable[[], datetime]
    expected: Matcher | None = None
    authorize: Authorize | None = None
    remembered: RememberedChains = field(default_factory=RememberedChains, compare=False)

    def judge(self, chain: Chain) -> SvidEvidence:
        """
        Verify a chain and the identity in it.

        Args:
            chain: the DER of the certificates as the peer sent them, leaf first.

        Returns:
            The evidence.

        Raises:
            SvidInvalid: the chain is not a valid SVID.
            UnexpectedIdentity: it is one of somebody else.
            SvcError: what ``authorize`` raised, as the cause of ``IdentityDenied``.
        """
        evidence = self.remembered.judge(chain, self.source.bundles, self.clock())
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


class Verification:
    """
    The judgement of one connection's peer, made at most once.

    Args:
        rules: what the peer must satisfy.

    Attributes:
        evidence: what was proved, or None.
        refusal: why the peer was refused, or None; a defect of ours is a refusal too.
    """

    def __init__(self, rules: PeerRules) -> None:
        self._rules = rules
        self.evidence: SvidEvidence | None = None
        self.refusal: Exception | None = None

    def judge(self, read_chain: Callable[[], Chain]) -> bool:
        """
        Judge the chain, or repeat the verdict.

        Args:
            read_chain: gives the chain as sent; called the first time only.

        Returns:
            Whether the peer is accepted. Never raises: this runs inside OpenSSL.
        """
        if self.evidence is None and self.refusal is None:
            try:
                self.evidence = self._rules.judge(read_chain())
            except Exception as error:  # noqa: BLE001 - whatever goes wrong while judging must refuse the peer
                self.refusal = error
        return self.evidence is not None and self.refusal is None

    @property
    def code(self) -> int:
        """The ``X509_V_ERR_*`` code of the refusal."""
        if isinstance(self.refusal, SvcError):
            return _CODES.get(self.refusal.reason, _REJECTED)
        return _INTERNAL

    def error(self, address: str) -> TransportError:
        """
        Put the refusal into words for the application.

        Args:
            address: the peer's address.

        Returns:
            The error; the refusal is its cause.
        """
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
            cause = "it could not be judged" if refusal is not None else "it was never judged"
            error = PeerSvidInvalid(address=address, alert=alert, detail="internal_error", cause=cause)
        error.__cause__ = refusal
        return error


class VerifiedConnection(SSL.Connection):
    """
    A TLS connection with the judgement of its peer.

    Attributes:
        verification: the judgement.
        own_svid: what this side presents.
        alpn_allowed: the application protocols of this side.
        alpn_offered: what a client offered and this side refused, or None.
        peer_evidence: set when the handshake is complete.
    """

    def __init__(
        self,
        context: SSL.Context,
        verification: Verification,
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
        if verification.judge(lambda: sent_chain(store_context)):
            lib.X509_STORE_CTX_set_error(store_context, lib.X509_V_OK)
            return 1
        lib.X509_STORE_CTX_set_error(store_context, verification.code)
    return 0


# ``error=0``: should anything be raised nevertheless, OpenSSL is told that the certificate is refused. The callback
# lives as long as the process, so no connection can outlive it.
_CALLBACK: Final[Any] = ffi.callback("int (*)(int, X509_STORE_CTX *)", _on_verify, error=0)

#: The depth at which OpenSSL builds no chain beyond the leaf (-1 means its default). It then checks no signatures of
#: certificates: its answer decides nothing, our verifier checks them all, and each costs a tenth of a handshake.
_LEAF_ALONE: Final = -2


def demand_verified_peer(context: SSL.Context) -> None:
    """
    Make a context ask for the peer's certificate and judge it by ``Verification``.

    Args:
        context: a context that has no connection yet; its connections must be ``VerifiedConnection``.
    """
    mode = SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
    lib.SSL_CTX_set_verify(context._context, mode, _CALLBACK)
    if sent_chain_is_readable():
        lib.SSL_CTX_set_verify_depth(context._context, _LEAF_ALONE)
