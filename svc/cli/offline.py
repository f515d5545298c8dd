"""
``svc verify`` from its flags to an exit status.

Owns where anchors come from: ``--trust-bundle`` and ``--pq-bundle``, or the Workload API where no trust bundle is
given; never the evidence. The verification is :mod:`svc.notary.evidence`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from svc import __version__, naming
from svc.cli.documents import read_file
from svc.cli.errors import CliError, CommandFailed, FileUnreadable, UsageRefused
from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.output import Console
from svc.cli.verification_flags import chosen_profile, parse_identities
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import printed_id
from svc.envelope.profile import Profile
from svc.errors import SvcError, printable
from svc.identity.archive import TYPE as ARCHIVE_TYPE
from svc.identity.bundle import BundleMalformed, BundleSet
from svc.identity.documents import MAX_BUNDLE_OCTETS, load_document
from svc.identity.spiffeid import SpiffeID, TrustDomain, TrustDomainMalformed
from svc.identity.trustbundle import BundleNeedsTrustDomain, parse_bundle_file, parse_pq_bundle_file
from svc.notary.errors import NotaryRefused, SignerChainUntrusted, SignerTrustDomainUnknown
from svc.notary.evidence import MAX_EVIDENCE, TIME_ASSERTED, EvidenceFile, VerificationResult, verify_offline
from svc.notary.verification import Anchors
from svc.reports.artifact_reports import receipt_report, statement_report
from svc.reports.checks import EvidenceSource
from svc.reports.exchange_account import verification_account
from svc.workload.address import socket_path
from svc.workload.files import read_trusted


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """
    The parsed flags of one ``svc verify``.

    Args:
        path: the evidence file.
        expected: the accepted identities; none means any.
        trust_domain: whose roots a bundle file holds that does not name a trust domain.
        require_trusted_time: whether a time that only the signer asserts is refused.
    """

    path: str
    options: GlobalOptions
    profile: Profile
    expected: tuple[SpiffeID, ...]
    issuers: tuple[SpiffeID, ...]
    trust_bundles: tuple[str, ...]
    trust_domain: TrustDomain | None
    pq_bundle: str | None
    require_trusted_time: bool
    print_workload: bool
    print_receipt: bool
    json: bool
    html: bool

    @classmethod
    def read(
        cls, path: str, values: Mapping[str, Any], options: GlobalOptions, environ: Mapping[str, str]
    ) -> VerifyPlan:
        """Check and parse the flags of the command, given by name."""
        if values["trust_domain"] is not None and not values["trust_bundle"]:
            raise UsageRefused("--trust-domain says whose roots a file holds", "give --trust-bundle FILE as well")
        if values["html"] and values["output"] == "json":
            raise UsageRefused("--html and -o json both say what is written to standard output", "give one of them")
        return cls(
            path=path,
            options=options,
            profile=chosen_profile(values["profile"], environ),
            expected=parse_identities(values["expect_id"], naming.ENV_EXPECT_ID, environ, "--expect-id"),
            issuers=parse_identities(values["issuer"], naming.ENV_ISSUERS, environ, "--issuer"),
            trust_bundles=tuple(values["trust_bundle"]),
            trust_domain=_trust_domain(values["trust_domain"]),
            pq_bundle=values["pq_bundle"] or environ.get(naming.ENV_PQ_BUNDLE) or None,
            require_trusted_time=values["require_trusted_time"],
            print_workload=values["print_workload"],
            print_receipt=values["print_receipt"],
            json=values["output"] == "json",
            html=values["html"],
        )


def run_verify(
    plan: VerifyPlan, invocation: Invocation, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> int:
    """Carry out ``svc verify``; returns the exit status 0, else raises ``CommandFailed`` or the error of a file."""
    console, moment = invocation.console, now()
    evidence = octets = None
    try:
        octets = read_file(plan.path, MAX_EVIDENCE)
        evidence = EvidenceFile.parse(octets)
        verification = verify_offline(
            evidence,
            profile=plan.profile,
            anchors=read_anchors(plan, invocation),
            now=moment,
            issuers=plan.issuers,
            expectations=plan.expected,
            require_trusted_time=plan.require_trusted_time,
        )
    except SvcError as error:
        verification = VerificationResult(error=error)
        if plan.json:
            _print_json(verification, plan, console)
        # Of a file that could not be read, or could not be verified for lack of a bundle file, there is no page.
        if plan.html and octets is not None and isinstance(error, EnvelopeError):
            print_page(verification, octets, evidence, plan, console, moment)
        raise CommandFailed(error, remarks=root_remarks(plan, error)) from error
    _print(verification, evidence, plan, console)
    if plan.html:
        print_page(verification, octets, evidence, plan, console, moment)
    return 0


def root_remarks(plan: VerifyPlan, error: SvcError) -> tuple[str, ...]:
    """Name the origin of the roots where a chain was not trusted: they may be the wrong ones."""
    if not isinstance(error, SignerChainUntrusted | SignerTrustDomainUnknown):
        return ()
    spiffe, *pq = _roots(plan)
    return (printable("; ".join((f"checked against the {spiffe}", *pq)), 1000),)


def _roots(plan: VerifyPlan) -> tuple[str, ...]:
    """Where the roots come from, those of the SPIFFE bundles first."""
    spiffe = ", ".join(plan.trust_bundles) or f"the Workload API at {plan.options.spiffe_socket}"
    if not plan.profile.needs_post_quantum:
        return (f"SPIFFE roots from {spiffe}",)
    beside = "the archives among them" if plan.trust_bundles else "the file beside its socket"
    return (f"SPIFFE roots from {spiffe}", f"post-quantum roots from {plan.pq_bundle or beside}")


def _trust_domain(text: str | None) -> TrustDomain | None:
    if text is None:
        return None
    try:
        return TrustDomain.parse(text.removeprefix("spiffe://"))
    except TrustDomainMalformed as error:
        raise UsageRefused(f"--trust-domain: {error}", error.hint) from error


def read_anchors(plan: VerifyPlan, invocation: Invocation) -> Anchors:
    """Read the roots; where no file is named, from the Workload API, in the reactor of this process."""
    if plan.trust_bundles:
        return _file_anchors(plan)
    if not plan.options.socket_given and not os.path.exists(socket_path(plan.options.spiffe_socket)):
        if plan.pq_bundle is None or plan.profile is not Profile.PQ:
            raise NotaryRefused("no_anchor")
        return Anchors(BundleSet(), _pq_file(plan))
    from svc.cli.reactor import read_workload_bundles
    from svc.cli.trust import read_pq_anchors

    spiffe = read_workload_bundles(plan.options, invocation.console)
    pq = _pq_file(plan) if plan.pq_bundle else read_pq_anchors(plan.profile, None, plan.options.spiffe_socket)
    return Anchors(spiffe, pq)


def _file_anchors(plan: VerifyPlan) -> Anchors:
    spiffe, archived = BundleSet(), BundleSet()
    for path in plan.trust_bundles:
        data = _read_bundle(path)
        spiffe = _merged(path, spiffe, _parsed(path, data, lambda data: parse_bundle_file(data, plan.trust_domain)))
        if _is_archive(data):
            archived = _merged(path, archived, _parsed(path, data, parse_pq_bundle_file))
    named = plan.pq_bundle is not None or not plan.profile.needs_post_quantum
    return Anchors(spiffe, _pq_file(plan) if named else archived)


def _is_archive(data: bytes) -> bool:
    """Whether a bundle file is an archive, which holds SPIFFE roots and post-quantum roots."""
    return data.lstrip().startswith(b"{") and load_document(data).get("type") == ARCHIVE_TYPE


def _merged(path: str, bundles: BundleSet, more: BundleSet) -> BundleSet:
    for bundle in more:
        if bundle.trust_domain in bundles:
            raise CliError(
                "bundle_malformed", path=path, defect=f"another file holds the roots of {bundle.trust_domain}"
            )
        bundles = bundles.replace(bundle)
    return bundles


def _pq_file(plan: VerifyPlan) -> BundleSet:
    if plan.pq_bundle is None or not plan.profile.needs_post_quantum:
        return BundleSet()
    return _parsed(plan.pq_bundle, _read_bundle(plan.pq_bundle), parse_pq_bundle_file)


def _read_bundle(path: str) -> bytes:
    if not os.path.lexists(path):
        # Reported before the checks of its folder.
        raise FileUnreadable(path=path, detail="no such file or directory")
    return read_trusted(path, max_bytes=MAX_BUNDLE_OCTETS)


def _parsed(path: str, data: bytes, parse: Callable[[bytes], BundleSet]) -> BundleSet:
    try:
        return parse(data)
    except BundleNeedsTrustDomain as error:
        raise CliError("bundle_needs_trust_domain", path=path) from error
    except BundleMalformed as error:
        raise CliError("bundle_malformed", path=path, defect=error.defect) from error


def _print(verification: VerificationResult, evidence: EvidenceFile, plan: VerifyPlan, console: Console) -> None:
    statement, receipt = verification.statement, verification.receipt
    if plan.profile.warning:
        console.warn(plan.profile.warning)
    console.warn(TIME_ASSERTED)
    if plan.print_workload and statement is not None:
        console.write_stderr(str(statement_report(statement, time_asserted=True)).rstrip("\n"))
    if plan.print_receipt and receipt is not None:
        report = receipt_report(
            receipt,
            request_body=evidence.request_body,
            response_body=evidence.response_body,
            time_asserted=True,
        )
        console.write_stderr(str(report).rstrip("\n"))
    if plan.html:
        return
    if plan.json:
        _print_json(verification, plan, console)
        return
    if statement is not None:
        console.write_text(f"statement {printed_id(statement.id)}: verified, {statement.subject}\n")
    found = "none in this file" if receipt is None else f"{printed_id(receipt.id)}: verified, {receipt.outcome.value}"
    console.write_text(f"receipt {found}\n" if receipt is not None else f"receipt: {found}\n")


def print_page(
    verification: VerificationResult,
    octets: bytes,
    evidence: EvidenceFile | None,
    plan: VerifyPlan,
    console: Console,
    now: datetime,
) -> None:
    from svc.reports.html import html_page

    source = EvidenceSource(
        name=plan.path,
        size=len(octets),
        sha256=hashlib.sha256(octets).digest(),
        verified_at=now,
        profile=plan.profile,
        roots=_roots(plan),
        expected=plan.expected,
    )
    account = verification_account(verification, source, evidence)
    console.write_text(html_page([account], made_by=f"svc {__version__}"))


def _print_json(verification: VerificationResult, plan: VerifyPlan, console: Console) -> None:
    console.write_text(json.dumps(json_document(verification, plan)) + "\n")


def json_document(verification: VerificationResult, plan: VerifyPlan) -> dict[str, object]:
    """The object of ``-o json``."""
    statement, receipt = verification.statement, verification.receipt
    return {
        "workload": None if statement is None else {"id": statement.id, "claims": statement.claims},
        "receipt": None if receipt is None else {"id": receipt.id, "claims": receipt.claims},
        "verification": {**verification.to_json(), "profile": plan.profile.value},
    }
