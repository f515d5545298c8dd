"""
What of a session is on its way to the broker: packet identifiers, the order of sending, and the Receive Maximum.

Pure: uses neither the database nor the connection.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from svc.proxy.mqtt.stored.buffer.records import BufferedMessage, MessageState
from svc.wire.mqtt import QoS, Subscribe, Unsubscribe

_LAST_ID: Final = 65_535


@dataclass(slots=True, eq=False)
class Flight:
    """A message that is to be sent, or was sent and is not complete."""

    message: BufferedMessage
    #: Whether PUBLISH may have been sent before, so that it is marked as a duplicate.
    sent: bool = False
    #: The quality of service of the last PUBLISH, which the broker may have limited.
    qos: QoS = 0


@dataclass(slots=True)
class RelayedRequest:
    """SUBSCRIBE or UNSUBSCRIBE of the client, with the client's packet identifier."""

    packet: Subscribe | Unsubscribe
    #: That towards the broker, 0 while it is not sent.
    upstream_id: int = 0


class UpstreamWindow:
    """The flights and requests of one session; ``limit`` bounds the flights whatever the broker accepts."""

    def __init__(self, limit: int) -> None:
        #: By upstream packet identifier, in the order of the messages.
        self.flights: dict[int, Flight] = {}
        self.requests: dict[int, RelayedRequest] = {}
        self._limit = limit
        self._quota = 0
        self._to_send: deque[Flight] = deque()
        # Identifiers that count towards the Receive Maximum of this connection (section 4.9).
        self._outstanding: set[int] = set()
        self._last_id = 0

    @property
    def room(self) -> bool:
        """Whether a further message may be in flight."""
        return len(self.flights) < self._quota

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._to_send

    def restore(self, message: BufferedMessage) -> None:
        """A former process sent the message, or was about to."""
        self.flights[message.upstream_id] = Flight(message, sent=True)

    def take(self, message: BufferedMessage) -> Flight:
        """Give a message with QoS above 0 its identifier."""
        message.state, message.upstream_id = MessageState.SENT, self._free_id()
        flight = self.flights[message.upstream_id] = Flight(message)
        return flight

    def request(self, request: RelayedRequest) -> None:
        """Give a request its identifier."""
        request.upstream_id = self._free_id()
        self.requests[request.upstream_id] = request

    def opened(self, receive_maximum: int) -> None:
        """There is a connection; nothing was sent on it."""
        self._quota = min(self._limit, receive_maximum)
        self._outstanding.clear()
        self._to_send.clear()

    def closed(self) -> list[RelayedRequest]:
        """There is no connection any more; returns the requests that were not answered."""
        self._quota = 0
        self._outstanding.clear()
        self._to_send.clear()
        requests, self.requests = list(self.requests.values()), {}
        return requests

    def renew(self) -> list[Flight]:
        """The broker lost the session: every flight begins anew. Returns those whose message changed by that."""
        changed = []
        for flight in self.flights.values():
            flight.sent = False
            if flight.message.state is MessageState.RELEASED:
                flight.message.state = MessageState.SENT
                changed.append(flight)
        return changed

    def ready(self, flights: Iterable[Flight]) -> None:
        """These may be sent on this connection, behind those before them."""
        self._to_send.extend(flights)

    @property
    def unanswered(self) -> list[Flight]:
        """What was sent on this connection and is not answered, in order; PUBREC is an answer."""
        sent = [flight for name, flight in self.flights.items() if name in self._outstanding]
        return [each for each in sent if each.message.state is MessageState.SENT]

    def refused(self, flight: Flight, *, renumber: bool) -> bool:
        """
        Send a flight again behind those before it, as a new PUBLISH; returns whether it was on its way at all.

        With another identifier (``renumber``) it must not be sent before that is durable.
        """
        message = flight.message
        if message.upstream_id not in self._outstanding:
            return False
        self._outstanding.discard(message.upstream_id)
        flight.sent = False
        insort(self._to_send, flight, key=lambda each: each.message.number)
        if renumber:
            message.upstream_id = self._free_id()
            self.flights = {each.message.upstream_id: each for each in self.flights.values()}
        return True

    def next_to_send(self, *, single: bool) -> Flight | None:
        """The next flight that the Receive Maximum allows; ``single``: that nothing on its way precedes."""
        if not self._to_send:
            return None
        message = self._to_send[0].message
        if message.qos:
            if len(self._outstanding) >= (1 if single else self._quota):
                return None
            self._outstanding.add(message.upstream_id)
        return self._to_send.popleft()

    def answered(self, upstream_id: int) -> None:
        """An identifier does not count towards the Receive Maximum any more, and the flight is complete."""
        flight = self.flights.pop(upstream_id, None)
        if upstream_id in self._outstanding:
            self._outstanding.discard(upstream_id)
        elif flight is not None and flight in self._to_send:
            self._to_send.remove(flight)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % _LAST_ID + 1
            if self._last_id not in self.flights and self._last_id not in self.requests:
                return self._last_id
