"""
What a threaded store needs of its database: one object that writes and one that reads.

All their methods block; each object is used by a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from svc.store.errors import StoreError
from svc.store.interface import Entity
from svc.store.records import ReceiptQuery, StoredReceipt
from svc.store.rows import Row
from svc.store.search import SearchSlice
from svc.store.usage import StoreUsage

#: Records deleted in one transaction.
PRUNE_SLICE: Final = 256
#: Seconds after its end for which a statement is kept beyond the records: clocks may deviate by as much, and after that
#: no record names it.
STATEMENT_GRACE: Final = 60


@dataclass
class CommitResult:
    """The result of committing a group."""

    #: For each record None, or why it alone is not stored.
    results: Sequence[StoreError | None] = ()
    #: Why nothing of the group is stored; there are no results then.
    failure: Exception | None = None
    #: Whether the database was lost before it reported whether the group is stored; there are no results then.
    undecided: bool = False
    #: The entity of each attempt that the database refused.
    refused: list[Entity] = field(default_factory=list)
    #: The explanation of the last refusal.
    detail: str = ""


class Refused(Exception):
    """The database refused an operation on an entity."""

    def __init__(self, entity: Entity, error: Exception, detail: str = "") -> None:
        super().__init__(entity, error, detail)
        self.entity: Entity = entity
        self.error = error
        self.detail = detail


class RecordWriter(Protocol):
    """Writes records."""

    #: Whether new records are not accepted, from a refused write until :meth:`recover` succeeds.
    degraded: bool
    #: Why the database refused last.
    trouble: str

    def commit(self, rows: Sequence[Row]) -> CommitResult:
        """Make records durable in one transaction."""

    def discard(self, receipt_ids: Sequence[str]) -> None:
        """Delete records durably, where they are stored; raises Refused where the database refuses."""

    def prune(self, before: int) -> tuple[int, bool]:
        """
        Delete one slice of the records issued before a NumericDate; after the last, what nothing refers to any more.

        Returns:
            (records deleted, whether more are left).

        Raises:
            Refused: the database refuses.
        """

    def recover(self) -> None:
        """Accept records again, or raise Refused, or OSError for what need not be reported."""

    def checkpoint_if_due(self) -> bool:
        """Do maintenance while no record waits; returns whether the database refused."""

    def close(self) -> bool:
        """Close the database; returns whether it refused."""


class RecordReader(Protocol):
    """
    Reads records: the methods of :class:`svc.store.interface.INotaryStore` without Deferreds.

    They raise Refused where something other than the requested entity cannot be read, else an error of the database.
    """

    def get_statement(self, statement_id: str) -> bytes | None: ...

    def get_receipt(self, receipt_id: str) -> StoredReceipt | None: ...

    def get_by_request(self, client: str, key: str) -> StoredReceipt | None: ...

    def scan(self, query: ReceiptQuery, rows: int) -> SearchSlice:
        """
        Read records of the times of a query, newest first, as one slice of a search: up to ``rows``, and none after
        ``SLICE_OCTETS`` of payloads.
        """

    def nonce_known(self, client: str, nonce: str) -> bool: ...

    def reserve(self, client: str, nonce: str) -> bool: ...

    def give_back(self, client: str, nonce: str) -> None: ...

    def reserved(self, client: str, nonce: str) -> bool: ...

    def named(self, key: str, limit: int) -> list[str]:
        """The ids, up to a limit, that begin with a text or whose record has it as nonce or ``jti``, of any client."""

    def usage(self) -> StoreUsage: ...

    def disconnect(self) -> None:
        """Close the connection; the next read opens another, since after an error a connection is unreliable."""
