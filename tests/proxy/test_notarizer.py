"""Admission, the rate of each client, the signing thread, and the release of every reservation."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.credentials import CredentialSet
from svc.notary.envelope import Envelope
from svc.notary.errors import NotaryError
from svc.notary.exchange import EMPTY_BODY, ExchangeOutcome, Peer, RecordedExchange
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.profile import Profile
from svc.notary.receipt import Redaction
from svc.proxy.errors import NonceReplayed, NotaryRate, NotaryUnavailable, ProxyError
from svc.proxy.notarizer import Notarizer, Reservation, SigningThread
from svc.proxy.record_budget import Allowance, RecordBudget
from svc.store.errors import Replayed, StoreBusy, StoreClosed, StoreUnavailable
from svc.store.records import StoredReceipt
from svc.strictjson import b64u_encode
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

    def answer(self) -> None:
        """Complete the oldest look-up with what is stored."""
        if self.answers:
            client, nonce, later = self.answers.pop(0)
            super().nonce_known(client, nonce).chainDeferred(later)


class ManualSigning:
    """Signs when the test says so, in order."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], StoredReceipt], Deferred[StoredReceipt]]] = []

    @property
    def waiting(self) -> int:
        """Return the number of unsigned jobs."""
        return len(self.work)

    def submit(self, work: Callable[[], StoredReceipt]) -> Deferred[StoredReceipt]:
        """Queue the job."""
        done: Deferred[StoredReceipt] = Deferred()
        self.work.append((work, done))
        return done

    def sign(self) -> None:
        """Sign the oldest job."""
        if self.work:
            work, done = self.work.pop(0)
            succeed(None).addCallback(lambda _none: work()).chainDeferred(done)


class FromThread:
    """A reactor that queues the calls of another thread; the test runs them."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()
        self.batches: list[int] = []
        self.threads: set[int] = set()

    def callFromThread(self, call: Callable[..., object], *args: object) -> object:
        """Queue the call."""
        self.threads.add(threading.get_ident())
        self._calls.put((call, args))
        return None

    def run(self, *, wait: bool = True) -> bool:
        """Run one call; wait until there is one."""
        try:
            call, args = self._calls.get(timeout=60.0) if wait else self._calls.get_nowait()
        except queue.Empty:
            return False
        self.batches.append(len(cast("list[object]", args[0])))
        call(*args)
        return True


def receipt(number: int) -> StoredReceipt:
    """Create a record that can be distinguished from others."""
    return cast(StoredReceipt, number)


class SigningThreadTests(SynchronousTestCase):
    """The real signing thread."""

    def setUp(self) -> None:
        """Create a thread that is not started."""
        self.reactor = FromThread()
        self.signing = SigningThread(self.reactor)
        self.addCleanup(self.signing.stop)
        self.results: list[object] = []

    def submit(self, work: Callable[[], StoredReceipt]) -> Deferred[None]:
        """Submit a job and record the result in the order of arrival."""
        return self.signing.submit(work).addBoth(self.results.append)

    def test_order_and_batches(self) -> None:
        """All results arrive in order, in batches of at most eight; the count of waiting jobs follows them."""
        for number in range(20):
            self.submit(lambda number=number: receipt(number))
        self.assertEqual(self.signing.waiting, 20)
        self.signing.start()
        while self.signing.waiting:
            self.assertTrue(self.reactor.run())
            self.assertEqual(self.signing.waiting, 20 - len(self.results))
        self.assertEqual(self.results, list(range(20)))
        self.assertEqual(self.reactor.batches, [8, 8, 4])

    def test_beside_the_reactor(self) -> None:
        """Jobs run on the signing thread; results are delivered on the reactor's thread."""
        where: list[int] = []

        def work() -> StoredReceipt:
            where.append(threading.get_ident())
            return receipt(0)

        self.submit(work).addCallback(lambda _none: where.append(threading.get_ident()))
        self.signing.start()
        self.assertTrue(self.reactor.run())
        self.assertEqual(where[1], threading.get_ident())
        self.assertEqual(self.reactor.threads, {where[0]})
        self.assertNotEqual(where[0], where[1])

    def test_single_job_does_not_wait(self) -> None:
        """A single job is delivered without waiting for more."""
        self.signing.start()
        for number in range(3):
            self.submit(lambda number=number: receipt(number))
            self.assertTrue(self.reactor.run())
            self.assertEqual((self.results[-1], self.signing.waiting), (number, 0))

    def test_failure(self) -> None:
        """An exception of a job is delivered to its submitter; the thread continues."""

        def broken() -> StoredReceipt:
            raise NotaryError("too_large", size=2, limit=1)

        self.signing.start()
        failed = self.signing.submit(broken)
        self.assertTrue(self.reactor.run())
        self.assertEqual(self.failureResultOf(failed, NotaryError).value.reason, "too_large")
        self.submit(lambda: receipt(1))
        self.assertTrue(self.reactor.run())
        self.assertEqual((self.results, self.signing.waiting), ([1], 0))

    def test_stop_drains(self) -> None:
        """Jobs submitted before the stop are finished and delivered; then the thread has ended."""
        for number in range(11):
            self.submit(lambda number=number: receipt(number))
        self.signing.start()
        self.signing.stop()
        while self.reactor.run(wait=False):
            pass
        self.assertEqual((self.results, self.signing.waiting), (list(range(11)), 0))
        self.assertNotIn("svc-signing", [thread.name for thread in threading.enumerate()])

    def test_after_the_stop(self) -> None:
        """A job after the stop is refused at once."""
        self.signing.start()
        self.signing.stop()
        self.failureResultOf(self.signing.submit(lambda: receipt(0)), NotaryUnavailable)
        self.assertEqual(self.signing.waiting, 0)
        self.signing.stop()

    def test_stop_without_start(self) -> None:
        """A thread that was never started can be stopped."""
        self.signing.stop()
        self.assertFalse(self.reactor.run(wait=False))

    @given(st.lists(st.booleans(), max_size=40), st.integers(0, 40))
    def test_no_loss(self, fails: list[bool], before: int) -> None:
        """Whatever fails and however jobs arrive, each job is answered once, in order."""
        reactor = FromThread()
        signing = SigningThread(reactor)
        seen: list[tuple[int, bool]] = []

        def work(number: int, wrong: bool) -> StoredReceipt:
            if wrong:
                raise ValueError(number)
            return receipt(number)

        for number, wrong in enumerate(fails):
            if number == before:
                signing.start()
            done = signing.submit(lambda number=number, wrong=wrong: work(number, wrong))
            done.addCallbacks(
                lambda result: seen.append((cast(int, result), False)),
                lambda failure: seen.append((failure.value.args[0], True)),
            )
        if before >= len(fails):
            signing.start()
        signing.stop()
        while reactor.run(wait=False):
            pass
        self.assertEqual(seen, list(enumerate(fails)))
        self.assertEqual(signing.waiting, 0)
        self.assertLessEqual(max(reactor.batches, default=0), 8)


class NotarizerTestCase(SynchronousTestCase):
    """Base class: a notarizer with a manual store and manual signing."""

    def setUp(self) -> None:
        """Create the notarizer."""
        self.clock = Clock()
        self.store = PendingStore()
        self.store.init()
        self.signing = ManualSigning()
        self.notarizer = self.make()

    def make(
        self,
        *,
        rate: float = 1000.0,
        burst: float = 1000.0,
        octets: Allowance = Allowance(2**20, 2**30),  # noqa: B008 (frozen)
        queue_limit: int = 4,
    ) -> Notarizer:
        """Create a notarizer."""
        return Notarizer(
            self.store,
            cast(SigningThread, self.signing),
            database="/var/lib/svc/notary.db",
            redaction=Redaction(),
            budget=RecordBudget(Allowance(rate, burst), octets, self.clock.seconds),
            queue_limit=queue_limit,
            random=os.urandom,
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
        self.assertTrue(1000 < reservation.octets < 5000, reservation.octets)
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
        self.signing.sign()
        self.failureResultOf(done, NotaryUnavailable)
        self.reservation(LOG, None)

    def test_signed_record(self) -> None:
        """Certificates and the second copy of the payload are not counted, since the store keeps them once."""
        reservation = self.reservation(nonce=None)
        self.notarizer.commit(reservation, exchange_of(reservation))
        self.signing.sign()
        certificates = GENERATION.certificate_octets
        self.assertTrue(
            2000 < reservation.octets < GENERATION.signature_octets - certificates + 6000, reservation.octets
        )

    def test_queue_limit(self) -> None:
        """At the limit of queued signatures none is admitted, one below it one is."""
        self.notarizer = self.make(queue_limit=2)
        reservations = [self.reservation(nonce=None) for _ in range(2)]
        for reservation in reservations:
            self.notarizer.commit(reservation, exchange_of(reservation))
        self.refused(NotaryRate, nonce=None)
        self.reservation(LOG, None)
        self.signing.sign()
        self.reservation(nonce=None)

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
        self.store.give_back = raise_runtime_error  # type: ignore[method-assign]
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
        self.signing.sign()
        self.assertNoResult(done)
        self.assertTrue(self.notarizer.is_in_flight(CLIENT, NONCES[0]))
        self.store.release()
        self.assertIsNone(self.successResultOf(done))
        self.assertEqual(self.notarizer.in_flight, 0)
        stored = self.successResultOf(self.store.get_by_request(CLIENT, NONCES[0]))
        assert stored is not None and stored.envelope is not None
        self.assertEqual(Envelope.parse(stored.envelope).payload, stored.payload)
        self.assertEqual((stored.level, stored.client, stored.jti), ("signRequest", CLIENT, reservation.jti))
        self.assertEqual((stored.server, stored.outcome), (str(OWN.spiffe_id), "complete"))
        self.assertEqual(stored.statement_id, GENERATION.statement.id)

    def test_logged(self) -> None:
        """An unsigned record does not wait for the signing thread."""
        reservation = self.reservation(LOG)
        self.successResultOf(self.notarizer.commit(reservation, exchange_of(reservation)))
        stored = self.successResultOf(self.store.get_by_request(CLIENT, NONCES[0]))
        assert stored is not None
        self.assertEqual((stored.level, stored.envelope, self.signing.waiting), ("logRequest", None, 0))

    def failing(self, level: Level, kind: type[Exception], *, headers: int = 0) -> None:
        """Assert that a commit fails with this error and leaves no reservation."""
        reservation = self.reservation(level)
        done = self.notarizer.commit(reservation, exchange_of(reservation, headers=headers))
        self.signing.sign()
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
            self.signing.sign()
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
            self.signing.sign()
            self.failureResultOf(done, NotaryUnavailable)
            self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
            self.assertEqual(self.notarizer.in_flight, 0)

    def test_thread_that_has_stopped(self) -> None:
        """After the thread has stopped a commit fails, and no reservation is left."""
        signing = SigningThread(FromThread())
        signing.start()
        signing.stop()
        self.signing = cast(ManualSigning, signing)
        self.notarizer = self.make()
        reservation = self.reservation()
        self.failureResultOf(self.notarizer.commit(reservation, exchange_of(reservation)), NotaryUnavailable)
        self.assertEqual(self.notarizer.in_flight, 0)


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
        self.notarizer = self.make(rate=2, burst=6)
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
            commits.append(done)

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
                self.signing.sign()
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
        while self.store.answers:
            self.store.answer()
        for reservation in open_reservations:
            commit(reservation)
        while self.signing.waiting:
            self.signing.sign()
        self.store.release()
        self.assertEqual((self.notarizer.in_flight, len(outcomes)), (0, len(commits)))
        self.assertTrue(all(each.called for each in asked))
        self.assertEqual(outcomes.count("written"), self.successResultOf(self.store.prune(2**40)))
