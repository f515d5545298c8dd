"""What MQTT clients and brokers send that takes long to handle, as octets; made where it is needed."""

from __future__ import annotations

from collections.abc import Iterable

from svc.wire.mqtt import (
    Acknowledgement,
    Packet,
    PacketType,
    Pingreq,
    Publish,
    Subscribe,
    Subscription,
    Version,
    encode,
)


def octets_of(packets: Iterable[Packet]) -> bytes:
    """Write what a client of MQTT 5.0 sends."""
    return b"".join(encode(each, Version.V5, "client") for each in packets)


def pings() -> bytes:
    """PINGREQ."""
    return octets_of([Pingreq()]) * 60_000


def refused_messages() -> bytes:
    """PUBLISH of messages that the proxy refuses."""
    return octets_of(Publish("$x", b"", 1, packet_id=each) for each in range(1, 10_000))


def releases() -> bytes:
    """PUBREL, as a broker sends it too."""
    return octets_of(Acknowledgement(PacketType.PUBREL, each) for each in range(1, 65_536))


def deep_subscriptions() -> bytes:
    """
    SUBSCRIBE with as many and as deep filters as a packet may have.

    More packets than are on their way: a packet identifier is used again when it was acknowledged.
    """
    filters = [Subscription(f"{number}/" + "/".join("a" * 190)) for number in range(1000)]
    return octets_of(Subscribe(packet_id, filters) for packet_id in range(1, 65))
