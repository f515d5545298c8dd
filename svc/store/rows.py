"""The rows that are written and read, as far as both databases agree on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from svc.store.compact import CompactEnvelope, expand, read_cuts
from svc.store.records import ReceiptQuery, RecordPosition, StoredReceipt

#: Of a receipt, in both databases; PostgreSQL returns the certificates themselves in place of ``certificate_set``.
RECEIPT_COLUMNS: Final = (
    *("id", "level", "client", "server", "nonce", "jti", "issued_at", "outcome", "statement_id"),
    *("certificate_set", "cuts", "skeleton", "payload", "disclosures", "batch", "inclusion"),
)
#: The schema version from which on receipts may belong to a batch; a database that is only read may be older.
BATCHES: Final = 2
#: The members of a query that are columns, and the condition for each.
_CONDITIONS: Final = {
    "party": "(client = ? OR server = ?)",
    "client": "client = ?",
    "level": "level = ?",
    "outcome": "outcome = ?",
}
#: Later than any time, in both databases.
_NEVER: Final = RecordPosition(2**62, "")
DELETE_UNUSED_SETS: Final = (
    "DELETE FROM certificate_set WHERE"
    " NOT EXISTS (SELECT 1 FROM receipt WHERE receipt.certificate_set = certificate_set.id) AND"
    " NOT EXISTS (SELECT 1 FROM receipt_batch WHERE receipt_batch.certificate_set = certificate_set.id) AND"
    " NOT EXISTS (SELECT 1 FROM workload_statement WHERE workload_statement.certificate_set = certificate_set.id)"
)


@dataclass(frozen=True)
class StatementRow:
    """A statement as it is written; ``expires`` is a NumericDate, ``envelope`` its JSON octets."""

    id: str
    expires: int
    envelope: bytes


Row = StatementRow | StoredReceipt


def selected(query: ReceiptQuery, form: str) -> str:
    """The condition on the columns that a query selects; ``form`` is a parameter named ``{}``."""
    given = [
        text.replace("?", form.format(name)) for name, text in _CONDITIONS.items() if getattr(query, name) is not None
    ]
    return " AND ".join(given) or "TRUE"


def scan_values(query: ReceiptQuery, rows: int) -> Mapping[str, object]:
    """The parameters of a scan."""
    before = query.before or _NEVER
    until = _NEVER.issued_at if query.until is None else query.until
    return {
        **{name: getattr(query, name) for name in _CONDITIONS},
        "since": -_NEVER.issued_at if query.since is None else query.since,
        # Only a limit on the one column is used with its index by both databases.
        "until": min(until, before.issued_at + 1),
        "before": before.issued_at,
        "id": before.id,
        "rows": rows,
    }


_PLAIN: Final = attrgetter(*RECEIPT_COLUMNS[:9])


def receipt_values(
    receipt: StoredReceipt, certificates: object, compact: CompactEnvelope | None, batch: object
) -> tuple[Any, ...]:
    """The values of :data:`RECEIPT_COLUMNS`."""
    return (
        *_PLAIN(receipt),
        certificates,
        None if compact is None else compact.cuts_text(),
        None if compact is None else compact.octets,
        receipt.payload,
        None if receipt.disclosures is None else json.dumps(receipt.disclosures, separators=(",", ":")),
        batch,
        receipt.inclusion,
    )


def receipt_from(
    row: Sequence[Any] | None, chain_of: Callable[[Any], Sequence[bytes]], batch_of: Callable[[Any], bytes]
) -> StoredReceipt | None:
    """
    Build a receipt from its columns, or return None for none; ``chain_of`` maps what is in place of ``certificate_set``
    to certificates, DER, and ``batch_of`` what is in place of ``batch`` to the envelope.
    """
    if row is None:
        return None
    statement_id, certificates, cuts, skeleton, payload, disclosures, batch, inclusion = row[8:]
    envelope = None
    if skeleton is not None and cuts is not None and certificates is not None:
        envelope = expand(skeleton, read_cuts(cuts), chain_of(certificates), payload)
    salts = None if disclosures is None else json.loads(disclosures)
    shared = None if batch is None else batch_of(batch)
    columns: Any = (*row[:8], envelope, payload, salts, statement_id, shared, inclusion)
    return StoredReceipt(*columns)
