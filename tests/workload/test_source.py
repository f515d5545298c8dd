"""Tests of svc.workload.source."""

from __future__ import annotations

import gc
import os
import weakref
from datetime import datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svc.identity import TrustDomain
from svc.identity.svid import X509Svid
from svc.telemetry.events.workload import WorkloadEvent
from svc.transport.creators import TlsIdentity
from svc.workload.errors import (
    CredentialsMissing,
    IdentityWithdrawn,
    NoIdentityIssued,
    NoOwnSvid,
    NoWorkloadApi,
    SocketAddressInvalid,
    SourceStopped,
    StreamFailed,
    UpdateRejected,
    UpdateUnusable,
    WorkloadApiLost,
    WorkloadApiSilent,
    WorkloadApiUnavailable,
    WorkloadSocketDenied,
    WorkloadSocketMissing,
    WorkloadSocketUnserved,
)
from svc.workload.interface import CredentialSource
from svc.workload.source import FIRST_MESSAGE_SECONDS, WorkloadSource
from svc.workload.watch import Cause, StreamListener, StreamProblem
from tests.proxy.parts import LogTestCase
from tests.workload.messages import AUTHORITY, FOREIGN, NOW, Message, bundle_der, message_of

SOCKET = "unix:///run/agent.sock"


class ManualWatch:
    """A watch that a test controls."""

    def __init__(self) -> None:
        self.started = 0
        self.reopened = 0
        self.stopped: Deferred[None] = Deferred()

    def start(self) -> None:
        self.started += 1

    def reopen(self) -> None:
        self.reopened += 1

    def stop(self) -> Deferred[None]:
        return self.stopped


class SourceCase(LogTestCase):
    """A source with a clock and a watch that the test controls."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.set = timedelta()
        self.watch = ManualWatch()
        self.source = self.make()
        self.source.startService()

    def make(self, **keys: object) -> WorkloadSource:
        return WorkloadSource(
            SOCKET,
            reactor=self.clock,
            now=self.now,
            make_watch=lambda listener: self.watch,  # type: ignore[arg-type, return-value]
            **{"start_timeout": 10, **keys},  # type: ignore[arg-type]
        )

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.seconds()) + self.set

    def stop(self) -> None:
        """Stop it and assert that no timer remains."""
        stopped = self.source.stopService()
        self.watch.stopped.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def break_off(self, cause: Cause, code: str = "X") -> None:
        """Let the stream fail."""
        self.source.stream_failed(StreamProblem(cause, code, "detail"))


class FirstUpdateTests(SourceCase):
    """From the start to the first accepted update."""

    def test_before(self) -> None:
        """Before the first update there is no SVID and no bundle."""
        self.assertRaises(CredentialsMissing, lambda: self.source.svid)
        self.assertRaises(CredentialsMissing, lambda: self.source.bundles)
        self.assertRaises(CredentialsMissing, lambda: self.source.svids)
        self.assertEqual(self.source.state.phase, "starting")
        self.assertEqual(self.watch.started, 1)
        self.assertNoResult(self.source.when_ready())

    def test_good(self) -> None:
        """The first accepted update makes it ready."""
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

    def test_no_limit(self) -> None:
        """Without a limit it is waited for as long as it takes."""
        self.stop()
        self.watch = ManualWatch()
        self.source = self.make(start_timeout=None)
        self.source.startService()
        ready = self.source.when_ready()
        self.clock.pump([60.0] * 20)
        self.assertNoResult(ready)
        svid = AUTHORITY.svid("/a")
        self.source.got_message(message_of(svid))
        self.successResultOf(ready)
        self.stop()

    def test_implements_the_interfaces(self) -> None:
        """It is a source of credentials and an identity for TLS."""
        as_source: CredentialSource = self.source
        as_identity: TlsIdentity = self.source
        self.assertIs(as_source, as_identity)

    def test_bundles_keep_their_identity(self) -> None:
        """The bundle object stays the same as long as it does not change: TLS contexts are cached by it."""
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertIs(self.source.bundles, self.source.bundles)

    def unavailable(self) -> WorkloadApiUnavailable:
        """The error at the end of the start timeout."""
        ready = self.source.when_ready()
        self.clock.advance(9.9)
        self.assertNoResult(ready)
        self.clock.advance(0.2)
        error = self.failureResultOf(ready, WorkloadApiUnavailable).value
        self.assertIn(SOCKET, str(error))
        self.assertIn("10 s", str(error))
        self.assertTrue(error.hint)
        # A later caller gets the same at once.
        self.failureResultOf(self.source.when_ready(), type(error))
        return error

    def test_causes(self) -> None:
        """The error of the start timeout names the cause."""
        causes: tuple[tuple[Cause, type[WorkloadApiUnavailable], str], ...] = (
            ("missing", WorkloadSocketMissing, "no such file"),
            ("denied", WorkloadSocketDenied, "permission denied"),
            ("unserved", WorkloadSocketUnserved, "no process listens"),
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
        """A failure without a class of its own is reported with code and detail."""
        self.break_off("failed", "UNIMPLEMENTED")
        self.assertIn("UNIMPLEMENTED: detail", str(self.unavailable()))

    def test_silence(self) -> None:
        """A server that accepts the call and sends nothing is reported as silent."""
        self.source.stream_opening()
        self.assertIsInstance(self.unavailable(), WorkloadApiSilent)

    def test_ended_keeps_the_cause(self) -> None:
        """A stream that ends does not replace the cause that the identity was denied before."""
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
        """An update after the start timeout still makes it ready."""
        self.unavailable()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.successResultOf(self.source.when_ready())
        self.assertEqual(self.source.state.phase, "connected")

    def test_stopped_before(self) -> None:
        """Stopping before the first update fails the pending calls of when_ready."""
        ready = self.source.when_ready()
        self.stop()
        self.failureResultOf(ready, SourceStopped)
        self.assertEqual(self.source.state.phase, "stopped")

    def test_address(self) -> None:
        """An invalid address is refused when the source is made."""
        self.assertRaises(SocketAddressInvalid, WorkloadSource, "http://x", reactor=self.clock)


class LaterTests(SourceCase):
    """After the first update."""

    def setUp(self) -> None:
        """Accept a first update and count changes."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.got_message(message_of(self.first))
        self.changes: list[X509Svid] = []
        self.unsubscribe = self.source.subscribe(lambda: self.changes.append(self.source.svid))

    def test_rotation(self) -> None:
        """A new SVID is in force and subscribers are notified in the call that brought it."""
        second = AUTHORITY.svid("/a")
        self.source.got_message(message_of(second))
        self.assertEqual(self.source.svid, second)
        self.assertEqual(self.changes, [second])

    def test_same_again(self) -> None:
        """A message that changes nothing is accepted without a notification."""
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
        """An ended subscription gets no notification, and may be ended twice."""
        self.unsubscribe()
        self.unsubscribe()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertEqual(self.changes, [])

    def test_failing_subscriber(self) -> None:
        """A failing subscriber does not prevent the notification of others."""
        received: list[int] = []
        self.source.subscribe(lambda: received.append(1 // 0))
        self.source.subscribe(lambda: received.append(1))
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertEqual(received, [1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_outage(self) -> None:
        """An outage keeps the last valid values, is reported by the state, and ends with the next accepted update."""
        self.break_off("unserved", "ECONNREFUSED")
        self.break_off("unserved", "ECONNREFUSED")
        self.assertEqual(self.source.svid, self.first)
        state = self.source.state
        self.assertEqual((state.phase, state.failures), ("stale", 2))
        self.assertIsInstance(state.last_error, StreamFailed)
        self.source.got_message(message_of(self.first))
        self.assertEqual((self.source.state.phase, self.source.state.last_error), ("connected", None))

    def test_denied(self) -> None:
        """A denial keeps the last valid values."""
        self.break_off("no_identity", "PERMISSION_DENIED")
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.source.state.phase, "stale")
        self.clock.advance(3600)
        self.assertEqual((self.source.svid, self.changes), (self.first, []))

    def test_bad_update(self) -> None:
        """A refused update is counted and keeps the last valid values."""
        expired = AUTHORITY.svid("/a", not_before=NOW - timedelta(hours=2), not_after=NOW - timedelta(hours=1))
        for bad in (Message([]), message_of(expired)):
            self.source.got_message(bad)
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.changes, [])
        state = self.source.state
        self.assertEqual((state.phase, state.rejected, state.updates), ("stale", 2, 1))
        self.assertIsInstance(state.last_error, UpdateRejected)

    def test_expired(self) -> None:
        """The last SVID stays readable after it expired; the state says when."""
        self.break_off("unserved")
        self.clock.advance(7200)
        self.assertEqual(self.source.svid, self.first)
        self.assertLess(self.source.state.not_after, self.now())  # type: ignore[arg-type]

    def test_overdue(self) -> None:
        """A stream that stays open and brings nothing while the SVID expires is replaced, at a bounded rate."""
        self.clock.advance(60 * 45)
        self.assertEqual(self.watch.reopened, 0)
        self.clock.advance(60 * 5)
        self.assertEqual(self.watch.reopened, 1)
        for _ in range(60):
            self.clock.advance(60)
        self.assertLess(self.watch.reopened, 13)
        self.stop()

    def test_silent_while_overdue(self) -> None:
        """A server that hangs is an outage, also where the SVID is so short-lived that calls are made anew often."""
        self.source.got_message(message_of(AUTHORITY.svid("/a", not_before=NOW, not_after=NOW + timedelta(seconds=30))))
        for _second in range(60):
            before = self.watch.reopened
            self.clock.advance(1)
            if self.watch.reopened > before:
                self.source.stream_opening()
        outage = self.source.state.outage
        self.assertIsInstance(outage, WorkloadApiLost)
        self.assertIn("unreachable since", str(outage))
        self.stop()

    def test_clock_set(self) -> None:
        """When the clock was set the stream is replaced at once, and the renewal is expected by the new time."""
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
        """A call without a first message is made again."""
        self.source.stream_opening()
        self.clock.advance(FIRST_MESSAGE_SECONDS)
        self.assertEqual(self.watch.reopened, 1)
        self.source.stream_opening()
        self.source.got_message(message_of(self.first))
        self.clock.advance(FIRST_MESSAGE_SECONDS)
        self.assertEqual(self.watch.reopened, 1)

    def test_own_cancel_is_no_error(self) -> None:
        """A call that this side replaces, since a renewal is overdue or the clock was set, changes nothing."""
        self.logged.clear()
        self.clock.advance(60 * 50)
        self.source.clock_stepped()
        self.assertEqual(2, self.watch.reopened)
        self.source.stream_opening()
        self.assertEqual(("connected", None), (self.source.state.phase, self.source.state.last_error))
        self.assertEqual([], self.logged)

    def test_silence_is_reported(self) -> None:
        """A call without a message is reported once as an error of the server, with its time."""
        for _turn in range(2):
            self.source.stream_opening()
            self.clock.advance(FIRST_MESSAGE_SECONDS)
        logged = self.only(WorkloadEvent.SOURCE_STALE)
        self.assertIn("no message came within 15 s", logged.fields["detail"])
        self.assertNotIn("cancelled", str(logged.fields))

    def stale(self, cause: Cause, code: str) -> dict[str, Any]:
        """The fields of the record of a failed stream."""
        self.source.got_message(message_of(self.first))
        self.logged.clear()
        self.break_off(cause, code)
        return self.only(WorkloadEvent.SOURCE_STALE).fields

    def test_messages_of_failures(self) -> None:
        """A denial, the end of a stream and an outage are logged with different sentences."""
        denied = self.stale("no_identity", "PERMISSION_DENIED")
        self.assertEqual("no_own_svid", denied["detail_reason"])
        process = f"no registration entry matches this process (uid {os.geteuid()}, gid {os.getegid()})"
        self.assertIn(process, denied["detail"])
        self.assertIn("PERMISSION_DENIED", denied["detail"])
        until = (NOW + timedelta(seconds=10)).isoformat()
        self.assertIn(f"withdrawn after {until}", denied["message"])
        ended = self.stale("ended", "OK")
        self.assertIn("ended the stream", ended["message"])
        self.assertIn("without an error", ended["detail"])
        self.assertNotIn("message", self.stale("unserved", "ECONNREFUSED"))

    def test_rejected_update_says_what_is_kept(self) -> None:
        """The record of a refused update says whether an SVID is in use."""
        damaged = message_of(self.first)
        damaged.svids[0].x509_svid = b"0"
        self.source.got_message(damaged)
        self.assertNotIn("message", self.only(WorkloadEvent.UPDATE_REJECTED).fields)
        self.source = self.make()
        self.source.startService()
        self.logged.clear()
        self.source.got_message(damaged)
        self.assertIn("no SVID is in use", self.only(WorkloadEvent.UPDATE_REJECTED).fields["message"])

    def test_after_stop(self) -> None:
        """Messages that the thread delivers after the stop change nothing."""
        self.stop()
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.break_off("unserved")
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.source.state.phase, "stopped")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stuck_thread(self) -> None:
        """Stopping ends within bounded time even if the thread does not end."""
        stopped = self.source.stopService()
        self.clock.advance(2.9)
        self.assertNoResult(stopped)
        self.clock.advance(0.2)
        self.successResultOf(stopped)
        self.watch.stopped.callback(None)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_restart(self) -> None:
        """A stopped source can be started again and keeps its values until then."""
        self.stop()
        self.watch = ManualWatch()
        self.source.startService()
        self.assertEqual(self.source.svid, self.first)
        self.assertEqual(self.watch.started, 1)


class WithdrawalTests(SourceCase):
    """The Workload API ends the identity."""

    def setUp(self) -> None:
        """Accept a first update and count notifications."""
        super().setUp()
        self.first = AUTHORITY.svid("/a")
        self.source.got_message(message_of(self.first))
        self.phases: list[str] = []
        self.source.subscribe(lambda: self.phases.append(self.source.state.phase))

    def deny(self) -> None:
        """Answer that there is no identity."""
        self.break_off("no_identity", "PERMISSION_DENIED")

    def withdrawn(self) -> bool:
        """Whether the identity was withdrawn."""
        try:
            return self.source.svid != self.first
        except IdentityWithdrawn:
            return True

    def test_confirmed(self) -> None:
        """Denials for the whole grace withdraw the identity: there is no SVID, and subscribers are notified once."""
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
        self.assertIn("registration entry", error.hint)
        self.assertRaises(IdentityWithdrawn, lambda: self.source.svids)
        self.assertEqual((self.phases, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.assertEqual(str(self.source.state.last_error), str(error))
        self.assertEqual(self.source.bundles, AUTHORITY.bundles())
        self.deny()
        self.break_off("unserved")
        self.assertEqual((self.phases, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.assertEqual(str(self.source.state.last_error), str(error))
        self.clock.advance(7200)
        self.assertEqual(self.watch.reopened, 0)
        self.stop()

    def test_repeated_reads(self) -> None:
        """Repeated reads of a withdrawn SVID do not accumulate stack frames or what they refer to."""
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
        """The next accepted update restores it, also with the previous SVID, and a later denial starts a new grace."""
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
        self.assertEqual(self.phases, ["withdrawn", "connected"] * 2)

    def test_interrupted(self) -> None:
        """Any other answer, an outage or an update, restarts the grace."""
        causes: tuple[Cause, ...] = ("missing", "denied", "unserved", "silent", "ended", "failed")
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
        """Answer with an update without an SVID, on a stream that stays open."""
        self.source.got_message(message_of())

    def called_again(self) -> None:
        """The open call was cancelled by this side, which is not reported, and another one is made."""
        self.source.stream_opening()

    def test_open_stream(self) -> None:
        """
        After an empty update on an open stream the call is repeated at the end of the grace; the same answer withdraws
        the identity.
        """
        self.empty()
        self.clock.advance(9.99)
        self.assertEqual((self.watch.reopened, self.withdrawn()), (0, False))
        self.clock.advance(0.01)
        self.assertEqual((self.watch.reopened, self.withdrawn()), (1, False))
        self.called_again()
        self.empty()
        self.assertTrue(self.withdrawn())
        self.assertEqual((self.phases, self.source.state.phase), (["withdrawn"], "withdrawn"))
        self.clock.advance(7200)
        self.assertEqual(self.watch.reopened, 1)
        self.stop()

    def test_update_without_an_identity_says_until_when(self) -> None:
        """The record of an empty update says until when the last SVID is used, or that it is withdrawn."""
        self.logged.clear()
        for _turn in range(3):
            self.empty()
            self.clock.advance(5)
        messages = [each.fields["message"] for each in self.of(WorkloadEvent.UPDATE_REJECTED)]
        until = f"withdrawn after {(NOW + timedelta(seconds=10)).isoformat()}"
        self.assertEqual([True, True, False], [until in each for each in messages])
        self.assertIn("it is withdrawn now", messages[2])
        self.assertEqual(1, len(self.of(WorkloadEvent.IDENTITY_WITHDRAWN)))
        self.empty()
        self.assertIn("stays withdrawn", self.of(WorkloadEvent.UPDATE_REJECTED)[-1].fields["message"])

    def test_open_stream_that_is_denied(self) -> None:
        """The answer to the repeated call may be a denial as well."""
        self.empty()
        self.clock.advance(10)
        self.called_again()
        self.deny()
        self.assertTrue(self.withdrawn())

    def test_open_stream_that_comes_back(self) -> None:
        """An SVID within the grace, or as the answer to the repeated call, keeps the identity and ends the grace."""
        self.empty()
        self.clock.advance(9)
        self.source.got_message(message_of(self.first))
        self.clock.advance(9)
        self.assertEqual(self.watch.reopened, 0)
        self.empty()
        self.clock.advance(10)
        self.called_again()
        self.source.got_message(message_of(self.first))
        self.empty()
        self.clock.advance(9)
        self.empty()
        self.assertFalse(self.withdrawn())
        self.stop()

    def test_repeated_call_without_answer(self) -> None:
        """If the repeated call gets no answer the grace starts again."""
        for cause in ("silent", "unserved", "ended"):
            self.empty()
            self.clock.advance(10)
            self.called_again()
            self.break_off(cause)
            self.empty()
            self.assertFalse(self.withdrawn(), cause)
            self.source.got_message(message_of(self.first))

    def test_grace_is_given(self) -> None:
        """The grace is an argument."""
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
        """An update without an SVID, without the configured hint, or of another trust domain is a denial as well."""
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
        """Without a first identity none is withdrawn; the first one is accepted as usual."""
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
        """Another identity than before is accepted at once."""
        other = AUTHORITY.svid("/b")
        self.source.got_message(message_of(other))
        self.assertEqual((self.source.svid, self.phases), (other, ["connected"]))


class ChoiceTests(SourceCase):
    """Selection of SVID and trust domain."""

    def test_hint(self) -> None:
        """With a hint the SVID that has it is selected, and an update without one is refused."""
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

    def test_select(self) -> None:
        """Each SVID of an update is found by its hint; whoever subscribes hears of a change of any of them."""
        heard: list[int] = []
        self.source.subscribe(lambda: heard.append(self.source.state.updates))
        self.assertRaises(CredentialsMissing, self.source.select, None)
        first, second, third = (AUTHORITY.svid(path) for path in ("/a", "/b", "/b"))
        for number, other in enumerate((second, second, third)):
            message = message_of(first, other)
            message.svids[1].hint = "external"
            self.source.got_message(message)
            self.assertEqual((first, other), (self.source.select(None), self.source.select("external")), number)
        self.assertEqual([1, 3], heard)
        error = self.assertRaises(NoOwnSvid, self.source.select, "internal")
        self.assertIn("there are 'external'", str(error))

    def test_trust_domain(self) -> None:
        """An SVID of another trust domain than the configured one is refused."""
        self.source = self.make(trust_domain=TrustDomain("example.org"))
        self.source.startService()
        self.source.got_message(message_of(FOREIGN.svid("/a"), authority=FOREIGN))
        self.assertEqual(self.source.state.rejected, 1)
        self.assertRaises(CredentialsMissing, lambda: self.source.svid)


def listener_check(source: WorkloadSource) -> StreamListener:
    """Lets the type checker verify that a source is a listener."""
    return source


class OutageTests(SourceCase):
    """What is reported of the Workload API while the last credentials are in use."""

    def setUp(self) -> None:
        self.changes: list[str | None] = []
        super().setUp()

    def make(self, **keys: object) -> WorkloadSource:
        return super().make(changed=self.note, **keys)

    def note(self) -> None:
        """Collect the outage of each change."""
        outage = self.source.state.outage
        self.changes.append(None if outage is None else str(outage))

    def test_unreachable(self) -> None:
        """An outage has its start and its cause, which each attempt may change, until the next accepted update."""
        self.assertIsNone(self.source.last_contact)
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.clock.advance(60)
        self.break_off("ended")
        lost = self.now()
        since = f"the Workload API at {SOCKET} is unreachable since {lost.isoformat(timespec='seconds')}: "
        self.assertEqual(self.changes[-1], since + "it ended the stream")
        for cause, words in (
            ("missing", "no such file"),
            ("unserved", "no process listens on this socket"),
            ("failed", "detail"),
        ):
            self.clock.advance(1)
            self.break_off(cause)  # type: ignore[arg-type]
            self.assertEqual(self.changes[-1], since + words)
        self.assertEqual(self.source.last_contact, lost)
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        self.assertEqual((self.changes[-1], self.source.last_contact), (None, self.now()))
        self.stop()

    def test_open_stream(self) -> None:
        """An open stream counts as contact; one that was replaced and brings nothing does not."""
        self.source.got_message(message_of(AUTHORITY.svid("/a")))
        answered = self.now()
        self.clock.advance(100)
        self.assertEqual(self.source.last_contact, self.now())
        self.source.stream_opening()
        self.assertEqual((self.changes[-1], self.source.last_contact), (None, answered))
        self.break_off("silent")
        self.assertIn("it accepted the call and sent nothing", str(self.changes[-1]))
        self.assertEqual(self.source.last_contact, answered)
        self.stop()

    def test_unusable_answers(self) -> None:
        """A denial and a refused update are contact, and an outage with another sentence."""
        self.break_off("no_identity")
        self.assertIn("answers since", str(self.changes[-1]))
        self.assertIn("no identity for this process", str(self.changes[-1]))
        self.assertEqual(self.source.last_contact, self.now())
        self.source.got_message(Message([]))
        self.assertIn("has no SVID for this process", str(self.changes[-1]))
        self.stop()
