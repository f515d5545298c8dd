"""The keys that the configurations of all daemons have."""

from __future__ import annotations

from svc.process.values import OptionalAddress
from svc.settings import Duration, Settings


class DaemonSettings(Settings):
    """What every daemon reads of its configuration; each has its own default of ``adminAddr``."""

    adminAddr: OptionalAddress = None
    """A web page, `/status`, `/livez`, `/readyz`, `/config`. There is no authentication: keep it on loopback."""
    probesAddr: OptionalAddress = None
    """`/livez` and `/readyz` alone, which answer with a status and one word: for a kubelet or a load balancer, which
    ask from elsewhere. It may be open to the network."""
    drainDelay: Duration = 2.0
    """How long the process goes on accepting after SIGUSR1, while it is not ready and asks clients to connect
    elsewhere; then it ends as after SIGTERM, which itself does not wait."""
