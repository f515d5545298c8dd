"""
One exchange: trust, connection, request, response kept back, statement, level, receipt, in this order.

Owns that order, where statement and receipt are fetched, and how long a pending receipt is waited for: only the
notary's own path for this very request is followed. Trust, connections and time are arguments, so that an exchange
runs in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.client import debug_log
from svc.client.connection import ExchangeConnection, OpenConnection, Response, ResponseSink
from svc.client.errors import ExchangeFailed, ServerUnexpected
from svc.client.request import Request
from svc.client.verification import NO_STATEMENT, Demands, Trust, check_statement, observed_exchange
from svc.errors import SvcError
from svc.notary.access import statement_path
from svc.notary.errors import ReceiptRefused, StatementMissing, StatementRefused
from svc.notary.exchange import BodySummary, ObservedExchange
from svc.notary.level import check_level
from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
from svc.notary.response_headers import named_level, named_receipt_path, named_statement, pending_pause
from svc.notary.statement import StatementEvidence
from svc.transport.errors import TransportError
from svc.workload.errors import WorkloadError

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence

#: How long a receipt may be pending, in seconds.
PENDING: Final = 30.0


class Phase(Enum):
    """Where an exchange failed; the value is the exit status with ``--detailed-exit-codes``."""

    NETWORK = 1
    STATEMENT = 2
    RECEIPT = 3


class WaitingFor(Enum):
    """What an exchange waits for; the value completes the error of ``--max-time``."""

    TRUST = "the Workload API had not given trust bundles"
    CONNECTION = "there was no verified connection to the server"
    RESPONSE = "the server had not answered in full"
    STATEMENT = "the workload statement had not come"
    RECEIPT = "the receipt had not come"


class ResponseBody(ResponseSink, Protocol):
    """Takes a response and describes its body."""

    def seen(self) -> BodySummary:
        """Size and digest of the body, once it is complete."""


class ExchangeContext(Protocol):
    """Trust, connections and time of an exchange."""

    clock: IReactorTime

    def now(self) -> datetime:
        """The time, aware."""

    async def trust(self) -> Trust:
        """Read the local trust; raises where the Workload API gives none."""

    async def dial(self, previous: OpenConnection | None) -> OpenConnection:
        """
        Open a connection to the server.

        Args:
            previous: the connection that this one follows; the peer must then have the same identity.
        """

    def release(self, connection: OpenConnection) -> None:
        """Close a connection whose exchange has ended, or keep it open for the next."""


@dataclass(slots=True)
class ExchangeResult:
    """
    The result of an exchange.

    Args:
        phase: where it failed; the last phase where it did not.
        error: None where everything that was demanded holds.
        response: set once the response is complete.
        peer: the verified peer; None without TLS or before a connection.
    """

    phase: Phase = Phase.NETWORK
    error: SvcError | None = None
    response: Response | None = None
    peer: PeerEvidence | None = None
    statement: StatementEvidence | None = None
    statement_envelope: bytes | None = None
    receipt: ReceiptEvidence | None = None
    receipt_artifact: bytes | None = None
    waiting_for: WaitingFor = WaitingFor.TRUST


async def run_exchange(
    request: Request,
    demands: Demands,
    context: ExchangeContext,
    body: ResponseBody,
    result: ExchangeResult | None = None,
) -> ExchangeResult:
    """
    Carry out an exchange and verify it; an error is part of the result.

    Args:
        body: takes the response.
        result: filled in, for a caller who may cancel the exchange; a new one by default.
    """
    result = result or ExchangeResult()
    connection = ExchangeConnection(context.dial, request, context.release)
    try:
        await _check_before(request, demands, context, result)
        result.waiting_for = WaitingFor.CONNECTION
        await connection.open()
        result.peer = connection.peer
        result.waiting_for = WaitingFor.RESPONSE
        started = context.now()
        response = result.response = await connection.exchange(body)
        result.peer = connection.peer
        statement = await _verified_statement(connection, response, demands, context, result)
        if statement is not None and demands.validate:
            result.phase, result.waiting_for = Phase.RECEIPT, WaitingFor.RECEIPT
            check_level(demands.level, named_level(response.head))
        if statement is not None and demands.needs_receipt:
            seen = observed_exchange(request, response, body.seen(), result.peer, started)
            await _verify_receipt(connection, response, statement, demands, context, result, seen)
    except SvcError as error:
        result.error = error
        if isinstance(error, ServerUnexpected) and result.peer is None:
            result.phase = Phase.STATEMENT
        elif isinstance(error, ExchangeFailed | TransportError | WorkloadError):
            # An artifact that could not be requested is an error of the network, a wrong one is not.
            result.phase = Phase.NETWORK
    finally:
        connection.close()
    return result


async def _check_before(request: Request, demands: Demands, context: ExchangeContext, result: ExchangeResult) -> None:
    """Fail before anything is sent where no response could pass."""
    if not demands.validate:
        return
    if not request.target.secure:
        result.phase = Phase.STATEMENT
        raise StatementRefused("transport_unbound")
    await context.trust()


async def _verified_statement(
    connection: ExchangeConnection,
    response: Response,
    demands: Demands,
    context: ExchangeContext,
    result: ExchangeResult,
) -> StatementEvidence | None:
    result.phase, result.waiting_for = Phase.STATEMENT, WaitingFor.STATEMENT
    identifier = None if NO_STATEMENT in demands.faults else named_statement(response.head)
    if identifier is None:
        if demands.validate:
            raise StatementMissing
        return None
    trust = await context.trust()
    envelope = connection.known_statement(identifier) or await _fetch_statement(connection, identifier)
    statement = check_statement(envelope, identifier, demands=demands, trust=trust, peer=result.peer, now=context.now())
    connection.remember_statement(identifier, envelope)
    debug_log.verified("statement", statement)
    result.statement, result.statement_envelope = statement, envelope
    return statement


async def _verify_receipt(
    connection: ExchangeConnection,
    response: Response,
    statement: StatementEvidence,
    demands: Demands,
    context: ExchangeContext,
    result: ExchangeResult,
    seen: ObservedExchange,
) -> None:
    path = named_receipt_path(response.head, connection.request.nonce)
    artifact = await _fetch_receipt(connection, path, context.clock)
    trust = await context.trust()
    receipt = verify_receipt(
        artifact,
        statement=statement,
        profile=demands.profile,
        anchors=trust.anchors,
        now=context.now(),
        seen=seen,
        batches=trust.batches,
    )
    debug_log.verified("receipt", receipt)
    result.receipt, result.receipt_artifact = receipt, artifact


async def _fetch_statement(connection: ExchangeConnection, identifier: str) -> bytes:
    fetched = await connection.fetch(statement_path(identifier))
    if fetched.head.status != 200:
        raise StatementRefused("fetch_failed", artifact="workload statement", status=fetched.head.status)
    return fetched.body


async def _fetch_receipt(connection: ExchangeConnection, path: str, clock: IReactorTime) -> bytes:
    """Fetch the receipt, and wait for it while it is pending."""
    deadline = clock.seconds() + PENDING
    while True:
        fetched = await connection.fetch(path)
        pause = pending_pause(fetched.head)
        if pause is None:
            return fetched.body
        if clock.seconds() + pause > deadline:
            raise ReceiptRefused("receipt_pending", seconds=int(PENDING))
        await deferLater(clock, pause)
