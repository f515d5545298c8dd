"""``svc receipts show``: one record, verified where it is signed."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from svc import __version__
from svc.cli.errors import CommandFailed
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.offline import VerifyPlan, json_document, print_page, read_anchors, root_remarks
from svc.cli.output import Console
from svc.cli.receipts.local import run_local
from svc.cli.receipts.plan import ReceiptSource, Record, SourcePlan
from svc.envelope.errors import EnvelopeError, detail_reason
from svc.errors import SvcError
from svc.notary.evidence import TIME_ASSERTED, EvidenceFile, VerificationResult, verify_offline
from svc.notary.verification import Anchors
from svc.reports.artifact_reports import receipt_report, stored_report
from svc.reports.exchange_account import stored_account
from svc.strictjson import JsonRefused, loads_object


@dataclass(frozen=True, slots=True)
class ShowPlan:
    """
    The parsed flags of one ``svc receipts show``.

    Args:
        key: an id, its beginning, a nonce or a ``jti``.
        verify: how a receipt is verified.
    """

    key: str
    source: SourcePlan
    verify: VerifyPlan

    @classmethod
    def read(cls, key: str, values: Mapping[str, Any], options: GlobalOptions, environ: Mapping[str, str]) -> ShowPlan:
        """Check and parse the flags of the command, given by name."""
        source = SourcePlan.read(values, options, environ)
        reports = {"print_workload": False, "print_receipt": True}
        verify = VerifyPlan.read(f"receipt {key}", {**values, **reports}, source.options, environ)
        if verify.pq_bundle is None and not verify.trust_bundles:
            verify = replace(verify, pq_bundle=source.pq_bundle)
        return cls(key, source, verify)


def run_show(plan: ShowPlan, invocation: Invocation, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """Carry out ``svc receipts show``; returns the exit status 0, else raises ``CommandFailed`` or another error."""
    moment = now()
    record, read = _fetched(plan, invocation)
    if record.receipt is None:
        _print_unsigned(record, plan, invocation.console)
        return 0
    evidence: EvidenceFile | None = None
    try:
        evidence = record.evidence()
        verification = verify_offline(
            evidence,
            profile=plan.verify.profile,
            anchors=read(),
            now=moment,
            issuers=plan.verify.issuers,
            expectations=plan.verify.expected,
            require_trusted_time=plan.verify.require_trusted_time,
        )
    except SvcError as error:
        _print(VerificationResult(error=error), record, evidence, plan, invocation.console, moment)
        raise CommandFailed(error, remarks=root_remarks(plan.verify, error)) from error
    if plan.verify.profile.warning:
        invocation.console.warn(plan.verify.profile.warning)
    invocation.console.warn(TIME_ASSERTED)
    _print(verification, record, evidence, plan, invocation.console, moment)
    return 0


def _fetched(plan: ShowPlan, invocation: Invocation) -> tuple[Record, Callable[[], Anchors]]:
    """The record, and a function that reads the roots."""
    if plan.source.database:
        record = run_local(plan.source.database, lambda source: source.record(plan.key))
        return record, lambda: read_anchors(plan.verify, invocation)
    from svc.cli.receipts.remote import run_remote

    async def work(
        source: ReceiptSource, workload_anchors: Callable[[], Coroutine[Any, Any, Anchors]]
    ) -> tuple[Record, Anchors | None]:
        found = await source.record(plan.key)
        return found, None if plan.verify.trust_bundles else await workload_anchors()

    record, anchors = run_remote(plan.source, invocation.console, plan.verify.profile, plan.verify.pq_bundle, work)
    return record, lambda: read_anchors(plan.verify, invocation) if anchors is None else anchors


def _print_unsigned(record: Record, plan: ShowPlan, console: Console) -> None:
    if plan.verify.html:
        from svc.reports.html import html_page

        account = stored_account(_claims(record), record.id, signed=False)
        console.write_text(html_page([account], made_by=f"svc {__version__}"))
    elif plan.verify.json:
        _print_json(record, {"workload": None, "receipt": None, "verification": None}, console)
    else:
        console.write_text(str(stored_report(_claims(record), record.id, signed=False)))


def _print(
    verification: VerificationResult,
    record: Record,
    evidence: EvidenceFile | None,
    plan: ShowPlan,
    console: Console,
    moment: datetime,
) -> None:
    error = verification.error
    if plan.verify.json:
        _print_json(record, json_document(verification, plan.verify), console)
    elif plan.verify.html:
        if evidence is not None and (error is None or isinstance(error, EnvelopeError)):
            print_page(verification, evidence.serialize(), evidence, plan.verify, console, moment)
    elif error is not None:
        defect = f"{error} ({detail_reason(error)})"
        console.write_text(str(stored_report(_claims(record), record.id, signed=True, defect=defect)))
    elif verification.receipt is not None:
        console.write_text(str(receipt_report(verification.receipt, time_asserted=True)))


def _print_json(record: Record, document: Mapping[str, object], console: Console) -> None:
    shown = {"id": record.id, "signed": record.receipt is not None, "claims": _claims(record)}
    console.write_text(json.dumps({"record": shown, **document}) + "\n")


def _claims(record: Record) -> Mapping[str, object]:
    try:
        return loads_object(record.payload)
    except JsonRefused:  # the id says that these are the octets that were stored; their defect is that of the signer
        return {}
