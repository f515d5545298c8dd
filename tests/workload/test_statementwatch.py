"""Requests for statements to a manager whose answers, SVIDs and clock the test decides on."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import X509Svid
from svc.identity.matchers import MemberOf
from svc.identity.spiffeid import TrustDomain
from svc.notary.errors import StatementRefused
from svc.notary.statement import Statement
from svc.testing import MemorySource
from svc.workload.control_plane import Answer
from svc.workload.statementwatch import BREATH, MARGIN, PATIENCE, PAUSE, TIMEOUT, WAIT, StatementWatch
from tests.notary.artifacts import NOW, Fixture

FIXTURE = Fixture()
FIRST, SECOND = FIXTURE.svid, FIXTURE.authority.svid("/ns/pay/sa/api")
LIFE = timedelta(minutes=10)


class FakeServer:
    """A manager: keeps requests until the test answers them."""

    address = "manager:9446"

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.waiting: Deferred[Answer] = Deferred()
        self.closed = 0

    async def request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Keep it."""
        assert (method, path) == ("POST", "/v1/statement")
        self.asked.append(headers)
        self.tokens.append(json.loads(body)["token"])
        self.waiting = Deferred()
        return await self.waiting

    def close(self) -> Deferred[None]:
        """Count it."""
        self.closed += 1
        return succeed(None)


class StatementWatchTests(SynchronousTestCase):
    """A watch whose source has an SVID."""

    def setUp(self) -> None:
        """Start it."""
        self.clock = Clock()
        self.server = FakeServer()
        self.source = MemorySource(FIRST, FIXTURE.authority.bundles())
        self.changes = 0
        self.errors: list[str] = []
        self.answers = 0
        self.token = self.mktemp()
        self.write("one")
        self.watch = StatementWatch(
            "manager:9446",
            self.token,
            self.source,
            self.clock,
            now=self.now,
            expected=MemberOf(TrustDomain.parse("example.org")),
            accept=self.accept,
            changed=self.changed,
            observer=self,
        )
        self.watch._server = cast(Any, self.server)
        self.watch.startService()
        self.addCleanup(lambda: self.watch.running and self.watch.stopService())

    def write(self, token: str) -> None:
        """Project another token."""
        with open(self.token, "w", encoding="ascii") as file:
            file.write(f"{token}\n")

    def now(self) -> datetime:
        """The wall clock."""
        return NOW + timedelta(seconds=self.clock.seconds())

    def accept(self, data: bytes, _svid: X509Svid) -> Statement:
        """Read a statement: its name."""
        if data == b"bad":
            raise StatementRefused("key_mismatch", expected="the SVID of this proxy")
        named: Any = SimpleNamespace(id=data.decode(), issued=self.now(), expires=self.now() + LIFE)
        return named

    def changed(self) -> None:
        """Count it."""
        self.changes += 1

    def statement_answered(self) -> None:
        """Count it."""
        self.answers += 1

    def statement_failed(self, error: SvcError) -> None:
        """Keep the reason."""
        self.errors.append(error.reason)

    def answer(self, code: int, data: bytes = b"", etag: str = "") -> None:
        """Answer what waits, and let the pause pass."""
        self.server.waiting.callback(Answer(code, etag, data))
        self.clock.advance(BREATH)

    def serving(self, svid: X509Svid = FIRST) -> str | None:
        """The statement that serves now."""
        found = self.successResultOf(self.watch.obtain(svid))
        return None if found is None else found.id

    def test_statement(self) -> None:
        """New credentials wait for the first answer; then the manager is asked to answer when there is another one."""
        waiting = self.watch.obtain(FIRST)
        self.assertNoResult(waiting)
        self.assertEqual([{}], self.server.asked)
        self.answer(200, b"a", '"1"')
        self.assertEqual(("a", 1, 1), (self.successResultOf(waiting).id, self.changes, self.answers))
        self.assertEqual({"prefer": f"wait={WAIT + 1:.0f}", "if-none-match": '"1"'}, self.server.asked[1])
        self.answer(200, b"b", '"2"')
        self.assertEqual(("b", 2), (self.serving(), self.changes))
        self.answer(304)
        self.assertEqual(("b", 2, '"2"'), (self.serving(), self.changes, self.server.asked[-1]["if-none-match"]))

    def test_renewed_before_its_end(self) -> None:
        """At half of its life another one is asked for, with the token of then."""
        self.answer(200, b"a", '"1"')
        while "if-none-match" in self.server.asked[-1]:
            self.write("two")
            self.clock.advance(float(self.server.asked[-1]["prefer"].removeprefix("wait=")))
            self.answer(304)
        late = self.clock.seconds() - LIFE.total_seconds() / 2
        self.assertTrue(0 <= late <= 3, late)
        self.assertEqual([], self.errors)
        self.assertEqual(("one", "two"), (self.server.tokens[0], self.server.tokens[-1]))
        self.answer(200, b"b", '"1"')
        self.assertEqual("b", self.serving())

    def test_manager_away(self) -> None:
        """The last statement serves until its end, then none; each failure is reported, and followed by an attempt."""
        self.answer(200, b"a", '"1"')
        self.server.waiting.errback(ConnectionLost())
        self.assertEqual(["statement_watch_unavailable"], self.errors)
        while self.serving() == "a":
            self.clock.advance(PAUSE)
            if not self.server.waiting.called:
                self.server.waiting.errback(ConnectionLost())
        left = LIFE.total_seconds() - self.clock.seconds()
        self.assertTrue(0 <= MARGIN.total_seconds() - left <= PAUSE, left)
        self.clock.advance(PAUSE)
        self.answer(200, b"b", '"2"')
        self.assertEqual("b", self.serving())

    def test_silent_manager(self) -> None:
        """Credentials do not wait for long, and a request that is not answered ends."""
        waiting = self.watch.obtain(FIRST)
        self.clock.advance(PATIENCE)
        self.assertIsNone(self.successResultOf(waiting))
        self.clock.advance(TIMEOUT - PATIENCE)
        self.assertEqual(["statement_watch_timeout"], self.errors)
        self.assertIsNone(self.serving(), "the next credentials do not wait")

    def test_unusable(self) -> None:
        """Refusals, answers without a tag, and statements about another key are reported; the one before stays."""
        self.answer(200, b"a", '"1"')
        for code, data, etag, reason in (
            (403, b'{"code":"statement_pod_unknown"}', "", "refused"),
            (503, b"x", "", "refused"),
            (200, b"b", "", "malformed"),
            (200, b"bad", '"3"', "malformed"),
        ):
            self.answer(code, data, etag)
            self.assertEqual(f"statement_watch_{reason}", self.errors[-1])
            self.assertEqual("a", self.serving())
            self.clock.advance(PAUSE)
        self.assertEqual(4, len(self.errors))

    def test_another_svid(self) -> None:
        """It is asked about at once, on another connection; the statement of the former is not about it."""
        self.answer(200, b"a", '"1"')
        closed, asked = self.server.closed, len(self.server.asked)
        self.source.rotate(SECOND, FIXTURE.authority.bundles())
        waiting = self.watch.obtain(SECOND)
        self.assertNoResult(waiting)
        self.assertEqual((asked + 1, {}), (len(self.server.asked), self.server.asked[-1]))
        self.assertLess(closed, self.server.closed)
        self.assertEqual([], self.errors)
        self.answer(200, b"b", '"1"')
        self.assertEqual("b", self.successResultOf(waiting).id)
        self.assertEqual("b", self.serving(SECOND))

    def test_token_missing(self) -> None:
        """It is named; the manager is not asked without it."""
        self.answer(200, b"a", '"1"')
        self.token, asked = "absent", len(self.server.asked)
        self.watch._token = self.watch._token.parent / "absent"
        self.answer(304)
        self.assertEqual((["statement_watch_token"], asked), (self.errors, len(self.server.asked)))

    def test_stopped(self) -> None:
        """Nothing waits any more, and nothing is reported."""
        waiting = self.watch.obtain(FIRST)
        self.watch.stopService()
        self.assertIsNone(self.successResultOf(waiting))
        self.clock.advance(60)
        self.assertEqual(([], 1, []), (self.errors, len(self.server.asked), self.clock.getDelayedCalls()))
