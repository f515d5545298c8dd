"""
The status document of a process (schema ``svc.status/1``), which ``GET /status`` on ``adminAddr`` answers.

Owns the members and their JSON. Needs neither Twisted nor a clock, so that the command line can use it. All times are
aware and in UTC. In the JSON a value that is not known is left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from svc.telemetry.health import Condition

SCHEMA: Final = "svc.status/1"
#: How many errors a process keeps.
MAX_ERRORS: Final = 20

_WORD: Final = re.compile("_([a-z])")


@dataclass(frozen=True)
class IdentityStatus:
    """
    One set of credentials.

    Attributes:
        not_after: the end of the first certificate to expire.
        serves_until: from when on no connection is accepted with it.
        statement_id: the workload statement that was issued with it.
        pq_not_after: the end of the post-quantum leaf.
        not_before: the beginning of the SVID.
        statement_issuer: who issued that statement: the workload itself, or a central issuer.
    """

    spiffe_id: str
    not_after: datetime
    serves_until: datetime | None = None
    statement_id: str | None = None
    profile: str | None = None
    pq_not_after: datetime | None = None
    not_before: datetime | None = None
    statement_issuer: str | None = None


@dataclass(frozen=True)
class ListenerStatus:
    """
    One listener; the counts are since the start of the process.

    Attributes:
        protocol: ``http`` or ``mqtt``.
        direction: ``inbound`` or ``outbound``.
        listen: where it listens, ``host:port``; the configured address while it does not.
        upstream: where it forwards to.
        level: the notarization level that every request gets at least.
        max_level: the strongest level that a client may ask for.
        connections: open connections of clients.
        peers: different verified identities at the other end of them.
        refusals: requests and connections refused for the identity of the client or of the peer.
        certificate_not_after: the end of its certificate, where that is read from a file.
    """

    name: str
    protocol: str
    direction: str
    listen: str
    upstream: str | None = None
    level: str | None = None
    max_level: str | None = None
    connections: int | None = None
    peers: int | None = None
    requests: int | None = None
    refusals: int | None = None
    certificate_not_after: datetime | None = None


@dataclass(frozen=True)
class Rates:
    """
    Events per second over the last ``seconds``; None for what the process does not count.

    Attributes:
        errors: requests that failed for another reason than the identity of the client.
        p50: the median of the durations of requests, in seconds; None where there were none.
        p99: the 99th percentile of them.
        received: messages from clients (broker).
        sent: messages to clients (broker).
        dropped: messages that were not delivered (broker).
    """

    seconds: float
    requests: float | None = None
    refusals: float | None = None
    errors: float | None = None
    p50: float | None = None
    p99: float | None = None
    received: float | None = None
    sent: float | None = None
    dropped: float | None = None


@dataclass(frozen=True)
class StoreStatus:
    """
    The database.

    Attributes:
        path: the file, or the server and name of the database.
        trouble: why it is not writable; else empty.
        records: what was written since the start; of a notary, receipts and workload statements.
        octets: what the records of a notary take.
        room: how many octets are left for more.
        room_days: for how many days that lasts at the rate of the last one; unknown where they do not grow.
    """

    path: str
    writable: bool
    trouble: str = ""
    records: int | None = None
    octets: int | None = None
    room: int | None = None
    room_days: float | None = None

    @property
    def room_text(self) -> str:
        """What is taken and what is left, for people; empty where that is not known."""
        if self.octets is None:
            return ""
        text = f"records take {_amount(self.octets)}"
        if self.room is not None:
            text += f", {_amount(self.room)} left"
        if self.room_days is not None:
            text += (
                f" for {self.room_days:,.0f} days" if self.room_days >= 2 else f" for {self.room_days * 24:.0f} hours"
            )
        return text


@dataclass(frozen=True)
class IssuedCounts:
    """What an authority has issued since its start."""

    x509: int
    jwt: int
    pq_leaves: int


@dataclass(frozen=True)
class RootStatus:
    """
    One root of an authority that is announced in its bundles.

    Attributes:
        kind: ``x509``, ``jwt`` or ``pq``.
        not_after: its end, and that of its key.
        signs: whether it signs now; one that does not is announced before its time, or still.
    """

    kind: str
    not_after: datetime
    signs: bool
    not_before: datetime | None = None
    algorithm: str | None = None


@dataclass(frozen=True)
class EntryStatus:
    """
    One identity that an authority gives.

    Attributes:
        svids: X.509-SVIDs of it that open streams of the Workload API hold and have renewed.
        not_after: the end of the first of them to expire.
    """

    spiffe_id: str
    svids: int
    not_after: datetime | None = None


@dataclass(frozen=True)
class NodeStatus:
    """
    One node whose agent fetches the post-quantum roots.

    Attributes:
        sequence: of the bundle that it serves; 0 while it has none.
        reported: when its agent said so.
    """

    name: str
    sequence: int
    reported: datetime


@dataclass(frozen=True)
class LastError:
    """
    One kind of log record of severity WARN or above, as it was logged last; denials are among them.

    Attributes:
        event: the name of the log event.
        reason: the precise reason; empty where the event has none.
        detail: the sentence, as it is logged.
        source: who it concerns: the SPIFFE ID of the peer, else the address; None where it concerns nobody.
        count: records with this event, reason and source since the first of them that is not forgotten.
    """

    at: datetime
    event: str
    reason: str
    detail: str
    source: str | None = None
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Status:
    """
    The whole document.

    Attributes:
        process: ``proxy``, ``broker`` or ``authority``.
        conditions: those of ``/readyz``.
        identities: newest first; the first serves new connections.
        rates: None until the first sample was taken.
        clients: clients that are connected (broker).
        queued: messages that wait for clients (broker), or in the buffer for brokers (proxy).
        roots: oldest first of each kind (authority).
        entries: in the order of the configuration (authority).
        nodes: in the order of their names; None where none has reported (authority).
        denials: denials of the last hour by precise reason.
        last_errors: newest first, at most :data:`MAX_ERRORS`.
    """

    process: str
    version: str
    pid: int
    started: datetime
    now: datetime
    ready: bool
    draining: bool
    conditions: tuple[Condition, ...]
    trust_domain: str | None = None
    identities: tuple[IdentityStatus, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()
    rates: Rates | None = None
    store: StoreStatus | None = None
    issued: IssuedCounts | None = None
    roots: tuple[RootStatus, ...] | None = None
    entries: tuple[EntryStatus, ...] | None = None
    nodes: tuple[NodeStatus, ...] | None = None
    clients: int | None = None
    sessions: int | None = None
    retained: int | None = None
    queued: int | None = None
    denials: Mapping[str, int] = dataclasses.field(default_factory=dict)
    last_errors: tuple[LastError, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The document as JSON values."""
        return {"v": 1, "schema": SCHEMA, **_members(self)}


def _amount(octets: int) -> str:
    """Octets in the unit that leaves at least one of it."""
    power = min(3, max(0, octets.bit_length() - 1) // 10)
    number = octets / 1024**power
    return f"{number:,.1f} {('B', 'KiB', 'MiB', 'GiB')[power]}" if power else f"{octets} B"


def timestamp(instant: datetime) -> str:
    """An aware instant in UTC as RFC 3339 text with seconds."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _members(value: object) -> dict[str, object]:
    found = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))  # type: ignore[arg-type]  # only dataclasses are passed
    return {member_name(name): _json_value(item) for name, item in found if item is not None}


def member_name(name: str) -> str:
    """``spiffe_id`` as ``spiffeID``, ``not_after`` as ``notAfter``."""
    name = name.removesuffix("_id") + "ID" if name.endswith("_id") else name
    return _WORD.sub(lambda found: found[1].upper(), name)


def _json_value(value: object) -> object:
    if isinstance(value, Condition):
        return value.as_json()
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, tuple):
        return [_json_value(each) for each in value]
    if isinstance(value, Mapping):
        return dict(value)
    return _members(value) if dataclasses.is_dataclass(value) else value
