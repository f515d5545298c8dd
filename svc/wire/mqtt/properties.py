"""
The properties of MQTT 5.0 (section 2.2.2): their types, values and packets.

One table is the rule for reading, writing and checking, and only the rows of the present properties are visited: the
cost of a packet depends on the properties that it has. Will properties count as a packet of their own here.
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
from svc.wire.mqtt.primitives import MAX_VARIABLE, Cursor, encode_binary, encode_text, encode_variable
from svc.wire.mqtt.topics import name_defect

#: The packets that have properties; ``WILL`` stands for the will in CONNECT.
PropertyOwner = Literal[
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

    The members are named after the properties of section 2.2.2.2; times are in seconds. ``subscription_identifiers``
    are those of the subscriptions that a message matched, or the one of SUBSCRIBE.

    An instance stores only what is present; the class has the values of what is absent.
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
            if not members.keys() <= _ORDER.keys():
                raise TypeError(f"there are no properties {', '.join(members.keys() - _ORDER.keys())}")
            vars(self).update({name: value for name, value in members.items() if value is not None and value != ()})

    def replace(self, **members: Value | tuple[Value, ...] | None) -> Properties:
        """Return a copy with new values, None and () for absent, as :func:`dataclasses.replace` but faster."""
        return Properties(**{**vars(self), **members})

    def __repr__(self) -> str:
        """Show what is present, without authentication data, which are secret."""
        shown = (
            f"{name}={'...' if name == 'authentication_data' else repr(vars(self)[name])}"
            for name in sorted(vars(self), key=_ORDER.__getitem__)
        )
        return f"Properties({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """Whether the same properties are present with the same values."""
        return vars(self) == vars(other) if isinstance(other, Properties) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(frozenset(vars(self).items()))

    def __bool__(self) -> bool:
        """Whether any property is present."""
        return bool(vars(self))


@dataclass(frozen=True, slots=True)
class _Type:
    """How a value is read and written."""

    read: Callable[[Cursor], Value]
    write: Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class _Property:
    """One row of the table; low and high bound integers, and a repeated property is a tuple."""

    identifier: int
    member: str
    type: _Type
    owners: frozenset[PropertyOwner]
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
    return encode_text(pair[0]) + encode_text(pair[1])


_U8: Final = _Type(Cursor.u8, _integer(1))
_U16: Final = _Type(Cursor.u16, _integer(2))
_U32: Final = _Type(Cursor.u32, _integer(4))
_VARIABLE: Final = _Type(Cursor.variable, encode_variable)
_TEXT: Final = _Type(Cursor.text, encode_text)
_BINARY: Final = _Type(Cursor.binary, encode_binary)
_PAIR: Final = _Type(_read_pair, _write_pair)

_MAX_U32: Final = 0xFFFFFFFF
_MESSAGE: Final[frozenset[PropertyOwner]] = frozenset({"PUBLISH", "WILL"})
_BOTH_CONNECT: Final[frozenset[PropertyOwner]] = frozenset({"CONNECT", "CONNACK"})
_CONNECT: Final[frozenset[PropertyOwner]] = frozenset({"CONNECT"})
_CONNACK: Final[frozenset[PropertyOwner]] = frozenset({"CONNACK"})
_AUTHENTICATION: Final[frozenset[PropertyOwner]] = frozenset({"CONNECT", "CONNACK", "AUTH"})
_RESPONSES: Final[frozenset[PropertyOwner]] = frozenset(
    {"CONNACK", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK", "DISCONNECT", "AUTH"}
)

_TABLE: Final = (
    _Property(0x01, "payload_format", _U8, _MESSAGE, high=1),
    _Property(0x02, "message_expiry", _U32, _MESSAGE, high=_MAX_U32),
    _Property(0x03, "content_type", _TEXT, _MESSAGE),
    _Property(0x08, "response_topic", _TEXT, _MESSAGE),
    _Property(0x09, "correlation_data", _BINARY, _MESSAGE),
    _Property(0x11, "session_expiry", _U32, _BOTH_CONNECT | {"DISCONNECT"}, high=_MAX_U32),
    _Property(0x12, "assigned_client_id", _TEXT, _CONNACK),
    _Property(0x13, "server_keep_alive", _U16, _CONNACK),
    _Property(0x15, "authentication_method", _TEXT, _AUTHENTICATION),
    _Property(0x16, "authentication_data", _BINARY, _AUTHENTICATION),
    _Property(0x17, "request_problem_information", _U8, _CONNECT, high=1),
    _Property(0x18, "will_delay", _U32, frozenset({"WILL"}), high=_MAX_U32),
    _Property(0x19, "request_response_information", _U8, _CONNECT, high=1),
    _Property(0x1A, "response_information", _TEXT, _CONNACK),
    _Property(0x1C, "server_reference", _TEXT, _CONNACK | {"DISCONNECT"}),
    _Property(0x1F, "reason_string", _TEXT, _RESPONSES),
    _Property(0x21, "receive_maximum", _U16, _BOTH_CONNECT, low=1),
    _Property(0x22, "topic_alias_maximum", _U16, _BOTH_CONNECT),
    _Property(0x23, "topic_alias", _U16, frozenset({"PUBLISH"})),
    _Property(0x24, "maximum_qos", _U8, _CONNACK, high=1),
    _Property(0x25, "retain_available", _U8, _CONNACK, high=1),
    _Property(0x27, "maximum_packet_size", _U32, _BOTH_CONNECT, low=1, high=_MAX_U32),
    _Property(0x28, "wildcard_subscription_available", _U8, _CONNACK, high=1),
    _Property(0x29, "subscription_identifier_available", _U8, _CONNACK, high=1),
    _Property(0x2A, "shared_subscription_available", _U8, _CONNACK, high=1),
    _Property(0x0B, "subscription_identifiers", _VARIABLE, frozenset({"PUBLISH", "SUBSCRIBE"}), repeated=True),
    _Property(0x26, "user", _PAIR, frozenset(get_args(PropertyOwner)), repeated=True),
)
#: The order in which properties are checked and written.
_ORDER: Final = {row.member: rank for rank, row in enumerate(_TABLE)}
#: The rows by member, and by packet and identifier.
_BY_MEMBER: Final = {row.member: row for row in _TABLE}
_BY_OWNER: Final[dict[PropertyOwner, dict[int, _Property]]] = {
    owner: {row.identifier: row for row in _TABLE if owner in row.owners} for owner in get_args(PropertyOwner)
}
_REPEATED: Final = tuple(row.member for row in _TABLE if row.repeated)
#: Properties with rules beyond their lowest and highest value.
_RESTRICTED: Final = frozenset(
    {
        "topic_alias",
        "response_topic",
        "subscription_identifiers",
        "authentication_data",
        "session_expiry",
        "server_reference",
    }
)
#: The properties of packets of MQTT 3.1.1.
NO_PROPERTIES: Final = Properties()


def read_properties(cursor: Cursor, owner: PropertyOwner, sender: Sender, limit: int) -> Properties:
    """Read up to ``limit`` properties, their length first; an unknown or misplaced one is malformed [MQTT-2.2.2-2]."""
    length = cursor.variable()
    if not length:
        return NO_PROPERTIES
    if length > cursor.remaining:
        raise cursor.malformed("its properties are longer than the packet")
    properties = object.__new__(Properties)
    _read_all(Cursor(owner, cursor.octets(length), 0, length), owner, limit, vars(properties))
    _check(properties, owner, sender)
    return properties


def _read_all(cursor: Cursor, owner: PropertyOwner, limit: int, present: dict[str, Any]) -> None:
    rows = _BY_OWNER[owner]
    count = 0
    while cursor.position < cursor.end:
        count += 1
        if count > limit:
            raise QuotaExceeded(packet=owner, limit=limit, items="properties")
        identifier = cursor.variable()
        row = rows.get(identifier)
        if row is None:
            raise cursor.malformed(f"the property 0x{identifier:02x} is not allowed there")
        if row.repeated:
            present.setdefault(row.member, []).append(row.type.read(cursor))
        elif row.member in present:
            raise ProtocolViolation(packet=owner, defect=f"the property {row.member} occurs twice")
        else:
            present[row.member] = row.type.read(cursor)
    for member in _REPEATED:
        if member in present:
            present[member] = tuple(present[member])


def _check(properties: Properties, owner: PropertyOwner, sender: Sender) -> None:
    present = vars(properties)
    wrong = []
    for member, value in present.items():
        if isinstance(value, int) and not (row := _BY_MEMBER[member]).low <= value <= row.high:
            wrong.append(member)
    if wrong:
        first = min(wrong, key=_ORDER.__getitem__)
        raise ProtocolViolation(packet=owner, defect=f"the property {first} must not be {present[first]}")
    # Most packets have none of these.
    if not _RESTRICTED.isdisjoint(present):
        _check_restrictions(properties, owner, sender)


def _check_restrictions(properties: Properties, owner: PropertyOwner, sender: Sender) -> None:
    if properties.topic_alias == 0:
        raise TopicAliasInvalid(alias=0)
    if properties.response_topic is not None and (defect := name_defect(properties.response_topic)):
        raise ProtocolViolation(packet=owner, defect=f"in the response topic, {defect}")
    _check_identifiers(properties.subscription_identifiers, owner, sender)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation(packet=owner, defect="authentication data without an authentication method")
    if properties.session_expiry is not None and owner == "DISCONNECT" and sender == "server":
        raise ProtocolViolation(packet=owner, defect="a server must not set the session expiry in DISCONNECT")
    if properties.server_reference is not None and sender == "client":
        raise ProtocolViolation(packet=owner, defect="a client must not set a server reference")


def _check_identifiers(identifiers: tuple[int, ...], owner: PropertyOwner, sender: Sender) -> None:
    if not identifiers:
        return
    if 0 in identifiers:
        raise ProtocolViolation(packet=owner, defect="a subscription identifier is 0")
    if owner == "SUBSCRIBE" and len(identifiers) > 1:
        raise ProtocolViolation(packet=owner, defect="the property subscription_identifiers occurs twice")
    if owner == "PUBLISH" and sender == "client":
        raise ProtocolViolation(packet=owner, defect="a client must not send subscription identifiers")


def encode_properties(properties: Properties, owner: PropertyOwner, sender: Sender) -> bytes:
    """Encode properties behind their length, in the order of the table; Unencodable where the packet forbids one."""
    present = vars(properties)
    if not present:
        return b"\x00"
    try:
        _check(properties, owner, sender)
    except MqttError as error:
        raise Unencodable(packet=owner, defect=str(error)) from error
    parts: list[bytes] = []
    for member in sorted(present, key=_ORDER.__getitem__):
        row, value = _BY_MEMBER[member], present[member]
        if owner not in row.owners:
            raise Unencodable(packet=owner, defect=f"the property {member} is not allowed there")
        head, write = encode_variable(row.identifier), row.type.write
        parts += [head + write(each) for each in value] if row.repeated else (head, write(value))
    block = b"".join(parts)
    return encode_variable(len(block)) + block
