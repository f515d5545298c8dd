"""Scenes: properties of messages in MQTT 5.0."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from svc.wire.mqtt import Packet, Properties, Publish, QoS, Version
from tests.integration.agreement.play import Play, scene
from tests.peers.mosquitto import ALIASES

V5 = Version.V5


@scene(V5)
def forwarded_unaltered(play: Play) -> None:
    """Properties that describe a message are forwarded unaltered, user properties in order."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("t")
    client.sees("subscribed")
    user = (("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("ö", "€"), ("b", "3"))
    for qos in (0, 1, 2):
        publisher.publishes(
            "t",
            b"question",
            qos,
            payload_format=1,
            content_type="text/plain",
            response_topic="answers/here",
            correlation_data=bytes(range(8)),
            user=user,
        )
        client.drains(f"QoS {qos}")
    publisher.publishes("t", b"r", 1, retain=True, payload_format=0, content_type="", correlation_data=b"", user=user)
    client.drains("empty values")
    late = play.client("l")
    late.subscribe("t")
    late.drains("retained")


@scene(V5)
def question_and_answer(play: Play) -> None:
    """Request and response."""
    asker, answerer = play.client("asker"), play.client("answerer")
    asker.subscribe("answers")
    answerer.subscribe("questions")
    asker.sees("asker subscribed")
    answerer.sees("answerer subscribed")
    asker.publishes("questions", b"?", 1, response_topic=play.topic("answers"), correlation_data=b"\x01")
    answerer.drains("question")
    answerer.publishes("answers", b"!", 1, correlation_data=b"\x01")
    asker.drains("answer")


@scene(V5)
def response_information(play: Play) -> None:
    """A client may ask for response information; a broker need not have any."""
    play.client(step="asked", properties=Properties(request_response_information=1))


@scene(V5)
def aliases_of_the_client(play: Play) -> None:
    """An alias replaces its topic until it is set anew, for every QoS."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("#", qos=0)
    client.sees("subscribed")
    publisher.publishes("a", b"1", topic_alias=1)
    publisher.publishes("b", b"2", 1, topic_alias=ALIASES)
    publisher.publishes("", b"3", topic_alias=1)
    publisher.publishes("", b"4", 2, topic_alias=ALIASES)
    publisher.publishes("c", b"5", topic_alias=1)
    publisher.publishes("", b"6", 1, topic_alias=1)
    client.sees("by topic")


@scene(V5)
def aliases_do_not_last(play: Play) -> None:
    """An alias is of one connection."""
    publisher = play.lasting("p")
    publisher.publishes("a", b"1", topic_alias=1)
    publisher.vanishes()
    publisher = play.lasting("p", step="back")
    publisher.publish("", b"2", topic_alias=1)
    play.note("unknown now", publisher.raw.until_end(), ended=publisher.raw.ended)


@scene(V5)
def aliases_out_of_bounds(play: Play) -> None:
    """An alias above the maximum, an alias without a topic, neither topic nor alias."""
    for step, topic, alias in (("too high", "a", ALIASES + 1), ("unknown", "", 1), ("no topic", "", None)):
        client = play.client()
        client.publish(topic, b"m", topic_alias=alias)
        play.note(step, client.raw.until_end(), ended=client.raw.ended)
    client = play.client()
    octets = b"\x30\x07\x00\x01t\x03\x23\x00\x00"
    client.raw.octets(octets)
    play.note("alias 0", client.raw.until_end(), ended=client.raw.ended)


@scene(V5)
def aliases_of_the_broker(play: Play) -> None:
    """A broker may use aliases where the client allows it, never others; the topics are the same."""
    for step, most in (("none allowed", 0), ("two allowed", 2)):
        client = play.client(f"c{most}", properties=Properties(topic_alias_maximum=most))
        client.subscribe("#")
        client.sees(f"{step}: subscribed")
        publisher = play.client("p")
        for number, topic in enumerate(("a", "a", "b", "c", "a", "c", "c", "b")):
            publisher.publishes(topic, b"m", cast(QoS, number % 3))
        came = client.raw.sync()
        play.seen[step] = ", ".join(play.named(each) for each in came if isinstance(each, Publish))
        play.note(f"{step}: what is meant", resolved(came))


@scene(V5)
def aliases_of_the_broker_do_not_last(play: Play) -> None:
    """Messages that are resent on another connection have resolvable topics there."""
    terms = Properties(topic_alias_maximum=10, session_expiry=100)
    client, publisher = play.client(properties=terms, clean_start=False), play.client("p")
    client.subscribe("#")
    client.sees("subscribed")
    for topic in ("a", "b", "a", "b"):
        publisher.publishes(topic, b"m", 1)
    play.note("first", resolved(client.raw.sync()))
    client.vanishes()
    publisher.publishes("a", b"waits", 1)
    play.note("sent again", resolved(play.client(properties=terms, clean_start=False).raw.sync()))


def resolved(packets: list[Packet]) -> list[Packet]:
    """Give the messages of one connection their topics in place of aliases."""
    known: dict[int | None, str] = {}
    made: list[Packet] = []
    for each in packets:
        if isinstance(each, Publish) and (alias := each.properties.topic_alias) is not None:
            topic = known[alias] = each.topic or known[alias]
            made.append(replace(each, topic=topic, properties=replace(each.properties, topic_alias=None)))
        else:
            made.append(each)
    return made


@scene(V5)
def largest_packet_of_the_client(play: Play) -> None:
    """Messages larger than a client accepts are not sent to it and do not block later ones."""
    size = 40 + len(play.topic("t"))
    client = play.client(properties=Properties(maximum_packet_size=size, session_expiry=100), clean_start=False)
    client.subscribe("t")
    client.sees("subscribed")
    publisher = play.client("p")
    for qos in (0, 1, 2):
        publisher.publishes("t", b"x" * 100, qos)
        publisher.publishes("t", b"small", qos)
    client.drains("small ones")
    client.vanishes()
    play.lasting(step="back").drains("nothing left")


@scene()
def largest_packet_of_the_broker(play: Play) -> None:
    """A packet above the broker's maximum ends the connection."""
    client = play.client()
    header = len(play.topic("t")) + 2 + play.v5 + 4
    client.publishes("t", bytes(1024 * 1024 - header))
    play.seen["as large as allowed"] = "closed" if client.raw.ended else "open"
    for more in (1, 10):
        client.publishes("t", bytes(1024 * 1024 - header + more))
        play.seen[f"{more} more"] = "closed" if client.raw.ended else "open"


@scene(V5)
def not_the_format_that_it_says(play: Play) -> None:
    """A payload that is declared as text and is not UTF-8."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("t")
    client.sees("subscribed")
    play.note("answer", publisher.publishes("t", b"\xff\xfe", 1, payload_format=1), ended=publisher.raw.ended)
    client.drains("message")


@scene(V5)
def no_explanations(play: Play) -> None:
    """A client that wants no explanations gets none."""
    client = play.client(properties=Properties(request_problem_information=0))
    client.unsubscribe("none")
    client.publish("none", b"m", 1)
    client.sees("answers")


@scene(V5)
def without_an_end(play: Play) -> None:
    """An expiry interval is forwarded with its message."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("t")
    client.sees("subscribed")
    publisher.publishes("t", b"m", 1, message_expiry=0xFFFFFFFF)
    client.raw.acknowledge(came := client.raw.sync())
    left = came[0].properties.message_expiry
    play.seen["long"] = "about as long" if left is not None and left > 0xFFFFFFF0 else str(left)


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
