"""
A notary store in memory.

Implements :class:`svc.store.interface.INotaryStore` and passes its contract tests; can also hold commits back, fail,
and be not writable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from svc.sqlite.threads import COMMIT_SECONDS
from svc.store.backend import STATEMENT_GRACE
from svc.store.errors import Replayed, StoreClosed, StoreError, StoreLate
from svc.store.interface import CompleteDrafts, INotaryStore
from svc.store.records import FoundReceipts, ReceiptQuery, RecordPosition, StatementRecord, StoredReceipt
from svc.store.usage import StoreUsage


@implementer(INotaryStore)
class MemoryStore:
    """
    Stores statements and receipts until the process ends.

    Attributes:
        hold: while True, records are acknowledged only by :meth:`release`.
        failure: while set, puts fail with it.
        elsewhere: client and nonce of exchanges that run in other processes, set by the test.
        given_back: client and nonce of each :meth:`give_back`.
    """

    def __init__(self) -> None:
        self.writable = False
        self.trouble = ""
        self.hold = False
        self.failure: StoreError | None = None
        self.elsewhere: set[tuple[str, str]] = set()
        self.given_back: list[tuple[str, str]] = []
        self._open = False
        self._held: list[tuple[Callable[[], None], Deferred[None]]] = []
        self._drafts: list[tuple[Any, CompleteDrafts, Deferred[StoredReceipt]]] = []
        self._statements: dict[str, tuple[int, bytes]] = {}
        self._receipts: dict[str, StoredReceipt] = {}
        self._nonces: dict[tuple[str, str], str] = {}

    def init(self) -> None:
        self._open = True
        self.writable = True

    def put_statement(self, statement: StatementRecord) -> Deferred[None]:
        row = (int(statement.expires.timestamp()), statement.envelope.serialize())
        return self._put(lambda: self._write_statement(statement.id, row))

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        return self._put(lambda: self._write_receipt(receipt))

    def put_draft(self, draft: Any, complete: CompleteDrafts) -> Deferred[StoredReceipt]:
        if not self._open:
            return fail(StoreClosed())
        if self.failure is not None:
            # Completed like others, and then refused.
            complete([draft])
            return fail(self.failure)
        done: Deferred[StoredReceipt] = Deferred()
        self._drafts.append((draft, complete, done))
        if not self.hold:
            self.release()
        return done

    def cancel(self, late: StoreLate, *, shared: bool = False) -> None:
        self._drafts = [each for each in self._drafts if each is not late.record]
        self._held = [each for each in self._held if each is not late.record]

    def get_statement(self, statement_id: str) -> Deferred[bytes | None]:
        if not self._open:
            return fail(StoreClosed())
        found = self._statements.get(statement_id)
        return succeed(None if found is None else found[1])

    def get_receipt(self, receipt_id: str) -> Deferred[StoredReceipt | None]:
        if not self._open:
            return fail(StoreClosed())
        return succeed(self._receipts.get(receipt_id))

    def get_by_request(self, client: str, key: str) -> Deferred[StoredReceipt | None]:
        if not self._open:
            return fail(StoreClosed())
        by_nonce = self._nonces.get((client, key))
        if by_nonce is not None:
            return succeed(self._receipts[by_nonce])
        named = (
            receipt
            for receipt in self._receipts.values()
            if receipt.client == client and receipt.jti == key and receipt.level == "signRequest"
        )
        return succeed(next(named, None))

    def find(self, query: ReceiptQuery) -> Deferred[FoundReceipts]:
        if not self._open:
            return fail(StoreClosed())
        found = FoundReceipts()
        before = query.before
        passed = before is None
        put_last_first = [*self._receipts.values()][::-1]
        for receipt in sorted(put_last_first, key=lambda each: -each.issued_at):
            passed = passed or (before is not None and receipt.issued_at < before.issued_at)
            if passed and _is_selected(receipt, query):
                found.append(receipt)
                if len(found) == query.limit:
                    found.next = RecordPosition(receipt.issued_at, receipt.id)
                    break
            passed = passed or (before is not None and receipt.id == before.id)
        return succeed(found)

    def nonce_known(self, client: str, nonce: str) -> Deferred[bool]:
        if not self._open:
            return fail(StoreClosed())
        return succeed((client, nonce) in self._nonces)

    def reserve(self, client: str, nonce: str) -> Deferred[bool]:
        """Reserve a nonce, unless it is stored or listed in :attr:`elsewhere`."""
        known = self.nonce_known(client, nonce)
        return known.addCallback(lambda stored: not stored and (client, nonce) not in self.elsewhere)

    def give_back(self, client: str, nonce: str) -> Deferred[None]:
        self.given_back.append((client, nonce))
        return succeed(None) if self._open else fail(StoreClosed())

    def reserved(self, client: str, nonce: str) -> Deferred[bool]:
        return succeed((client, nonce) in self.elsewhere) if self._open else fail(StoreClosed())

    def prune(self, before: int) -> Deferred[int]:
        if not self._open:
            return fail(StoreClosed())
        old = [receipt for receipt in self._receipts.values() if receipt.issued_at < before]
        for receipt in old:
            del self._receipts[receipt.id]
            if receipt.nonce is not None:
                del self._nonces[receipt.client, receipt.nonce]
        for statement_id, (expires, _envelope) in list(self._statements.items()):
            if expires < before - STATEMENT_GRACE:
                del self._statements[statement_id]
        return succeed(len(old))

    def measure(self) -> Deferred[StoreUsage]:
        if not self._open:
            return fail(StoreClosed())
        held: dict[str, int] = {}
        for receipt in self._receipts.values():
            held[receipt.client] = held.get(receipt.client, 0) + len(receipt.payload)
        return succeed(StoreUsage(sum(held.values()), held=held))

    def close(self) -> Deferred[None]:
        self.release()
        self._open = False
        self.writable = False
        return succeed(None)

    def release(self) -> None:
        """Acknowledge the records that are held back; the drafts among them are completed together."""
        drafts, self._drafts = self._drafts, []
        for complete in dict.fromkeys(complete for _draft, complete, _done in drafts):
            self._complete(complete, [(draft, done) for draft, each, done in drafts if each == complete])
        held, self._held = self._held, []
        for write, done in held:
            _commit(write, done)

    def expire(self) -> None:
        """Fail the records that are held back as late; those that are not cancelled stay held back."""
        drafts, self._drafts = self._drafts, []
        held, self._held = self._held, []
        for draft, complete, done in drafts:
            late = draft, complete, _unheard()
            self._drafts.append(late)
            done.errback(_late(late))
        for write, waiting in held:
            kept = write, _unheard()
            self._held.append(kept)
            waiting.errback(_late(kept))

    @property
    def held(self) -> int:
        """How many records wait for :meth:`release`."""
        return len(self._held) + len(self._drafts)

    def _complete(self, complete: CompleteDrafts, drafts: Sequence[tuple[Any, Deferred[StoredReceipt]]]) -> None:
        try:
            made = complete([draft for draft, _done in drafts])
        except Exception as error:  # noqa: BLE001 (as every store does)
            made = [error] * len(drafts)
        for record, (_draft, done) in zip(made, drafts, strict=True):
            if isinstance(record, Exception):
                done.errback(record)
                continue
            try:
                self._write_receipt(record)
            except StoreError as error:
                done.errback(error)
            else:
                done.callback(record)

    def _put(self, write: Callable[[], None]) -> Deferred[None]:
        if not self._open:
            return fail(StoreClosed())
        if self.failure is not None:
            return fail(self.failure)
        done: Deferred[None] = Deferred()
        self._held.append((write, done))
        if not self.hold:
            self.release()
        return done

    def _write_statement(self, statement_id: str, row: tuple[int, bytes]) -> None:
        self._statements.setdefault(statement_id, row)

    def _write_receipt(self, receipt: StoredReceipt) -> None:
        if receipt.id in self._receipts:
            raise Replayed(client=receipt.client)
        if receipt.nonce is not None:
            if (receipt.client, receipt.nonce) in self._nonces:
                raise Replayed(client=receipt.client)
            self._nonces[receipt.client, receipt.nonce] = receipt.id
        self._receipts[receipt.id] = receipt


def _is_selected(receipt: StoredReceipt, query: ReceiptQuery) -> bool:
    return (
        (query.since is None or receipt.issued_at >= query.since)
        and (query.until is None or receipt.issued_at < query.until)
        and (query.party is None or query.party in (receipt.client, receipt.server))
        and query.client in (None, receipt.client)
        and query.level in (None, receipt.level)
        and query.outcome in (None, receipt.outcome)
        and query.selects(receipt.payload)
    )


def _late(record: object) -> StoreLate:
    late = StoreLate(seconds=COMMIT_SECONDS)
    late.record = record
    return late


def _unheard() -> Deferred[Any]:
    return Deferred().addErrback(lambda _failure: None)


def _commit(write: Callable[[], None], done: Deferred[None]) -> None:
    try:
        write()
    except StoreError as error:
        done.errback(error)
    else:
        done.callback(None)
