"""Scenes: who gets what."""

from __future__ import annotations

from svc.wire.mqtt import Publish, Subscription, Version
from tests.integration.agreement.play import Client, Play, scene

FILTERS = ("#", "+", "+/+", "a/#", "a/+", "+/b", "a/+/c", "a/b", "a", "/+", "+/", "a//c", "+/#", "A/b", "a/b/#")
TOPICS = ("a", "a/b", "a/b/c", "a/", "/a", "/", "a//c", "b", "A/b", "a/b/")


def count(clients: list[Client]) -> list[int]:
    """Count the messages that came to each, and acknowledge them."""
    counts = []
    for client in clients:
        number = 0
        while new := client.raw.sync():
            number += len([each for each in new if isinstance(each, Publish)])
            client.raw.acknowledge(new)
        counts.append(number)
    return counts


@scene()
def granted(play: Play) -> None:
    """The reason codes are in the order of the filters."""
    client = play.client()
    client.subscribe(Subscription("a", 0), Subscription("b/#", 1), Subscription("+/c", 2), Subscription("a", 1))
    client.sees("codes")


@scene()
def wildcards(play: Play) -> None:
    """Which topics a filter matches."""
    publisher = play.client("p")
    for number, wanted in enumerate(FILTERS):
        watcher = play.client(f"w{number}")
        watcher.subscribe(wanted, qos=0)
        watcher.raw.sync()
        for topic in TOPICS:
            publisher.publish(topic)
        publisher.raw.sync()
        found = [each.topic for each in watcher.raw.sync() if isinstance(each, Publish)]
        play.seen[wanted] = " ".join(repr(each.removeprefix(play.topic(""))) for each in found)
        watcher.quits()


@scene()
def dollar_topics(play: Play) -> None:
    """A filter that begins with a wildcard matches no topic that begins with $; clients may use such topics."""
    clients = {}
    for name, wanted in (("all", "=#"), ("first", "=+/" + play.topic("x")), ("named", "=$own/#"), ("inner", "a/+")):
        clients[name] = play.client(name)
        clients[name].subscribe(wanted, qos=0)
        clients[name].sees(f"{name} subscribed")
    publisher = play.client("p")
    publisher.publishes("=$own/" + play.topic("x"), b"1")
    publisher.publishes("a/$x", b"2")
    for name, client in clients.items():
        client.sees(name)


@scene()
def overlapping(play: Play) -> None:
    """How many copies a client gets whose subscriptions overlap, and with which QoS."""
    client = play.client()
    client.subscribe(Subscription("a/#", 0), Subscription("a/b", 2), Subscription("+/b", 1))
    client.sees("subscribed")
    play.client("p").publishes("a/b", b"m", 2)
    client.drains("copies")


@scene(Version.V5)
def identifiers(play: Play) -> None:
    """The identifier of a subscription comes with its messages, and changes with the subscription."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("a", subscription_identifiers=(7,))
    client.subscribe("b", subscription_identifiers=(268_435_455,))
    client.subscribe("c")
    client.sees("subscribed")
    for topic in "abc":
        publisher.publishes(topic, b"m", 1)
    client.drains("with identifiers")
    client.subscribe("a", subscription_identifiers=(8,))
    client.subscribe("b")
    client.sees("again")
    for topic in "ab":
        publisher.publishes(topic, b"m", 1)
    client.drains("changed")


@scene(Version.V5)
def identifiers_and_retained(play: Play) -> None:
    """A retained message comes with the identifier of the subscription that asked for it."""
    play.client("p").publishes("a", b"m", 1, retain=True)
    client = play.client()
    client.subscribe("a", subscription_identifiers=(7,))
    client.drains("retained")


@scene(Version.V5)
def identifiers_and_retained_and_others(play: Play) -> None:
    """It comes without the identifiers of subscriptions that were there before."""
    play.client("p").publishes("a/b", b"m", 1, retain=True)
    client = play.client()
    client.subscribe("a/#", subscription_identifiers=(1,))
    client.drains("first")
    client.subscribe("a/b", subscription_identifiers=(2,))
    client.drains("second")
    client.subscribe(Subscription("+/b", 1), subscription_identifiers=(3,))
    client.drains("third")


@scene(Version.V5)
def identifiers_over_reconnect(play: Play) -> None:
    """Identifiers belong to the session."""
    client = play.lasting()
    client.subscribe("a", subscription_identifiers=(7,))
    client.sees("subscribed")
    client.vanishes()
    play.client("p").publishes("a", b"m", 1)
    play.lasting(step="back").drains("what waited")


@scene(Version.V5)
def overlapping_identifiers(play: Play) -> None:
    """All identifiers of the subscriptions that match."""
    client = play.client()
    client.subscribe("a/#", subscription_identifiers=(1,))
    client.subscribe("a/b", subscription_identifiers=(2,))
    client.sees("subscribed")
    play.client("p").publishes("a/b", b"m", 1)
    client.drains("copies", sort=True)


@scene(Version.V5)
def no_local(play: Play) -> None:
    """A client need not get its own messages."""
    client, other = play.client(), play.client("o")
    client.subscribe(Subscription("t", 1, no_local=True))
    client.sees("subscribed")
    client.publishes("t", b"own", 1)
    client.sees("not its own")
    other.publishes("t", b"other", 1)
    client.drains("those of others")


@scene(Version.V5)
def no_local_and_retained(play: Play) -> None:
    """Whether No Local concerns retained messages of the client itself."""
    client = play.client()
    client.publishes("t", b"own", 1, retain=True)
    client.subscribe(Subscription("t", 1, no_local=True))
    client.drains("retained")


@scene()
def shared_in_turn(play: Play) -> None:
    """The members of a group share its messages; every other subscription gets all."""
    members = [play.client(f"m{number}") for number in range(3)]
    other, direct = play.client("o"), play.client("d")
    for member in members:
        member.subscribe("$share/g/t/#", qos=1)
        member.raw.sync()
    other.subscribe("$share/other/t/+", qos=1)
    direct.subscribe("t/a", qos=1)
    other.sees("another group")
    direct.sees("no group")
    publisher = play.client("p")
    for _ in range(9):
        publisher.publishes("t/a", b"m", 1)
    play.seen["members of a group"] = str(count(members))
    play.seen["others"] = str(count([other, direct]))


@scene()
def shared_by_who_is_there(play: Play) -> None:
    """A member that left gets nothing any more; one that is away need not."""
    left, away, stays = play.client("left"), play.lasting("away"), play.client("stays")
    for member in (left, away, stays):
        member.subscribe("$share/g/t", qos=1)
        member.raw.sync()
    left.unsubscribe("$share/g/t")
    left.sees("unsubscribed")
    away.quits()
    publisher = play.client("p")
    for _ in range(4):
        publisher.publishes("t", b"m", 1)
    play.seen["one left, one stays"] = str(count([left, stays]))
    play.seen["one was away"] = str(count([play.lasting("away")]))


@scene()
def unsubscribed(play: Play) -> None:
    """Unsubscribing ends the messages; filters are compared character by character."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("a", "b/+", "c/#")
    client.sees("subscribed")
    client.unsubscribe("a", "b/x", "+", "c/#", "none")
    client.sees("unsubscribed")
    for topic in ("a", "b/x", "c/d"):
        publisher.publishes(topic, b"m", 1)
    client.drains("what is left")
    client.unsubscribe("a")
    client.sees("once more")


@scene()
def unsubscribed_with_messages_on_the_way(play: Play) -> None:
    """Messages that were on their way when the subscription ended are delivered."""
    client, publisher = play.lasting(), play.client("p")
    client.subscribe("t")
    client.sees("subscribed")
    publisher.publishes("t", b"1", 1)
    client.sees("not acknowledged")
    client.unsubscribe("t")
    client.sees("unsubscribed")
    client.vanishes()
    play.lasting(step="back").drains("again")


@scene()
def subscribed_with_another_quality(play: Play) -> None:
    """A subscription that is made again replaces the old one."""
    client, publisher = play.client(), play.client("p")
    for qos in (2, 0, 1):
        client.subscribe("t", qos=qos)
        client.sees(f"QoS {qos}")
        publisher.publishes("t", b"m", 2)
        client.drains(f"message with {qos}")


@scene()
def versions_mixed(play: Play) -> None:
    """Clients of both versions talk to one another."""
    old, new = play.client("old", version=Version.V311), play.client("new", version=Version.V5)
    for name, client in (("old", old), ("new", new)):
        client.subscribe("t")
        client.sees(f"{name} subscribed")
    old.publish("t", b"of old", 1, 1)
    old.raw.sync()
    new.drains("new")
    new.publish("t", b"of new", 1, 1, content_type="x", user=(("a", "b"),))
    new.raw.sync()
    old.raw.acknowledge(came := old.raw.sync())
    play.note("old", came)


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
