"""What a broker reports on ``adminAddr``: its part of the status document, and its counters for the history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from svc.broker.access import Principal
from svc.broker.broker import Broker
from svc.broker.config import BrokerListenerSettings, BrokerSettings
from svc.broker.reports import BrokerReports, BrokerStoreReports
from svc.broker.statistics import Statistics
from svc.identity import X509Svid
from svc.process.history import Totals
from svc.process.status import IdentityStatus, ListenerStatus, StoreStatus


def broker_totals(broker: Broker | None, reports: BrokerReports) -> Totals:
    """Read the counters; all are zero while there is no broker, since its database is read."""
    counts = Statistics() if broker is None else broker.hub.statistics
    denials: Counter[str] = Counter(reports.denials)
    denials.update(counts.refused)
    denials["mqtt_not_authorized"] += counts.denied.total()
    return Totals(
        refusals=denials.total(),
        received=counts.received,
        sent=counts.messages_sent,
        dropped=counts.drops.total(),
        connections=counts.connected,
        denials=+denials,
    )


def broker_members(
    settings: BrokerSettings,
    broker: Broker | None,
    svid: X509Svid | None,
    addresses: Mapping[str, str],
    certificates: Iterable[tuple[str, datetime]],
    store: BrokerStoreReports | None,
) -> dict[str, Any]:
    """
    Return the members of :class:`svc.process.status.Status` that a broker has.

    Args:
        svid: its own, where a listener uses SPIFFE.
        addresses: where the open listeners listen, by name.
        certificates: the ends of the certificates of listeners that read them from files.
    """
    members: dict[str, Any] = {
        "trust_domain": settings.trustDomain,
        "identities": () if svid is None else (_identity(svid),),
    }
    if store is not None:
        members["store"] = StoreStatus(store.path, store.accepting, store.trouble, store.operations)
    clients: defaultdict[str, list[Principal]] = defaultdict(list)
    if broker is not None:
        hub = broker.hub
        for principal in broker.principals():
            clients[principal.listener].append(principal)
        members |= {
            "clients": hub.statistics.connected,
            "sessions": len(hub.sessions),
            "retained": len(hub.retained),
            "queued": sum(session.waiting for session in hub.sessions.values()),
        }
    ends = dict(certificates)
    members["listeners"] = tuple(
        _listener(each, addresses.get(each.name), clients[each.name], ends.get(each.name))
        for each in settings.listeners
    )
    return members


def _identity(svid: X509Svid) -> IdentityStatus:
    ends = svid.chain_not_after
    return IdentityStatus(str(svid.spiffe_id), ends, serves_until=ends, not_before=svid.not_before)


def _listener(
    settings: BrokerListenerSettings,
    address: str | None,
    clients: Sequence[Principal],
    certificate_not_after: datetime | None,
) -> ListenerStatus:
    identified = settings.clients != "anonymous"
    return ListenerStatus(
        name=settings.name,
        protocol="mqtt",
        direction="inbound",
        listen=address or str(settings.listen),
        connections=None if address is None else len(clients),
        peers=len({each.identity for each in clients} - {None}) if identified else None,
        certificate_not_after=certificate_not_after,
    )
