"""
The sections of an account that say what a verification checked, by which certificates, and what it verified.

Owns their words; nothing is verified here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509

from svc.envelope.claims import utc_seconds
from svc.envelope.ids import printed_id
from svc.envelope.profile import Profile
from svc.errors import printable
from svc.identity.algorithms import certificate_key_algorithm, certificate_sha256
from svc.identity.binding import binding_of
from svc.identity.spiffeid import SpiffeID
from svc.notary.evidence import EvidenceFile
from svc.notary.receiptcheck import ReceiptEvidence
from svc.notary.statement import StatementEvidence
from svc.notary.verification import EnvelopeEvidence
from svc.reports.account import Section
from svc.reports.lines import (
    MAX_VALUE,
    OFFLINE,
    escaped,
    list_lines,
    place_in_batch,
)
from svc.reports.report import CheckResult, ReportLine

_PROFILES: Final[Mapping[Profile, str]] = {
    Profile.HYBRID: "a classical and a post-quantum signature must both be valid",
    Profile.PQ: "the post-quantum signature must be valid",
    Profile.CLASSICAL: "the classical signature must be valid; the post-quantum one is ignored",
    Profile.CNSA2: "both signatures must be valid, with ES384 and ML-DSA-87 alone",
}


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """
    What was verified, and with what.

    Attributes:
        name: of the file, or of what else it came from.
        size: its octets.
        sha256: their digest.
        verified_at: the time of the verification by the verifier's clock.
        profile: the verifier's profile.
        roots: where the trust anchors come from, one text for each place.
        expected: the identities that the verifier expects; empty means any.
    """

    name: str
    size: int
    sha256: bytes
    verified_at: datetime
    profile: Profile
    roots: tuple[str, ...] = ()
    expected: tuple[SpiffeID, ...] = ()


def source_lines(source: EvidenceSource) -> Iterator[ReportLine]:
    yield ReportLine("File", printable(source.name, MAX_VALUE))
    yield ReportLine("Verified at", utc_seconds(source.verified_at), mark="the clock of the verifier")
    yield ReportLine("Size", f"{source.size} bytes")
    yield ReportLine("SHA-256", source.sha256.hex())
    yield ReportLine("Profile", f"{source.profile.value}: {_PROFILES[source.profile]}")
    yield from list_lines("Roots come from", [printable(root, MAX_VALUE) for root in source.roots], "")


def check_sections(
    statement: StatementEvidence, receipt: ReceiptEvidence | None, source: EvidenceSource, evidence: EvidenceFile | None
) -> Iterator[Section]:
    if receipt is not None:
        lines = (*_envelope_checks(receipt.envelope_evidence), *_receipt_checks(receipt, statement, evidence))
        yield Section("What was checked: the receipt", lines)
    lines = (*_envelope_checks(statement.envelope_evidence), *_statement_checks(statement, source))
    yield Section("What was checked: the workload statement", lines)


def _envelope_checks(evidence: EnvelopeEvidence) -> Iterator[ReportLine]:
    for chain, ignored in ((evidence.classical, "Classical signature"), (evidence.pq, "Post-quantum signature")):
        if chain is None:
            yield ReportLine(
                ignored, f"not demanded by the profile {evidence.profile.value}", check=CheckResult.NOT_DONE
            )
            continue
        yield ReportLine(
            f"Signature {chain.algorithm.jose}",
            f"valid, by the key of the certificate {certificate_sha256(chain.leaf).hex()}",
            check=CheckResult.PASSED,
        )
        # The verification has read the binding of the ML-DSA leaf alone.
        bound = chain is evidence.pq and binding_of(chain.leaf) is not None
        bundle = "post-quantum" if bound else "SPIFFE"
        yield ReportLine(
            f"Certificate chain {chain.algorithm.jose}",
            f"{len(chain.chain)} certificates, valid at {utc_seconds(evidence.verified_at)}, from {chain.spiffe_id} to "
            f"a root of {chain.spiffe_id.trust_domain} in the verifier's {bundle} bundle"
            + ("; bound to the key of the SVID" if bound else ""),
            check=CheckResult.PASSED,
        )
        yield ReportLine("Root", _name(chain.anchor), 1)
        yield ReportLine("Root SHA-256", certificate_sha256(chain.anchor).hex(), 1)


def _statement_checks(statement: StatementEvidence, source: EvidenceSource) -> Iterator[ReportLine]:
    issuer = "the workload itself" if statement.self_issued else "a central issuer that the verifier accepts"
    yield ReportLine("Issuer", f"{issuer}: {escaped(statement.issuer)}", check=CheckResult.PASSED)
    yield ReportLine(
        "Validity", f"{utc_seconds(statement.not_before)} to {utc_seconds(statement.expires)}", check=CheckResult.PASSED
    )
    if source.expected:
        yield ReportLine("Expected identity", f"{statement.subject} is expected", check=CheckResult.PASSED)
    else:
        yield ReportLine("Expected identity", "none was named: any workload is accepted", check=CheckResult.NOT_DONE)
    yield _done("Bound To Connection", statement.bound, "the key is that of the TLS connection")


def _receipt_checks(
    receipt: ReceiptEvidence, statement: StatementEvidence, evidence: EvidenceFile | None
) -> Iterator[ReportLine]:
    if receipt.batch is not None:
        yield ReportLine(
            "Batch",
            f"{place_in_batch(receipt.batch)}: its path leads to the Merkle root that the signatures cover",
            check=CheckResult.PASSED,
        )
    yield ReportLine(
        "Statement",
        f"the receipt names the statement {printed_id(receipt.statement_id)}, is signed by its workload with its key, "
        "and was issued while it was valid",
        check=CheckResult.PASSED,
    )
    yield _done("Compared With Own Exchange", receipt.compared, "request and response are those of the verifier")
    for name, body in (
        ("Request body", evidence and evidence.request_body),
        ("Response body", evidence and evidence.response_body),
    ):
        if body is None:
            yield ReportLine(name, "its octets are not in the file", check=CheckResult.NOT_DONE)
        else:
            yield ReportLine(
                name,
                "the octets in the file have the size and digest that the receipt attests",
                check=CheckResult.PASSED,
            )
    yield ReportLine("Trusted time", "no third party backs the time", check=CheckResult.NOT_DONE)


def _done(label: str, done: bool, text: str) -> ReportLine:
    if done:
        return ReportLine(label, text, check=CheckResult.PASSED)
    return ReportLine(label, "no", mark=OFFLINE, check=CheckResult.NOT_DONE)


def certificate_lines(evidence: EnvelopeEvidence) -> Iterator[ReportLine]:
    for chain in (evidence.classical, evidence.pq):
        for number, certificate in enumerate(chain.chain if chain is not None else ()):
            last = chain is not None and number == len(chain.chain) - 1
            role = "Leaf" if number == 0 else "Root" if last else "Intermediate"
            yield ReportLine(f"{role}", _name(certificate))
            yield ReportLine("Key", certificate_key_algorithm(certificate).name, 1)
            start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            yield ReportLine("Valid", f"{utc_seconds(start)} to {utc_seconds(end)}", 1)
            yield ReportLine("Serial number", f"{certificate.serial_number:x}", 1)
            yield ReportLine("SHA-256", certificate_sha256(certificate).hex(), 1)


def _name(certificate: x509.Certificate) -> str:
    return escaped(certificate.subject.rfc4514_string())
