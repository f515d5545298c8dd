"""
What the log says of one exchange.

Pure values; what of them is written, and whether, is decided in :mod:`svc.proxy.observers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level


@dataclass(frozen=True, slots=True)
class ExchangeSummary:
    """
    One exchange at its end.

    Attributes:
        listener: the name of its listener.
        direction: ``inbound`` or ``outbound``.
        peer: the verified identity of the client; empty outbound.
        method: the method; empty where no request could be read.
        path: the path without the query; empty as the method.
        lookup: whether the notary answered a request for a statement or receipt.
        status: the status of the response, None where there was none.
        request_octets: content of the request that came, and what the client sent after an upgrade.
        response_octets: content of the response that came, and what the application sent after an upgrade.
        seconds: from the head of the request to the end; None where no request could be read.
        level: the notarization level in force.
        recorded: whether a record was promised.
        receipt_id: the identifier of the record, None where there is none.
        outcome: how the exchange ended, as the record says.
    """

    listener: str
    direction: str
    peer: str
    method: bytes
    path: bytes
    lookup: bool
    status: int | None
    request_octets: int
    response_octets: int
    seconds: float | None
    level: Level
    recorded: bool
    receipt_id: str | None
    outcome: ExchangeOutcome
