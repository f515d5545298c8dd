"""
The interface of a notary store.

Every store provides :class:`INotaryStore` and passes the same contract tests. Methods are called on the reactor's
thread; what they return fires there.
"""

# Methods of a zope interface are declared without ``self``.
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from svc.sqlite.kind import DatabaseObserver, Operation, SilentDatabaseObserver
from svc.store.errors import StoreLate
from svc.store.records import FoundReceipts, ReceiptQuery, StatementRecord, StoredReceipt
from svc.store.usage import StoreUsage

#: Label values of ``svc_proxy_notary_db_errors_total``, with :data:`svc.sqlite.kind.Operation`.
Entity = Literal["certificate_blob", "workload_statement", "receipt", "db"]

#: Makes the records of drafts, in their order, or says why there is none; called on the thread that writes.
CompleteDrafts = Callable[[Sequence[Any]], Sequence[StoredReceipt | Exception]]


class StoreObserver(DatabaseObserver, Protocol):
    """Receives reports of a store, on the reactor's thread."""

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """The database refused an operation on an entity; ``detail`` is its explanation for operators."""

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """New records are accepted again, or no longer, and why not."""


class SilentStoreObserver(SilentDatabaseObserver):
    """A :class:`StoreObserver` that does nothing."""

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None: ...

    def writable_changed(self, writable: bool, trouble: str = "") -> None: ...


class INotaryStore(Interface):
    """Stores statements and receipts durably."""

    writable: bool = Attribute(
        "Whether new records are accepted; a request that needs one is not forwarded while this is False."
    )

    trouble: str = Attribute("Why not, for operators: the cause and the database's message; else empty.")

    def init() -> None:
        """
        Open the database, create it or migrate it to the current schema. Blocks; called once, at start.

        Raises:
            SvcError: a StoreError, or a DatabaseError of the embedded store; the class names what is wrong and what to
                do.
        """

    def put_statement(statement: StatementRecord) -> Deferred[None]:
        """
        Store a statement; one that is stored already stays as it is.

        Returns:
            Fires after the durable commit; fails with StoreError.
        """

    def put_receipt(receipt: StoredReceipt) -> Deferred[None]:
        """
        Store a record of an exchange.

        Returns:
            Fires after the durable commit; fails with Replayed where the id, or the client's nonce, is stored already,
            else with another StoreError. None is refused for how many wait: whoever admits exchanges bounds them.
        """

    def put_draft(draft: Any, complete: CompleteDrafts) -> Deferred[StoredReceipt]:
        """
        Complete and store a record when the writer is free: ``complete`` gets all drafts that wait for it by then.

        Returns:
            Fires with the record after the durable commit; fails with what ``complete`` returned for the draft or
            raised, else as :meth:`put_receipt`.
        """

    def cancel(late: StoreLate, *, shared: bool = False) -> None:
        """
        Store a record no more whose put has failed as late, and delete it where that put has stored it, before any
        record that is put later is stored.

        Args:
            late: what the put has failed with.
            shared: whether another process may have stored the same record: it stays where it is not known whose it is.
        """

    def get_statement(statement_id: str) -> Deferred[bytes | None]:
        """Find a statement: the envelope's octets as they were put, or None."""

    def get_receipt(receipt_id: str) -> Deferred[StoredReceipt | None]:
        """Find a record by its id, as it was put, or None."""

    def get_by_request(client: str, key: str) -> Deferred[StoredReceipt | None]:
        """Find a record by the client's nonce, else a receipt by its ``jti``, among that client's records; or None."""

    def find(query: ReceiptQuery) -> Deferred[FoundReceipts]:
        """
        Find records, newest first. One search after the other is carried out, in slices between which other reads are
        carried out, and each reads a bounded number of records.

        Returns:
            A list of the records found, with ``next`` for the search that continues; fails with SearchesBusy where too
            many wait.
        """

    def nonce_known(client: str, nonce: str) -> Deferred[bool]:
        """Whether a record with this client and nonce is stored."""

    def reserve(client: str, nonce: str) -> Deferred[bool]:
        """
        Reserve a nonce for an exchange that begins, until a record with it is put, :meth:`give_back`, or the end of
        this process. The caller excludes nonces in use in this process; the store excludes those of other processes
        that share it.

        Returns:
            True where it was free: False where a record with it is stored, or another process has reserved it.
        """

    def give_back(client: str, nonce: str) -> Deferred[None]:
        """
        Release a nonce whose exchange leaves no record.

        Returns:
            Fires when it is released; a failure leaves it reserved for a while, no longer than this process runs.
        """

    def reserved(client: str, nonce: str) -> Deferred[bool]:
        """Whether an exchange with this nonce runs in another process that shares the store."""

    def prune(before: int) -> Deferred[int]:
        """
        Delete records issued before a NumericDate, then the statements that expired before it and that no record
        names, then the certificates that nothing uses.

        Returns:
            The number of records deleted.
        """

    def measure() -> Deferred[StoreUsage]:
        """Find out what the records take, and what room is left for more."""

    def close() -> Deferred[None]:
        """
        Commit what waits and close the database. Later calls fail with StoreClosed.

        Returns:
            Fires when all is closed; fails with StoreStuck where that takes too long. The process can end then: the
            Deferred of every record that still waited has failed.
        """
