"""Scenes: messages with every quality of service, both ways."""

from __future__ import annotations

from typing import Final, cast

from svc.wire.mqtt import Packet, PacketType, Properties, Publish, QoS, Version
from tests.integration.agreement.play import Client, Play, scene
from tests.peers.mosquitto import INFLIGHT

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP


def pair(play: Play, qos: int = 2) -> tuple[Client, Client]:
    """Connect a publisher and a subscriber of ``t``."""
    subscriber = play.lasting("s")
    subscriber.subscribe("t", qos=qos)
    subscriber.sees("subscribed")
    return play.client("p"), subscriber


@scene()
def lower_of_both(play: Play) -> None:
    """A message is delivered with the lower QoS of message and subscription."""
    publisher = play.client("p")
    for granted in (0, 1, 2):
        subscriber = play.client(f"s{granted}")
        subscriber.subscribe("t", qos=granted)
        subscriber.sees(f"subscribed with QoS {granted}")
        for qos in (0, 1, 2):
            publisher.publishes("t", b"%d" % qos, qos)
            subscriber.drains(f"subscribed with {granted}, published with {qos}")


@scene()
def exactly_once_step_by_step(play: Play) -> None:
    """QoS 2 takes four packets on each side."""
    publisher, subscriber = pair(play)
    publisher.publish("t", b"m", 2, 9)
    publisher.sees("PUBLISH")
    publisher.answer(PUBREL, 9)
    publisher.sees("PUBREL")
    subscriber.sees("message")
    subscriber.answer(PUBREC, 1)
    subscriber.sees("PUBREC")
    subscriber.answer(PUBCOMP, 1)
    subscriber.sees("PUBCOMP")


@scene()
def before_its_release(play: Play) -> None:
    """When a message with QoS 2 is forwarded to its receivers: with PUBLISH or with PUBREL, both is allowed."""
    publisher, subscriber = pair(play)
    publisher.publish("t", b"m", 2, 9)
    publisher.raw.sync()
    subscriber.sees("before PUBREL")
    publisher.answer(PUBREL, 9)
    publisher.raw.sync()
    subscriber.sees("after PUBREL")


@scene()
def exactly_once_sent_again(play: Play) -> None:
    """A QoS 2 message that is sent twice before its release is delivered once."""
    publisher, subscriber = pair(play)
    publisher.publish("t", b"m", 2, 9)
    publisher.publish("t", b"m", 2, 9, dup=True)
    publisher.sees("twice")
    publisher.answer(PUBREL, 9)
    publisher.sees("released")
    publisher.answer(PUBREL, 9)
    publisher.sees("released again")
    subscriber.drains("once")
    publisher.publishes("t", b"new", 2, packet_id=9)
    subscriber.drains("the identifier is free again")


@scene()
def release_over_reconnect(play: Play) -> None:
    """A QoS 2 message that was not released is known after a reconnect of its publisher."""
    _, subscriber = pair(play)
    publisher = play.lasting("l")
    publisher.publish("t", b"m", 2, 9)
    publisher.sees("PUBLISH")
    publisher.vanishes()
    publisher = play.lasting("l", step="back")
    publisher.publish("t", b"m", 2, 9, dup=True)
    publisher.sees("again")
    publisher.answer(PUBREL, 9)
    publisher.sees("released")
    subscriber.drains("once")


@scene()
def dup_is_not_passed_on(play: Play) -> None:
    """DUP of the publisher is not forwarded to the subscriber [MQTT-3.3.1-3]."""
    publisher, subscriber = pair(play)
    publisher.publish("t", b"m", 1, 9, dup=True)
    publisher.sees("acknowledged")
    subscriber.drains("without DUP")


@scene()
def sent_again_after_reconnect(play: Play) -> None:
    """Unacknowledged messages are resent with DUP and their identifiers, in order; PUBREL is resent after PUBREC."""
    publisher, subscriber = pair(play)
    for number, qos in enumerate((1, 2, 2, 1), 1):
        publisher.publishes("t", b"%d" % number, qos, packet_id=number)
    subscriber.sees("four messages")
    subscriber.answer(PUBREC, 3)
    subscriber.sees("PUBREC of the third")
    subscriber.vanishes()
    publisher.publishes("t", b"5", 1)
    subscriber = play.lasting("s", step="back")
    subscriber.sees("again")
    for kind, number in ((PUBACK, 1), (PUBREC, 2), (PUBCOMP, 3), (PUBACK, 4), (PUBACK, 5)):
        subscriber.answer(kind, number)
    subscriber.sees("acknowledged")
    subscriber.answer(PUBCOMP, 2)
    subscriber.vanishes()
    play.lasting("s", step="back again").sees("nothing left")


@scene()
def order(play: Play) -> None:
    """Messages of one publisher and QoS are delivered in order."""
    publisher, subscriber = pair(play)
    for qos in (0, 1, 2):
        for number in range(15):
            publisher.publish("t", b"%d" % number, qos, number + 1 if qos else 0)
        publisher.raw.sync()
        if qos == 2:
            for number in range(15):
                publisher.answer(PUBREL, number + 1)
            publisher.raw.sync()
        came: list[Packet] = []
        while new := subscriber.raw.sync():
            came += new
            subscriber.raw.acknowledge(new)
        play.seen[f"QoS {qos}"] = ",".join(each.payload.decode() for each in came if isinstance(each, Publish))


@scene()
def answers_to_nothing(play: Play) -> None:
    """Acknowledgements whose identifier is not in use."""
    client = play.client()
    for kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        client.answer(kind, 77)
        client.sees(kind.name)


@scene()
def puback_for_qos_2(play: Play) -> None:
    """PUBACK for a message with QoS 2."""
    publisher, subscriber = pair(play)
    publisher.publishes("t", b"m", 2)
    subscriber.sees("message")
    subscriber.answer(PUBACK, 1)
    subscriber.sees("PUBACK")


@scene()
def pubrec_for_qos_1(play: Play) -> None:
    """PUBREC for a message with QoS 1."""
    publisher, subscriber = pair(play)
    publisher.publishes("t", b"m", 1)
    subscriber.sees("message")
    subscriber.answer(PUBREC, 1)
    subscriber.sees("PUBREC")


@scene()
def pubcomp_before_pubrec(play: Play) -> None:
    """PUBCOMP before PUBREC."""
    publisher, subscriber = pair(play)
    publisher.publishes("t", b"m", 2)
    subscriber.sees("message")
    subscriber.answer(PUBCOMP, 1)
    subscriber.sees("PUBCOMP")


@scene(Version.V5)
def refused_by_the_receiver(play: Play) -> None:
    """PUBACK and PUBREC with an error end the delivery."""
    publisher, subscriber = pair(play)
    publisher.publishes("t", b"1", 1)
    publisher.publishes("t", b"2", 2)
    subscriber.sees("messages")
    subscriber.answer(PUBACK, 1, 0x83)
    subscriber.answer(PUBREC, 2, 0x83)
    subscriber.sees("refused")
    subscriber.vanishes()
    play.lasting("s", step="back").sees("nothing left")


@scene()
def no_subscriber(play: Play) -> None:
    """MQTT 5.0 may report that there is no matching subscription."""
    client = play.client()
    for qos in (1, 2):
        play.note(f"QoS {qos}", client.publishes("nobody", b"m", qos))


@scene(Version.V5)
def receive_maximum_of_the_client(play: Play) -> None:
    """No more messages are in progress than the client's Receive Maximum; QoS 0 is not held back."""
    properties = Properties(receive_maximum=2, session_expiry=100)
    subscriber = play.client("s", clean_start=False, properties=properties)
    subscriber.subscribe("t")
    subscriber.sees("subscribed")
    publisher = play.client("p")
    for number in range(5):
        publisher.publishes("t", b"%d" % number, 1 + number % 2)
    publisher.publishes("t", b"zero")
    subscriber.sees("two and QoS 0")
    subscriber.answer(PUBACK, 1)
    subscriber.sees("one more")
    subscriber.answer(PUBREC, 2)
    subscriber.sees("PUBREC frees no slot")
    subscriber.answer(PUBCOMP, 2)
    subscriber.sees("PUBCOMP does")
    subscriber.vanishes()
    subscriber = play.client("s", clean_start=False, properties=properties)
    subscriber.sees("after a reconnect")


@scene(Version.V5)
def smaller_receive_maximum_after_reconnect(play: Play) -> None:
    """Resent messages observe the Receive Maximum of the new connection too."""
    publisher, subscriber = pair(play)
    for number in range(5):
        publisher.publishes("t", b"%d" % number, 1 + number % 2)
    subscriber.sees("five")
    subscriber.answer(PUBREC, 2)
    subscriber.sees("one is released")
    subscriber.vanishes()
    properties = Properties(receive_maximum=1, session_expiry=100)
    subscriber = play.client("s", clean_start=False, properties=properties)
    subscriber.sees("one at a time")
    subscriber.answer(PUBACK, 1)
    subscriber.answer(PUBCOMP, 2)
    subscriber.sees("the next one")
    subscriber.answer(PUBACK, 3)
    subscriber.drains("the rest")


@scene(Version.V5)
def receive_maximum_of_the_broker(play: Play) -> None:
    """A client has more messages in progress than the server's Receive Maximum."""
    client = play.client()
    for number in range(INFLIGHT):
        client.publish("t", b"m", 2, number + 1)
    client.raw.sync()
    play.seen["as many as announced"] = "closed" if client.raw.ended else "open"
    for step in ("one more", "two more"):
        client.publish("t", b"m", 2, INFLIGHT + len(play.seen))
        client.sees(step)


@scene()
def many_unacknowledged(play: Play) -> None:
    """How many messages a client gets that acknowledges none and has sent no Receive Maximum."""
    publisher, subscriber = pair(play, 1)
    for _ in range(30):
        publisher.publishes("t", b"m", 1)
    play.seen["messages"] = str(len(subscriber.raw.sync()))


@scene()
def payloads(play: Play) -> None:
    """Payloads of all lengths arrive as they were."""
    publisher, subscriber = pair(play)
    for size in (0, 1, 100, 127, 128, 16_300, 16_400, 300_000):
        publisher.publishes("t", bytes(range(256)) * (size // 256) + bytes(size % 256), cast(QoS, size % 3))
        subscriber.drains(f"{size} octets")


@scene()
def qos_0_while_away(play: Play) -> None:
    """QoS 0 does not wait for a client that is away."""
    publisher, subscriber = pair(play)
    subscriber.vanishes()
    publisher.publishes("t", b"0")
    play.lasting("s", step="back").sees("nothing")


@scene()
def to_itself(play: Play) -> None:
    """A client gets what it publishes itself."""
    client = play.client()
    client.subscribe("t")
    client.sees("subscribed")
    play.note("own message", client.publishes("t", b"m", 0))


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
