"""The table of an exchange's life against the exchanges of all other tests of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any
from unittest import TestCase, TestSuite

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.reporter import TestResult
from twisted.trial.runner import TestLoader
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.proxy.http.exchange import Exchange
from svc.proxy.http.lifecycle import TRANSITIONS, Input, Stage, stage_of
from svc.store.errors import StoreUnavailable
from tests.proxy.rig import Rig, lose

#: Which method of an exchange is which input.
METHODS = {
    "begin": Input.BEGIN,
    "_admitted": Input.ADMITTED,
    "_not_admitted": Input.ADMITTED,
    "upstream_ready": Input.CONNECTED,
    "upstream_failed": Input.NO_CONNECTION,
    "request_body": Input.REQUEST_BODY,
    "request_end": Input.REQUEST_END,
    "flush": Input.REQUEST_BODY,
    "upstream_events": Input.ANSWERED,
    "upstream_lost": Input.UPSTREAM_LOST,
    "answer": Input.ANSWER,
    "_released": Input.RECORDED,
    "_unrecorded": Input.NOT_RECORDED,
    "sweep": Input.LATE,
    "cut": Input.CUT,
    "client_lost": Input.CLIENT_LOST,
}
NONCE = b"AAAAAAAAAAAAAAAAAAAAAA"
SIGNED = b"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: %b\r\n" % NONCE
GET = b"GET / HTTP/1.1\r\nHost: api\r\n"
POST = b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n"
OWN_PAGE = b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
HEAD, REST = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"cde"
SUITES = ("test_http", "test_notarization", "test_upstream", "test_tunnel", "test_decisions")


def cases(suite: TestSuite) -> Iterator[TestCase]:
    """The tests of a suite but those of Hypothesis, which wants one executor for each."""
    for each in suite:
        if isinstance(each, TestSuite):
            yield from cases(each)
        elif not hasattr(getattr(each, getattr(each, "_testMethodName", ""), None), "hypothesis"):
            yield each  # type: ignore[misc]


class Scene:
    """A connection whose exchange will wait at a stage, and what it waits for there."""

    def __init__(self, stage: Stage, signed: bool) -> None:
        self.rig = Rig()
        self.rig.endpoint.manual = stage is Stage.CONNECTING
        self.admission: Deferred[bool] = Deferred()
        self.commit: Deferred[None] = Deferred()
        self.found: Deferred[None] = Deferred()
        store: Any = self.rig.store
        if stage is Stage.ADMISSION:
            store.nonce_known = lambda *_: self.admission
        if signed:
            store.put_receipt = lambda *_: self.commit
        if stage is Stage.BEGINNING:
            store.get_by_request = lambda *_: self.found
        self.client, self.wire = self.rig.client()


class LifecycleTests(SynchronousTestCase):
    """Stages and what moves between them."""

    maxDiff = None

    def setUp(self) -> None:
        """Watch every exchange."""
        self.seen: set[tuple[Stage, Input, Stage]] = set()
        self.inside: list[Exchange] = []
        for name, what in METHODS.items():
            self.patch(Exchange, name, self.watched(getattr(Exchange, name), what))

    def watched(self, method: Callable[..., Any], what: Input) -> Callable[..., Any]:
        """Note the stage before and after an event; what happens inside of one belongs to it."""

        @wraps(method)
        def call(exchange: Exchange, *arguments: Any, **keywords: Any) -> Any:
            if any(each is exchange for each in self.inside):
                return method(exchange, *arguments, **keywords)
            before = stage_of(exchange)
            self.inside.append(exchange)
            try:
                return method(exchange, *arguments, **keywords)
            finally:
                self.inside.pop()
                if stage_of(exchange) is not before:
                    self.seen.add((before, what, stage_of(exchange)))

        return call

    def test_exchanges_live_by_the_table(self) -> None:
        """Whatever the tests of exchanges do, each change of stage stands in the table, and each of those is met."""
        result = TestResult()
        for case in cases(TestLoader().loadByNames([f"tests.proxy.{name}" for name in SUITES], recurse=True)):
            case.run(result)
        self.assertGreater(result.testsRun, 100)
        self.assertEqual((result.errors, result.failures), ([], []))
        self.end_everywhere()
        self.go_on()
        table = {(before, what, after) for (before, what), afters in TRANSITIONS.items() for after in afters}
        names = lambda steps: sorted(f"{a.name} {w.name} {b.name}" for a, w, b in steps)  # noqa: E731 (read once)
        self.assertEqual(names(self.seen - table), [], "not in the table")
        self.assertEqual(names(table - self.seen), [], "in the table and never met")

    def waiting_at(self, stage: Stage, signed: bool, head: bytes = GET) -> Scene:
        """Bring an exchange to a stage where it waits."""
        scene = Scene(stage, signed)
        request = head + (SIGNED if signed else b"") + b"\r\n"
        scene.client.dataReceived(OWN_PAGE if stage is Stage.BEGINNING else request)
        if stage in (Stage.RESPONSE, Stage.RECORD):
            scene.rig.respond(HEAD)
        if stage is Stage.RECORD:
            scene.rig.respond(REST)
        exchange = scene.client._exchange
        assert exchange is not None
        self.assertIs(stage_of(exchange), stage)
        return scene

    def end_everywhere(self) -> None:
        """Wherever an exchange waits, its client goes, its time is over, or it has to end."""
        for stage in (each for each in Stage if each is not Stage.FINISHED):
            for signed in (False, True):
                if (signed or stage not in (Stage.ADMISSION, Stage.RECORD)) and not (
                    signed and stage is Stage.BEGINNING
                ):
                    head = POST if stage is Stage.REQUEST else GET
                    lose(self.waiting_at(stage, signed, head).client)
                    self.waiting_at(stage, signed, head).rig.sweep(400.0)
                    self.waiting_at(stage, signed, head).client.end_now(ExchangeOutcome.SERVER_ABORTED, "drain")

    def go_on(self) -> None:
        """What an exchange waits for comes, or cannot come."""
        for known in (False, True):
            for head in (GET, POST):
                self.waiting_at(Stage.ADMISSION, True, head).admission.callback(known)
        connecting = self.waiting_at(Stage.ADMISSION, True)
        connecting.rig.endpoint.manual = True
        connecting.admission.callback(False)
        refused = self.waiting_at(Stage.ADMISSION, True)
        refused.rig.endpoint.refuse = OSError("no")
        refused.admission.callback(False)
        for signed in (False, True):
            for head in (GET, POST):
                self.waiting_at(Stage.CONNECTING, signed, head).rig.endpoint.complete()
                self.waiting_at(Stage.CONNECTING, signed, head).rig.endpoint.attempts[0][1].errback(
                    Failure(OSError("no"))
                )
            early = self.waiting_at(Stage.REQUEST, signed, POST)
            early.rig.respond(HEAD)
            whole = self.waiting_at(Stage.REQUEST, signed, POST)
            whole.rig.respond(HEAD + REST)
            for stage in (Stage.REQUEST, Stage.WAITING, Stage.RESPONSE):
                self.waiting_at(stage, signed, POST if stage is Stage.REQUEST else GET).rig.lose_upstream()
        self.waiting_at(Stage.RECORD, True).commit.callback(None)
        self.waiting_at(Stage.RECORD, True).commit.errback(Failure(StoreUnavailable(path="notary.db", detail="full")))
        self.waiting_at(Stage.BEGINNING, False).found.callback(None)

    def test_every_stage_leads_to_the_end(self) -> None:
        """From each stage the end can be reached, each is reached from the beginning, and the end is the end."""
        after: dict[Stage, set[Stage]] = {stage: set() for stage in Stage}
        for (before, _what), afters in TRANSITIONS.items():
            after[before].update(afters)
        self.assertEqual(after[Stage.FINISHED], set())
        for stage in Stage:
            self.assertIn(Stage.FINISHED, {*after[stage], stage}, stage)
        reached, waiting = {Stage.BEGINNING}, [Stage.BEGINNING]
        while waiting:
            for each in after[waiting.pop()] - reached:
                reached.add(each)
                waiting.append(each)
        self.assertEqual(reached, set(Stage))
