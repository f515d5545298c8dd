"""Shared by the store tests: records, envelopes, job threads that run inline or on request, a reactor with a clock."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from svc.sqlite.connection import open_connection
from svc.sqlite.database import create_or_migrate
from svc.sqlite.kind import DatabaseKind
from svc.sqlite.threads import JobThread, ThreadReactor
from svc.store.compact import CompactEnvelope
from svc.store.records import StoredReceipt
from svc.store.rows import RECEIPT_COLUMNS, receipt_values
from svc.strictjson import b64u_encode

CLIENT = "spiffe://example.org/client"
SERVER = "spiffe://example.org/server"
NOW = 1_795_220_731


@implementer(ThreadReactor)
class InlineReactor(Clock):
    """A clock that makes calls from threads at once."""

    def callFromThread(self, call: Callable[..., Any], *args: object, **kwargs: object) -> None:  # type: ignore[override]
        """Make the call."""
        call(*args, **kwargs)


class InlineThread(JobThread[Any]):
    """A job thread that runs each job at once on the caller's thread; jobs submitted by a job run afterwards."""

    def __init__(self, name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> None:
        self._work = work
        self._finish = finish
        self._jobs: list[Any] = []
        self._working = False

    def submit(self, job: Any) -> None:
        """Run the job."""
        self._jobs.append(job)
        if self._working:
            return
        self._working = True
        while self._jobs:
            self._work([self._jobs.pop(0)])
        self._working = False

    def stop(self) -> None:
        """Finish."""
        self._finish()


class HeldThread(JobThread[Any]):
    """A job thread that runs its jobs when the test says so."""

    def __init__(self, name: str, work: Callable[[Sequence[Any]], None], finish: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.finish = finish
        self.jobs: list[Any] = []

    def submit(self, job: Any) -> None:
        self.jobs.append(job)

    def stop(self) -> None:
        self.run()
        self.finish()

    def run(self) -> None:
        jobs, self.jobs = self.jobs, []
        if jobs:
            self.work(jobs)


class RecordingObserver:
    """Records the reports of a store."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.details: list[str] = []
        self.commits: list[int] = []
        self.writable: list[bool] = []
        self.troubles: list[str] = []
        self.damage: list[tuple[str, ...]] = []

    def db_error(self, op: str, entity: str, detail: str = "") -> None:
        """Record it."""
        self.errors.append((op, entity))
        self.details.append(detail)

    def committed(self, count: int, seconds: float) -> None:
        """Record it."""
        self.commits.append(count)

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """Record it."""
        self.writable.append(writable)
        self.troubles.append(trouble)

    def damaged(self, path: str) -> None:
        """Record it."""
        self.damage.append(("damaged", path))

    def set_aside(self, path: str, aside: str) -> None:
        """Record it."""
        self.damage.append(("quarantined", path, aside))

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Record it."""
        self.damage.append(("quarantined before", *paths))


@dataclass(frozen=True)
class RawEnvelope:
    """An envelope that consists of given octets."""

    octets: bytes

    def serialize(self) -> bytes:
        """Return the octets."""
        return self.octets


@dataclass(frozen=True)
class FakeStatement:
    """The members of a statement that a store uses."""

    id: str
    envelope: RawEnvelope
    expires: datetime


def envelope_of(payload: bytes, *chains: Sequence[bytes]) -> bytes:
    """Build an envelope in the form of svc-jws/1."""
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
    """Create a statement."""
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
    path: str | None = None,
    status: int | None = None,
    outcome: str = "complete",
    server: str = SERVER,
) -> StoredReceipt:
    """Create a record of an exchange."""
    members: dict[str, object] = {"workloadStatementID": names, "filler": filler}
    if path is not None:
        members |= {"request": {"path": path}, "response": None if status is None else {"status": status}}
    payload = json.dumps({"jti": name, "svc": members}).encode()
    return StoredReceipt(
        id=name,
        level="signRequest" if signed else "logRequest",
        client=client,
        server=server,
        nonce=nonce,
        jti=jti or f"jti-{name}",
        issued_at=issued_at,
        outcome=outcome,
        envelope=envelope_of(payload, chain, (b"pq-" + chain[0],)) if signed else None,
        payload=payload,
        disclosures={"request": {"0": "c2FsdA"}} if signed else None,
        statement_id=names,
    )


def batch(
    *names: str, chain: Sequence[bytes] = (b"leaf", b"ca"), number: int = 0, **members: Any
) -> list[StoredReceipt]:
    """Create records that were signed together; ``members`` are of each."""
    shared = envelope_of(json.dumps({"names": names, "number": number}).encode(), chain, (b"pq-" + chain[0],))
    return [
        replace(receipt(name, **members), envelope=None, batch=shared, inclusion=bytes((index, len(names) - 1)) * 20)
        for index, name in enumerate(names)
    ]


def write_first_version(path: str, kind: DatabaseKind, record: StoredReceipt) -> None:
    """Create a database as the program without batches did, with one record."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with closing(create_or_migrate(path, open_connection, kind)) as connection:
        values = receipt_values(record, 1, CompactEnvelope.of(record.envelope or b"", record.payload), None)
        chain = CompactEnvelope.of(record.envelope or b"", record.payload).certificates
        digests = [hashlib.sha256(der).digest() for der in chain]
        connection.executemany("INSERT INTO certificate_blob VALUES (?, ?)", zip(digests, chain, strict=True))
        connection.execute("INSERT INTO certificate_set VALUES (1, ?)", (b"".join(digests),))
        columns = RECEIPT_COLUMNS[:-2]
        marks = ", ".join("?" for _column in columns)
        connection.execute(f"INSERT INTO receipt ({', '.join(columns)}) VALUES ({marks})", values[:-2])
