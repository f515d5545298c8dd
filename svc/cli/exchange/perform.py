"""
``svc curl`` from a plan to an exit status.

Owns the sequence: check what can be checked before anything is sent, carry out the exchange, save evidence, print. The
exchange itself is :mod:`svc.cli.exchange.conduct`.
"""

from __future__ import annotations

from typing import Final

from svc.cli.errors import CommandFailed
from svc.cli.exchange.conduct import Means, Outcome, Phase, conduct
from svc.cli.exchange.engine import Engine
from svc.cli.exchange.errors import MaxTimeExceeded, StillWaiting
from svc.cli.exchange.plan import CurlPlan
from svc.cli.exchange.presentation import present_answer, present_json, present_notes, present_reports
from svc.cli.exchange.problem import Problem, explained_failure, problem_of, status_text
from svc.cli.exchange.receivers import KeepingReceiver, PassingReceiver
from svc.cli.exchange.saving import evidence_of, refuse_unwritable, save_evidence
from svc.cli.exchange.spool import Spool
from svc.cli.globals import Invocation
from svc.errors import SvcError

#: The detailed exit status for an answer of 400 and above that passed the verification.
_HTTP_ERROR: Final = 4


def perform(plan: CurlPlan, invocation: Invocation) -> int:
    """
    Carry out ``svc curl``.

    Args:
        plan: what to do.
        invocation: the surroundings.

    Returns:
        The exit status of success: 0, or 4 for an HTTP error with detailed exit codes.

    Raises:
        CommandFailed: with the error and the exit status.
        SvcError: what went wrong before or beside the exchange.
    """
    if plan.save_evidence is not None:
        refuse_unwritable(plan.save_evidence)
    spool = Spool(plan.max_body)
    try:
        outcome = _exchange(plan, invocation, spool)
        return _finish(plan, invocation, outcome, spool)
    finally:
        spool.close()


def _exchange(plan: CurlPlan, invocation: Invocation, spool: Spool) -> Outcome:
    receiver: KeepingReceiver | PassingReceiver = KeepingReceiver(spool)
    if not plan.keeps_answer_back:
        showing = plan.showing
        receiver = PassingReceiver(invocation.console, show_headers=showing.headers, silent=showing.silent)

    outcome = Outcome()

    async def work(means: Means) -> Outcome:
        return await conduct(plan.request, plan.demands, means, receiver, outcome)

    try:
        return _engine(invocation).run(plan, invocation, work)
    except MaxTimeExceeded as error:
        outcome.phase = Phase.NETWORK
        outcome.error = StillWaiting(**error.evidence, missing=outcome.step.value)
        return outcome
    except SvcError as error:
        return Outcome(error=error)


def _engine(invocation: Invocation) -> Engine:
    if invocation.engine is not None:
        return invocation.engine
    from svc.cli.exchange.reactor import ReactorEngine

    return ReactorEngine()


def _finish(plan: CurlPlan, invocation: Invocation, outcome: Outcome, spool: Spool) -> int:
    console = invocation.console
    problem = problem_of(outcome, spool)
    if outcome.error is None and plan.save_evidence is not None:
        evidence = evidence_of(plan.request, outcome, spool)
        if evidence is not None:
            save_evidence(plan.save_evidence, evidence)
    present_notes(plan, outcome, console)
    present_reports(plan, outcome, console, spool if plan.keeps_answer_back else None)
    if plan.showing.json:
        present_json(plan, outcome, console, spool, problem)
    elif outcome.error is None and plan.keeps_answer_back:
        present_answer(plan, outcome, console, spool)
    error = explained_failure(outcome, problem)
    if error is not None:
        console.flush()
        status = outcome.phase.value if plan.detailed_exit_codes else 1
        raise CommandFailed(error, status, _remarks(plan, outcome, problem)) from error
    answer = outcome.answer
    return _HTTP_ERROR if plan.detailed_exit_codes and answer is not None and answer.head.status >= 400 else 0


def _remarks(plan: CurlPlan, outcome: Outcome, problem: Problem | None) -> tuple[str, ...]:
    """Name the status of an answer that is not shown: it may be the very reason why nothing could be verified."""
    if outcome.answer is None or not plan.demands.validate or outcome.phase is Phase.NETWORK:
        return ()
    if problem is not None and outcome.peer is not None:
        return (f"that cause is an unverified claim of {outcome.peer.svid.spiffe_id}, the peer that TLS verified",)
    head = outcome.answer.head
    status = status_text(head.status, head.phrase.decode("latin-1"))
    return (f"the answer, {status}, is not shown because it was not verified",)
