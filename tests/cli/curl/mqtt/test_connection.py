"""Tests of ``svc.cli.curl.mqtt.connection``: times, back-pressure and ends of a connection."""

from __future__ import annotations

import io
from typing import Any

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.mqtt.connection import CLOSE_SECONDS, MIN_SILENCE, OPENING_SECONDS, BrokerNetwork, OlderBroker
from svc.cli.curl.mqtt.plan import MqttPlan
from svc.cli.errors import NetworkError
from svc.cli.globals import GlobalOptions
from svc.cli.output import Console
from svc.client.errors import BrokerFailed
from svc.client.subscriber import KEEP_ALIVE, RECEIVE_MAXIMUM
from svc.transport.errors import HandshakeFailed
from svc.wire.mqtt import (
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Version,
)
from tests.cli.curl.mqtt.broker import ABSENT, STATEMENTS, MemoryBroker

TOPIC = f"{STATEMENTS}/x"


class ConnectionCase(SynchronousTestCase):
    """A connection to a broker in memory."""

    version = Version.V5

    def setUp(self) -> None:
        self.broker = MemoryBroker()
        self.clock = self.broker.clock
        self.connection = self.successResultOf(Deferred.fromCoroutine(self.broker.connect(self.version)))

    def failed(self, reason: str, result: Deferred[Any]) -> str:
        """The text of the failure; no timer is left."""
        error = self.failureResultOf(result, BrokerFailed).value
        self.assertEqual(reason, error.reason)
        self.assertEqual([], self.clock.getDelayedCalls())
        return str(error)


class OpeningTests(ConnectionCase):
    """Until the topics are granted."""

    def test_opened(self) -> None:
        """CONNECT is sent at once, SUBSCRIBE after CONNACK; the grant opens the connection."""
        [connect] = self.broker.sent()
        self.assertIsInstance(connect, Connect)
        self.broker.send(Connack())
        [subscribe] = self.broker.sent()
        self.assertIsInstance(subscribe, Subscribe)
        self.assertNoResult(self.connection.opened)
        self.broker.send(Suback(1, [1, 1]))
        self.successResultOf(self.connection.opened)
        self.connection.close()
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_silent_broker(self) -> None:
        """A broker that does not grant the topics in time is given up, not a moment earlier."""
        self.broker.send(Connack())
        self.clock.advance(OPENING_SECONDS - 0.1)
        self.assertNoResult(self.connection.opened)
        self.clock.advance(0.1)
        text = self.failed("mqtt_broker_silent", self.connection.opened)
        self.assertIn("for 10 s", text)

    def test_lost(self) -> None:
        """The end of the connection before the grant is an error, with the TLS alert where one came."""
        self.broker.drop(HandshakeFailed(address="b:1", alert="x", detail="the peer sent the alert bad_certificate"))
        self.assertIn("bad_certificate", self.failed("mqtt_broker_closed", self.connection.opened))

    def test_older(self) -> None:
        """A broker that refuses MQTT 5.0 is distinguished from one that refuses the connection."""
        self.broker.send(Connack(code=0x84))
        self.failureResultOf(self.connection.opened, OlderBroker)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_cancelled(self) -> None:
        """A grant after the consumer has given up changes nothing."""
        self.connection.opened.cancel()
        self.failureResultOf(self.connection.opened, CancelledError)
        self.broker.grant()
        self.successResultOf(self.connection.close())
        self.assertEqual([], self.clock.getDelayedCalls())


class KeepAliveTests(ConnectionCase):
    """PINGREQ, and a broker that no longer answers."""

    def open(self, seconds: int | None = None) -> None:
        self.broker.send(Connack(properties=Properties(server_keep_alive=seconds)), Suback(1, [1, 1]))
        self.broker.sent()

    def test_pings(self) -> None:
        """PINGREQ is sent twice within the keep alive, that of the server where it sets one."""
        for given, period in ((None, KEEP_ALIVE / 2), (10, 5), (0, KEEP_ALIVE / 2), (65535, KEEP_ALIVE / 2)):
            self.setUp()
            self.open(given)
            for _ in range(5):
                self.clock.advance(period / 2)
                self.assertEqual([], self.broker.sent())
                self.clock.advance(period / 2)
                self.assertEqual([Pingreq()], self.broker.sent())
                self.broker.send(Pingresp())
            self.connection.close()

    def test_silence(self) -> None:
        """A broker that answers no PINGREQ is given up after the keep alive, but not before a minimum."""
        for given, limit in ((None, KEEP_ALIVE), (2, MIN_SILENCE)):
            self.setUp()
            self.open(given)
            following = self.connection.next()
            self.clock.pump([0.5] * int(limit * 2))
            self.assertNoResult(following)
            self.clock.pump([0.5] * KEEP_ALIVE)
            self.failed("mqtt_broker_silent", following)

    def test_not_while_reading_is_paused(self) -> None:
        """While messages wait for the consumer nothing is read, so silence means nothing; PINGREQ is still sent."""
        self.open()
        self.broker.send(*[Publish(TOPIC, b"x")] * RECEIVE_MAXIMUM)
        self.clock.pump([KEEP_ALIVE / 2] * 10)
        self.assertEqual([Pingreq()] * 10, self.broker.sent())
        for _ in range(RECEIVE_MAXIMUM):
            self.successResultOf(self.connection.next())
        following = self.connection.next()
        self.clock.advance(KEEP_ALIVE / 2)
        self.assertNoResult(following)
        following.cancel()
        self.failureResultOf(following, CancelledError)
        self.connection.close()


class BackPressureTests(ConnectionCase):
    """Messages that wait for the consumer."""

    def setUp(self) -> None:
        super().setUp()
        self.broker.grant()

    def test_reading_stops(self) -> None:
        """Reading stops at as many waiting messages as may be unacknowledged, and goes on when none waits."""
        self.broker.send(*[Publish(TOPIC, b"x")] * (RECEIVE_MAXIMUM - 1))
        self.assertEqual("producing", self.broker.transport.producerState)
        self.broker.send(Publish(TOPIC, b"last"))
        self.assertEqual("paused", self.broker.transport.producerState)
        for _ in range(RECEIVE_MAXIMUM - 1):
            self.successResultOf(self.connection.next())
            self.assertEqual("paused", self.broker.transport.producerState)
        self.assertEqual(b"last", self.successResultOf(self.connection.next()).payload)
        self.assertEqual("producing", self.broker.transport.producerState)
        self.connection.close()

    def test_order(self) -> None:
        """A consumer that waits gets a message at once, others in the order in which they came."""
        waiting = self.connection.next()
        self.broker.send(*[Publish(TOPIC, bytes([number])) for number in range(3)])
        found = [self.successResultOf(waiting)] + [self.successResultOf(self.connection.next()) for _ in range(2)]
        self.assertEqual([b"\0", b"\1", b"\2"], [arrival.payload for arrival in found])
        self.connection.close()

    def test_messages_before_the_end(self) -> None:
        """What was read before the end is handed over before it."""
        self.broker.send(Publish(TOPIC, b"x"), Disconnect(0x8B))
        self.broker.drop()
        self.assertEqual(b"x", self.successResultOf(self.connection.next()).payload)
        self.assertIsNone(self.successResultOf(self.connection.next()))
        self.assertEqual("server shutting down (0x8b)", self.connection.ended)


class EndTests(ConnectionCase):
    """The ends of a granted subscription."""

    def setUp(self) -> None:
        super().setUp()
        self.broker.grant()

    def test_lost(self) -> None:
        """A lost connection, orderly or not, ends the subscription without an error."""
        following = self.connection.next()
        self.broker.drop(error.ConnectionLost())
        self.assertIsNone(self.successResultOf(following))
        self.assertEqual("", self.connection.ended)
        self.assertEqual([], self.clock.getDelayedCalls())
        self.successResultOf(self.connection.close())

    def test_protocol_error(self) -> None:
        """A broker that breaks MQTT fails the subscription, and is sent the reason."""
        following = self.connection.next()
        self.broker.connection.dataReceived(b"\x00")
        self.failed("mqtt_broker_invalid", following)
        self.assertEqual([Disconnect(0x81)], self.broker.sent())
        self.failed("mqtt_broker_invalid", self.connection.next())

    def test_closed_here(self) -> None:
        """Closing sends DISCONNECT, then ends the connection; a waiting consumer gets the end."""
        following = self.connection.next()
        self.successResultOf(self.connection.close())
        self.assertIsNone(self.successResultOf(following))
        self.assertEqual([Disconnect()], self.broker.sent())
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_broker_that_takes_nothing(self) -> None:
        """A connection whose end is not taken in time is aborted, also one whose reading is paused."""
        self.broker.send(*[Publish(TOPIC, b"x")] * RECEIVE_MAXIMUM)
        transport = self.broker.transport
        ends: list[str] = []
        transport.loseConnection = lambda: ends.append("lose")
        closed = self.connection.close()
        self.assertEqual((["lose"], "producing"), (ends, transport.producerState))
        self.clock.advance(CLOSE_SECONDS)
        self.assertTrue(transport.aborted)
        self.broker.drop()
        self.successResultOf(closed)


class NetworkTests(SynchronousTestCase):
    """The errors of a connection that cannot be opened, and what the network's context connects."""

    def connect(self, url: str) -> tuple[MemoryReactorClock, Deferred[object]]:
        """Begin to connect to a broker."""
        reactor = MemoryReactorClock()
        plan = MqttPlan.read(url, {**ABSENT, "print_workload": True}, GlobalOptions(), {})
        context = BrokerNetwork(reactor, plan, Console(io.BytesIO(), io.BytesIO(), {}))
        self.addCleanup(lambda: self.assertEqual([], reactor.getDelayedCalls()))
        return reactor, Deferred.fromCoroutine(context.connect(Version.V5))

    def test_plain(self) -> None:
        """The connection sends CONNECT with the credentials and an identifier that every broker takes."""
        reactor, connecting = self.connect("mqtt://u:p@192.0.2.1:1883")
        [(host, port, factory, _timeout, _bind)] = reactor.tcpClients
        self.assertEqual(("192.0.2.1", 1883), (host, port))
        protocol = factory.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        connection: Any = self.successResultOf(connecting)
        [connect] = Decoder("client").feed(transport.value())
        assert isinstance(connect, Connect)
        self.assertEqual(("u", b"p", True), (connect.username, connect.password, connect.clean_start))
        self.assertRegex(connect.client_id, r"\A[0-9a-z]{23}\Z")
        protocol.connectionLost(Failure(error.ConnectionLost()))
        self.failureResultOf(connection.opened, BrokerFailed)

    def test_handshake(self) -> None:
        """A handshake that fails or does not end is an error of TLS with the broker."""
        for wait, expected in ((False, "the peer closed the connection"), (True, "not complete after 10 s")):
            reactor, connecting = self.connect("mqtts://192.0.2.1:8883")
            protocol = reactor.tcpClients[0][2].buildProtocol(None)
            transport = StringTransport()
            protocol.makeConnection(transport)
            if wait:
                reactor.advance(10)
                self.assertTrue(transport.disconnected)
            protocol.connectionLost(Failure(error.ConnectionDone()))
            found = self.failureResultOf(connecting, BrokerFailed).value
            self.assertEqual("mqtt_tls_failed", found.reason)
            self.assertIn(expected, str(found))

    def test_not_connected(self) -> None:
        """No connection in time is an error of the network."""
        reactor, connecting = self.connect("mqtt://192.0.2.1:1883")
        reactor.tcpClients[0][2].clientConnectionFailed(None, Failure(error.TimeoutError()))  # type: ignore[arg-type]
        self.assertEqual("connect_timeout", self.failureResultOf(connecting, NetworkError).value.reason)
