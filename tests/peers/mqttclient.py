"""
A blocking MQTT client on the codec that sends nothing by itself: the test writes every response.

What came by a certain moment is known without waiting: :meth:`RawClient.sync` sends PINGREQ, and whatever a broker had
for the client before it read that is before PINGRESP.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Decoder,
    Packet,
    PacketRefused,
    PacketType,
    Pingreq,
    Pingresp,
    Publish,
    Version,
    encode,
)


class BrokerAstray(AssertionError):
    """The broker sent something else than it had to."""


class RawClient:
    """
    One connection of a client.

    Args:
        port: the broker's, on loopback.
        version: the version of MQTT on both sides.
        tls: wraps the socket; a plain connection without it.
        seconds: the longest wait for anything.

    Attributes:
        ended: whether the broker has closed the connection.
    """

    def __init__(self, port: int, version: Version = Version.V5, *, tls: Any = None, seconds: float = 60.0) -> None:
        self.version = version
        self.ended = False
        self._seconds = seconds
        self._decoder = Decoder("server", version)
        self._came: list[Packet] = []
        plain = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls(plain)

    # What is sent.

    def octets(self, data: bytes) -> None:
        """
        Send octets; a connection that the broker closed meanwhile is not an error here.

        Args:
            data: the octets.
        """
        try:
            self._socket.sendall(data)
        except OSError:
            # What was sent before the end can still be read, and so can the end.
            return

    def send(self, *packets: Packet) -> None:
        """
        Send packets in one piece.

        Args:
            packets: the packets.
        """
        self.octets(b"".join(encode(each, self.version, "client") for each in packets))

    def connect(self, client_id: str, **more: Any) -> Connack:
        """
        Send CONNECT and take the answer.

        Args:
            client_id: the client identifier.
            more: further members of :class:`Connect`.

        Returns:
            CONNACK.
        """
        self.send(Connect(client_id, self.version, **more))
        answer = self.receive()
        if not isinstance(answer, Connack):
            raise BrokerAstray(f"no CONNACK but {answer}")
        return answer

    def acknowledge(self, packets: list[Packet]) -> None:
        """
        Answer the messages among packets, QoS 2 with all its packets.

        Args:
            packets: what came.
        """
        for each in packets:
            if isinstance(each, Publish) and each.qos == 1:
                self.send(Acknowledgement(PacketType.PUBACK, each.packet_id))
            elif isinstance(each, Publish) and each.qos == 2:
                self.send(Acknowledgement(PacketType.PUBREC, each.packet_id))
            elif each.type is PacketType.PUBREL:
                self.send(Acknowledgement(PacketType.PUBCOMP, each.packet_id))

    # What comes.

    def receive(self, seconds: float | None = None) -> Packet | None:
        """
        Take the next packet.

        Args:
            seconds: the longest wait; that of the client by default.

        Returns:
            The packet, or None where the connection has ended.

        Raises:
            TimeoutError: nothing came in time.
        """
        deadline = time.monotonic() + (self._seconds if seconds is None else seconds)
        while not self._came:
            if self.ended:
                return None
            self._read(deadline - time.monotonic())
        return self._came.pop(0)

    def sync(self) -> list[Packet]:
        """
        Take all that the broker had for this client before it read a PINGREQ that is sent now.

        Returns:
            The packets; :attr:`ended` is true where the connection ended instead.
        """
        self.send(Pingreq())
        came: list[Packet] = []
        while (packet := self.receive()) is not None and not isinstance(packet, Pingresp):
            came.append(packet)
        return came

    def until_end(self, seconds: float | None = None) -> list[Packet]:
        """
        Take all that comes until the broker closes the connection.

        Args:
            seconds: the longest wait for each packet; that of the client by default.

        Returns:
            The packets.
        """
        came: list[Packet] = []
        while (packet := self.receive(seconds)) is not None:
            came.append(packet)
        return came

    def _read(self, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError("nothing came from the broker")
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            self.ended = True
        for event in self._decoder.feed(data):
            if isinstance(event, PacketRefused):
                raise BrokerAstray(f"the broker sent what is no MQTT: {event.error}")
            self._came.append(event)

    def close(self) -> None:
        """Close the connection without a word."""
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
