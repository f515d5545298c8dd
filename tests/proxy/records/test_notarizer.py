"""Admission, the rate of each client, what is signed together, and the release of every reservation."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import Envelope
from svc.envelope.profile import Profile
from svc.notary.batch import MAX_BATCH, MAX_DELAY, Inclusion, receipt_leaf
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import EMPTY_BODY, ExchangeOutcome, Peer, RecordedExchange
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.merkle import HASH_FUNCTIONS, root_of_path
from svc.notary.receipt import Redaction
from svc.proxy.errors import NonceReplayed, NotaryRate, NotaryUnavailable, ProxyError
from svc.proxy.records.budget import Allowance, RecordBudget
from svc.proxy.records.notarizer import Notarizer, Reservation
from svc.proxy.records.places import RecordPlaces
from svc.proxy.records.release_points import ReleaseObserver, ReleasePoint, unobserved
from svc.store.errors import Replayed, StoreBusy, StoreClosed, StoreUnavailable
from svc.store.interface import CompleteDrafts
from svc.store.records import ReceiptQuery, StoredReceipt
from svc.strictjson import b64u_encode, loads_object
from svc.testing.store import MemoryStore
from tests.proxy.rig import BASE, CALLER, OWN

FACTS = WorkloadFacts.explicit(host_name="api-1", namespace="pay", service_account="api")
GENERATION = CredentialSet.issue(OWN, None, FACTS, Profile.CLASSICAL, BASE, os.urandom)
CLIENT = str(CALLER.spiffe_id)
NONCES = tuple(b64u_encode(bytes([number]) * 16) for number in range(3))
SIGN, LOG = Level.SIGN_REQUEST, Level.LOG_REQUEST
#: The largest record of the listener that admits.
OCTETS = 100_000
FULL = StoreUnavailable(path="notary.db", detail="disk full")


def exchange_of(reservation: Reservation, *, headers: int = 0) -> RecordedExchange:
    """Create a small exchange, or one with that many octets of headers."""
    return RecordedExchange(
        level=reservation.level,
        nonce=reservation.nonce,
        jti=reservation.jti,
        client=Peer(CALLER.spiffe_id, b64u_encode(bytes(32))),
        server=GENERATION.server,
        tls=None,
        method="GET",
        scheme="https",
        authority="api",
        path="/",
        query="",
        version="1.1",
        request_headers=((b"Host", b"api"), (b"X", b"x" * headers)),
        request_body=EMPTY_BODY,
        request_trailers=(),
        status=204,
        response_headers=(),
        response_body=EMPTY_BODY,
        response_trailers=(),
        received=BASE,
        completed=BASE + timedelta(seconds=1),
        outcome=ExchangeOutcome.COMPLETE,
    )


class PendingStore(MemoryStore):
    """A store whose nonce look-up can be delayed, fail, or raise."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, str, Deferred[bool]]] | None = None
        self.lookup_error: Exception | None = None
        self.waiting: list[tuple[Any, CompleteDrafts, Deferred[StoredReceipt]]] = []
        self.raises: Exception | None = None

    def nonce_known(self, client: str, nonce: str) -> Deferred[bool]:
        """Return, delay or fail the look-up, as the test has set."""
        if self.raises is not None:
            raise self.raises
        if self.lookup_error is not None:
            return fail(self.lookup_error)
        if self.answers is None:
            return super().nonce_known(client, nonce)
        later: Deferred[bool] = Deferred()
        self.answers.append((client, nonce, later))
        return later

    def put_receipt(self, receipt: StoredReceipt) -> Deferred[None]:
        """Raise if the test has set an exception."""
        if self.raises is not None:
            raise self.raises
        return super().put_receipt(receipt)

    def put_draft(self, draft: Any, complete: CompleteDrafts) -> Deferred[StoredReceipt]:
        """Hold the draft back until the test lets the writer take it; raise if the test has set an exception."""
        if self.raises is not None:
            raise self.raises
        done: Deferred[StoredReceipt] = Deferred()
        self.waiting.append((draft, complete, done))
        return done

    def sign(self, count: int = 1) -> None:
        """Let the writer take the oldest drafts, as many as the test says, in one group."""
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        if taken:
            made = taken[0][1]([draft for draft, _complete, _done in taken])
            for record, (_draft, _complete, done) in zip(made, taken, strict=True):
                super().put_draft(record, lambda records: records).chainDeferred(done)

    def answer(self) -> None:
        """Complete the oldest look-up with what is stored."""
        if self.answers:
            client, nonce, later = self.answers.pop(0)
            super().nonce_known(client, nonce).chainDeferred(later)


class NotarizerTestCase(SynchronousTestCase):
    """Base class: a notarizer with a manual store and manual signing."""

    def setUp(self) -> None:
        """Create the notarizer."""
        self.clock = Clock()
        self.store = PendingStore()
        self.store.init()
        self.notarizer = self.make()

    def make(
        self,
        *,
        rate: float = 1000.0,
        burst: float = 1000.0,
        longest: float = 0.0,
        octets: Allowance = Allowance(2**20, 2**30),  # noqa: B008 (frozen)
        queue_limit: int = 4,
        released: ReleaseObserver = unobserved,
    ) -> Notarizer:
        """Create a notarizer."""
        return Notarizer(
            self.store,
            database="/var/lib/svc/notary.db",
            redaction=Redaction(),
            places=RecordPlaces(
                queue_limit, self.clock, longest, RecordBudget(Allowance(rate, burst), octets, self.clock, longest)
            ),
            random=os.urandom,
            released=released,
        )

    def admit(self, level: Level = SIGN, nonce: str | None = NONCES[0], client: str = CLIENT) -> Deferred[Reservation]:
        """Request admission."""
        return self.notarizer.admit(level, client, nonce, GENERATION, OCTETS)

    def reservation(self, level: Level = SIGN, nonce: str | None = NONCES[0]) -> Reservation:
        """Return an admitted reservation."""
        return self.successResultOf(self.admit(level, nonce))

    def refused(self, kind: type[Exception], level: Level = SIGN, nonce: str | None = NONCES[0]) -> Exception:
        """Assert that admission fails; return the error."""
        error: Exception = self.failureResultOf(self.admit(level, nonce), kind).value
        return error


class AdmissionTests(NotarizerTestCase):
    """Admission, before anything is forwarded."""

    def test_reservation(self) -> None:
        """A reservation has the receipt's key: the nonce, or the identifier if there is none."""
        reservation = self.reservation()
        self.assertEqual(
            (reservation.level, reservation.client, reservation.nonce, reservation.key),
            (SIGN, CLIENT, NONCES[0], NONCES[0]),
        )
        self.assertIs(reservation.credentials, GENERATION)
        own = self.reservation(LOG, None)
        self.assertEqual((own.key, len(own.jti)), (own.jti, 22))
        self.assertNotEqual(own.jti, reservation.jti)
        self.assertEqual(self.notarizer.in_flight, 2)
        self.assertTrue(self.notarizer.is_in_flight(CLIENT, NONCES[0]))
        self.assertTrue(self.notarizer.is_in_flight(CLIENT, own.jti))
        self.assertFalse(self.notarizer.is_in_flight("spiffe://prod.example/other", NONCES[0]))

    def test_store_that_is_not_writable(self) -> None:
        """While the store is not writable nothing is admitted, and no token is spent."""
        self.notarizer = self.make(rate=0.001, burst=1)
        self.store.writable = False
        self.store.trouble = "disk full, 0 octets free on its file system"
        for level in (SIGN, LOG):
            error = self.refused(NotaryUnavailable, level)
            self.assertEqual(
                f"the notary database /var/lib/svc/notary.db takes no record right now: {self.store.trouble}",
                str(error),
            )
        self.assertEqual(self.notarizer.in_flight, 0)
        self.store.writable = True
        self.reservation()

    def test_rate(self) -> None:
        """Signed and unsigned records share one rate limit a client; the refusal has the seconds to wait."""
        self.notarizer = self.make(rate=0.1, burst=2)
        self.reservation(nonce=None)
        self.reservation(LOG, None)
        for level in (SIGN, LOG):
            error = self.failureResultOf(self.admit(level, None), NotaryRate).value
            self.assertEqual(error.retry_after, 10)
            self.assertIn("receiptsPerSecond", str(error))
        self.successResultOf(self.admit(nonce=None, client="spiffe://prod.example/other"))
        self.clock.advance(10)
        self.reservation(nonce=None)
        self.assertEqual(self.notarizer.in_flight, 4)

    def test_octets(self) -> None:
        """The octets of the largest record are reserved; what the actual record does not use is returned."""
        self.notarizer = self.make(octets=Allowance(1000, OCTETS + 5000))
        reservation = self.reservation(LOG, None)
        error = self.failureResultOf(self.admit(LOG, None), NotaryRate).value
        self.assertEqual(error.retry_after, math.ceil((OCTETS - 5000) / 1000))
        self.assertIn("recordOctetsPerSecond", str(error))
        self.notarizer.commit(reservation, exchange_of(reservation))
        self.assertTrue(1000 < reservation.place.octets < 5000, reservation.place.octets)
        other = self.reservation(LOG, None)
        self.refused(NotaryRate, LOG, None)
        self.notarizer.abandon(other)
        self.reservation(LOG, None)

    def test_octets_of_what_leaves_no_record(self) -> None:
        """A replayed nonce, a failing store and a failing signature cost no octets."""
        self.notarizer = self.make(octets=Allowance(0.001, OCTETS))
        first = self.reservation(LOG)
        self.refused(NonceReplayed, LOG)
        self.notarizer.abandon(first)
        self.store.answers = []
        taken = self.admit(LOG, NONCES[1])
        self.store.answers.pop()[2].callback(True)
        self.failureResultOf(taken, NonceReplayed)
        self.store.answers = None
        reservation = self.reservation(LOG, None)
        self.store.raises = FULL
        self.failureResultOf(self.notarizer.commit(reservation, exchange_of(reservation)), NotaryUnavailable)
        self.store.raises = None
        reservation = self.reservation(SIGN, None)
        done = self.notarizer.commit(reservation, exchange_of(reservation, headers=300_000))
        self.store.sign()
        self.failureResultOf(done, NotaryUnavailable)
        self.reservation(LOG, None)

    def test_signed_record(self) -> None:
        """Certificates and the second copy of the payload are not counted, since the store keeps them once."""
        reservation = self.reservation(nonce=None)
        self.notarizer.commit(reservation, exchange_of(reservation))
        self.store.sign()
        certificates = GENERATION.certificate_octets
        self.assertTrue(
            2000 < reservation.place.octets < GENERATION.signature_octets - certificates + 6000,
            reservation.place.octets,
        )

    def test_queue_limit(self) -> None:
        """At the limit of queued records, signed or not, none is admitted; one below it one is."""
        self.notarizer = self.make(queue_limit=2)
        self.store.hold = True
        for level in (SIGN, LOG):
            reservation = self.reservation(level, None)
            self.notarizer.commit(reservation, exchange_of(reservation))
        for level in (SIGN, LOG):
            self.refused(NotaryRate, level, None)
        self.store.release()
        self.reservation(nonce=None)
        self.refused(NotaryRate, nonce=None)

    def test_waits_for_the_rate(self) -> None:
        """At the rate an admission waits for its turn, and is refused after a time; a withdrawn one takes nothing."""
        self.notarizer = self.make(rate=1, burst=1, longest=3)
        self.reservation(nonce=None)
        waiting = [self.admit(LOG, None) for _ in range(5)]
        self.notarizer.withdraw(waiting[1])
        self.clock.advance(0.999)
        self.assertEqual(self.notarizer.in_flight, 1)
        for seconds, number in ((0.001, 0), (1, 2), (1, 3)):
            self.clock.advance(seconds)
            self.successResultOf(waiting[number])
        error = self.failureResultOf(waiting[4], NotaryRate).value
        self.assertEqual((error.retry_after, self.notarizer.in_flight, waiting[1].called), (1, 4, False))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_waits_for_the_queue(self) -> None:
        """Where records wait an admission waits, until one is durable, or is refused; a withdrawn one takes nothing."""
        self.notarizer = self.make(queue_limit=1, longest=3)
        reservation = self.reservation(nonce=None)
        self.notarizer.commit(reservation, exchange_of(reservation))
        waiting = [self.admit(level, None) for level in (SIGN, LOG, SIGN, SIGN)]
        self.notarizer.withdraw(waiting[0])
        self.clock.advance(2.9)
        self.assertEqual([False] * 4, [each.called for each in waiting])
        self.store.sign()
        self.clock.advance(0)
        self.notarizer.abandon(self.successResultOf(waiting[1]))
        self.clock.advance(0)
        last = self.successResultOf(waiting[2])
        self.notarizer.commit(last, exchange_of(last))
        self.clock.advance(0.1)
        error = self.failureResultOf(waiting[3], NotaryRate).value
        self.assertIn("notary.queue", str(error))
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_decided_in_its_turn(self) -> None:
        """A nonce that another request took meanwhile is refused, and everything when the store is not writable."""
        self.notarizer = self.make(rate=1, burst=1, octets=Allowance(0.001, 4 * OCTETS), longest=3)
        first = self.reservation(nonce=None)
        same = [self.admit() for _ in range(2)]
        self.clock.pump([1, 1])
        self.successResultOf(same[0])
        self.failureResultOf(same[1], NonceReplayed)
        last = self.admit(nonce=None)
        self.store.writable = False
        self.clock.advance(1)
        self.failureResultOf(last, NotaryUnavailable)
        self.store.writable = True
        # Their octets are back.
        self.notarizer.abandon(first)
        self.clock.advance(1)
        self.assertEqual(self.notarizer.in_flight, 1)
        for _ in range(3):
            self.reservation(LOG, None)
            self.clock.advance(1)

    def test_nonce_in_flight(self) -> None:
        """A nonce in flight is refused, for this client only."""
        self.reservation()
        for level in (SIGN, LOG):
            self.refused(NonceReplayed, level)
        self.successResultOf(self.admit(client="spiffe://prod.example/other"))
        self.assertEqual(self.notarizer.in_flight, 2)

    def test_nonce_in_flight_while_the_store_is_asked(self) -> None:
        """Of two requests with one nonce at the same time the second is refused before the store has responded."""
        self.store.answers = []
        first = self.admit()
        self.refused(NonceReplayed)
        self.store.answer()
        self.successResultOf(first)

    def test_nonce_in_the_store(self) -> None:
        """A nonce with a record is refused, and no reservation is left."""
        reservation = self.reservation(LOG)
        self.successResultOf(self.notarizer.commit(reservation, exchange_of(reservation)))
        self.refused(NonceReplayed)
        self.assertEqual(self.notarizer.in_flight, 0)

    def test_store_that_fails_the_lookup(self) -> None:
        """If the store fails to look up a nonce nothing is admitted, and no reservation is left."""
        self.store.lookup_error = FULL
        self.refused(NotaryUnavailable)
        self.store.lookup_error = ValueError("no")
        self.refused(NotaryUnavailable)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.notarizer.in_flight, 0)

    def test_store_that_raises(self) -> None:
        """If the store raises no reservation is left either."""
        self.store.raises = StoreClosed()
        self.refused(NotaryUnavailable)
        self.store.raises = RuntimeError("no")
        self.refused(NotaryUnavailable)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.notarizer.in_flight, 0)

    def test_abandon(self) -> None:
        """An abandoned nonce can be reserved again; abandoning twice has no effect."""
        reservation = self.reservation()
        self.notarizer.abandon(reservation)
        self.notarizer.abandon(reservation)
        self.assertEqual(self.notarizer.in_flight, 0)
        self.reservation()


class LateTests(NotarizerTestCase):
    """A record that is not durable in time."""

    def setUp(self) -> None:
        """Create a store that holds records back."""
        super().setUp()
        self.store = MemoryStore()  # type: ignore[assignment]
        self.store.init()
        self.store.hold = True
        self.notarizer = self.make()
        self.causes: list[NotaryUnavailable] = []

    def commit(self, reservation: Reservation, *, broken_off: bool = True) -> Deferred[StoredReceipt | None]:
        """Commit a complete exchange, which is broken off where its record is late."""

        def late(cause: NotaryUnavailable) -> RecordedExchange:
            self.causes.append(cause)
            return replace(exchange_of(reservation), outcome=ExchangeOutcome.SERVER_ABORTED)

        return self.notarizer.commit(reservation, exchange_of(reservation), late if broken_off else None)

    def found(self) -> list[StoredReceipt]:
        """What is stored."""
        return self.successResultOf(self.store.find(ReceiptQuery()))

    def test_recorded_as_it_ended(self) -> None:
        """The record is cancelled; the one in its place says how the exchange ended, under the same nonce."""
        for level in (SIGN, LOG):
            self.setUp()
            reservation = self.reservation(level)
            done = self.commit(reservation)
            self.store.expire()
            self.assertNoResult(done)
            self.assertIn("did not report within", str(self.causes[0]))
            self.assertTrue(self.notarizer.is_in_flight(CLIENT, NONCES[0]))
            self.store.release()
            self.successResultOf(done)
            [stored] = self.found()
            self.assertEqual(
                ("server_aborted", NONCES[0], reservation.receipt_id), (stored.outcome, stored.nonce, stored.id)
            )
            self.assertEqual((0, 0, 1), (self.notarizer.in_flight, self.notarizer.waiting, len(self.causes)))

    def test_late_twice(self) -> None:
        """Where that one is late too it fails, and stays to be written: it is true however late."""
        done = self.commit(self.reservation())
        self.store.expire()
        self.store.expire()
        self.failureResultOf(done, NotaryUnavailable)
        self.assertEqual((0, 0, 1), (self.notarizer.in_flight, self.notarizer.waiting, len(self.causes)))
        self.store.release()
        self.assertEqual(["server_aborted"], [each.outcome for each in self.found()])

    def test_true_however_late(self) -> None:
        """A record that nothing waits for fails, and stays to be written."""
        done = self.commit(self.reservation(), broken_off=False)
        self.store.expire()
        self.failureResultOf(done, NotaryUnavailable)
        self.assertEqual([], self.causes)
        self.store.release()
        self.assertEqual(["complete"], [each.outcome for each in self.found()])

    def test_that_cannot_be_made(self) -> None:
        """A defect in ending the exchange leaves no record and no reservation."""
        reservation = self.reservation()
        done = self.notarizer.commit(reservation, exchange_of(reservation), lambda _cause: {}["defect"])  # type: ignore[index]
        self.store.expire()
        self.failureResultOf(done, NotaryUnavailable)
        self.assertEqual(1, len(self.flushLoggedErrors(KeyError)))
        self.store.release()
        self.assertEqual((0, 0, []), (self.notarizer.in_flight, self.notarizer.waiting, self.found()))

    def test_released_nonce(self) -> None:
        """A nonce that is released can be used again at once; the record is found by its identifier."""
        reservation = self.reservation(LOG)
        self.notarizer.release_nonce(reservation)
        self.notarizer.release_nonce(reservation)
        again = self.reservation(LOG)
        self.assertEqual(2, self.notarizer.in_flight)
        self.assertTrue(self.notarizer.is_in_flight(CLIENT, reservation.jti))
        for each in (reservation, again):
            self.notarizer.commit(each, exchange_of(each))
        self.store.release()
        self.assertEqual({None, NONCES[0]}, {each.nonce for each in self.found()})
        self.assertEqual(0, self.notarizer.in_flight)


class SharedNotaryTests(NotarizerTestCase):
    """Several replicas with the same store."""

    def test_nonce_in_flight_elsewhere(self) -> None:
        """A nonce in flight at another replica is refused, and stays reserved by that replica."""
        self.store.elsewhere.add((CLIENT, NONCES[0]))
        self.refused(NonceReplayed)
        self.assertEqual((self.notarizer.in_flight, self.store.given_back), (0, []))

    def test_abandoned(self) -> None:
        """The nonce of an exchange without a record is released once; without a nonce there is nothing to release."""
        for nonce in (NONCES[0], None):
            reservation = self.reservation(nonce=nonce)
            self.notarizer.abandon(reservation)
            self.notarizer.abandon(reservation)
        self.assertEqual(self.store.given_back, [(CLIENT, NONCES[0])])

    def test_store_that_fails_the_lookup(self) -> None:
        """If it is unknown whether the nonce was reserved, it is released."""
        self.store.lookup_error = FULL
        self.refused(NotaryUnavailable)
        self.assertEqual(self.store.given_back, [(CLIENT, NONCES[0])])

    def test_committed(self) -> None:
        """A stored record keeps its nonce; every failure of the store releases it."""
        reservation = self.reservation(LOG)
        self.successResultOf(self.notarizer.commit(reservation, exchange_of(reservation)))
        self.assertEqual(self.store.given_back, [])
        reservation = self.reservation(LOG, NONCES[1])
        self.store.failure = FULL
        self.failureResultOf(self.notarizer.commit(reservation, exchange_of(reservation)), NotaryUnavailable)
        self.assertEqual(self.store.given_back, [(CLIENT, NONCES[1])])

    def test_giving_back_fails(self) -> None:
        """A failure to release a nonce has no consequence; an exception is logged."""
        reservations = [self.reservation(nonce=nonce) for nonce in NONCES[:2]]
        self.successResultOf(self.store.close())
        self.notarizer.abandon(reservations[0])
        self.store.give_back = raise_runtime_error  # type: ignore[assignment]
        self.notarizer.abandon(reservations[1])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


def raise_runtime_error(*_arguments: object) -> Deferred[None]:
    """Raise a RuntimeError."""
    raise RuntimeError("no")


class CommitTests(NotarizerTestCase):
    """From an exchange to a durable record."""

    def test_signed(self) -> None:
        """A signed receipt is in flight until its record is durable; then it is found by its nonce."""
        reservation = self.reservation()
        self.store.hold = True
        done = self.notarizer.commit(reservation, exchange_of(reservation))
        self.assertNoResult(done)
        self.store.sign()
        self.assertNoResult(done)
        self.assertTrue(self.notarizer.is_in_flight(CLIENT, NONCES[0]))
        self.store.release()
        signed = self.successResultOf(done)
        self.assertEqual(self.notarizer.in_flight, 0)
        stored = self.successResultOf(self.store.get_by_request(CLIENT, NONCES[0]))
        assert stored is not None and stored.envelope is not None
        self.assertEqual(stored, signed)
        self.assertEqual(Envelope.parse(stored.envelope).payload, stored.payload)
        self.assertEqual((stored.level, stored.client, stored.jti), ("signRequest", CLIENT, reservation.jti))
        self.assertEqual((stored.server, stored.outcome), (str(OWN.spiffe_id), "complete"))
        self.assertEqual(stored.statement_id, GENERATION.statement.id)

    def test_logged(self) -> None:
        """An unsigned record waits for no signature."""
        reservation = self.reservation(LOG)
        self.successResultOf(self.notarizer.commit(reservation, exchange_of(reservation)))
        stored = self.successResultOf(self.store.get_by_request(CLIENT, NONCES[0]))
        assert stored is not None
        self.assertEqual((stored.level, stored.envelope, self.notarizer.waiting), ("logRequest", None, 0))

    def failing(self, level: Level, kind: type[Exception], *, headers: int = 0) -> None:
        """Assert that a commit fails with this error and leaves no reservation."""
        reservation = self.reservation(level)
        done = self.notarizer.commit(reservation, exchange_of(reservation, headers=headers))
        self.store.sign()
        self.failureResultOf(done, kind)
        self.assertEqual(self.notarizer.in_flight, 0)

    def test_failures_of_the_store(self) -> None:
        """Each failure of the store gives the client one error, and no reservation is left."""
        for level in (SIGN, LOG):
            for error, kind in (
                (FULL, NotaryUnavailable),
                (StoreBusy(limit=1), NotaryUnavailable),
                (StoreClosed(), NotaryUnavailable),
                (Replayed(client=CLIENT), NonceReplayed),
            ):
                self.store.failure = error
                self.failing(level, kind)

    def test_store_that_raises(self) -> None:
        """If the store raises no reservation is left."""
        for level in (SIGN, LOG):
            reservation = self.reservation(level)
            self.store.raises = RuntimeError("no")
            done = self.notarizer.commit(reservation, exchange_of(reservation))
            self.store.sign()
            self.failureResultOf(done, NotaryUnavailable)
            self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
            self.assertEqual(self.notarizer.in_flight, 0)
            self.store.raises = None

    def test_receipt_that_is_too_large(self) -> None:
        """A receipt too large for verifiers is not signed, and no reservation is left."""
        self.failing(SIGN, NotaryUnavailable, headers=300 * 1024)

    def test_unexpected_failure_of_the_record(self) -> None:
        """An unexpected error while a record is built is logged with its traceback and leaves no reservation."""
        for level in (SIGN, LOG):
            reservation = self.reservation(level)
            broken = cast(RecordedExchange, object())
            done = self.notarizer.commit(reservation, broken)
            self.store.sign()
            self.failureResultOf(done, NotaryUnavailable)
            self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
            self.assertEqual(self.notarizer.in_flight, 0)

    def test_store_that_has_closed(self) -> None:
        """After the store has closed a commit fails, and no reservation is left."""
        for level in (SIGN, LOG):
            reservation = self.reservation(level, None)
            self.successResultOf(self.store.close())
            done = self.notarizer.commit(reservation, exchange_of(reservation))
            self.store.sign()
            self.failureResultOf(done, NotaryUnavailable)
            self.assertEqual((self.notarizer.in_flight, self.notarizer.waiting), (0, 0))
            self.store.init()


def sets(count: int) -> list[CredentialSet]:
    """Create credential sets of one identity."""
    return [CredentialSet.issue(OWN, None, FACTS, Profile.CLASSICAL, BASE, os.urandom) for _ in range(count)]


class BatchTests(NotarizerTestCase):
    """What waits together is signed together."""

    def setUp(self) -> None:
        """Allow as many as a group has."""
        super().setUp()
        self.points: list[ReleasePoint] = []
        self.notarizer = self.make(queue_limit=1000, released=self.points.append)

    def commits(
        self, *credentials: CredentialSet, seconds: Sequence[int] = (), headers: int = 0
    ) -> list[StoredReceipt]:
        """Commit an exchange of each credential set; sign all in one group and return what is stored, in order."""
        reservations, commits = [], []
        for number, each in enumerate(credentials):
            reservation = self.successResultOf(self.notarizer.admit(SIGN, CLIENT, None, each, OCTETS))
            exchange = exchange_of(reservation, headers=headers if number == 1 else 0)
            later = timedelta(seconds=seconds[number] if seconds else 1)
            commits.append(self.notarizer.commit(reservation, replace(exchange, completed=BASE + later)))
            reservations.append(reservation)
        self.assertEqual(self.notarizer.waiting, len(commits))
        self.store.sign(len(commits))
        self.assertEqual((self.notarizer.waiting, self.notarizer.in_flight), (0, 0))
        self.outcomes = [type(getattr(each.result, "value", None)) for each in commits]
        for each in commits:
            each.addErrback(lambda _failure: None)
        found = [self.successResultOf(self.store.get_receipt(each.receipt_id or "")) for each in reservations]
        self.reservations = reservations
        return [each for each in found if each is not None]

    def test_one_alone(self) -> None:
        """A single receipt is an envelope of its own."""
        (stored,) = self.commits(GENERATION)
        self.assertEqual((stored.batch, stored.inclusion), (None, None))
        assert stored.envelope is not None
        self.assertEqual(Envelope.parse(stored.envelope).payload, stored.payload)

    def test_several(self) -> None:
        """Two to 256 receipts of one credential set share the envelope of one batch, each with its place."""
        for size in (2, 3, MAX_BATCH):
            stored = self.commits(*[GENERATION] * size)
            self.assertEqual({None}, {each.envelope for each in stored})
            self.assertEqual(1, len({each.batch for each in stored}))
            places = [Inclusion.from_octets(each.inclusion or b"") for each in stored]
            self.assertEqual([(index, size) for index in range(size)], [(each.index, each.size) for each in places])
            new_hash = HASH_FUNCTIONS["sha-256"]
            roots = {
                root_of_path(receipt_leaf(place.blind, each.payload, new_hash), place.index, size, place.path, new_hash)
                for place, each in zip(places, stored, strict=True)
            }
            (batch,) = {each.batch for each in stored}
            claims = loads_object(Envelope.parse(batch or b"").payload)
            self.assertEqual({claims["svc"]["root"]}, {b64u_encode(root or b"") for root in roots})  # type: ignore[index]
            self.assertEqual(len(places), len({place.blind for place in places}))
        self.assertEqual([ReleasePoint.RECEIPT_SIGNED] * (2 + 3 + MAX_BATCH), self.points)

    def test_credential_sets_are_not_mixed(self) -> None:
        """Receipts of several credential sets are signed apart, one that is the only of its set alone."""
        first, second, third = sets(3)
        stored = self.commits(first, second, first, third, second)
        self.assertEqual([True, True, True, False, True], [each.batch is not None for each in stored])
        self.assertEqual((stored[0].batch, stored[1].batch), (stored[2].batch, stored[4].batch))
        self.assertNotEqual(stored[0].batch, stored[1].batch)

    def test_age(self) -> None:
        """A receipt older than the newest by more than a batch allows is signed alone."""
        stored = self.commits(*[GENERATION] * 4, seconds=(MAX_DELAY, 0, MAX_DELAY + 1, 1))
        self.assertEqual([True, False, True, True], [each.batch is not None for each in stored])

    def test_size(self) -> None:
        """One that is too large for verifiers fails alone; the others are signed together."""
        stored = self.commits(*[GENERATION] * 3, headers=300 * 1024)
        self.assertEqual([type(None), NotaryUnavailable, type(None)], self.outcomes)
        self.assertEqual([2, 2], [Inclusion.from_octets(each.inclusion or b"").size for each in stored])

    def test_octets(self) -> None:
        """A receipt of a batch takes its share of the batch's octets from the budget of its client."""
        self.commits(GENERATION)
        taken_alone = self.reservations[0].place.octets
        stored = self.commits(*[GENERATION] * 8)
        taken = [each.place.octets for each in self.reservations]
        self.assertTrue(all(1000 < each < taken_alone for each in taken), (taken, taken_alone))
        shared = len(stored[0].batch or b"") - GENERATION.certificate_octets
        self.assertGreater(sum(taken), shared + sum(len(each.payload) for each in stored))

    def test_signers_that_fail(self) -> None:
        """A credential set whose keys fail fails its own receipts and no others."""
        broken = replace(GENERATION, signers=())
        stored = self.commits(GENERATION, broken, GENERATION, broken)
        self.assertEqual([type(None), NotaryUnavailable] * 2, self.outcomes)
        self.assertEqual(2, len(stored))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "lookup", "commit", "abandon", "sign", "release", "hold", "fail", "mend", "time"]),
        st.integers(0, 7),
    ),
    max_size=60,
)


class ReservationTests(NotarizerTestCase):
    """Any sequence of operations."""

    @given(STEPS)
    def test_nothing_is_left(self, steps: list[tuple[str, int]]) -> None:
        """Each admission ends once; then nothing is in flight, and each nonce has at most one record."""
        self.setUp()
        self.notarizer = self.make(rate=2, burst=6, longest=2)
        self.store.answers = []
        asked: list[Deferred[None]] = []
        open_reservations: list[Reservation] = []
        commits: list[Deferred[None]] = []
        outcomes: list[str] = []

        def commit(reservation: Reservation) -> None:
            done = self.notarizer.commit(reservation, exchange_of(reservation))
            done.addCallbacks(
                lambda _none: outcomes.append("written"),
                lambda failure: (failure.trap(ProxyError), outcomes.append("failed")),
            )
            commits.append(done)  # type: ignore[arg-type]

        for step, number in steps:
            if step == "admit":
                nonce = NONCES[number % 4] if number % 4 < 3 else None
                admission = self.admit((SIGN, LOG)[number // 4], nonce)
                asked.append(admission.addCallbacks(open_reservations.append, lambda failure: failure.trap(ProxyError)))
            elif step == "lookup":
                self.store.answer()
            elif step == "commit" and open_reservations:
                commit(open_reservations.pop(number % len(open_reservations)))
            elif step == "abandon" and open_reservations:
                self.notarizer.abandon(open_reservations.pop(number % len(open_reservations)))
            elif step == "sign":
                self.store.sign()
            elif step == "release":
                self.store.release()
            elif step == "hold":
                self.store.hold = True
            elif step == "fail":
                self.store.failure = (FULL, Replayed(client=CLIENT))[number % 2]
            elif step == "mend":
                self.store.failure, self.store.hold = None, False
            elif step == "time":
                self.clock.advance(number)
            waiting = len(self.store.answers) + len(commits) - len(outcomes)
            self.assertEqual(self.notarizer.in_flight, len(open_reservations) + waiting)
        self.clock.advance(2)
        while self.store.answers:
            self.store.answer()
        for reservation in open_reservations:
            commit(reservation)
        while self.store.waiting:
            self.store.sign()
        self.store.release()
        self.assertEqual((self.notarizer.in_flight, len(outcomes)), (0, len(commits)))
        self.assertTrue(all(each.called for each in asked))
        self.assertEqual(outcomes.count("written"), self.successResultOf(self.store.prune(2**40)))
