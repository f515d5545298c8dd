"""
``svc curl`` from a plan to an exit status.

Owns the sequence: check what can be checked before anything is sent, carry out the exchange within ``--max-time``, save
evidence, print.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from twisted.internet import defer

from svc.cli.curl.body import BufferedBody, StreamedBody
from svc.cli.curl.plan import CurlPlan
from svc.cli.curl.presentation import print_json, print_notes, print_reports, print_response
from svc.cli.errors import CommandFailed, NetworkError
from svc.cli.globals import Invocation
from svc.client.evidence import check_writable, collect_evidence, save_evidence
from svc.client.exchange import ExchangeContext, ExchangeResult, Phase, run_exchange
from svc.client.problem import MAX_PROBLEM, Problem, claim_remark, explained_error, find_problem, status_text
from svc.errors import SvcError
from svc.notary.evidence import MAX_BODY

#: The detailed exit status for a response of 400 and above that passed the verification.
_HTTP_ERROR: Final = 4


def run_curl(plan: CurlPlan, invocation: Invocation) -> int:
    """
    Carry out ``svc curl``.

    Returns:
        The exit status of success: 0, or 4 for an HTTP error with detailed exit codes.

    Raises:
        CommandFailed: the exchange failed; with its exit status.
        SvcError: something else failed.
    """
    if plan.save_evidence is not None:
        check_writable(plan.save_evidence)
    if not plan.buffers_response:
        streamed = StreamedBody(
            invocation.console, show_headers=plan.output.headers, silent=plan.output.silent, keep=MAX_PROBLEM + 1
        )
        result = _run_exchange(plan, invocation, streamed)
        return _finish(plan, invocation, result, None, find_problem(result, streamed.beginning(MAX_PROBLEM + 1)))
    with closing(BufferedBody(plan.max_body)) as buffered:
        result = _run_exchange(plan, invocation, buffered)
        return _finish(plan, invocation, result, buffered, find_problem(result, buffered.beginning(MAX_PROBLEM + 1)))


def _run_exchange(plan: CurlPlan, invocation: Invocation, body: BufferedBody | StreamedBody) -> ExchangeResult:
    result = ExchangeResult()

    async def work(context: ExchangeContext) -> ExchangeResult:
        exchange = defer.Deferred.fromCoroutine(run_exchange(plan.request, plan.demands, context, body, result))
        if plan.max_time is not None:
            exchange.addTimeout(plan.max_time, context.clock)
        try:
            return await exchange
        except defer.TimeoutError:
            result.phase = Phase.NETWORK
            missing = result.waiting_for.value
            result.error = NetworkError("max_time", seconds=f"{plan.max_time:g}", missing=missing)
            return result

    try:
        if invocation.run_exchange is not None:
            return invocation.run_exchange(work)  # type: ignore[no-any-return]
        from svc.cli.curl.network import run_on_network

        return run_on_network(plan, invocation.console, work)
    except SvcError as error:
        return ExchangeResult(error=error)


def _finish(
    plan: CurlPlan,
    invocation: Invocation,
    result: ExchangeResult,
    buffered: BufferedBody | None,
    problem: Problem | None,
) -> int:
    console = invocation.console
    if result.error is None and plan.save_evidence is not None and buffered is not None:
        whole = b"".join(buffered.pieces()) if buffered.size <= MAX_BODY else None
        evidence = collect_evidence(plan.request, result, whole)
        if evidence is not None:
            save_evidence(plan.save_evidence, evidence)
    print_notes(plan, result, console, problem)
    print_reports(plan, result, console, buffered)
    if plan.output.json and buffered is not None:
        print_json(plan, result, console, buffered, problem if result.error is not None else None)
    elif result.error is None and buffered is not None:
        print_response(plan, result, console, buffered)
    error = explained_error(result, problem)
    if error is not None:
        console.flush()
        status = result.phase.value if plan.detailed_exit_codes else 1
        raise CommandFailed(error, status, _remarks(plan, result, problem)) from error
    response = result.response
    return _HTTP_ERROR if plan.detailed_exit_codes and response is not None and response.head.status >= 400 else 0


def _remarks(plan: CurlPlan, result: ExchangeResult, problem: Problem | None) -> tuple[str, ...]:
    """Name the status of a response that is not shown: it may be the reason why nothing could be verified."""
    if result.response is None or not plan.demands.validate or result.phase is Phase.NETWORK:
        return ()
    if problem is not None:
        return (claim_remark(result),)
    head = result.response.head
    status = status_text(head.status, head.phrase.decode("latin-1"))
    return (f"the answer, {status}, is not shown because it was not verified",)
