"""
What all connections of one listener share whose clients have one connection to the upstream each, with TCP and MQTT.

That is, beside what every listener has, the way to the upstream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from twisted.internet.interfaces import IStreamClientEndpoint

from svc.proxy.context import ListenerContext
from svc.proxy.errors import ProxyError, upstream_error
from svc.proxy.eviction import EvictionOrder
from svc.transport.errors import TransportError
from svc.transport.evidence import PeerEvidence

#: Seconds without an octet after which a connection is closed where the configuration does not say.
DEFAULT_IDLE: Final = 3600.0


@dataclass(slots=True, kw_only=True)
class RelayedContext(ListenerContext):
    """What the connections of one listener share whose clients have one connection to the upstream each."""

    endpoint: IStreamClientEndpoint
    #: What errors call the upstream, such as ``the application at 127.0.0.1:5432``.
    upstream: str
    #: Called where no connection to the upstream could be made, and for each verified peer that accepted our SVID.
    unreachable: Callable[[], None]
    accepted: Callable[[], None]
    #: Called for each connection to a peer that is closed because the credentials of one side have ended.
    ended: Callable[[PeerEvidence, TransportError], None]
    idle: float = field(init=False)
    #: Bounds the authorized connections of an inbound listener, fairly between identities.
    evictions: EvictionOrder = field(init=False)

    def __post_init__(self) -> None:
        # A class with slots is another one than that of its methods, which super() without arguments refers to.
        ListenerContext.__post_init__(self)
        self.evictions = EvictionOrder(self.limits.connections)
        timeouts = self.timeouts
        self.idle = timeouts.idle if "idle" in timeouts.model_fields_set else DEFAULT_IDLE

    def explained(self, error: BaseException | None) -> ProxyError:
        """Return what an error of a connection to the upstream means for a client."""
        return upstream_error(error, self.upstream, self.timeouts.connect)
