"""
A client that keeps its side of the standard over any number of connections, without a socket.

The user transports packets: :meth:`ConformingClient.connect` gives the first one of a connection, :meth:`receive`
takes what the broker sends and gives what is answered. It notes what was acknowledged to it and what was delivered to
its application, so that a test can compare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    PacketType,
    Properties,
    Publish,
    QoS,
    Suback,
    Subscribe,
    Subscription,
    Version,
)

LAST_IDENTIFIER: Final = 65_535


class ConformingClient:
    """
    One client with a session that lasts.

    Args:
        client_id: the client identifier.
        version: the version of MQTT.
        expiry: seconds that its session outlives a connection (MQTT 5.0; the broker's limit in 3.1.1).

    Attributes:
        acknowledged: payloads that the broker has taken over, by PUBACK or PUBREC.
        refused: payloads that it did not take.
        sent_again: payloads that were sent on more than one connection.
        delivered: payloads that its application got, with their QoS, in order.
        subscribed: filters that the broker has granted.
        connected: whether CONNACK has come.
        broken: what the broker did against the standard.
    """

    def __init__(self, client_id: str, version: Version = Version.V5, expiry: int = 3600) -> None:
        self.client_id = client_id
        self.version = version
        self.expiry = expiry
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.sent_again: set[bytes] = set()
        self.delivered: list[tuple[bytes, int]] = []
        self.subscribed: set[str] = set()
        self.connected = False
        self._tries = 0
        self._admissions = 0
        self.broken: list[str] = []
        # What was sent and not completed: PUBLISH, or PUBREL once PUBREC has come.
        self.unfinished: dict[int, Publish | Acknowledgement] = {}
        # The filters that wait for SUBACK.
        self._asked: dict[int, list[str]] = {}
        self._received: set[int] = set()
        self._last_id = 0

    # What it says.

    def connect(self, **more: Any) -> Packet:
        """
        Begin a connection.

        Args:
            more: further members of CONNECT.

        Returns:
            CONNECT.
        """
        self.connected = False
        self._tries += 1
        self._asked.clear()
        properties = Properties(session_expiry=self.expiry) if self.version is Version.V5 else Properties()
        return Connect(self.client_id, self.version, False, properties=properties, **more)

    def lost(self) -> None:
        """The connection is gone."""
        self.connected = False

    def publish(self, topic: str, payload: bytes, qos: QoS, *, retain: bool = False) -> Packet:
        """
        Publish a message.

        Args:
            topic: its topic.
            payload: unlike that of any other message.
            qos: its quality of service.
            retain: whether it is to be retained.

        Returns:
            PUBLISH; with QoS above 0 it is sent again on later connections until it is finished.
        """
        if not qos:
            return Publish(topic, payload, retain=retain)
        packet = Publish(topic, payload, qos, retain, packet_id=self._free_identifier())
        self.unfinished[packet.packet_id] = packet
        return packet

    def subscribe(self, *subscriptions: Subscription) -> Packet:
        """
        Subscribe.

        Args:
            subscriptions: to what.

        Returns:
            SUBSCRIBE.
        """
        identifier = self._free_identifier()
        self._asked[identifier] = [each.filter for each in subscriptions]
        return Subscribe(identifier, list(subscriptions))

    def _free_identifier(self) -> int:
        while True:
            self._last_id = self._last_id % LAST_IDENTIFIER + 1
            if self._last_id not in self.unfinished and self._last_id not in self._asked:
                return self._last_id

    # Received packets.

    def receive(self, packet: Packet) -> list[Packet]:
        """
        Take a packet of the broker.

        Args:
            packet: the packet.

        Returns:
            What is answered.
        """
        if isinstance(packet, Connack):
            return self._admitted(packet)
        if isinstance(packet, Publish):
            return self._message(packet)
        if isinstance(packet, Suback):
            asked = self._asked.pop(packet.packet_id, [])
            self.subscribed.update(each for each, code in zip(asked, packet.codes, strict=True) if code < 0x80)
        if isinstance(packet, Acknowledgement):
            return self._answered(packet)
        return []

    def _admitted(self, packet: Connack) -> list[Packet]:
        if packet.code:
            return []
        self.connected = True
        # An earlier CONNACK may be lost, but the session that it announced must exist once it arrived.
        if packet.session_present if self._tries == 1 else (self._admissions and not packet.session_present):
            self.broken.append(f"session present: {packet.session_present}")
        self._admissions += 1
        self.sent_again.update(each.payload for each in self.unfinished.values() if isinstance(each, Publish))
        # In their order, with their identifiers (section 4.4).
        return [replace(each, dup=True) if isinstance(each, Publish) else each for each in self.unfinished.values()]

    def _message(self, packet: Publish) -> list[Packet]:
        if packet.qos == 2:
            if packet.packet_id not in self._received:
                self._received.add(packet.packet_id)
                self.delivered.append((packet.payload, 2))
            return [Acknowledgement(PacketType.PUBREC, packet.packet_id)]
        self.delivered.append((packet.payload, packet.qos))
        return [Acknowledgement(PacketType.PUBACK, packet.packet_id)] if packet.qos else []

    def _answered(self, packet: Acknowledgement) -> list[Packet]:
        identifier = packet.packet_id
        if packet.type is PacketType.PUBREL:
            self._received.discard(identifier)
            return [Acknowledgement(PacketType.PUBCOMP, identifier)]
        sent = self.unfinished.get(identifier)
        if packet.type is PacketType.PUBCOMP:
            self.unfinished.pop(identifier, None)
            return []
        if not isinstance(sent, Publish):
            if packet.type is PacketType.PUBREC:
                return [Acknowledgement(PacketType.PUBREL, identifier)]
            self.broken.append(f"{packet.type.name} for what was not sent")
            return []
        if packet.code >= 0x80:
            del self.unfinished[identifier]
            self.refused.append(sent.payload)
            return []
        self.acknowledged.append(sent.payload)
        if packet.type is PacketType.PUBACK:
            del self.unfinished[identifier]
            return []
        release = Acknowledgement(PacketType.PUBREL, identifier)
        self.unfinished[identifier] = release
        return [release]
