"""
Deciding whether an answer may be shown: who answered, at which level, and whether the receipt fits what was seen.

Owns what is handed to the verifiers of :mod:`svc.notary` and in which order they run. Does no I/O and knows no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from svc.cli.exchange.demands import Demands
from svc.cli.exchange.faults import BAD_STATEMENT, with_broken_signature
from svc.cli.exchange.request import Request
from svc.identity.algorithms import certificate_sha256
from svc.identity.matchers import AnyOf, ExactID, Matcher, MemberOf
from svc.identity.spiffeid import TrustDomain
from svc.notary.errors import TrustDomainUnknown
from svc.notary.exchange import BodySeen, Peer, SeenExchange, TlsFacts, prefix_of
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.notary.statement import StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.strictjson import b64u_encode
from svc.wire.fields import Field

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence


@dataclass(frozen=True, slots=True)
class Trust:
    """
    The local trust at one moment.

    Args:
        anchors: whom we trust.
        stale_since: when the bundles were last refreshed, where their source is out of reach now.
        pq_file: where the post-quantum roots were looked for; None where nobody says.
    """

    anchors: Anchors
    stale_since: datetime | None = None
    pq_file: str | None = None


class PqRootsMissing(TrustDomainUnknown):
    """there are no {bundle} roots of {trust_domain} here: {path} is missing or empty"""

    hint = (
        "svc-authority writes that file; name another with --pq-bundle or SVC_PQ_BUNDLE; --profile classical needs none"
    )


class PqRootsForeign(TrustDomainUnknown):
    """there are no {bundle} roots of {trust_domain} here: {path} holds those of other trust domains"""

    hint = "federate with {trust_domain}, or name the file that holds its roots with --pq-bundle or SVC_PQ_BUNDLE"


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """
    The answer as it arrived.

    Args:
        status: its status code.
        fields: its fields.
        trailers: the fields behind its body.
        body: size and digest of its body.
    """

    status: int
    fields: Sequence[Field]
    trailers: Sequence[Field]
    body: BodySeen


def acceptable_server(expected: Demands, own: TrustDomain) -> Matcher:
    """
    Say which servers may be talked to.

    Args:
        expected: names them, or nobody.
        own: the trust domain of the own SVID.

    Returns:
        Exactly those named; else every workload of the own trust domain and none of a federated one.
    """
    if expected.expected:
        return AnyOf.of(*(ExactID(spiffe_id) for spiffe_id in expected.expected))
    return MemberOf(own)


def judge_statement(
    envelope: bytes,
    identifier: str,
    *,
    demands: Demands,
    trust: Trust,
    peer: PeerEvidence | None,
    now: datetime,
) -> StatementEvidence:
    """
    Judge the statement of an answer.

    Args:
        envelope: what was fetched.
        identifier: what the answer names.
        demands: the local choices, faults among them.
        trust: the local trust.
        peer: the other end of the exchange's connection; None without TLS.
        now: the time.

    Returns:
        The evidence.

    Raises:
        NotaryError: with the reason; ``TransportUnbound`` without TLS where verification is required.
    """
    if BAD_STATEMENT in demands.faults:
        envelope = with_broken_signature(envelope, demands.profile)
    try:
        return _verified(envelope, identifier, demands, trust, peer, now)
    except TrustDomainUnknown as error:
        if trust.pq_file is None or error.evidence["trust_domain"] not in trust.anchors.spiffe:
            raise
        told = {**error.evidence, "path": trust.pq_file}
        raise (PqRootsForeign if len(trust.anchors.pq) else PqRootsMissing)(**told) from error


def _verified(
    envelope: bytes, identifier: str, demands: Demands, trust: Trust, peer: PeerEvidence | None, now: datetime
) -> StatementEvidence:
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


def judge_receipt(
    envelope: bytes,
    *,
    statement: StatementEvidence,
    demands: Demands,
    trust: Trust,
    seen: SeenExchange,
    now: datetime,
) -> ReceiptEvidence:
    """
    Judge the receipt of an exchange.

    Args:
        envelope: what was fetched.
        statement: the verified statement.
        demands: the local choices.
        trust: the local trust.
        seen: the exchange in our own view.
        now: the time.

    Returns:
        The evidence.

    Raises:
        NotaryError: with the reason.
    """
    return verify_receipt(
        envelope, statement=statement, profile=demands.profile, anchors=trust.anchors, now=now, seen=seen
    )


def own_view(request: Request, answer: SeenAnswer, peer: PeerEvidence | None, started: datetime) -> SeenExchange:
    """
    Describe the exchange as we saw it, which is what a receipt must agree with.

    Args:
        request: what was sent.
        answer: what arrived.
        peer: what TLS proved and agreed on; None without TLS.
        started: when the request was sent.

    Returns:
        The exchange.
    """
    path, query = request.split_path
    return SeenExchange(
        nonce=request.nonce,
        started=started,
        client=None if peer is None else _own_end(peer),
        tls=None if peer is None else TlsFacts(peer.tls_version, peer.group, peer.cipher, peer.post_quantum),
        method=request.method,
        authority=request.authority,
        path=path,
        query=query,
        request_headers=request.fields,
        request_body=request.body_seen,
        request_prefix=prefix_of(request.body),
        status=answer.status,
        response_headers=answer.fields,
        response_body=answer.body,
        response_trailers=answer.trailers,
    )


def _own_end(peer: PeerEvidence) -> Peer:
    own = peer.own_svid
    return Peer(own.spiffe_id, b64u_encode(certificate_sha256(own.leaf)))
