"""Credential sets are replaced as a whole, kept while they are valid, and renewed after errors."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import Statement, issue_statement
from svc.proxy.credential_rotation import BURST, CHECK_EVERY, CredentialRotation, CredentialsUnmade
from svc.store.errors import StoreClosed, StoreUnavailable
from svc.store.records import StatementRecord
from svc.testing.ca import TestAuthority
from svc.testing.store import MemoryStore
from svc.testing.workload import MemorySource
from svc.workload.errors import CredentialsMissing, PqIssuerError
from tests.proxy.rig import AUTHORITY, BASE, CALLER, evidence_of

PQ = TestAuthority("prod.example", now=BASE, algorithm="ML-DSA-65")
FIRST = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=1))
SECOND = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=2))
THIRD = AUTHORITY.svid("/ns/pay/sa/api", ttl=timedelta(hours=3))
MANAGER = AUTHORITY.svid("/svc/manager", ttl=timedelta(hours=3))
OTHER = TestAuthority("bank.example", now=BASE)
DOWN = PqIssuerError("pq_issuer_unavailable", address="unix:///pq.sock", what="connection refused")


def leaf_of(svid: X509Svid, not_after: datetime | None = None) -> PqLeaf:
    """Create a post-quantum leaf for an SVID."""
    return PqLeaf.accept(*PQ.pq_leaf(svid, not_after=not_after), svid)  # type: ignore[arg-type]


class Issuer:
    """A post-quantum issuer that responds at once, later, or never."""

    def __init__(self) -> None:
        self.asked: list[X509Svid] = []
        self.error: Exception | None = None
        self.waiting: list[Deferred[PqLeaf]] | None = None
        self.leaves_end: datetime | None = None
        self.cancelled: list[Deferred[PqLeaf]] = []

    def obtain(self, svid: X509Svid) -> Deferred[PqLeaf]:
        """Respond as the test has set."""
        self.asked.append(svid)
        if self.error is not None:
            return fail(self.error)
        if self.waiting is not None:
            later: Deferred[PqLeaf] = Deferred(self.cancelled.append)
            self.waiting.append(later)
            return later
        return succeed(leaf_of(svid, self.leaves_end))


class RecordingObserver:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.issued: list[CredentialSet] = []
        self.failed: list[str] = []
        self.ended: list[str] = []
        self.leaves: list[PqLeaf] = []
        self.leaves_failed: list[str] = []

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """Record the leaf."""
        self.leaves.append(leaf)

    def leaf_failed(self, error: SvcError) -> None:
        """Record the reason."""
        self.leaves_failed.append(error.reason)

    def credentials_issued(self, credentials: CredentialSet) -> None:
        """Record the credential set."""
        self.issued.append(credentials)

    def credentials_failed(self, error: SvcError) -> None:
        """Record the reason."""
        self.failed.append(error.reason)

    def identity_ended(self, error: SvcError) -> None:
        """Record the reason."""
        self.ended.append(error.reason)


class FailingStore(MemoryStore):
    """A store whose ``put_statement`` can raise instead of returning a failed Deferred."""

    raises: Exception | None = None

    def put_statement(self, statement: StatementRecord) -> Deferred[None]:
        """Raise if the test has set an exception."""
        if self.raises is not None:
            raise self.raises
        return super().put_statement(statement)


class RotationTestCase(SynchronousTestCase):
    """Base class: a rotation with a source, an issuer, a store and a manual clock."""

    def setUp(self) -> None:
        """Create a source without credentials; everything else works."""
        self.clock = Clock()
        self.source = MemorySource()
        self.issuer = Issuer()
        self.observer = RecordingObserver()
        self.store = FailingStore()
        self.store.init()
        self.facts = WorkloadFacts.explicit(host_name="api-1", namespace="pay", service_account="api")
        self.facts_error: Exception | None = None
        self.central: dict[X509Svid, Statement] = {}
        self.jitter = 1.0
        self.notified = 0
        self.rotation = self.make()

    def make(self, profile: Profile = Profile.HYBRID) -> CredentialRotation:
        """Create the rotation under test."""
        rotation = CredentialRotation(
            self.source,
            profile=profile,
            facts=self.read_facts,
            obtain_leaf=self.issuer.obtain if profile is not Profile.CLASSICAL else None,
            store=self.store,
            observer=self.observer,
            clock=self.clock,
            wall=self.wall,
            random=os.urandom,
            jitter=lambda: self.jitter,
            obtain_statement=self.obtain_statement,
        )
        rotation.subscribe(self._count_notification)
        return rotation

    def obtain_statement(self, svid: X509Svid) -> Deferred[Statement | None]:
        """What the central issuer has; None in most tests."""
        return succeed(self.central.get(svid))

    def read_facts(self) -> WorkloadFacts:
        """Return the facts that the test has set, or raise its error."""
        if self.facts_error is not None:
            raise self.facts_error
        return self.facts

    def _count_notification(self) -> None:
        """Count the notifications of a subscriber."""
        self.notified += 1

    def wall(self) -> datetime:
        """Return the wall clock time, derived from the test's clock."""
        return BASE + timedelta(seconds=self.clock.seconds())

    def begin(self) -> CredentialSet:
        """Start with the first SVID."""
        self.rotation.startService()
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.notified = 0
        return self.current()

    def current(self) -> CredentialSet:
        """Return the credential set in use."""
        current = self.rotation.current
        assert current is not None
        return current

    def stored(self, statement_id: str) -> bytes | None:
        """Return the statement that the store holds."""
        return self.successResultOf(self.store.get_statement(statement_id))

    def pauses(self, count: int) -> list[float]:
        """Measure the pauses before the next attempts."""
        found = []
        for _ in range(count):
            asked, start = len(self.issuer.asked), self.clock.seconds()
            while len(self.issuer.asked) == asked:
                if self.clock.seconds() - start > 100:
                    self.fail("no attempt within 100 s")
                self.clock.advance(0.25)
            found.append(self.clock.seconds() - start)
        return found


class FirstCredentialSetTests(RotationTestCase):
    """The state before the first credential set, and the first credential set."""

    def test_nothing_before_the_source_is_ready(self) -> None:
        """Without an SVID there is no credential set, no leaf request, and no certificate for TLS."""
        self.rotation.startService()
        self.clock.advance(60)
        self.assertIsNone(self.rotation.current)
        self.assertEqual((self.issuer.asked, self.observer.failed, self.notified), ([], [], 0))
        self.assertRaises(CredentialsMissing, lambda: self.rotation.svid)
        self.assertRaises(CredentialsMissing, lambda: self.rotation.bundles)

    def test_first(self) -> None:
        """The first credential set is complete and stored; subscribers are notified and all waiting Deferreds fire."""
        self.rotation.startService()
        waits = [self.rotation.when_ready(), self.rotation.when_ready()]
        self.source.rotate(FIRST, AUTHORITY.bundles())
        for each in [*waits, self.rotation.when_ready()]:
            self.assertIsNone(self.successResultOf(each))
        current = self.current()
        self.assertEqual((current.svid, current.facts, current.profile), (FIRST, self.facts, Profile.HYBRID))
        self.assertEqual([signer.alg for signer in current.signers], ["ES256", "ML-DSA-65"])
        self.assertEqual((self.rotation.svid, self.rotation.bundles), (FIRST, AUTHORITY.bundles()))
        self.assertEqual(self.observer.issued, [current])
        self.assertEqual(self.stored(current.statement.id), current.statement.envelope.serialize())
        self.assertEqual(self.notified, 1)

    def test_source_that_is_ready(self) -> None:
        """A source that already has credentials is used at the start."""
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.rotation.startService()
        self.assertEqual(self.current().svid, FIRST)

    def test_classical(self) -> None:
        """The profile classical requests no leaf."""
        self.rotation = self.make(Profile.CLASSICAL)
        current = self.begin()
        self.assertEqual((current.pq_leaf, self.issuer.asked), (None, []))
        self.assertEqual([signer.alg for signer in current.signers], ["ES256"])

    def test_waiting_can_end(self) -> None:
        """A cancelled wait is removed; the other waiting Deferreds still fire."""
        self.rotation.startService()
        first, second = self.rotation.when_ready(), self.rotation.when_ready()
        first.addTimeout(5, self.clock)
        self.clock.advance(5)
        self.failureResultOf(first, DeferredTimeout)
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.successResultOf(second)

    def test_issuer_down_at_the_start(self) -> None:
        """Nothing is ready until the issuer responds; the last error gives the reason."""
        self.issuer.error = DOWN
        self.rotation.startService()
        ready = self.rotation.when_ready()
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.assertNoResult(ready)
        self.assertIs(self.rotation.last_error, DOWN)
        self.assertIsNone(self.rotation.current)
        self.issuer.error = None
        self.clock.advance(1)
        self.successResultOf(ready)
        self.assertIsNone(self.rotation.last_error)


class RotationTests(RotationTestCase):
    """Replacement of one credential set by the next."""

    def test_alternating_svids(self) -> None:
        """When SVIDs alternate rapidly, few credential sets are made, and the last SVID is in use within a second."""
        self.begin()
        for _turn in range(40):
            for svid in (SECOND, FIRST):
                self.source.rotate(svid)
                self.clock.advance(0.05)
        # The four seconds of updates, and the attempts that may follow at once.
        self.assertLessEqual(len(self.observer.issued), BURST + 5)
        self.source.rotate(SECOND)
        self.clock.advance(1.01)
        self.assertEqual(self.rotation.svid, SECOND)
        for svid in (FIRST, SECOND, FIRST):
            self.clock.advance(10)
            self.source.rotate(svid)
            self.assertEqual(self.rotation.svid, svid)
        for _turn in range(BURST + 1):
            self.source.rotate(SECOND)
            self.source.rotate(FIRST)
        self.rotation.stopService()
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_replaced_when_complete(self) -> None:
        """A new SVID is used only when its leaf has arrived; until then the old SVID is used."""
        old = self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.assertIs(self.rotation.current, old)
        self.assertEqual((self.rotation.svid, self.notified), (FIRST, 0))
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.assertEqual((self.rotation.svid, self.notified), (SECOND, 1))
        self.assertNotEqual(self.current().statement.id, old.statement.id)

    def test_last_update_is_used(self) -> None:
        """Of the SVIDs that arrive while a leaf is requested, only the last one is processed."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        between = AUTHORITY.svid("/ns/pay/sa/api")
        self.source.rotate(between)
        self.source.rotate(THIRD)
        self.assertEqual(self.issuer.asked, [FIRST, SECOND])
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.assertEqual(self.issuer.asked, [FIRST, SECOND, THIRD])
        self.issuer.waiting[1].callback(leaf_of(THIRD))
        self.assertEqual([each.svid for each in self.observer.issued], [FIRST, SECOND, THIRD])

    def test_same_again(self) -> None:
        """An update without a change creates no credential set and requests no leaf."""
        old = self.begin()
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.clock.pump([CHECK_EVERY] * 3)
        self.assertIs(self.rotation.current, old)
        self.assertEqual((len(self.issuer.asked), self.notified), (1, 0))

    def test_bundle_is_used_at_once(self) -> None:
        """A new bundle is used at once while the next credential set is incomplete, without a new statement."""
        old = self.begin()
        self.issuer.waiting = []
        bundles = AUTHORITY.bundles().replace(OTHER.bundle())
        self.source.rotate(SECOND, bundles)
        self.assertEqual((self.rotation.bundles, self.notified), (bundles, 1))
        self.assertIs(self.rotation.current, old)

    def test_bundle_alone(self) -> None:
        """A new bundle alone creates no credential set."""
        old = self.begin()
        self.source.rotate(None, AUTHORITY.bundles().replace(OTHER.bundle()))
        self.assertIs(self.rotation.current, old)
        self.assertEqual((self.notified, len(self.issuer.asked)), (1, 1))

    def test_facts(self) -> None:
        """Changed facts are published in a new statement with the existing leaf at the next check."""
        old = self.begin()
        self.facts = WorkloadFacts.explicit(host_name="api-1", namespace="pay", service_account="renamed")
        self.clock.advance(CHECK_EVERY - 0.1)
        self.assertIs(self.rotation.current, old)
        self.clock.advance(0.1)
        new = self.current()
        self.assertEqual((new.facts, new.pq_leaf), (self.facts, old.pq_leaf))
        self.assertNotEqual(new.statement.id, old.statement.id)
        self.assertEqual((len(self.issuer.asked), self.notified), (1, 1))

    def test_leaf_that_ends_before_its_svid(self) -> None:
        """A leaf with a shorter lifetime than the SVID is renewed at four fifths of it, beside the same SVID."""
        self.issuer.leaves_end = BASE + timedelta(minutes=10)
        old = self.begin()
        self.clock.pump([CHECK_EVERY] * 47)
        self.assertIs(self.rotation.current, old)
        self.issuer.leaves_end = BASE + timedelta(hours=1)
        self.clock.pump([CHECK_EVERY] * 2)
        self.assertIsNot(self.rotation.current, old)
        self.assertEqual((self.current().svid, self.current().expires), (FIRST, FIRST.not_after))
        self.assertEqual(len(self.issuer.asked), 2)


class CentralStatementTests(RotationTestCase):
    """Statements of a central issuer, which live for minutes."""

    def issued(self, svid: X509Svid, seconds: float = 600) -> Statement:
        """A statement of the central issuer."""
        keys, life = (Signer.from_svid(MANAGER),), timedelta(seconds=seconds)
        return issue_statement(svid, self.facts, keys, self.wall(), os.urandom, MANAGER.spiffe_id, life)

    def test_central_then_own(self) -> None:
        """The central one is in force when it comes, with the same keys; without it, that of the workload's own."""
        own = self.begin()
        self.assertEqual(str(FIRST.spiffe_id), own.issuer)
        self.central[FIRST] = self.issued(FIRST)
        self.rotation.statement_changed()
        central = self.current()
        self.assertEqual((str(MANAGER.spiffe_id), self.central[FIRST]), (central.issuer, central.statement))
        self.assertEqual((own.svid, own.pq_leaf), (central.svid, central.pq_leaf))
        self.assertEqual(self.wall() + timedelta(seconds=540), central.close_at)
        self.assertIsNotNone(self.stored(central.statement.id))
        self.clock.advance(CHECK_EVERY)
        self.assertIs(central, self.current())
        self.central.clear()
        self.clock.advance(CHECK_EVERY)
        self.assertEqual(str(FIRST.spiffe_id), self.current().issuer)
        self.assertEqual(1, len(self.issuer.asked), "the leaf is the same")

    def test_with_another_svid(self) -> None:
        """Keys and statement are replaced together."""
        self.central = {each: self.issued(each) for each in (FIRST, SECOND)}
        self.assertEqual(self.central[FIRST], self.begin().statement)
        self.source.rotate(SECOND, AUTHORITY.bundles())
        self.assertEqual((SECOND, self.central[SECOND]), (self.current().svid, self.current().statement))
        self.assertEqual(2, len(self.rotation.valid))


class EarlierCredentialSetTests(RotationTestCase):
    """Earlier credential sets that are still kept."""

    def test_of_evidence(self) -> None:
        """A connection finds the credential set that it was accepted with; another SVID finds none."""
        old = self.begin()
        self.source.rotate(SECOND)
        self.assertIs(self.rotation.of_evidence(evidence_of(CALLER, FIRST)), old)
        self.assertIs(self.rotation.of_evidence(evidence_of(CALLER, SECOND)), self.rotation.current)
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, THIRD)))

    def test_newest_of_one_svid(self) -> None:
        """Of two credential sets with the same SVID the newer one is returned."""
        old = self.begin()
        self.facts = WorkloadFacts.explicit(host_name="api-2")
        self.clock.advance(CHECK_EVERY)
        self.assertIs(self.rotation.of_evidence(evidence_of(CALLER, FIRST)), self.rotation.current)
        self.assertIsNot(self.rotation.current, old)

    def test_statements_of_kept_sets(self) -> None:
        """Statements of old and new credential sets are found by their identifier."""
        old = self.begin()
        self.source.rotate(SECOND)
        for each in (old, self.current()):
            self.assertEqual(self.rotation.statement(each.statement.id), each.statement.envelope.serialize())
        self.assertIsNone(self.rotation.statement("wls_unknown"))

    def test_expired_are_forgotten(self) -> None:
        """An expired credential set is removed at the next check; the current one never is."""
        old = self.begin()
        self.source.rotate(SECOND)
        self.clock.pump([CHECK_EVERY] * 359)
        self.assertIsNotNone(self.rotation.statement(old.statement.id))
        self.clock.advance(CHECK_EVERY)
        self.assertIsNone(self.rotation.statement(old.statement.id))
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, FIRST)))
        self.assertIsNotNone(self.stored(old.statement.id))
        self.clock.pump([CHECK_EVERY] * 400)
        self.assertEqual(self.current().svid, SECOND)


class FailureTests(RotationTestCase):
    """Failures of the rotation."""

    def test_backoff(self) -> None:
        """The old set stays in use; retry pauses double up to 30 s, and checks between retries send no request."""
        old = self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.assertEqual(self.pauses(7), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0])
        self.assertIs(self.rotation.current, old)
        self.assertEqual(self.observer.failed, ["pq_issuer_unavailable"] * 8)
        self.assertIs(self.rotation.last_error, DOWN)

    def test_jitter(self) -> None:
        """The pause is multiplied by the jitter."""
        self.begin()
        self.jitter = 0.5
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.assertEqual(self.pauses(6), [0.5, 1.0, 2.0, 4.0, 8.0, 15.0])

    def test_success_resets_the_pause(self) -> None:
        """After a success the next failure starts with the short pause again."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.pauses(4)
        self.issuer.error = None
        self.pauses(1)
        self.assertEqual((self.current().svid, self.rotation.last_error), (SECOND, None))
        self.issuer.error = DOWN
        self.source.rotate(THIRD)
        self.assertEqual(self.pauses(2), [1.0, 2.0])

    def test_retry(self) -> None:
        """When the cause of a failure is gone the next attempt is made at once, and later pauses are short again."""
        self.begin()
        self.rotation.retry()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.pauses(4)
        failed = len(self.observer.failed)
        self.rotation.retry()
        self.assertEqual(failed + 1, len(self.observer.failed))
        self.assertEqual([1.0, 2.0], self.pauses(2))
        self.issuer.error = None
        self.rotation.retry()
        self.assertEqual((self.current().svid, self.rotation.last_error), (SECOND, None))
        asked = len(self.issuer.asked)
        self.rotation.retry()
        self.assertEqual(asked, len(self.issuer.asked))

    def test_new_svid_does_not_wait(self) -> None:
        """A new SVID is tried at once and cancels the pause."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.pauses(4)
        self.issuer.error = None
        self.source.rotate(THIRD)
        self.assertEqual(self.current().svid, THIRD)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.pump([1.0] * 60)
        self.assertEqual(self.issuer.asked[-2:], [SECOND, THIRD])

    def flood(self) -> int:
        """Change the SVID 20 times a second for ten seconds; return how often the issuer was asked."""
        asked = len(self.issuer.asked)
        for _turn in range(100):
            for svid in (SECOND, FIRST):
                self.source.rotate(svid, AUTHORITY.bundles())
                self.clock.advance(0.05)
        return len(self.issuer.asked) - asked

    def test_flood_without_credentials(self) -> None:
        """When the SVID changes rapidly, a failing issuer is asked once a second; its first success is used."""
        self.rotation.startService()
        self.issuer.error = DOWN
        self.assertLessEqual(self.flood(), BURST + 11)
        self.assertLessEqual(self.flood(), 11)
        self.issuer.error = None
        self.source.rotate(SECOND)
        self.clock.advance(1.01)
        self.assertEqual(self.current().svid, SECOND)

    def test_flood_over_credentials(self) -> None:
        """The same limit applies while an older credential set is in use."""
        old = self.begin()
        self.issuer.error = DOWN
        self.assertLessEqual(self.flood(), BURST + 11)
        self.assertIs(self.rotation.current, old)

    def test_flood_that_changes_nothing(self) -> None:
        """Updates that change neither SVID nor leaf are no attempts: after 1000 of them a new SVID is used at once."""
        self.begin()
        for turn in range(1000):
            self.source.rotate(FIRST, AUTHORITY.bundles() if turn % 2 else OTHER.bundles())
        self.source.rotate(SECOND, AUTHORITY.bundles())
        self.assertEqual(self.current().svid, SECOND)

    def test_facts_that_cannot_be_read(self) -> None:
        """When facts cannot be read, the old credential set stays in use and the read is retried."""
        old = self.begin()
        self.facts_error = StoreClosed()
        self.clock.advance(CHECK_EVERY)
        self.assertIs(self.rotation.current, old)
        self.assertEqual(len(self.observer.failed), 1)
        self.facts_error = None
        self.facts = WorkloadFacts.explicit(host_name="api-2")
        self.clock.advance(1)
        self.assertEqual(self.current().facts, self.facts)

    def test_unexpected_exception(self) -> None:
        """An unexpected exception is logged with its traceback, reported by type, and the attempt is repeated."""
        self.begin()
        self.issuer.error = ValueError("private")
        self.source.rotate(SECOND)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.observer.failed, ["internal_error"])
        self.assertIsInstance(self.rotation.last_error, CredentialsUnmade)
        self.assertEqual(str(self.rotation.last_error), "new credentials could not be made: ValueError")
        self.issuer.error = None
        self.clock.advance(1)
        self.assertEqual(self.current().svid, SECOND)

    def test_unexpected_exception_of_the_facts(self) -> None:
        """The same applies to an unexpected exception while facts are read."""
        self.begin()
        self.facts_error = RuntimeError("no")
        self.clock.advance(CHECK_EVERY)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.facts_error = None
        self.source.rotate(SECOND)
        self.assertEqual(self.current().svid, SECOND)

    def test_leaf_of_another_svid(self) -> None:
        """A leaf that is bound to another SVID is refused."""
        old = self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.issuer.waiting[0].callback(leaf_of(THIRD))
        self.assertIs(self.rotation.current, old)
        self.assertEqual(self.observer.failed, ["notary_unavailable"])

    def test_failing_subscriber(self) -> None:
        """An exception of a subscriber is logged; other subscribers are called and the credential set stays in use."""
        after: list[int] = []

        def broken() -> None:
            raise RuntimeError("no")

        self.rotation = self.make()
        self.rotation.subscribe(broken)
        self.rotation.subscribe(lambda: after.append(1))
        self.begin()
        self.assertEqual((len(self.flushLoggedErrors(RuntimeError)), len(after)), (1, 1))
        self.source.rotate(SECOND, AUTHORITY.bundles().replace(OTHER.bundle()))
        self.assertEqual((len(self.flushLoggedErrors(RuntimeError)), len(after)), (2, 3))
        self.assertEqual((self.current().svid, self.observer.failed), (SECOND, []))

    def test_statement_that_is_not_stored(self) -> None:
        """A statement that the store refused is written again at each check until it is stored."""
        self.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        statement_id = self.begin().statement.id
        self.clock.advance(CHECK_EVERY)
        self.assertIsNone(self.stored(statement_id))
        self.store.failure = None
        self.clock.advance(CHECK_EVERY)
        self.assertIsNotNone(self.stored(statement_id))
        self.store.hold = True
        self.clock.advance(CHECK_EVERY)
        self.assertEqual(self.store.held, 0)

    def test_pending_statement_is_not_put_twice(self) -> None:
        """While a write of the statement is pending, it is not written again."""
        self.store.hold = True
        self.begin()
        self.clock.advance(CHECK_EVERY)
        self.assertEqual(self.store.held, 1)

    def test_store_that_raises(self) -> None:
        """A store that raises is logged, does not block the credential set, and gets the statement later."""
        self.store.raises = RuntimeError("no")
        self.rotation.startService()
        ready = self.rotation.when_ready()
        self.source.rotate(FIRST, AUTHORITY.bundles())
        self.successResultOf(ready)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.store.raises = None
        self.clock.advance(CHECK_EVERY)
        self.assertIsNotNone(self.stored(self.current().statement.id))

    def test_expired_statement_is_given_up(self) -> None:
        """A statement that was not stored before its credential set was removed is not written any more."""
        self.store.failure = StoreUnavailable(path="notary.db", detail="disk full")
        old = self.begin()
        self.source.rotate(SECOND)
        self.clock.pump([CHECK_EVERY] * 361)
        self.store.failure = None
        self.clock.advance(CHECK_EVERY)
        self.assertIsNone(self.stored(old.statement.id))
        self.assertIsNotNone(self.stored(self.current().statement.id))


class StopTests(RotationTestCase):
    """Stopping the rotation."""

    def test_nothing_is_left(self) -> None:
        """After the stop no delayed call is left and the source is unsubscribed."""
        self.begin()
        self.rotation.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.source.rotate(SECOND)
        self.assertEqual((self.rotation.svid, len(self.issuer.asked)), (FIRST, 1))

    def test_during_a_pause(self) -> None:
        """The stop cancels a scheduled retry."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        self.rotation.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_during_a_leaf_request(self) -> None:
        """The stop cancels a pending leaf request; its response is not used."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.source.rotate(THIRD)
        self.rotation.stopService()
        self.assertEqual(self.issuer.cancelled, self.issuer.waiting)
        self.assertEqual((self.rotation.svid, len(self.issuer.asked)), (FIRST, 2))
        self.assertEqual((self.observer.failed, self.clock.getDelayedCalls()), ([], []))

    def test_failure_after_the_stop(self) -> None:
        """An attempt that fails after the stop schedules nothing."""
        self.begin()
        late: Deferred[PqLeaf] = Deferred(
            lambda deferred: deferred.errback(PqIssuerError("pq_issuer_timeout", address="unix:///pq.sock", seconds=1))
        )
        self.issuer.obtain = lambda svid: late
        rotation = self.make()
        rotation.startService()
        rotation.stopService()
        self.rotation.stopService()
        self.assertEqual((self.observer.failed, self.clock.getDelayedCalls()), ([], []))

    def test_start_again(self) -> None:
        """A stopped rotation can be started again."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.rotation.stopService()
        self.issuer.waiting = None
        self.rotation.startService()
        self.assertEqual(self.rotation.svid, SECOND)
