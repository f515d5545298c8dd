"""
Evidence that is kept after a connection: the file ``svc-evidence/1`` and its offline verification.

Owns the file's format and the rule that its artifacts are verified at their own ``iat`` with anchors that come from
outside only. Reads no file and no clock.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from svc.envelope.envelope import Envelope
from svc.envelope.errors import detail_reason
from svc.envelope.profile import Profile
from svc.identity import SpiffeID
from svc.notary.artifact import ReceiptArtifact, parse_receipt
from svc.notary.errors import EvidenceInvalid, NotaryRefused, ReceiptRefused
from svc.notary.exchange import BodySummary, prefix_digests
from svc.notary.receipt_claims import ReceiptClaims
from svc.notary.receiptcheck import ReceiptEvidence, check_request_body, check_response_body, verify_receipt
from svc.notary.statement import SelfIssued, StatementEvidence, verify_statement
from svc.notary.verification import Anchors
from svc.strictjson import JsonRefused, dumps, loads_object

EVIDENCE_TYPE: Final = "svc-evidence/1"
_TYPE_FAMILY: Final = "svc-evidence/"
#: The remark of an offline verification: validity at ``iat`` shows consistency, not time.
TIME_ASSERTED: Final = "time asserted; any holder of the keys, even after expiry, could have made this"
#: The largest body that an evidence file carries.
MAX_BODY: Final = 1024 * 1024
#: The largest evidence file: two envelopes, two bodies in base64, and room for white space.
MAX_EVIDENCE: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class EvidenceFile:
    """
    A statement, the receipt that refers to it and, where they were kept, the bodies.

    Attributes:
        statement: the statement's envelope.
        receipt: the receipt of either form with its disclosures, None for an exchange without receipt.
        request_body: the octets of the request body as they were sent, None where they were not kept.
        response_body: the octets of the response body as they arrived, None where they were not kept.
    """

    statement: Envelope
    receipt: ReceiptArtifact | None = None
    request_body: bytes | None = None
    response_body: bytes | None = None

    @classmethod
    def parse(cls, data: bytes) -> EvidenceFile:
        """
        Read a file without verifying it.

        Raises:
            EvidenceInvalid: for JSON that is not strict, a missing or mistyped member, a body that is too large or an
                unknown version.
            EnvelopeError: where an envelope is malformed or too large.
        """
        try:
            members = loads_object(data, max_bytes=MAX_EVIDENCE)
        except JsonRefused as error:
            raise EvidenceInvalid(defect=error.defect) from error
        _check_version(members)
        statement, receipt = _artifact(members, "statement"), _artifact(members, "receipt")
        if statement is None:
            raise EvidenceInvalid(defect="there is no statement")
        return cls(
            statement=Envelope.parse(statement),
            receipt=None if receipt is None else parse_receipt(receipt),
            request_body=_body(members, "request"),
            response_body=_body(members, "response"),
        )

    def serialize(self) -> bytes:
        """Write the file as one JSON object; a body larger than ``MAX_BODY`` is left out."""
        members: dict[str, object] = {"type": EVIDENCE_TYPE, "v": 1, "statement": self.statement.to_object()}
        if self.receipt is not None:
            members["receipt"] = self.receipt.to_object()
        for name, body in (("request", self.request_body), ("response", self.response_body)):
            if body is not None and len(body) <= MAX_BODY:
                members[name] = {"body": base64.b64encode(body).decode("ascii")}
        return dumps(members) + b"\n"


@dataclass(frozen=True)
class VerificationResult:
    """
    The result of verifying an exchange or an evidence file, for people and programs.

    Attributes:
        statement: the evidence of the statement, None where it failed or there was none.
        receipt: the evidence of the receipt, None where it failed or there was none.
        error: why it failed, None where it succeeded.
        time_asserted: whether only the signer asserts the time (offline).
    """

    statement: StatementEvidence | None = None
    receipt: ReceiptEvidence | None = None
    error: Exception | None = None
    time_asserted: bool = False

    @property
    def ok(self) -> bool:
        """Whether a statement was verified and nothing failed."""
        return self.error is None and self.statement is not None

    @property
    def post_quantum(self) -> bool:
        """Whether all that was verified is post-quantum; False where the verification failed."""
        artifacts = [part for part in (self.statement, self.receipt) if part is not None]
        return self.ok and all(part.post_quantum for part in artifacts)

    def to_json(self) -> dict[str, object]:
        """Return the object ``verification`` of ``-o json``."""
        found: dict[str, object] = {
            "ok": self.ok,
            "detail_reason": None if self.error is None else detail_reason(self.error),
            "postQuantum": self.post_quantum,
        }
        if self.time_asserted:
            found["time"] = "asserted"
        return found


def verify_offline(
    evidence: EvidenceFile,
    *,
    profile: Profile,
    anchors: Anchors | None,
    now: datetime,
    issuers: Sequence[SpiffeID] = (),
    self_issued: SelfIssued | None = None,
    expectations: Sequence[SpiffeID] = (),
    require_trusted_time: bool = False,
) -> VerificationResult:
    """
    Verify an evidence file at the ``iat`` of its artifacts; in the result the time is marked as asserted.

    Args:
        evidence: the file.
        profile: the local profile.
        anchors: the local trust anchors; None or empty where the user gave none.
        now: the time; an artifact that claims to be issued later is refused.
        issuers: the central issuers.
        self_issued: whether a workload may issue its own statement.
        expectations: the identities that are expected; empty means any.
        require_trusted_time: refuse a time that only the signer asserts.

    Raises:
        EnvelopeError: with the reason: ``no_anchor`` where there are no anchors, none are ever taken from the file;
            ``time_unproven``, checked last, where a trusted time is required.
    """
    if anchors is None or not (len(anchors.spiffe) or len(anchors.pq)):
        raise NotaryRefused("no_anchor")
    statement = verify_statement(
        evidence.statement,
        expected_id=None,
        profile=profile,
        anchors=anchors,
        now=now,
        peer=None,
        at_iat=True,
        unbound_ok=True,
        issuers=issuers,
        self_issued=self_issued,
        expectations=expectations,
    )
    receipt = None
    if evidence.receipt is not None:
        receipt = verify_receipt(
            evidence.receipt,
            statement=statement,
            profile=profile,
            anchors=anchors,
            now=now,
            seen=None,
            at_iat=True,
        )
    _check_bodies(receipt, evidence)
    if require_trusted_time:
        raise ReceiptRefused("time_unproven")
    return VerificationResult(statement=statement, receipt=receipt, time_asserted=True)


def _check_bodies(receipt: ReceiptEvidence | None, evidence: EvidenceFile) -> None:
    if receipt is None:
        if evidence.request_body is not None or evidence.response_body is not None:
            raise EvidenceInvalid(defect="a body without a receipt that attests it")
        return
    claims = ReceiptClaims.read(receipt.claims)
    if evidence.request_body is not None:
        check_request_body(claims.request, BodySummary.of(evidence.request_body), prefix_digests(evidence.request_body))
    if evidence.response_body is not None:
        check_response_body(claims.request, claims.response, BodySummary.of(evidence.response_body))


def _check_version(members: Mapping[str, object]) -> None:
    kind, version = members.get("type"), members.get("v")
    if not isinstance(kind, str) or not kind.startswith(_TYPE_FAMILY):
        raise EvidenceInvalid(defect=f"type is not {EVIDENCE_TYPE}")
    if isinstance(version, bool) or not isinstance(version, int):
        raise EvidenceInvalid(defect="v is not a number")
    if kind != EVIDENCE_TYPE or version != 1:
        raise EvidenceInvalid("unsupported_version", found=f"{kind}, v {version}")


def _artifact(members: Mapping[str, object], name: str) -> bytes | None:
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise EvidenceInvalid(defect=f"{name} is not an object")
    return dumps(value)


def _body(members: Mapping[str, object], name: str) -> bytes | None:
    value = members.get(name)
    if value is None:
        return None
    text = value.get("body") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise EvidenceInvalid(defect=f"{name} has no text body")
    try:
        body = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvidenceInvalid(defect=f"{name}.body is not base64") from error
    if len(body) > MAX_BODY:
        raise EvidenceInvalid(defect=f"{name}.body has {len(body)} octets, at most {MAX_BODY} are accepted")
    return body
