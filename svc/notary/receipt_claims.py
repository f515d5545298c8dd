"""
Reads the claims of a receipt strictly, and the disclosures beside it.

Owns the types of the claims of ``svc-receipt/1``. Of messages of MQTT they are those of
:mod:`svc.notary.publish_claims`. Nothing is verified here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from svc.envelope.claims import Claims
from svc.envelope.errors import Malformed
from svc.notary.exchange import BodySummary, ExchangeOutcome, Peer, TlsFacts
from svc.notary.level import Level, LevelUnknown
from svc.notary.message_claims import ClaimedValue, read_body, read_value
from svc.notary.receipt import Disclosures

if TYPE_CHECKING:
    from svc.notary.publish_claims import AcknowledgementClaims, PublishClaims

#: The member of a message by which MQTT is told from HTTP, and the members that only one of both has.
_PACKET: Final = "packet"
_OF_HTTP: Final = frozenset({"method", "scheme", "authority", "path", "query", "headers", "trailers", "status"})
_OF_MQTT: Final = frozenset(
    {_PACKET, "clientId", "topic", "qos", "retain", "packetId", "properties", "reasonCode", "reasonName", "ackedBy"}
)

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
    from svc.notary.publish_claims import read_acknowledgement, read_publish

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


def _read_headers(claims: Claims, name: str) -> ClaimedHeaders:
    found: list[tuple[str, ClaimedValue]] = []
    for item in claims.array(name):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
            raise claims.mistyped(name, "an array of pairs of name and value")
        found.append((item[0], read_value(item[1], claims, name)))
    return tuple(found)
