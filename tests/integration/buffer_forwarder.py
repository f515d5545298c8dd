"""
A process with the real buffer and forwarder; client and broker are on its standard streams. Run with ``python -m``.

``PATH STEP COUNT``: it kills itself when the named step happens for that time; the step ``-`` never happens. Lines are
pickled pairs of a word and a value in base64.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sqlite3
import sys
import time
from typing import Any

from twisted.internet import reactor, stdio
from twisted.internet.defer import Deferred
from twisted.protocols.basic import LineOnlyReceiver

from svc.proxy.mqtt.stored.buffer.records import BufferedMessage, BufferedSession, LoadedSession, SessionKey
from svc.proxy.mqtt.stored.buffer.store import MessageBuffer
from svc.proxy.mqtt.stored.forwarding import Forwarder, ForwarderLimits, Moment
from svc.sqlite.connection import BUSY_SECONDS
from svc.wire.mqtt import Acknowledgement, Connect, Packet, Publish
from tests.proxy.mqtt.stored.forwarding_model import CLIENT_ID, RELAYED, Notes

#: Where it may be killed: around each transaction, and around each packet that it sends.
STEPS = [
    *("before COMMIT", "after COMMIT", "before PUBLISH", "after PUBLISH", "before PUBREL", "after PUBREL"),
    *("before PUBACK", "after PUBACK", "before PUBREC", "after PUBREC", "before PUBCOMP", "after PUBCOMP"),
]


class Killer:
    """Kills the process at one step."""

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._left = count

    def at(self, step: str) -> None:
        """A step happens."""
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)


def dump(word: str, value: Any = None) -> bytes:
    """Write a line."""
    return base64.b64encode(pickle.dumps((word, value)))


def load(line: bytes) -> tuple[str, Any]:
    """Read a line."""
    word, value = pickle.loads(base64.b64decode(line))
    return word, value


def now() -> Moment:
    """The time."""
    return Moment(time.monotonic(), time.time())


class Process(LineOnlyReceiver):
    """The buffer, one forwarder, and its links."""

    delimiter = b"\n"
    MAX_LENGTH = 2**20

    def __init__(self, path: str, killer: Killer) -> None:
        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, *arguments)
                killer.at("before COMMIT")
                done = super().execute(sql)
                killer.at("after COMMIT")
                return done

        def connect(place: str) -> sqlite3.Connection:
            return sqlite3.connect(
                place, BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=Connection
            )

        self.killer = killer
        self.buffer = MessageBuffer(path, reactor=reactor, connect=connect, reserve_size=0)  # type: ignore[arg-type]
        self.forwarder: Forwarder
        self.waking: Any = None
        #: What the client has sent while something was outstanding.
        self.unhandled: list[Packet] = []

    def connectionMade(self) -> None:
        """Open the buffer."""
        self.buffer.open().addCallbacks(self.opened, lambda failure: failure.printTraceback(sys.stderr))

    def opened(self, sessions: list[LoadedSession]) -> None:
        """Begin, with the session that is there."""
        new = BufferedSession(SessionKey("iot", CLIENT_ID, "owner"), Connect(CLIENT_ID))
        [loaded] = sessions or [LoadedSession(new)]
        limits = ForwarderLimits(in_flight=8)
        self.forwarder = Forwarder(
            loaded,
            self.buffer,
            self,  # type: ignore[arg-type]
            Notes(),
            limits,
            relays=lambda topic: topic.startswith(RELAYED),
            random=lambda: 0.0,
        )
        if sessions:
            self.forwarder.start(now())
        self.tell("opened")

    def lineReceived(self, line: bytes) -> None:
        """Something happened to the client or the broker."""
        word, value = load(line)
        if word == "queued":
            self.tell("queued", self.forwarder.queued)
        elif word == "client_packet":
            self.unhandled.append(value)
            self.handle()
        else:
            getattr(self.forwarder, word)(value, now())

    def connectionLost(self, reason: Any = None) -> None:
        """The test has ended."""
        if reactor.running:
            reactor.stop()

    def tell(self, word: str, value: Any = None) -> None:
        """Tell the test."""
        # At once, so that a kill comes after it.
        os.write(1, dump(word, value) + b"\n")

    def handle(self) -> None:
        """Handle what the client has sent, until something is outstanding."""
        while self.unhandled and not self.forwarder.waiting:
            self.forwarder.client_packet(self.unhandled.pop(0), now())

    # The links.

    def hold_client(self) -> None:
        """The client is on a pipe, and read on."""

    def resume_client(self) -> None:
        reactor.callLater(0, self.resumed)

    def resumed(self) -> None:
        """In a turn of its own."""
        self.forwarder.resume_client(now())
        self.handle()

    def connect_upstream(self, connect: Connect) -> None:
        self.tell("connect", connect)

    def send_upstream(self, packet: Packet) -> None:
        name = packet.type.name if isinstance(packet, (Publish, Acknowledgement)) else ""
        self.killer.at(f"before {name}")
        self.tell("broker", packet)
        self.killer.at(f"after {name}")

    def close_upstream(self, last: Any) -> None:
        self.tell("close broker", last)

    def send_client(self, packet: Packet) -> None:
        name = packet.type.name if isinstance(packet, Acknowledgement) else ""
        self.killer.at(f"before {name}")
        self.tell("client", packet)
        self.killer.at(f"after {name}")

    def acknowledge(self, packet: Acknowledgement, source: str, receipt: str, *, recorded: bool) -> None:
        self.send_client(packet)

    def close_client(self, last: Any, error: Any = None) -> None:
        self.tell("close client", last)

    def read_page(self, after: int) -> None:
        page: Deferred[list[BufferedMessage]] = self.buffer.page(self.forwarder.session, after, 5)
        page.addCallbacks(
            lambda messages: self.forwarder.got_page(messages, now()),
            lambda _failure: self.forwarder.page_failed(now()),
        )

    def wake_at(self, seconds: float | None) -> None:
        if self.waking is not None and self.waking.active():
            self.waking.cancel()
        if seconds is not None:
            delay = max(0.0, seconds - time.monotonic())
            self.waking = reactor.callLater(delay, lambda: self.forwarder.wake(now()))

    def ended(self) -> None:
        self.tell("ended")


def main() -> None:
    """Run until the standard input ends."""
    path, step, count = sys.argv[1:]
    stdio.StandardIO(Process(path, Killer(step, int(count))))
    os.set_blocking(1, True)
    reactor.run()


if __name__ == "__main__":
    main()
