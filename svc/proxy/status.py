"""What a proxy reports on ``adminAddr``: its part of the status document, and its counters for the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from svc.identity import SpiffeID
from svc.notary.credentials import CredentialSet
from svc.process.history import Totals
from svc.process.status import IdentityStatus, ListenerStatus, StoreStatus
from svc.proxy.config import ListenerSettings
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.listener import Listener
from svc.proxy.observers import NotaryStoreReports, Reports
from svc.proxy.service import ProxyService
from svc.store.interface import INotaryStore
from svc.telemetry.metrics import REQUEST_BUCKETS, ProxyMetrics


def proxy_totals(metrics: ProxyMetrics, reports: Reports, connections: int) -> Totals:
    """Read the counters of all listeners."""
    durations = metrics.durations
    return Totals(
        requests=sum(durations),
        refusals=metrics.denied,
        errors=reports.failed_exchanges,
        bounds=REQUEST_BUCKETS,
        durations=durations,
        connections=connections,
        denials=dict(reports.denials),
    )


def proxy_members(
    proxy: ProxyService, rotation: CredentialRotation, store: INotaryStore, store_reports: NotaryStoreReports
) -> dict[str, Any]:
    """Return the members of :class:`svc.process.status.Status` that a proxy has."""
    settings = proxy.settings
    return {
        "trust_domain": settings.trustDomain,
        "identities": tuple(_identity(each) for each in rotation.valid),
        "listeners": tuple(_listener(each, proxy.listeners.all_named(each.name)) for each in settings.listeners),
        "store": _store(store, store_reports) if settings.stores else None,
        "queued": None if proxy.stored is None else proxy.stored.messages,
    }


def _store(store: INotaryStore, reports: NotaryStoreReports) -> StoreStatus:
    status = StoreStatus(reports.name, store.writable, store.trouble, reports.records)
    room = reports.room
    if room is None:
        return status
    days = round(room.days, 2) if math.isfinite(room.days) else None
    return replace(status, octets=room.octets, room=room.left, room_days=days)


def _identity(credentials: CredentialSet) -> IdentityStatus:
    leaf = credentials.pq_leaf
    return IdentityStatus(
        spiffe_id=str(credentials.spiffe_id),
        not_after=credentials.svid.chain_not_after,
        serves_until=credentials.close_at,
        statement_id=credentials.statement.id,
        statement_issuer=credentials.issuer,
        profile=credentials.profile.value,
        pq_not_after=None if leaf is None else leaf.not_after,
        not_before=credentials.svid.not_before,
    )


def _listener(settings: ListenerSettings, found: Sequence[Listener]) -> ListenerStatus:
    """Describe a listener of the configuration: the one that accepts, if any, and those of its name that drain."""
    peers: set[SpiffeID] = set().union(*(each.peers for each in found))
    # They have the same counters.
    metrics = found[0].context.metrics if found else None
    without = settings.protocol == "tcp" or (settings.protocol == "mqtt" and settings.direction == "outbound")
    return ListenerStatus(
        name=settings.name,
        protocol=settings.protocol,
        direction=settings.direction,
        listen=(found[0].address_text if found else "") or str(settings.listen),
        upstream=str(settings.upstream),
        level=None if without else settings.notarization,
        max_level=None if without else settings.maxNotarization,
        connections=sum(each.open_connections for each in found) if found else None,
        peers=len(peers) if found and settings.direction == "inbound" else None,
        requests=None if metrics is None else metrics.requests,
        refusals=None if metrics is None else metrics.denied,
    )
