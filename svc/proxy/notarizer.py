"""
The notary of the running proxy: admits exchanges that need a record, signs receipts beside the reactor, and makes them
durable before their response is released.

Owns nonces in flight, the limit of waiting signatures, and the signing thread. Uses neither HTTP connections nor SQL.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import RecordedExchange
from svc.notary.ids import new_nonce
from svc.notary.level import Level
from svc.notary.receipt import Redaction, receipt_payload, sign_receipt
from svc.notary.record_bound import stored_octets
from svc.proxy.errors import NonceReplayed, NotaryRate, NotaryStoreUnavailable, NotaryUnavailable
from svc.proxy.record_budget import RecordBudget
from svc.proxy.release_points import ReleaseObserver, ReleasePoint, unobserved
from svc.store.errors import Replayed, StoreError
from svc.store.interface import INotaryStore
from svc.store.records import StoredReceipt

#: Signatures handed to the reactor in one go: more would let the first wait for the last.
_HANDOVER: Final = 8


@dataclass(slots=True)
class Reservation:
    """The admission of one exchange that will be recorded; ``jti`` identifies it."""

    level: Level
    client: str
    nonce: str | None
    jti: str
    credentials: CredentialSet
    #: What it takes of its client's budget.
    octets: int
    #: The identifier of the record; None where there is none, or none that is durable.
    receipt_id: str | None = None

    @property
    def key(self) -> str:
        """Nonce or ``jti``, under which the client finds the receipt."""
        return self.nonce or self.jti


class SigningThread:
    """Runs signing work on its own thread, in order; results go to the reactor in small batches."""

    def __init__(self, reactor: IReactorFromThreads, name: str = "svc-signing") -> None:
        self._reactor = reactor
        self._work: queue.SimpleQueue[tuple[Deferred[StoredReceipt], Callable[[], StoredReceipt]] | None]
        self._work = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopped = False
        self.waiting = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the submitted work, and wait for it; later work is refused."""
        self._stopped = True
        if self._thread.is_alive():
            self._work.put(None)
            self._thread.join(timeout=10.0)

    def submit(self, work: Callable[[], StoredReceipt]) -> Deferred[StoredReceipt]:
        """Run work on the thread; fires on the reactor, and fails with ``NotaryUnavailable`` after the stop."""
        if self._stopped:
            return fail(NotaryUnavailable())
        done: Deferred[StoredReceipt] = Deferred()
        self.waiting += 1
        self._work.put((done, work))
        return done

    def _run(self) -> None:
        results: list[tuple[Deferred[StoredReceipt], StoredReceipt | Failure]] = []
        while True:
            item = self._work.get()
            while item is not None:
                done, work = item
                try:
                    results.append((done, work()))
                except Exception:  # noqa: BLE001 (whatever happened belongs to the one who gave the work)
                    results.append((done, Failure()))
                if len(results) >= _HANDOVER:
                    break
                try:
                    item = self._work.get_nowait()
                except queue.Empty:
                    break
            if results:
                self._reactor.callFromThread(self._deliver, results)
                results = []
            if item is None:
                return

    def _deliver(self, results: list[tuple[Deferred[StoredReceipt], StoredReceipt | Failure]]) -> None:
        self.waiting -= len(results)
        for done, result in results:
            if isinstance(result, Failure):
                done.errback(result)
            else:
                done.callback(result)


class Notarizer:
    """Admits, signs and commits; ``database`` is the name of the store in messages."""

    log = Logger()

    def __init__(
        self,
        store: INotaryStore,
        signing: SigningThread,
        *,
        database: str,
        redaction: Redaction,
        budget: RecordBudget,
        queue_limit: int,
        random: Callable[[int], bytes],
        released: ReleaseObserver = unobserved,
    ) -> None:
        self._store = store
        self._signing = signing
        self._database = database
        self.redaction = redaction
        self._budget = budget
        self._queue_limit = queue_limit
        self._random = random
        self._on_release_point = released
        self._in_flight: dict[tuple[str, str], Reservation] = {}

    @property
    def in_flight(self) -> int:
        """Exchanges that were admitted and not yet committed or abandoned."""
        return len(self._in_flight)

    def is_in_flight(self, client: str, key: str) -> bool:
        """Whether the exchange with this nonce or ``jti`` is not durable yet."""
        return (client, key) in self._in_flight

    def admit(
        self, level: Level, client: str, nonce: str | None, credentials: CredentialSet, octets: int
    ) -> Deferred[Reservation]:
        """
        Reserve what an exchange will need, before anything of it is forwarded; ``octets`` is the most its record takes.

        Fails with ``NotaryUnavailable``, ``NotaryRate`` or ``NonceReplayed``.
        """
        if not self._store.writable:
            return fail(NotaryStoreUnavailable(database=self._database, what=self._store.trouble or "it is not open"))
        if nonce is not None and (client, nonce) in self._in_flight:
            return fail(NonceReplayed())
        if level is Level.SIGN_REQUEST and self._signing.waiting >= self._queue_limit:
            what = f"{self._queue_limit} signatures already wait (notary.queue)"
            return fail(NotaryRate(what=what, retry_after=1))
        refused = self._budget.reserve(client, octets)
        if refused is not None:
            return fail(self._budget.exceeded(*refused))
        reservation = Reservation(level, client, nonce, new_nonce(self._random(16)), credentials, octets)
        self._in_flight[client, reservation.key] = reservation
        if nonce is None:
            return succeed(reservation)
        free = maybeDeferred(self._store.reserve, client, nonce)
        return free.addCallbacks(
            self._admitted, self._reservation_failed, callbackArgs=(reservation,), errbackArgs=(reservation,)
        )

    def abandon(self, reservation: Reservation) -> None:
        """Give a reservation back without a record."""
        if self._in_flight.pop((reservation.client, reservation.key), None) is None:
            return
        self._budget.give_back(reservation.client, reservation.octets)
        if reservation.nonce is not None:
            given_back = maybeDeferred(self._store.give_back, reservation.client, reservation.nonce)
            given_back.addErrback(self._unavailable)
            # Its result is not waited for: another replica may refuse the nonce a little longer.
            given_back.addErrback(lambda failure: failure.trap(NotaryUnavailable))

    def commit(self, reservation: Reservation, exchange: RecordedExchange) -> Deferred[None]:
        """
        Make the record of an exchange durable, signed at the level ``signRequest``.

        Fires when the record is on disk; fails with ``NotaryUnavailable`` or ``NonceReplayed``.
        """
        if reservation.level is Level.SIGN_REQUEST:
            made = self._signing.submit(lambda: self._record(reservation, exchange))
        else:
            made = maybeDeferred(self._record, reservation, exchange)
        done: Deferred[None] = made.addCallback(self._put, reservation)
        return done.addBoth(self._committed, reservation)

    def _put(self, record: StoredReceipt, reservation: Reservation) -> Deferred[None]:
        taken = stored_octets(
            record.payload, record.disclosures, record.envelope, reservation.credentials.certificate_octets
        )
        self._budget.give_back(reservation.client, reservation.octets - taken)
        reservation.octets = taken
        reservation.receipt_id = record.id
        self._on_release_point(ReleasePoint.RECEIPT_SIGNED)
        return self._store.put_receipt(record)

    def _record(self, reservation: Reservation, exchange: RecordedExchange) -> StoredReceipt:
        credentials = reservation.credentials
        draft = receipt_payload(exchange, credentials.statement.id, credentials.spiffe_id, self.redaction, self._random)
        signed = reservation.level is Level.SIGN_REQUEST
        return StoredReceipt(
            id=draft.id,
            level=reservation.level.value,
            client=reservation.client,
            server=str(credentials.spiffe_id),
            nonce=reservation.nonce,
            jti=reservation.jti,
            issued_at=draft.issued_at,
            outcome=exchange.outcome.value,
            envelope=sign_receipt(draft, credentials.signers).serialize() if signed else None,
            payload=draft.payload,
            disclosures=draft.disclosures,
            statement_id=credentials.statement.id,
        )

    def _admitted(self, free: bool, reservation: Reservation) -> Reservation:
        if not free:
            # The reservation belongs to the other exchange.
            self._in_flight.pop((reservation.client, reservation.key), None)
            self._budget.give_back(reservation.client, reservation.octets)
            raise NonceReplayed()
        return reservation

    def _reservation_failed(self, failure: Failure, reservation: Reservation) -> Failure:
        self.abandon(reservation)
        return self._unavailable(failure)

    def _committed(self, result: Failure | None, reservation: Reservation) -> Failure | None:
        if isinstance(result, Failure):
            reservation.receipt_id = None
            self.abandon(reservation)
            if result.check(Replayed):
                return Failure(NonceReplayed())
            return self._unavailable(result)
        self._in_flight.pop((reservation.client, reservation.key), None)
        return None

    def _unavailable(self, failure: Failure) -> Failure:
        if not failure.check(SvcError):
            self.log.failure("the notary failed unexpectedly", failure)
        if isinstance(failure.value, StoreError):
            return Failure(NotaryStoreUnavailable(database=self._database, what=failure.value))
        return Failure(NotaryUnavailable())
