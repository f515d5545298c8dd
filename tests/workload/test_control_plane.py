"""Requests to a server of the control plane, whose answers are fed in pieces."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svc.identity.matchers import MemberOf
from svc.identity.spiffeid import TrustDomain
from svc.workload.control_plane import Answer, ControlPlane, ServerAnswerTooLarge

LIMIT = 64


class ControlPlaneTests(SynchronousTestCase):
    """A server on a Unix socket."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.server = ControlPlane(
            "unix:///run/manager.sock",
            cast(Any, None),
            self.reactor,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            expected=MemberOf(TrustDomain.parse("example.org")),
            timeout=10.0,
            max_answer=LIMIT,
        )

    def answered(self, *pieces: bytes, **arguments: Any) -> tuple[Deferred[Answer], StringTransport]:
        """Send a request and feed its answer."""
        answer = Deferred.fromCoroutine(self.server.request("GET", "/v1/policy", **arguments))
        (client,) = self.reactor.unixClients
        protocol = client[1].buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        for each in pieces:
            protocol.dataReceived(each)
        return answer, transport

    def test_answer_in_pieces(self) -> None:
        """Code, entity tag and body of an answer that comes octet by octet."""
        data = b'HTTP/1.1 200 OK\r\nETag: "7"\r\nContent-Length: %d\r\n\r\n%s' % (LIMIT, b"x" * LIMIT)
        pieces = [data[at : at + 1] for at in range(len(data))]
        answer, transport = self.answered(*pieces, headers={"if-none-match": '"6"'})
        self.assertEqual(Answer(200, '"7"', b"x" * LIMIT), self.successResultOf(answer))
        self.assertIn(b'If-None-Match: "6"\r\n', transport.value())

    def test_answer_over_the_limit(self) -> None:
        """One octet more than allowed is an error, whether or not the length is announced."""
        for head in (b"Content-Length: %d" % (LIMIT + 1), b"Connection: close"):
            answer, _transport = self.answered(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head, b"x" * (LIMIT + 1))
            self.failureResultOf(answer, ServerAnswerTooLarge)
            self.setUp()

    def test_redirect(self) -> None:
        """A redirect is an answer like others: nothing else is asked."""
        answer, _transport = self.answered(
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://example.org/\r\nContent-Length: 0\r\n\r\n"
        )
        self.assertEqual(307, self.successResultOf(answer).code)
        self.assertEqual(1, len(self.reactor.unixClients))
        self.assertEqual([], list(self.reactor.tcpClients))
