"""
Signed artefacts: the envelope, workload statements, request receipts, and the one verifier for all of them.

Owns what is signed, how, and whether it is to be believed. Knows no socket, no file, no clock and no logger: the time
and randomness are arguments, the result is evidence, and a failure is one class with one reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.notary.access import receipt_path, statement_path
    from svc.notary.envelope import Envelope
    from svc.notary.errors import NotaryError
    from svc.notary.evidence import EvidenceFile, Verification, verify_offline
    from svc.notary.exchange import BodySeen, Outcome, Peer, SeenExchange, TlsFacts
    from svc.notary.facts import Container, FactsInvalid, WorkloadFacts
    from svc.notary.generation import Generation, GenerationIncomplete
    from svc.notary.ids import (
        IdMalformed,
        NonceMalformed,
        new_nonce,
        parse_artifact_id,
        parse_nonce,
        receipt_id,
        statement_id,
    )
    from svc.notary.level import Level, LevelUnknown, check_level
    from svc.notary.pqissuer import PqIssuer
    from svc.notary.pqproof import PqLeaf
    from svc.notary.profile import Profile, ProfileUnknown
    from svc.notary.receipt import Redaction
    from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
    from svc.notary.refusals import ReceiptMissing, ReceiptRefused, StatementMissing, StatementRefused, detail_reason
    from svc.notary.report import Report, receipt_report, statement_report
    from svc.notary.statement import SelfIssued, Statement, StatementEvidence, verify_statement
    from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
else:
    __getattr__ = exports(
        __name__,
        {
            "access": "receipt_path statement_path",
            "envelope": "Envelope",
            "errors": "NotaryError",
            "evidence": "EvidenceFile Verification verify_offline",
            "exchange": "BodySeen Outcome Peer SeenExchange TlsFacts",
            "facts": "Container FactsInvalid WorkloadFacts",
            "generation": "Generation GenerationIncomplete",
            "ids": "IdMalformed NonceMalformed new_nonce parse_artifact_id parse_nonce receipt_id statement_id",
            "level": "Level LevelUnknown check_level",
            "pqissuer": "PqIssuer",
            "pqproof": "PqLeaf",
            "profile": "Profile ProfileUnknown",
            "receipt": "Redaction",
            "receiptcheck": "ReceiptEvidence verify_receipt",
            "refusals": "ReceiptMissing ReceiptRefused StatementMissing StatementRefused detail_reason",
            "report": "Report receipt_report statement_report",
            "statement": "SelfIssued Statement StatementEvidence verify_statement",
            "verification": "Anchors EnvelopeEvidence verify_envelope",
        },
    )

__all__ = [
    "Anchors",
    "BodySeen",
    "Container",
    "Envelope",
    "EnvelopeEvidence",
    "EvidenceFile",
    "FactsInvalid",
    "Generation",
    "GenerationIncomplete",
    "IdMalformed",
    "Level",
    "LevelUnknown",
    "NonceMalformed",
    "NotaryError",
    "Outcome",
    "Peer",
    "PqIssuer",
    "PqLeaf",
    "Profile",
    "ProfileUnknown",
    "ReceiptEvidence",
    "ReceiptMissing",
    "ReceiptRefused",
    "Redaction",
    "Report",
    "SeenExchange",
    "SelfIssued",
    "Statement",
    "StatementEvidence",
    "StatementMissing",
    "StatementRefused",
    "TlsFacts",
    "Verification",
    "WorkloadFacts",
    "check_level",
    "detail_reason",
    "new_nonce",
    "parse_artifact_id",
    "parse_nonce",
    "receipt_id",
    "receipt_path",
    "receipt_report",
    "statement_id",
    "statement_path",
    "statement_report",
    "verify_envelope",
    "verify_offline",
    "verify_receipt",
    "verify_statement",
]
