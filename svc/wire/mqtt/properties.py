"""
The properties of MQTT 5.0 (section 2.2.2): which there are, what they hold, where they may stand.

One table is the rule for reading, writing and judging, and its rows are reached by what is present: a packet pays for
the properties that it has. Will properties count as a packet of their own here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from svc.wire.mqtt.codes import Sender
from svc.wire.mqtt.errors import (
    MqttError,
    ProtocolViolation,
    QuotaExceeded,
    TopicAliasInvalid,
    Unencodable,
)
from svc.wire.mqtt.primitives import MAX_VARIABLE, Cursor, binary, text, variable
from svc.wire.mqtt.topics import name_defect

#: The packets that have properties; ``WILL`` are those of the will in CONNECT.
Place = Literal[
    "CONNECT",
    "WILL",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "DISCONNECT",
    "AUTH",
]
Value = int | str | bytes | tuple[str, str]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Properties:
    """
    The properties of one packet; None is absent.

    An instance holds what is present alone; the class has the values of what is absent.

    Args:
        payload_format: 1 where the payload is UTF-8.
        message_expiry: seconds that the message is of use.
        content_type: what the payload is.
        response_topic: where an answer goes.
        correlation_data: what an answer repeats.
        session_expiry: seconds that a session outlives its connection; 0xFFFFFFFF is for ever.
        assigned_client_id: the identifier that the server chose.
        server_keep_alive: seconds, in place of what the client asked for.
        authentication_method: the name of an extended authentication.
        authentication_data: its data.
        request_problem_information: 0 where reason strings and user properties are not wanted in answers.
        will_delay: seconds between the end of a connection and its will.
        request_response_information: 1 where the client asks for response information.
        response_information: what response topics are made from.
        server_reference: another server.
        reason_string: a sentence for people.
        receive_maximum: messages with QoS above 0 that may be unacknowledged at once.
        topic_alias_maximum: the highest alias accepted.
        topic_alias: stands for the topic name.
        maximum_qos: the highest QoS of the server.
        retain_available: 0 where the server keeps no messages.
        maximum_packet_size: octets of the largest packet accepted.
        wildcard_subscription_available: 0 where the server has no wildcards.
        subscription_identifier_available: 0 where the server has no subscription identifiers.
        shared_subscription_available: 0 where the server has no shared subscriptions.
        subscription_identifiers: those of the subscriptions that a message matched, or the one of SUBSCRIBE.
        user: names and values, in order.
    """

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None
    subscription_identifiers: tuple[int, ...] = ()
    user: tuple[tuple[str, str], ...] = ()

    if not TYPE_CHECKING:  # A type checker sees the initialiser of a dataclass.

        def __init__(self, **members: Value | tuple[Value, ...] | None) -> None:
            if not members.keys() <= _RANKS.keys():
                raise TypeError(f"there are no properties {', '.join(members.keys() - _RANKS.keys())}")
            vars(self).update({name: value for name, value in members.items() if value is not None and value != ()})

    def replaced(self, **members: Value | tuple[Value, ...] | None) -> Properties:
        """
        Make the same properties but for some, as :func:`dataclasses.replace` does, at the cost of what is present.

        Args:
            members: the new values; None and an empty tuple are absent.

        Returns:
            The properties.
        """
        return Properties(**{**vars(self), **members})

    def __repr__(self) -> str:
        """Show what is present; authentication data are a secret."""
        shown = (
            f"{name}={'...' if name == 'authentication_data' else repr(vars(self)[name])}"
            for name in sorted(vars(self), key=_RANKS.__getitem__)
        )
        return f"Properties({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """Whether the same properties are present with the same values."""
        return vars(self) == vars(other) if isinstance(other, Properties) else NotImplemented

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(frozenset(vars(self).items()))

    def __bool__(self) -> bool:
        """Whether any property is present."""
        return bool(vars(self))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a value stands on the wire."""

    read: Callable[[Cursor], Value]
    write: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class _Property:
    """One row of the table: an integer from low to high, a text, octets, or where it is repeated a tuple."""

    identifier: int
    member: str
    kind: _Kind
    places: frozenset[Place]
    low: int = 0
    high: int = MAX_VARIABLE
    repeated: bool = False


def _integer(octets: int) -> Callable[[int], bytes]:
    def write(value: int) -> bytes:
        return value.to_bytes(octets, "big")

    return write


def _read_pair(cursor: Cursor) -> tuple[str, str]:
    return cursor.text(), cursor.text()


def _write_pair(pair: tuple[str, str]) -> bytes:
    return text(pair[0]) + text(pair[1])


_U8: Final = _Kind(Cursor.u8, _integer(1))
_U16: Final = _Kind(Cursor.u16, _integer(2))
_U32: Final = _Kind(Cursor.u32, _integer(4))
_VARIABLE: Final = _Kind(Cursor.variable, variable)
_TEXT: Final = _Kind(Cursor.text, text)
_BINARY: Final = _Kind(Cursor.binary, binary)
_PAIR: Final = _Kind(_read_pair, _write_pair)

_MAX_U32: Final = 0xFFFFFFFF
_MESSAGE: Final[frozenset[Place]] = frozenset({"PUBLISH", "WILL"})
_BEGIN: Final[frozenset[Place]] = frozenset({"CONNECT", "CONNACK"})
_CONNECT: Final[frozenset[Place]] = frozenset({"CONNECT"})
_CONNACK: Final[frozenset[Place]] = frozenset({"CONNACK"})
_AUTHENTICATION: Final[frozenset[Place]] = frozenset({"CONNECT", "CONNACK", "AUTH"})
_EXPLAINED: Final[frozenset[Place]] = frozenset(
    {"CONNACK", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK", "DISCONNECT", "AUTH"}
)

_TABLE: Final = (
    _Property(0x01, "payload_format", _U8, _MESSAGE, high=1),
    _Property(0x02, "message_expiry", _U32, _MESSAGE, high=_MAX_U32),
    _Property(0x03, "content_type", _TEXT, _MESSAGE),
    _Property(0x08, "response_topic", _TEXT, _MESSAGE),
    _Property(0x09, "correlation_data", _BINARY, _MESSAGE),
    _Property(0x11, "session_expiry", _U32, _BEGIN | {"DISCONNECT"}, high=_MAX_U32),
    _Property(0x12, "assigned_client_id", _TEXT, _CONNACK),
    _Property(0x13, "server_keep_alive", _U16, _CONNACK),
    _Property(0x15, "authentication_method", _TEXT, _AUTHENTICATION),
    _Property(0x16, "authentication_data", _BINARY, _AUTHENTICATION),
    _Property(0x17, "request_problem_information", _U8, _CONNECT, high=1),
    _Property(0x18, "will_delay", _U32, frozenset({"WILL"}), high=_MAX_U32),
    _Property(0x19, "request_response_information", _U8, _CONNECT, high=1),
    _Property(0x1A, "response_information", _TEXT, _CONNACK),
    _Property(0x1C, "server_reference", _TEXT, _CONNACK | {"DISCONNECT"}),
    _Property(0x1F, "reason_string", _TEXT, _EXPLAINED),
    _Property(0x21, "receive_maximum", _U16, _BEGIN, low=1),
    _Property(0x22, "topic_alias_maximum", _U16, _BEGIN),
    _Property(0x23, "topic_alias", _U16, frozenset({"PUBLISH"})),
    _Property(0x24, "maximum_qos", _U8, _CONNACK, high=1),
    _Property(0x25, "retain_available", _U8, _CONNACK, high=1),
    _Property(0x27, "maximum_packet_size", _U32, _BEGIN, low=1, high=_MAX_U32),
    _Property(0x28, "wildcard_subscription_available", _U8, _CONNACK, high=1),
    _Property(0x29, "subscription_identifier_available", _U8, _CONNACK, high=1),
    _Property(0x2A, "shared_subscription_available", _U8, _CONNACK, high=1),
    _Property(0x0B, "subscription_identifiers", _VARIABLE, frozenset({"PUBLISH", "SUBSCRIBE"}), repeated=True),
    _Property(0x26, "user", _PAIR, frozenset(get_args(Place)), repeated=True),
)
#: The order in which properties are judged and written.
_RANKS: Final = {row.member: rank for rank, row in enumerate(_TABLE)}
#: The rows, reached by what is present: by member, and by packet and identifier.
_BY_MEMBER: Final = {row.member: row for row in _TABLE}
_BY_PLACE: Final[dict[Place, dict[int, _Property]]] = {
    place: {row.identifier: row for row in _TABLE if place in row.places} for place in get_args(Place)
}
_REPEATED: Final = tuple(row.member for row in _TABLE if row.repeated)
#: What is judged by more than its lowest and highest value.
_JUDGED: Final = frozenset(
    {
        "topic_alias",
        "response_topic",
        "subscription_identifiers",
        "authentication_data",
        "session_expiry",
        "server_reference",
    }
)
#: No property at all; what packets of MQTT 3.1.1 have.
NONE: Final = Properties()


def read(cursor: Cursor, place: Place, sender: Sender, limit: int) -> Properties:
    """
    Read the properties of a packet, their length first.

    Args:
        cursor: stands at the property length.
        place: the packet.
        sender: who sent it.
        limit: the most properties accepted.

    Returns:
        The properties.

    Raises:
        MalformedPacket: a value is cut short or a property is unknown or does not belong there [MQTT-2.2.2-2].
        ProtocolViolation: one stands twice or has a value that is not allowed.
        TopicAliasInvalid: the alias is 0 [MQTT-3.3.2-8].
        QuotaExceeded: there are more than ``limit``.
    """
    length = cursor.variable()
    if not length:
        return NONE
    if length > cursor.left:
        raise cursor.malformed("its properties are longer than the packet")
    properties = object.__new__(Properties)
    _read_all(Cursor(place, cursor.octets(length), 0, length), place, limit, vars(properties))
    _judge(properties, place, sender)
    return properties


def _read_all(cursor: Cursor, place: Place, limit: int, present: dict[str, Any]) -> None:
    rows = _BY_PLACE[place]
    count = 0
    while cursor.position < cursor.end:
        count += 1
        if count > limit:
            raise QuotaExceeded(packet=place, limit=limit, items="properties")
        identifier = cursor.variable()
        row = rows.get(identifier)
        if row is None:
            raise cursor.malformed(f"the property 0x{identifier:02x} does not belong there")
        if row.repeated:
            present.setdefault(row.member, []).append(row.kind.read(cursor))
        elif row.member in present:
            raise ProtocolViolation(packet=place, defect=f"the property {row.member} stands twice")
        else:
            present[row.member] = row.kind.read(cursor)
    for member in _REPEATED:
        if member in present:
            present[member] = tuple(present[member])


def _judge(properties: Properties, place: Place, sender: Sender) -> None:
    present = vars(properties)
    wrong = []
    for member, value in present.items():
        if isinstance(value, int) and not (row := _BY_MEMBER[member]).low <= value <= row.high:
            wrong.append(member)
    if wrong:
        first = min(wrong, key=_RANKS.__getitem__)
        raise ProtocolViolation(packet=place, defect=f"the property {first} must not be {present[first]}")
    # Most packets have none of these, and are done.
    if not _JUDGED.isdisjoint(present):
        _judge_more(properties, place, sender)


def _judge_more(properties: Properties, place: Place, sender: Sender) -> None:
    if properties.topic_alias == 0:
        raise TopicAliasInvalid(alias=0)
    if properties.response_topic is not None and (defect := name_defect(properties.response_topic)):
        raise ProtocolViolation(packet=place, defect=f"in the response topic {defect}")
    _judge_identifiers(properties.subscription_identifiers, place, sender)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation(packet=place, defect="authentication data come without a method")
    if properties.session_expiry is not None and place == "DISCONNECT" and sender == "server":
        raise ProtocolViolation(packet=place, defect="a server does not set the session expiry at the end")
    if properties.server_reference is not None and sender == "client":
        raise ProtocolViolation(packet=place, defect="a client refers to no server")


def _judge_identifiers(identifiers: tuple[int, ...], place: Place, sender: Sender) -> None:
    if not identifiers:
        return
    if 0 in identifiers:
        raise ProtocolViolation(packet=place, defect="a subscription identifier is 0")
    if place == "SUBSCRIBE" and len(identifiers) > 1:
        raise ProtocolViolation(packet=place, defect="the property subscription_identifiers stands twice")
    if place == "PUBLISH" and sender == "client":
        raise ProtocolViolation(packet=place, defect="a client sends no subscription identifiers")


def written(properties: Properties, place: Place, sender: Sender) -> bytes:
    """
    Write the properties of a packet with their length in front.

    Args:
        properties: what to write; the members come in the order of their identifiers, then the user properties.
        place: the packet.
        sender: who sends it.

    Returns:
        Their octets.

    Raises:
        Unencodable: a property does not belong there or has a value that is not allowed.
    """
    present = vars(properties)
    if not present:
        return b"\x00"
    try:
        _judge(properties, place, sender)
    except MqttError as error:
        raise Unencodable(packet=place, defect=str(error)) from error
    parts: list[bytes] = []
    for member in sorted(present, key=_RANKS.__getitem__):
        row, value = _BY_MEMBER[member], present[member]
        if place not in row.places:
            who = "subscription identifiers do" if row.repeated else f"the property {member} does"
            raise Unencodable(packet=place, defect=f"{who} not belong there")
        head, write = variable(row.identifier), row.kind.write
        parts += [head + write(each) for each in value] if row.repeated else (head, write(value))
    block = b"".join(parts)
    return variable(len(block)) + block
