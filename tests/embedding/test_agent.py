"""Tests of ``HttpAgent`` and its responses, with a server whose receipts are made in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IClientRequest, IResponse
from zope.interface.verify import verifyObject

from svc.client.connection import HttpChannel
from svc.client.errors import ConnectionLost, EvidenceNotSaved, ProxyAnswered, RequestInvalid
from svc.client.verification import Demands, Trust
from svc.embedding import ArgumentInvalid, EmbeddingError, HttpAgent, StreamedResponse, exchange_evidence
from svc.embedding.agent import RequestBody, parse_level, request_fields
from svc.embedding.pool import ConnectionPool, PoolLimits
from svc.embedding.response import HIGH_WATER
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import ExactID, Matcher
from svc.notary.access import PROBLEM_TYPE_PREFIX
from svc.notary.artifact import BatchedReceipt, parse_receipt
from svc.notary.batchcheck import VerifiedBatchCache
from svc.notary.errors import ReceiptRefused, StatementMissing
from svc.notary.evidence import EvidenceFile, verify_offline
from svc.notary.exchange import BodySummary
from svc.notary.level import Level
from svc.transport.errors import OwnCredentialsEnded
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import RequestHead
from tests.cli.doubles import BODY, NOW, SERVER_ID, URL, LoopTransport, NotaryServer, default_world, replaced
from tests.client.test_sending import Producer
from tests.refusals import assert_refused


class Handle:
    """The TLS connection of a transport."""

    def __init__(self, peer: PeerEvidence) -> None:
        self.peer_evidence = peer


class QueuedTransport(LoopTransport):
    """Delivers answers on later reactor turns, and none while it is paused."""

    def __init__(self, server: NotaryServer, channel: HttpChannel, clock: Clock) -> None:
        super().__init__(server.answer, channel)
        self._world = server.world
        self._clock = clock
        self._queue: list[bytes] = []
        self.paused = False
        self.producer: Any = None

    def _deliver(self, answer: bytes) -> None:
        self.feed(answer)

    def feed(self, data: bytes) -> None:
        """Deliver octets as soon as they may be."""
        self._queue.append(data)
        self._clock.callLater(0, self._flush)

    def _flush(self) -> None:
        while self._queue and not self.paused and not self.lost:
            self._channel.dataReceived(self._queue.pop(0))

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self._clock.callLater(0, self._flush)

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def getHandle(self) -> Handle:
        return Handle(self._world.peer)


class MemoryEndpoint:
    """Connects to a server in memory."""

    def __init__(self, case: AgentTestCase) -> None:
        self._case = case

    def connect(self, factory: Any) -> Deferred[Any]:
        if self._case.errors:
            raise self._case.errors.pop(0)
        channel = factory.buildProtocol(None)
        transport = QueuedTransport(self._case.server, channel, self._case.clock)
        self._case.transports.append(transport)
        channel.makeConnection(transport)
        return succeed(channel)


class Reader(Protocol):
    """Reads a body."""

    def __init__(self) -> None:
        self.data = b""
        self.end: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.end = reason


class AgentTestCase(SynchronousTestCase):
    """An agent and a server."""

    level = Level.SIGN_REQUEST

    def setUp(self) -> None:
        self.clock = Clock()
        self.world = default_world()
        self.server = NotaryServer(self.world)
        self.transports: list[QueuedTransport] = []
        self.connected: list[tuple[str, str, str | None]] = []
        self.errors: list[Exception] = []
        self.refusing: list[SvcError] = []
        self.batches = VerifiedBatchCache()
        self.agent = self.make()

    def make(self, **limits: Any) -> HttpAgent:
        pool = ConnectionPool(self.clock, self.connect, self.reauthorize, PoolLimits(**limits))
        return HttpAgent(
            self.clock,
            pool,
            expected=lambda _target: ExactID(self.world.server.spiffe_id),
            demands=Demands(level=self.level),
            trust=lambda: Trust(self.world.anchors, batches=self.batches),
            now=self.now,
            silence=60.0,
        )

    def connect(self, address: Any, expected: Matcher, name: str | None) -> Any:
        self.connected.append((str(address), str(expected), name))
        return MemoryEndpoint(self)

    def reauthorize(self, _peer: PeerEvidence) -> None:
        if self.refusing:
            raise self.refusing.pop()

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock.seconds())

    def turn(self, turns: int = 30) -> None:
        """Let reactor turns pass, but no time."""
        for _ in range(turns):
            self.clock.advance(0)

    def start(self, method: str = "GET", body: RequestBody | None = None, url: str = URL) -> Any:
        starting = self.agent.start(method, url, body=body)
        self.turn()
        return starting

    def begun(self, method: str = "GET", body: RequestBody | None = None) -> StreamedResponse:
        response = self.successResultOf(self.start(method, body))
        assert isinstance(response, StreamedResponse)
        return response

    def read(self, response: StreamedResponse) -> Reader:
        reader = Reader()
        response.deliverBody(reader)
        self.turn()
        return reader


class ResponseTests(AgentTestCase):
    """Responses and their evidence."""

    def test_interfaces(self) -> None:
        """Agent, response and request are what Twisted's own code takes."""
        verifyObject(IAgent, self.agent)
        response = self.begun()
        verifyObject(IResponse, response)
        verifyObject(IClientRequest, response.request)
        self.assertEqual((response.version, response.code, response.phrase), ((b"HTTP", 1, 1), 200, b"Any Phrase"))
        self.assertEqual((response.length, response.request.absoluteURI), (len(BODY), URL.encode()))
        self.assertEqual(response.headers.getRawHeaders("content-type"), ["application/json"])

    def test_verified(self) -> None:
        """The end of the body is ResponseDone once statement and receipt are verified, over one connection."""
        response = self.begun()
        reader = self.read(response)
        assert reader.end is not None
        self.assertEqual((reader.data, reader.end.type), (BODY, ResponseDone))
        evidence = self.successResultOf(response.verified())
        assert evidence.receipt is not None
        self.assertEqual(str(evidence.statement.subject), SERVER_ID)
        self.assertTrue(evidence.receipt.compared)
        self.assertEqual((len(self.transports), len(self.server.seen)), (1, 3))
        self.assertEqual(self.clock.getDelayedCalls()[0].getTime(), 240.0)

    def test_signed_together(self) -> None:
        """A receipt of a batch is verified, and its batch is cached for the next receipt."""
        self.server.together = 4
        receipt = self.successResultOf(self.verified()).receipt
        assert receipt is not None and receipt.batch is not None
        self.assertEqual((receipt.batch.size, receipt.compared), (4, True))
        served = parse_receipt(next(iter(self.server.receipts.values())))
        assert isinstance(served, BatchedReceipt)
        profile, anchors = Profile.HYBRID, self.world.anchors
        cached = self.batches.verify(served.batch, profile=profile, anchors=anchors, now=NOW)
        self.assertIs(cached.classical, receipt.envelope_evidence.classical)

    def test_not_before_its_end(self) -> None:
        """Nothing is verified while the body is not complete."""
        self.server.truncate = True
        response = self.begun()
        waiting = response.verified()
        reader = self.read(response)
        self.assertEqual((reader.data, reader.end), (BODY[:-1], None))
        self.assertNoResult(waiting)
        self.transports[0].drop()
        assert reader.end is not None
        self.assertIs(reader.end.type, ConnectionLost)
        self.failureResultOf(waiting, ConnectionLost)

    def test_receipt_of_another_exchange(self) -> None:
        """A response that its receipt does not describe ends with the reason, for every reader."""
        self.server.edit_exchange = replaced(response_body=BodySummary.of(b"other"))
        response = self.begun()
        reader = self.read(response)
        assert reader.end is not None
        self.assertIs(reader.end.type, ReceiptRefused)
        self.assertEqual(self.failureResultOf(response.verified()).value.reason, "response_mismatch")
        self.assertEqual(self.failureResultOf(readBody(self.begun()), ReceiptRefused).value.part, "body")

    def test_evidence_file(self) -> None:
        """The evidence is kept as svc verify reads it, in a new file of its owner."""
        evidence = self.successResultOf(self.verified("POST", b'{"a": 1}'))
        path = Path(self.mktemp())
        evidence.save(str(path))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        file = EvidenceFile.parse(path.read_bytes())
        self.assertEqual((file.request_body, file.response_body), (b'{"a": 1}', BODY))
        found = verify_offline(file, profile=Profile.HYBRID, anchors=self.world.anchors, now=NOW)
        self.assertTrue(found.ok and found.receipt is not None)
        self.assertRaises(EvidenceNotSaved, evidence.save, str(path))

    def verified(self, method: str = "GET", body: RequestBody | None = None) -> Deferred[Any]:
        response = self.begun(method, body)
        self.read(response)
        return response.verified()

    def test_no_statement(self) -> None:
        """A response without a statement fails; one of the proxy itself says why."""
        self.server.edit_head = lambda fields: [each for each in fields if not each[0].startswith(b"Svc-")]
        self.failureResultOf(self.verified(), StatementMissing)
        self.server.status = 403
        document = {"type": f"{PROBLEM_TYPE_PREFIX}policy_deny", "code": "policy_deny", "status": 403}
        self.server.body = json.dumps(document).encode()
        self.server.edit_head = lambda _fields: [
            (b"Content-Type", b"application/problem+json"),
            (b"Content-Length", b"%d" % len(self.server.body)),
        ]
        error = self.failureResultOf(self.verified(), ProxyAnswered).value
        self.assertIn("403 Any Phrase: policy_deny", str(error))
        self.assertIn("its policy does not admit spiffe://example.org/ns/web/sa/fe", error.hint)

    def test_head(self) -> None:
        """A response to HEAD has no body and is verified."""
        response = self.begun("HEAD")
        self.assertEqual(response.length, UNKNOWN_LENGTH)
        reader = self.read(response)
        assert reader.end is not None
        self.assertEqual((reader.data, reader.end.type), (b"", ResponseDone))

    def test_read_once(self) -> None:
        """A body is delivered once."""
        response = self.begun()
        self.read(response)
        self.assertRaises(RuntimeError, response.deliverBody, Reader())

    def test_foreign_response(self) -> None:
        """The evidence of a response of another agent is a typed error."""
        assert_refused(self, "response_foreign", exchange_evidence, object())


class StreamTests(AgentTestCase):
    """Bodies that are read while they arrive."""

    def collect(self, response: StreamedResponse) -> tuple[list[bytes], Deferred[None]]:
        pieces: list[bytes] = []

        async def work() -> None:
            async for piece in response:
                pieces.append(piece)

        return pieces, Deferred.fromCoroutine(work())

    def test_iteration(self) -> None:
        """The pieces come as they arrive, and the iteration ends when all is verified."""
        self.server.body = b"x" * 1000
        self.server.truncate = True
        response = self.begun()
        pieces, reading = self.collect(response)
        self.turn()
        self.assertEqual((b"".join(pieces), reading.called), (b"x" * 999, False))
        self.transports[0].feed(b"x")
        self.turn()
        self.successResultOf(reading)
        self.assertEqual(b"".join(pieces), b"x" * 1000)
        self.successResultOf(response.verified())

    def test_iteration_that_fails(self) -> None:
        """The iteration raises at its end where the receipt does not verify."""
        self.server.edit_receipt = lambda _envelope: b"{}"
        pieces, reading = self.collect(self.begun())
        self.turn()
        self.assertEqual(b"".join(pieces), BODY)
        self.failureResultOf(reading, SvcError)

    def test_back_pressure(self) -> None:
        """A body that nobody reads pauses its connection, without a time limit, and goes on when it is read."""
        self.server.body = b"x" * 10
        self.server.truncate = True
        response = self.begun()
        self.assertTrue(self.transports[0].paused)
        self.clock.advance(1000.0)
        pieces, reading = self.collect(response)
        self.assertFalse(self.transports[0].paused)
        self.transports[0].feed(b"x")
        self.turn()
        self.successResultOf(reading)
        self.assertEqual(b"".join(pieces), b"x" * 10)

    def test_slow_iteration(self) -> None:
        """What an iterator holds is bounded."""
        self.server.body = b"x" * (2 * HIGH_WATER)
        self.server.truncate = True
        response = self.begun()
        iterating = aiter(response)
        self.turn()
        self.assertTrue(self.transports[0].paused)
        first = self.successResultOf(Deferred.fromCoroutine(anext(iterating)))
        self.assertFalse(self.transports[0].paused)
        self.assertEqual(len(first), len(self.server.body) - 1)

    def test_silence(self) -> None:
        """A server that sends nothing for too long fails the response, before and after its beginning."""
        self.server.truncate = True
        response = self.begun()
        reader = self.read(response)
        self.clock.advance(59.0)
        self.assertIsNone(reader.end)
        self.clock.advance(1.0)
        assert reader.end is not None
        self.assertEqual(reader.end.value.reason, "answer_late")
        self.assertTrue(self.transports[0].aborted)
        self.server.answer = lambda head, body: b""
        starting = self.start()
        self.clock.advance(60.0)
        error = self.failureResultOf(starting, EmbeddingError).value
        self.assertEqual(str(error), "api.test:8443 did not answer within 60 s: the server had not answered in full")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silence_after_the_body(self) -> None:
        """The time limit holds for the statement too, when the body was complete before anybody read it."""
        answer = self.server.answer
        self.server.answer = lambda head, body: answer(head, body) if b"/v1/pay" in head.target else b""
        response = self.begun()
        self.assertEqual(len(self.server.seen), 1)
        self.clock.advance(60.0)
        self.assertEqual(self.failureResultOf(response.verified(), EmbeddingError).value.reason, "answer_late")
        reader = self.read(response)
        assert reader.end is not None
        self.assertEqual((reader.data, reader.end.value.reason), (BODY, "answer_late"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """Cancelling a request, or aborting its response, closes the connection."""
        self.server.truncate = True
        response = self.begun()
        reader = self.read(response)
        response.abort()
        assert reader.end is not None
        self.assertIs(reader.end.type, CancelledError)
        self.server.answer = lambda head, body: b""
        starting = self.start()
        starting.cancel()
        self.failureResultOf(starting, CancelledError)
        self.assertEqual([each.aborted for each in self.transports], [True, True])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class BodyTests(AgentTestCase):
    """Bodies of requests."""

    def test_streamed(self) -> None:
        """A streamed body is part of the receipt, with and without a known length."""
        for length, field in ((6, b"content-length"), (UNKNOWN_LENGTH, b"transfer-encoding")):
            self.setUp()
            producer = Producer(length)
            starting = self.start("POST", producer)
            self.assertIs(self.transports[0].producer, producer)
            for piece in (b"abc", b"def"):
                producer.consumer.write(piece)
            producer.done.callback(None)
            self.turn()
            response = self.successResultOf(starting)
            self.read(response)
            evidence = self.successResultOf(response.verified())
            self.assertEqual(self.server.bodies[0], b"abcdef")
            self.assertTrue(self.server.seen[0].values(field))
            self.assertEqual(evidence.file.request_body, b"abcdef")

    def test_iterable(self) -> None:
        """An asynchronous iterable is sent as it is produced."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"abc"
            yield b"def"

        response = self.begun("PUT", pieces())
        self.read(response)
        self.successResultOf(response.verified())
        self.assertEqual(self.server.bodies[0], b"abcdef")

    def test_slow_producer(self) -> None:
        """A body that is produced slowly is no silence of the server; one that is not produced ends the request."""
        producer = Producer()
        starting = self.start("POST", producer)
        for _ in range(3):
            self.clock.advance(59.0)
            producer.consumer.write(b"x")
        self.assertNoResult(starting)
        self.clock.advance(60.0)
        self.assertEqual(self.failureResultOf(starting, EmbeddingError).value.reason, "answer_late")
        self.assertEqual(producer.stopped, 1)

    def test_failing_producer(self) -> None:
        """The error of a producer is that of the request, whose connection is closed."""
        producer = Producer()
        starting = self.start("POST", producer)
        producer.done.errback(OSError("gone"))
        self.failureResultOf(starting, OSError)
        self.assertTrue(self.transports[0].aborted)

    def test_lost_connection(self) -> None:
        """A producer is stopped when the connection is lost; the request is not sent again."""
        producer = Producer()
        starting = self.start("POST", producer)
        self.transports[0].drop()
        self.failureResultOf(starting, ConnectionLost)
        self.assertEqual((producer.stopped, len(self.transports)), (1, 1))

    def early(self, sent: bytes, claimed: bytes) -> Any:
        """Let the server respond before it has read the body, and attest a beginning of it."""
        summary = BodySummary(len(claimed), sha256(claimed).digest(), complete=False)
        self.server.edit_exchange = replaced(request_body=summary)
        producer = Producer()
        starting = self.agent.start("POST", URL, body=producer)
        self.turn()
        transport = self.transports[-1]
        producer.consumer.write(sent)
        head = transport._head
        assert isinstance(head, RequestHead)
        transport.feed(self.server.answer(head, b""))
        self.turn()
        response = self.successResultOf(starting)
        self.read(response)
        return producer, response

    def test_early_response(self) -> None:
        """The rest of the body is then not sent, and the beginning that the receipt attests is compared."""
        producer, response = self.early(b"abcdef", b"abc")
        evidence = self.successResultOf(response.verified())
        self.assertEqual(producer.stopped, 1)
        self.assertEqual(evidence.file.request_body, b"abcdef")
        self.assertEqual(len(self.transports), 2)
        _producer, response = self.early(b"abcdef", b"abd")
        self.failureResultOf(response.verified(), ReceiptRefused)

    def test_what_is_no_body(self) -> None:
        """Text is refused: it has no octets until it is encoded."""
        for body in ("text", 5, [b"a"]):
            error = self.assertRaises(ArgumentInvalid, self.agent.start, "POST", URL, body=body)
            self.assertTrue(str(error).startswith(f"body: {type(body).__name__}: expected bytes, an IBodyProducer"))

    def test_headers(self) -> None:
        """Fields are given as Twisted's, as a mapping or as pairs; what frames the message is refused."""
        for headers in (
            Headers({"X-A": ["1", "2"]}),
            {"x-a": ["1", "2"]},
            [("X-A", "1"), (b"X-A", b"2 ")],
        ):
            fields = request_fields(headers)  # type: ignore[arg-type]
            self.assertEqual([(name.lower(), value) for name, value in fields], [(b"x-a", b"1"), (b"x-a", b"2")])
        for name in ("Content-Length", "Svc-Notary-Nonce", "a b"):
            self.assertRaises(RequestInvalid, request_fields, {name: "1"})
        self.assertRaises(ArgumentInvalid, request_fields, {"X-A": [1]})
        failing = self.agent.request(b"GET", URL.encode(), Headers({"Connection": ["close"]}))
        self.failureResultOf(failing, RequestInvalid)

    def test_level(self) -> None:
        """The level is one of three."""
        self.assertIs(parse_level("logRequest"), Level.LOG_REQUEST)
        for text in ("none", "SignRequest", ""):
            error = self.assertRaises(ArgumentInvalid, parse_level, text)
            self.assertIn("expected one of 'workload', 'logRequest', 'signRequest'", str(error))


class PoolTests(AgentTestCase):
    """Connections that are kept open."""

    level = Level.WORKLOAD

    def whole(self, method: str = "GET") -> None:
        response = self.begun(method)
        self.read(response)
        self.successResultOf(response.verified())

    def test_reuse(self) -> None:
        """A connection carries one exchange after the other, and its statement is fetched once."""
        for _ in range(3):
            self.whole()
        self.assertEqual(self.connected, [("api.test:8443", SERVER_ID, "api.test")])
        self.assertEqual(len(self.server.seen), 4)

    def test_idle_time(self) -> None:
        """An idle connection is closed after its time."""
        self.whole()
        self.clock.advance(239.0)
        self.assertFalse(self.transports[0].lost)
        self.clock.advance(1.0)
        self.assertTrue(self.transports[0].lost)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_idle_connections(self) -> None:
        """At most so many are kept for each server, and none once the agent is closed."""
        for kept in (0, 1, 2):
            self.setUp()
            self.agent = self.make(idle_per_host=kept)
            beginnings = [self.agent.start("GET", URL) for _ in range(3)]
            self.turn()
            for each in beginnings:
                self.read(self.successResultOf(each))
            self.assertEqual([each.lost for each in self.transports].count(False), kept)
            self.successResultOf(self.agent.closeIdleConnections())
            self.assertTrue(all(each.lost for each in self.transports))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closed_by_the_server(self) -> None:
        """A request that may be repeated is sent again where a kept connection is closed before its response."""
        for method, repeated in (("GET", True), ("POST", False)):
            self.setUp()
            self.whole()
            answer, self.server.answer = self.server.answer, self.drop(self.server.answer)  # type: ignore[assignment]
            starting = self.start(method)
            self.server.answer = answer
            if repeated:
                self.read(self.successResultOf(starting))
                self.assertEqual(len(self.transports), 2)
            else:
                self.failureResultOf(starting, ConnectionLost)

    def drop(self, answer: Callable[[RequestHead, bytes], bytes]) -> Callable[[RequestHead, bytes], bytes]:
        """Close the first connection in place of an answer."""

        def answered(head: RequestHead, body: bytes) -> bytes:
            if len(self.transports) == 1:
                self.clock.callLater(0, self.transports[0].drop)
                return b""
            return answer(head, body)

        self.transports[0]._answer = answered
        return answer

    def test_closed_while_idle(self) -> None:
        """A connection that was closed while idle is not used."""
        self.whole()
        self.transports[0].drop()
        self.whole("POST")
        self.assertEqual(len(self.transports), 2)

    def test_peer_that_would_be_refused(self) -> None:
        """A kept connection is verified again by the trust that is in force; where it fails, a new one is opened."""
        self.whole()
        self.refusing.append(OwnCredentialsEnded(spiffe_id="spiffe://a.b/c", ended="now"))
        self.whole()
        self.assertEqual([each.lost for each in self.transports], [True, False])

    def test_limit(self) -> None:
        """At the limit of requests one more fails."""
        self.agent = self.make(requests=2)
        self.server.truncate = True
        waiting = [self.begun() for _ in range(2)]
        assert_refused(self, "requests_limit", self.agent.start, "GET", URL)
        waiting[0].abort()
        self.begun()

    def test_failed_connection(self) -> None:
        """An error of the connection is that of the request, which is then counted no more."""
        self.agent = self.make(requests=1)
        for _ in range(2):
            self.errors.append(OwnCredentialsEnded(spiffe_id="spiffe://a.b/c", ended="now"))
            self.failureResultOf(self.start(), OwnCredentialsEnded)
        self.whole()


class TreqTests(AgentTestCase):
    """treq with the agent."""

    def test_whole(self) -> None:
        """treq sends and reads as with any agent; the evidence is that of its response."""
        client: Any = HTTPClient(self.agent)

        async def work() -> tuple[int, object, object]:
            response = await client.get(URL, params={"b": "2"}, headers={"X-A": "1"})
            document = await response.json()
            return response.code, document, await exchange_evidence(response)

        working = Deferred.fromCoroutine(work())
        self.turn()
        code, document, evidence = self.successResultOf(working)
        self.assertEqual((code, document), (200, {"ok": True}))
        self.assertEqual(str(evidence.receipt.issuer), SERVER_ID)  # type: ignore[attr-defined]
        self.assertEqual(self.server.seen[0].target, b"/v1/pay?x=1&b=2")

    def test_refused(self) -> None:
        """A body that its receipt does not describe is never returned."""
        self.server.edit_exchange = lambda exchange: replace(exchange, status=201)
        getting = HTTPClient(self.agent).get(URL)
        self.turn()
        content = self.successResultOf(getting).content()
        self.turn()
        self.failureResultOf(content, ReceiptRefused)
