"""HTTP connections whose reads take longer than a turn of the reactor."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity.errors import SvidExpired
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.pacing.turns import Turns
from tests.process.test_reauthorization import TurnClock
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import Rig, Wire, lose

GET = b"GET /a HTTP/1.1\r\nHost: api\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
WEBSOCKET = b"GET /ws HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
CHUNK = b"1\r\na\r\n"
LAST = b"0\r\n\r\n"
MANY = 2000
#: Requests, or slices of octets, that one turn without time takes.
STEPS = 2
#: Chunks in one slice, at most.
SLICE = 64


class TurnCase(SynchronousTestCase):
    """A listener whose turns end after two steps."""

    def accept(self, **options: Any) -> None:
        """Accept a client."""
        self.reactor = TurnClock()
        self.rig = Rig(turns=Turns(cast(Any, self.reactor), 0.0), **options)
        self.client, self.wire = self.rig.client()

    def turns(self, at_most: int = 10000) -> int:
        """Take turns until none waits; returns how many."""
        for count in range(at_most):
            if not self.reactor.calls:
                return count
            self.reactor.turn()
        self.fail("turns without end")

    def answered(self, wire: Wire | None = None) -> int:
        """Take what a client got, and count the responses."""
        return (wire or self.wire).take().count(b"HTTP/1.1 ")


class RequestTests(TurnCase):
    """What a client sends in one read."""

    def test_refused_requests(self) -> None:
        """A denied client gets two answers in a turn, is not read meanwhile, and gets all of them in the end."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * MANY)
        self.assertEqual(self.answered(), 1)
        while self.reactor.calls:
            self.assertTrue(self.wire.paused)
            self.reactor.turn()
            self.assertLessEqual(self.answered(), STEPS)
        self.assertFalse(self.wire.paused)
        self.assertEqual(len(self.rig.reporter.denials), MANY)

    def test_others_are_served_between(self) -> None:
        """Connections that flood share the turns; one that asks once is answered in its own read."""
        self.accept(policies=admit_nobody())
        others = [self.rig.client() for _ in range(3)]
        for client, _wire in others:
            client.dataReceived(GET * MANY)
        for client, wire in others:
            self.answered(wire)
            client.dataReceived(GET)
        self.client.dataReceived(GET)
        self.assertEqual(self.answered(), 1)
        for _ in range(3):
            self.reactor.turn()
        self.assertEqual([self.answered(wire) for _client, wire in others], [STEPS] * 3)
        self.turns()
        self.assertEqual(len(self.rig.reporter.denials), 3 * MANY + 4)

    def test_the_stream_ends_behind_them(self) -> None:
        """All requests in front of the end of the stream are answered before the connection is closed."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * 100)
        self.client.readConnectionLost()
        self.assertFalse(self.wire.disconnecting)
        self.turns()
        self.assertEqual(self.answered(), 100)
        self.assertTrue(self.wire.disconnecting)

    def test_lost(self) -> None:
        """A connection that is lost takes no more turns."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * MANY)
        lose(self.client)
        self.assertEqual((self.turns(), self.answered()), (0, 1))

    def test_closed(self) -> None:
        """The same for one that is closed at a request that is no HTTP, behind the answers in front of it."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * 100 + b"x" + GET * MANY)
        self.turns()
        self.assertEqual(self.answered(), 101)
        self.assertTrue(self.wire.disconnecting)

    def test_drain(self) -> None:
        """A drain closes no connection whose requests wait for a turn."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * 10)
        self.rig.context.draining = True
        self.rig.context.tick = 1.0
        self.client.sweep(1.0, self.rig.wall())
        self.assertFalse(self.wire.disconnecting)

    def test_reauthorization(self) -> None:
        """A connection that is refused while it waits goes on no more."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(GET * MANY)
        self.answered()
        self.rig.rotation.withdrawn = True
        self.rig.reauthorization.begin()
        self.rig.clock.advance(0)
        self.turns()
        self.assertLessEqual(self.answered(), STEPS)
        self.assertTrue(self.wire.disconnecting)

    def test_permitted_requests(self) -> None:
        """Requests that are forwarded are answered one by one, in order."""
        self.accept()
        self.client.dataReceived(b"".join(b"GET /%d HTTP/1.1\r\nHost: api\r\n\r\n" % number for number in range(100)))
        for number in range(100):
            self.turns()
            self.assertTrue(self.rig.upstream()[1].take().startswith(b"GET /%d " % number))
            self.rig.respond(OK)
        self.assertEqual(self.answered(), 100)
        self.assertFalse(self.wire.paused)

    def test_chunks_of_one_octet(self) -> None:
        """A body of small chunks reaches the application whole, some chunks in a turn, and its record is complete."""
        self.accept(demanded=Level.SIGN_REQUEST)
        self.client.dataReceived(POST + CHUNK * MANY + LAST + GET)
        upstream, sent = self.rig.upstream()[1], b""
        while self.reactor.calls:
            self.assertTrue(self.wire.paused)
            piece = upstream.take()
            self.assertLessEqual(piece.count(CHUNK), STEPS * SLICE + 1)
            sent += piece
            self.reactor.turn()
        sent += upstream.take()
        self.assertEqual(sent.partition(b"\r\n\r\n")[2], CHUNK * MANY + LAST)
        for _ in range(2):
            self.rig.respond(OK)
            self.turns()
        self.assertEqual(self.rig.reporter.served, [(b"POST", 200), (b"GET", 200)])
        self.assertEqual(self.rig.reporter.summaries[0].request_octets, MANY)

    def test_answer_in_front_of_the_end(self) -> None:
        """A connection goes on behind a refused request whose end came with it in the same read."""
        self.accept(policies=admit_nobody())
        self.rig.turns._seconds = 1.0
        self.client.dataReceived(POST + CHUNK * 200 + LAST + GET)
        self.assertEqual(self.answered(), 2)
        self.assertFalse(self.wire.disconnecting)

    def test_the_end_is_not_looked_for_longer_than_a_turn(self) -> None:
        """Where it is farther away the connection ends, as where it has not come."""
        self.accept(policies=admit_nobody())
        self.client.dataReceived(POST + CHUNK * MANY + LAST + GET)
        self.assertIn(b"Connection: close\r\n", self.wire.value())
        self.assertEqual(self.answered(), 1)
        self.assertTrue(self.wire.disconnecting)

    def test_upgrade(self) -> None:
        """What follows a request for another protocol in its read reaches the application, in any size."""
        self.accept()
        octets = b"".join(b"%d\n" % number for number in range(MANY))
        self.client.dataReceived(WEBSOCKET + octets)
        self.rig.upstream()[1].take()
        self.rig.respond(SWITCH + octets)
        self.turns()
        self.assertEqual(self.rig.upstream()[1].take(), octets)
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\n" + octets))
        self.assertFalse(self.wire.paused)

    def test_upgrade_that_is_not_granted(self) -> None:
        """The requests behind it are answered in order."""
        self.accept()
        self.client.dataReceived(WEBSOCKET + GET * 100)
        for _ in range(101):
            self.rig.respond(OK)
            self.turns()
        self.assertEqual(self.answered(), 101)


class ResponseTests(TurnCase):
    """What an application sends in one read."""

    def ask(self, **options: Any) -> None:
        """Send a request."""
        self.accept(**options)
        self.client.dataReceived(GET)
        self.application, self.upstream = self.rig.upstream()

    def respond(self, data: bytes = CHUNKED + CHUNK * MANY + LAST) -> bytes:
        """Send a response of many parts, and take turns; returns what the client got."""
        self.rig.respond(data)
        got = b""
        while self.reactor.calls:
            self.assertTrue(self.application.dead or self.upstream.paused)
            piece = self.wire.take()
            self.assertLess(piece.count(CHUNK), STEPS * 2 * SLICE)
            got += piece
            self.reactor.turn()
        return got + self.wire.take()

    def test_chunks_of_one_octet(self) -> None:
        """A response of small chunks reaches the client whole; its connection is used again."""
        self.ask()
        self.assertTrue(self.respond().endswith(b"\r\n\r\n" + CHUNK * MANY + LAST))
        self.assertFalse(self.upstream.paused)
        self.client.dataReceived(GET)
        self.assertTrue(self.respond().endswith(CHUNK * MANY + LAST))
        self.assertEqual((len(self.rig.endpoint.connections), self.rig.pool.idle_count), (1, 1))

    def test_record(self) -> None:
        """The record of such an exchange is complete."""
        self.ask(demanded=Level.SIGN_REQUEST)
        self.assertTrue(self.respond().endswith(CHUNK * MANY + LAST))
        summary = self.rig.reporter.summaries[0]
        self.assertEqual((summary.outcome, summary.response_octets), (ExchangeOutcome.COMPLETE, MANY))

    def test_more_is_read(self) -> None:
        """What a transport still delivers while the connection waits comes behind what waits."""
        self.ask()
        self.rig.respond(CHUNKED + CHUNK * MANY)
        self.assertTrue(self.upstream.paused)
        self.assertTrue(self.respond(b"1\r\nb\r\n" + LAST).endswith(CHUNK + b"1\r\nb\r\n" + LAST))

    def test_excess(self) -> None:
        """A connection with octets behind a response is not used again."""
        for behind in (b"x", OK, OK * 1000):
            self.ask()
            self.assertTrue(self.respond(CHUNKED + CHUNK * MANY + LAST + behind).endswith(CHUNK + LAST))
            self.assertTrue(self.upstream.aborted)
            self.assertEqual(self.rig.pool.idle_count, 0)

    def test_the_connection_ends_behind_it(self) -> None:
        """What was read before the end of a connection is delivered, and then the end."""
        self.ask()
        self.rig.respond(CHUNKED + CHUNK * MANY + LAST)
        self.rig.lose_upstream()
        self.assertEqual(self.rig.reporter.served, [])
        self.turns()
        self.assertTrue(self.wire.take().endswith(CHUNK * MANY + LAST))
        self.assertEqual(self.rig.reporter.served, [(b"GET", 200)])
        self.assertEqual(self.rig.pool.open_count, 0)

    def test_the_connection_is_cut_behind_a_part(self) -> None:
        """A response that is not complete is cut behind what came of it."""
        self.ask()
        self.rig.respond(CHUNKED + CHUNK * MANY)
        self.rig.lose_upstream(clean=False)
        self.turns()
        self.assertTrue(self.wire.take().endswith(CHUNK * MANY))
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.rig.reporter.failures, ["upstream_malformed"])

    def test_the_client_leaves(self) -> None:
        """What is left of a response is dropped with its exchange."""
        self.ask()
        self.rig.respond(CHUNKED + CHUNK * MANY + LAST)
        self.client.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.turns(), 0)
        self.assertTrue(self.upstream.aborted)

    def test_a_client_that_does_not_read(self) -> None:
        """The connection is read again when nothing is left and the client reads."""
        for first in (True, False):
            self.ask()
            self.rig.respond(CHUNKED + CHUNK * MANY)
            self.wire.producer.pauseProducing()
            if first:
                self.wire.producer.resumeProducing()
                self.assertTrue(self.upstream.paused)
            self.turns()
            self.assertEqual(self.upstream.paused, not first)
            self.wire.producer.resumeProducing()
            self.assertFalse(self.upstream.paused)

    def test_refused_peer(self) -> None:
        """A connection whose peer is refused while it waits delivers no more."""
        self.ask()
        self.rig.respond(CHUNKED + CHUNK * MANY + LAST)
        got = self.wire.take().count(CHUNK)
        self.application.cut(SvidExpired(spiffe_id="x", ended="y"))
        self.application.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.turns(), 0)
        self.assertLess(got, MANY)
        self.assertEqual(self.wire.take(), b"")
        self.assertTrue(self.wire.aborted)

    def test_a_defect(self) -> None:
        """A defect in a later turn drops the connection, and its exchange ends; the same where it is lost already."""
        for lost in (False, True):
            self.ask()
            self.rig.respond(CHUNKED + CHUNK * MANY + LAST)
            if lost:
                self.rig.lose_upstream()
            exchange = self.client._exchange
            assert exchange is not None
            exchange._writer = None
            self.turns()
            self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
            if not lost:
                self.assertTrue(self.upstream.aborted)
                self.rig.lose_upstream(clean=False)
            self.assertTrue(self.wire.aborted)
