"""
What becomes of a connection when credentials, bundles or policies have changed: it stays, ends in order, or at once.

Owns which error is which cause. A connection acts on the evaluation, and knows none of these errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from svc.errors import SvcError
from svc.identity.errors import SvidInvalid
from svc.policy.engine import Denied
from svc.proxy.errors import FormerSvidRefused
from svc.telemetry.labels import UpstreamCause
from svc.transport.errors import OwnIdentityWithdrawn


class Kept(Enum):
    """What becomes of a connection that is not refused."""

    #: It stays.
    KEEP = auto()
    #: It ends in order: this side has another SVID.
    DRAIN = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """
    A connection that could not be made now, and so ends at once.

    Args:
        cause: as in ``svc_proxy_connections_closed_total``.
        error: what refuses it.
    """

    cause: UpstreamCause
    error: SvcError


Evaluation = Kept | Refused

#: The causes by the errors.
_CAUSES: Final[dict[type[SvcError], UpstreamCause]] = {
    OwnIdentityWithdrawn: "identity_withdrawn",
    FormerSvidRefused: "rotation",
    Denied: "reauthorization",
    SvidInvalid: "reauthorization",
}


def evaluated(decide: Callable[[], bool]) -> Evaluation:
    """
    Evaluate a connection.

    Args:
        decide: returns whether the connection is to end in order; raises what would refuse it now.
    """
    try:
        return Kept.DRAIN if decide() else Kept.KEEP
    except tuple(_CAUSES) as error:
        return Refused(next(cause for each, cause in _CAUSES.items() if isinstance(error, each)), error)
