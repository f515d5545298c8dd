"""
One client's session: what it wants, what is on its way to it, what came from it (section 4.1).

Owns the order of deliveries, packet identifiers and the send quota; what comes from the client is the business of
:class:`svc.broker.incoming.Incoming`. Pure: writes to an outlet, records in a journal, is told the time. Must not know
other sessions.

A delivery goes through these stages; what is not here is a protocol error of the client::

    QUEUED  -- quota, outlet free          -->  SENT, PUBLISH; with QoS 2 once that is safe
    SENT    -- PUBACK (QoS 1)              -->  over
    SENT    -- PUBREC below 0x80 (QoS 2)   -->  RELEASED, PUBREL once that is safe
    SENT    -- PUBREC from 0x80 on (QoS 2) -->  over
    RELEASED -- PUBCOMP                    -->  over

A message with QoS 2 is not shown to anybody before it is safe that it came and under which identifier it goes out:
after a crash the same publisher would send it again, and the same subscriber would take it for another one. With QoS 1
that is allowed, and it goes out at once.

What waits for the journal is done on the connection that asked for it, or not at all: what was unacknowledged when a
connection ended is sent anew by :meth:`Session.resume`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from svc.broker.aliases import TopicAliases
from svc.broker.filters import SessionFilters
from svc.broker.incoming import NOT_FOUND, Incoming
from svc.broker.journal import Delivery, Journal, SessionRecord, Stage
from svc.broker.message import Message
from svc.broker.outlet import Outlet, Terms
from svc.broker.statistics import SessionObserver
from svc.broker.subscriptions import Route
from svc.wire.mqtt import Acknowledgement, PacketType, ProtocolViolation, QoS, Version, Will

LAST_IDENTIFIER: Final = 65_535
#: A member of an enumeration is looked up by a call each time, which shows where every delivery does it.
_PUBREC: Final = PacketType.PUBREC
_SENT: Final = Stage.SENT


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """
    What one session may use.

    Args:
        queued: messages that wait, unacknowledged ones included.
        octets: octets that they take together.
        received: QoS 1 and 2 messages of the client in progress; announced as Receive Maximum.
        subscriptions: subscriptions.
        aliases: topic aliases of the client, announced as Topic Alias Maximum, and at most as many towards it.
    """

    queued: int = 1000
    octets: int = 16 * 1024 * 1024
    received: int = 100
    subscriptions: int = 1000
    aliases: int = 100


class Session(Incoming):
    """
    One session.

    Args:
        client_id: whose it is.
        owner: who may take it up again.
        limits: what it may use.
        journal: records what must last.
        observer: counts.
        now: seconds since 1970 UTC, for what waited for the journal.

    Attributes:
        expiry: seconds that it outlives its connection; 0 ends with it, None never ends.
        ended: when its last connection ended, in seconds since 1970 UTC; None while one is open.
        subscriptions: by topic filter, with their identifiers.
        will: the will of the open connection, or one that waits for its delay.
        will_due: when a will that waits is published.
        claim: the last connection that was admitted to it; it alone may attach.
        version: the protocol level of that connection.
    """

    #: Nothing in the queue expires before, in seconds since 1970 UTC.
    _next_expiry = inf

    def __init__(
        self,
        client_id: str,
        owner: str,
        limits: SessionLimits,
        journal: Journal,
        observer: SessionObserver,
        now: Callable[[], float],
    ) -> None:
        super().__init__(client_id, limits.received, journal)
        self.owner: Final = owner
        self.ended: float | None = None
        self.subscriptions: Final = SessionFilters(limits.subscriptions)
        self.will: Will | None = None
        self.will_due: float | None = None
        self.claim: object = None
        self.version = Version.V5
        self._limits = limits
        self._observer = observer
        self._now = now
        self._quota = 0
        # Made when something waits: most clients take what comes, and an empty one takes 700 octets.
        self._queued: deque[Delivery] | None = None
        self._inflight: dict[int, Delivery] = {}
        self._again: dict[int, Delivery] = {}
        self._aliases: TopicAliases | None = None
        self._octets = 0
        self._last_id = 0
        self._pumping = False

    # What others see.

    @property
    def waiting(self) -> int:
        """Messages that are not acknowledged, sent or not."""
        return len(self._inflight) + (len(self._queued) if self._queued else 0)

    @property
    def hungry(self) -> bool:
        """Whether what can wait elsewhere may be offered: it is read from, and half of what it may hold is free."""
        outlet, limits = self._outlet, self._limits
        if outlet is None or outlet.congested or (self.lasting and not self._journal.accepting):
            return False
        return self.waiting * 2 < limits.queued and self._octets * 2 < limits.octets

    def has_room(self, message: Message) -> bool:
        """
        Say whether a message could be taken now.

        Args:
            message: the message.
        """
        return self.waiting < self._limits.queued and self._octets + message.size <= self._limits.octets

    def record(self) -> SessionRecord:
        """Write down what lasts of it, but for subscriptions and deliveries."""
        return SessionRecord(
            self.client_id, self.owner, self.version, self.expiry, self.ended, self.will, self.will_due
        )

    # The connection.

    def attach(self, outlet: Outlet, terms: Terms) -> None:
        """
        Begin a connection; nothing is sent before :meth:`resume`.

        Args:
            outlet: writes to the client.
            terms: what the client accepts.
        """
        self._outlet = outlet
        self._terms = terms
        self.begin_anew()
        self.ended = None

    def resume(self, now: float) -> None:
        """
        Send again what was not acknowledged, in its order and with its identifiers [MQTT-4.4.0-1], then what waits.

        Args:
            now: seconds since 1970 UTC.
        """
        unacknowledged = list(self._inflight.values())
        released = sum(delivery.stage is Stage.RELEASED for delivery in unacknowledged)
        # The new connection may take fewer at once than the old one did [MQTT-3.3.4-9].
        self._quota = self._terms.receive_maximum - released
        self._again = {}
        for delivery in unacknowledged:
            if delivery.stage is Stage.RELEASED:
                self._answer(PacketType.PUBREL, delivery.packet_id)
            else:
                self._again[delivery.packet_id] = delivery
                self._send_again(now)
        self.pump(now)

    def _send_again(self, now: float) -> None:
        while self._again and self._may_send:
            delivery = self._again.pop(next(iter(self._again)))
            self._quota -= 1
            self._write(delivery, now, dup=True)

    @property
    def _may_send(self) -> bool:
        return self._quota > 0 and self._outlet is not None and not self._outlet.congested

    def detach(self, now: float) -> None:
        """
        End the connection; what is unacknowledged stays.

        Args:
            now: seconds since 1970 UTC.
        """
        self._outlet = None
        # The next connection knows none of them: what is sent again there carries its topic anew [MQTT-3.3.2-7].
        self._aliases = None
        self.ended = now

    def eased(self, now: float) -> None:
        """
        Go on after congestion.

        Args:
            now: seconds since 1970 UTC.
        """
        self.pump(now)

    # To the client.

    def offer(self, message: Message, route: Route[Session], now: float, *, retained: bool = False) -> bool:
        """
        Take a message for the client.

        Args:
            message: the message.
            route: the subscriptions that it matched.
            now: seconds since 1970 UTC.
            retained: whether it is sent because it was retained, so that its flag stays [MQTT-3.3.1-8].

        Returns:
            Whether it was sent or will be.
        """
        qos = min(message.qos, route.qos)
        flag = retained or (message.retain and route.retain_as_published)
        if qos == 0:
            return self._at_most_once(message, flag, route.identifiers, now)
        if not self.has_room(message) and not self._room_made(message, now):
            self._observer.dropped("queue_full")
            return False
        delivery = Delivery(message, qos, flag, route.identifiers)
        self._octets += message.size
        if self.lasting:
            self._journal.delivery(self.client_id, delivery)
        if self._queued or self._again or not self._may_send:
            self._queue(delivery)
        else:
            self._begin(delivery, now)
        return True

    def _queue(self, delivery: Delivery) -> None:
        if self._queued is None:
            self._queued = deque()
        self._queued.append(delivery)
        expires = delivery.message.expires
        if expires is not None and expires < self._next_expiry:
            self._next_expiry = expires

    def _room_made(self, message: Message, now: float) -> bool:
        """Drop what expired in the queue, if anything may have; whether there is room now."""
        if now < self._next_expiry or self._queued is None:
            return False
        first, queued = inf, self._queued
        self._queued = deque()
        for delivery in queued:
            expires = delivery.message.expires or inf
            if expires <= now:
                self._over(delivery)
                self._observer.dropped("expired")
            else:
                self._queued.append(delivery)
                first = min(first, expires)
        # What expires one after the other does not cost a look at everything each time.
        self._next_expiry = max(first, now + 1)
        return self.has_room(message)

    def _at_most_once(self, message: Message, retain: bool, identifiers: tuple[int, ...], now: float) -> bool:
        outlet = self._outlet
        if outlet is None:
            return False
        if outlet.congested:
            self._observer.dropped("congested")
            return False
        if message.expired(now):
            self._observer.dropped("expired")
            return False
        return self._put(outlet, message, 0, retain=retain, dup=False, packet_id=0, identifiers=identifiers, now=now)

    def pump(self, now: float) -> None:
        """
        Send what waits, as far as quota and outlet allow (section 4.9).

        Args:
            now: seconds since 1970 UTC.
        """
        # A journal with which everything is safe at once leads back here for each message with QoS 2.
        if self._pumping or not (self._queued or self._again):
            return
        self._pumping = True
        try:
            self._pump(now)
        finally:
            self._pumping = False

    def _pump(self, now: float) -> None:
        if self._again:
            self._send_again(now)
        while self._queued and self._may_send:
            self._begin(self._queued.popleft(), now)
        if not self._queued:
            self._queued = None

    def _begin(self, delivery: Delivery, now: float) -> None:
        """Send a message whose turn it is, unless it is of no use any more."""
        if delivery.message.expired(now):
            self._over(delivery)
            self._observer.dropped("expired")
            return
        delivery.packet_id = self._unused_identifier()
        delivery.stage = _SENT
        self._inflight[delivery.packet_id] = delivery
        self._quota -= 1
        if delivery.number:
            self._journal.delivery_changed(delivery)
        if delivery.qos == 2:
            self._journal.safe(partial(self._write_safe, delivery, self._outlet))
        else:
            self._write(delivery, now, dup=False)

    def _write_safe(self, delivery: Delivery, outlet: Outlet | None) -> None:
        """Send a message with QoS 2 for the first time, unless its connection or the delivery is over meanwhile."""
        if outlet is not self._outlet or self._inflight.get(delivery.packet_id) is not delivery:
            return
        if delivery.stage is not Stage.SENT:
            # The client answered a packet identifier that it could only guess; to it the message is said and done.
            return
        now = self._now()
        if delivery.message.expired(now):
            del self._inflight[delivery.packet_id]
            self._quota += 1
            self._over(delivery)
            self._observer.dropped("expired")
        else:
            self._write(delivery, now, dup=False)
        # There may be room for one more: the message was of no use any more, or too large for the client.
        self.pump(now)

    def _write(self, delivery: Delivery, now: float, *, dup: bool) -> None:
        if self._outlet is None:
            return
        sent = self._put(
            self._outlet,
            delivery.message,
            delivery.qos,
            retain=delivery.retain,
            dup=dup,
            packet_id=delivery.packet_id,
            identifiers=delivery.identifiers,
            now=now,
        )
        if not sent:
            # A packet that the client does not accept is treated as if it had been sent and done [MQTT-3.1.2-25].
            del self._inflight[delivery.packet_id]
            self._quota += 1
            self._over(delivery)

    def _put(
        self,
        outlet: Outlet,
        message: Message,
        qos: QoS,
        *,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        now: float,
    ) -> bool:
        terms = self._terms
        octets = message.octets(
            terms.version, qos, retain=retain, dup=dup, packet_id=packet_id, identifiers=identifiers, now=now
        )
        if terms.aliases:
            return self._put_by_alias(outlet, message, octets)
        if terms.packet is not None and len(octets) > terms.packet:
            self._observer.dropped("too_large")
            return False
        outlet.write(octets)
        self._observer.sent(len(octets))
        return True

    def _put_by_alias(self, outlet: Outlet, message: Message, octets: bytes) -> bool:
        terms, aliases = self._terms, self._aliases
        if aliases is None:
            aliases = self._aliases = TopicAliases(terms.aliases)
        octets, introduced = aliases.applied(message, octets, terms.packet)
        if terms.packet is not None and len(octets) > terms.packet:
            self._observer.dropped("too_large")
            return False
        outlet.write(octets)
        if introduced:
            # Not sooner: what was too large has told the client nothing.
            aliases.introduced(message.topic, introduced)
        self._observer.sent(len(octets))
        return True

    def _unused_identifier(self) -> int:
        identifier = self._last_id
        while True:
            identifier = identifier % LAST_IDENTIFIER + 1
            if identifier not in self._inflight:
                self._last_id = identifier
                return identifier

    def _over(self, delivery: Delivery) -> None:
        self._octets -= delivery.message.size
        if delivery.number:
            self._journal.delivered(delivery)

    # Answers of the client.

    def acknowledged(self, packet: Acknowledgement, now: float) -> None:
        """
        Take PUBACK, PUBREC or PUBCOMP.

        Args:
            packet: the answer.
            now: seconds since 1970 UTC.

        Raises:
            ProtocolViolation: it does not answer what was sent under its identifier.
        """
        delivery = self._inflight.get(packet.packet_id)
        if delivery is None:
            self._unknown(packet)
            return
        expected = _EXPECTED[delivery.qos, delivery.stage]
        if packet.type is _PUBREC and delivery.stage is Stage.RELEASED:
            # The client did not see our PUBREL; it is said once more, and no sooner than the first time.
            self._answer_safe(PacketType.PUBREL, packet.packet_id)
            return
        if packet.type is not expected:
            raise ProtocolViolation(packet=packet.type.name, defect=f"{expected.name} was awaited for its identifier")
        if self._again.pop(packet.packet_id, None) is not None:
            # An answer to what an earlier connection sent; it need not be sent again.
            self._quota -= 1
        if packet.type is _PUBREC and packet.code < 0x80:
            self._release(delivery)
            return
        del self._inflight[packet.packet_id]
        self._quota += 1
        self._over(delivery)
        self.pump(now)

    def _release(self, delivery: Delivery) -> None:
        delivery.stage = Stage.RELEASED
        if not delivery.number:
            self._answer(PacketType.PUBREL, delivery.packet_id)
            return
        # After a crash the client must not see the PUBLISH again: it would be a new message to it [MQTT-4.3.3-6].
        self._journal.delivery_changed(delivery)
        self._answer_safe(PacketType.PUBREL, delivery.packet_id)

    def _unknown(self, packet: Acknowledgement) -> None:
        """An identifier that is not in use is no error: the session may have been lost (section 4.4)."""
        if packet.type is PacketType.PUBREC:
            self._answer(PacketType.PUBREL, packet.packet_id, NOT_FOUND)

    # Restart.

    def restore(self, deliveries: list[Delivery], received: list[int], version: Version) -> None:
        """
        Take back what a journal kept.

        Args:
            deliveries: what was not acknowledged, in order.
            received: identifiers of QoS 2 messages that were not released.
            version: the protocol level of the last connection.
        """
        self.version = version
        self._received = set(received) or None
        for delivery in deliveries:
            self._octets += delivery.message.size
            if delivery.stage is Stage.QUEUED:
                self._queue(delivery)
            else:
                self._inflight[delivery.packet_id] = delivery
                self._last_id = delivery.packet_id

    def unrecord(self) -> None:
        """Take its deliveries out of the journal: the session will not outlive its connection."""
        for delivery in [*self._inflight.values(), *(self._queued or ())]:
            if delivery.number:
                self._journal.delivered(delivery)

    def forget_everything(self) -> None:
        """End the session: what waits is given up."""
        self.unrecord()
        self._inflight.clear()
        self._again.clear()
        self._queued = None
        self._received = self._earlier = None
        self._octets = 0


_EXPECTED: Final[dict[tuple[QoS, Stage], PacketType]] = {
    (1, Stage.SENT): PacketType.PUBACK,
    (2, Stage.SENT): PacketType.PUBREC,
    (2, Stage.RELEASED): PacketType.PUBCOMP,
}
