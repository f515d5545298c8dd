"""Hypothesis strategies: any packet that a side may send in a version."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from svc.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Sender,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from svc.wire.mqtt.codes import AUTH_REASONS, DISCONNECT_REASONS, REASONS
from svc.wire.mqtt.primitives import is_valid_text

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).filter(is_valid_text)
LEVELS = TEXTS.map(lambda level: level.replace("/", "").replace("+", "").replace("#", ""))
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.one_of(
    st.tuples(st.lists(st.one_of(LEVELS, st.just("+")), max_size=3), st.one_of(LEVELS, st.sampled_from("+#")))
    .map(lambda parts: "/".join([*parts[0], parts[1]]))
    .filter(lambda made: bool(made) and not made.startswith("$share/")),
)
SHARED = st.tuples(LEVELS.filter(bool), FILTERS).map(lambda parts: f"$share/{parts[0]}/{parts[1]}")
IDS = st.integers(1, 65535)
QOS = st.sampled_from([0, 1, 2])
BLOBS = st.binary(max_size=20)
_U16 = st.integers(0, 65535)
_U32 = st.integers(0, 0xFFFFFFFF)
_BIT = st.integers(0, 1)

_MESSAGE: dict[str, st.SearchStrategy[Any]] = {
    "payload_format": _BIT,
    "message_expiry": _U32,
    "content_type": TEXTS,
    "response_topic": TOPICS,
    "correlation_data": BLOBS,
}
_EXPLAINED: dict[str, st.SearchStrategy[Any]] = {"reason_string": TEXTS}
_BEGIN: dict[str, st.SearchStrategy[Any]] = {
    "session_expiry": _U32,
    "receive_maximum": IDS,
    "maximum_packet_size": st.integers(1, 0xFFFFFFFF),
    "topic_alias_maximum": _U16,
    "authentication_method": TEXTS,
}

#: The properties of each packet, besides user properties.
MEMBERS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "CONNECT": {**_BEGIN, "request_problem_information": _BIT, "request_response_information": _BIT},
    "WILL": {**_MESSAGE, "will_delay": _U32},
    "CONNACK": {
        **_BEGIN,
        **_EXPLAINED,
        "assigned_client_id": TEXTS,
        "server_keep_alive": _U16,
        "response_information": TEXTS,
        "server_reference": TEXTS,
        "maximum_qos": _BIT,
        "retain_available": _BIT,
        "wildcard_subscription_available": _BIT,
        "subscription_identifier_available": _BIT,
        "shared_subscription_available": _BIT,
    },
    "PUBLISH": {**_MESSAGE, "topic_alias": IDS},
    "PUBACK": _EXPLAINED,
    "PUBREC": _EXPLAINED,
    "PUBREL": _EXPLAINED,
    "PUBCOMP": _EXPLAINED,
    "SUBSCRIBE": {"subscription_identifiers": st.tuples(st.integers(1, 268_435_455))},
    "SUBACK": _EXPLAINED,
    "UNSUBSCRIBE": {},
    "UNSUBACK": _EXPLAINED,
    "DISCONNECT": _EXPLAINED,
    "AUTH": {**_EXPLAINED, "authentication_data": BLOBS},
}


def properties(position: str, version: Version, **always: st.SearchStrategy[Any]) -> st.SearchStrategy[Properties]:
    """Generate properties that a packet may have."""
    if version is Version.V311:
        return st.just(NO_PROPERTIES)
    user = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
    optional = {**MEMBERS[position], "user": user}
    for name in always:
        optional.pop(name, None)
    return st.fixed_dictionaries(always, optional=optional).map(lambda chosen: Properties(**chosen))


def _connect(version: Version) -> st.SearchStrategy[Packet]:
    wills = st.builds(Will, TOPICS, BLOBS, QOS, st.booleans(), properties("WILL", version))
    made = st.builds(
        Connect,
        TEXTS,
        st.just(version),
        st.booleans(),
        _U16,
        st.none() | wills,
        st.none() | TEXTS,
        st.none() | BLOBS,
        properties("CONNECT", version),
    )
    if version is Version.V5:
        return made
    return made.filter(
        lambda each: (each.client_id or each.clean_start) and (each.username is not None or each.password is None)
    )


def _publish(version: Version, sender: Sender) -> st.SearchStrategy[Packet]:
    def whole(qos: int) -> st.SearchStrategy[Packet]:
        dup, packet_id = (st.booleans(), IDS) if qos else (st.just(False), st.just(0))
        named = st.builds(
            Publish, TOPICS, BLOBS, st.just(qos), st.booleans(), dup, packet_id, properties("PUBLISH", version)
        )
        if version is Version.V311:
            return named
        aliased = properties("PUBLISH", version, topic_alias=IDS)
        alone = st.builds(Publish, st.just(""), BLOBS, st.just(qos), st.booleans(), dup, packet_id, aliased)
        if sender == "client":
            return named | alone
        several = st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple)
        matched = properties("PUBLISH", version, subscription_identifiers=several)
        return named | alone | st.builds(Publish, TOPICS, BLOBS, st.just(qos), st.booleans(), dup, packet_id, matched)

    return QOS.flatmap(whole)


def _acknowledgement(version: Version) -> st.SearchStrategy[Packet]:
    kinds = [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]

    def whole(kind: PacketType) -> st.SearchStrategy[Packet]:
        codes = st.sampled_from(sorted(REASONS[kind])) if version is Version.V5 else st.just(0)
        return st.builds(Acknowledgement, st.just(kind), IDS, codes, properties(kind.name, version))

    return st.sampled_from(kinds).flatmap(whole)


def _subscribe(version: Version) -> st.SearchStrategy[Packet]:
    if version is Version.V311:
        one = st.builds(Subscription, FILTERS | SHARED, QOS)
    else:
        flags = (st.booleans(), QOS)
        one = st.builds(Subscription, FILTERS, QOS, st.booleans(), *flags) | st.builds(
            Subscription, SHARED, QOS, st.just(False), *flags
        )
    return st.builds(Subscribe, IDS, st.lists(one, min_size=1, max_size=4), properties("SUBSCRIBE", version))


def _of_client(version: Version) -> list[st.SearchStrategy[Packet]]:
    filters = st.lists(FILTERS | SHARED, min_size=1, max_size=4)
    return [
        _subscribe(version),
        st.builds(Unsubscribe, IDS, filters, properties("UNSUBSCRIBE", version)),
        st.just(Pingreq()),
        _disconnect(version, "client"),
    ]


def _codes(kind: PacketType, version: Version) -> st.SearchStrategy[list[int]]:
    if version is Version.V5:
        return st.lists(st.sampled_from(sorted(REASONS[kind])), min_size=1, max_size=4)
    return (
        st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=4) if kind is PacketType.SUBACK else st.just([])
    )


def _of_server(version: Version) -> list[st.SearchStrategy[Packet]]:
    made: list[st.SearchStrategy[Packet]] = [
        st.builds(Suback, IDS, _codes(PacketType.SUBACK, version), properties("SUBACK", version)),
        st.builds(Unsuback, IDS, _codes(PacketType.UNSUBACK, version), properties("UNSUBACK", version)),
        st.just(Pingresp()),
    ]
    return [*made, _disconnect(version, "server")] if version is Version.V5 else made


def _disconnect(version: Version, sender: Sender) -> st.SearchStrategy[Packet]:
    if version is Version.V311:
        return st.just(Disconnect())
    extra = {"session_expiry": _U32} if sender == "client" else {"server_reference": TEXTS}
    chosen = st.one_of(properties("DISCONNECT", version), properties("DISCONNECT", version, **extra))
    return st.builds(Disconnect, st.sampled_from(sorted(DISCONNECT_REASONS[sender])), chosen)


def _auth(version: Version, sender: Sender) -> list[st.SearchStrategy[Packet]]:
    if version is Version.V311:
        return []
    named = properties("AUTH", version, authentication_method=TEXTS)
    return [st.builds(Auth, st.sampled_from(sorted(AUTH_REASONS[sender])), named)]


def first(version: Version, sender: Sender) -> st.SearchStrategy[Packet]:
    """Generate the first packet of a side."""
    if sender == "client":
        return _connect(version)
    refusals = REASONS[PacketType.CONNACK] if version is Version.V5 else frozenset(range(6))
    accepted = st.builds(Connack, st.booleans(), st.just(0), properties("CONNACK", version))
    refused = st.builds(Connack, st.just(False), st.sampled_from(sorted(refusals)), properties("CONNACK", version))
    return accepted | refused


def later(version: Version, sender: Sender) -> st.SearchStrategy[Packet]:
    """Generate any later packet."""
    own = _of_client(version) if sender == "client" else _of_server(version)
    return st.one_of(_publish(version, sender), _acknowledgement(version), *own, *_auth(version, sender))
