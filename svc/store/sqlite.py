"""skeleton, bodies follow"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from svc.store.interface import INotaryStore, StoreObserver
from svc.store.records import StatementRecord, StoredReceipt


@implementer(INotaryStore)
class SqliteStore:
    writable: bool

    def __init__(
        self,
        path: str,
        *,
        reactor: object,
        observer: StoreObserver | None = None,
        queue_limit: int = 4096,
        reserve_size: int = 16 * 1024 * 1024,
        retry_interval: float = 1.0,
    ) -> None:
        self.writable = False

    def init(self) -> None: ...

    def put_statement(self, statement: StatementRecord) -> Deferred[None]:
        raise NotImplementedError

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        raise NotImplementedError

    def get_statement(self, statement_id: str) -> Deferred[bytes | None]:
        raise NotImplementedError

    def get_receipt(self, receipt_id: str) -> Deferred[StoredReceipt | None]:
        raise NotImplementedError

    def get_by_request(self, client: str, key: str) -> Deferred[StoredReceipt | None]:
        raise NotImplementedError

    def nonce_known(self, client: str, nonce: str) -> Deferred[bool]:
        raise NotImplementedError

    def prune(self, before: int) -> Deferred[int]:
        raise NotImplementedError

    def close(self) -> Deferred[None]:
        raise NotImplementedError
