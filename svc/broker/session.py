"""
One client's session: its subscriptions, the messages to it and the QoS 1 and 2 messages from it (section 4.1).

Pure: writes to a sink, records in a journal, is passed the time. Does not depend on other sessions.

**To the client** it owns the order of deliveries, packet identifiers and the send quota. A delivery has these stages;
any other input is a protocol error of the client::

    QUEUED  -- quota, sink free            -->  SENT, PUBLISH; with QoS 2 once that is durable
    SENT    -- PUBACK (QoS 1)              -->  complete
    SENT    -- PUBREC below 0x80 (QoS 2)   -->  RELEASED, PUBREL once that is durable
    SENT    -- PUBREC from 0x80 on (QoS 2) -->  complete
    RELEASED -- PUBCOMP                    -->  complete

A message with QoS 2 is sent only when its receipt and its outgoing packet identifier are durable: after a crash the
same publisher would send it again, and the same subscriber would take it for another one. QoS 1 allows that, so such a
message is sent at once.

**From the client** it owns the identifiers of messages that are not released, our Receive Maximum, and when an
acknowledgement is written: once all that a packet caused is durable (sections 4.3.2 and 4.3.3). A client with as many
messages that wait for PUBACK or PUBREC as our Receive Maximum is not read until these are written
(:attr:`Session.receive_window_full`). Messages that wait for PUBREL do not count: PUBREL may follow the next PUBLISH,
and would never be read. They are bounded by :attr:`Session.exceeds_receive_maximum`, and by the 65,535 packet
identifiers.

What waits for the journal is done on the connection that requested it, or not at all: what was unacknowledged when a
connection ended is sent again by :meth:`Session.resume`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from svc.broker.aliases import TopicAliases
from svc.broker.client_sink import ClientSink, ConnectParameters
from svc.broker.deadlines import Deadlines
from svc.broker.filters import SessionSubscriptions
from svc.broker.journal import Delivery, DeliveryStage, Journal, SessionRecord
from svc.broker.message import Message
from svc.broker.sharing import LargestShare, NoRoomObserver
from svc.broker.statistics import Statistics
from svc.broker.subscriptions import Route, SubscriptionTree
from svc.shares import SharedRoom
from svc.wire.mqtt import Acknowledgement, PacketType, ProtocolViolation, Publish, QoS, Version, Will
from svc.wire.mqtt.properties import NO_PROPERTIES

LAST_IDENTIFIER: Final = 65_535
#: The reason code "packet identifier not found".
NOT_FOUND: Final = 0x92
#: Times our Receive Maximum that a client of MQTT 5.0 may have unreleased: clients that buffered many messages while
#: they were offline and resend all at once exceed it by far, and release them later.
RECEIVE_TOLERANCE: Final = 100
#: Added to the name of an owner for what its connected clients have beyond its share: see :meth:`Session.has_room`.
CONNECTED: Final = " (connected)"
#: Seconds between two searches of a queue for expired messages that nothing but the time causes: with a time for each
#: message a search would remove one, at the cost of looking at all.
SCAN: Final = 10.0
_DEFAULTS: Final = ConnectParameters(Version.V5)
#: Access to a member of an enumeration is a function call each time, which is measurable for each message.
_PUBACK: Final = PacketType.PUBACK
_PUBREC: Final = PacketType.PUBREC
_SENT: Final = DeliveryStage.SENT


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of one session."""

    #: Messages with QoS above 0 to the client, unacknowledged ones included.
    queued: int = 1000
    #: Octets of memory that they take together.
    octets: int = 16 * 1024 * 1024
    #: QoS 1 and 2 messages of the client that are not acknowledged; announced as Receive Maximum.
    received: int = 100
    subscriptions: int = 1000
    #: Topic aliases of the client, announced as Topic Alias Maximum, and at most as many towards it.
    aliases: int = 100


class Session:
    """
    One session.

    Attributes:
        owner: the identity that may resume it.
        expiry: seconds that it outlives its connection; 0 ends with it, None never ends.
        ended: when its last connection ended, in seconds since 1970 UTC; None while one is open.
        subscriptions: by topic filter, with their identifiers.
        will: the will of the open connection, or one whose delay has not passed.
        will_due: when a delayed will is published.
        admission: of the last connection that was admitted; no other may attach.
        version: the protocol level of that connection.
        pending_responses: responses to the open connection that wait until something is durable, acknowledgements of
            PUBLISH excluded.
        pending_acks: PUBACK and PUBREC to the open connection that are not written yet.
    """

    #: Nothing in the queue expires before, in seconds since 1970 UTC.
    _next_expiry = inf
    #: When the queue may be searched again for what has expired.
    _next_scan = 0.0
    #: The message that the client has beyond the share of its owner.
    _extra: Delivery | None = None

    def __init__(
        self,
        client_id: str,
        owner: str,
        limits: SessionLimits,
        journal: Journal,
        statistics: Statistics,
        now: Callable[[], float],
        room: SharedRoom,
        on_no_room: NoRoomObserver,
        expiries: Deadlines,
    ) -> None:
        self.client_id: Final = client_id
        self.owner: Final = owner
        self.expiry: int | None = 0
        self.ended: float | None = None
        self.subscriptions: Final = SessionSubscriptions(limits.subscriptions)
        self.will: Will | None = None
        self.will_due: float | None = None
        self.admission: object = None
        self.version = Version.V5
        self.pending_responses = 0
        self.pending_acks = 0
        self._limits = limits
        self._journal = journal
        self._statistics = statistics
        self._now = now
        self._room = room
        self._on_no_room = on_no_room
        self._expiries = expiries
        self._sink: ClientSink | None = None
        self._parameters = _DEFAULTS
        # Created for the first message with QoS 2: most clients send none, and an empty set takes 200 octets.
        self._received: set[int] | None = None
        self._quota = 0
        # Created when a message is queued: for most clients none is, and an empty deque takes 700 octets.
        self._queued: deque[Delivery] | None = None
        self._inflight: dict[int, Delivery] = {}
        self._resend: dict[int, Delivery] = {}
        self._aliases: TopicAliases | None = None
        self._octets = 0
        self._last_id = 0
        self._sending = False

    @property
    def persistent(self) -> bool:
        """Whether it outlives its connection, so that its state is recorded."""
        return self.expiry != 0

    @property
    def sink(self) -> ClientSink | None:
        """The open connection, or None."""
        return self._sink

    @property
    def waiting(self) -> int:
        """The number of messages to the client that are not acknowledged, sent or not."""
        return len(self._inflight) + (len(self._queued) if self._queued else 0)

    @property
    def below_low_water(self) -> bool:
        """Whether the client reads and at most half of the queue is used, so that retained messages may be added."""
        sink, limits = self._sink, self._limits
        if sink is None or sink.congested or (self.persistent and not self._journal.accepting):
            return False
        return self.waiting * 2 < limits.queued and self._octets * 2 < limits.octets

    @property
    def receive_window_full(self) -> bool:
        """Whether a further message with QoS above 0 must wait until acknowledgements are written."""
        return self.pending_acks >= self._limits.received

    @property
    def exceeds_receive_maximum(self) -> bool:
        """Whether so many messages are unreleased that the client ignores our Receive Maximum (section 3.3.4)."""
        return self._received is not None and len(self._received) >= RECEIVE_TOLERANCE * self._limits.received

    def has_room(self, message: Message) -> bool:
        """
        Whether a message with QoS above 0 could be queued now.

        A connected client for which nothing waits may have one beyond the share of its owner: sessions of that owner
        whose clients are away do not keep it from getting messages. What all connected clients of an owner have so is
        limited as what another owner has.
        """
        return self._has_share(message) or self._may_exceed(message)

    def must_wait(self, message: Message, qos: QoS) -> bool:
        """Whether a message for a subscription with this QoS has no room now, and will have."""
        if not min(message.qos, qos) or message.size > min(self._limits.octets, self._room.limit):
            return False
        return not self.has_room(message)

    def _has_share(self, message: Message) -> bool:
        return self._has_own_room(message) and self._room.fits(self.owner, message.size)

    def _may_exceed(self, message: Message) -> bool:
        if self._sink is None or self.waiting or not self._has_own_room(message):
            return False
        return self._room.fits(self.owner + CONNECTED, message.size)

    def _has_own_room(self, message: Message) -> bool:
        return self.waiting < self._limits.queued and self._octets + message.size <= self._limits.octets

    def record(self) -> SessionRecord:
        """Its durable part, without subscriptions and deliveries."""
        return SessionRecord(
            self.client_id, self.owner, self.version, self.expiry, self.ended, self.will, self.will_due
        )

    # The connection.

    def attach(self, sink: ClientSink, parameters: ConnectParameters) -> None:
        """Begin a connection; nothing is sent before :meth:`resume`."""
        self._sink = sink
        self._parameters = parameters
        # Each connection has its own Receive Maximum (section 4.9).
        self.pending_acks = self.pending_responses = 0
        self.ended = None

    def resume(self, now: float) -> None:
        """Send again what was not acknowledged, in order and with its identifiers [MQTT-4.4.0-1], then the queue."""
        unacknowledged = list(self._inflight.values())
        released = sum(delivery.stage is DeliveryStage.RELEASED for delivery in unacknowledged)
        # The new connection may have a smaller Receive Maximum than the old one [MQTT-3.3.4-9].
        self._quota = self._parameters.receive_maximum - released
        self._resend = {}
        for delivery in unacknowledged:
            if delivery.stage is DeliveryStage.RELEASED:
                self._acknowledge(PacketType.PUBREL, delivery.packet_id)
            else:
                self._resend[delivery.packet_id] = delivery
                self._send_again(now)
        self.send_queued(now)

    def _send_again(self, now: float) -> None:
        while self._resend and self._may_send:
            delivery = self._resend.pop(next(iter(self._resend)))
            self._quota -= 1
            self._send(delivery, now, dup=True)

    @property
    def _may_send(self) -> bool:
        return self._quota > 0 and self._sink is not None and not self._sink.congested

    def detach(self, now: float) -> None:
        """End the connection; what is unacknowledged stays."""
        self._end_extra()
        self._sink = None
        # Aliases end with the connection: what is sent again on the next one has its topic [MQTT-3.3.2-7].
        self._aliases = None
        self.ended = now

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call when all that was recorded of the session is durable, unless the connection ended before."""
        # Of a session that is not persistent nothing is recorded, so that it does not wait for the disk.
        if self.persistent:
            self._respond_when_durable(then)
        else:
            then()

    def _respond_when_durable(self, then: Callable[[], None]) -> None:
        self.pending_responses += 1
        self._journal.when_durable(partial(self._on_durable, self._sink, then))

    def _on_durable(self, sink: ClientSink | None, then: Callable[[], None]) -> None:
        if sink is self._sink:
            self.pending_responses -= 1
            then()

    # Messages from the client.

    def is_duplicate(self, packet: Publish) -> bool:
        """Whether a QoS 2 message was accepted before and not released, so that it is not published [MQTT-4.3.3-10]."""
        return packet.qos == 2 and self._received is not None and packet.packet_id in self._received

    def accept(self, packet: Publish) -> None:
        """Record the identifier of a message with QoS above 0 that is no duplicate."""
        if packet.qos == 1:
            return
        if self._received is None:
            self._received = set()
        self._received.add(packet.packet_id)
        if self.persistent:
            self._journal.received(self.client_id, packet.packet_id)

    def acknowledge(self, packet: Publish, code: int) -> None:
        """Write PUBACK or PUBREC with a reason code below 0x80 once all that the message caused is durable."""
        sink = self._sink
        self.pending_acks += 1

        def durable() -> None:
            # A later connection of the session neither gets this acknowledgement nor counts it.
            if sink is self._sink:
                self.pending_acks -= 1
                self._acknowledge(_PUBACK if packet.qos == 1 else _PUBREC, packet.packet_id, code)

        self._journal.when_durable(durable)

    def reject(self, packet: Publish, code: int) -> None:
        """Write PUBACK or PUBREC with a reason code from 0x80 on; at once, as nothing was recorded."""
        self._acknowledge(PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC, packet.packet_id, code)

    def on_pubrel(self, packet: Acknowledgement) -> None:
        """Release a QoS 2 message and write PUBCOMP once that is durable."""
        packet_id = packet.packet_id
        code = NOT_FOUND
        if self._received is not None and packet_id in self._received:
            self._received.discard(packet_id)
            if self.persistent:
                self._journal.released(self.client_id, packet_id)
            code = 0
        self.when_durable(partial(self._acknowledge, PacketType.PUBCOMP, packet_id, code))

    def _acknowledge(self, kind: PacketType, packet_id: int, code: int = 0) -> None:
        sink = self._sink
        if sink is None:
            return
        if code and self._parameters.version is Version.V5:
            sink.send(Acknowledgement(kind, packet_id, code, NO_PROPERTIES))  # type: ignore[arg-type]
        else:
            sink.write(_FIXED_HEADER[kind] + packet_id.to_bytes(2, "big"))

    # Messages to the client.

    def deliver(self, message: Message, route: Route[Session], now: float, *, retained: bool = False) -> bool:
        """
        Send or queue a message.

        Args:
            message: the message.
            route: the subscriptions that it matched.
            now: seconds since 1970 UTC.
            retained: whether it is sent because it was retained, so that its flag stays [MQTT-3.3.1-8].

        Returns:
            False where it was dropped.
        """
        qos = min(message.qos, route.qos)
        flag = retained or (message.retain and route.retain_as_published)
        if qos == 0:
            return self._send_qos0(message, flag, route.identifiers, now)
        exceeds = not self._has_share(message) and not self._make_room(message, now)
        if exceeds and not self._may_exceed(message):
            reason = "queues_full" if self._has_own_room(message) else "queue_full"
            self._statistics.dropped(reason)
            if reason == "queues_full":
                self._on_no_room(reason, self.owner, lambda: LargestShare(*self._room.most()))
            return False
        delivery = Delivery(message, qos, flag, route.identifiers)
        self._take(message.size)
        if exceeds:
            self._extra = delivery
            self._move(message.size)
        if self.persistent:
            self._journal.delivery(self.client_id, delivery)
        if self._queued or self._resend or not self._may_send:
            self._queue(delivery)
        else:
            self._send_first(delivery, now)
        return True

    def _take(self, octets: int) -> None:
        self._octets += octets
        self._room.take(self.owner, octets)

    def _move(self, octets: int) -> None:
        """Count octets of the owner for its connected clients, or of these for the owner where they are negative."""
        self._room.take(self.owner, -octets)
        self._room.take(self.owner + CONNECTED, octets)

    def _end_extra(self) -> None:
        if self._extra is not None:
            self._move(-self._extra.message.size)
            self._extra = None

    def _queue(self, delivery: Delivery) -> None:
        if self._queued is None:
            self._queued = deque()
        self._queued.append(delivery)
        expires = delivery.message.expires
        if expires is not None and expires < self._next_expiry:
            self._next_expiry = expires
            self._expiries.set(self.client_id, max(expires, self._next_scan))

    def _make_room(self, message: Message, now: float) -> bool:
        """Drop expired messages of the queue, if there may be any; whether the message fits now."""
        if now < self._next_expiry or self._queued is None:
            return False
        self.drop_expired(now)
        return self._has_share(message)

    def drop_expired(self, now: float) -> int:
        """Drop expired messages of the queue; return how many it had."""
        first, queued = inf, self._queued or ()
        kept: deque[Delivery] = deque()
        for delivery in queued:
            expires = delivery.message.expires or inf
            if expires <= now:
                self._complete(delivery)
                self._statistics.dropped("expired")
            else:
                kept.append(delivery)
                first = min(first, expires)
        self._queued = kept or None
        # Messages that expire one after another do not cause a scan of the whole queue each time.
        self._next_expiry = max(first, now + 1)
        self._next_scan = now + SCAN
        if first < inf:
            self._expiries.set(self.client_id, max(first, self._next_scan))
        return len(queued)

    def drop_unsubscribed(self) -> None:
        """Drop queued messages that match no subscription any more; those that were sent stay."""
        if self._queued is None:
            return
        tree: SubscriptionTree[Session] = SubscriptionTree()
        for subscription, identifier in self.subscriptions.values():
            tree.add(self, subscription, identifier)
        queued, self._queued = self._queued, deque()
        for delivery in queued:
            routes = tree.routes(delivery.message.topic)
            if routes.direct or routes.groups:
                self._queued.append(delivery)
            else:
                self._complete(delivery)
                self._statistics.dropped("not_authorized")
        if not self._queued:
            self._queued = None

    def _send_qos0(self, message: Message, retain: bool, identifiers: tuple[int, ...], now: float) -> bool:
        sink = self._sink
        if sink is None:
            return False
        if sink.congested:
            self._statistics.dropped("congested")
            return False
        if message.expired(now):
            self._statistics.dropped("expired")
            return False
        return self._write(sink, message, 0, retain=retain, dup=False, packet_id=0, identifiers=identifiers, now=now)

    def send_queued(self, now: float) -> None:
        """Send what is queued, as far as quota and sink allow (section 4.9)."""
        # A journal that is always durable leads back here for each message with QoS 2.
        if self._sending or not (self._queued or self._resend):
            return
        self._sending = True
        try:
            if self._resend:
                self._send_again(now)
            while self._queued and self._may_send:
                self._send_first(self._queued.popleft(), now)
            if not self._queued:
                self._queued = None
        finally:
            self._sending = False

    def _send_first(self, delivery: Delivery, now: float) -> None:
        """Send a message for the first time, unless it has expired."""
        if delivery.message.expired(now):
            self._complete(delivery)
            self._statistics.dropped("expired")
            return
        delivery.packet_id = self._unused_identifier()
        delivery.stage = _SENT
        self._inflight[delivery.packet_id] = delivery
        self._quota -= 1
        if delivery.number:
            self._journal.delivery_changed(delivery)
        if delivery.qos == 2:
            self._journal.when_durable(partial(self._send_qos2, delivery, self._sink))
        else:
            self._send(delivery, now, dup=False)

    def _send_qos2(self, delivery: Delivery, sink: ClientSink | None) -> None:
        """Send a QoS 2 message that is durable, unless its connection ended or the delivery is complete by now."""
        if sink is not self._sink or self._inflight.get(delivery.packet_id) is not delivery:
            return
        if delivery.stage is not DeliveryStage.SENT:
            # The client acknowledged a packet identifier that it guessed; for it the delivery is complete.
            return
        now = self._now()
        if delivery.message.expired(now):
            self._finish(delivery)
            self._statistics.dropped("expired")
        else:
            self._send(delivery, now, dup=False)
        # There may be room for one more: the message had expired, or was too large for the client.
        self.send_queued(now)

    def _send(self, delivery: Delivery, now: float, *, dup: bool) -> None:
        if self._sink is None:
            return
        sent = self._write(
            self._sink,
            delivery.message,
            delivery.qos,
            retain=delivery.retain,
            dup=dup,
            packet_id=delivery.packet_id,
            identifiers=delivery.identifiers,
            now=now,
        )
        if not sent:
            # A packet that the client does not accept is treated as if it was sent and completed [MQTT-3.1.2-25].
            self._finish(delivery)

    def _write(
        self,
        sink: ClientSink,
        message: Message,
        qos: QoS,
        *,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: tuple[int, ...],
        now: float,
    ) -> bool:
        """Write PUBLISH; False where the packet is too large for the client."""
        parameters = self._parameters
        octets = message.encoded(
            parameters.version, qos, retain=retain, dup=dup, packet_id=packet_id, identifiers=identifiers, now=now
        )
        if parameters.aliases:
            return self._write_with_alias(sink, message, octets)
        if parameters.packet is not None and len(octets) > parameters.packet:
            self._statistics.dropped("too_large")
            return False
        sink.write(octets)
        self._statistics.sent(len(octets))
        return True

    def _write_with_alias(self, sink: ClientSink, message: Message, octets: bytes) -> bool:
        parameters, aliases = self._parameters, self._aliases
        if aliases is None:
            aliases = self._aliases = TopicAliases(parameters.aliases)
        octets, assigned = aliases.apply(message, octets, parameters.packet)
        if parameters.packet is not None and len(octets) > parameters.packet:
            self._statistics.dropped("too_large")
            return False
        sink.write(octets)
        if assigned:
            # Not before: a packet that was too large did not reach the client.
            aliases.confirm(message.topic, assigned)
        self._statistics.sent(len(octets))
        return True

    def _unused_identifier(self) -> int:
        identifier = self._last_id
        while True:
            identifier = identifier % LAST_IDENTIFIER + 1
            if identifier not in self._inflight:
                self._last_id = identifier
                return identifier

    def _finish(self, delivery: Delivery) -> None:
        """Complete a delivery that is in flight."""
        del self._inflight[delivery.packet_id]
        self._quota += 1
        self._complete(delivery)

    def _complete(self, delivery: Delivery) -> None:
        if delivery is self._extra:
            self._end_extra()
        self._take(-delivery.message.size)
        if delivery.number:
            self._journal.delivered(delivery)

    def on_acknowledgement(self, packet: Acknowledgement, now: float) -> None:
        """
        Process PUBACK, PUBREC or PUBCOMP.

        Raises:
            ProtocolViolation: it does not acknowledge what was sent under its identifier.
        """
        delivery = self._inflight.get(packet.packet_id)
        if delivery is None:
            # An identifier that is not in use is no error: the session may have been lost (section 4.4).
            if packet.type is PacketType.PUBREC:
                self._acknowledge(PacketType.PUBREL, packet.packet_id, NOT_FOUND)
            return
        expected = _EXPECTED[delivery.qos, delivery.stage]
        if packet.type is _PUBREC and delivery.stage is DeliveryStage.RELEASED:
            # The client did not receive our PUBREL; it is sent again, no sooner than the first one.
            self._release_when_durable(packet.packet_id)
            return
        if packet.type is not expected:
            raise ProtocolViolation(packet=packet.type.name, defect=f"{expected.name} is expected for its identifier")
        if self._resend.pop(packet.packet_id, None) is not None:
            # It acknowledges what an earlier connection sent, which need not be sent again.
            self._quota -= 1
        if packet.type is _PUBREC and packet.code < 0x80:
            delivery.stage = DeliveryStage.RELEASED
            if not delivery.number:
                self._acknowledge(PacketType.PUBREL, delivery.packet_id)
                return
            # After a crash the client must not get the PUBLISH again: it would take it for another one [MQTT-4.3.3-6].
            self._journal.delivery_changed(delivery)
            self._release_when_durable(delivery.packet_id)
            return
        self._finish(delivery)
        self.send_queued(now)

    def _release_when_durable(self, packet_id: int) -> None:
        self._respond_when_durable(partial(self._acknowledge, PacketType.PUBREL, packet_id))

    # Restart and end.

    def restore(self, deliveries: list[Delivery], received: list[int], version: Version) -> None:
        """
        Restore what a journal recovered.

        Args:
            deliveries: what was not acknowledged, in order.
            received: identifiers of QoS 2 messages that were not released.
            version: the protocol level of the last connection.
        """
        self.version = version
        self._received = set(received) or None
        for delivery in deliveries:
            self._take(delivery.message.size)
            if delivery.stage is DeliveryStage.QUEUED:
                self._queue(delivery)
            else:
                self._inflight[delivery.packet_id] = delivery
                self._last_id = delivery.packet_id

    def remove_from_journal(self) -> None:
        """Remove its deliveries from the journal: the session will not outlive its connection."""
        for delivery in [*self._inflight.values(), *(self._queued or ())]:
            if delivery.number:
                self._journal.delivered(delivery)

    def discard(self) -> None:
        """End the session with all its messages."""
        self.remove_from_journal()
        self._inflight.clear()
        self._resend.clear()
        self._queued = None
        self._received = None
        self._take(-self._octets)


_EXPECTED: Final[dict[tuple[QoS, DeliveryStage], PacketType]] = {
    (1, DeliveryStage.SENT): PacketType.PUBACK,
    (2, DeliveryStage.SENT): PacketType.PUBREC,
    (2, DeliveryStage.RELEASED): PacketType.PUBCOMP,
}
#: The fixed header of an acknowledgement without reason code.
_FIXED_HEADER: Final = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBREL: b"\x62\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}
