"""What the builders of listeners share: the parts of one proxy, and those that every context of a listener has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from twisted.internet.interfaces import IStreamClientEndpoint

from svc.envelope.profile import Profile
from svc.identity import SvidEvidence
from svc.pacing.turns import Turns
from svc.policy.engine import Denied
from svc.policyfiles.settings import Policies
from svc.policyfiles.watch import PolicyWatch
from svc.process.reauthorization import Reauthorization
from svc.proxy.assembly.endpoints import Endpoints, upstream_name
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.connection_settings import LimitSettings, OnRotation, TimeoutSettings
from svc.proxy.context import AuthorizedConnection
from svc.proxy.credential_rotation import CredentialRotation
from svc.proxy.observers import ListenerObserver, Reports
from svc.proxy.records.notarizer import Notarizer
from svc.proxy.records.receipt_collector import ReceiptCollector
from svc.proxy.records.release_points import ReleaseObserver
from svc.proxy.reporter import Reporter
from svc.store.interface import INotaryStore
from svc.telemetry.health import Health
from svc.telemetry.metrics import ListenerMetrics, ProxyMetrics
from svc.transport.errors import TransportError
from svc.transport.evidence import PeerEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyParts:
    """The parts of one proxy that its listeners share."""

    #: As they were at the start.
    settings: ProxySettings
    reactor: Any
    metrics: ProxyMetrics
    health: Health
    reports: Reports
    policies: PolicyWatch[ProxySettings]
    #: The profile by which it signs, and the one by which it verifies, whether it signs or not.
    profile: Profile
    verified_profile: Profile
    rotation: CredentialRotation
    turns: Turns
    store: INotaryStore
    notarizer: Notarizer
    collector: ReceiptCollector
    released: ReleaseObserver
    endpoints: Endpoints
    #: Makes the way to the upstream of a listener, which is another one where the proxy is embedded.
    client_endpoint: Callable[[ListenerSettings, ListenerObserver], IStreamClientEndpoint]


class ContextParts(TypedDict):
    """The arguments of every :class:`svc.proxy.context.ListenerContext`."""

    name: str
    inbound: bool
    policies: Policies | None
    rotation: CredentialRotation
    reauthorization: Reauthorization[AuthorizedConnection]
    turns: Turns
    metrics: ListenerMetrics
    reporter: Reporter
    limits: LimitSettings
    timeouts: TimeoutSettings
    seconds: Callable[[], float]
    wall: Callable[[], datetime]
    listed: Callable[[SvidEvidence], Denied | None]
    on_rotation: OnRotation
    drain_seconds: Callable[[], float]


class RelayedParts(ContextParts):
    """The arguments of every :class:`svc.proxy.relayed_context.RelayedContext`."""

    endpoint: IStreamClientEndpoint
    upstream: str
    unreachable: Callable[[], None]
    accepted: Callable[[], None]
    ended: Callable[[PeerEvidence, TransportError], None]


def relayed_parts(
    parts: ProxyParts, settings: ListenerSettings, observer: ListenerObserver, context: ContextParts
) -> RelayedParts:
    """What the context of a listener has whose clients have one connection to the upstream each."""
    return {
        **context,
        "endpoint": parts.client_endpoint(settings, observer),
        "upstream": upstream_name(settings),
        "unreachable": observer.upstream_unreachable,
        "accepted": observer.upstream_accepted,
        "ended": observer.upstream_ended,
    }
