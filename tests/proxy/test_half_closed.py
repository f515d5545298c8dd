"""Clients that end their stream behind a request: FIN on a plain connection, close_notify under TLS."""

from __future__ import annotations

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from tests.proxy.rig import Rig, lose

GET = b"GET /a HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
POST = b"POST /a HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n\r\n"
WEBSOCKET = b"GET /ws HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


class HalfClosedTests(SynchronousTestCase):
    """What was sent before the end is answered; then the connection is closed (RFC 9112 section 9.6)."""

    def accept(self, rig: Rig) -> None:
        """Accept a client of a listener."""
        self.rig = rig
        self.client, self.wire = rig.client()
        verifyObject(IHalfCloseableProtocol, self.client)

    def closed(self) -> float:
        """Return how many connections were counted as ended by their clients."""
        labels = {"protocol": "http", "cause": "client"}
        return self.rig.registry.get_sample_value("svc_proxy_connections_closed_total", labels) or 0.0

    def test_while_the_application_works(self) -> None:
        """The response reaches the client, and the connection is closed in order behind it."""
        for inbound in (True, False):
            self.accept(Rig(inbound=inbound))
            self.client.dataReceived(GET)
            self.client.readConnectionLost()
            self.client.readConnectionLost()
            self.assertFalse(self.wire.disconnecting or self.wire.aborted)
            self.rig.respond(OK[:-1])
            self.rig.respond(OK[-1:])
            self.assertEqual(self.wire.take(), OK)
            self.assertTrue(self.wire.disconnecting)
            self.assertFalse(self.wire.aborted)
            self.assertEqual(self.rig.reporter.served, [(b"GET", 200)])
            lose(self.client)
            self.assertEqual(self.closed(), 1.0)

    def test_recorded_exchange(self) -> None:
        """The record of the exchange is that of a complete one."""
        self.accept(Rig(demanded=Level.SIGN_REQUEST))
        self.client.dataReceived(POST + b"hello")
        self.client.readConnectionLost()
        self.rig.respond(OK)
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\nok"))
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.rig.reporter.summaries[0].outcome, ExchangeOutcome.COMPLETE)

    def test_several_requests(self) -> None:
        """All requests that came before the end are answered."""
        self.accept(Rig())
        self.client.dataReceived(GET * 3)
        self.client.readConnectionLost()
        for number in range(3):
            self.assertFalse(self.wire.disconnecting, number)
            self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK * 3)
        self.assertTrue(self.wire.disconnecting)

    def test_part_of_another_request(self) -> None:
        """A request of which the end is missing is not answered, those before it are."""
        for rest, upstream in ((GET[:10], GET), (POST + b"hel", POST)):
            self.accept(Rig())
            self.client.dataReceived(GET + rest)
            self.client.readConnectionLost()
            self.rig.respond(OK)
            self.assertEqual(self.wire.take(), OK)
            self.assertTrue(self.wire.disconnecting or self.wire.aborted, upstream)

    def test_in_a_request(self) -> None:
        """A request whose rest will not come is given up, with its connection to the application."""
        self.accept(Rig())
        self.client.dataReceived(POST + b"hel")
        self.client.readConnectionLost()
        self.assertTrue(self.wire.aborted)
        self.assertTrue(self.rig.upstream()[1].aborted)
        self.assertEqual(self.rig.reporter.summaries[0].outcome, ExchangeOutcome.CLIENT_ABORTED)

    def test_without_a_request(self) -> None:
        """An idle connection, and one in the middle of a head, is closed at once."""
        for data in (b"", GET[:10]):
            self.accept(Rig())
            self.client.dataReceived(data)
            self.client.readConnectionLost()
            self.assertTrue(self.wire.disconnecting)
            self.assertFalse(self.wire.aborted)

    def test_closed_transport_is_not_read(self) -> None:
        """Reading is not resumed after the end: the transport would report it again and again."""
        self.accept(Rig())
        self.client.dataReceived(GET * 2)
        self.assertTrue(self.wire.paused)
        self.client.readConnectionLost()
        self.rig.respond(OK)
        self.rig.respond(OK)
        self.assertTrue(self.wire.paused)
        self.assertEqual(self.wire.take(), OK * 2)

    def test_after_the_last_response(self) -> None:
        """A connection that this side has ended is closed when the client ends it too."""
        self.accept(Rig(inbound=False))
        halves: list[str] = []
        self.wire.loseWriteConnection = lambda: halves.append("write")  # type: ignore[attr-defined]
        self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n")
        self.rig.respond(OK)
        self.assertEqual((halves, self.wire.disconnecting), (["write"], False))
        self.client.readConnectionLost()
        self.assertTrue(self.wire.disconnecting)

    def test_upgraded_connection(self) -> None:
        """The end of an upgraded connection ends the application's, in order."""
        self.accept(Rig())
        self.client.dataReceived(WEBSOCKET)
        self.rig.respond(SWITCH)
        self.client.dataReceived(b"last")
        self.client.readConnectionLost()
        application = self.rig.upstream()[1]
        self.assertTrue(application.take().endswith(b"\r\n\r\nlast"))
        self.assertTrue(application.disconnecting and self.wire.disconnecting)
        self.assertFalse(application.aborted or self.wire.aborted)
        self.assertIsNone(self.wire.producer)
        lose(self.client)
        self.assertEqual((self.closed(), self.rig.reporter.summaries[0].request_octets), (1.0, 4))

    def test_before_the_upgrade(self) -> None:
        """A client that ends its stream behind a request for an upgrade gets the answer to it."""
        self.accept(Rig())
        self.client.dataReceived(WEBSOCKET)
        self.client.readConnectionLost()
        self.rig.respond(SWITCH + b"hello")
        self.assertTrue(self.wire.take().endswith(b"\r\n\r\nhello"))
        self.assertTrue(self.wire.disconnecting and self.rig.upstream()[1].disconnecting)
        self.accept(Rig())
        self.client.dataReceived(WEBSOCKET + GET)
        self.client.readConnectionLost()
        self.rig.respond(OK)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK + OK)
        self.assertTrue(self.wire.disconnecting)

    def test_client_that_does_not_read(self) -> None:
        """A plain connection whose client does not take the end of the response is dropped some time later."""
        self.accept(Rig(inbound=False))
        self.client.dataReceived(GET)
        self.client.readConnectionLost()
        self.rig.respond(OK)
        self.wire.unsent = 2
        self.rig.sweep(2.0)
        self.assertFalse(self.wire.aborted)
        self.rig.sweep(2.0)
        self.rig.sweep(4.0)
        self.assertTrue(self.wire.aborted)
