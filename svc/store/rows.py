"""The rows that are written and read; both databases have the same columns for a receipt, in the same order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from svc.store.compact import expand, read_cuts
from svc.store.records import StoredReceipt

#: SQL of both databases.
DELETE_UNUSED_SETS: Final = (
    "DELETE FROM certificate_set WHERE"
    " NOT EXISTS (SELECT 1 FROM receipt WHERE receipt.certificate_set = certificate_set.id) AND"
    " NOT EXISTS (SELECT 1 FROM workload_statement WHERE workload_statement.certificate_set = certificate_set.id)"
)


@dataclass(frozen=True)
class StatementRow:
    """A statement as it is written; ``expires`` is a NumericDate, ``envelope`` its JSON octets."""

    id: str
    expires: int
    envelope: bytes


Row = StatementRow | StoredReceipt


def disclosures_text(receipt: StoredReceipt) -> str | None:
    """The column of the disclosures, JSON."""
    return None if receipt.disclosures is None else json.dumps(receipt.disclosures, separators=(",", ":"))


def receipt_from(row: Sequence[Any] | None, chain_of: Callable[[Any], Sequence[bytes]]) -> StoredReceipt | None:
    """
    Build a receipt from its row, or return None for none.

    Args:
        row: id, level, client, server, nonce, jti, issued_at, outcome, statement_id, what ``chain_of`` takes, cuts,
            skeleton, payload, disclosures.
        chain_of: returns the certificates of the envelope, DER.
    """
    if row is None:
        return None
    statement_id, certificates, cuts, skeleton, payload, disclosures = row[8:]
    envelope = None
    if skeleton is not None and cuts is not None and certificates is not None:
        envelope = expand(skeleton, read_cuts(cuts), chain_of(certificates), payload)
    salts = None if disclosures is None else json.loads(disclosures)
    columns: Any = (*row[:8], envelope, payload, salts, statement_id)
    return StoredReceipt(*columns)
