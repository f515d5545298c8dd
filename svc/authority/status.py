"""What the authority reports on ``adminAddr``: its part of the status document, and its counters for the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from svc.authority.config import AuthoritySettings
from svc.authority.domain import IssuedSvid, LocalDomain
from svc.authority.registration import Registry
from svc.authority.report import AuthorityLog
from svc.identity.algorithms import key_algorithm
from svc.identity.spiffeid import SpiffeID
from svc.identity.svid import X509Svid
from svc.pages.elements import Code, Table
from svc.pqissuer.nodes import ServedBundle
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import KeyRing
from svc.process.history import Totals
from svc.process.status import (
    EntryStatus,
    IdentityStatus,
    IssuedCounts,
    ListenerStatus,
    NodeStatus,
    RootStatus,
    Status,
    timestamp,
)

#: Identities that are shown, and nodes: a megabyte of them would be refused by those who read the document.
MAX_ENTRIES: Final = 1000
_KINDS: Final = {"x509": "X.509", "jwt": "JWT", "pq": "post-quantum"}


def authority_totals(log: AuthorityLog) -> Totals:
    """Read the counters: a request is an SVID or a leaf that was issued, or a refusal."""
    refusals = log.refusals.total()
    issued = log.issued.x509 + log.issued.jwt + log.issued.pq_leaves
    return Totals(requests=issued + refusals, refusals=refusals, denials=dict(log.refusals))


def authority_members(
    settings: AuthoritySettings,
    now: datetime,
    *,
    domain: LocalDomain | None,
    pq: PqRootRing | None,
    registry: Registry,
    held: Iterable[IssuedSvid],
    svid: X509Svid | None,
    issued: IssuedCounts,
    nodes: Mapping[str, ServedBundle],
    seconds: float,
) -> dict[str, Any]:
    """
    Return the members of :class:`svc.process.status.Status` that an authority has.

    Args:
        held: the SVIDs of open Workload API streams.
        svid: its own, where it runs beside another SPIFFE implementation.
        nodes: what they serve.
        seconds: the monotonic clock of their reports.
    """
    return {
        "trust_domain": str(settings.trustDomain),
        "identities": () if svid is None else (_identity(svid),),
        "listeners": tuple(_listeners(settings)),
        "roots": tuple(_roots(domain, pq, now)),
        "entries": None if domain is None else tuple(_entries(registry, held)),
        "issued": issued,
        "nodes": tuple(_nodes(nodes, now, seconds)) or None,
    }


def authority_tables(status: Status) -> tuple[Table, ...]:
    """What the web page shows besides the document: roots, and the identities that it issues to."""
    roots = [
        (_KINDS[each.kind], each.algorithm, "signs" if each.signs else "announced", timestamp(each.not_after))
        for each in status.roots or ()
    ]
    tables = [Table("Roots", ("Kind", "Algorithm", "State", "Ends (UTC)"), roots)]
    if status.nodes:
        nodes = [(Code(each.name), each.sequence, timestamp(each.reported)) for each in status.nodes]
        tables.append(Table("Post-quantum roots of nodes", ("Node", "Sequence", "Reported (UTC)"), nodes))
    if status.entries is None:
        return tuple(tables)
    entries = [
        (Code(each.spiffe_id), each.svids, None if each.not_after is None else timestamp(each.not_after))
        for each in status.entries
    ]
    columns = ("SPIFFE ID", "SVIDs held by open streams", "First of them ends (UTC)")
    return (*tables, Table("Issues to", columns, entries, "" if entries else "No entries."))


def _identity(svid: X509Svid) -> IdentityStatus:
    return IdentityStatus(str(svid.spiffe_id), svid.chain_not_after, not_before=svid.not_before)


def _nodes(nodes: Mapping[str, ServedBundle], now: datetime, seconds: float) -> Iterator[NodeStatus]:
    for name, served in sorted(nodes.items())[:MAX_ENTRIES]:
        yield NodeStatus(name, served.sequence, now - timedelta(seconds=seconds - served.reported))


def _listeners(settings: AuthoritySettings) -> Iterator[ListenerStatus]:
    pq = settings.pqIssuer
    places = [("workloadApi", "grpc", settings.socket)]
    if pq is not None:
        places.append(("pqIssuer", "http", pq.socket))
    if settings.federation is not None:
        places.append(("federation", "http", settings.federation.socket))
    for name, protocol, path in places:
        if path is not None:
            yield ListenerStatus(name, protocol, "inbound", f"unix://{path}")
    if pq is not None and pq.listen is not None:
        yield ListenerStatus("pqIssuer", "http", "inbound", str(pq.listen))


def _roots(domain: LocalDomain | None, pq: PqRootRing | None, now: datetime) -> Iterator[RootStatus]:
    if domain is not None:
        yield from _ring("x509", domain.x509.ring, now)
        yield from _ring("jwt", domain.jwt.ring, now)
    if pq is not None:
        yield from _ring("pq", pq.ring, now)


def _ring(kind: str, ring: KeyRing[Any], now: datetime) -> Iterator[RootStatus]:
    for slot in ring.announced:
        certificate = getattr(slot.key, "certificate", None)
        algorithm = None if certificate is None else key_algorithm(certificate.public_key()).name
        yield RootStatus(kind, slot.expires, ring.signs(slot, now), slot.made, algorithm)


def _entries(registry: Registry, held: Iterable[IssuedSvid]) -> Iterator[EntryStatus]:
    """One for each of the first identities, in the order of the configuration."""
    ends: defaultdict[SpiffeID, list[datetime]] = defaultdict(list)
    for each in held:
        ends[each.entry.spiffe_id].append(each.svid.not_after)
    for spiffe_id in islice(dict.fromkeys(each.spiffe_id for each in registry.entries), MAX_ENTRIES):
        found = ends[spiffe_id]
        yield EntryStatus(str(spiffe_id), len(found), min(found, default=None))
