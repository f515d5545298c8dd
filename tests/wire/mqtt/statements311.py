"""The normative statements of MQTT 3.1.1 that a codec can decide."""

from __future__ import annotations

from svc.wire.mqtt import ClientIdInvalid
from tests.wire.mqtt.building import connect, packet, text
from tests.wire.mqtt.common_statements import (
    common,
    filter_rows,
    flag_rows,
    name_rows,
    text_statements,
    utf8_row,
    will_rows,
)
from tests.wire.mqtt.rows import ONE, WILL, Statement, T, malformed, publish, subscribe, unsubscribe, violations


def statements() -> list[Statement]:
    v311 = 4
    zero = (
        subscribe(ONE, v5=False, identifier=b"\x00\x00"),
        unsubscribe(T, v5=False, identifier=b"\x00\x00"),
        publish(T, b"\x00\x00", 0x32, False),
        publish(T, b"\x00\x00", 0x34, False),
    )
    return [
        *text_statements(v311, "1.5.3"),
        *flag_rows(v311),
        *common(v311),
        Statement(
            v311,
            "2.3.1-1",
            "packet identifiers are not 0",
            (subscribe(ONE, v5=False), publish(T, b"\x00\x01", 0x32, False)),
            violations(*zero),
        ),
        Statement(
            v311,
            "2.3.1-5",
            "with QoS 0 there is no packet identifier: the payload begins behind the topic",
            (publish(T, b"\x00\x00", 0x30, False),),
        ),
        Statement(
            v311,
            "3.1.2-11",
            "without a will there are neither flags nor fields of one",
            (connect(v311),),
            malformed(connect(v311, 0x02, text("c"), WILL), connect(v311, 0x22), connect(v311, 0x0A)),
            opens=True,
        ),
        *will_rows(v311, ("3.1.2-13", "3.1.2-14", "3.1.2-15")),
        *name_rows(v311, ("3.1.2-18", "3.1.2-19", "3.1.2-20", "3.1.2-21")),
        Statement(
            v311,
            "3.1.2-22",
            "without a user name there is no password",
            (connect(v311, 0xC2, text("c"), text("u"), text("p")),),
            malformed(connect(v311, 0x42, text("c"), text("p"))),
            opens=True,
        ),
        Statement(
            v311,
            "3.1.3-7",
            "an empty identifier asks for a clean session",
            (connect(v311, 0x02, text("")),),
            ((connect(v311, 0x00, text("")), ClientIdInvalid),),
            opens=True,
        ),
        Statement(
            v311,
            "3.1.3-8",
            "an empty identifier without clean session is refused as such",
            (connect(v311, 0x00),),
            ((connect(v311, 0x00, text("")), ClientIdInvalid),),
            opens=True,
        ),
        utf8_row(v311, "3.1.3-10", "the topic of the will is UTF-8", 0x06, after=text("p")),
        utf8_row(v311, "3.1.3-11", "the user name is UTF-8", 0x82),
        Statement(
            v311,
            "3.2.2-4",
            "a refusal has no session",
            (packet(0x20, b"\x00\x05"), packet(0x20, b"\x01\x00")),
            violations(*(packet(0x20, b"\x01" + bytes((each,))) for each in range(1, 6))),
            sender="server",
            opens=True,
        ),
        Statement(
            v311,
            "3.8.3-3",
            "SUBSCRIBE names a topic filter",
            (subscribe(ONE + ONE, v5=False),),
            violations(subscribe(b"", v5=False)),
        ),
        Statement(
            v311,
            "3.8.3-4",
            "reserved bits of a requested QoS are 0, and it is not 3",
            tuple(subscribe(T + bytes((each,)), v5=False) for each in (0, 1, 2)),
            malformed(*(subscribe(T + bytes((each,)), v5=False) for each in (3, 4, 8, 16, 32, 64, 128, 255))),
        ),
        Statement(
            v311,
            "3.9.3-2",
            "SUBACK says 0, 1, 2 or 0x80",
            (packet(0x90, b"\x00\x01\x00\x01\x02\x80"),),
            violations(*(packet(0x90, b"\x00\x01" + bytes((each,))) for each in (3, 4, 0x7F, 0x81, 0x87, 0xFF))),
            sender="server",
        ),
        Statement(
            v311,
            "4.7.1-1",
            "a topic name holds no wildcard",
            (publish(text("a/b"), v5=False),),
            malformed(
                publish(text("a/+"), v5=False),
                publish(text("#"), v5=False),
            ),
        ),
        *filter_rows(v311, "4.7.1-2", "4.7.1-3"),
    ]
