"""The values of the buffer, and the operations on them: plain values, made on the reactor's thread."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from typing import Any, Final, Literal, NamedTuple

from svc.proxy.mqtt.stored.buffer.keys import ContentUnreadable
from svc.sqlite.operations import Parameters
from svc.wire.mqtt import NO_PROPERTIES, Connect, Decoder, MqttError, PacketLimits, Properties, Publish, QoS, encode
from svc.wire.mqtt.primitives import Cursor, encode_text
from svc.wire.mqtt.properties import encode_properties, read_properties
from svc.wire.mqtt.stream import find_packet

#: Why a message is a dead letter: its refusal lasts, it exceeds the Maximum Packet Size, it was refused for too long.
RejectionCause = Literal["rejected", "too_large", "age"]
#: What a row costs beside its content, roughly.
ROW: Final = 128
#: What was accepted once is read back, whatever the limits are now.
_NO_LIMIT: Final = 100_000
_ANY_PACKET: Final = PacketLimits(
    packet=2**28, properties=_NO_LIMIT, levels=_NO_LIMIT, filters=_NO_LIMIT, first_packet=2**28
)
_MESSAGE_ROW: Final = struct.Struct(">cqqBBHBd")
_RECEIVED_ROW: Final = struct.Struct(">cqHq")


class SessionKey(NamedTuple):
    """Whose session it is."""

    #: The name of the listener.
    listener: str
    client_id: str
    #: The identity that may resume it.
    owner: str

    @property
    def holder(self) -> str:
        """Whose part of the buffer it takes: that of an identity, or of all clients of a listener without one."""
        return self.owner or f"listener {self.listener}"


@unique
class MessageState(IntEnum):
    """How far a message is on its way to the broker."""

    #: Not sent.
    STORED = 0
    #: PUBLISH was or will be sent with its upstream packet identifier.
    SENT = 1
    #: PUBREC was received: PUBREL is owed, until PUBCOMP.
    RELEASED = 2


@dataclass(slots=True)
class BufferedMessage:
    """A message of a client on its way to the broker."""

    topic: str
    payload: bytes
    qos: QoS
    retain: bool
    #: Those of the PUBLISH, without a topic alias.
    properties: Properties
    #: The client's packet identifier; 0 with QoS 0.
    packet_id: int
    #: Whether the client gets its acknowledgement from the broker, and not when the message is stored.
    relayed: bool
    #: When it was stored, in seconds since 1970 UTC.
    stored: float
    #: Its place in the order of all messages; 0 while it is not stored.
    number: int = 0
    state: MessageState = MessageState.STORED
    #: The packet identifier towards the broker; 0 while it is not sent.
    upstream_id: int = 0
    #: When the broker first did not accept it, in seconds since 1970 UTC; 0 while it has not.
    refused: float = 0.0

    @property
    def size(self) -> int:
        """Approximate octets that it takes in the buffer."""
        return ROW + len(self.topic) + len(self.payload) + _properties_size(self.properties)

    def renewed(self, now: float) -> BufferedMessage:
        """The same message as one that is stored now, with what is left of its Message Expiry Interval."""
        properties, interval = self.properties, self.properties.message_expiry
        if interval is not None:
            properties = properties.replace(message_expiry=max(0, interval - max(0, int(now - self.stored))))
        topic, payload, qos, retain = self.topic, self.payload, self.qos, self.retain
        return BufferedMessage(topic, payload, qos, retain, properties, 0, relayed=False, stored=now)

    def expired(self, now: float) -> bool:
        """Whether its Message Expiry Interval has passed; ``now`` is in seconds since 1970 UTC."""
        interval = self.properties.message_expiry
        return interval is not None and now - self.stored >= interval


@dataclass(slots=True)
class ReceivedId:
    """A packet identifier of a QoS 2 message of the client that the client has not released."""

    #: The number of its message.
    number: int
    #: Whether PUBREC waits for that of the broker.
    owed: bool = False
    #: The identifier of the receipt that is sent with PUBREC; empty for none.
    receipt: str = ""
    #: The reason code of the broker's PUBREC, where that is what the client gets.
    code: int | None = None
    #: The digest of the message, while its record is due: before it, there is no PUBREC. Empty where none is due.
    due: bytes = b""


@dataclass(slots=True)
class BufferedSession:
    """The durable part of a session besides its messages."""

    key: SessionKey
    #: With which the connection to the broker is opened, without the will where it must not be published any more.
    connect: Connect
    #: That of a client which came before the end of the former connection was carried out at the broker.
    next: Connect | None = None
    #: When the client's last connection ended, in seconds since 1970 UTC; 0 while it is open.
    ended: float = 0.0
    #: Seconds that the session outlives that connection; None is without limit.
    expiry: int | None = 0
    #: The number of the last message that is forwarded before ``next``.
    until: int = 0
    #: Whether the broker's session is to begin anew with ``next``, or with ``connect`` where there is no next.
    clean: bool = False
    #: Whether the broker has a session, as far as is known.
    opened: bool = False
    #: Whether there is a connection to the broker, whose loss publishes the will.
    linked: bool = False
    #: Whether the session began anew, here or at the broker, and the client has not read that in CONNACK.
    renewed: bool = False
    #: Whether credentials of CONNECT are missing, since they are stored encrypted only.
    incomplete: bool = False
    #: Its row; 0 while it has none.
    number: int = 0


@unique
class Wanted(IntEnum):
    """What an operator wants done with a dead letter."""

    NOTHING = 0
    SEND = 1
    DELETE = 2


@dataclass(slots=True)
class DeadLetter:
    """A message that was acknowledged and that the broker will not accept."""

    #: Its session, which may be over.
    key: SessionKey
    #: With which its session was connected to the broker, without the will.
    connect: Connect
    #: Whether credentials of CONNECT are missing, since they are stored encrypted only.
    incomplete: bool
    message: BufferedMessage
    #: When it became a dead letter, in seconds since 1970 UTC.
    rejected: float
    cause: RejectionCause
    #: The broker's reason code; 0 where it gave none.
    code: int


class ReadLetter(NamedTuple):
    """A row of the table of dead letters."""

    number: int
    wanted: Wanted
    #: None where it cannot be read: it was altered, or its key is gone.
    letter: DeadLetter | None


@dataclass(slots=True)
class LoadedSession:
    """A session as the buffer has it at its opening."""

    session: BufferedSession
    #: By the client's packet identifier.
    received: dict[int, ReceivedId] = field(default_factory=dict)
    #: Of its messages: how many, their octets, when the oldest was stored, and the number of the last.
    messages: int = 0
    octets: int = 0
    oldest: float = 0.0
    last: int = 0


@unique
class BufferKind(IntEnum):
    """What an operation does; its parameters are those of the statement of the same name in ``writer``."""

    MESSAGE = 0
    MESSAGE_CHANGED = 1
    MESSAGE_OVER = 2
    SESSION = 3
    SESSION_OVER = 4
    RECEIVED = 5
    RELEASED = 6
    ALL_RELEASED = 7
    DEAD_LETTER = 8
    DEAD_LETTER_OVER = 9


def message_parameters(session: int, message: BufferedMessage) -> Parameters:
    """The parameters of ``MESSAGE``; the content is not encrypted yet."""
    return (
        message.number,
        session,
        message.qos,
        int(message.retain),
        message.packet_id,
        int(message.relayed),
        message.stored,
        message.size,
        _content(message),
        int(message.state),
        message.upstream_id,
        message.refused,
    )


def _content(message: BufferedMessage | Publish) -> bytes:
    return encode_text(message.topic) + encode_properties(message.properties, "PUBLISH", "client") + message.payload


def message_digest(message: BufferedMessage | Publish) -> bytes:
    """What all packets of one message have in common; a PUBLISH is without a topic alias."""
    return hashlib.sha256(bytes((message.qos, message.retain)) + _content(message)).digest()


def received_parameters(session: int, packet_id: int, received: ReceivedId) -> Parameters:
    """The parameters of ``RECEIVED``; the digest is not encrypted yet."""
    values = (session, packet_id, received.number, int(received.owed), received.receipt, received.code)
    return (*values, received.due or None)


def received_row(session: int, packet_id: int, number: int) -> bytes:
    """The associated data of the digest of a packet identifier's message."""
    return _RECEIVED_ROW.pack(b"r", session, packet_id, number)


def message_row(number: int, session: int, qos: int, retain: int, packet_id: int, relayed: int, stored: float) -> bytes:
    """The associated data of a message's content: what of its row does not change."""
    return _MESSAGE_ROW.pack(b"m", number, session, qos, retain, packet_id, relayed, stored)


def dead_letter_parameters(letter: DeadLetter, *, encrypted: bool) -> Parameters:
    """The parameters of ``DEAD_LETTER``; the content is not encrypted yet."""
    message = letter.message
    connect, incomplete = _storable(replace(letter.connect, will=None), encrypted=encrypted)
    return (
        message.number,
        *letter.key,
        int(incomplete or letter.incomplete),
        message.qos,
        int(message.retain),
        float(message.stored),
        float(letter.rejected),
        letter.cause,
        int(letter.code),
        message.size,
        encode(connect, connect.version, "client") + _content(message),
    )


def dead_letter_row(*columns: Any) -> bytes:
    """The associated data of a dead letter's content: its row up to its size."""
    return b"\0".join([b"d", *(str(each).encode() for each in columns)])


def read_dead_letter(content: bytes, columns: tuple[Any, ...]) -> DeadLetter:
    """Make a dead letter of its content and the other columns, or raise ContentUnreadable."""
    number, listener, client_id, owner, incomplete, qos, retain, stored, rejected, cause, code = columns
    try:
        found = find_packet(content, 0, _ANY_PACKET.packet)
    except MqttError as error:
        raise ContentUnreadable(str(error)) from error
    if isinstance(found, int):
        raise ContentUnreadable("its CONNECT is incomplete")
    [connect] = _read_connects(content[: found[1]])
    message = read_message(content[found[1] :], (number, qos, retain, 0, 0, stored, MessageState.STORED, 0, 0.0))
    key = SessionKey(listener, client_id, owner)
    return DeadLetter(key, connect, bool(incomplete), message, rejected, cause, code)


def read_message(content: bytes, columns: tuple[Any, ...]) -> BufferedMessage:
    """Make a message of its content and the other columns, or raise ContentUnreadable."""
    number, qos, retain, packet_id, relayed, stored, state, upstream_id, refused = columns
    try:
        cursor = Cursor("PUBLISH", content, 0, len(content))
        topic = cursor.text()
        properties = read_properties(cursor, "PUBLISH", "client", _NO_LIMIT)
        payload = cursor.octets(cursor.remaining)
        stage = MessageState(state)
    except (MqttError, ValueError) as error:
        raise ContentUnreadable(str(error)) from error
    message = BufferedMessage(topic, payload, qos, bool(retain), properties, packet_id, bool(relayed), stored)
    return replace(message, number=number, state=stage, upstream_id=upstream_id, refused=refused)


def session_parameters(session: BufferedSession, *, encrypted: bool) -> Parameters:
    """The parameters of ``SESSION``, without credentials where they would not be ``encrypted``."""
    incomplete = session.incomplete
    packets = []
    for connect in (session.connect, session.next):
        if connect is not None:
            connect, without = _storable(connect, encrypted=encrypted)
            incomplete = incomplete or without
            packets.append(encode(connect, connect.version, "client"))
    return (
        session.number,
        *session.key,
        b"".join(packets),
        int(incomplete),
        session.ended,
        session.expiry,
        session.until,
        int(session.clean),
        int(session.opened),
        int(session.linked),
        int(session.renewed),
    )


def _storable(connect: Connect, *, encrypted: bool) -> tuple[Connect, bool]:
    """CONNECT as it is stored, and whether that is without its credentials."""
    if encrypted or (connect.username, connect.password) == (None, None):
        return connect, False
    return replace(connect, username=None, password=None), True


def session_row(number: int, key: SessionKey) -> bytes:
    """The associated data of a session's content."""
    return b"\0".join([b"s", str(number).encode(), *(each.encode() for each in key)])


def read_session(number: int, key: SessionKey, content: bytes, columns: tuple[Any, ...]) -> BufferedSession:
    """Make a session of its content and the other columns, or raise ContentUnreadable."""
    incomplete, ended, expiry, until, clean, opened, linked, renewed = columns
    packets = _read_connects(content)
    if not packets:
        raise ContentUnreadable("its CONNECT is missing")
    return BufferedSession(
        key=key,
        connect=packets[0],
        next=packets[1] if len(packets) > 1 else None,
        ended=ended,
        expiry=expiry,
        until=until,
        clean=bool(clean),
        opened=bool(opened),
        linked=bool(linked),
        renewed=bool(renewed),
        incomplete=bool(incomplete),
        number=number,
    )


def _read_connects(content: bytes) -> list[Connect]:
    packets: list[Connect] = []
    position = 0
    while position < len(content):
        try:
            found = find_packet(content, position, _ANY_PACKET.packet)
        except MqttError as error:
            raise ContentUnreadable(str(error)) from error
        if isinstance(found, int):
            raise ContentUnreadable("its CONNECT is incomplete")
        # Each CONNECT is the first packet of a connection.
        [packet] = Decoder("client", limits=_ANY_PACKET).feed(content[position : found[1]])
        if not isinstance(packet, Connect):
            raise ContentUnreadable("its CONNECT cannot be read")
        packets.append(packet)
        position = found[1]
    return packets


def _properties_size(properties: Properties) -> int:
    return 0 if properties is NO_PROPERTIES else len(encode_properties(properties, "PUBLISH", "client"))
