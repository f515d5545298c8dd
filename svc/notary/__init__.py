"""
Signed artifacts: the envelope, workload statements, request receipts, and the one verifier for all of them.

Owns what is signed, how, and how it is verified. No socket, file, clock or logger: the time and randomness are
arguments, the result is evidence, and a failure is an error with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.envelope.envelope import Envelope
    from svc.envelope.errors import detail_reason
    from svc.envelope.ids import (
        IdMalformed,
        NonceMalformed,
        new_nonce,
        parse_artifact_id,
        parse_nonce,
        receipt_id,
        statement_id,
    )
    from svc.envelope.profile import Profile, ProfileUnknown
    from svc.notary.access import receipt_path, statement_path
    from svc.notary.artifact import BatchedReceipt, parse_receipt
    from svc.notary.credentials import CredentialSet
    from svc.notary.errors import NotaryError, NotaryRefused, ReceiptRefused, StatementMissing, StatementRefused
    from svc.notary.evidence import EvidenceFile, VerificationResult, verify_offline
    from svc.notary.exchange import BodySummary, ExchangeOutcome, ObservedExchange, Peer, TlsFacts
    from svc.notary.facts import Container, FactsInvalid, WorkloadFacts
    from svc.notary.level import Level, LevelUnknown, check_level
    from svc.notary.pqissuer import PqIssuer
    from svc.notary.pqleaf import PqLeaf
    from svc.notary.receipt import Redaction
    from svc.notary.receiptcheck import ReceiptEvidence, verify_receipt
    from svc.notary.statement import SelfIssued, Statement, StatementEvidence, verify_statement
    from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
else:
    __getattr__ = exports(
        __name__,
        {
            ".envelope.envelope": "Envelope",
            ".envelope.errors": "detail_reason",
            ".envelope.ids": (
                "IdMalformed NonceMalformed new_nonce parse_artifact_id parse_nonce receipt_id statement_id"
            ),
            ".envelope.profile": "Profile ProfileUnknown",
            "access": "receipt_path statement_path",
            "artifact": "BatchedReceipt parse_receipt",
            "errors": "NotaryError NotaryRefused ReceiptRefused StatementMissing StatementRefused",
            "evidence": "EvidenceFile VerificationResult verify_offline",
            "exchange": "BodySummary ExchangeOutcome Peer ObservedExchange TlsFacts",
            "facts": "Container FactsInvalid WorkloadFacts",
            "credentials": "CredentialSet",
            "level": "Level LevelUnknown check_level",
            "pqissuer": "PqIssuer",
            "pqleaf": "PqLeaf",
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
    "NotaryRefused",
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
