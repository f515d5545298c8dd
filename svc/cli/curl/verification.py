"""
What is handed to the verifiers of :mod:`svc.notary`, and the faults that ``--inject-faults`` makes before them.

Does no I/O and reads no clock.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from svc.cli.curl.plan import BAD_STATEMENT, Demands
from svc.cli.curl.request import Request
from svc.cli.trust import Trust
from svc.identity.algorithms import certificate_sha256
from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError, SignerTrustDomainUnknown
from svc.notary.exchange import BodySummary, ObservedExchange, Peer, TlsFacts, prefix_digests
from svc.notary.profile import POST_QUANTUM_ALGORITHMS, Profile
from svc.notary.statement import StatementEvidence, verify_statement
from svc.strictjson import b64u_encode

if TYPE_CHECKING:
    from svc.cli.curl.connection import Response
    from svc.transport.evidence import PeerEvidence


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
        NotaryError: with the reason; ``transport_unbound`` without TLS where verification is required.
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
        request_body=BodySummary.of(request.body),
        request_prefix=prefix_digests(request.body),
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
    except NotaryError:  # the verification reports the defect
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
