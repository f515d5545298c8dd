"""
The notary of the running proxy: admits exchanges that need a record, signs receipts, and makes them durable before
their response is released.

Owns nonces in flight, the limit of waiting signatures, and which receipts are signed together. Receipts are signed on
the thread of the store that writes them, so that what waits for one commit is signed while the one before it is
written. Uses neither HTTP connections nor SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.ids import new_nonce
from svc.errors import SvcError
from svc.notary.batch import MAX_DELAY, MIN_BATCH, Inclusion, sign_batch
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import ExchangeOutcome, Peer, RecordedExchange, TlsFacts
from svc.notary.level import Level
from svc.notary.publish import RecordedPublish, publish_payload
from svc.notary.receipt import PayloadWriter, ReceiptDraft, Redaction, sign_receipt
from svc.notary.record_bound import stored_octets
from svc.proxy.errors import NonceReplayed, NotaryStoreUnavailable, NotaryUnavailable, ProxyError
from svc.proxy.records.places import Place, RecordPlaces
from svc.proxy.records.release_points import ReleaseObserver, ReleasePoint, unobserved
from svc.store.errors import Replayed, StoreError, StoreLate
from svc.store.interface import INotaryStore
from svc.store.records import StoredReceipt
from svc.strictjson import b64u_encode
from svc.transport.evidence import PeerEvidence

# Looking up a member of an enum costs three times what comparing it does.
_SIGNED: Final = Level.SIGN_REQUEST
#: A larger payload is signed alone, where a receipt that no verifier would read is refused: a batch leaves it the room.
_LARGEST_TOGETHER: Final = MAX_ENVELOPE // 2

Recorded = RecordedExchange | RecordedPublish
#: Ends an exchange whose record was not durable in time, and returns it as it ended.
BreakOff = Callable[[NotaryUnavailable], Recorded]


@dataclass(slots=True)
class Reservation:
    """The admission of one exchange that will be recorded; ``jti`` identifies it."""

    level: Level
    client: str
    nonce: str | None
    jti: str
    credentials: CredentialSet
    place: Place
    #: The identifier of the record; None where there is none, or none that is durable.
    receipt_id: str | None = None

    @property
    def key(self) -> str:
        """Nonce or ``jti``, under which the client finds the receipt."""
        return self.nonce or self.jti


@dataclass(slots=True, eq=False)
class _Unsigned:
    """A record on its way to its signature, and what came of that."""

    reservation: Reservation
    draft: ReceiptDraft
    outcome: ExchangeOutcome
    result: StoredReceipt | Exception | None = None

    def signed(self, **signatures: bytes) -> StoredReceipt:
        return _record(self.reservation, self.draft, self.outcome, **signatures)


def attested_client(evidence: PeerEvidence) -> tuple[Peer, TlsFacts]:
    """Return what records say of a verified client and its connection."""
    svid = evidence.svid
    return (
        Peer(svid.spiffe_id, b64u_encode(svid.certificate_sha256)),
        TlsFacts(evidence.tls_version, evidence.group, evidence.cipher, evidence.post_quantum),
    )


class Notarizer:
    """Admits, signs and commits; ``database`` is the name of the store in messages."""

    log = Logger()

    def __init__(
        self,
        store: INotaryStore,
        *,
        database: str,
        redaction: Redaction,
        places: RecordPlaces,
        random: Callable[[int], bytes],
        released: ReleaseObserver = unobserved,
    ) -> None:
        self._store = store
        self._database = database
        self.redaction = redaction
        self._places = places
        self._random = random
        self._payloads = PayloadWriter(redaction, random)
        self._on_release_point = released
        self._in_flight: dict[tuple[str, str], Reservation] = {}
        #: Records that wait for their signature and its commit.
        self.waiting = 0

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

        Where others want records too, or at the rate of the client, it waits for some seconds: read nothing more of the
        connection meanwhile. Fails with ``NotaryUnavailable``, ``NonceReplayed``, or ``NotaryRate`` after them.
        """
        refusal = self._refusal(client, nonce)
        if refusal is not None:
            return fail(refusal)
        place = self._places.take(client, octets)
        if isinstance(place, Place):
            return self._reserve(level, place, nonce, credentials)
        waits: Deferred[Any] = place
        return waits.addCallback(self._in_turn, level, nonce, credentials)

    @property
    def longest_wait(self) -> float:
        """Seconds that an admission may wait for its place."""
        return self._places.longest

    def withdraw(self, admission: Deferred[Any]) -> None:
        """An admission is not needed any more: it does not come where it waits for its place, otherwise it does."""
        self._places.withdraw(admission)

    def _refusal(self, client: str, nonce: str | None) -> ProxyError | None:
        if not self._store.writable:
            return NotaryStoreUnavailable(database=self._database, what=self._store.trouble or "it is not open")
        return NonceReplayed() if nonce is not None and (client, nonce) in self._in_flight else None

    def _in_turn(
        self, place: Place, level: Level, nonce: str | None, credentials: CredentialSet
    ) -> Deferred[Reservation]:
        """Admit what has waited for its place."""
        refusal = self._refusal(place.client, nonce)
        if refusal is not None:
            self._places.abandon(place)
            return fail(refusal)
        return self._reserve(level, place, nonce, credentials)

    def _reserve(
        self, level: Level, place: Place, nonce: str | None, credentials: CredentialSet
    ) -> Deferred[Reservation]:
        client = place.client
        reservation = Reservation(level, client, nonce, new_nonce(self._random(16)), credentials, place)
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
        self._places.abandon(reservation.place)
        if reservation.nonce is not None:
            self._give_back(reservation.client, reservation.nonce)

    def commit(
        self, reservation: Reservation, exchange: Recorded, late: BreakOff | None = None
    ) -> Deferred[StoredReceipt | None]:
        """
        Make the record of an exchange, or of a message of MQTT, durable, signed at the level ``signRequest``.

        Fires when it is on disk, with a signed record or None; fails with ``NotaryUnavailable`` or ``NonceReplayed``.
        Where it is not durable in time and ``late`` is given, it is cancelled; ``late`` is called with the cause, ends
        the exchange, and returns what is recorded in its place: what this returned waits for that.
        """
        return self._commit(reservation, lambda: exchange, late)

    def release_nonce(self, reservation: Reservation) -> None:
        """Give the nonce of a reservation back; the record is found by its ``jti``."""
        if reservation.nonce is not None:
            self._in_flight.pop((reservation.client, reservation.nonce), None)
            self._give_back(reservation.client, reservation.nonce)
            reservation.nonce = None
            self._in_flight[reservation.client, reservation.key] = reservation

    def _commit(
        self, reservation: Reservation, exchange: Callable[[], Recorded], late: BreakOff | None
    ) -> Deferred[StoredReceipt | None]:
        done: Deferred[Any]
        try:
            done = self._put(reservation, exchange())
        except Exception:  # noqa: BLE001 (logged below; the reservation is given back whatever happened)
            done = fail()
        return done.addBoth(self._committed, reservation, late)

    def recorded(self, client: str, key: str) -> Deferred[StoredReceipt | None]:
        """Find a durable record by the client's nonce or its ``jti``; fails with ``NotaryUnavailable``."""
        return maybeDeferred(self._store.get_by_request, client, key).addErrback(self._unavailable)

    def _give_back(self, client: str, nonce: str) -> None:
        given_back = maybeDeferred(self._store.give_back, client, nonce)
        given_back.addErrback(self._unavailable)
        # Its result is not waited for: another replica may refuse the nonce a little longer.
        given_back.addErrback(lambda failure: failure.trap(NotaryUnavailable))

    def _put(self, reservation: Reservation, exchange: Recorded) -> Deferred[Any]:
        draft = self._draft(reservation.credentials, exchange)
        reservation.receipt_id = draft.id
        self._places.recording(reservation.place)
        if reservation.level is _SIGNED:
            done = self._store.put_draft(_Unsigned(reservation, draft, exchange.outcome), self._sign)
            self.waiting += 1
            return done.addBoth(self._signed, reservation)
        self._places.settle(reservation.place, stored_octets(draft.payload, draft.disclosures))
        self._on_release_point(ReleasePoint.RECEIPT_SIGNED)
        return self._store.put_receipt(_record(reservation, draft, exchange.outcome))

    def _draft(self, credentials: CredentialSet, exchange: Recorded) -> ReceiptDraft:
        statement_id, issuer = credentials.statement.id, credentials.spiffe_id
        if isinstance(exchange, RecordedPublish):
            return publish_payload(exchange, statement_id, issuer, self.redaction, self._random)
        return self._payloads.write(exchange, statement_id, issuer)

    def _signed(self, result: StoredReceipt | Failure, reservation: Reservation) -> StoredReceipt | Failure:
        self.waiting -= 1
        if not isinstance(result, Failure):
            self._places.settle(reservation.place, _octets(result, reservation.credentials))
        return result

    # -- On the thread of the store that writes --

    def _sign(self, drafts: Sequence[_Unsigned]) -> list[StoredReceipt | Exception]:
        """Sign records, those of one credential set together."""
        sets: dict[int, list[_Unsigned]] = {}
        for each in drafts:
            sets.setdefault(id(each.reservation.credentials), []).append(each)
        for together in sets.values():
            oldest = max(each.draft.issued_at for each in together) - MAX_DELAY
            batch: list[_Unsigned] = []
            alone: list[list[_Unsigned]] = []
            for each in together:
                fits = each.draft.issued_at >= oldest and len(each.draft.payload) <= _LARGEST_TOGETHER
                batch.append(each) if fits else alone.append([each])
            for signed in ([batch] if batch else []) + alone:
                try:
                    self._sign_together(signed)
                except Exception as error:  # noqa: BLE001 (of these records alone)
                    for each in signed:
                        each.result = error
        for _each in drafts:
            self._on_release_point(ReleasePoint.RECEIPT_SIGNED)
        return [each.result or NotaryUnavailable() for each in drafts]

    def _sign_together(self, records: Sequence[_Unsigned]) -> None:
        """Sign records of one credential set: one alone by an envelope, several by that of a batch."""
        credentials = records[0].reservation.credentials
        drafts = [each.draft for each in records]
        if len(records) < MIN_BATCH:
            records[0].result = records[0].signed(envelope=sign_receipt(drafts[0], credentials.signers).serialize())
            return
        issued_at = max(draft.issued_at for draft in drafts)
        signed = sign_batch(drafts, credentials.spiffe_id, credentials.signers, issued_at, self._random)
        for each, inclusion in zip(records, signed.inclusions, strict=True):
            each.result = each.signed(batch=signed.envelope, inclusion=inclusion.to_octets())

    def _admitted(self, free: bool, reservation: Reservation) -> Reservation:
        if not free:
            # The reservation belongs to the other exchange.
            self._in_flight.pop((reservation.client, reservation.key), None)
            self._places.abandon(reservation.place)
            raise NonceReplayed()
        return reservation

    def _reservation_failed(self, failure: Failure, reservation: Reservation) -> Failure:
        self.abandon(reservation)
        return self._unavailable(failure)

    def _committed(
        self, result: StoredReceipt | Failure | None, reservation: Reservation, late: BreakOff | None
    ) -> Any:
        if isinstance(result, Failure):
            reservation.receipt_id = None
            if late is not None and isinstance(result.value, StoreLate):
                cause = NotaryStoreUnavailable(database=self._database, what=result.value)
                self._store.cancel(result.value)
                return self._commit(reservation, lambda: late(cause), None)
            self.abandon(reservation)
            if result.check(Replayed):
                return Failure(NonceReplayed())
            return self._unavailable(result)
        self._in_flight.pop((reservation.client, reservation.key), None)
        self._places.give_back(reservation.place)
        return result

    def _unavailable(self, failure: Failure) -> Failure:
        if not failure.check(SvcError):
            self.log.failure("the notary failed unexpectedly", failure)
        if isinstance(failure.value, StoreError):
            return Failure(NotaryStoreUnavailable(database=self._database, what=failure.value))
        return Failure(NotaryUnavailable())


def _record(
    reservation: Reservation,
    draft: ReceiptDraft,
    outcome: ExchangeOutcome,
    envelope: bytes | None = None,
    batch: bytes | None = None,
    inclusion: bytes | None = None,
) -> StoredReceipt:
    credentials = reservation.credentials
    return StoredReceipt(
        id=draft.id,
        level=reservation.level.value,
        client=reservation.client,
        server=str(credentials.spiffe_id),
        nonce=reservation.nonce,
        jti=reservation.jti,
        issued_at=draft.issued_at,
        outcome=outcome.value,
        envelope=envelope,
        payload=draft.payload,
        disclosures=draft.disclosures,
        statement_id=credentials.statement.id,
        batch=batch,
        inclusion=inclusion,
    )


def _octets(record: StoredReceipt, credentials: CredentialSet) -> int:
    """What a signed record takes in a store: of a batch its share."""
    octets = stored_octets(record.payload, record.disclosures)
    if record.inclusion is not None and record.batch is not None:
        shared = len(record.batch) - credentials.certificate_octets
        return octets + len(record.inclusion) + -(-shared // Inclusion.from_octets(record.inclusion).size)
    if record.envelope is not None:
        octets += len(record.envelope) - credentials.certificate_octets - -(-len(record.payload) * 4 // 3)
    return octets
