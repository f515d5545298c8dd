"""Normative statements that both versions share, under the number that each has for them."""

from __future__ import annotations

from svc.wire.mqtt import VersionUnsupported
from tests.wire.mqtt.building import connack, connect, packet, text
from tests.wire.mqtt.rows import (
    BOM,
    CUT,
    MALFORMED,
    NUL,
    ONE,
    OVERLONG,
    SURROGATE,
    VIOLATION,
    WILL,
    Statement,
    T,
    flags,
    malformed,
    publish,
    subscribe,
    unsubscribe,
    violations,
)


def text_statements(version: int, section: str) -> list[Statement]:
    v5 = version == 5
    bad = (SURROGATE, OVERLONG, CUT)
    return [
        Statement(
            version,
            f"{section}-1",
            "text is well-formed UTF-8 without surrogates",
            (publish(text("tö€😀"), v5=v5),),
            malformed(*(publish(each, v5=v5) for each in bad), *(subscribe(each + b"\x00", v5=v5) for each in bad)),
        ),
        Statement(
            version,
            f"{section}-2",
            "text holds no U+0000",
            (publish(T, v5=v5),),
            malformed(publish(NUL, v5=v5), subscribe(NUL + b"\x00", v5=v5)),
        ),
        Statement(version, f"{section}-3", "U+FEFF stays in a text", (publish(BOM, v5=v5),)),
    ]


def common(version: int) -> list[Statement]:
    """Statements that have the same number and octets in both versions."""
    v5 = version == 5
    none = b"\x00" if v5 else b""
    by_will = none + text("w") + text("p") if v5 else WILL
    release = flags(6, 2, b"\x00\x01")
    subscribes = flags(8, 2, b"\x00\x01" + none, ONE)
    unsubscribes = flags(10, 2, b"\x00\x01" + none, T)
    disconnects = flags(14, 0)
    return [
        Statement(
            version,
            "3.1.0-1",
            "the first packet of a client is CONNECT",
            (connect(version),),
            violations(b"\xc0\x00", publish(T, v5=v5), b"\xe0\x00"),
            opens=True,
        ),
        Statement(
            version, "3.1.0-2", "a second CONNECT is a protocol error", (b"\xc0\x00",), violations(connect(version))
        ),
        Statement(
            version,
            "3.1.2-1",
            "the protocol name is MQTT",
            (connect(version),),
            tuple((connect(version, name=each), VersionUnsupported) for each in (b"MQIsdp", b"mqtt", b"", b"MQTT\x00")),
            opens=True,
        ),
        Statement(
            version,
            "3.1.2-2",
            "another protocol level is refused with its reason",
            (connect(version),),
            tuple((connect(each), VersionUnsupported) for each in (0, 1, 2, 3, 6, 0x84, 255)),
            opens=True,
        ),
        Statement(
            version,
            "3.1.2-3",
            "the reserved connect flag is 0",
            (connect(version, 0x02),),
            malformed(connect(version, 0x03)),
            opens=True,
        ),
        Statement(
            version,
            "3.1.2-9",
            "with the will flag come topic and payload of the will",
            (connect(version, 0x06, text("c"), by_will),),
            malformed(connect(version, 0x06), connect(version, 0x06, text("c"), none + text("w"))),
            opens=True,
        ),
        Statement(
            version,
            "3.1.3-1",
            "the payload's fields come in their order",
            (connect(version, 0xC6, text("c"), by_will, text("u"), text("p")),),
            malformed(connect(version, 0xC6, text("c"), by_will, text("u"))),
            opens=True,
        ),
        Statement(
            version,
            "3.1.3-3",
            "the client identifier is there",
            (connect(version),),
            malformed(packet(0x10, text("MQTT") + bytes((version,)) + b"\x02\x00\x3c" + none)),
            opens=True,
        ),
        Statement(
            version,
            "3.1.3-4",
            "the client identifier is UTF-8",
            (connect(version, 0x02, text("ö")),),
            malformed(connect(version, 0x02, SURROGATE)),
            opens=True,
        ),
        Statement(
            version,
            "3.1.3-5",
            "identifiers of 1 to 23 letters and digits are accepted",
            tuple(connect(version, 0x02, text(each)) for each in ("a", "Z9" * 11 + "0", "0123456789abcdefghijklm")),
            opens=True,
        ),
        Statement(
            version,
            "3.2.0-1",
            "the first packet of a server is CONNACK",
            (connack(version),),
            violations(b"\xd0\x00", publish(T, v5=v5)),
            sender="server",
            opens=True,
        ),
        Statement(
            version,
            "3.3.1-2",
            "DUP is 0 with QoS 0",
            (publish(T, b"\x00\x01" + none, 0x3A, v5),),
            malformed(publish(T, first=0x38, v5=v5), publish(T, first=0x39, v5=v5)),
        ),
        Statement(
            version,
            "3.3.1-4",
            "QoS is not 3",
            (publish(T, b"\x00\x01" + none, 0x34, v5),),
            malformed(*(publish(T, b"\x00\x01" + none, each, v5) for each in (0x36, 0x37, 0x3E, 0x3F))),
        ),
        Statement(
            version,
            "3.3.2-1",
            "the topic name is the first field and UTF-8",
            (publish(text("ö"), v5=v5),),
            malformed(packet(0x30), packet(0x30, b"\x00"), packet(0x30, b"\x00\x05t"), publish(SURROGATE, v5=v5)),
        ),
        Statement(
            version,
            "3.3.2-2",
            "the topic name holds no wildcard",
            (publish(text("a/b"), v5=v5),),
            malformed(*(publish(text(each), v5=v5) for each in ("#", "a/#", "+", "a/+/b", "a#", "+a"))),
        ),
        Statement(version, "3.6.1-1", "the flags of PUBREL are 0010", *release),
        Statement(version, "3.8.1-1", "the flags of SUBSCRIBE are 0010", *subscribes),
        Statement(
            version,
            "3.8.3-1",
            "topic filters are UTF-8",
            (subscribe(text("ö/#") + b"\x00", v5=v5),),
            malformed(*(subscribe(each + b"\x00", v5=v5) for each in (SURROGATE, OVERLONG, CUT))),
        ),
        Statement(version, "3.10.1-1", "the flags of UNSUBSCRIBE are 0010", *unsubscribes),
        Statement(
            version,
            "3.10.3-1",
            "topic filters are UTF-8",
            (unsubscribe(text("ö/#"), v5=v5),),
            malformed(*(unsubscribe(each, v5=v5) for each in (SURROGATE, OVERLONG, CUT))),
        ),
        Statement(
            version,
            "3.10.3-2",
            "UNSUBSCRIBE names a topic filter",
            (unsubscribe(T + T, v5=v5),),
            violations(unsubscribe(b"", v5=v5)),
        ),
        Statement(version, "3.14.1-1", "the flags of DISCONNECT are 0", *disconnects),
        Statement(
            version,
            "4.7.3-1",
            "topics have at least one character",
            (
                publish(T, v5=v5),
                subscribe(ONE, v5=v5),
                publish(text("/"), v5=v5),
                subscribe(text("/") + b"\x00", v5=v5),
            ),
            malformed(subscribe(text("") + b"\x00", v5=v5), unsubscribe(text(""), v5=v5))
            + ((publish(text(""), v5=v5), VIOLATION if v5 else MALFORMED),),
        ),
        Statement(
            version,
            "4.7.3-2",
            "topics hold no U+0000",
            (publish(T, v5=v5),),
            malformed(publish(NUL, v5=v5), subscribe(NUL + b"\x00", v5=v5), unsubscribe(NUL, v5=v5)),
        ),
        Statement(version, "4.7.3-3", "topics have at most 65,535 octets", (publish(text("t" * 65535), v5=v5),)),
    ]


def flag_rows(version: int) -> list[Statement]:
    """The reserved flags of every packet, by either number that the versions have for them."""
    v5 = version == 5
    none = b"\x00" if v5 else b""
    of_client = {4: b"\x00\x01", 5: b"\x00\x01", 7: b"\x00\x01", 12: b""}
    of_server = {9: b"\x00\x01" + none + b"\x00", 11: b"\x00\x01" + none + (b"\x00" if v5 else b""), 13: b""}
    rows = []
    for number in ("2.1.3-1",) if v5 else ("2.2.2-1", "2.2.2-2"):
        for sender, kinds in (("client", of_client), ("server", of_server)):
            kept, broken = zip(*(flags(kind, 0, body) for kind, body in kinds.items()), strict=True)
            rows.append(
                Statement(
                    version,
                    number,
                    "reserved flags have their value",
                    sum(kept, ()),
                    sum(broken, ()),
                    sender="client" if sender == "client" else "server",
                )
            )
        rows.append(
            Statement(
                version,
                number,
                "reserved flags of CONNECT have their value",
                (connect(version),),
                malformed(*(connect(version, first=0x10 | each) for each in range(1, 16))),
                opens=True,
            )
        )
    return rows


def will_rows(version: int, numbers: tuple[str, ...]) -> list[Statement]:
    """Flags of the will: without one, QoS, QoS 3, retain."""
    none = b"\x00" if version == 5 else b""
    will = none + WILL
    gists = (
        ("without a will its QoS is 0", (0x0A, 0x12, 0x1A)),
        ("the QoS of a will is not 3", (0x1E, 0x3E)),
        ("without a will its retain flag is 0", (0x22,)),
    )
    return [
        Statement(
            version,
            number,
            gist,
            tuple(connect(version, each, text("c"), will) for each in (0x06, 0x0E, 0x16, 0x26)),
            malformed(*(connect(version, each, text("c"), will) for each in wrong)),
            opens=True,
        )
        for number, (gist, wrong) in zip(numbers, gists, strict=True)
    ]


def name_rows(version: int, numbers: tuple[str, str, str, str]) -> list[Statement]:
    """User name and password: as the flags say, no less and no more."""
    both, name = (text("c"), text("u"), text("p")), (text("c"), text("u"))
    return [
        Statement(
            version,
            numbers[0],
            "without its flag there is no user name",
            (connect(version),),
            malformed(connect(version, 0x02, *name)),
            opens=True,
        ),
        Statement(
            version,
            numbers[1],
            "with its flag there is a user name",
            (connect(version, 0x82, *name),),
            malformed(connect(version, 0x82, text("c"))),
            opens=True,
        ),
        Statement(
            version,
            numbers[2],
            "without its flag there is no password",
            (connect(version, 0x82, *name),),
            malformed(connect(version, 0x82, *both)),
            opens=True,
        ),
        Statement(
            version,
            numbers[3],
            "with its flag there is a password",
            (connect(version, 0xC2, *both),),
            malformed(connect(version, 0xC2, *name)),
            opens=True,
        ),
    ]


def utf8_row(version: int, number: str, gist: str, bits: int, before: bytes = b"", after: bytes = b"") -> Statement:
    """A text of CONNECT."""
    return Statement(
        version,
        number,
        gist,
        (connect(version, bits, text("c"), before + text("ö") + after),),
        malformed(*(connect(version, bits, text("c"), before + each + after) for each in (SURROGATE, OVERLONG, NUL))),
        opens=True,
    )


def filter_rows(version: int, multi: str, single: str) -> list[Statement]:
    v5 = version == 5
    return [
        Statement(
            version,
            multi,
            "# is the last level and a whole one",
            tuple(subscribe(text(each) + b"\x00", v5=v5) for each in ("#", "a/#", "/#", "a/b/#")),
            malformed(*(subscribe(text(each) + b"\x00", v5=v5) for each in ("#/a", "a#", "a/#/b", "a/b#", "##"))),
        ),
        Statement(
            version,
            single,
            "+ is a whole level",
            tuple(subscribe(text(each) + b"\x00", v5=v5) for each in ("+", "+/+", "/+", "a/+/#", "+/a")),
            malformed(*(subscribe(text(each) + b"\x00", v5=v5) for each in ("a+", "+a", "a/b+/c", "++", "a/+b"))),
        ),
    ]
