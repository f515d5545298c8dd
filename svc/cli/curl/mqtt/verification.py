"""
Artifacts as messages of a broker, and what ``--verify`` checks of them.

A statement is verified by the identifier in its topic, as of now, and without a TLS connection that it could be bound
to; a receipt against the verified statement that it names. Does no I/O and reads no clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from svc.client import debug_log
from svc.client.subscriber import Arrival
from svc.client.verification import Demands, Trust, check_statement
from svc.envelope.claims import Claims
from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.errors import printable
from svc.notary.artifact import parse_receipt
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.errors import ReceiptRefused
from svc.notary.evidence import VerificationResult
from svc.notary.receiptcheck import verify_receipt
from svc.notary.statement import StatementEvidence
from svc.strictjson import JsonRefused, loads_object

#: Verified statements that are kept for receipts, about 20 KB each; of more workloads the least recently used go.
MAX_STATEMENTS: Final = 4096
#: Receipts that wait for their statement, at most 256 KiB each: a broker may deliver retained statements after them.
MAX_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Artifact:
    """A message below one of the topics of artifacts; ``identifier`` is what its topic claims."""

    is_statement: bool
    topic: str
    identifier: str
    envelope: bytes

    @property
    def kind(self) -> str:
        """The word for people."""
        return "statement" if self.is_statement else "receipt"

    @classmethod
    def of(cls, arrival: Arrival, prefix: str) -> Artifact:
        """Take a message of a subscribed topic."""
        kind, _slash, identifier = arrival.topic.removeprefix(f"{prefix}/").partition("/")
        return cls(kind == "workload", arrival.topic, identifier, arrival.payload)

    def read(self) -> tuple[bytes, Mapping[str, object]]:
        """The payload and its claims, not verified; raises ``EnvelopeError`` where the message is no envelope."""
        payload = (Envelope.parse if self.is_statement else parse_receipt)(self.envelope).payload
        try:
            return payload, loads_object(payload)
        except JsonRefused as error:
            raise Malformed(where="payload", defect=error.defect) from error

    def __str__(self) -> str:
        return f"{self.kind} {printable(self.identifier, 64)}"


class StatementAbsent(ReceiptRefused):
    """its statement {statement} has not arrived, or was not verified"""

    reason = "statement_missing"
    hint = "a proxy publishes its statement with the flag retain, before its receipts: may this user read its topic?"


@dataclass(frozen=True, slots=True)
class Verified:
    """An artifact and the result of its verification."""

    artifact: Artifact
    result: VerificationResult


class ArtifactVerifier:
    """Verifies artifacts in the order in which they arrive."""

    def __init__(
        self, demands: Demands, *, max_statements: int = MAX_STATEMENTS, max_waiting: int = MAX_WAITING
    ) -> None:
        self._demands = demands
        self._max_statements = max_statements
        self._max_waiting = max_waiting
        self._statements: OrderedDict[str, StatementEvidence] = OrderedDict()
        self._waiting: deque[tuple[str, Artifact]] = deque()
        self._batches = VerifiedBatchCache()

    def verify(self, artifact: Artifact, trust: Trust, now: datetime) -> list[Verified]:
        """
        Verify an artifact.

        Returns:
            Its result, then those of receipts that waited for it. A receipt whose statement has not arrived waits and
            has no result yet; the one that has waited longest fails where there are too many.
        """
        try:
            if artifact.is_statement:
                return self._verify_statement(artifact, trust, now)
            wanted = Claims(artifact.read()[1]).member("svc").digest("workloadStatementID")
        except EnvelopeError as error:
            return [Verified(artifact, VerificationResult(error=error))]
        if wanted in self._statements:
            return [self._verify_receipt(artifact, wanted, trust, now)]
        self._waiting.append((wanted, artifact))
        return [self._absent(*self._waiting.popleft())] if len(self._waiting) > self._max_waiting else []

    def end(self) -> list[Verified]:
        """Nothing more arrives: the receipts that still wait have failed."""
        absent = [self._absent(wanted, artifact) for wanted, artifact in self._waiting]
        self._waiting.clear()
        return absent

    def _verify_statement(self, artifact: Artifact, trust: Trust, now: datetime) -> list[Verified]:
        evidence = check_statement(
            artifact.envelope, artifact.identifier, demands=self._demands, trust=trust, peer=None, now=now
        )
        debug_log.verified("statement", evidence)
        self._statements[evidence.id] = evidence
        self._statements.move_to_end(evidence.id)
        if len(self._statements) > self._max_statements:
            self._statements.popitem(last=False)
        due = [receipt for wanted, receipt in self._waiting if wanted == evidence.id]
        self._waiting = deque(pair for pair in self._waiting if pair[0] != evidence.id)
        receipts = [self._verify_receipt(receipt, evidence.id, trust, now) for receipt in due]
        return [Verified(artifact, VerificationResult(statement=evidence)), *receipts]

    def _verify_receipt(self, artifact: Artifact, statement_id: str, trust: Trust, now: datetime) -> Verified:
        statement = self._statements[statement_id]
        self._statements.move_to_end(statement_id)
        try:
            evidence = verify_receipt(
                artifact.envelope,
                statement=statement,
                profile=self._demands.profile,
                anchors=trust.anchors,
                now=now,
                seen=None,
                expected_id=artifact.identifier,
                batches=self._batches,
            )
        except EnvelopeError as error:
            return Verified(artifact, VerificationResult(error=error))
        debug_log.verified("receipt", evidence)
        return Verified(artifact, VerificationResult(statement=statement, receipt=evidence))

    @staticmethod
    def _absent(wanted: str, artifact: Artifact) -> Verified:
        return Verified(artifact, VerificationResult(error=StatementAbsent(statement=wanted)))
