"""
Honest clients on real sockets, all in one thread, that connect again whenever their broker is gone.

::

    swarm = ReconnectingClients(port, [ConformingClient("p"), ConformingClient("s")])
    swarm.go_on(0.2)                 # 0.2 s of whatever packets come and are answered
    swarm.says("p", swarm["p"].publish("t", b"m", 2))
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

from svc.wire.mqtt import Decoder, Packet, PacketRefused, encode
from tests.peers.conforming_client import ConformingClient

#: Seconds between two attempts to connect.
AGAIN = 0.01


class _Wire:
    """One connection of one client."""

    def __init__(self, client: ConformingClient, port: int, tls: Any) -> None:
        self.client = client
        plain = socket.create_connection(("127.0.0.1", port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket: Any = plain
        if tls is not None:
            try:
                self.socket = tls(plain)
            except OSError:
                plain.close()
                raise
        self._decoder = Decoder("server", client.version)
        self.says([client.connect()])

    def says(self, packets: Iterable[Packet]) -> None:
        """Send packets; what a connection that has ended does not take is sent on the next one."""
        octets = b"".join(encode(each, self.client.version, "client") for each in packets)
        try:
            self.socket.sendall(octets)
        except OSError:
            return

    def _decrypted(self) -> bytes:
        self.socket.settimeout(0)
        try:
            data: bytes = self.socket.recv(65536)
            while self.socket.pending():
                data += self.socket.recv(65536)
        finally:
            self.socket.settimeout(60)
        return data

    def receive(self) -> bool:
        """Read and answer; give whether the connection is still there."""
        try:
            data = self.socket.recv(65536) if not isinstance(self.socket, ssl.SSLSocket) else self._decrypted()
        except ssl.SSLWantReadError:
            # Records without octets of the application.
            return True
        except OSError:
            data = b""
        answers: list[Packet] = []
        for event in self._decoder.feed(data):
            assert not isinstance(event, PacketRefused), f"the broker sent what is no MQTT: {event.error}"
            answers += self.client.receive(event)
        if answers:
            self.says(answers)
        return bool(data)


class ReconnectingClients:
    """
    Some clients of one broker.

    Args:
        port: the broker's, on loopback.
        clients: who they are.
        tls: wraps a socket; plain connections without it.
    """

    def __init__(self, port: int, clients: Iterable[ConformingClient], *, tls: Any = None) -> None:
        self._tls = tls
        self.clients = {each.client_id: each for each in clients}
        self._port = port
        self._wires: dict[str, _Wire] = {}
        self._selector = selectors.DefaultSelector()
        self._next = 0.0

    def __getitem__(self, client_id: str) -> ConformingClient:
        return self.clients[client_id]

    def says(self, client_id: str, *packets: Packet) -> None:
        """
        Send packets of a client.

        Args:
            client_id: who.
            packets: what.
        """
        wire = self._wires.get(client_id)
        if wire is not None:
            wire.says(packets)

    def go_on(self, seconds: float, until: Callable[[], Any] = lambda: False) -> bool:
        """
        Read and answer, and connect the clients that are not connected.

        Args:
            seconds: for how long.
            until: ends it sooner when it gives something true.

        Returns:
            Whether ``until`` did.
        """
        end = time.monotonic() + seconds
        while not until():
            now = time.monotonic()
            if now >= end:
                return False
            self._connect(now)
            self._receive(min(AGAIN, end - now))
        return True

    def drain(self) -> None:
        """Read what a broker that has ended had still sent, until every connection is closed."""
        while self._wires:
            self._receive(1.0)

    def close(self) -> None:
        """End all connections without a word."""
        for client_id in list(self._wires):
            self._drop(client_id)

    def _connect(self, now: float) -> None:
        if now < self._next or len(self._wires) == len(self.clients):
            return
        for client_id, client in self.clients.items():
            if client_id in self._wires:
                continue
            try:
                wire = _Wire(client, self._port, self._tls)
            except OSError:
                self._next = now + AGAIN
                return
            self._wires[client_id] = wire
            self._selector.register(wire.socket, selectors.EVENT_READ, client_id)

    def _receive(self, seconds: float) -> None:
        if not self._wires:
            time.sleep(seconds)
            return
        for key, _events in self._selector.select(seconds):
            if not self._wires[key.data].receive():
                self._drop(key.data)

    def _drop(self, client_id: str) -> None:
        wire = self._wires.pop(client_id)
        self._selector.unregister(wire.socket)
        wire.socket.close()
        wire.client.lost()
