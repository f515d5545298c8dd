"""
Signed artifacts: the envelope, workload statements, request receipts, and the one verifier for all of them.

Owns what is signed, how, and how it is verified. No socket, file, clock or logger: the time and randomness are
arguments, the result is evidence, and a failure is an error with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.notary.access import receipt_path, statement_path
    from svc.notary.artifact import BatchedReceipt, parse_receipt
    from svc.notary.credentials import CredentialSet
    from svc.notary.envelope import Envelope
    from svc.notary.errors import NotaryError, ReceiptRefused, StatementMissing, StatementRefused, detail_reason
    from svc.notary.evidence import EvidenceFile, VerificationResult, verify_offline
    from svc.notary.exchange import BodySummary, ExchangeOutcome, ObservedExchange, Peer, TlsFacts
    from svc.notary.facts import Container, FactsInvalid, WorkloadFacts
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
    from svc.notary.pqleaf import PqLeaf
    from svc.notary.profile import Profile, ProfileUnknown
    from svc.notary.receipt import Redaction
    from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
    from svc.notary.statement import SelfIssued, Statement, StatementEvidence, verify_statement
    from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
else:
    __getattr__ = exports(
        __name__,
        {
            "access": "receipt_path statement_path",
            "artifact": "BatchedReceipt parse_receipt",
            "envelope": "Envelope",
            "errors": "NotaryError ReceiptRefused StatementMissing StatementRefused detail_reason",
            "evidence": "EvidenceFile VerificationResult verify_offline",
            "exchange": "BodySummary ExchangeOutcome Peer ObservedExchange TlsFacts",
            "facts": "Container FactsInvalid WorkloadFacts",
            "credentials": "CredentialSet",
            "ids": "IdMalformed NonceMalformed new_nonce parse_artifact_id parse_nonce receipt_id statement_id",
            "level": "Level LevelUnknown check_level",
            "pqissuer": "PqIssuer",
            "pqleaf": "PqLeaf",
            "profile": "Profile ProfileUnknown",
            "receipt": "Redaction",
            "receiptcheck": "ReceiptEvidence verify_receipt",
            "statement": "SelfIssued Statement StatementEvidence verify_statement",
            "verification": "Anchors EnvelopeEvidence verify_envelope",
        },
    )

__all__ = [
    "Anchors",
    "BatchedReceipt",
    "BodySummary",
    "Container",
    "CredentialSet",
    "Envelope",
    "EnvelopeEvidence",
    "EvidenceFile",
    "ExchangeOutcome",
    "FactsInvalid",
    "IdMalformed",
    "Level",
    "LevelUnknown",
    "NonceMalformed",
    "NotaryError",
    "ObservedExchange",
    "Peer",
    "PqIssuer",
    "PqLeaf",
    "Profile",
    "ProfileUnknown",
    "ReceiptEvidence",
    "ReceiptRefused",
    "Redaction",
    "SelfIssued",
    "Statement",
    "StatementEvidence",
    "StatementMissing",
    "StatementRefused",
    "TlsFacts",
    "VerificationResult",
    "WorkloadFacts",
    "check_level",
    "detail_reason",
    "new_nonce",
    "parse_artifact_id",
    "parse_nonce",
    "parse_receipt",
    "receipt_id",
    "receipt_path",
    "statement_id",
    "statement_path",
    "verify_envelope",
    "verify_offline",
    "verify_receipt",
    "verify_statement",
]
