"""
The output of ``svc curl``.

Owns the order and the streams: reports, notices and warnings go to standard error; head, body or the one JSON object to
standard output, and nothing of a response that failed the verification.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final

from svc.cli.curl.body import BufferedBody, head_text
from svc.cli.curl.plan import CurlPlan
from svc.cli.output import Console
from svc.client.exchange import ExchangeResult
from svc.client.problem import Problem, claim_remark, problem_notice
from svc.notary.evidence import VerificationResult
from svc.reports.artifact_reports import receipt_report, statement_report
from svc.strictjson import b64u_encode
from svc.wire.fields import Field

#: Bodies up to this size are text in the JSON object where they are UTF-8; others are base64.
_TEXT_LIMIT: Final = 1024 * 1024
#: The most octets of a body that a report shows.
_REPORT_LIMIT: Final = 4096
_PLACEHOLDER: Final = "\x00body\x00"
#: A multiple of three, so that pieces of base64 join without padding.
_BASE64_PIECE: Final = 3 * 64 * 1024


def print_notes(plan: CurlPlan, result: ExchangeResult, console: Console, problem: Problem | None = None) -> None:
    """Print who answered, whether it was the proxy itself, and the warnings."""
    peer = result.peer
    if problem is not None and result.error is None:
        sentence, hint = problem_notice(result, problem)
        console.notice(sentence, reason=problem.code, hint=hint, remarks=[claim_remark(result)])
    if plan.demands.profile.warning:
        console.warn(plan.demands.profile.warning)
    if peer is None:
        if result.statement is not None:
            console.warn("the statement is not bound to the connection, which is plain http")
        return
    if plan.output.headers or plan.options.verbosity >= 0:
        console.notice(f"verified server identity: {peer.svid.spiffe_id}")
    if not plan.demands.expected:
        console.warn(f"server identity not pinned: {peer.svid.spiffe_id}")
    if not peer.post_quantum:
        console.warn(f"not post-quantum: the connection uses {peer.group}")


def print_reports(plan: CurlPlan, result: ExchangeResult, console: Console, body: BufferedBody | None) -> None:
    """Print the reports that were asked for, of what was verified; the body is None where it was streamed."""
    if plan.output.workload and result.statement is not None:
        console.write_stderr(str(statement_report(result.statement)).rstrip("\n"))
    if plan.output.receipt and result.receipt is not None:
        beginning = b"" if body is None else body.beginning(_REPORT_LIMIT)
        report = receipt_report(result.receipt, request_body=plan.request.body, response_body=beginning)
        console.write_stderr(str(report).rstrip("\n"))


def print_response(plan: CurlPlan, result: ExchangeResult, console: Console, body: BufferedBody) -> None:
    """Print a response that was kept back and has passed."""
    if result.response is None:
        return
    if plan.output.headers:
        console.write(head_text(result.response.head, escape=console.terminal))
    if not plan.output.silent:
        for piece in body.pieces():
            console.write(piece)


def print_json(
    plan: CurlPlan, result: ExchangeResult, console: Console, body: BufferedBody, problem: Problem | None = None
) -> None:
    """Print the one object of ``-o json``; it has a member ``problem`` only where a problem is given."""
    response = _response(plan, result, body) if result.error is None else None
    document: dict[str, object] = {
        "response": response,
        "workload": _workload(result),
        "receipt": _receipt(result),
        "verification": _verification(plan, result),
    }
    if problem is not None:
        document["problem"] = problem.to_json()
    text = json.dumps(document)
    if response is not None and not plan.output.silent:
        # The body comes before everything that a signer may have written, so the first placeholder is its own.
        before, _placeholder, text = text.partition(json.dumps(_PLACEHOLDER))
        console.write(before.encode("ascii"))
        for piece in _body_text(body):
            console.write(piece)
    console.write(text.encode("ascii") + b"\n")


def _verification(plan: CurlPlan, result: ExchangeResult) -> dict[str, object]:
    """``ok`` is null where nothing failed and nothing was verified, which only ``--validate=false`` allows."""
    found = VerificationResult(result.statement, result.receipt, result.error).to_json()
    peer = result.peer
    if result.error is None and result.statement is None:
        found["ok"] = None
    if peer is not None and not peer.post_quantum:
        found["postQuantum"] = False
    found["profile"] = plan.demands.profile.value
    found["serverIdentity"] = None if peer is None else str(peer.svid.spiffe_id)
    found["identityPinned"] = bool(plan.demands.expected)
    found["bound"] = result.statement is not None and result.statement.bound
    found["tls"] = None
    if peer is not None:
        found["tls"] = {
            "version": peer.tls_version,
            "group": peer.group,
            "cipher": peer.cipher,
            "postQuantum": peer.post_quantum,
        }
    return found


def _response(plan: CurlPlan, result: ExchangeResult, body: BufferedBody) -> dict[str, object] | None:
    response = result.response
    if response is None:
        return None
    seen = body.seen()
    shown: dict[str, object] = {"size": seen.size, "sha-256": b64u_encode(seen.sha256)}
    if not plan.output.silent:
        shown["text" if _is_text(body) else "base64"] = _PLACEHOLDER
    return {
        "version": response.head.version,
        "status": response.head.status,
        "reason": response.head.phrase.decode("latin-1"),
        "headers": _fields(response.head.fields),
        "body": shown,
        "trailers": _fields(response.trailers),
    }


def _fields(fields: list[Field] | tuple[Field, ...]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in fields]


def _workload(result: ExchangeResult) -> dict[str, object] | None:
    statement = result.statement
    if statement is None:
        return None
    return {
        "id": statement.id,
        "spiffeID": str(statement.subject),
        "issuer": str(statement.issuer),
        "selfIssued": statement.self_issued,
        "claims": statement.claims,
    }


def _receipt(result: ExchangeResult) -> dict[str, object] | None:
    receipt = result.receipt
    if receipt is None:
        return None
    return {"id": receipt.id, "issuer": str(receipt.issuer), "claims": receipt.claims}


def _is_text(body: BufferedBody) -> bool:
    if body.size > _TEXT_LIMIT:
        return False
    try:
        b"".join(body.pieces()).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _body_text(body: BufferedBody) -> Iterator[bytes]:
    if _is_text(body):
        yield json.dumps(b"".join(body.pieces()).decode("utf-8")).encode("ascii")
        return
    yield b'"'
    held = b""
    for piece in body.pieces():
        held += piece
        whole = len(held) - len(held) % _BASE64_PIECE
        yield base64.b64encode(held[:whole])
        held = held[whole:]
    yield base64.b64encode(held) + b'"'
