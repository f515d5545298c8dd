"""A buffer on a real database, whose threads the test runs step by step and can crash."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.proxy.mqtt.stored.buffer.records import BufferedMessage, BufferedSession, LoadedSession, SessionKey
from svc.proxy.mqtt.stored.buffer.store import MessageBuffer
from svc.wire.mqtt import NO_PROPERTIES, Connect, Properties, QoS
from tests.sqlite.stepwise import HandReactor, HandThread, Notes, quick_connect

T = TypeVar("T")
NOW = 1_795_220_731.0
OWNER = "spiffe://example.org/device"


def message(
    payload: bytes = b"m",
    qos: QoS = 1,
    *,
    topic: str = "t",
    packet_id: int = 1,
    relayed: bool = False,
    retain: bool = False,
    properties: Properties = NO_PROPERTIES,
) -> BufferedMessage:
    """Create a message that is not stored yet."""
    return BufferedMessage(topic, payload, qos, retain, properties, packet_id if qos else 0, relayed, NOW)


def session(client_id: str = "c", connect: Connect | None = None, *, owner: str = OWNER) -> BufferedSession:
    """Create a session that is not stored yet."""
    return BufferedSession(SessionKey("iot", client_id, owner), connect or Connect(client_id))


class OpenedBuffer:
    """A database and the buffer on it; ``more`` are further arguments of the buffer."""

    def __init__(self, folder: str, **more: Any) -> None:
        self.path = os.path.join(os.path.abspath(folder), "buffer", "buffer.db")
        self.more: dict[str, Any] = {"reserve_size": 0, "connect": quick_connect, **more}
        self.notes = Notes()
        self.reactor = HandReactor()
        self.threads: dict[str, HandThread] = {}
        self.buffer: MessageBuffer

    def begin(self) -> list[LoadedSession]:
        """Open the database; return its sessions."""
        return self.result(self.opening())

    def opening(self) -> Deferred[list[LoadedSession]]:
        """Begin to open the database."""
        return self.make().open()

    def make(self) -> MessageBuffer:
        """Make the buffer."""

        def start(name: str, work: Callable[..., None], finish: Callable[[], None]) -> HandThread:
            self.threads[name] = HandThread(name, work, finish)
            return self.threads[name]

        self.reactor = HandReactor()
        self.threads.clear()
        self.buffer = MessageBuffer(
            self.path, reactor=self.reactor, observer=self.notes, start_thread=start, **self.more
        )
        return self.buffer

    def step(self) -> None:
        """End the turn of the reactor, and let the threads work."""
        self.reactor.advance(0)
        for thread in list(self.threads.values()):
            thread.run()
        self.reactor.deliver()

    def settle(self) -> None:
        """Work until nothing waits."""
        for _turn in range(4):
            self.step()

    def result(self, deferred: Deferred[T]) -> T:
        """The result of a Deferred, while the threads work."""
        results: list[T] = []
        failures: list[Failure] = []
        deferred.addCallbacks(results.append, failures.append)
        for _turn in range(6):
            self.step()
        for failure in failures:
            failure.raiseException()
        [result] = results
        return result

    def crash(self) -> None:
        """End as kill -9 does: what is not written is lost, what is written is there even if not reported."""
        buffer, groups = self.buffer, self.buffer._groups
        buffer._reader.disconnect()
        if groups is not None:
            groups._writer._disconnect()
        buffer._file.close()
        for thread in self.threads.values():
            thread.tasks.clear()
        self.reactor.from_thread.clear()

    def close(self) -> None:
        """Close in order."""
        self.result(self.buffer.close())

    def rows(self, table: str) -> int:
        """Count rows."""
        connection = sqlite3.connect(self.path)
        try:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        finally:
            connection.close()
        return int(count)
