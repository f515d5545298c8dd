"""
Verify an evidence file that `svc curl --save-evidence` or `svc receipts export` wrote, without network and years later.

    python docs/examples/evidence.py evidence.json bundle-archive.json
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from svc.errors import SvcError
from svc.identity.trustbundle import parse_bundle_file, parse_pq_bundle_file
from svc.notary import Anchors, EvidenceFile, Profile, VerificationResult, detail_reason, verify_offline
from svc.workload.files import read_trusted


def verify(evidence: bytes, archive: bytes, now: datetime) -> VerificationResult:
    """
    Verify evidence by the roots of a bundle archive; a root counts only within the time in which it was seen.

    Raises a ``NotaryError`` with the reason. Nothing but the signer's assertion supports the time of the result.
    """
    anchors = Anchors(spiffe=parse_bundle_file(archive, None), pq=parse_pq_bundle_file(archive))
    return verify_offline(EvidenceFile.parse(evidence), profile=Profile.HYBRID, anchors=anchors, now=now)


def main(evidence: str, archive: str) -> int:
    """Read two files, print one line."""
    with open(evidence, "rb") as file:
        data = file.read()
    try:
        found = verify(data, read_trusted(archive), datetime.now(UTC))
    except SvcError as error:
        print(f"refused, {detail_reason(error)}: {error}")
        return 1
    receipt = "no receipt" if found.receipt is None else f"receipt {found.receipt.id}, {found.receipt.outcome.value}"
    print(f"consistent, time asserted: {found.statement and found.statement.subject}, {receipt}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
