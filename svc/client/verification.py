"""
What a caller demands, what is handed to the verifiers of :mod:`svc.notary`, and the faults injected before them.

Does no I/O and reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from svc.client.request import Request
from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import POST_QUANTUM_ALGORITHMS, Profile
from svc.identity.algorithms import certificate_sha256
from svc.identity.matchers import AnyOf, ExactID, Matcher, MemberOf
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.errors import SignerTrustDomainUnknown
from svc.notary.exchange import BodySummary, ObservedExchange, Peer, TlsFacts
from svc.notary.level import Level
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.strictjson import b64u_encode

if TYPE_CHECKING:
    from svc.client.connection import Response
    from svc.transport.evidence import PeerEvidence


#: The faults of ``svc curl --inject-faults``: what a broken or dishonest server would send.
NO_STATEMENT: Final = "no-workload-statement"
BAD_STATEMENT: Final = "bad-workload-statement"


@dataclass(frozen=True, slots=True)
class Trust:
    """
    The trust anchors at one moment.

    Args:
        stale_since: when the bundles were last refreshed, where the Workload API is unreachable now.
        pq_file: the path that was read for post-quantum roots.
        batches: the batches of receipts that were verified before, for a program that makes many exchanges.
    """

    anchors: Anchors
    stale_since: datetime | None = None
    pq_file: str | None = None
    batches: VerifiedBatchCache | None = None


@dataclass(frozen=True, slots=True)
class Demands:
    """
    What the user demands of a verification; none of it ever comes from a message.

    Args:
        level: the notarization level asked for.
        validate: whether a verified statement is required.
        expected: the accepted servers; none means any of the own trust domain.
        issuers: the central issuers; with one given, self-issued statements are refused.
        faults: the faults to inject.
    """

    level: Level = Level.WORKLOAD
    validate: bool = True
    profile: Profile = Profile.HYBRID
    expected: tuple[SpiffeID, ...] = ()
    issuers: tuple[SpiffeID, ...] = ()
    faults: frozenset[str] = frozenset()

    @property
    def needs_receipt(self) -> bool:
        """Whether a receipt is fetched and verified."""
        return self.validate and self.level is Level.SIGN_REQUEST

    def accepted_servers(self, own: TrustDomain) -> Matcher:
        """Exactly the expected identities; else every workload of the own trust domain and none of a federated one."""
        if self.expected:
            return AnyOf(tuple(ExactID(spiffe_id) for spiffe_id in self.expected))
        return MemberOf(own)


class PqRootsMissing(SignerTrustDomainUnknown):
    """there are no {bundle} roots of {trust_domain} here: {path} is missing or empty"""

    hint = (
        "svc-authority writes that file; name another with --pq-bundle or SVC_PQ_BUNDLE; --profile classical needs none"
    )


class PqRootsForeign(SignerTrustDomainUnknown):
    """there are no {bundle} roots of {trust_domain} here: {path} holds those of other trust domains"""

    hint = "federate with {trust_domain}, or name the file that holds its roots with --pq-bundle or SVC_PQ_BUNDLE"


def check_statement(
    envelope: bytes,
    identifier: str,
    *,
    demands: Demands,
    trust: Trust,
    peer: PeerEvidence | None,
    now: datetime,
) -> StatementEvidence:
    """
    Verify the statement of a response.

    Args:
        envelope: what was fetched.
        identifier: what the response names.
        peer: that of the exchange's connection; None without TLS.

    Raises:
        EnvelopeError: with the reason; ``transport_unbound`` without TLS where verification is required.
    """
    if BAD_STATEMENT in demands.faults:
        envelope = with_broken_signature(envelope, demands.profile)
    try:
        return verify_statement(
            envelope,
            expected_id=identifier,
            profile=demands.profile,
            anchors=trust.anchors,
            now=now,
            peer=None if peer is None else peer.svid,
            unbound_ok=not demands.validate,
            issuers=demands.issuers,
            expectations=demands.expected,
            stale_since=trust.stale_since,
        )
    except SignerTrustDomainUnknown as error:
        if trust.pq_file is None or error.evidence["trust_domain"] not in trust.anchors.spiffe:
            raise
        kind = PqRootsForeign if len(trust.anchors.pq) else PqRootsMissing
        raise kind(**error.evidence, path=trust.pq_file) from error


def observed_exchange(
    request: Request, response: Response, body: BodySummary, peer: PeerEvidence | None, started: datetime
) -> ObservedExchange:
    """
    Describe the exchange as this side observed it, which is what a receipt must agree with.

    Args:
        body: of the response.
        peer: None without TLS.
        started: when the request was sent.
    """
    path, query = request.split_path
    sent, prefix, _octets = request.sent_body()
    own = None if peer is None else peer.own_svid
    return ObservedExchange(
        nonce=request.nonce,
        started=started,
        client=None if own is None else Peer(own.spiffe_id, b64u_encode(certificate_sha256(own.leaf))),
        tls=None if peer is None else TlsFacts(peer.tls_version, peer.group, peer.cipher, peer.post_quantum),
        method=request.method,
        authority=request.authority,
        path=path,
        query=query,
        request_headers=request.fields,
        request_body=sent,
        request_prefix=prefix,
        status=response.head.status,
        response_headers=response.head.fields,
        response_body=body,
        response_trailers=response.trailers,
    )


def with_broken_signature(data: bytes, profile: Profile) -> bytes:
    """
    Flip the last bit of a signature that the profile checks; octets that are no envelope are returned unchanged.

    Args:
        profile: ``pq`` does not check the classical signature, ``classical`` not the other.
    """
    try:
        envelope = Envelope.parse(data)
    except EnvelopeError:  # the verification reports the defect
        return data
    checked = [
        index
        for index, entry in enumerate(envelope.signatures)
        if (entry.alg in POST_QUANTUM_ALGORITHMS) == (profile is Profile.PQ)
    ]
    index = checked[0] if checked else 0
    entry = envelope.signatures[index]
    if not entry.signature:
        return data
    flipped = entry.signature[:-1] + bytes([entry.signature[-1] ^ 1])
    signatures = list(envelope.signatures)
    signatures[index] = replace(entry, signature=flipped)
    return replace(envelope, signatures=tuple(signatures)).serialize()
