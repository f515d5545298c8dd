"""
What brokers do with packets that break the standard: every row of the codec's tables of normative statements.

An outcome is how the connection ends: ``DISCONNECT 0x81``, ``CONNACK 0x01``, ``closed`` without a word, or ``goes on``.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from svc.wire.mqtt import Disconnect, Packet, Version
from tests.peers.mqttclient import RawClient
from tests.wire.mqtt import statements5, statements311
from tests.wire.mqtt.rows import Statement


def broken() -> Iterator[tuple[Statement, bytes]]:
    """Give each packet of a client that breaks a statement."""
    for statement in (*statements311.statements(), *statements5.statements()):
        if statement.sender == "client":
            for octets, _ in statement.breaks:
                yield statement, octets


def outcome(port: int, statement: Statement, octets: bytes) -> str:
    """
    Send a packet that breaks a statement, in the state that the statement is about.

    Args:
        port: the broker's.
        statement: the statement.
        octets: the packet.

    Returns:
        What came of it.
    """
    if statement.opens:
        return _opening(port, octets)
    with RawClient(port, Version(statement.version)) as client:
        client.connect("broken")
        client.octets(octets)
        return _end(client.sync(), client.ended)


def _opening(port: int, octets: bytes) -> str:
    """Read what comes by hand: a client of no version gets an answer in the form of any version."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(octets)
        data = b""
        with suppress(ConnectionResetError):
            while chunk := connection.recv(1000):
                data += chunk
                if data[:1] == b"\x20" and len(data) > 3 and not data[3]:
                    return "goes on"
    return f"CONNACK 0x{data[3]:02x}" if data[:1] == b"\x20" else "closed" if not data else f"answers {data.hex()}"


def _end(came: list[Packet], ended: bool) -> str:
    if not ended:
        return "goes on"
    last = came[-1] if came else None
    return f"DISCONNECT 0x{last.code:02x}" if isinstance(last, Disconnect) else "closed"


def outcomes(port: int) -> dict[tuple[int, str], Counter[str]]:
    """
    Try all packets at a broker.

    Args:
        port: the broker's.

    Returns:
        By version and statement, how often which outcome came.
    """
    found: dict[tuple[int, str], Counter[str]] = {}
    for statement, octets in broken():
        found.setdefault((statement.version, statement.number), Counter())[outcome(port, statement, octets)] += 1
    return found
