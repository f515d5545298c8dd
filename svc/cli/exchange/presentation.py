"""
What a person or a program gets to see of an exchange.

Owns the order and the streams: reports, notices and warnings to standard error; head, body or the one JSON object to
standard output, and of an answer that did not pass nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final

from svc.cli.exchange.conduct import Outcome
from svc.cli.exchange.plan import CurlPlan
from svc.cli.exchange.problem import Problem
from svc.cli.exchange.receivers import head_text
from svc.cli.exchange.spool import Spool
from svc.cli.output import Console
from svc.notary.evidence import Verification
from svc.notary.report import receipt_report, statement_report
from svc.strictjson import b64u_encode
from svc.wire.fields import Field

#: Bodies up to this size become text in the JSON object where they are UTF-8; others base64.
_TEXT_LIMIT: Final = 1024 * 1024
#: What reports may need of a body.
_REPORT_LIMIT: Final = 4096
_PLACE: Final = "\x00body\x00"
#: A multiple of three, so that pieces of base64 join without padding.
_BASE64_PIECE: Final = 3 * 64 * 1024


def present_notes(plan: CurlPlan, outcome: Outcome, console: Console) -> None:
    """
    Say who answered, and warn.

    Args:
        plan: what was planned.
        outcome: what it came to.
        console: the standard streams.
    """
    peer = outcome.peer
    if plan.demands.profile.warning:
        console.warn(plan.demands.profile.warning)
    if peer is None:
        if outcome.statement is not None:
            console.warn("the statement is not bound to the connection, which is plain http")
        return
    if plan.showing.headers or plan.options.verbosity >= 0:
        console.notice(f"verified server identity: {peer.svid.spiffe_id}")
    if not plan.demands.expected:
        console.warn(f"server identity not pinned: {peer.svid.spiffe_id}")
    if not peer.post_quantum:
        console.warn(f"not post-quantum: the connection uses {peer.group}")


def present_reports(plan: CurlPlan, outcome: Outcome, console: Console, spool: Spool | None) -> None:
    """
    Print the reports that were asked for, of what was verified.

    Args:
        plan: what was planned.
        outcome: what it came to.
        console: the standard streams.
        spool: the body of the answer, None where it was passed on.
    """
    if plan.showing.workload and outcome.statement is not None:
        console.tell(str(statement_report(outcome.statement)).rstrip("\n"))
    if plan.showing.receipt and outcome.receipt is not None:
        body = b"" if spool is None else b"".join(spool.pieces(_REPORT_LIMIT))
        report = receipt_report(outcome.receipt, request_body=plan.request.body, response_body=body)
        console.tell(str(report).rstrip("\n"))


def present_answer(plan: CurlPlan, outcome: Outcome, console: Console, spool: Spool) -> None:
    """
    Print an answer that passed.

    Args:
        plan: what was planned.
        outcome: what it came to.
        console: the standard streams.
        spool: the body.
    """
    if outcome.answer is None:
        return
    if plan.showing.headers:
        console.write(head_text(outcome.answer.head, escape=console.terminal))
    if not plan.showing.silent:
        for piece in spool.pieces():
            console.write(piece)


def present_json(
    plan: CurlPlan, outcome: Outcome, console: Console, spool: Spool, problem: Problem | None = None
) -> None:
    """
    Print the one object of ``-o json``; of an answer that did not pass it holds no octet.

    Args:
        plan: what was planned.
        outcome: what it came to.
        console: the standard streams.
        spool: the body.
        problem: why the proxy answered in its application's place, where it says so; the only member that is not there
            always.
    """
    response = _response(plan, outcome, spool) if outcome.error is None else None
    document: dict[str, object] = {
        "response": response,
        "workload": _workload(outcome),
        "receipt": _receipt(outcome),
        "verification": verification_object(plan, outcome),
    }
    if problem is not None:
        document["problem"] = problem.to_json()
    text = json.dumps(document)
    if response is not None and not plan.showing.silent:
        # The body comes before everything that a signer may have written, so the first place is its own.
        before, _place, text = text.partition(json.dumps(_PLACE))
        console.write(before.encode("ascii"))
        for piece in _body_text(spool):
            console.write(piece)
    console.write(text.encode("ascii") + b"\n")


def verification_object(plan: CurlPlan, outcome: Outcome) -> dict[str, object]:
    """
    Make the member ``verification``.

    Args:
        plan: what was planned.
        outcome: what it came to.

    Returns:
        ``ok`` is null where nothing failed and nothing was verified, which only ``--validate=false`` allows.
    """
    verification = Verification(outcome.statement, outcome.receipt, outcome.error)
    found = verification.to_json()
    peer = outcome.peer
    if outcome.error is None and outcome.statement is None:
        found["ok"] = None
    if peer is not None and not peer.post_quantum:
        found["postQuantum"] = False
    found["profile"] = plan.demands.profile.value
    found["serverIdentity"] = None if peer is None else str(peer.svid.spiffe_id)
    found["identityPinned"] = bool(plan.demands.expected)
    found["bound"] = outcome.statement is not None and outcome.statement.bound
    found["tls"] = None
    if peer is not None:
        found["tls"] = {
            "version": peer.tls_version,
            "group": peer.group,
            "cipher": peer.cipher,
            "postQuantum": peer.post_quantum,
        }
    return found


def _response(plan: CurlPlan, outcome: Outcome, spool: Spool) -> dict[str, object] | None:
    answer = outcome.answer
    if answer is None:
        return None
    seen = spool.seen()
    body: dict[str, object] = {"size": seen.size, "sha-256": b64u_encode(seen.sha256)}
    if not plan.showing.silent:
        body["text" if _is_text(spool) else "base64"] = _PLACE
    return {
        "version": answer.head.version,
        "status": answer.head.status,
        "reason": answer.head.phrase.decode("latin-1"),
        "headers": _fields(answer.head.fields),
        "body": body,
        "trailers": _fields(answer.trailers),
    }


def _fields(fields: list[Field] | tuple[Field, ...]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in fields]


def _workload(outcome: Outcome) -> dict[str, object] | None:
    statement = outcome.statement
    if statement is None:
        return None
    return {
        "id": statement.id,
        "spiffeID": str(statement.subject),
        "issuer": str(statement.issuer),
        "selfIssued": statement.self_issued,
        "claims": statement.claims,
    }


def _receipt(outcome: Outcome) -> dict[str, object] | None:
    receipt = outcome.receipt
    if receipt is None:
        return None
    return {"id": receipt.id, "issuer": str(receipt.issuer), "claims": receipt.claims}


def _is_text(spool: Spool) -> bool:
    if spool.size > _TEXT_LIMIT:
        return False
    try:
        b"".join(spool.pieces()).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _body_text(spool: Spool) -> Iterator[bytes]:
    if _is_text(spool):
        yield json.dumps(b"".join(spool.pieces()).decode("utf-8")).encode("ascii")
        return
    yield b'"'
    held = b""
    for piece in spool.pieces():
        held += piece
        whole = len(held) - len(held) % _BASE64_PIECE
        yield base64.b64encode(held[:whole])
        held = held[whole:]
    yield base64.b64encode(held) + b'"'
