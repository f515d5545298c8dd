"""
What is put into a store and returned by it, and what can be searched for.

Of payloads only these members are read: the statement that a receipt names, path or topic of the request and the status
of the response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from svc import strictjson
from svc.wildcards import fits

#: The most records that one search returns.
MAX_FOUND: Final = 1000
#: The largest NumericDate, and the largest before 1970, in a query.
MAX_TIME: Final = 2**53


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


@dataclass(slots=True)
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
        batch: in place of ``envelope``, the signed JSON with its certificates that the records of a batch share.
        inclusion: the octets by which this record belongs to its batch.

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
    batch: bytes | None = None
    inclusion: bytes | None = None

    @property
    def signed(self) -> bool:
        """Whether it is a receipt: signed alone, or with others."""
        return self.envelope is not None or self.batch is not None

    def __post_init__(self) -> None:
        if self.statement_id is None:
            self.statement_id = _statement_named_in(self.payload)


class RecordPosition(NamedTuple):
    """A place in the order of a search: behind the record with this NumericDate and this id."""

    issued_at: int
    id: str


@dataclass(frozen=True)
class ReceiptQuery:
    """
    Which records to find. They come newest first; those of one second in an order that the database chooses.

    Args:
        since: NumericDate from which on they were issued; None without a limit.
        until: NumericDate before which they were issued.
        party: SPIFFE ID, as text, of the client or the server.
        client: SPIFFE ID of the client.
        level: ``logRequest`` or ``signRequest``.
        outcome: how the exchange ended.
        status: the status codes.
        path: the beginning of the path, as a receipt has it (one character for each octet, without query). With ``*``,
            which stands for any characters, a pattern of the whole path.
        limit: the most records, up to :data:`MAX_FOUND`.
        before: where an earlier search ended.
        topic: the beginning of the topic of a message of MQTT, or as with ``path`` a pattern of it.

    Raises:
        ValueError: the limit or a time is out of bounds, or a text other than path and topic is not printable ASCII.
    """

    since: int | None = None
    until: int | None = None
    party: str | None = None
    client: str | None = None
    level: str | None = None
    outcome: str | None = None
    status: range | None = None
    path: str | None = None
    limit: int = 100
    before: RecordPosition | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_FOUND:
            raise ValueError(f"a limit from 1 to {MAX_FOUND}")
        time, name = self.before or (0, "")
        if any(abs(each or 0) > MAX_TIME for each in (self.since, self.until, time)):
            raise ValueError("a time that a database can hold")
        # No other text is in the columns, and not every other one can be given to every database.
        texts = (self.party, self.client, self.level, self.outcome, name)
        if not all((each or "").isascii() and (each or "a").isprintable() for each in texts):
            raise ValueError("printable ASCII")

    def selects(self, payload: bytes) -> bool:
        """Whether path, topic and status of a payload are those of the query; one that has none is not selected."""
        if self.status is None and self.path is None and self.topic is None:
            return True
        try:
            # Not the strict parser, which takes ten times as long: what is selected is not verified by that.
            claims = json.loads(payload)
        except (ValueError, RecursionError):
            return False
        body = _member(claims, "svc") if isinstance(claims, dict) else {}
        status = _member(body, "response").get("status")
        request = _member(body, "request")
        wanted = ((request.get("path"), self.path), (request.get("topic"), self.topic))
        return (self.status is None or (isinstance(status, int) and status in self.status)) and all(
            pattern is None or (isinstance(text, str) and path_matches(text, pattern)) for text, pattern in wanted
        )


class FoundReceipts(list[StoredReceipt]):
    """
    The records that a search found.

    Attributes:
        next: where the search ended, for ``before`` of the next one; None where nothing is left. A search may end
            before it has found as many as its limit, since it reads a bounded number of records.
    """

    next: RecordPosition | None = None


def path_matches(path: str, wanted: str) -> bool:
    """Whether a path or topic begins with ``wanted`` or, where that has ``*``, is what the pattern describes."""
    return fits(wanted.split("*"), path) if "*" in wanted else path.startswith(wanted)


def _statement_named_in(payload: bytes) -> str:
    named = _member(strictjson.loads_object(payload), "svc").get("workloadStatementID")
    return named if isinstance(named, str) else ""


def _member(members: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}
