"""A client's side of store-and-forward whose messages are recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.naming import PROPERTY_NONCE, PROPERTY_RECEIPT_ID
from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.publish import AckedBy
from svc.pacing.turns import Turns
from svc.policy.rules import MqttAction
from svc.proxy.errors import NotaryRate, NotaryUnavailable, RecordTooLarge
from svc.proxy.mqtt.interfaces import RecordDemand
from svc.proxy.mqtt.stored.forwarding import Admission
from svc.proxy.mqtt.stored.session import BufferedMqttSession
from svc.telemetry.labels import Cause
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Properties,
    Publish,
    QoS,
    ReasonCode,
    ReceiveMaximumExceeded,
    Version,
    encode,
)
from tests.proxy.mqtt.sessions import LIMITS, METRICS, Authorizer, Recorder, read

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
SIGN = RecordDemand(Level.SIGN_REQUEST, None)


class Forwarder:
    """The session of a client identifier, which does nothing by itself."""

    waiting = False

    def __init__(self) -> None:
        self.packets: list[tuple[Packet, RecordDemand | None]] = []
        self.refusals: list[Acknowledgement] = []
        self.admissions: list[bool] = []
        self.acknowledgements: list[tuple[Acknowledgement, str, str]] = []
        self.left: list[Disconnect | None] = []

    def client_connected(self, connect: Connect) -> None:
        """Nothing follows."""

    def client_packet(self, packet: Packet, demand: RecordDemand | None = None) -> None:
        """Remember it."""
        self.packets.append((packet, demand))

    def publish_refused(self, refusal: Acknowledgement) -> None:
        """Remember it."""
        self.refusals.append(refusal)

    def admitted(self, client: BufferedMqttSession, *, admitted: bool) -> None:
        """Remember it."""
        self.admissions.append(admitted)

    def acknowledged(self, packet: Acknowledgement, source: str, receipt: str) -> None:
        """Remember it."""
        self.acknowledgements.append((packet, source, receipt))

    def client_left(self, last: Disconnect | None) -> None:
        """Remember it."""
        self.left.append(last)


class Client:
    """A session with a connected client; the :class:`svc.proxy.mqtt.interfaces.SessionEnds` of it."""

    def __init__(self, version: Version = Version.V5, limit: int = 100, **accepted: Any) -> None:
        self.version = version
        self.octets = b""
        self.held = False
        self.ended: Cause | None = None
        self.refusals: list[SvcError] = []
        self.authorizer, self.recorder, self.forwarder = Authorizer(), Recorder(limit), Forwarder()
        self.authorizer.level = Level.SIGN_REQUEST
        self.session = BufferedMqttSession(
            self,
            self.authorizer,
            LIMITS,
            METRICS,
            "the broker",
            lambda _session, _connect: self.forwarder,
            lambda: "assigned",
            receive_maximum=1024,
            recorder=self.recorder,
        )
        self.send(Connect("c", version, properties=Properties(**accepted)))
        self.session.send(Connack())
        [self.connack] = self.take()

    #: Time does not pass.
    turns = Turns(Clock())

    def client_waits(self) -> None:
        """No turn ends."""
        raise AssertionError

    upstream_waits = client_waits

    def open_upstream(self) -> None:
        """The forwarder does that."""

    def write_client(self, octets: bytes) -> None:
        """Keep the octets."""
        self.octets += octets

    def write_upstream(self, octets: bytes) -> None:
        """The forwarder does that."""

    def hold_client(self, *, held: bool) -> None:
        """Remember it."""
        self.held = held

    def refused(self, error: SvcError, action: MqttAction, topic: str | None) -> None:
        """Remember it."""
        self.refusals.append(error)

    def close(self, cause: Cause, error: SvcError | None) -> None:
        """Remember it."""
        self.ended = cause

    def send(self, *packets: Packet) -> None:
        """Send packets in one read."""
        self.session.client_received(b"".join(encode(each, self.version, "client") for each in packets))

    def take(self) -> list[Packet]:
        """What the client got, and forget it."""
        octets, self.octets = self.octets, b""
        return read(octets, "server", self.version)

    def admit(self, packet: Publish, *, stored: bool = False) -> Admission:
        """The forwarder demands a record."""
        return self.session.admit(packet, SIGN, stored=stored)

    def acknowledge(self, packet: Acknowledgement, receipt: str = "", *, recorded: bool = True) -> None:
        """The forwarder acknowledges."""
        self.session.acknowledge(packet, "middleware", receipt, recorded=recorded)

    def written(self, number: int = 0, result: str | Failure | None = "receipt") -> None:
        """A record is durable, or failed."""
        self.recorder.done.pop(number)(result)


def message(packet_id: int = 1, qos: QoS = 1, payload: bytes = b"1") -> Publish:
    """A message."""
    return Publish("t", payload, qos, packet_id=packet_id if qos else 0)


def receipts(packets: list[Packet]) -> list[tuple[PacketType, int, str | None]]:
    """Acknowledgements with the identifiers of their receipts."""
    found = [each for each in packets if isinstance(each, Acknowledgement)]
    return [(each.type, each.packet_id, dict(each.properties.user).get(PROPERTY_RECEIPT_ID)) for each in found]


class DemandTests(SynchronousTestCase):
    """What is to be recorded."""

    def test_levels(self) -> None:
        """A demand goes with a message whose level is recorded, and with no other packet; the nonce is taken out."""
        client, nonce, before = Client(), "A" * 22, METRICS.at_workload.value
        client.authorizer.levels = {"plain": Level.WORKLOAD}
        properties = Properties(user=((PROPERTY_NONCE, nonce), ("a", "b")))
        client.send(message(), Publish("plain", b""), Publish("t", b"", properties=properties), Pingreq())
        demands = [demand for _packet, demand in client.forwarder.packets]
        self.assertEqual([SIGN, None, RecordDemand(Level.SIGN_REQUEST, nonce), None], demands)
        self.assertEqual(1, METRICS.at_workload.value - before)
        packet = client.forwarder.packets[2][0]
        assert isinstance(packet, Publish)
        self.assertEqual((("a", "b"),), packet.properties.user)

    def test_malformed_nonce(self) -> None:
        """A malformed nonce refuses the message; the forwarder, which may have stored it before, sends that."""
        for qos in (0, 1, 2):
            client = Client()
            user = ((PROPERTY_NONCE, "short"),)
            client.send(Publish("t", b"", qos, packet_id=qos, properties=Properties(user=user)))
            self.assertEqual(([], 1), (client.forwarder.packets, len(client.refusals)))
            codes = [each.code for each in client.forwarder.refusals]
            self.assertEqual([ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR] * bool(qos), codes)

    def test_receive_maximum(self) -> None:
        """The client is told how many records it may have open; a lower bound of the buffer counts as well."""
        for limit, told in ((100, 100), (5000, 1024)):
            connack = Client(limit=limit).connack
            assert isinstance(connack, Connack)
            self.assertEqual(told, connack.properties.receive_maximum)


class AdmissionTests(SynchronousTestCase):
    """Records are admitted, refused, or later one of these."""

    def test_at_once(self) -> None:
        """An admission is known at once; a refusal is answered with its reason code, or closes MQTT 3.1.1."""
        client = Client()
        self.assertIs(Admission.ADMITTED, client.admit(message()))
        client.recorder.refuse = NotaryUnavailable()
        self.assertIs(Admission.REFUSED, client.admit(message(2, 2)))
        self.assertEqual([Acknowledgement(PUBREC, 2, NotaryUnavailable.mqtt_reason)], client.take())
        client.recorder.refuse = RecordTooLarge(size=2, limit=1, signatures=0)
        self.assertIs(Admission.REFUSED, client.admit(message(0, 0)))
        self.assertEqual(([], None), (client.take(), client.ended))
        # Of what might be accepted later the client has to know.
        client.recorder.refuse = NotaryRate(retry_after=1, what="too many")
        self.assertIs(Admission.REFUSED, client.admit(message(0, 0)))
        self.assertEqual(([Disconnect(ReasonCode.QUOTA_EXCEEDED)], "record"), (client.take(), client.ended))
        old = Client(Version.V311)
        old.recorder.refuse = NotaryUnavailable()
        self.assertIs(Admission.REFUSED, old.admit(message()))
        self.assertEqual(("record", [], [None]), (old.ended, old.take(), old.forwarder.left))

    def test_refused_while_stored(self) -> None:
        """A client whose stored message gets no record is closed without an acknowledgement."""
        client = Client()
        client.recorder.refuse = NotaryUnavailable()
        self.assertIs(Admission.REFUSED, client.admit(message(1, 2), stored=True))
        self.assertEqual(("record", [], [None]), (client.ended, client.take(), client.forwarder.left))
        self.assertIs(Admission.REFUSED, client.admit(message(2, 2)))

    def test_later(self) -> None:
        """Nothing of the client passes while an admission is due, nor its DISCONNECT; then the forwarder is told."""
        for refuse in (None, NotaryUnavailable()):
            client = Client()
            client.recorder.admissions = []
            self.assertIs(Admission.LATER, client.admit(message()))
            client.forwarder.waiting = True
            client.send(Pingreq(), message(2), Disconnect())
            self.assertEqual(([], True, None), (client.forwarder.packets, client.held, client.ended))
            client.recorder.admissions[0](refuse)
            self.assertEqual([refuse is None], client.forwarder.admissions)
            self.assertEqual(refuse is not None, bool(client.take()))
            client.forwarder.waiting = False
            client.session.read_on()
            self.assertEqual([Pingreq(), message(2)], [packet for packet, _demand in client.forwarder.packets])
            self.assertEqual(("client", [Disconnect()]), (client.ended, client.forwarder.left))

    def test_later_and_stored(self) -> None:
        """A late refusal closes the client of a stored message; its forwarder is told that it left."""
        client = Client()
        client.recorder.admissions = []
        client.admit(message(1, 2), stored=True)
        client.recorder.admissions[0](NotaryUnavailable())
        self.assertEqual(("record", [None], []), (client.ended, client.forwarder.left, client.forwarder.admissions))

    def test_identifier_in_use(self) -> None:
        """Another message under the identifier of one that is not acknowledged ends the session."""
        client = Client()
        client.admit(message())
        self.assertIs(Admission.REFUSED, client.admit(message(payload=b"2")))
        self.assertEqual("protocol", client.ended)
        self.assertEqual([Disconnect(ReasonCode.PROTOCOL_ERROR)], client.take())

    def test_too_many(self) -> None:
        """More open records than Receive Maximum end the session."""
        client = Client()

        def begin(*_arguments: object) -> None:
            raise ReceiveMaximumExceeded(limit=100)

        client.recorder.begin = begin  # type: ignore[assignment]
        self.assertIs(Admission.REFUSED, client.admit(message()))
        self.assertEqual([Disconnect(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)], client.take())

    def test_abandoned(self) -> None:
        """A message that the buffer refuses gives its record back, and its identifier is free."""
        client = Client()
        for qos in (0, 1, 2):
            packet = message(1, qos)
            client.admit(packet)
            client.session.abandon(packet)
            self.assertEqual(packet, client.recorder.abandoned[-1])
        self.assertIs(Admission.ADMITTED, client.admit(message(payload=b"2")))
        client.session.handed_over()
        self.assertEqual([], client.recorder.completed)

    def test_repeated_and_abandoned(self) -> None:
        """The record of a stored message is not given back for a repetition that the buffer refuses."""
        client = Client()
        repeated = replace(message(), dup=True)
        client.admit(message())
        client.admit(repeated)
        client.session.abandon(repeated)
        self.assertEqual([], client.recorder.abandoned)
        client.acknowledge(Acknowledgement(PUBACK, 1))
        client.written()
        self.assertEqual([(PUBACK, 1, "receipt")], receipts(client.take()))


class AcknowledgementTests(SynchronousTestCase):
    """PUBACK and PUBREC behind their records."""

    def test_in_order(self) -> None:
        """Each type is sent in its order, recorded or not, and only the recorded ones are reported."""
        client = Client()
        for packet_id in (1, 2):
            client.admit(message(packet_id))
        client.admit(message(3, 2))
        for packet_id, recorded in ((1, True), (9, False), (2, True)):
            client.acknowledge(Acknowledgement(PUBACK, packet_id), recorded=recorded)
        client.session.acknowledge(Acknowledgement(PUBREC, 3), "upstream", "", recorded=True)
        self.assertTrue(client.session.recording)
        client.written(1)
        client.written(1, "of PUBREC")
        self.assertEqual([(PUBREC, 3, "of PUBREC")], receipts(client.take()))
        client.written(0, None)
        self.assertEqual([(PUBACK, 1, None), (PUBACK, 9, None), (PUBACK, 2, "receipt")], receipts(client.take()))
        self.assertFalse(client.session.recording)
        self.assertEqual([AckedBy.MIDDLEWARE, AckedBy.MIDDLEWARE, AckedBy.UPSTREAM], client.recorder.acked_by)
        told = {(each.packet_id, source, receipt) for each, source, receipt in client.forwarder.acknowledgements}
        self.assertEqual({(1, "middleware", ""), (2, "middleware", "receipt"), (3, "upstream", "of PUBREC")}, told)

    def test_earlier_receipt(self) -> None:
        """A repeated message is acknowledged with the receipt that it has, without another record."""
        client = Client()
        client.acknowledge(Acknowledgement(PUBREC, 1), "earlier", recorded=False)
        self.assertEqual([(PUBREC, 1, "earlier")], receipts(client.take()))
        self.assertEqual(([], []), (client.recorder.completed, client.forwarder.acknowledgements))

    def test_maximum_packet_size(self) -> None:
        """A client with small packets gets its acknowledgement without the receipt."""
        client = Client(maximum_packet_size=20)
        client.admit(message())
        client.acknowledge(Acknowledgement(PUBACK, 1))
        client.written()
        self.assertEqual([(PUBACK, 1, None)], receipts(client.take()))

    def test_record_that_fails(self) -> None:
        """Without its record a message is not acknowledged: the client is closed, and its will published."""
        client = Client()
        client.admit(message())
        client.acknowledge(Acknowledgement(PUBACK, 1))
        client.written(0, Failure(NotaryUnavailable()))
        self.assertEqual(("record", [], [None]), (client.ended, client.take(), client.forwarder.left))
        self.assertEqual([], client.forwarder.acknowledgements)
        self.assertIs(ExchangeOutcome.SERVER_ABORTED, client.recorder.outcome)

    def test_qos_0(self) -> None:
        """Messages with QoS 0 are recorded when they were handed over."""
        client = Client()
        client.admit(message(0, 0))
        self.assertEqual([], client.recorder.completed)
        client.session.handed_over()
        self.assertEqual([(message(0, 0), None)], client.recorder.completed)

    def test_full(self) -> None:
        """A client of MQTT 3.1.1 is held before a message beyond the limit, and not before PUBREL."""
        client = Client(Version.V311, limit=2)
        for packet_id in (1, 2):
            client.admit(message(packet_id))
            client.acknowledge(Acknowledgement(PUBACK, packet_id))
        client.send(Acknowledgement(PUBREL, 7), message(3), message(4))
        self.assertEqual([7], client.recorder.released)
        self.assertEqual((1, True), (len(client.forwarder.packets), client.held))
        client.written()
        self.assertEqual((3, False), (len(client.forwarder.packets), client.held))

    def test_end(self) -> None:
        """What is open when the client leaves waits for its repetition; nothing is sent for it any more."""
        client = Client()
        client.admit(message())
        client.acknowledge(Acknowledgement(PUBACK, 1))
        client.session.client_lost()
        self.assertIs(ExchangeOutcome.CLIENT_ABORTED, client.recorder.outcome)
        client.written()
        self.assertEqual([], client.take())
