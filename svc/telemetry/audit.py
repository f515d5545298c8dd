"""
Verifies that no audit record of a log was changed, removed or moved.

Each audit record contains the SHA-256 of the one before it, from the start of the process on. Records removed at the
end of a log are not detected: store the last digest elsewhere.

    python -m svc.telemetry.audit proxy.log
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Final

from svc.errors import SvcError
from svc.strictjson import b64u_encode
from svc.telemetry.events.daemon import DaemonEvent

_UNWRITTEN: Final = DaemonEvent.LOGS_DROPPED.event_name


class AuditChainBroken(SvcError):
    """the audit chain is broken in line {line}: {defect}"""

    reason = "audit_chain_broken"
    hint = "records were removed, changed or moved, or lines of several processes are mixed; compare with another copy"
    line: int
    defect: str


@dataclass(frozen=True)
class AuditChain:
    """
    What a log proves.

    Attributes:
        records: the number of audit records.
        starts: the number of processes that wrote them, one after the other.
        last: the digest of the last record, which the next record of the same process contains; None without records.
    """

    records: int
    starts: int
    last: str | None


def verify_audit_chain(lines: Iterable[bytes]) -> AuditChain:
    """
    Verify the chain of a log.

    Args:
        lines: of the log of one process after the other, as they were written, with or without their line feeds; lines
            that are no audit records are skipped.

    Raises:
        AuditChainBroken: a record does not follow the one before it.
    """
    records = starts = number = unwritten = 0
    last: str | None = None
    for line, raw in enumerate(lines, 1):
        data = raw.rstrip(b"\r\n")
        link = _link(data, line)
        if link is None:
            unwritten += _unwritten(data)
            continue
        sequence, before = link
        if sequence == 1 and before is None:
            starts += 1
        elif sequence != number + 1:
            gap = f"; in between the process says that it could not write {unwritten} lines" if unwritten else ""
            raise AuditChainBroken(line=line, defect=f"record {sequence} follows record {number}{gap}")
        elif before != last:
            raise AuditChainBroken(line=line, defect=f"record {number} before it is not the one that was written")
        records, number, unwritten = records + 1, sequence, 0
        last = b64u_encode(hashlib.sha256(data).digest())
    return AuditChain(records, starts, last)


def _unwritten(data: bytes) -> int:
    """How many lines a process reports as not written; 0 for every other line."""
    if _UNWRITTEN.encode() not in data:
        return 0
    try:
        record = json.loads(data)
    except ValueError:
        return 0
    match record:
        case {"event": {"name": name}, "attributes": {"count": int(count)}} if name == _UNWRITTEN and count > 0:
            return count
    return 0


def _link(data: bytes, line: int) -> tuple[int, str | None] | None:
    """The sequence number of a record and the digest it contains; None for a line that is no audit record."""
    try:
        # Records contain fractions, which the strict reader of signed artifacts refuses.
        record = json.loads(data)
    except ValueError as error:
        if b'"audit"' in data:
            raise AuditChainBroken(line=line, defect="it is not JSON") from error
        return None
    if not isinstance(record, dict):
        return None
    audit, event = record.get("audit"), record.get("event")
    if audit is None and not (isinstance(event, dict) and event.get("category") == "audit"):
        return None
    if not isinstance(audit, dict):
        raise AuditChainBroken(line=line, defect="it has no sequence number")
    sequence, before = audit.get("seq"), audit.get("prev")
    if type(sequence) is not int or not (before is None or isinstance(before, str)):
        raise AuditChainBroken(line=line, defect="its sequence number or digest is invalid")
    return sequence, before


def main(arguments: Sequence[str], out: IO[str]) -> int:
    """Verify files, or standard input; 0 where every file holds audit records in an unbroken chain, else 1."""
    status = 0
    for path in arguments or ["/dev/stdin"]:
        try:
            with open(path, "rb") as log:
                found = verify_audit_chain(log)
        except OSError as error:
            print(f"{path}: cannot be read: {error.strerror}", file=out)
            status = 1
            continue
        except AuditChainBroken as error:
            print(f"{path}: {error}", file=out)
            status = 1
            continue
        if found.records == 0:
            print(f"{path}: no audit record; is it the log of a process of svc, as it was written?", file=out)
            status = 1
        else:
            print(f"{path}: {found.records} audit records of {found.starts} starts, last {found.last}", file=out)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout))
