"""
Keeps the verified receipts of peers in the own notary database, with the statements that they name.

Owns the receipts that are promised and not durable yet, and what of an artifact becomes a record. The client of such a
record is this proxy's own identity, its server the peer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, fail, succeed

from svc.envelope.envelope import MAX_ENVELOPE, Envelope
from svc.notary.artifact import BatchedReceipt, ReceiptArtifact
from svc.notary.record_bound import stored_octets
from svc.proxy.errors import NotaryStoreUnavailable
from svc.proxy.records.places import Place, RecordPlaces
from svc.proxy.records.release_points import ReleaseObserver, ReleasePoint, unobserved
from svc.store.errors import Replayed, StoreError, StoreLate
from svc.store.interface import INotaryStore
from svc.store.records import StoredReceipt

if TYPE_CHECKING:
    from svc.notary.receipt import Disclosures
    from svc.notary.receiptcheck import ReceiptEvidence
    from svc.proxy.peer_statement import PeerStatement


@dataclass(frozen=True, slots=True)
class CollectedPlace:
    """The place of one receipt in the database, promised before its request is sent."""

    client: str
    nonce: str
    queued: Place


@dataclass(frozen=True, slots=True)
class _Statement:
    """See :class:`svc.store.records.StatementRecord`."""

    id: str
    envelope: Envelope
    expires: datetime


class ReceiptCollector:
    """Stores the receipts that the applications of this machine ask peers for; ``database`` is its name in messages."""

    def __init__(
        self, store: INotaryStore, *, database: str, places: RecordPlaces, released: ReleaseObserver = unobserved
    ) -> None:
        self._store = store
        self._database = database
        self._places = places
        self._on_release_point = released
        self._promised: dict[tuple[str, str], CollectedPlace] = {}

    @property
    def in_flight(self) -> int:
        """Receipts that are promised and neither durable nor given up."""
        return len(self._promised)

    def is_in_flight(self, client: str, nonce: str) -> bool:
        """Whether the receipt of a request is promised and not durable yet."""
        return (client, nonce) in self._promised

    def admit(self, client: str, nonce: str) -> Deferred[CollectedPlace]:
        """
        Promise a receipt a place, before its request is sent; at the rate of the identity that waits for some seconds.

        Fails with ``NotaryStoreUnavailable`` where the database takes no records, and ``NotaryRate``.
        """
        if not self._store.writable:
            what = self._store.trouble or "it is not open"
            return fail(NotaryStoreUnavailable(database=self._database, what=what))
        taken = self._places.take(client, MAX_ENVELOPE)
        if isinstance(taken, Place):
            return succeed(self._promise(taken, client, nonce))
        waits: Deferred[Any] = taken
        return waits.addCallback(self._promise, client, nonce)

    def withdraw(self, admission: Deferred[Any]) -> None:
        """A place is not needed any more; it is not promised where it waits."""
        self._places.withdraw(admission)

    def _promise(self, queued: Place, client: str, nonce: str) -> CollectedPlace:
        place = CollectedPlace(client, nonce, queued)
        self._promised[client, nonce] = place
        return place

    def abandon(self, place: CollectedPlace) -> None:
        """Give a place back without a receipt."""
        if self._promised.pop((place.client, place.nonce), None) is not None:
            self._places.abandon(place.queued)

    async def put(
        self, place: CollectedPlace, receipt: ReceiptEvidence, artifact: ReceiptArtifact, statement: PeerStatement
    ) -> None:
        """
        Make a receipt durable, and the statement before it.

        Raises:
            NotaryStoreUnavailable: the database did not take it; the place is given back.
        """
        disclosures = cast("Disclosures | None", artifact.extra.get("disclosures"))
        if isinstance(artifact, BatchedReceipt):
            signed, inclusion = replace(artifact.batch, extra={}), artifact.inclusion.to_octets()
        else:
            signed, inclusion = replace(artifact, extra={}), None
        octets = signed.serialize()
        record = StoredReceipt(
            id=receipt.id,
            level=receipt.level.value,
            client=place.client,
            server=str(receipt.issuer),
            nonce=place.nonce,
            jti=str(receipt.claims["jti"]),
            issued_at=int(receipt.issued.timestamp()),
            outcome=receipt.outcome.value,
            envelope=octets if inclusion is None else None,
            payload=artifact.payload,
            disclosures=disclosures,
            statement_id=receipt.statement_id,
            batch=None if inclusion is None else octets,
            inclusion=inclusion,
        )
        self._on_release_point(ReleasePoint.RECEIPT_SIGNED)
        self._places.recording(place.queued)
        taken = 0
        try:
            if not statement.stored:
                evidence, envelope = statement.evidence, replace(statement.envelope, extra={})
                taken = len(envelope.serialize())
                await self._store.put_statement(_Statement(evidence.id, envelope, evidence.expires))
                statement.stored = True
            await self._put_receipt(record)
        except StoreError as error:
            self.abandon(place)
            raise NotaryStoreUnavailable(database=self._database, what=error) from error
        self._promised.pop((place.client, place.nonce), None)
        certificates = sum(len(text) for entry in signed.signatures for text in entry.x5c)
        taken += stored_octets(record.payload, disclosures) + len(octets) + len(inclusion or b"") - certificates
        # A statement and a receipt may take more than was reserved: then the next request is refused the earlier.
        self._places.settle(place.queued, taken)
        self._places.give_back(place.queued)

    async def _put_receipt(self, record: StoredReceipt) -> None:
        try:
            await self._store.put_receipt(record)
        except StoreLate as late:
            # The response is refused; a peer that shares this database may have stored it.
            self._store.cancel(late, shared=True)
            raise
        except Replayed:
            # A peer that shares this database has stored it already.
            if await self._store.get_receipt(record.id) is None:
                raise
