"""
The one connection of an exchange and its artefacts, and when it may be opened again.

An exchange uses one connection. Where the server ends it in order (``Connection: close``, as at 80 % of the life of its
credentials), an artefact may be fetched on a new one, to the same address and to no other identity than the one that
answered. Its key may be another one after a rotation: what is fetched there is judged against the connection of the
exchange, by its identifier and its signatures, never against the connection that brought it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from svc.cli.exchange.channel import Answer, HttpChannel, Sink
from svc.cli.exchange.errors import ConnectionLost
from svc.cli.exchange.request import Request, artifact_request
from svc.notary.envelope import MAX_ENVELOPE
from svc.notary.errors import TooLarge
from svc.wire.http1 import ResponseHead

if TYPE_CHECKING:
    from svc.transport.evidence import PeerEvidence

#: How often one artefact is asked for where an idle connection turns out to be gone.
_TRIES: Final = 2


@dataclass(frozen=True, slots=True)
class Connected:
    """
    An open connection.

    Args:
        channel: carries requests.
        peer: who is at the other end; None without TLS.
    """

    channel: HttpChannel
    peer: PeerEvidence | None


class Dialer(Protocol):
    """Opens connections to one server."""

    async def dial(self, before: Connected | None) -> Connected:
        """
        Open a connection.

        Args:
            before: the connection that this one follows; the peer must then have the same identity.
        """


@dataclass(frozen=True, slots=True)
class Fetched:
    """
    The whole answer to a small request.

    Args:
        head: its head.
        body: its body.
    """

    head: ResponseHead
    body: bytes


class _SmallBody:
    """Collects the body of an artefact, up to what an envelope may have."""

    def __init__(self) -> None:
        self.body = bytearray()

    def got_head(self, head: ResponseHead) -> None:
        """Nothing to keep."""

    def got_body(self, data: bytes) -> None:
        """Keep a piece."""
        self.body += data
        if len(self.body) > MAX_ENVELOPE:
            raise TooLarge(size=len(self.body), limit=MAX_ENVELOPE)


class Line:
    """
    Carries one exchange, then requests for its artefacts.

    Args:
        dialer: opens the connection.
        request: the request of the exchange.
    """

    def __init__(self, dialer: Dialer, request: Request) -> None:
        self._dialer = dialer
        self._request = request
        self._now: Connected | None = None
        self._first: Connected | None = None

    @property
    def peer(self) -> PeerEvidence | None:
        """The other end of the exchange, whatever connection is open now."""
        return None if self._first is None else self._first.peer

    async def open(self) -> None:
        """Open the connection of the exchange; raises what the dialer raises."""
        self._first = self._now = await self._dialer.dial(None)

    async def exchange(self, sink: Sink) -> Answer:
        """
        Send the request of the exchange.

        Args:
            sink: takes its answer.

        Returns:
            The head and the trailers.

        Raises:
            NetworkError: no whole answer came.
        """
        if self._now is None:
            await self.open()
        if self._now is None:
            raise ConnectionLost(server=self._request.target.server, moment="before the request was sent")
        return await self._now.channel.ask(self._request.method, self._request.encoded(), sink)

    async def fetch(self, path: str) -> Fetched:
        """
        Fetch an artefact of the exchange.

        Args:
            path: its path at the notary.

        Returns:
            The whole answer, whatever its status.

        Raises:
            NetworkError: no whole answer came.
            TooLarge: the answer is larger than an envelope may be.
        """
        octets = artifact_request(self._request.target, self._request.authority, path)
        for left in reversed(range(_TRIES)):
            if self._now is None or not self._now.channel.usable:
                self._now = await self._dialer.dial(self._first)
            channel = self._now.channel
            sink = _SmallBody()
            try:
                answer = await channel.ask("GET", octets, sink)
            except ConnectionLost:
                if left == 0 or channel.begun:
                    raise
            else:
                return Fetched(answer.head, bytes(sink.body))
        raise ConnectionLost(server=self._request.target.server, moment="before the artefact came")

    def close(self) -> None:
        """End the connection that is open."""
        if self._now is not None:
            self._now.channel.close()
