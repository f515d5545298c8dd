"""Requests for policies to a manager whose answers and pauses the test decides on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity.matchers import MemberOf
from svc.identity.spiffeid import TrustDomain
from svc.transport.errors import ConnectFailed
from svc.workload.control_plane import Answer
from svc.workload.errors import CredentialsMissing
from svc.workload.managerwatch import PAUSE, TIMEOUT, WAIT, ManagerWatch

REFUSED = b'{"code":"policy_caller_unknown"}'


class FakeServer:
    """A manager: keeps requests until the test answers them."""

    address = "manager:9446"

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.waiting: Deferred[Answer] = Deferred()
        self.closed = 0

    async def request(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """Keep it."""
        assert (method, path) == ("GET", "/v1/policy")
        self.asked.append(headers)
        self.waiting = Deferred()
        return await self.waiting

    def close(self) -> Deferred[None]:
        """Count it."""
        self.closed += 1
        return succeed(None)


class ManagerWatchTests(SynchronousTestCase):
    """A watch that has credentials."""

    def setUp(self) -> None:
        """Start it."""
        self.clock = Clock()
        self.server = FakeServer()
        self.got: list[tuple[bytes, str]] = []
        self.errors: list[SvcError | None] = []
        self.broken: Exception | None = None
        self.watch = self.make(succeed(None))

    def make(self, ready: Deferred[None]) -> ManagerWatch:
        """Make and start a watch."""
        watch = ManagerWatch(
            "manager:9446",
            "/v1/policy",
            cast(Any, None),
            self.clock,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            expected=MemberOf(TrustDomain.parse("example.org")),
            max_answer=100,
            ready=lambda: ready,
            changed=self.changed,
            observer=self,
        )
        watch._server = cast(Any, self.server)
        watch.startService()
        self.addCleanup(lambda: watch.running and watch.stopService())
        return watch

    async def changed(self, data: bytes, version: str) -> None:
        """Take a list, or refuse it."""
        if self.broken is not None:
            raise self.broken
        self.got.append((data, version))

    def manager_answered(self) -> None:
        """An answer."""
        self.errors.append(None)

    def manager_failed(self, error: SvcError) -> None:
        """A failure."""
        self.errors.append(error)

    def answer(self, code: int, etag: str = "", data: bytes = b"") -> None:
        """Answer the request that waits."""
        self.server.waiting.callback(Answer(code, etag, data))

    def test_lists(self) -> None:
        """Each list is given on, and the next one asked for at once, with the tag of the last; 304 changes nothing."""
        self.answer(200, '"1"', b"a")
        self.answer(304, '"1"')
        self.answer(200, '"2"', b"b")
        self.assertEqual([(b"a", "1"), (b"b", "2")], self.got)
        tags = [each.get("if-none-match") for each in self.server.asked]
        self.assertEqual([None, '"1"', '"1"', '"2"'], tags)
        self.assertEqual({"wait=30"}, {each["prefer"] for each in self.server.asked})
        self.assertEqual(([None] * 3, 0), (self.errors, self.server.closed))

    def test_failures(self) -> None:
        """Whatever fails is counted by its reason, and tried again on another connection after exactly five seconds."""
        answers = {
            "manager_watch_refused": lambda: self.answer(403, data=REFUSED),
            "manager_watch_malformed": lambda: self.answer(200, data=b"a"),
            "manager_watch_unavailable": lambda: self.server.waiting.errback(ConnectFailed(address="a", detail="gone")),
            "manager_watch_timeout": lambda: self.clock.advance(WAIT + TIMEOUT),
        }
        for number, (reason, failed) in enumerate(answers.items(), 1):
            failed()
            self.assertEqual((reason, number), (self.errors[-1].reason, self.server.closed))
            self.clock.advance(PAUSE - 0.01)
            self.assertEqual(number, len(self.server.asked))
            self.clock.advance(0.01)
            self.assertEqual(number + 1, len(self.server.asked))
        self.server.waiting.errback(Failure(ConnectionLost()))
        self.assertIn("cannot be asked: ", str(self.errors[-1]))
        self.assertIn("policy_caller_unknown", str(self.errors[0]))
        self.clock.advance(PAUSE)
        self.answer(200, '"1"', b"a")
        self.assertEqual([(b"a", "1")], self.got)

    def test_refused_list(self) -> None:
        """One that is not valid is asked for again after the manager's next answer that nothing has changed."""
        self.broken = PolicyBroken()
        self.answer(200, '"1"', b"a")
        self.assertIs(self.broken, self.errors[-1])
        self.clock.advance(PAUSE)
        self.assertEqual('"1"', self.server.asked[-1]["if-none-match"])
        self.answer(304, '"1"')
        self.assertNotIn("if-none-match", self.server.asked[-1])
        self.broken = None
        self.answer(200, '"1"', b"a")
        self.answer(304, '"1"')
        self.assertEqual(('"1"', [(b"a", "1")]), (self.server.asked[-1]["if-none-match"], self.got))

    def test_defect(self) -> None:
        """A defect in the reading of one list does not end the watch."""
        self.broken = ZeroDivisionError()
        self.answer(200, '"1"', b"a")
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
        self.assertIn("ZeroDivisionError", str(self.errors[-1]))
        self.clock.advance(PAUSE)
        self.broken = None
        self.answer(200, '"2"', b"b")
        self.assertEqual([(b"b", "2")], self.got)

    def test_end(self) -> None:
        """A watch that is stopped asks no more, whatever it waits for."""
        self.watch.stopService()
        self.assertEqual((1, []), (self.server.closed, self.clock.getDelayedCalls()))
        paused = self.make(succeed(None))
        self.answer(403)
        paused.stopService()
        self.assertEqual([], self.clock.getDelayedCalls())
        errors, asking = len(self.errors), self.make(succeed(None))
        self.server.waiting.addErrback(lambda _cancelled: Failure(ConnectionLost()))
        asking.stopService()
        self.assertEqual(([], errors), (self.clock.getDelayedCalls(), len(self.errors)))
        count = len(self.server.asked)
        waiting = self.make(Deferred())
        waiting.stopService()
        self.clock.advance(100)
        self.assertEqual(count, len(self.server.asked))

    def test_credentials(self) -> None:
        """Nothing is asked before there are credentials; that they are late is counted."""
        ready: Deferred[None] = Deferred()
        count = len(self.server.asked)
        self.make(ready)
        self.assertEqual(count, len(self.server.asked))
        ready.callback(None)
        self.assertEqual(count + 1, len(self.server.asked))
        self.make(fail(CredentialsMissing(socket="a")))
        self.assertEqual("credentials_missing", self.errors[-1].reason)


class PolicyBroken(SvcError):
    """a list is not valid"""

    reason = "broken"
