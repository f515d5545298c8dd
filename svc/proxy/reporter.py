"""What connections report to operators; :mod:`svc.proxy.observers` decides what is logged, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.policy.engine import Decision, MatchedRule
from svc.telemetry.labels import Cause, Direction
from svc.wire.http1 import RequestHead


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """
    Which rule of which policy permitted or refused a request.

    Attributes:
        policy: empty outbound, where the peer decides.
        id: of a refusal, as in the answer; empty for what is permitted and for open connections.
    """

    policy: str
    rule: str
    id: str


@dataclass(frozen=True, slots=True)
class ExchangeSummary:
    """
    One exchange at its end.

    Attributes:
        listener: the name of its listener.
        direction: ``inbound`` or ``outbound``.
        peer: the verified identity of the client; outbound that of a peer with a verified statement, else empty.
        method: the method; empty where no request could be parsed.
        path: the path without the query; empty as the method.
        lookup: whether the notary answered a request for a statement or receipt.
        status: the status of the response, None where there was none.
        request_octets: octets of the request body received, and what the client sent after an upgrade.
        response_octets: octets of the response body received, and what the application sent after an upgrade.
        seconds: from the head of the request to the end; None where no request could be parsed.
        level: the notarization level in force.
        recorded: whether a record was promised.
        receipt_id: the identifier of the record, outbound of the verified receipt; None where there is none.
        statement_id: outbound, that of the peer's verified statement.
        outcome: how the exchange ended, as in the record.
        decision: of the policies; None where they did not decide.
    """

    listener: str
    direction: Direction
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
    decision: PolicyDecision | None
    statement_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSummary:
    """
    One relayed connection at its end.

    Attributes:
        listener: the name of its listener.
        direction: ``inbound`` or ``outbound``.
        peer: the verified identity of the client inbound, of the peer outbound; empty where there was none.
        address: the host that the client connects from.
        received_octets: what the client sent.
        sent_octets: what the other side sent.
        seconds: from the accepted connection to the end.
        cause: what ended it, as counted.
        complete: whether both sides ended their streams in order.
        decision: of the policies; None outbound.
    """

    listener: str
    direction: Direction
    peer: str
    address: str
    received_octets: int
    sent_octets: int
    seconds: float
    cause: Cause
    complete: bool
    decision: PolicyDecision | None


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """
    One message of MQTT with a record, at the end of its exchange.

    Attributes:
        listener: the name of its listener.
        peer: the verified identity of the client.
        octets: of the payload.
        code: the reason code of the acknowledgement, None where there was none.
        receipt_id: the identifier of the record, None where it was lost.
        outcome: how the exchange ended, as in the record.
    """

    listener: str
    peer: str
    topic: str
    qos: int
    octets: int
    level: Level
    seconds: float
    code: int | None
    receipt_id: str | None
    outcome: ExchangeOutcome


class Reporter(Protocol):
    """Receives reports for operators; implemented by the logging module, which connections do not import."""

    #: Whether all complete exchanges are reported, and those with a record; read before a summary is made of them.
    every_exchange: bool
    recorded_exchanges: bool

    def denied(
        self,
        reason: str,
        address: str,
        peer: str,
        detail: str,
        *,
        listener: str,
        request: RequestHead | None = None,
        decision: PolicyDecision | None = None,
    ) -> None:
        """A verified peer was denied a request, or the connection that it had."""

    def dry_run_differs(self, peer: str, decision: Decision, *, listener: str, request: RequestHead | None) -> None:
        """With the policies in dry run enforced, the decision on a request or connection would be another one: this."""

    def audited(
        self, peer: str, matched: MatchedRule, *, permitted: bool, listener: str, request: RequestHead | None
    ) -> None:
        """A rule of an Audit policy matches a request or connection, which other policies permit or refuse."""

    def evicted(self, reason: str, address: str, peer: str, detail: str) -> None:
        """A full listener closed a connection for a new one, or the new one of an identity that holds most."""

    def exchange_failed(self, reason: str, peer: str, detail: str, precise: str = "") -> None:
        """
        An exchange was aborted, or answered by the proxy for a fault of the upstream or the notary.

        ``precise`` is the reason below ``reason``, where there is one.
        """

    def connection_ended(self, summary: ConnectionSummary) -> None:
        """A relayed connection is over; called where every exchange is reported."""

    def message_recorded(self, summary: MessageSummary) -> None:
        """The exchange of a message is over, and its record durable or lost; called where these are reported."""

    def exchange_ended(self, summary: ExchangeSummary) -> None:
        """An exchange is over, and its record durable or failed; called once for each that is reported."""
