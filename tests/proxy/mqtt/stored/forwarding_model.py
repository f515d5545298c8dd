"""A forwarder between a conforming client and a conforming broker, all in memory; each step is the test's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from svc.errors import SvcError
from svc.proxy.mqtt.interfaces import RecordDemand
from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import BufferedMessage, BufferedSession, LoadedSession, ReceivedId, SessionKey
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from svc.proxy.mqtt.stored.forwarding import AckSource, Admission, Forwarder, ForwarderLimits, Moment, ReplayBackoff
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from tests.proxy.mqtt.stored.notary_model import DEMAND, RECORDED, ModelNotary, demand_of

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP
CLIENT_ID = "device"
OWNER = "spiffe://example.org/device"
#: Topics below it are acknowledged when the broker did.
RELAYED = "relayed/"
START = Moment(1000.0, 1_795_220_731.0)


class ModelStore:
    """A store whose operations become durable when the test commits; a crash loses the others."""

    def __init__(self) -> None:
        self.limits = BufferLimits()
        self.shares = BufferShares(self.limits)
        self.accepting = True
        #: Whether calls wait for the next commit where nothing is written, too: a disk slower than all the rest.
        self.waits = False
        self.sessions: dict[int, BufferedSession] = {}
        self.messages: dict[int, tuple[int, BufferedMessage]] = {}
        self.received_ids: dict[tuple[int, int], ReceivedId] = {}
        #: Dead letters and their causes, by payload; how many there may be, and how many there will be.
        self.dead_letters: dict[bytes, tuple[str, int]] = {}
        self.rejected: dict[bytes, BufferedMessage] = {}
        self.letters = 1000
        self._letters = 0
        #: When each payload was first durable.
        self.order: dict[bytes, int] = {}
        # Operations and calls of the group that grows, and of the one that is written.
        self._waiting: list[tuple[bool, Callable[[], None]]] = []
        self._current: list[tuple[bool, Callable[[], None]]] = []
        self._last_session = self._last_message = 0

    def limit(self, limits: BufferLimits) -> None:
        """Have other limits from now on."""
        octets, self.limits, self.shares = self.octets, limits, BufferShares(limits)
        self.shares.messages.take(OWNER, octets)

    @property
    def octets(self) -> int:
        """Octets of all messages."""
        return self.shares.messages.held(OWNER)

    def when_durable(self, then: Callable[[], None]) -> None:
        group = self._waiting or self._current
        if group or self.waits:
            (group or self._waiting).append((False, then))
        else:
            then()

    def session(self, session: BufferedSession) -> None:
        if not session.number:
            self._last_session += 1
            session.number = self._last_session
            self.shares.sessions.change(OWNER, 1)
        kept = copy.copy(session)
        self._record(lambda: self.sessions.__setitem__(kept.number, kept))

    def forget(self, session: BufferedSession) -> None:
        def forget() -> None:
            self.sessions.pop(session.number, None)
            self._forget_received(session.number)

        self.shares.sessions.change(OWNER, -1)
        self._record(forget)

    def store(self, session: BufferedSession, message: BufferedMessage) -> None:
        self._last_message += 1
        message.number = self._last_message
        self.shares.messages.take(OWNER, message.size)
        kept = copy.copy(message)

        def store() -> None:
            self.messages[kept.number] = (session.number, kept)
            self.order.setdefault(kept.payload, kept.number)

        self._record(store)

    def changed(self, message: BufferedMessage) -> None:
        state, upstream_id, refused = message.state, message.upstream_id, message.refused

        def change() -> None:
            kept = self.messages[message.number][1]
            kept.state, kept.upstream_id, kept.refused = state, upstream_id, refused

        self._record(change)

    def remove(self, session: BufferedSession, message: BufferedMessage) -> None:
        self.shares.messages.take(OWNER, -message.size)
        self._record(lambda: self.messages.pop(message.number) and None)

    def has_room(self, session: BufferedSession, message: BufferedMessage) -> bool:
        return self._letters < self.letters

    def dead_letter(
        self, session: BufferedSession, message: BufferedMessage, cause: str, code: int, now: float
    ) -> None:
        self._letters += 1
        self.rejected[message.payload] = copy.copy(message)
        self._record(lambda: self.dead_letters.__setitem__(message.payload, (cause, code)))

    def dead_letter_over(self, payload: bytes) -> None:
        self._letters -= 1
        self._record(lambda: self.dead_letters.pop(payload, None) and None)

    def received(self, session: BufferedSession, packet_id: int, received: ReceivedId) -> None:
        kept = copy.copy(received)
        self._record(lambda: self.received_ids.__setitem__((session.number, packet_id), kept))

    def released(self, session: BufferedSession, packet_id: int) -> None:
        self._record(lambda: self.received_ids.pop((session.number, packet_id), None) and None)  # type: ignore[arg-type]

    def all_released(self, session: BufferedSession) -> None:
        self._record(lambda: self._forget_received(session.number))

    def page(self, session: BufferedSession, after: int, count: int) -> list[BufferedMessage]:
        found = [copy.copy(each) for number, (owner, each) in sorted(self.messages.items()) if number > after]
        return [each for each in found if self.messages[each.number][0] == session.number][:count]

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not (self._waiting or self._current)

    def hand_over(self) -> None:
        """Begin to write what was recorded; what is recorded from now on is the next group."""
        if not self._current:
            self._current, self._waiting = self._waiting, []

    def commit(self) -> None:
        """Make a group durable, and make the calls that waited for it."""
        self.hand_over()
        current, self._current = self._current, []
        self._write(current)
        for operation, call in current:
            if not operation:
                call()

    def write(self) -> None:
        """Make a group durable without the calls."""
        self.hand_over()
        self._write(self._current)

    def _write(self, group: list[tuple[bool, Callable[[], None]]]) -> None:
        for operation, call in group:
            if operation:
                call()

    def crash(self) -> list[LoadedSession]:
        """Lose what is not durable; return what the next start loads."""
        self._waiting.clear()
        self._current.clear()
        loaded = []
        for number, session in self.sessions.items():
            own = [each for _number, (owner, each) in sorted(self.messages.items()) if owner == number]
            ids = {pid: copy.copy(each) for (owner, pid), each in self.received_ids.items() if owner == number}
            sizes, oldest = sum(each.size for each in own), own[0].stored if own else 0.0
            last = own[-1].number if own else 0
            loaded.append(LoadedSession(copy.copy(session), ids, len(own), sizes, oldest, last))
        self.shares = BufferShares(self.limits)
        self.shares.restore(loaded)
        self._letters = len(self.dead_letters)
        return loaded

    def _record(self, call: Callable[[], None]) -> None:
        self._waiting.append((True, call))

    def _forget_received(self, number: int) -> None:
        for key in [each for each in self.received_ids if each[0] == number]:
            del self.received_ids[key]


@dataclass
class BrokerSession:
    """What the broker remembers of a client."""

    received: dict[int, bytes] = field(default_factory=dict)
    filters: set[str] = field(default_factory=set)
    #: Deliveries that are not complete: PUBLISH, or PUBREL when PUBREC was received.
    outgoing: dict[int, Packet] = field(default_factory=dict)
    last_id: int = 0


class ModelBroker:
    """A broker with sessions; what it is sent that breaks the protocol is an assertion."""

    def __init__(self) -> None:
        self.sessions: dict[str, BrokerSession] = {}
        self.delivered: list[tuple[bytes, int]] = []
        self.wills: list[bytes] = []
        self.receive_maximum = 3
        self.rejects: set[bytes] = set()
        #: The code with which every message is refused for now; 0 where none is. Those that were.
        self.busy = 0
        self.kept_back: set[bytes] = set()
        self.connect: Connect | None = None
        self._unfinished: set[int] = set()

    def open(self, connect: Connect) -> Connack:
        """Accept a connection."""
        assert self.connect is None
        if connect.clean_start:
            self.sessions.pop(connect.client_id, None)
        present = connect.client_id in self.sessions
        self.sessions.setdefault(connect.client_id, BrokerSession())
        self.connect = connect
        self._unfinished = set()
        v5 = connect.version is Version.V5
        return Connack(present, 0, Properties(receive_maximum=self.receive_maximum if v5 else None))

    def close(self, last: Disconnect | None) -> None:
        """The connection ended, orderly with a last packet."""
        connect, self.connect = self.connect, None
        assert connect is not None
        if connect.will is not None and (last is None or last.code == 0x04):
            self.wills.append(connect.will.payload)
        expiry = connect.properties.session_expiry
        if last is not None and last.properties.session_expiry is not None:
            expiry = last.properties.session_expiry
        temporary = not expiry if connect.version is Version.V5 else connect.clean_start
        if temporary:
            self.sessions.pop(connect.client_id, None)

    def deliver(self, payload: bytes, qos: int) -> Publish:
        """Deliver a message to the client."""
        assert self.connect is not None
        session = self.sessions[self.connect.client_id]
        session.last_id += 1
        packet = Publish("x", payload, qos, packet_id=session.last_id)  # type: ignore[arg-type]
        session.outgoing[session.last_id] = packet
        return packet

    def repeats(self) -> list[Packet]:
        """What it sends behind CONNACK."""
        assert self.connect is not None
        outgoing = self.sessions[self.connect.client_id].outgoing.values()
        return [replace(each, dup=True) if isinstance(each, Publish) else each for each in outgoing]

    def _answered(self, session: BrokerSession, packet: Acknowledgement) -> list[Packet]:
        """PUBACK, PUBREC or PUBCOMP of a delivery."""
        name, delivery = packet.packet_id, session.outgoing.get(packet.packet_id)
        if packet.type is PUBREC:
            release = Acknowledgement(PUBREL, name)
            if delivery is not None:
                session.outgoing[name] = release
            return [release]
        expected = (
            isinstance(delivery, Publish) and delivery.qos == 1 if packet.type is PUBACK else delivery is not None
        )
        if expected:
            del session.outgoing[name]
        return []

    def got(self, packet: Packet) -> list[Packet]:
        """The answers to a packet."""
        assert self.connect is not None
        session = self.sessions[self.connect.client_id]
        if isinstance(packet, Publish):
            return self._publish(session, packet)
        if isinstance(packet, Acknowledgement) and packet.type is not PUBREL:
            return self._answered(session, packet)
        if isinstance(packet, Acknowledgement):
            session.received.pop(packet.packet_id, None)
            self._unfinished.discard(packet.packet_id)
            return [Acknowledgement(PUBCOMP, packet.packet_id)]
        if isinstance(packet, Subscribe):
            session.filters |= {each.filter for each in packet.subscriptions}
            return [Suback(packet.packet_id, [each.qos for each in packet.subscriptions])]
        if isinstance(packet, Unsubscribe):
            session.filters -= set(packet.filters)
            return [Unsuback(packet.packet_id, [0] if self.connect.version is Version.V5 else [])]
        assert isinstance(packet, Pingreq), packet
        return [Pingresp()]

    def _publish(self, session: BrokerSession, packet: Publish) -> list[Packet]:
        name = packet.packet_id
        assert packet.properties.message_expiry != 0, "some brokers take that for no expiry"
        code = 0x87 if packet.payload in self.rejects else 0
        if packet.qos:
            self._unfinished.add(name)
            if self.connect is not None and self.connect.version is Version.V5:
                assert len(self._unfinished) <= self.receive_maximum, "the Receive Maximum is exceeded"
        known = packet.qos == 2 and name in session.received
        if self.busy and packet.qos and not known and not code:
            code = self.busy
            self.kept_back.add(packet.payload)
        if known:
            assert session.received[name] == packet.payload, "the identifier of another message"
            assert packet.dup, "a repetition that is not marked"
        elif not code:
            self.delivered.append((packet.payload, packet.qos))
        if packet.qos == 2 and not code:
            session.received[name] = packet.payload
        if packet.qos == 1 or code:
            self._unfinished.discard(name)
        if packet.qos == 0:
            return []
        if self.connect.version is Version.V311:
            # It accepts, and forgets, what it may not refuse.
            code = 0
        return [Acknowledgement(PUBACK if packet.qos == 1 else PUBREC, name, code)]


class ModelClient:
    """A client that follows the standard, with a session of its own."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.connected = False
        self.answered = False
        #: What it has not seen complete, in order: payload, quality of service, whether released.
        self.unacked: dict[int, tuple[str, bytes, int, bool]] = {}
        self.acknowledged: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.presents: list[bool] = []
        self.subacks: list[int] = []
        self.got_packets: list[Packet] = []
        self._last_id = 0
        #: Whether an identifier that is free again is used at once.
        self.lowest_id = False
        #: Whether the session ends with its connection.
        self.temporary = False
        #: The identifiers of former connections.
        self._before: set[int] = set()
        #: Whether it has no session, and whether it has to close the connection for one that the server resumes.
        self.without_session = self.must_begin_anew = False

    def connect(self, *, clean: bool, will: bytes | None = None, expiry: int = 3600) -> Connect:
        self.connected, self.answered = True, False
        self.without_session, self.must_begin_anew = self.without_session or self.temporary or clean, False
        if clean or self.temporary:
            # A session that was to end with its connection is over for the client too.
            self.unacked.clear()
        self.temporary = not expiry if self.version is Version.V5 else clean
        self._before = set(self.unacked)
        last = None if will is None else Will("will", will)
        properties = Properties(session_expiry=expiry or None) if self.version is Version.V5 else Properties()
        return Connect(CLIENT_ID, self.version, clean, 30, last, properties=properties)

    def publish(self, payload: bytes, qos: int, topic: str) -> Publish:
        name = self.new_id() if qos else 0
        if qos:
            self.unacked[name] = (topic, payload, qos, False)
        return Publish(topic, payload, qos, packet_id=name)  # type: ignore[arg-type]

    def new_id(self) -> int:
        """The next free identifier, or the lowest."""
        if self.lowest_id:
            self._last_id = 0
        while True:
            self._last_id = self._last_id % 9 + 1
            if self._last_id not in self.unacked:
                return self._last_id

    def repeats(self) -> list[Packet]:
        """What it sends first on a connection that continues its session."""
        packets: list[Packet] = []
        for name, (topic, payload, qos, released) in self.unacked.items():
            if name not in self._before:
                continue
            if released:
                packets.append(Acknowledgement(PUBREL, name))
            else:
                packets.append(Publish(topic, payload, qos, dup=True, packet_id=name))  # type: ignore[arg-type]
        return packets

    def got(self, packet: Packet) -> list[Packet]:
        """What it answers."""
        self.got_packets.append(packet)
        if isinstance(packet, Connack):
            assert not self.answered, "a second CONNACK"
            self.answered = packet.code == 0
            self.presents.append(packet.session_present)
            # A server that crashed may not know that the session was to be another one [MQTT-3.2.2-4].
            self.must_begin_anew = packet.session_present and self.without_session
            if self.must_begin_anew:
                return []
            self.without_session = False
            if not packet.session_present:
                # The server knows nothing of what it sent on former connections (section 3.2.2.1.1).
                self.unacked = {name: entry for name, entry in self.unacked.items() if name not in self._before}
            return self.repeats() if self.answered else []
        assert self.answered, f"{packet} before CONNACK"
        if isinstance(packet, Suback):
            self.subacks.append(packet.packet_id)
        if isinstance(packet, Publish) and packet.qos:
            return [Acknowledgement(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id)]
        if isinstance(packet, Acknowledgement) and packet.type is PUBREL:
            return [Acknowledgement(PUBCOMP, packet.packet_id)]
        if not isinstance(packet, Acknowledgement):
            return []
        name, entry = packet.packet_id, self.unacked.get(packet.packet_id)
        if packet.type is PUBCOMP:
            if entry is not None and entry[3]:
                del self.unacked[name]
            return []
        if entry is None or (entry[2] == 2) is not (packet.type is PUBREC):
            return [Acknowledgement(PUBREL, name, 0x92)] if packet.type is PUBREC else []
        if packet.code >= 0x80:
            self.refused.add(entry[1])
            del self.unacked[name]
            return []
        self.acknowledged.add(entry[1])
        if packet.type is PUBACK:
            del self.unacked[name]
            return []
        self.unacked[name] = (*entry[:3], True)
        return [Acknowledgement(PUBREL, name)]


class Notes:
    """Records the reports of a forwarder."""

    def __init__(self) -> None:
        self.in_buffer = self.forwards = 0
        self.events: list[tuple[Any, ...]] = []

    def queued(self, change: int) -> None:
        self.in_buffer += change

    def stored(self) -> None:
        self.events.append(("stored",))

    def forwarded(self, qos: int) -> None:
        self.forwards += qos > 0

    def acked(self, source: str) -> None:
        self.events.append(("acked", source))

    def refused(self, cause: str) -> None:
        self.events.append(("refused", cause))

    def dropped(self, cause: str, code: int) -> None:
        self.events.append(("dropped", cause, code))

    def dead_letter(self, topic: str, cause: str, code: int) -> None:
        self.events.append(("dead letter", topic, cause, code))

    def dead_letters_full(self, topic: str) -> None:
        self.events.append(("dead letters full", topic))

    def held(self, code: int) -> None:
        self.events.append(("held", code))

    def reconnected(self, success: bool) -> None:
        self.events.append(("reconnected", success))

    def connack_rejected(self, code: int) -> None:
        self.events.append(("rejected", code))

    def link_failed(self, failure: str, code: int) -> None:
        self.events.append(("link failed", failure, code))

    def replay_failed(self) -> None:
        self.events.append(("replay failed",))

    def session_lost(self, resent: int) -> None:
        self.events.append(("session lost", resent))

    def credentials_missing(self) -> None:
        self.events.append(("credentials missing",))


class World:
    """All of it; a :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks` too."""

    def __init__(self, version: Version = Version.V5, **limits: Any) -> None:
        self.store, self.broker, self.client = ModelStore(), ModelBroker(), ModelClient(version)
        self.notes = Notes()
        self.limits = ForwarderLimits(
            **{"in_flight": 4, "backoff": ReplayBackoff(first=1.0, longest=8.0, budget=4), **limits}
        )
        self.now = START
        self.random = 1.0
        self.forwarder: Forwarder | None = None
        self.page_size = 3
        self.wanted: Connect | None = None
        self.connects: list[Connect] = []
        self.pages: list[int] = []
        self.wake: float | None = None
        self.to_broker: list[Packet] = []
        self.to_proxy: list[Packet] = []
        self.to_client: list[Packet] = []
        #: Identifiers of deliveries that the client got on both of its present connections.
        self.handed: set[int] = set()
        #: Upstream identifiers in use by the packets that the forwarder sent.
        self.in_use: dict[int, bytes] = {}
        self.notary = ModelNotary(self)
        #: Whether the rules refuse what the client publishes, and what they refused.
        self.denies = False
        #: Whether the forwarder is to go on with what the client sent.
        self.resumes = False
        #: Whether the client is not read.
        self.held = False
        self.denied: set[bytes] = set()
        #: Why the client was closed each time; empty where the forwarder gave no error.
        self.errors: list[str] = []

    # The links.

    def connect_upstream(self, connect: Connect) -> None:
        assert self.wanted is None and self.broker.connect is None, "two connections to the broker"
        self.wanted = connect
        self.connects.append(connect)

    def send_upstream(self, packet: Packet) -> None:
        assert self.broker.connect is not None, packet
        if isinstance(packet, Publish) and packet.qos:
            used = self.in_use.get(packet.packet_id)
            assert used in (None, packet.payload), "an identifier in use"
            self.in_use[packet.packet_id] = packet.payload
        elif isinstance(packet, (Subscribe, Unsubscribe)):
            assert packet.packet_id not in self.in_use, "an identifier in use"
            self.in_use[packet.packet_id] = b"request"
        self.to_broker.append(packet)

    def close_upstream(self, last: Disconnect | None) -> None:
        self.wanted = None
        if self.broker.connect is not None:
            for packet in self.to_broker if last is not None else ():
                self.broker.got(packet)
            self.broker.close(last)
        self._forget_link()

    def send_client(self, packet: Packet) -> None:
        assert self.client.connected or self.notary.closed, packet
        if self.client.connected:
            self.to_client.append(packet)
            if isinstance(packet, Publish) and packet.qos:
                self.handed.add(packet.packet_id)

    def admit(self, packet: Publish, demand: RecordDemand, *, stored: bool) -> Admission:
        assert demand == DEMAND
        return self.notary.admit(packet, stored=stored)

    def abandon(self, packet: Publish) -> None:
        self.notary.abandon(packet)

    def handed_over(self) -> None:
        self.notary.handed_over()

    def acknowledge(self, packet: Acknowledgement, source: AckSource, receipt: str, *, recorded: bool) -> None:
        if self.client.connected:
            self.notary.acknowledge(packet, source, receipt, recorded=recorded)

    def hold_client(self) -> None:
        self.held = self.client.connected

    def resume_client(self) -> None:
        self.resumes = True

    def close_client(self, last: Connack | Disconnect | None, error: SvcError | None = None) -> None:
        self.errors.append("" if error is None else error.reason)
        if last is not None:
            self.client.got_packets.append(last)
        self.forget_client()

    def read_page(self, after: int) -> None:
        self.pages.append(after)

    def wake_at(self, seconds: float | None) -> None:
        self.wake = seconds

    def ended(self) -> None:
        self.forwarder = None
        self.wake = None

    # Steps.

    def connect(self, *, clean: bool = False, will: bytes | None = None, expiry: int = 3600) -> None:
        """The client connects; a connection that it has is lost first."""
        self.lose_client()
        if self.forwarder is None:
            connect = Connect(CLIENT_ID, self.client.version)
            session = BufferedSession(SessionKey("iot", CLIENT_ID, OWNER), connect)
            self.forwarder = self._forwarder(LoadedSession(session))
        self.forwarder.client_connected(self.client.connect(clean=clean, will=will, expiry=expiry), self.now)
        self._pace()

    def lose_client(self) -> None:
        """The client's connection breaks."""
        self.notary.close()
        if self.client.connected:
            self.forget_client()
            assert self.forwarder is not None
            self.forwarder.client_lost(self.now)

    def disconnect(self, code: int = 0, expiry: int | None = None) -> None:
        """The client sends DISCONNECT."""
        self.client.temporary = self.client.temporary or expiry == 0
        self.forget_client()
        assert self.forwarder is not None
        self.forwarder.client_disconnected(Disconnect(code, Properties(session_expiry=expiry)), self.now)

    def publish(
        self, payload: bytes, qos: int = 1, *, relayed: bool = False, recorded: bool = False, **properties: Any
    ) -> None:
        """The client publishes."""
        topic = (RELAYED if relayed else "") + "t" + (RECORDED if recorded else "")
        packet = self.client.publish(payload, qos, topic)
        packet.properties = Properties(**properties)
        self.sends(packet)

    def sends(self, *packets: Packet) -> None:
        """The client sends packets."""
        for packet in packets:
            if self.client.connected and self.forwarder is not None:
                if self.denies and isinstance(packet, Publish):
                    self._deny(packet)
                else:
                    self.forwarder.client_packet(packet, self.now, demand_of(packet))
                self.notary.close()
        self._pace()

    def _pace(self) -> None:
        """Read the client, or not."""
        self.held = self.client.connected and self.forwarder is not None and self.forwarder.waiting

    def _deny(self, packet: Publish) -> None:
        """The rules refuse a message."""
        self.denied.add(packet.payload)
        if self.client.version is Version.V311:
            self.lose_client()
        elif packet.qos and self.forwarder is not None:
            kind = PUBACK if packet.qos == 1 else PUBREC
            self.forwarder.publish_refused(Acknowledgement(kind, packet.packet_id, 0x87), self.now)  # type: ignore[arg-type]

    def client_reads(self) -> bool:
        """The client reads one packet and answers."""
        if not self.to_client:
            return False
        self.sends(*self.client.got(self.to_client.pop(0)))
        if self.client.must_begin_anew:
            self.connect(clean=True, expiry=0 if self.client.temporary else 3600)
        return True

    def client_resumed(self) -> bool:
        """The forwarder goes on with what the client sent beyond its Receive Maximum."""
        resumes, self.resumes = self.resumes, False
        if resumes and self.forwarder is not None:
            self.forwarder.resume_client(self.now)
            self.notary.close()
            self._pace()
        return resumes

    def broker_accepts(self) -> bool:
        """The broker accepts the connection that is wanted."""
        connect, self.wanted = self.wanted, None
        if connect is None or self.forwarder is None:
            return False
        connack = self.broker.open(connect)
        if connack.session_present:
            self.to_proxy += self.broker.repeats()
        self.forwarder.upstream_connected(connack, self.now)
        self.notary.close()
        return True

    def broker_delivers(self, payload: bytes, qos: int) -> None:
        """The broker delivers a message to the client."""
        if self.broker.connect is not None:
            self.to_proxy.append(self.broker.deliver(payload, qos))

    def deliveries_complete(self) -> None:
        """
        The broker has the answers to what the client got, unless either connection ended meanwhile.

        They wait behind a message beyond the client's Receive Maximum, too, while the broker refuses one before it.
        """
        waits = self.forwarder is not None and self.forwarder.waiting
        if self.broker.connect is not None and self.client.connected and not waits:
            waiting = self.handed & set(self.broker.sessions[CLIENT_ID].outgoing)
            assert not waiting, f"deliveries {waiting} stay without an answer"

    def broker_unreachable(self) -> None:
        """The connection that is wanted cannot be opened."""
        if self.wanted is not None and self.forwarder is not None:
            self.wanted = None
            self.forwarder.upstream_lost(self.now)
            self.notary.close()

    def broker_refuses(self) -> None:
        """The broker refuses the credentials with which a connection is wanted."""
        if self.wanted is not None and self.forwarder is not None:
            code = 0x87 if self.wanted.version is Version.V5 else 5
            self.wanted = None
            self.forwarder.upstream_connected(Connack(code=code), self.now)
            self.notary.close()

    def broker_reads(self) -> bool:
        """The broker reads one packet and answers."""
        if not self.to_broker:
            return False
        self.to_proxy += self.broker.got(self.to_broker.pop(0))
        return True

    def proxy_reads(self) -> bool:
        """The forwarder gets one packet of the broker."""
        if not self.to_proxy or self.forwarder is None:
            return False
        packet = self.to_proxy.pop(0)
        complete = isinstance(packet, Acknowledgement) and (packet.type is not PUBREC or packet.code >= 0x80)
        if complete or isinstance(packet, (Suback, Unsuback)):
            self.in_use.pop(packet.packet_id, None)
        self.forwarder.upstream_packet(packet, self.now)
        return True

    def operator_sends(self) -> None:
        """An operator sends all dead letters after all."""
        for payload in list(self.store.dead_letters):
            message = self.store.rejected[payload].renewed(self.now.wall)
            if self.store.idle and self.forwarder is not None and self.forwarder.send_again(message, self.now):
                self.store.dead_letter_over(payload)

    def lose_link(self) -> None:
        """The connection to the broker breaks; what was on its way is lost."""
        if self.broker.connect is not None and self.forwarder is not None:
            self.broker.close(None)
            self._forget_link()
            self.forwarder.upstream_lost(self.now)
            self.notary.close()

    def reads_page(self) -> bool:
        """The page that is wanted is read."""
        if not self.pages or self.forwarder is None:
            return False
        page = self.store.page(self.forwarder.session, self.pages.pop(0), self.page_size)
        self.forwarder.got_page(page, self.now)
        return True

    def pass_time(self, seconds: float) -> None:
        """Time passes."""
        until = self.now.seconds + seconds
        while self.wake is not None and self.wake <= until and self.forwarder is not None:
            passed = max(0.0, self.wake - self.now.seconds)
            self.now = Moment(self.now.seconds + passed, self.now.wall + passed)
            self.wake = None
            self.forwarder.wake(self.now)
            self.forwarder and self.forwarder.wake(self.now)
            self.notary.close()
        passed = until - self.now.seconds
        self.now = Moment(until, self.now.wall + passed)

    def crash(self, *, written: bool, recorded: bool = False) -> None:
        """The process is killed, after or before writes that nobody was told of, and starts again."""
        if written:
            self.store.write()
        self.notary.forget(written=recorded)
        self.notary.closed = False
        if self.broker.connect is not None:
            self.broker.close(None)
        self.forget_client()
        self._forget_link()
        self.wanted, self.wake, self.forwarder = None, None, None
        self.pages.clear()
        self.notes.in_buffer = 0
        for loaded in self.store.crash():
            self.notes.in_buffer += loaded.messages
            self.forwarder = self._forwarder(loaded)
            self.forwarder.start(self.now)

    def admission(self, *, admitted: bool) -> None:
        """The notary admits a record that is demanded, or refuses it; the client may have been closed for it."""
        self.notary.answer(admitted=admitted)

    def notary_writes(self) -> bool:
        """The notary makes a record durable."""
        return self.notary.writes()

    def settle(self) -> None:
        """Everything works until nothing happens any more."""
        worked = 0
        for _turn in range(2000):
            if not (self.store.waits and worked):
                self.store.commit()
            self.admission(admitted=True)
            steps = (self.reads_page, self.broker_accepts, self.broker_reads, self.proxy_reads, self.client_reads)
            worked = sum(step() for step in (*steps, self.notary_writes, self.client_resumed))
            if not worked and self.store.idle:
                self.deliveries_complete()
                return
        raise AssertionError("it does not come to rest")

    def _forwarder(self, loaded: LoadedSession) -> Forwarder:
        return Forwarder(
            loaded,
            self.store,
            self,
            self.notes,
            self.limits,
            relays=lambda topic: topic.startswith(RELAYED),
            random=lambda: self.random,
        )

    def forget_client(self) -> None:
        """The client's connection is over."""
        self.client.connected = self.resumes = self.held = False
        self.to_client.clear()
        self.handed.clear()
        self.notary.forget()

    def _forget_link(self) -> None:
        self.to_broker.clear()
        self.to_proxy.clear()
        self.in_use.clear()
        self.handed.clear()
