"""Tests of svc.workload.source."""

from __future__ import annotations

import gc
import weakref
from datetime import datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import TrustDomain
from svc.identity.svid import X509Svid
from svc.transport.creators import TlsIdentity
from svc.workload.errors import (
    CredentialsMissing,
    IdentityWithdrawn,
    NoIdentityIssued,
    NoWorkloadApi,
    SocketAddressInvalid,
    SourceStopped,
    StreamFailed,
    UpdateRejected,
    UpdateUnusable,
    WorkloadApiSilent,
    WorkloadApiUnavailable,
    WorkloadSocketDead,
    WorkloadSocketDenied,
    WorkloadSocketMissing,
)
from svc.workload.interface import CredentialSource
from svc.workload.source import FIRST_MESSAGE_SECONDS, WorkloadSource
from svc.workload.watch import Cause, StreamListener, StreamProblem
from tests.workload.messages import AUTHORITY, FOREIGN, NOW, Message, bundle_der, message_of

SOCKET = "unix:///run/agent.sock"


class HandWatch:
    """A watch that a test moves by hand."""

    def __init__(self) -> None:
        self.started = 0
        self.reopened = 0
        self.stopped: Deferred[None] = Deferred()

    def start(self) -> None:
        """Count."""
        self.started += 1

    def reopen(self) -> None:
        """Count."""
        self.reopened += 1

    def stop(self) -> Deferred[None]:
        """Give what the test fires."""
        return self.stopped


class SourceCase(SynchronousTestCase):
    """A source with a clock and a watch of the test's own."""

    def setUp(self) -> None:
        """Make and start it."""
        self.clock = Clock()
        self.set = timedelta()
        self.watch = HandWatch()
        self.source = self.make()
        self.source.startService()

    def make(self, **keys: object) -> WorkloadSource:
        """Make a source."""
        return WorkloadSource(
            SOCKET,
            reactor=self.clock,
            start_timeout=10,
            now=self.now,
            make_watch=lambda listener: self.watch,
            **keys,  # type: ignore[arg-type]
        )

    def now(self) -> datetime:
        """Tell the time of the clock."""
        return NOW + timedelta(seconds=self.clock.seconds()) + self.set

    def stop(self) -> None:
        """Stop it and see that nothing is left."""
        stopped = self.source.stopService()
        self.watch.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def break_off(self, cause: Cause, code: str = "X") -> None:
        """Let the stream fail."""
        self.source.stream_failed(StreamProblem(cause, code, "detail"))


class FirstUpdateTests(SourceCase):
    """From the start to the first good update."""

    def test_before(self) -> None:
        """Before the first update there is no SVID, no bundle and no claim of one."""
        self.assertRaises(CredentialsMissing, lambda: self.source.svid)
        self.assertRaises(CredentialsMissing, lambda: self.source.bundles)
        self.assertRaises(CredentialsMissing, lambda: self.source.svids)
        self.assertEqual(self.source.state.phase, "starting")
        self.assertEqual(self.watch.started, 1)
        self.assertNoResult(self.source.when_ready())

    def test_good(self) -> None:
        """The first good update makes it ready and is what it serves."""
        ready = self.source.when_ready()
        first, second = AUTHORITY.svid("/a"), AUTHORITY.svid("/b")
        self.source.got_message(message_of(first, second))
        self.successResultOf(ready)
        self.successResultOf(self.source.when_ready())
        self.assertEqual(self.source.svid, first)
        self.assertEqual(self.source.svids, (first, second))
        self.assertEqual(self.source.bundles, AUTHORITY.bundles())
        state = self.source.state
        self.assertEqual((state.phase, state.updates, state.last_error), ("connected", 1, None))
        self.assertEqual((state.last_update, state.not_after), (NOW, first.not_after))
        self.stop()

    def test_implements_the_interfaces(self) -> None:
        """It is a source of credentials and an identity for TLS."""
        as_source: CredentialSource = self.source
        as_identity: TlsIdentity = self.source
        self.assertIs(as_source, as_identity)

    def test_bundles_keep_their_identity(self) -> None:
        """The same bundle object is given as long as it does not change: TLS contexts are kept by it."""
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertIs(self.source.bundles, self.source.bundles)

    def unavailable(self) -> WorkloadApiUnavailable:
        """Let the start-up wait end and give back the error."""
        ready = self.source.when_ready()
        self.clock.advance(9.9)
        self.assertNoResult(ready)
        self.clock.advance(0.2)
        error = self.failureResultOf(ready, WorkloadApiUnavailable).value
        self.assertIn(SOCKET, str(error))
        self.assertIn("10 s", str(error))
        self.assertTrue(error.advice())
        # Whoever asks later hears the same at once.
        self.failureResultOf(self.source.when_ready(), type(error))
        return error

    def test_causes(self) -> None:
        """The error of the start-up wait names what happened."""
        causes: tuple[tuple[Cause, type[WorkloadApiUnavailable], str], ...] = (
            ("missing", WorkloadSocketMissing, "no such file"),
            ("denied", WorkloadSocketDenied, "permission denied"),
            ("dead", WorkloadSocketDead, "nobody listens"),
            ("no_identity", NoIdentityIssued, "no identity issued"),
            ("silent", WorkloadApiSilent, "sent nothing"),
            ("no_grpc", NoWorkloadApi, "another service answers"),
        )
        for cause, kind, words in causes:
            self.setUp()
            self.break_off(cause)
            error = self.unavailable()
            self.assertIs(type(error), kind)
            self.assertIn(words, str(error))

    def test_other_cause(self) -> None:
        """A failure without a class of its own is told with code and detail."""
        self.break_off("failed", "UNIMPLEMENTED")
        self.assertIn("UNIMPLEMENTED: detail", str(self.unavailable()))

    def test_silence(self) -> None:
        """A server that takes the call and says nothing is told as silent."""
        self.source.stream_opening()
        self.assertIsInstance(self.unavailable(), WorkloadApiSilent)

    def test_ended_keeps_the_cause(self) -> None:
        """A stream that just ended does not hide that the identity was denied before."""
        self.break_off("no_identity")
        self.break_off("ended")
        self.assertIsInstance(self.unavailable(), NoIdentityIssued)

    def test_unusable(self) -> None:
        """When every update was refused, the error says why."""
        self.source.got_message(Message([]))
        error = self.unavailable()
        self.assertIsInstance(error, UpdateUnusable)
        self.assertIn("it has no SVID", str(error))

    def test_late(self) -> None:
        """An update after the end of the wait still makes it ready."""
        self.unavailable()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.successResultOf(self.source.when_ready())
        self.assertEqual(self.source.state.phase, "connected")

    def test_stopped_before(self) -> None:
        """Stopping before the first update fails those who wait."""
        ready = self.source.when_ready()
        self.stop()
        self.failureResultOf(ready, SourceStopped)
        self.assertEqual(self.source.state.phase, "stopped")

    def test_address(self) -> None:
        """An address that is none is refused when the source is made."""
        self.assertRaises(SocketAddressInvalid, WorkloadSource, "http://x", reactor=self.clock)


class LaterTests(SourceCase):
    """After the first update."""

    def setUp(self) -> None:
        """Take a first update and count changes."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.got_message(message_of(self.first))
        self.changes: list[X509Svid] = []
        self.unsubscribe = self.source.subscribe(lambda: self.changes.append(self.source.svid))

    def test_rotation(self) -> None:
        """A new SVID is in force and told in the very call that brought it."""
        second = AUTHORITY.svid("/a")
        self.source.got_message(message_of(second))
        self.assertEqual(self.source.svid, second)
        self.assertEqual(self.changes, [second])

    def test_same_again(self) -> None:
        """A message that changes nothing is taken and not told."""
        self.source.got_message(message_of(self.first))
        self.assertEqual(self.changes, [])
        self.assertEqual(self.source.state.updates, 2)

    def test_new_federated_bundle(self) -> None:
        """A bundle alone is a change."""
        message = message_of(self.first)
        message.federated_bundles = {"spiffe://foreign.example": bundle_der(FOREIGN.bundle())}
        self.source.got_message(message)
        self.assertEqual(self.changes, [self.first])
        self.assertEqual(self.source.bundles.bundle_for(TrustDomain("foreign.example")), FOREIGN.bundle())

    def test_unsubscribed(self) -> None:
        """Who has unsubscribed hears nothing more, and may do it twice."""
        self.unsubscribe()
        self.unsubscribe()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertEqual(self.changes, [])

    def test_failing_subscriber(self) -> None:
        """A subscriber that fails does not keep others from hearing."""
        heard: list[int] = []
        self.source.subscribe(lambda: heard.append(1 // 0))
        self.source.subscribe(lambda: heard.append(1))
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertEqual(heard, [1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_outage(self) -> None:
        """An outage keeps the last good values, is told by the state, and ends with the next good update."""
        self.break_off("dead", "ECONNREFUSED")
        self.break_off("dead", "ECONNREFUSED")
        self.assertEqual(self.source.svid, self.first)
        state = self.source.state
        self.assertEqual((state.phase, state.failures), ("stale", 2))
        self.assertIsInstance(state.last_error, StreamFailed)
        self.source.got_message(message_of(self.first))
        self.assertEqual((self.source.state.phase, self.source.state.last_error), ("connected", None))

    def test_denied(self) -> None:
        """A denial keeps the last good values."""
        self.break_off("no_identity", "PERMISSION_DENIED")
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.source.state.phase, "stale")
        self.clock.advance(3600)
        self.assertEqual((self.source.svid, self.changes), (self.first, []))

    def test_bad_update(self) -> None:
        """A bad update is counted and keeps the last good values."""
        expired = AUTHORITY.svid("/a", not_before=NOW - timedelta(hours=2), not_after=NOW - timedelta(hours=1))
        for bad in (Message([]), message_of(expired)):
            self.source.got_message(bad)
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.changes, [])
        state = self.source.state
        self.assertEqual((state.phase, state.rejected, state.updates), ("stale", 2, 1))
        self.assertIsInstance(state.last_error, UpdateRejected)

    def test_expired(self) -> None:
        """The last good SVID stays readable beyond its end; the state says when it ended."""
        self.break_off("dead")
        self.clock.advance(7200)
        self.assertEqual(self.source.svid, self.first)
        self.assertLess(self.source.state.not_after, self.now())

    def test_overdue(self) -> None:
        """A stream that stays open and brings nothing while the SVID runs out is made anew, at a bounded rate."""
        self.clock.advance(60 * 45)
        self.assertEqual(self.watch.reopened, 0)
        self.clock.advance(60 * 5)
        self.assertEqual(self.watch.reopened, 1)
        for _ in range(60):
            self.clock.advance(60)
        self.assertLess(self.watch.reopened, 13)
        self.stop()

    def test_clock_set(self) -> None:
        """When the clock was set the stream is made anew at once, and the renewal is expected by the new time."""
        self.source.clock_stepped()
        self.assertEqual(self.watch.reopened, 1)
        self.set += timedelta(minutes=55)
        self.source.clock_stepped()
        self.assertEqual(self.watch.reopened, 2)
        self.clock.advance(60 * 8)
        self.assertEqual(self.watch.reopened, 3)
        self.stop()
        self.source.clock_stepped()
        self.assertEqual(self.watch.reopened, 3)

    def test_silent_call(self) -> None:
        """A call that stays without its first message is made anew."""
        self.source.stream_opening()
        self.clock.advance(FIRST_MESSAGE_SECONDS)
        self.assertEqual(self.watch.reopened, 1)
        self.source.stream_opening()
        self.source.got_message(message_of(self.first))
        self.clock.advance(FIRST_MESSAGE_SECONDS)
        self.assertEqual(self.watch.reopened, 1)

    def test_after_stop(self) -> None:
        """What the thread had already handed over when the source was stopped changes nothing."""
        self.stop()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.break_off("dead")
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.source.state.phase, "stopped")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stuck_thread(self) -> None:
        """Stopping ends within bounded time even when the thread does not."""
        stopped = self.source.stopService()
        self.clock.advance(2.9)
        self.assertNoResult(stopped)
        self.clock.advance(0.2)
        self.successResultOf(stopped)
        self.watch.stopped.callback(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_restart(self) -> None:
        """A source that was stopped can be started again and keeps its values until then."""
        self.stop()
        self.watch = HandWatch()
        self.source.startService()
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.watch.started, 1)


class WithdrawalTests(SourceCase):
    """When the Workload API itself ends the identity."""

    def setUp(self) -> None:
        """Take a first update and count what subscribers are told."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.got_message(message_of(self.first))
        self.told: list[str] = []
        self.source.subscribe(lambda: self.told.append(self.source.state.phase))

    def deny(self) -> None:
        """Answer that there is no identity."""
        self.break_off("no_identity", "PERMISSION_DENIED")

    def withdrawn(self) -> bool:
        """Whether the identity has ended."""
        try:
            return self.source.svid != self.first
        except IdentityWithdrawn:
            return True

    def test_confirmed(self) -> None:
        """Denials over the whole grace end the identity: there is no SVID any more, and subscribers are told once."""
        self.deny()
        self.clock.advance(5)
        self.deny()
        self.clock.advance(4.99)
        self.deny()
        self.assertFalse(self.withdrawn())
        self.clock.advance(0.01)
        self.assertFalse(self.withdrawn())
        self.deny()
        error = self.assertRaises(IdentityWithdrawn, lambda: self.source.svid)
        self.assertIn("spiffe://example.org/a", str(error))
        self.assertIn("PERMISSION_DENIED", str(error))
        self.assertIn("registration entry", error.advice())
        self.assertRaises(IdentityWithdrawn, lambda: self.source.svids)
        self.assertEqual((self.told, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.assertEqual(str(self.source.state.last_error), str(error))
        self.assertEqual(self.source.bundles, AUTHORITY.bundles())
        self.deny()
        self.break_off("dead")
        self.assertEqual((self.told, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.assertEqual(str(self.source.state.last_error), str(error))
        self.clock.advance(7200)
        self.assertEqual(self.watch.reopened, 0)
        self.stop()

    def test_asked_often(self) -> None:
        """Who asks for what is withdrawn leaves nothing behind, however often: neither frames nor what they hold."""
        for seconds in (10, 0):
            self.deny()
            self.clock.advance(seconds)
        held: list[weakref.ref[Clock]] = []

        def ask() -> None:
            mine = Clock()
            held.append(weakref.ref(mine))
            for name in ("svid", "svids"):
                try:
                    getattr(self.source, name)
                except IdentityWithdrawn:
                    continue
                self.fail(name)

        for _ in range(5):
            ask()
        gc.collect()
        self.assertEqual([each() for each in held], [None] * 5)

    def test_comes_back(self) -> None:
        """The next good update brings it back, the very SVID of before too, and a later denial counts from its own."""
        for svid in (self.first, AUTHORITY.svid("/a")):
            self.deny()
            self.clock.advance(10)
            self.deny()
            self.assertTrue(self.withdrawn())
            self.source.got_message(message_of(svid))
            self.assertEqual((self.source.svid, self.source.state.phase), (svid, "connected"))
            self.assertIsNone(self.source.state.last_error)
            self.deny()
            self.assertEqual(self.source.svid, svid)
            self.source.got_message(message_of(svid))
        self.assertEqual(self.told, ["withdrawn", "connected"] * 2)

    def test_interrupted(self) -> None:
        """Whatever is no such answer, an outage as well as an update, begins the grace anew."""
        causes: tuple[Cause, ...] = ("missing", "denied", "dead", "silent", "ended", "failed")
        for cause in causes:
            self.deny()
            self.clock.advance(9)
            self.break_off(cause)
            self.deny()
            self.clock.advance(9)
            self.deny()
            self.assertFalse(self.withdrawn(), cause)
        self.source.got_message(message_of(self.first))
        self.deny()
        self.clock.advance(9)
        self.source.got_message(message_of(self.first))
        self.clock.advance(9)
        self.deny()
        self.assertFalse(self.withdrawn())
        self.clock.advance(9)
        damaged = message_of(self.first)
        damaged.svids[0].x509_svid = b"0"
        self.source.got_message(damaged)
        self.clock.advance(9)
        self.deny()
        self.assertFalse(self.withdrawn())

    def empty(self) -> None:
        """Answer with an update that has no SVID, on a stream that stays open."""
        self.source.got_message(message_of())

    def asked_anew(self) -> None:
        """The open call ends since this side has cancelled it, and another one is made."""
        self.break_off("silent", "CANCELLED")
        self.source.stream_opening()

    def test_open_stream(self) -> None:
        """An empty update on a stream that stays open is asked for again after the grace; the same answer ends it."""
        self.empty()
        self.clock.advance(9.99)
        self.assertEqual((self.watch.reopened, self.withdrawn()), (0, False))
        self.clock.advance(0.01)
        self.assertEqual((self.watch.reopened, self.withdrawn()), (1, False))
        self.asked_anew()
        self.empty()
        self.assertTrue(self.withdrawn())
        self.assertEqual((self.told, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.clock.advance(7200)
        self.assertEqual(self.watch.reopened, 1)
        self.stop()

    def test_open_stream_that_is_denied(self) -> None:
        """The answer to the question may be a denial as well."""
        self.empty()
        self.clock.advance(10)
        self.asked_anew()
        self.deny()
        self.assertTrue(self.withdrawn())

    def test_open_stream_that_comes_back(self) -> None:
        """An SVID within the grace, or as the answer to the question, ends nothing; the grace begins anew."""
        self.empty()
        self.clock.advance(9)
        self.source.got_message(message_of(self.first))
        self.clock.advance(9)
        self.assertEqual(self.watch.reopened, 0)
        self.empty()
        self.clock.advance(10)
        self.asked_anew()
        self.source.got_message(message_of(self.first))
        self.empty()
        self.clock.advance(9)
        self.empty()
        self.assertFalse(self.withdrawn())
        self.stop()

    def test_question_without_an_answer(self) -> None:
        """Silence is no answer: where the question stays without one the grace begins anew."""
        for cause in ("silent", "dead", "ended"):
            self.empty()
            self.clock.advance(10)
            self.asked_anew()
            self.break_off(cause)  # type: ignore[arg-type]
            self.empty()
            self.assertFalse(self.withdrawn(), cause)
            self.source.got_message(message_of(self.first))

    def test_grace_is_given(self) -> None:
        """The grace is as long as it was made."""
        self.source = self.make(withdrawal_grace=1.0)
        self.source.startService()
        self.source.got_message(message_of(self.first))
        self.deny()
        self.clock.advance(0.9)
        self.deny()
        self.assertFalse(self.withdrawn())
        self.clock.advance(0.1)
        self.deny()
        self.assertTrue(self.withdrawn())

    def test_answers_without_our_svid(self) -> None:
        """An update without an SVID, without the wanted hint, or of another trust domain alone denies as well."""
        for wanted, answer in (
            ({}, Message([])),
            ({"hint": "b"}, message_of(self.first)),
            ({"trust_domain": TrustDomain("example.org")}, message_of(FOREIGN.svid("/a"), authority=FOREIGN)),
        ):
            self.source = self.make(**wanted)
            self.source.startService()
            first = message_of(self.first)
            first.svids[0].hint = "b"
            self.source.got_message(first)
            self.source.got_message(answer)
            self.clock.advance(9.99)
            self.source.got_message(answer)
            self.assertFalse(self.withdrawn())
            self.clock.advance(0.01)
            self.source.got_message(answer)
            self.assertTrue(self.withdrawn(), answer)

    def test_before_the_first(self) -> None:
        """Where no identity was ever there, none is withdrawn; the first one is taken as ever."""
        self.source = self.make()
        self.source.startService()
        for _ in range(3):
            self.deny()
            self.clock.advance(9)
        self.assertEqual(self.source.state.phase, "starting")
        self.source.got_message(message_of(self.first))
        self.deny()
        self.assertEqual(self.source.svid, self.first)

    def test_other_identity(self) -> None:
        """Another identity than before is taken at once."""
        other = AUTHORITY.svid("/b")
        self.source.got_message(message_of(other))
        self.assertEqual((self.source.svid, self.told), (other, ["connected"]))


class ChoiceTests(SourceCase):
    """Which SVID and trust domain are wanted."""

    def test_hint(self) -> None:
        """With a hint the SVID that has it is chosen, and an update without one is refused."""
        self.source = self.make(hint="external")
        self.source.startService()
        message = message_of(AUTHORITY.svid("/a"), AUTHORITY.svid("/b"))
        self.source.got_message(message)
        self.assertEqual(self.source.state.rejected, 1)
        self.assertIn("2 without a hint are there", str(self.source.state.last_error))
        message.svids[0].hint = "x" * 100
        self.source.got_message(message)
        self.assertIn(f"none has the hint 'external'; there are '{'x' * 64}'", str(self.source.state.last_error))
        self.assertNotIn("x" * 65, str(self.source.state.last_error))
        message.svids[1].hint = "external"
        self.source.got_message(message)
        self.assertEqual(self.source.svid.spiffe_id.path, "/b")

    def test_trust_domain(self) -> None:
        """An SVID of another trust domain than the configured one is refused."""
        self.source = self.make(trust_domain=TrustDomain("example.org"))
        self.source.startService()
        self.source.got_message(message_of(FOREIGN.svid("/a"), authority=FOREIGN))
        self.assertEqual(self.source.state.rejected, 1)
        self.assertRaises(CredentialsMissing, lambda: self.source.svid)


def listener_check(source: WorkloadSource) -> StreamListener:
    """Let the type checker see that a source is a listener."""
    return source
