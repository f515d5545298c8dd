"""
What a notary store is.

Every store, embedded or not, provides :class:`INotaryStore` and passes the same contract tests. Methods are called on
the reactor's thread; what they return fires there.
"""

# Methods of a zope interface are declared without ``self``.
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from svc.store.records import StatementRecord, StoredReceipt

#: Label values of ``svc_proxy_notary_db_errors_total``.
Operation = Literal["put", "get", "init", "close"]
Entity = Literal["certificate_blob", "workload_statement", "receipt", "db"]


class StoreObserver(Protocol):
    """Who wants to know what a store does; called on the reactor's thread."""

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """The database refused an operation on an entity; ``detail`` is what it said, for people."""

    def committed(self, count: int, seconds: float) -> None:
        """A group of ``count`` records became durable, which took ``seconds``."""

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """New records can be promised a place, or can no longer, and why not."""

    def damaged(self, path: str) -> None:
        """Damage was met while the database at ``path`` is in use; it takes no more records until a new start."""

    def set_aside(self, path: str, aside: str) -> None:
        """The database at ``path`` was found damaged at the start and renamed to ``aside``."""

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Records of before are not in this database but in those that were set aside as ``paths``."""


class SilentStoreObserver:
    """A :class:`StoreObserver` that does nothing."""

    def db_error(self, op: Operation, entity: Entity, detail: str = "") -> None:
        """Do nothing."""

    def committed(self, count: int, seconds: float) -> None:
        """Do nothing."""

    def writable_changed(self, writable: bool, trouble: str = "") -> None:
        """Do nothing."""

    def damaged(self, path: str) -> None:
        """Do nothing."""

    def set_aside(self, path: str, aside: str) -> None:
        """Do nothing."""

    def lies_aside(self, paths: Sequence[str]) -> None:
        """Do nothing."""


class INotaryStore(Interface):
    """Keeps statements and receipts durably."""

    writable: bool = Attribute(
        "Whether a new record can be promised a place; a request that needs one is not forwarded while this is False."
    )

    trouble: str = Attribute("Why not, in the words of an operator: the cause and what the database said; else empty.")

    def init() -> None:
        """
        Open the database, make it or bring it to the current schema. Blocks; called once, at start.

        Raises:
            StoreError: the subclass names what is wrong and what to do.
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
            with StoreBusy where too many wait, else with another StoreError.
        """

    def get_statement(statement_id: str) -> Deferred[bytes | None]:
        """
        Find a statement.

        Returns:
            The envelope's octets as they were put, or None.
        """

    def get_receipt(receipt_id: str) -> Deferred[StoredReceipt | None]:
        """
        Find a record by its id.

        Returns:
            The record as it was put, or None.
        """

    def get_by_request(client: str, key: str) -> Deferred[StoredReceipt | None]:
        """
        Find a record by the client's nonce or, failing that, by its ``jti``, among that client's records.

        Returns:
            The record as it was put, or None.
        """

    def nonce_known(client: str, nonce: str) -> Deferred[bool]:
        """
        Say whether a record with this client and nonce is stored.

        Returns:
            True or False.
        """

    def reserve(client: str, nonce: str) -> Deferred[bool]:
        """
        Keep a nonce for an exchange that begins, until a record with it is put, :meth:`give_back`, or the end of this
        process. Who calls it knows what runs in this process; the store knows the other processes that share it.

        Returns:
            True where it was free: False where a record with it is stored, or another process keeps it.
        """

    def give_back(client: str, nonce: str) -> Deferred[None]:
        """
        Give a nonce back whose exchange leaves no record.

        Returns:
            Fires when it is given back; a failure leaves it kept for a while, no longer than this process lives.
        """

    def reserved(client: str, nonce: str) -> Deferred[bool]:
        """
        Say whether an exchange with this nonce runs in another process that shares the store.

        Returns:
            True or False.
        """

    def prune(before: int) -> Deferred[int]:
        """
        Forget records issued before a NumericDate, then the statements that expired before it and that no record
        names, then the certificates that nothing uses.

        Returns:
            The number of records forgotten.
        """

    def close() -> Deferred[None]:
        """
        Commit what waits and let go of the database. Later calls fail with StoreClosed.

        Returns:
            Fires when all is closed; fails with StoreStuck where that takes too long. The process can end then: whoever
            still waited for a record has been told that it is not stored.
        """
