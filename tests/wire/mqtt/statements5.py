"""The normative statements of MQTT 5.0 that a codec can decide."""

from __future__ import annotations

from svc.wire.mqtt import Sender, TopicAliasInvalid
from svc.wire.mqtt.codes import AUTH_REASONS, DISCONNECT_REASONS, REASONS, PacketType
from tests.wire.mqtt.building import connack, packet, text
from tests.wire.mqtt.common_statements import (
    common,
    filter_rows,
    flag_rows,
    name_rows,
    text_statements,
    utf8_row,
    will_rows,
)
from tests.wire.mqtt.rows import (
    NUL,
    ONE,
    OVERLONG,
    SURROGATE,
    Statement,
    T,
    flags,
    malformed,
    publish,
    subscribe,
    unsubscribe,
    violations,
)


def property_rows() -> list[Statement]:
    def with_properties(block: bytes) -> bytes:
        return publish(T, bytes((len(block),)) + block)

    response, content = b"\x08" + text("r"), b"\x03" + text("c")
    bad = (SURROGATE, OVERLONG, NUL)
    return [
        Statement(
            5,
            "1.5.5-1",
            "variable byte integers have the fewest octets",
            (with_properties(b"\x01\x01"), packet(0xC0)),
            malformed(
                b"\xc0\x80\x00", publish(T, b"\x80\x00"), publish(T, b"\x83\x00\x01\x01"), b"\xc0\xff\xff\xff\xff\x01"
            ),
        ),
        Statement(
            5,
            "1.5.7-1",
            "both texts of a pair are UTF-8",
            (with_properties(b"\x26" + text("n") + text("v")),),
            malformed(
                *(with_properties(b"\x26" + each + text("v")) for each in bad),
                *(with_properties(b"\x26" + text("n") + each) for each in bad),
            ),
        ),
        Statement(
            5,
            "2.2.2-1",
            "without properties their length 0 is there",
            (packet(0x30, T, b"\x00"),),
            malformed(
                packet(0x30, T), packet(0x82, b"\x00\x01"), packet(0xA2, b"\x00\x01"), packet(0x30, T, b"\x05\x01")
            ),
        ),
        Statement(
            5,
            "2.2.2-2",
            "a property that is unknown or belongs elsewhere is malformed",
            (with_properties(content),),
            malformed(
                with_properties(b"\x04\x00"),
                with_properties(b"\x11\x00\x00\x00\x01"),
                with_properties(b"\x00\x00"),
                with_properties(b"\x2b\x00"),
                with_properties(b"\xff\x01\x00"),
                with_properties(b"\x24\x01"),
            ),
        ),
        Statement(
            5,
            "3.3.2-8",
            "a topic alias is not 0",
            (with_properties(b"\x23\x00\x01"),),
            ((with_properties(b"\x23\x00\x00"), TopicAliasInvalid),),
        ),
        Statement(
            5,
            "3.3.2-13",
            "the response topic is UTF-8",
            (with_properties(response),),
            malformed(*(with_properties(b"\x08" + each) for each in bad)),
        ),
        Statement(
            5,
            "3.3.2-14",
            "the response topic holds no wildcard",
            (with_properties(response),),
            violations(*(with_properties(b"\x08" + text(each)) for each in ("#", "a/+", "+/b"))),
        ),
        Statement(
            5,
            "3.3.2-19",
            "the content type is UTF-8",
            (with_properties(content),),
            malformed(*(with_properties(b"\x03" + each) for each in bad)),
        ),
        Statement(
            5,
            "3.3.4-6",
            "a client sends no subscription identifiers",
            (with_properties(b""),),
            violations(with_properties(b"\x0b\x01"), with_properties(b"\x0b\xff\xff\xff\x7f")),
        ),
        Statement(
            5,
            "3.8.2.1.2",
            "a subscription identifier is not 0 and occurs once in SUBSCRIBE",
            (packet(0x82, b"\x00\x01\x02\x0b\x01", ONE),),
            violations(packet(0x82, b"\x00\x01\x02\x0b\x00", ONE), packet(0x82, b"\x00\x01\x04\x0b\x01\x0b\x02", ONE)),
        ),
        Statement(
            5,
            "3.1.2.11.3",
            "a receive maximum is not 0",
            (connecting(b"\x21\x00\x01"),),
            violations(connecting(b"\x21\x00\x00"), connecting(b"\x21\x00\x01\x21\x00\x01")),
            opens=True,
        ),
        Statement(
            5,
            "3.1.2.11.4",
            "a maximum packet size is not 0",
            (connecting(b"\x27\x00\x00\x00\x01"),),
            violations(connecting(b"\x27\x00\x00\x00\x00")),
            opens=True,
        ),
        Statement(
            5,
            "3.1.2.11.6",
            "requests for information are 0 or 1",
            (connecting(b"\x19\x01\x17\x00"),),
            violations(connecting(b"\x19\x02"), connecting(b"\x17\x02"), connecting(b"\x17\x00\x17\x00")),
            opens=True,
        ),
        Statement(
            5,
            "3.1.2.11.10",
            "authentication data come with a method",
            (connecting(b"\x15" + text("m") + b"\x16" + text("d")),),
            violations(connecting(b"\x16" + text("d"))),
            opens=True,
        ),
    ]


def connecting(block: bytes) -> bytes:
    """Write CONNECT with properties."""
    return packet(0x10, text("MQTT") + b"\x05\x02\x00\x3c" + bytes((len(block),)) + block + text("c"))


def reason_rows() -> list[Statement]:
    """Every packet with a reason code: all that it may carry, and all that it may not."""
    method = b"\x04\x15\x00\x01m"
    rows: list[tuple[str, Sender, frozenset[int], bytes, bytes, bytes, bool]] = [
        ("3.2.2-7", "server", REASONS[PacketType.CONNACK], b"\x20", b"\x00", b"\x00", True),
        ("3.4.2-1", "client", REASONS[PacketType.PUBACK], b"\x40", b"\x00\x01", b"", False),
        ("3.5.2-1", "client", REASONS[PacketType.PUBREC], b"\x50", b"\x00\x01", b"", False),
        ("3.6.2-1", "client", REASONS[PacketType.PUBREL], b"\x62", b"\x00\x01", b"", False),
        ("3.7.2-1", "client", REASONS[PacketType.PUBCOMP], b"\x70", b"\x00\x01", b"", False),
        ("3.9.3-2", "server", REASONS[PacketType.SUBACK], b"\x90", b"\x00\x01\x00", b"", False),
        ("3.11.3-2", "server", REASONS[PacketType.UNSUBACK], b"\xb0", b"\x00\x01\x00", b"", False),
        ("3.14.2-1", "client", DISCONNECT_REASONS["client"], b"\xe0", b"", b"", False),
        ("3.14.2-1", "server", DISCONNECT_REASONS["server"], b"\xe0", b"", b"", False),
        ("3.15.2-1", "client", AUTH_REASONS["client"], b"\xf0", b"", method, False),
        ("3.15.2-1", "server", AUTH_REASONS["server"], b"\xf0", b"", method, False),
    ]
    return [
        Statement(
            5,
            number,
            "the reason code is one of the packet's own",
            tuple(packet(first[0], before + bytes((code,)) + behind) for code in sorted(allowed)),
            violations(
                *(packet(first[0], before + bytes((code,)) + behind) for code in range(256) if code not in allowed)
            ),
            sender=sender,
            opens=opens,
        )
        for number, sender, allowed, first, before, behind, opens in rows
    ]


def statements() -> list[Statement]:
    none = b"\x00"
    zero = (
        subscribe(ONE, identifier=b"\x00\x00"),
        unsubscribe(T, identifier=b"\x00\x00"),
        publish(T, b"\x00\x00\x00", 0x32),
        publish(T, b"\x00\x00\x00", 0x34),
        b"\x40\x02\x00\x00",
        b"\x62\x02\x00\x00",
    )
    share = "$share/g/t"
    return [
        *text_statements(5, "1.5.4"),
        *flag_rows(5),
        *common(5),
        *property_rows(),
        *reason_rows(),
        Statement(
            5,
            "2.2.1-2",
            "with QoS 0 there is no packet identifier: properties follow the topic",
            (publish(T, none + b"\x00\x00"),),
        ),
        Statement(
            5,
            "2.2.1-3",
            "packet identifiers are not 0",
            (subscribe(ONE), publish(T, b"\x00\x01\x00", 0x32)),
            violations(*zero),
        ),
        *will_rows(5, ("3.1.2-11", "3.1.2-12", "3.1.2-13")),
        *name_rows(5, ("3.1.2-16", "3.1.2-17", "3.1.2-18", "3.1.2-19")),
        utf8_row(5, "3.1.3-11", "the topic of the will is UTF-8", 0x06, before=none, after=text("p")),
        utf8_row(5, "3.1.3-12", "the user name is UTF-8", 0x82),
        Statement(5, "3.2.0-2", "a server sends one CONNACK", (b"\xd0\x00",), violations(connack()), sender="server"),
        Statement(
            5,
            "3.2.2-1",
            "reserved acknowledge flags are 0",
            (packet(0x20, b"\x01\x00\x00"),),
            malformed(*(packet(0x20, bytes((each, 0, 0))) for each in (2, 3, 4, 0x80, 0xFF))),
            sender="server",
            opens=True,
        ),
        Statement(
            5,
            "3.2.2-6",
            "a refusal has no session",
            (packet(0x20, b"\x00\x87\x00"),),
            violations(packet(0x20, b"\x01\x87\x00"), packet(0x20, b"\x01\x80\x00")),
            sender="server",
            opens=True,
        ),
        Statement(5, "3.8.3-2", "SUBSCRIBE names a topic filter", (subscribe(ONE + ONE),), violations(subscribe(b""))),
        Statement(
            5,
            "3.8.3-4",
            "No Local does not go with a shared subscription",
            (subscribe(text(share) + b"\x00"), subscribe(T + b"\x04")),
            violations(subscribe(text(share) + b"\x04")),
        ),
        Statement(
            5,
            "3.8.3-5",
            "reserved subscription options are 0",
            (subscribe(T + b"\x2e"),),
            malformed(*(subscribe(T + bytes((each,))) for each in (0x40, 0x80, 0xC0, 0x03))),
        ),
        Statement(
            5, "3.8.3.1", "retain handling is not 3", (subscribe(T + b"\x20"),), violations(subscribe(T + b"\x30"))
        ),
        Statement(
            5,
            "3.14.2-2",
            "a server sets no session expiry at the end",
            (packet(0xE0, b"\x00\x00"),),
            violations(packet(0xE0, b"\x00\x05\x11\x00\x00\x00\x01")),
            sender="server",
        ),
        Statement(
            5,
            "3.14.2-2",
            "a client may set the session expiry at the end",
            (packet(0xE0, b"\x00\x05\x11\x00\x00\x00\x01"),),
        ),
        Statement(5, "3.15.1-1", "the flags of AUTH are 0", *flags(15, 0, b"\x18\x04\x15\x00\x01m")),
        Statement(
            5,
            "4.7.0-1",
            "a topic name holds no wildcard",
            (publish(text("a/b")),),
            malformed(publish(text("a/+")), publish(text("#"))),
        ),
        *filter_rows(5, "4.7.1-1", "4.7.1-2"),
        Statement(
            5,
            "4.8.2-1",
            "a share name has a character",
            (subscribe(text(share) + b"\x00"),),
            malformed(subscribe(text("$share//t") + b"\x00"), subscribe(text("$share/") + b"\x00")),
        ),
        Statement(
            5,
            "4.8.2-2",
            "a share name holds no wildcard and a filter follows it",
            (subscribe(text("$share/g/+/#") + b"\x00"),),
            malformed(
                *(
                    subscribe(text(each) + b"\x00")
                    for each in ("$share/+/t", "$share/g#/t", "$share/g", "$share/g/", "$share/g/a#")
                )
            ),
        ),
    ]
