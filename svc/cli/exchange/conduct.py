"""
One exchange from the first octet to the verdict, in the order that ``svc curl`` promises.

Owns that order: trust, connection, request, answer kept back, statement, level, receipt. What the outside world gives
(trust, connections, time) is an argument, so that the whole runs in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IReactorTime

from svc.cli.exchange.artifacts import fetch_receipt, fetch_statement, named_level, named_statement, receipt_place
from svc.cli.exchange.channel import Answer
from svc.cli.exchange.demands import Demands
from svc.cli.exchange.errors import NetworkError
from svc.cli.exchange.faults import NO_STATEMENT
from svc.cli.exchange.judgement import SeenAnswer, Trust, judge_receipt, judge_statement, own_view
from svc.cli.exchange.line import Dialer, Line
from svc.cli.exchange.request import Request
from svc.errors import SvcError
from svc.notary.exchange import BodySeen
from svc.notary.level import check_level
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.refusals import IdentityUnexpected, StatementMissing, TransportUnbound
from svc.notary.statement import StatementEvidence
from svc.transport.errors import TransportError
from svc.wire.http1 import ResponseHead
from svc.workload.errors import WorkloadError

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence


class Phase(Enum):
    """How far an exchange came; the value is the exit status with ``--detailed-exit-codes`` where it ended there."""

    NETWORK = 1
    STATEMENT = 2
    RECEIPT = 3


class Step(Enum):
    """What an exchange is doing; the value says what is still missing."""

    TRUST = "the Workload API had not given trust bundles"
    CONNECTION = "there was no verified connection to the server"
    ANSWER = "the server had not answered in full"
    STATEMENT = "the workload statement had not come"
    RECEIPT = "the receipt had not come"


class Receiver(Protocol):
    """Takes the answer: keeps it back, or passes it on at once."""

    def got_head(self, head: ResponseHead) -> None:
        """The head is here."""

    def got_body(self, data: bytes) -> None:
        """A piece of the body is here."""

    def seen(self) -> BodySeen:
        """Size and digest of the body, once it is whole."""


class Means(Protocol):
    """What an exchange needs of the outside world."""

    #: Keeps the time for waits.
    clock: IReactorTime
    #: Tells the time, aware.
    now: Callable[[], datetime]

    async def trust(self) -> Trust:
        """Give the local trust; raises where the Workload API gives none."""

    def dialer(self) -> Dialer:
        """Give what opens connections to the server."""


@dataclass(slots=True)
class Outcome:
    """
    What an exchange came to.

    Args:
        phase: how far it came.
        error: what ended it; None where everything that was demanded holds.
        answer: head and trailers, once the answer is whole.
        peer: the verified other end of the exchange; None without TLS or before a connection.
        statement: the verified statement.
        statement_envelope: its octets.
        receipt: the verified receipt.
        receipt_envelope: its octets.
        step: what it is doing, or did last.
    """

    phase: Phase = Phase.NETWORK
    error: SvcError | None = None
    answer: Answer | None = None
    peer: PeerEvidence | None = None
    statement: StatementEvidence | None = None
    statement_envelope: bytes | None = None
    receipt: ReceiptEvidence | None = None
    receipt_envelope: bytes | None = None
    step: Step = Step.TRUST


async def conduct(
    request: Request, demands: Demands, means: Means, receiver: Receiver, outcome: Outcome | None = None
) -> Outcome:
    """
    Carry out an exchange and judge it.

    Args:
        request: what is sent.
        demands: what must hold.
        means: trust, connections and time.
        receiver: takes the answer.
        outcome: filled in, for a caller who may cut the exchange short; a new one by default.

    Returns:
        The outcome, with the error where something failed; errors of the program itself are raised.
    """
    outcome = outcome or Outcome()
    line = Line(means.dialer(), request)
    try:
        if demands.validate and not request.target.secure:
            # No answer could pass, so nothing is sent that might have an effect.
            outcome.phase = Phase.STATEMENT
            raise TransportUnbound
        if demands.validate:
            # Whatever is missing here shows before anything is sent.
            await means.trust()
        outcome.step = Step.CONNECTION
        await _opened(line, outcome)
        outcome.step = Step.ANSWER
        started = means.now()
        outcome.answer = await line.exchange(receiver)
        await _statement(line, demands, means, outcome)
        if demands.validate:
            await _receipt(line, request, demands, means, receiver, outcome, started)
    except SvcError as error:
        outcome.error = error
    finally:
        line.close()
    return outcome


async def _opened(line: Line, outcome: Outcome) -> None:
    try:
        await line.open()
    except SvcError as error:
        if error.reason == IdentityUnexpected.reason:
            outcome.phase = Phase.STATEMENT
        raise
    finally:
        outcome.peer = line.peer


async def _statement(line: Line, demands: Demands, means: Means, outcome: Outcome) -> None:
    answer = outcome.answer
    if answer is None:
        return
    outcome.phase, outcome.step = Phase.STATEMENT, Step.STATEMENT
    identifier = None if NO_STATEMENT in demands.faults else named_statement(answer.head)
    if identifier is None:
        if demands.validate:
            raise StatementMissing
        return
    try:
        trust = await means.trust()
        envelope = await fetch_statement(line, identifier)
    except SvcError as error:
        _back_to_network(error, outcome)
        raise
    outcome.statement = judge_statement(
        envelope, identifier, demands=demands, trust=trust, peer=outcome.peer, now=means.now()
    )
    outcome.statement_envelope = envelope


async def _receipt(
    line: Line,
    request: Request,
    demands: Demands,
    means: Means,
    receiver: Receiver,
    outcome: Outcome,
    started: datetime,
) -> None:
    answer, statement = outcome.answer, outcome.statement
    if answer is None or statement is None:
        return
    outcome.phase, outcome.step = Phase.RECEIPT, Step.RECEIPT
    check_level(demands.level, named_level(answer.head))
    if not demands.wants_receipt:
        return
    try:
        envelope = await fetch_receipt(line, receipt_place(answer.head, request.nonce), means.clock)
    except SvcError as error:
        _back_to_network(error, outcome)
        raise
    seen = SeenAnswer(answer.head.status, answer.head.fields, answer.trailers, receiver.seen())
    outcome.receipt = judge_receipt(
        envelope,
        statement=statement,
        demands=demands,
        trust=await means.trust(),
        seen=own_view(request, seen, outcome.peer, started),
        now=means.now(),
    )
    outcome.receipt_envelope = envelope


def _back_to_network(error: SvcError, outcome: Outcome) -> None:
    """What kept us from asking is a matter of the network; a wrong answer is one of the artefact."""
    if isinstance(error, NetworkError | TransportError | WorkloadError):
        outcome.phase = Phase.NETWORK
