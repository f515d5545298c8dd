"""Tests of one connection that carries requests, and of the line that may open it again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.exchange import errors
from svc.cli.exchange.channel import Answer, HttpChannel
from svc.cli.exchange.line import Line
from svc.cli.exchange.request import plan_request
from svc.cli.exchange.target import Target
from svc.notary.level import Level
from svc.transport.errors import HandshakeFailed
from svc.wire.http1 import ResponseHead
from tests.cli.doubles import URL, MemoryDialer, NotaryServer, right_world, settled

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Collector:
    """Takes an answer."""

    def __init__(self) -> None:
        self.heads: list[ResponseHead] = []
        self.body = b""
        self.error: Exception | None = None

    def got_head(self, head: ResponseHead) -> None:
        self.heads.append(head)

    def got_body(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.body += data


class ChannelTestCase(SynchronousTestCase):
    """A channel on a transport that only remembers."""

    def setUp(self) -> None:
        self.channel = HttpChannel("api.test:1")
        self.transport = StringTransport()
        self.channel.makeConnection(self.transport)
        self.sink = Collector()

    def ask(self, method: str = "GET") -> Deferred[Answer]:
        return self.channel.ask(method, b"REQUEST", self.sink)

    def lose(self, reason: Exception | None = None) -> None:
        self.channel.connectionLost(Failure(reason or ConnectionDone()))


class ChannelTests(ChannelTestCase):
    """Requests and answers on one connection."""

    def test_exchange(self) -> None:
        """The request goes out, the answer comes in, the connection may carry the next one."""
        asking = self.ask()
        self.assertEqual(self.transport.value(), b"REQUEST")
        self.assertFalse(self.channel.usable)
        self.channel.dataReceived(OK)
        answer = self.successResultOf(asking)
        self.assertEqual((answer.head.status, self.sink.body, answer.trailers), (200, b"hi", ()))
        self.assertTrue(self.channel.usable)

    @given(st.lists(st.integers(1, 60), max_size=6))
    def test_any_split(self, cuts: list[int]) -> None:
        """However the octets are split, the answer is the same; interim answers are skipped."""
        self.setUp()
        octets = (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n"
        )
        asking = self.ask()
        for cut in cuts:
            self.channel.dataReceived(octets[:cut])
            octets = octets[cut:]
            if not octets:
                break
        if octets:
            self.channel.dataReceived(octets)
        answer = self.successResultOf(asking)
        self.assertEqual((self.sink.body, answer.trailers, len(self.sink.heads)), (b"abcde", ((b"X-T", b"1"),), 1))

    def test_until_close(self) -> None:
        """A body that lasts until the end is whole only after an orderly end."""
        for reason, whole in ((ConnectionDone(), True), (ConnectionLost(), False)):
            self.setUp()
            asking = self.ask()
            self.channel.dataReceived(b"HTTP/1.1 200 OK\r\n\r\npart")
            self.lose(reason)
            if whole:
                self.successResultOf(asking)
            else:
                self.failureResultOf(asking, errors.ConnectionLost)

    def test_truncated(self) -> None:
        """An answer cut before its announced end fails, orderly end or not."""
        for reason in (ConnectionDone(), ConnectionLost()):
            self.setUp()
            asking = self.ask()
            self.channel.dataReceived(OK[:-1])
            self.lose(reason)
            failure = self.failureResultOf(asking, errors.ConnectionLost)
            self.assertEqual(str(failure.value), "api.test:1 closed the connection in the middle of its answer")

    def test_no_answer(self) -> None:
        """A connection lost before any octet is told apart."""
        asking = self.ask()
        self.lose()
        failure = self.failureResultOf(asking, errors.ConnectionLost)
        self.assertIn("without an answer", str(failure.value))
        self.assertNotIn("https://", failure.value.advice())
        self.assertFalse(self.channel.begun)

    def test_plain_where_tls_is_spoken(self) -> None:
        """A server that hangs up on plain text may speak TLS, which the hint says."""
        self.channel = HttpChannel("api.test:1", secure=False)
        self.channel.makeConnection(self.transport)
        asking = self.ask()
        self.lose(ConnectionLost())
        self.assertIn("use https://", self.failureResultOf(asking, errors.ConnectionLost).value.advice())

    def test_refused_by_the_server(self) -> None:
        """The server's judgement of our certificate, which arrives after the handshake, is the error."""
        asking = self.ask()
        refusal = HandshakeFailed(address="a", alert="bad_certificate", detail="the peer sent the alert")
        self.lose(refusal)
        failure = self.failureResultOf(asking, errors.RefusedByServer)
        self.assertIn("the peer sent the alert", str(failure.value))

    def test_malformed(self) -> None:
        """What is no HTTP ends the connection."""
        asking = self.ask()
        self.channel.dataReceived(b"SSH-2.0-OpenSSH\r\n")
        self.failureResultOf(asking, errors.AnswerRefused)
        self.assertFalse(self.channel.usable)

    def test_excess(self) -> None:
        """Octets behind an answer make the connection useless for the next request."""
        asking = self.ask()
        self.channel.dataReceived(OK + b"HTTP/1.1 200 OK\r\n\r\n")
        self.successResultOf(asking)
        self.assertFalse(self.channel.usable)

    def test_unasked(self) -> None:
        """Octets that nobody asked for end the connection."""
        self.channel.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertFalse(self.channel.usable)
        self.failureResultOf(self.ask(), errors.ConnectionLost)

    def test_sink_refuses(self) -> None:
        """An error of the sink ends the connection and fails the request."""
        self.sink.error = errors.BodyTooLarge(limit=1)
        asking = self.ask()
        self.channel.dataReceived(OK)
        self.failureResultOf(asking, errors.BodyTooLarge)
        self.assertTrue(self.transport.disconnected or self.transport.disconnecting or not self.channel.usable)

    def test_connection_close(self) -> None:
        """After an answer with Connection: close the connection is closed from this side, too."""
        asking = self.ask()
        self.channel.dataReceived(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        self.successResultOf(asking)
        self.assertTrue(self.transport.disconnecting)
        self.assertFalse(self.channel.usable)

    def test_cancelled(self) -> None:
        """A request that is given up ends the connection."""
        asking = self.ask()
        asking.cancel()
        self.assertFalse(self.channel.usable)
        self.failureResultOf(asking)
        self.lose()


class LineTests(SynchronousTestCase):
    """When the connection of an exchange is opened again."""

    def setUp(self) -> None:
        self.server = NotaryServer(right_world())
        self.dialer = MemoryDialer(self.server, right_world().peer)
        request = plan_request(
            Target.parse(URL),
            method="GET",
            headers=(),
            data="",
            level=Level.WORKLOAD,
            nonce="AAECAwQFBgcICQoLDA0ODw",
        )
        self.line = Line(self.dialer, request)

    def wait(self, coroutine: Any) -> Any:
        return settled(Deferred.fromCoroutine(coroutine))

    def test_one_connection(self) -> None:
        """As long as the server keeps it open there is one connection."""
        self.wait(self.line.exchange(Collector()))
        fetched = self.wait(self.line.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertEqual((fetched.head.status, self.server.connections), (200, 1))

    def test_idle_connection_lost(self) -> None:
        """Where the connection was lost in between, a new one is opened after the first."""
        self.wait(self.line.exchange(Collector()))
        self.dialer.transports[0].drop()
        self.wait(self.line.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertEqual(self.server.connections, 2)
        before = self.dialer.before[1]
        assert before is not None
        self.assertIs(before.peer, right_world().peer)

    def test_lost_while_asking(self) -> None:
        """Where the server closes as the request goes out, it is asked once more, and only once."""
        self.wait(self.line.exchange(Collector()))
        answers: list[int] = []

        def failing(limit: int) -> Any:
            def answer(head: Any, body: bytes) -> bytes:
                answers.append(1)
                if len(answers) <= limit:
                    self.dialer.transports[-1].drop(ConnectionDone())
                    return b""
                return OK

            return answer

        self.server.answer = failing(1)  # type: ignore[method-assign]
        self.dialer.transports[0]._answer = self.server.answer
        self.assertEqual(self.wait(self.line.fetch("/x")).body, b"hi")
        answers.clear()
        self.server.answer = failing(9)  # type: ignore[method-assign]
        self.dialer.transports[-1]._answer = self.server.answer
        self.assertRaises(errors.ConnectionLost, self.wait, self.line.fetch("/x"))
        self.assertEqual(len(answers), 2)

    def test_peer_is_that_of_the_exchange(self) -> None:
        """Whoever answers for artefacts, the exchange is judged against its own connection."""
        self.assertIsNone(self.line.peer)
        self.wait(self.line.exchange(Collector()))
        self.dialer.peer = None
        self.dialer.transports[0].drop()
        self.wait(self.line.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertIs(self.line.peer, right_world().peer)
