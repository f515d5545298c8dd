"""``svc receipts export``: evidence files, one for each receipt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from svc.cli.errors import CommandFailed, UsageRefused
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.output import Console
from svc.cli.receipts.errors import RecordError
from svc.cli.receipts.listing import SummaryList, run_source
from svc.cli.receipts.plan import ReceiptSource, SourcePlan, read_filters
from svc.client.errors import EvidenceExists, EvidenceNotSaved, ExchangeFailed
from svc.client.evidence import save_evidence
from svc.envelope.errors import detail_reason
from svc.errors import SvcError, printable
from svc.folders import make_folder
from svc.notary.evidence import MAX_EVIDENCE, EvidenceFile
from svc.notary.level import Level
from svc.store.records import ReceiptQuery
from svc.transport.errors import TransportError

_FILTERS = ("since", "until", "client", "path", "topic", "status", "outcome", "limit")


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """
    The parsed flags of one ``svc receipts export``.

    Args:
        key: the one receipt that is wanted; empty where filters select.
        output: the folder, or for one receipt its file.
        limit: the most receipts; None without a limit.
    """

    key: str
    source: SourcePlan
    query: ReceiptQuery
    limit: int | None
    output: str

    @classmethod
    def read(
        cls,
        words: tuple[str, ...],
        values: Mapping[str, Any],
        options: GlobalOptions,
        environ: Mapping[str, str],
        now: datetime,
    ) -> ExportPlan:
        """Check and parse the flags of the command, given by name."""
        if not values["output"]:
            raise UsageRefused("--output says where the evidence files go", "give --output FOLDER")
        filtered = [name for name in _FILTERS if values[name] is not None]
        if words and filtered:
            raise UsageRefused(f"an ID names one receipt, and --{filtered[0]} selects among all", "give one of them")
        if values["limit"] is not None and values["limit"] < 1:
            raise UsageRefused(f'--limit does not accept "{values["limit"]}"', "expected: a number from 1 on")
        source = SourcePlan.read(values, options, environ)
        query = replace(read_filters(values, now), level=Level.SIGN_REQUEST.value)
        return cls("".join(words), source, query, values["limit"], values["output"])


@dataclass
class ExportResult:
    """What became of the receipts."""

    written: int = 0
    present: int = 0
    failed: int = 0

    @property
    def all(self) -> int:
        return self.written + self.present + self.failed


def run_export(plan: ExportPlan, invocation: Invocation) -> int:
    """Carry out ``svc receipts export``; returns the exit status 0, else raises an error."""
    console, result = invocation.console, ExportResult()

    async def one(source: ReceiptSource) -> str:
        folder = os.path.isdir(plan.output) or plan.output.endswith("/")
        name, evidence = await _evidence(source, plan.key)
        path = os.path.join(_folder(plan.output), f"{name}.json") if folder else plan.output
        _count(_saved(path, evidence), result)
        return path

    async def many(source: ReceiptSource) -> str:
        folder = _folder(plan.output)
        found = SummaryList(source, plan.query, plan.limit)
        async for page in found.pages():
            for summary in page:
                await _export(source, str(summary.get("id")), folder, result, console)
        if not result.all:
            console.notice(source.nothing)
        return folder

    place = run_source(plan.source, invocation, one if plan.key else many)
    present = f" ({result.present} {'was' if result.present == 1 else 'were'} there already)" if result.present else ""
    count = result.written + result.present
    console.write_text(f"exported {count} receipt{'' if count == 1 else 's'} to {place}{present}\n")
    if result.failed:
        console.flush()
        raise CommandFailed(RecordError("not_exported", count=result.failed, all=result.all))
    return 0


async def _export(source: ReceiptSource, name: str, folder: str, result: ExportResult, console: Console) -> None:
    """Export one of several: what is wrong with it alone is reported, and the next follows."""
    try:
        # The file is named after the identifier that was computed: a proxy may list any text in its place.
        found, evidence = await _evidence(source, name)
        _count(_saved(os.path.join(folder, f"{found}.json"), evidence), result)
    except (ExchangeFailed, TransportError):
        # The proxy is lost, and with it all that follow.
        raise
    except SvcError as error:
        result.failed += 1
        console.notice(f"{printable(name, 64)} is not exported: {error}", reason=detail_reason(error), hint=error.hint)


async def _evidence(source: ReceiptSource, key: str) -> tuple[str, EvidenceFile]:
    record = await source.record(key)
    return record.id, record.evidence()


def _folder(path: str) -> str:
    """Create the folder where it is absent, 0700: evidence has the salts of what was redacted."""
    try:
        make_folder(path)
    except OSError as error:
        raise EvidenceNotSaved(path=path, detail=(error.strerror or str(error)).lower()) from error
    return path


def _saved(path: str, evidence: EvidenceFile) -> bool:
    """Write a file; returns False where it is there with the same content already."""
    try:
        save_evidence(path, evidence)
    except EvidenceExists:
        if not _same(path, evidence.serialize()):
            raise
        return False
    return True


def _same(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_EVIDENCE + 1) == content
    except OSError:
        return False


def _count(written: bool, result: ExportResult) -> None:
    if written:
        result.written += 1
    else:
        result.present += 1
