"""
Load that never stops and forgives nothing: connections kept alive and new ones, each request with a name of its own.

Runs on the reactor of the test. The application must repeat ``X-Request-Id``; a wrong one, a wrong body or anything but
a whole 200 is a failure. A connection that the server closes before a request was written is none; one that is closed
afterwards is, with one exception that clients handle (RFC 9112, section 9.3.1): a kept connection may end just when the
next request is written. Such a request is sent once more and counted as ``raced``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure


class RequestLost(Exception):
    """The connection ended before the answer was whole."""


class Channel(Protocol):
    """One connection of the load, one request at a time."""

    def __init__(self) -> None:
        self.lost = False
        self.closing = False
        self.served = 0
        self._buffer = b""
        self._waiting: Deferred[tuple[int, dict[str, str], bytes]] | None = None
        self.begun = False

    def request(self, data: bytes) -> Deferred[tuple[int, dict[str, str], bytes]]:
        """
        Send a request.

        Args:
            data: its octets.

        Returns:
            Fires with status, fields and body, or fails with ``RequestLost``.
        """
        waiting: Deferred[tuple[int, dict[str, str], bytes]] = Deferred()
        self._waiting, self.begun = waiting, False
        self.transport.write(data)
        return waiting

    def dataReceived(self, data: bytes) -> None:
        """Octets of an answer."""
        self.begun = True
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        start, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(fields.get("content-length", "0"))
        if len(body) < length:
            return
        self._buffer = body[length:]
        self.served += 1
        self.closing = fields.get("connection", "").lower() == "close"
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback((int(start.split(" ")[1]), fields, body[:length]))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The end."""
        self.lost = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(RequestLost(str(reason.value)))

    def close(self) -> None:
        """End it."""
        if not self.lost and self.transport is not None:
            self.transport.loseConnection()


class Load:
    """
    Clients of one server.

    Args:
        endpoint: gives an endpoint to connect with; asked for each connection.
        reactor: the reactor.
        label: part of the names of requests.
        level: the notarization level asked for, or nothing.
        pause: seconds between two requests of one client.

    Attributes:
        good: requests that were answered as they must.
        raced: requests that met the end of a kept connection and were sent again.
        connections: connections that were made.
        statements: the statement identifiers seen, with their number.
        failures: what went wrong, in words.
    """

    def __init__(
        self,
        endpoint: Callable[[], IStreamClientEndpoint],
        reactor: Any,
        *,
        label: str,
        level: str = "",
        pause: float = 0.01,
    ) -> None:
        self._endpoint = endpoint
        self._reactor: IReactorTime = reactor
        self._label = label
        self._level = f"Svc-Notarization-Level: {level}\r\n" if level else ""
        self._pause = pause
        self._running = False
        self._workers: list[Deferred[None]] = []
        self._number = 0
        self.good = self.raced = self.connections = 0
        self.statements: Counter[str] = Counter()
        self.failures: list[str] = []

    def start(self, *, kept: int, fresh: int) -> None:
        """
        Begin.

        Args:
            kept: clients that keep their connection as long as the server does.
            fresh: clients that connect for each request.
        """
        self._running = True
        workers = [self._client(keep=True) for _ in range(kept)] + [self._client(keep=False) for _ in range(fresh)]
        self._workers = [Deferred.fromCoroutine(each) for each in workers]

    def stop(self) -> Deferred[Any]:
        """
        End after the requests that run.

        Returns:
            Fires when all are answered.
        """
        self._running = False
        return gatherResults(self._workers)

    async def _client(self, *, keep: bool) -> None:
        channel: Channel | None = None
        while self._running:
            name = f"{self._label}-{self._number}"
            self._number += 1
            try:
                channel = await self._one(name, channel)
            except Exception as error:  # noqa: BLE001 (whatever it was, the request failed)
                channel = None
                self.failures.append(f"{name}: {type(error).__name__}: {error}")
            if channel is not None and (not keep or channel.closing):
                channel.close()
                channel = None
            await deferLater(self._reactor, self._pause)
        if channel is not None:
            channel.close()

    async def _one(self, name: str, channel: Channel | None) -> Channel:
        if channel is None or channel.lost:
            channel = await self._connect()
        try:
            await self._exchange(name, channel)
        except RequestLost:
            if channel.served == 0 or channel.begun:
                raise
            self.raced += 1
            channel = await self._connect()
            await self._exchange(name, channel)
        return channel

    async def _connect(self) -> Channel:
        self.connections += 1
        channel: Channel = await self._endpoint().connect(Factory.forProtocol(Channel))  # type: ignore[assignment]
        return channel

    async def _exchange(self, name: str, channel: Channel) -> None:
        size = len(name) * 37 % 700
        request = f"GET /bytes/{size} HTTP/1.1\r\nHost: load\r\nX-Request-Id: {name}\r\n{self._level}\r\n"
        status, fields, body = await channel.request(request.encode())
        if (status, fields.get("x-request-id"), len(body)) != (200, name, size):
            raise AssertionError(f"{status} {fields.get('x-request-id')} {len(body)} of {size} octets: {body[:120]!r}")
        self.good += 1
        if "svc-workload-id" in fields:
            self.statements[fields["svc-workload-id"]] += 1
