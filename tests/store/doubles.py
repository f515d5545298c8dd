"""What the tests of stores share: records, envelopes, a lane without a thread, a reactor without a world."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from svc.store.records import StoredReceipt
from svc.store.threaded import StoreReactor
from svc.strictjson import b64u_encode

CLIENT = "spiffe://example.org/client"
SERVER = "spiffe://example.org/server"
NOW = 1_795_220_731


@implementer(StoreReactor)
class InlineReactor(Clock):
    """A clock whose calls from threads are made at once."""

    def callFromThread(self, call: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """Call it."""
        call(*args, **kwargs)


class InlineLane:
    """A lane that works on the caller's thread, one job a group, jobs of jobs afterwards."""

    def __init__(self, name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self._queue: list[Any] = []
        self._working = False

    def submit(self, job: Any) -> None:
        """Work."""
        self._queue.append(job)
        if self._working:
            return
        self._working = True
        while self._queue:
            self._work([self._queue.pop(0)])
        self._working = False

    def stop(self) -> None:
        """End."""
        self._finish()


class RecordingObserver:
    """Keeps what a store reports."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.details: list[str] = []
        self.commits: list[int] = []
        self.writable: list[bool] = []
        self.troubles: list[str] = []
        self.damage: list[tuple[str, ...]] = []

    def db_error(self, op: str, entity: str, detail: str = "") -> None:
        """Keep it."""
        self.errors.append((op, entity))
        self.details.append(detail)

    def committed(self, count: int, seconds: float) -> None:
        """Keep it."""
        self.commits.append(count)

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """Keep it."""
        self.writable.append(writable)
        self.troubles.append(trouble)

    def damaged(self, path: str) -> None:
        """Keep it."""
        self.damage.append(("damaged", path))

    def set_aside(self, path: str, aside: str) -> None:
        """Keep it."""
        self.damage.append(("set aside", path, aside))

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Keep it."""
        self.damage.append(("lies aside", *paths))


@dataclass(frozen=True)
class RawEnvelope:
    """An envelope that is its octets."""

    octets: bytes

    def serialize(self) -> bytes:
        """Give them."""
        return self.octets


@dataclass(frozen=True)
class FakeStatement:
    """What a store needs of a statement."""

    id: str
    envelope: RawEnvelope
    expires: datetime


def envelope_of(payload: bytes, *chains: Sequence[bytes]) -> bytes:
    """An envelope in the shape of svc-jws/1."""
    signatures = [
        {
            "protected": b64u_encode(b'{"alg":"ES256"}'),
            "header": {"x5c": [base64.b64encode(der).decode("ascii") for der in chain]},
            "signature": b64u_encode(bytes(64)),
        }
        for chain in chains
    ]
    return json.dumps({"payload": b64u_encode(payload), "signatures": signatures}, separators=(",", ":")).encode()


def statement(
    name: str = "s1", *, expires: int = NOW + 3600, chain: Sequence[bytes] = (b"leaf", b"ca")
) -> FakeStatement:
    """A statement."""
    payload = json.dumps({"jti": name}).encode()
    return FakeStatement(name, RawEnvelope(envelope_of(payload, chain)), datetime.fromtimestamp(expires, UTC))


def receipt(
    name: str = "r1",
    *,
    nonce: str | None = None,
    client: str = CLIENT,
    issued_at: int = NOW,
    names: str = "s1",
    chain: Sequence[bytes] = (b"leaf", b"ca"),
    jti: str | None = None,
    signed: bool = True,
    filler: str = "",
) -> StoredReceipt:
    """A record of an exchange."""
    payload = json.dumps({"jti": name, "svc": {"workloadStatementID": names, "filler": filler}}).encode()
    return StoredReceipt(
        id=name,
        level="signRequest" if signed else "logRequest",
        client=client,
        server=SERVER,
        nonce=nonce,
        jti=jti or f"jti-{name}",
        issued_at=issued_at,
        outcome="complete",
        envelope=envelope_of(payload, chain, (b"pq-" + chain[0],)) if signed else None,
        payload=payload,
        disclosures={"request": {"0": "c2FsdA"}} if signed else None,
        statement_id=names,
    )
