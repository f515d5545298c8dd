"""Tests of one connection that carries requests, and of the exchange that may open it again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.request import curl_request
from svc.cli.errors import NetworkError
from svc.client import errors
from svc.client.connection import ExchangeConnection, HttpChannel, Response
from svc.client.target import Target
from svc.notary.level import Level
from svc.transport.errors import HandshakeFailed
from svc.wire.http1 import ResponseHead
from tests.cli.doubles import URL, MemoryDialer, NotaryServer, default_world, settled

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


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
    """A channel on a transport that only records."""

    def setUp(self) -> None:
        self.channel = HttpChannel("api.test:1")
        self.transport = StringTransport()
        self.channel.makeConnection(self.transport)
        self.sink = Collector()

    def send(self, method: str = "GET") -> Deferred[Response]:
        return self.channel.send(method, REQUEST, self.sink)

    def lose(self, reason: Exception | None = None) -> None:
        self.channel.connectionLost(Failure(reason or ConnectionDone()))


class ChannelTests(ChannelTestCase):
    """Requests and answers on one connection."""

    def test_exchange(self) -> None:
        """After a complete response the connection may carry the next request."""
        sending = self.send()
        self.assertEqual(self.transport.value(), REQUEST)
        self.assertFalse(self.channel.usable)
        self.channel.dataReceived(OK)
        answer = self.successResultOf(sending)
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
        sending = self.send()
        for cut in cuts:
            self.channel.dataReceived(octets[:cut])
            octets = octets[cut:]
            if not octets:
                break
        if octets:
            self.channel.dataReceived(octets)
        answer = self.successResultOf(sending)
        self.assertEqual((self.sink.body, answer.trailers, len(self.sink.heads)), (b"abcde", ((b"X-T", b"1"),), 1))

    def test_until_close(self) -> None:
        """A body that lasts until the end of the connection is complete only after an orderly end."""
        for reason, whole in ((ConnectionDone(), True), (ConnectionLost(), False)):
            self.setUp()
            sending = self.send()
            self.channel.dataReceived(b"HTTP/1.1 200 OK\r\n\r\npart")
            self.lose(reason)
            if whole:
                self.successResultOf(sending)
            else:
                self.failureResultOf(sending, errors.ConnectionLost)

    def test_truncated(self) -> None:
        """An answer cut before its announced end fails, orderly end or not."""
        for reason in (ConnectionDone(), ConnectionLost()):
            self.setUp()
            sending = self.send()
            self.channel.dataReceived(OK[:-1])
            self.lose(reason)
            failure = self.failureResultOf(sending, errors.ConnectionLost)
            self.assertEqual(str(failure.value), "api.test:1 closed the connection in the middle of its answer")

    def test_no_answer(self) -> None:
        """A connection lost before any octet has a sentence of its own."""
        sending = self.send()
        self.lose()
        failure = self.failureResultOf(sending, errors.ConnectionLost)
        self.assertIn("without an answer", str(failure.value))
        self.assertNotIn("https://", failure.value.hint)
        self.assertFalse(self.channel.response_begun)

    def test_plain_to_a_tls_server(self) -> None:
        """A server that closes on plain text may expect TLS, which the hint says."""
        self.channel = HttpChannel("api.test:1", secure=False)
        self.channel.makeConnection(self.transport)
        sending = self.send()
        self.lose(ConnectionLost())
        self.assertIn("use https://", self.failureResultOf(sending, errors.ConnectionLost).value.hint)

    def test_refused_by_the_server(self) -> None:
        """That the server refuses our certificate, which arrives after the handshake, is the error."""
        sending = self.send()
        refusal = HandshakeFailed(address="a", alert="bad_certificate", detail="the peer sent the alert")
        self.lose(refusal)
        failure = self.failureResultOf(sending, errors.RefusedByServer)
        self.assertIn("the peer sent the alert", str(failure.value))

    def test_malformed(self) -> None:
        """Octets that are no HTTP end the connection."""
        sending = self.send()
        self.channel.dataReceived(b"SSH-2.0-OpenSSH\r\n")
        self.assertEqual(self.failureResultOf(sending, errors.ExchangeFailed).value.reason, "malformed_response")
        self.assertFalse(self.channel.usable)

    def test_excess(self) -> None:
        """Octets after a response make the connection unusable for the next request."""
        sending = self.send()
        self.channel.dataReceived(OK + b"HTTP/1.1 200 OK\r\n\r\n")
        self.successResultOf(sending)
        self.assertFalse(self.channel.usable)

    def test_excess_before_the_next_request(self) -> None:
        """Octets behind a response end the connection before whoever waits for the response sends the next request."""
        for excess in (b"HTTP/1.1 200 OK\r\n", b"\r\n"):
            self.setUp()
            following = self.send().addCallback(lambda _answer: self.send())
            self.channel.dataReceived(OK + excess)
            self.failureResultOf(following, errors.ConnectionLost)
            self.assertEqual(self.transport.value(), REQUEST)
            self.assertTrue(self.transport.disconnecting)

    def test_unasked(self) -> None:
        """Octets without a request end the connection."""
        self.channel.dataReceived(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertFalse(self.channel.usable)
        self.failureResultOf(self.send(), errors.ConnectionLost)

    def test_sink_refuses(self) -> None:
        """An error of the sink ends the connection and fails the request."""
        self.sink.error = NetworkError("body_too_large", limit=1)
        sending = self.send()
        self.channel.dataReceived(OK)
        self.assertEqual(self.failureResultOf(sending, errors.ExchangeFailed).value.reason, "body_too_large")
        self.assertTrue(self.transport.disconnected or self.transport.disconnecting or not self.channel.usable)

    def test_connection_close(self) -> None:
        """After an answer with Connection: close the connection is closed from this side, too."""
        sending = self.send()
        self.channel.dataReceived(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        self.successResultOf(sending)
        self.assertTrue(self.transport.disconnecting)
        self.assertFalse(self.channel.usable)

    def test_cancelled(self) -> None:
        """A cancelled request ends the connection."""
        sending = self.send()
        sending.cancel()
        self.assertFalse(self.channel.usable)
        self.failureResultOf(sending)
        self.lose()


class ExchangeConnectionTests(SynchronousTestCase):
    """When the connection of an exchange is opened again."""

    def setUp(self) -> None:
        self.server = NotaryServer(default_world())
        self.dialer = MemoryDialer(self.server, default_world().peer)
        request = curl_request(
            Target.parse(URL),
            method="GET",
            headers=(),
            body=b"",
            level=Level.WORKLOAD,
            nonce="AAECAwQFBgcICQoLDA0ODw",
        )
        self.connection = ExchangeConnection(self.dialer.dial, request)

    def wait(self, coroutine: Any) -> Any:
        return settled(Deferred.fromCoroutine(coroutine))

    def test_one_connection(self) -> None:
        """As long as the server keeps it open there is one connection."""
        self.wait(self.connection.exchange(Collector()))
        fetched = self.wait(self.connection.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertEqual((fetched.head.status, self.server.connections), (200, 1))

    def test_idle_connection_lost(self) -> None:
        """Where the idle connection was lost, a new one is opened to the same peer."""
        self.wait(self.connection.exchange(Collector()))
        self.dialer.transports[0].drop()
        self.wait(self.connection.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertEqual(self.server.connections, 2)
        before = self.dialer.previous[1]
        assert before is not None
        self.assertIs(before.peer, default_world().peer)

    def test_lost_while_sending(self) -> None:
        """Where the server closes as the request is sent, the request is sent once more, and only once."""
        self.wait(self.connection.exchange(Collector()))
        answers: list[int] = []

        def failing(limit: int) -> Any:
            def answer(head: Any, body: bytes) -> bytes:
                answers.append(1)
                if len(answers) <= limit:
                    self.dialer.transports[-1].drop(ConnectionDone())
                    return b""
                return OK

            return answer

        self.server.answer = failing(1)
        self.dialer.transports[0]._answer = self.server.answer
        self.assertEqual(self.wait(self.connection.fetch("/x")).body, b"hi")
        answers.clear()
        self.server.answer = failing(9)
        self.dialer.transports[-1]._answer = self.server.answer
        self.assertRaises(errors.ConnectionLost, self.wait, self.connection.fetch("/x"))
        self.assertEqual(len(answers), 2)

    def test_peer_is_that_of_the_exchange(self) -> None:
        """The peer stays that of the exchange, whatever connection artifacts come over."""
        self.assertIsNone(self.connection.peer)
        self.wait(self.connection.exchange(Collector()))
        self.dialer.peer = None
        self.dialer.transports[0].drop()
        self.wait(self.connection.fetch("/.well-known/svc-notary/v1/statements/x"))
        self.assertIs(self.connection.peer, default_world().peer)
