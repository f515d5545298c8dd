"""
Verifies a receipt of either form: the signatures first, its own or those of its batch, then its claims, read strictly,
against what the client observed.

Owns the types of the claims of ``svc-receipt/1`` and of the disclosures beside it, the order of the checks and the part
that each mismatch names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from svc import naming
from svc.identity import SpiffeID
from svc.notary.artifact import BatchedReceipt, ReceiptArtifact, parse_receipt
from svc.notary.batchcheck import BatchPlace, VerifiedBatchCache, verify_batched
from svc.notary.claims import Claims, utc_seconds
from svc.notary.errors import LevelMismatch, Malformed, ReceiptRefused
from svc.notary.exchange import (
    BodySummary,
    ExchangeOutcome,
    ObservedExchange,
    Peer,
    RawHeaders,
    TlsFacts,
    carries_no_body,
    recorded_headers,
)
from svc.notary.ids import receipt_id
from svc.notary.level import Level, LevelUnknown
from svc.notary.profile import Profile
from svc.notary.receipt import Disclosures, redacted_digest
from svc.notary.statement import CLOCK_LEEWAY, StatementEvidence, verification_time
from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
from svc.strictjson import b64u_decode

if TYPE_CHECKING:
    from svc.notary.publishcheck import AcknowledgementClaims, PublishClaims

#: The member of a message by which MQTT is told from HTTP, and the members that only one of both has.
_PACKET: Final = "packet"
_OF_HTTP: Final = frozenset({"method", "scheme", "authority", "path", "query", "headers", "trailers", "status"})
_OF_MQTT: Final = frozenset(
    {_PACKET, "clientId", "topic", "qos", "retain", "packetId", "properties", "reasonCode", "reasonName", "ackedBy"}
)


@dataclass(frozen=True, slots=True)
class ClaimedValue:
    """A value of the payload: a text, or the digest that replaces it."""

    text: str | None
    digest: str | None

    def matches(self, value: str, salt: str | None) -> bool:
        """
        Compare with the value that was observed, one character U+0000-00FF for each octet.

        Without the disclosed salt a redacted value matches nothing.
        """
        if self.digest is None:
            return self.text == value
        return salt is not None and redacted_digest(b64u_decode(salt), value) == self.digest


ClaimedHeaders = tuple[tuple[str, ClaimedValue], ...]


@dataclass(frozen=True, slots=True)
class RequestClaims:
    """``svc.request`` of a receipt."""

    method: str
    authority: str
    path: str
    query: ClaimedValue
    headers: ClaimedHeaders
    body: BodySummary
    trailers: ClaimedHeaders

    def redacted(self) -> frozenset[str]:
        """Return the keys of the redacted values, as disclosures name them."""
        return _redacted(self.headers, self.trailers) | ({"query"} if self.query.digest is not None else set())


@dataclass(frozen=True, slots=True)
class ResponseClaims:
    """``svc.response`` of a receipt."""

    status: int
    headers: ClaimedHeaders
    body: BodySummary
    trailers: ClaimedHeaders

    def redacted(self) -> frozenset[str]:
        """Return the keys of the redacted values, as disclosures name them."""
        return _redacted(self.headers, self.trailers)


@dataclass(frozen=True, slots=True)
class ReceiptClaims:
    """The payload of a receipt, for an exchange of HTTP or for a message of MQTT."""

    audience: tuple[str, ...]
    issued: datetime
    statement_id: str
    level: Level
    nonce: str | None
    client: Peer | None
    server: Peer
    tls: TlsFacts | None
    request: RequestClaims | PublishClaims
    response: ResponseClaims | AcknowledgementClaims | None
    outcome: ExchangeOutcome

    @classmethod
    def read(cls, members: Mapping[str, object]) -> ReceiptClaims:
        """
        Read every claim that the format names.

        Raises:
            Malformed: with the claim that is absent or of another type.
        """
        claims = Claims(members)
        svc = claims.member("svc")
        claims.nonce("jti")
        _read_times(svc.member("time"))
        client = svc.member_or_null("client")
        tls = svc.member_or_null("tls")
        outcome = _read_outcome(svc)
        request, response = _read_messages(svc, outcome)
        return cls(
            audience=claims.texts("aud"),
            issued=claims.time("iat"),
            statement_id=svc.digest("workloadStatementID"),
            level=_read_level(svc),
            nonce=None if svc.members.get("nonce") is None else svc.nonce("nonce"),
            client=None if client is None else _read_peer(client),
            server=_read_peer(svc.member("server")),
            tls=None if tls is None else _read_tls(tls),
            request=request,
            response=response,
            outcome=outcome,
        )


def read_disclosures(extra: Mapping[str, object], claims: ReceiptClaims) -> Disclosures:
    """
    Read the salts beside a receipt, at most one for each redacted value, by side and key; empty where there are none.

    Raises:
        Malformed: for another shape, a salt that is not 16 octets, and a key that is not redacted.
    """
    if "disclosures" not in extra:
        return {}
    disclosures = Claims(extra, "envelope").member("disclosures")
    redacted = {
        "request": claims.request.redacted(),
        "response": frozenset() if claims.response is None else claims.response.redacted(),
    }
    found: dict[str, Mapping[str, str]] = {}
    for side in disclosures.members:
        if side not in redacted:
            raise Malformed(where=disclosures.where, defect=f"{side} is neither request nor response")
        salts = disclosures.member(side)
        for key in salts.members:
            if key not in redacted[side]:
                raise Malformed(where=salts.where, defect=f"{key} names no redacted value")
            salts.nonce(key)
        found[side] = disclosures.text_map(side)
    return found


def _redacted(headers: ClaimedHeaders, trailers: ClaimedHeaders) -> frozenset[str]:
    return frozenset(
        f"{prefix}{number}"
        for prefix, fields in (("", headers), ("trailer:", trailers))
        for number, (_name, value) in enumerate(fields)
        if value.digest is not None
    )


def _read_times(time: Claims) -> None:
    time.text("received")
    time.text("completed")


def _read_level(svc: Claims) -> Level:
    try:
        return Level.parse(svc.text("level"))
    except LevelUnknown as error:
        raise svc.mistyped("level", "a notarization level") from error


def _read_outcome(svc: Claims) -> ExchangeOutcome:
    try:
        return ExchangeOutcome(svc.text("outcome"))
    except ValueError as error:
        raise svc.mistyped("outcome", "an outcome") from error


def _read_peer(peer: Claims) -> Peer:
    return Peer(spiffe_id=peer.spiffe_id("spiffeID"), thumbprint=peer.digest("x5t#S256"))


def _read_tls(tls: Claims) -> TlsFacts:
    return TlsFacts(tls.text("version"), tls.text("group"), tls.text("cipher"), tls.flag("pq"))


def _read_messages(
    svc: Claims, outcome: ExchangeOutcome
) -> tuple[RequestClaims | PublishClaims, ResponseClaims | AcknowledgementClaims | None]:
    request, response = svc.member("request"), svc.member_or_null("response")
    mqtt = _PACKET in request.members
    for message in (request, response):
        _refuse_other_shape(message, _OF_HTTP if mqtt else _OF_MQTT)
    if not mqtt:
        return _read_request(request), None if response is None else _read_response(response)
    # The codec of MQTT takes 40 ms to import, which the verification of an exchange does not need.
    from svc.notary.publishcheck import read_acknowledgement, read_publish

    publish = read_publish(request)
    return publish, read_acknowledgement(response, publish, outcome)


def _refuse_other_shape(message: Claims | None, others: frozenset[str]) -> None:
    mixed = () if message is None else sorted(others & message.members.keys())
    if message is not None and mixed:
        raise Malformed(where=f"{message.where}.{mixed[0]}", defect="a message has the members of HTTP or of MQTT")


def _read_request(request: Claims) -> RequestClaims:
    request.text("scheme")
    request.text("version")
    return RequestClaims(
        method=request.text("method"),
        authority=request.text("authority"),
        path=request.text("path"),
        query=read_value(request.members.get("query"), request, "query"),
        headers=_read_headers(request, "headers"),
        body=read_body(request.member("body")),
        trailers=_read_headers(request, "trailers"),
    )


def _read_response(response: Claims) -> ResponseClaims:
    return ResponseClaims(
        status=response.integer("status"),
        headers=_read_headers(response, "headers"),
        body=read_body(response.member("body")),
        trailers=_read_headers(response, "trailers"),
    )


def read_body(body: Claims) -> BodySummary:
    """Read size and digest of a body."""
    return BodySummary(body.integer("size"), b64u_decode(body.digest("sha-256")), body.flag("complete"))


def _read_headers(claims: Claims, name: str) -> ClaimedHeaders:
    found: list[tuple[str, ClaimedValue]] = []
    for item in claims.array(name):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
            raise claims.mistyped(name, "an array of pairs of name and value")
        found.append((item[0], read_value(item[1], claims, name)))
    return tuple(found)


def read_value(value: object, claims: Claims, name: str) -> ClaimedValue:
    """Read a text or the digest that replaces it; ``name`` is where it is, for errors."""
    if isinstance(value, str):
        return ClaimedValue(value, None)
    if not isinstance(value, dict) or value.get("redacted") != "sha-256":
        raise claims.mistyped(name, "a text, or a digest instead")
    return ClaimedValue(None, Claims(value, f"{claims.where}.{name}").digest("digest"))


@dataclass(frozen=True)
class ReceiptEvidence:
    """
    A verified receipt.

    Attributes:
        id: its identifier, computed from the payload.
        issuer: who signed, the statement's subject.
        statement_id: the statement it refers to.
        level: ``SIGN_REQUEST``.
        outcome: how the exchange ended.
        issued: ``iat``.
        post_quantum: whether its signatures resist a quantum computer under the local profile.
        compared: whether it was compared with an exchange that the verifier observed.
        claims: the payload as an object.
        envelope_evidence: what the signatures proved, of the receipt itself or of its batch.
        batch: its place in a batch, None where it was signed alone.
    """

    id: str
    issuer: SpiffeID
    statement_id: str
    level: Level
    outcome: ExchangeOutcome
    issued: datetime
    post_quantum: bool
    compared: bool
    claims: Mapping[str, object] = field(repr=False, hash=False)
    envelope_evidence: EnvelopeEvidence = field(repr=False)
    batch: BatchPlace | None


def verify_receipt(
    receipt: ReceiptArtifact | bytes,
    *,
    statement: StatementEvidence,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
    seen: ObservedExchange | None,
    at_iat: bool = False,
    expected_id: str | None = None,
    batches: VerifiedBatchCache | None = None,
) -> ReceiptEvidence:
    """
    Verify a receipt, in the order of the format; the first failure counts.

    Args:
        receipt: what was fetched, with its disclosures.
        statement: the verified statement of the same workload.
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time, aware.
        seen: the exchange in the client's own view; None where there is none (evidence).
        at_iat: verify the chains at the receipt's ``iat``, and at that of its batch (evidence), instead of ``now``.
        expected_id: the identifier it was fetched by, None where it was fetched otherwise.
        batches: the batches that were verified before.

    Raises:
        NotaryError: with the reason.
    """
    parsed = parse_receipt(receipt) if isinstance(receipt, bytes) else receipt
    found_id = receipt_id(parsed.payload)
    if expected_id is not None and found_id != expected_id:
        raise ReceiptRefused("id_mismatch", expected=expected_id, found=found_id)
    place: BatchPlace | None = None
    if isinstance(parsed, BatchedReceipt):
        batched = verify_batched(parsed, profile=profile, anchors=anchors, now=now, at_iat=at_iat, cache=batches)
        signed, members, place = batched.signed, batched.claims, batched.place
    else:
        moment = verification_time(parsed, now) if at_iat else now
        signed = verify_envelope(parsed, typ=naming.TYPE_RECEIPT, profile=profile, anchors=anchors, now=moment)
        members = signed.claims
    claims = ReceiptClaims.read(members)
    if naming.AUDIENCE_RECEIPT not in claims.audience:
        raise ReceiptRefused("audience_mismatch", audience=", ".join(claims.audience), expected=naming.AUDIENCE_RECEIPT)
    _check_signer(signed, claims, statement)
    # NumericDate has no fraction: the start is cut like iat, so that the first second of the leeway counts whole.
    started = statement.not_before if seen is None else seen.started.replace(microsecond=0)
    _check_time(claims.issued, statement, started, now)
    if place is not None:
        _check_time(place.issued, statement, started, now)
    if claims.statement_id != statement.id:
        raise ReceiptRefused("statement_mismatch", claimed=claims.statement_id, expected=statement.id)
    if seen is not None:
        if claims.nonce != seen.nonce:
            raise ReceiptRefused("nonce_mismatch")
        _check_connection(claims, seen)
    if claims.level is not Level.SIGN_REQUEST:
        raise LevelMismatch(asked=Level.SIGN_REQUEST, answered=claims.level)
    salts = read_disclosures(parsed.extra, claims)
    if seen is not None:
        if not isinstance(claims.request, RequestClaims):
            raise ReceiptRefused("request_mismatch", part="method")
        _check_request(claims.request, seen, salts.get("request", {}))
        _check_response(claims.request, claims.response, seen, salts.get("response", {}))
    return ReceiptEvidence(
        id=found_id,
        issuer=signed.issuer,
        statement_id=claims.statement_id,
        level=claims.level,
        outcome=claims.outcome,
        issued=claims.issued,
        post_quantum=signed.post_quantum,
        compared=seen is not None,
        claims=members,
        envelope_evidence=signed,
        batch=place,
    )


def _check_signer(signed: EnvelopeEvidence, claims: ReceiptClaims, statement: StatementEvidence) -> None:
    for found in (signed.issuer, claims.server.spiffe_id):
        if found != statement.subject:
            raise ReceiptRefused("issuer_mismatch", found=found, expected=statement.subject)
    if signed.leaf_spki_sha256 != statement.spki_sha256:
        raise ReceiptRefused("key_mismatch", expected="the key that the workload statement names")
    if claims.server.thumbprint != signed.leaf_thumbprint:
        raise ReceiptRefused("key_mismatch", expected="the certificate that signed it")


def _check_time(issued: datetime, statement: StatementEvidence, started: datetime, now: datetime) -> None:
    """Check ``iat`` of a receipt, or of its batch."""
    for earliest, latest in ((statement.not_before, statement.expires), (started, now)):
        if earliest - issued > CLOCK_LEEWAY or issued - latest > CLOCK_LEEWAY:
            raise ReceiptRefused(
                "time_skew",
                issued=utc_seconds(issued),
                earliest=utc_seconds(earliest),
                latest=utc_seconds(latest),
            )


def _check_connection(claims: ReceiptClaims, seen: ObservedExchange) -> None:
    if seen.client is not None and claims.client != seen.client:
        raise ReceiptRefused("request_mismatch", part="client")
    if seen.tls is not None and claims.tls != seen.tls:
        raise ReceiptRefused("request_mismatch", part="tls")


def _check_request(request: RequestClaims, seen: ObservedExchange, salts: Mapping[str, str]) -> None:
    for part, claimed, sent in (
        ("method", request.method, seen.method),
        ("authority", request.authority, seen.authority),
        ("path", request.path, seen.path),
    ):
        if claimed != sent:
            raise ReceiptRefused("request_mismatch", part=part)
    if not request.query.matches(seen.query, salts.get("query")):
        raise ReceiptRefused("request_mismatch", part="query")
    index = _first_difference(request.headers, seen.request_headers, salts, "")
    if index is not None:
        raise ReceiptRefused("request_mismatch", part=f"header:{index}")
    check_request_body(request, seen.request_body, seen.request_prefix)
    # A server that did not read the body to its end has not read what follows it.
    trailers = seen.request_trailers if request.body.complete else ()
    index = _first_difference(request.trailers, trailers, salts, "trailer:")
    if index is not None:
        raise ReceiptRefused("request_mismatch", part=f"trailer:{index}")


def check_request_body(
    request: RequestClaims | PublishClaims, sent: BodySummary, prefix: Callable[[int], bytes | None]
) -> None:
    """
    Compare the body of a request or a message, live and in evidence; of one that the server did not read completely,
    only the first ``size`` octets are attested.

    Raises:
        ReceiptRefused: at ``body``.
    """
    claimed = request.body
    matches = (claimed.size, claimed.sha256) == (sent.size, sent.sha256)
    if not (matches if claimed.complete else prefix(claimed.size) == claimed.sha256):
        raise ReceiptRefused("request_mismatch", part="body")


def check_response_body(
    request: RequestClaims | PublishClaims,
    response: ResponseClaims | AcknowledgementClaims | None,
    arrived: BodySummary,
) -> None:
    """
    Compare the response body, live and in evidence.

    One that the server did not release completely matches nothing, a response that has no body must claim none, and an
    acknowledgement of MQTT attests none.

    Raises:
        ReceiptRefused: at ``body``.
    """
    if not (isinstance(request, RequestClaims) and isinstance(response, ResponseClaims)):
        raise ReceiptRefused("response_mismatch", part="body")
    if not response.body.complete or response.body != arrived:
        raise ReceiptRefused("response_mismatch", part="body")
    if response.body.size and carries_no_body(request.method, response.status):
        raise ReceiptRefused("response_mismatch", part="body")


def _check_response(
    request: RequestClaims,
    response: ResponseClaims | AcknowledgementClaims | None,
    seen: ObservedExchange,
    salts: Mapping[str, str],
) -> None:
    if not isinstance(response, ResponseClaims) or response.status != seen.status:
        raise ReceiptRefused("response_mismatch", part="status")
    index = _first_difference(response.headers, seen.response_headers, salts, "")
    if index is not None:
        raise ReceiptRefused("response_mismatch", part=f"header:{index}")
    check_response_body(request, response, seen.response_body)
    index = _first_difference(response.trailers, seen.response_trailers, salts, "trailer:")
    if index is not None:
        raise ReceiptRefused("response_mismatch", part=f"trailer:{index}")


def _first_difference(claimed: ClaimedHeaders, raw: RawHeaders, salts: Mapping[str, str], prefix: str) -> int | None:
    """Find the first index of the receipt's list at which it differs from what was observed."""
    seen = recorded_headers(raw)
    for number, (name, value) in enumerate(claimed):
        if number >= len(seen) or seen[number][0] != name:
            return number
        if not value.matches(seen[number][1], salts.get(f"{prefix}{number}")):
            return number
    return len(claimed) if len(seen) > len(claimed) else None
