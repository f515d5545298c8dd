"""
What is printed of artifacts: reports on standard error, with ``-o json`` also one object a line on standard output.

Owns what is said of an artifact that is not verified: without ``--verify`` its report begins with ``UNVERIFIED``; one
that fails the verification is a notice with the reason, and nothing of its content is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from svc.cli.curl.mqtt.output import PacedOutput
from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.curl.mqtt.verification import Artifact, Verified
from svc.cli.errors import CliError, CommandFailed
from svc.cli.output import Console
from svc.envelope.errors import EnvelopeError, detail_reason
from svc.envelope.ids import receipt_id, statement_id
from svc.errors import SvcError
from svc.notary.evidence import VerificationResult
from svc.reports.artifact_reports import receipt_report, statement_report, stored_report, unverified_statement_report
from svc.reports.report import Report

#: The exit status with detailed exit codes where a statement, or only receipts, failed the verification.
_STATEMENT_FAILED, _RECEIPT_FAILED = 2, 3


class ArtifactPrinter:
    """Prints the artifacts that were asked for, and counts those that failed the verification."""

    def __init__(self, plan: MqttPlan, console: Console, reactor: Any) -> None:
        self._plan = plan
        self._console = console
        self._reports = PacedOutput(console.stderr, reactor)
        self._data = PacedOutput(console.stdout, reactor)
        self._printed = 0
        self._failed: list[Artifact] = []

    async def print_unverified(self, artifact: Artifact) -> None:
        """Print an artifact as its publisher wrote it."""
        if not self._wanted(artifact):
            return
        try:
            payload, claims = artifact.read()
        except EnvelopeError as error:
            await self._notice(artifact, error, "cannot be read")
            await self._print_json(artifact, None, None, VerificationResult(error=error))
            return
        identifier = (statement_id if artifact.is_statement else receipt_id)(payload)
        if artifact.is_statement:
            report = unverified_statement_report(claims, identifier)
        else:
            report = stored_report(claims, identifier, signed=True)
        await self._print_report(replace(report, title=f"UNVERIFIED {report.title}"))
        await self._print_json(artifact, identifier, claims, None)

    async def print_verified(self, verified: Verified) -> None:
        """Print an artifact with the result of its verification."""
        artifact, result = verified.artifact, verified.result
        if not self._wanted(artifact):
            return
        self._printed += 1
        if isinstance(result.error, SvcError):
            self._failed.append(artifact)
            await self._notice(artifact, result.error, "is not verified")
            await self._print_json(artifact, None, None, result)
        elif result.receipt is not None:
            await self._print_report(receipt_report(result.receipt))
            await self._print_json(artifact, result.receipt.id, result.receipt.claims, result)
        elif result.statement is not None:
            await self._print_report(statement_report(result.statement))
            await self._print_json(artifact, result.statement.id, result.statement.claims, result)

    async def print_waiting(self, artifact: Artifact) -> None:
        """Say that the verification of a receipt waits for its statement."""
        if self._wanted(artifact):
            await self._reports.ready()
            self._console.notice(f"the {artifact} waits for its statement")

    def check_failures(self) -> None:
        """Raise ``CommandFailed`` where an artifact that was asked for failed the verification."""
        if not self._failed:
            return
        error = CliError("artifacts_refused", failed=len(self._failed), total=self._printed)
        status = _STATEMENT_FAILED if any(each.is_statement for each in self._failed) else _RECEIPT_FAILED
        raise CommandFailed(error, status if self._plan.detailed_exit_codes else 1)

    def _wanted(self, artifact: Artifact) -> bool:
        return self._plan.workload if artifact.is_statement else self._plan.receipt

    async def _notice(self, artifact: Artifact, error: SvcError, verb: str) -> None:
        await self._reports.ready()
        self._console.notice(f"the {artifact} {verb}: {error}", reason=detail_reason(error), hint=error.hint)

    async def _print_report(self, report: Report) -> None:
        await self._reports.write(str(report).encode("utf-8", "backslashreplace"))

    async def _print_json(
        self,
        artifact: Artifact,
        identifier: str | None,
        claims: Mapping[str, object] | None,
        result: VerificationResult | None,
    ) -> None:
        if not self._plan.json:
            return
        shown = None if claims is None else {"id": identifier, "claims": claims}
        verification: dict[str, object] = {"ok": None, "detail_reason": None, "postQuantum": False}
        if result is not None:
            verification = result.to_json()
        if self._plan.verify:
            verification["profile"] = self._plan.demands.profile.value
        document = {
            "topic": artifact.topic,
            "workload": shown if artifact.is_statement else None,
            "receipt": None if artifact.is_statement else shown,
            "verification": verification,
        }
        await self._data.write(json.dumps(document).encode("ascii") + b"\n")
