"""The verified workload statement of an upstream connection, for those that verify it, use it and store it."""

from __future__ import annotations

from dataclasses import dataclass

from svc.envelope.envelope import Envelope
from svc.notary.statement import StatementEvidence
from svc.transport.evidence import PeerEvidence


@dataclass(slots=True)
class PeerStatement:
    """
    The verified statement of a connection, and its peer; the envelope is kept to verify it again, and to store it once.
    """

    envelope: Envelope
    evidence: StatementEvidence
    peer: PeerEvidence
    stored: bool = False
