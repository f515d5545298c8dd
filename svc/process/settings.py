"""The keys that the configurations of all daemons have."""

from __future__ import annotations

from svc.process.values import OptionalAddress
from svc.settings import Settings


class DaemonSettings(Settings):
    """What every daemon reads of its configuration; each has its own default of ``adminAddr``."""

    adminAddr: OptionalAddress = None
    """A web page, `/status`, `/livez`, `/readyz`, `/config`. There is no authentication: keep it on loopback."""
    probesAddr: OptionalAddress = None
    """`/livez` and `/readyz` alone, which answer with a status and one word: for a kubelet or a load balancer, which
    ask from elsewhere. It may be open to the network."""
