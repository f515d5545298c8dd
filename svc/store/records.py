"""
What is put into a store and returned by it.

Of payloads only the member is read by which a receipt names its statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from svc import strictjson


class SerializableEnvelope(Protocol):
    """A signature envelope that can be written as JSON."""

    def serialize(self) -> bytes:
        """The JSON octets that are served."""


class StatementRecord(Protocol):
    """What a store needs of a workload statement; ``svc.notary.statement.Statement`` has it."""

    @property
    def id(self) -> str:
        """The statement's id (43 characters)."""

    @property
    def envelope(self) -> SerializableEnvelope:
        """The signed envelope."""

    @property
    def expires(self) -> datetime:
        """The instant from which no receipt can name it any more."""


@dataclass(frozen=True)
class StoredReceipt:
    """
    One record of the notary: a signed receipt, or the unsigned record of level ``logRequest``.

    Args:
        id: the receipt's id (43 characters).
        level: ``logRequest`` or ``signRequest``.
        client: SPIFFE ID of the client as text, empty where it has none.
        server: SPIFFE ID of the server as text.
        nonce: the client's nonce; unique for each client.
        jti: the receipt's own random name.
        issued_at: NumericDate, ``iat`` of the payload.
        outcome: how the exchange ended.
        envelope: the signed JSON with its certificates; None for ``logRequest``.
        payload: the JSON octets that were, or would have been, signed.
        disclosures: salts of redacted values, for the two parties only.
        statement_id: the statement that the payload names; read out of the payload where it is not given, empty where
            the payload names none.

    Raises:
        JsonRefused: where ``statement_id`` has to be read and the payload is not an object in strict JSON.
    """

    id: str
    level: str
    client: str
    server: str
    nonce: str | None
    jti: str
    issued_at: int
    outcome: str
    envelope: bytes | None
    payload: bytes
    disclosures: Mapping[str, object] | None = None
    statement_id: str | None = None

    def __post_init__(self) -> None:
        if self.statement_id is None:
            object.__setattr__(self, "statement_id", _statement_named_in(self.payload))


def _statement_named_in(payload: bytes) -> str:
    body = strictjson.loads_object(payload).get("svc")
    named = body.get("workloadStatementID") if isinstance(body, dict) else None
    return named if isinstance(named, str) else ""
