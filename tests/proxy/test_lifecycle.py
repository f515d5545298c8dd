"""The transition table of an exchange, checked against the exchanges of all other tests of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import TestCase, TestSuite

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.reporter import TestResult
from twisted.trial.runner import TestLoader
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.proxy.http.exchange import TRANSITIONS, Exchange, ExchangeStage
from svc.store.errors import StoreUnavailable
from svc.store.records import StoredReceipt
from tests.proxy.rig import Rig, lose
from tests.store.doubles import receipt

NONCE = b"AAAAAAAAAAAAAAAAAAAAAA"
SIGNED = b"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: %b\r\n" % NONCE
GET = b"GET / HTTP/1.1\r\nHost: api\r\n"
POST = b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n"
OWN_PAGE = b"GET /.well-known/svc-notary/v1/receipts/by-request/%b HTTP/1.1\r\nHost: api\r\n\r\n" % NONCE
HEAD, REST = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"cde"
SUITES = ("test_http", "test_notarization", "test_upstream", "test_tunnel", "test_decisions", "test_peer_verification")


def cases(suite: TestSuite) -> Iterator[TestCase]:
    """Yield the tests of a suite without those of Hypothesis, which needs one executor for each."""
    for each in suite:
        if isinstance(each, TestSuite):
            yield from cases(each)
        elif not hasattr(getattr(each, getattr(each, "_testMethodName", ""), None), "hypothesis"):
            yield each


class Scene:
    """A connection whose exchange will wait at a stage, with the Deferreds for which it waits."""

    def __init__(self, stage: ExchangeStage, signed: bool) -> None:
        self.rig = Rig()
        self.rig.endpoint.manual = stage is ExchangeStage.CONNECTING
        self.admission: Deferred[bool] = Deferred()
        self.commit: Deferred[StoredReceipt] = Deferred()
        self.found: Deferred[None] = Deferred()
        store: Any = self.rig.store
        if stage is ExchangeStage.ADMISSION:
            store.nonce_known = lambda *_: self.admission
        if signed:
            store.put_draft = lambda *_: self.commit
        if stage is ExchangeStage.BEGINNING:
            store.get_by_request = lambda *_: self.found
        self.client, self.wire = self.rig.client()


class LifecycleTests(SynchronousTestCase):
    """Stages and transitions."""

    maxDiff = None

    def setUp(self) -> None:
        """Record each change of stage of every exchange."""
        self.seen: set[tuple[ExchangeStage, ExchangeStage]] = set()

        def change(exchange: Exchange, stage: ExchangeStage) -> None:
            self.seen.add((exchange.stage, stage))
            vars(exchange)["stage"] = stage

        stage = property(lambda exchange: vars(exchange).get("stage", ExchangeStage.BEGINNING), change)
        self.patch(Exchange, "stage", stage)

    def test_every_transition_occurs(self) -> None:
        """In all tests of exchanges no transition is missing in the table, and each row of the table occurs."""
        result = TestResult()
        for case in cases(TestLoader().loadByNames([f"tests.proxy.{name}" for name in SUITES], recurse=True)):
            case.run(result)
        self.assertGreater(result.testsRun, 100)
        self.assertEqual((result.errors, result.failures), ([], []))
        self.end_everywhere()
        self.go_on()
        names = lambda rows: sorted(f"{before.name} {after.name}" for before, after in rows)  # noqa: E731 (read once)
        table = {(before, after) for (before, _event), after in TRANSITIONS.items()}
        self.assertEqual(names(self.seen - table), [], "not in the table")
        self.assertEqual(names(table - self.seen), [], "in the table, but does not occur")

    def waiting_at(self, stage: ExchangeStage, signed: bool, head: bytes = GET) -> Scene:
        """Bring an exchange to a stage where it waits."""
        scene = Scene(stage, signed)
        request = head + (SIGNED if signed else b"") + b"\r\n"
        scene.client.dataReceived(OWN_PAGE if stage is ExchangeStage.BEGINNING else request)
        if stage in (ExchangeStage.RESPONSE, ExchangeStage.RECORD):
            scene.rig.respond(HEAD)
        if stage is ExchangeStage.RECORD:
            scene.rig.respond(REST)
        exchange = scene.client._exchange
        assert exchange is not None
        self.assertIs(exchange.stage, stage)
        return scene

    def end_everywhere(self) -> None:
        """At each stage the client disconnects, a time limit passes, or the exchange is cut."""
        for stage in (each for each in ExchangeStage if each is not ExchangeStage.FINISHED):
            for signed in (False, True):
                if (signed or stage not in (ExchangeStage.ADMISSION, ExchangeStage.RECORD)) and not (
                    signed and stage is ExchangeStage.BEGINNING
                ):
                    head = POST if stage is ExchangeStage.REQUEST else GET
                    lose(self.waiting_at(stage, signed, head).client)
                    self.waiting_at(stage, signed, head).rig.sweep(400.0)
                    self.waiting_at(stage, signed, head).client.end_now(ExchangeOutcome.SERVER_ABORTED, "drain")

    def go_on(self) -> None:
        """Complete or fail whatever an exchange waits for."""
        for replayed in (False, True):
            for head in (GET, POST):
                self.waiting_at(ExchangeStage.ADMISSION, True, head).admission.callback(replayed)
        connecting = self.waiting_at(ExchangeStage.ADMISSION, True)
        connecting.rig.endpoint.manual = True
        connecting.admission.callback(False)
        refused = self.waiting_at(ExchangeStage.ADMISSION, True)
        refused.rig.endpoint.refuse = OSError("no")
        refused.admission.callback(False)
        for signed in (False, True):
            for head in (GET, POST):
                self.waiting_at(ExchangeStage.CONNECTING, signed, head).rig.endpoint.complete()
                self.waiting_at(ExchangeStage.CONNECTING, signed, head).rig.endpoint.attempts[0][1].errback(
                    Failure(OSError("no"))
                )
            early = self.waiting_at(ExchangeStage.REQUEST, signed, POST)
            early.rig.respond(HEAD)
            whole = self.waiting_at(ExchangeStage.REQUEST, signed, POST)
            whole.rig.respond(HEAD + REST)
            for stage in (ExchangeStage.REQUEST, ExchangeStage.WAITING, ExchangeStage.RESPONSE):
                self.waiting_at(stage, signed, POST if stage is ExchangeStage.REQUEST else GET).rig.lose_upstream()
        self.waiting_at(ExchangeStage.RECORD, True).commit.callback(receipt())
        self.waiting_at(ExchangeStage.RECORD, True).commit.errback(
            Failure(StoreUnavailable(path="notary.db", detail="full"))
        )
        self.waiting_at(ExchangeStage.BEGINNING, False).found.callback(None)

    def test_every_stage_leads_to_the_end(self) -> None:
        """Every stage is reachable from the first and reaches the last; the last stage has no successor."""
        after: dict[ExchangeStage, set[ExchangeStage]] = {stage: set() for stage in ExchangeStage}
        for (before, _event), stage in TRANSITIONS.items():
            after[before].add(stage)
        self.assertEqual(after[ExchangeStage.FINISHED], set())
        for stage in ExchangeStage:
            self.assertIn(ExchangeStage.FINISHED, {*after[stage], stage}, stage)
        reached, waiting = {ExchangeStage.BEGINNING}, [ExchangeStage.BEGINNING]
        while waiting:
            for each in after[waiting.pop()] - reached:
                reached.add(each)
                waiting.append(each)
        self.assertEqual(reached, set(ExchangeStage))
