"""
The payload of a receipt, read strictly before any of it is compared.

Owns the types of the claims of ``svc-receipt/1`` and of the disclosures beside it. Knows nothing of signatures and of
what a client saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from svc.notary.claims import Claims
from svc.notary.exchange import BodySeen, Outcome, Peer, TlsFacts
from svc.notary.level import Level, LevelUnknown
from svc.notary.receipt import Disclosures, redacted_digest
from svc.strictjson import b64u_decode


@dataclass(frozen=True, slots=True)
class ClaimedValue:
    """A value of the payload: a text, or the digest that stands in its place."""

    text: str | None
    digest: str | None

    def agrees(self, value: str, salt: str | None) -> bool:
        """
        Compare with the value that was seen.

        Args:
            value: what was seen, one character U+0000-00FF for each octet.
            salt: the disclosed salt; without it a redacted value agrees with nothing.

        Returns:
            True where they are the same.
        """
        if self.digest is None:
            return self.text == value
        return salt is not None and redacted_digest(b64u_decode(salt), value) == self.digest


ClaimedHeaders = tuple[tuple[str, ClaimedValue], ...]


@dataclass(frozen=True, slots=True)
class RequestClaims:
    """``svc.request`` of a receipt, read strictly."""

    method: str
    authority: str
    path: str
    query: ClaimedValue
    headers: ClaimedHeaders
    body: BodySeen
    trailers: ClaimedHeaders


@dataclass(frozen=True, slots=True)
class ResponseClaims:
    """``svc.response`` of a receipt, read strictly."""

    status: int
    headers: ClaimedHeaders
    body: BodySeen
    trailers: ClaimedHeaders


@dataclass(frozen=True, slots=True)
class ReceiptClaims:
    """The payload of a receipt, read strictly."""

    audience: tuple[str, ...]
    issued: datetime
    statement_id: str
    level: Level
    nonce: str | None
    client: Peer | None
    server: Peer
    tls: TlsFacts | None
    request: RequestClaims
    response: ResponseClaims | None
    outcome: Outcome

    @classmethod
    def read(cls, members: Mapping[str, object]) -> ReceiptClaims:
        """
        Read every claim that the format names.

        Args:
            members: the payload.

        Returns:
            The claims.

        Raises:
            Malformed: naming the claim that is absent or of another type.
        """
        claims = Claims(members)
        svc = claims.member("svc")
        claims.nonce("jti")
        _read_times(svc.member("time"))
        client = svc.member_or_null("client")
        tls = svc.member_or_null("tls")
        response = svc.member_or_null("response")
        return cls(
            audience=claims.texts("aud"),
            issued=claims.time("iat"),
            statement_id=svc.digest("workloadStatementID"),
            level=_read_level(svc),
            nonce=None if svc.members.get("nonce") is None else svc.nonce("nonce"),
            client=None if client is None else _read_peer(client),
            server=_read_peer(svc.member("server")),
            tls=None if tls is None else _read_tls(tls),
            request=_read_request(svc.member("request")),
            response=None if response is None else _read_response(response),
            outcome=_read_outcome(svc),
        )


def read_disclosures(extra: Mapping[str, object]) -> Disclosures:
    """
    Read the salts that came with an envelope.

    Args:
        extra: the members of the envelope beside payload and signatures.

    Returns:
        Salts by side and place; empty where there are none.

    Raises:
        Malformed: for another shape or a salt that is not 16 octets.
    """
    if "disclosures" not in extra:
        return {}
    disclosures = Claims(extra, "envelope").member("disclosures")
    found: dict[str, Mapping[str, str]] = {}
    for side in disclosures.members:
        salts = disclosures.member(side)
        for place in salts.members:
            salts.nonce(place)
        found[side] = disclosures.text_map(side)
    return found


def _read_times(time: Claims) -> None:
    time.text("received")
    time.text("completed")


def _read_level(svc: Claims) -> Level:
    try:
        return Level.parse(svc.text("level"))
    except LevelUnknown as error:
        raise svc.refused("level", "a notarization level") from error


def _read_outcome(svc: Claims) -> Outcome:
    try:
        return Outcome(svc.text("outcome"))
    except ValueError as error:
        raise svc.refused("outcome", "an outcome") from error


def _read_peer(peer: Claims) -> Peer:
    return Peer(spiffe_id=peer.spiffe_id("spiffeID"), thumbprint=peer.digest("x5t#S256"))


def _read_tls(tls: Claims) -> TlsFacts:
    return TlsFacts(tls.text("version"), tls.text("group"), tls.text("cipher"), tls.flag("pq"))


def _read_request(request: Claims) -> RequestClaims:
    request.text("scheme")
    request.text("version")
    return RequestClaims(
        method=request.text("method"),
        authority=request.text("authority"),
        path=request.text("path"),
        query=_read_value(request.members.get("query"), request, "query"),
        headers=_read_headers(request, "headers"),
        body=_read_body(request.member("body")),
        trailers=_read_headers(request, "trailers"),
    )


def _read_response(response: Claims) -> ResponseClaims:
    return ResponseClaims(
        status=response.integer("status"),
        headers=_read_headers(response, "headers"),
        body=_read_body(response.member("body")),
        trailers=_read_headers(response, "trailers"),
    )


def _read_body(body: Claims) -> BodySeen:
    return BodySeen(body.integer("size"), b64u_decode(body.digest("sha-256")), body.flag("complete"))


def _read_headers(claims: Claims, name: str) -> ClaimedHeaders:
    found: list[tuple[str, ClaimedValue]] = []
    for item in claims.array(name):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
            raise claims.refused(name, "an array of pairs of name and value")
        found.append((item[0], _read_value(item[1], claims, name)))
    return tuple(found)


def _read_value(value: object, claims: Claims, name: str) -> ClaimedValue:
    if isinstance(value, str):
        return ClaimedValue(value, None)
    if not isinstance(value, dict) or value.get("redacted") != "sha-256":
        raise claims.refused(name, "a text or a digest in its place")
    return ClaimedValue(None, Claims(value, f"{claims.where}.{name}").digest("digest"))
