"""Scenes: retained messages."""

from __future__ import annotations

import re

from svc.wire.mqtt import Publish, Subscribe, Subscription, Version
from tests.integration.agreement.play import Play, scene


@scene()
def retained_set_and_replaced(play: Play) -> None:
    """A new subscription gets the last retained message with the flag; an old one gets messages without it."""
    publisher = play.client("p")
    watcher = play.client("w")
    watcher.subscribe("t")
    watcher.sees("subscribed")
    publisher.publishes("t", b"1", 1, retain=True)
    publisher.publishes("t", b"2", 1, retain=True)
    publisher.publishes("t", b"3", 1)
    watcher.drains("as they come")
    late = play.client("l")
    late.subscribe("t")
    late.drains("the last retained one")


@scene()
def retained_cleared(play: Play) -> None:
    """An empty retained message clears the topic, and is a message to those who are there."""
    publisher, watcher = play.client("p"), play.client("w")
    watcher.subscribe("t")
    watcher.sees("subscribed")
    publisher.publishes("t", b"1", 1, retain=True)
    publisher.publishes("t", b"", 1, retain=True)
    watcher.drains("as they come")
    late = play.client("l")
    late.subscribe("t")
    late.drains("nothing is left")
    publisher.publishes("t", b"", 1, retain=True)
    watcher.drains("cleared once more")


@scene()
def retained_quality(play: Play) -> None:
    """A retained message comes with the lower QoS of itself and the subscription."""
    publisher = play.client("p")
    for qos in (0, 1, 2):
        publisher.publishes(f"q{qos}", b"m", qos, retain=True)
    for granted in (0, 1, 2):
        watcher = play.client(f"w{granted}")
        watcher.subscribe("q0", "q1", "q2", qos=granted)
        watcher.drains(f"subscribed with QoS {granted}")


@scene()
def retained_by_wildcard(play: Play) -> None:
    """Wildcards find retained messages of all levels that they match."""
    publisher = play.client("p")
    for topic in ("a", "a/b", "a/b/c", "a/", "b", "/a"):
        publisher.publishes(topic, topic.encode(), 1, retain=True)
    for number, wanted in enumerate(("#", "+", "a/#", "a/+", "+/b", "+/+/c", "/+", "a/b/c/#")):
        watcher = play.client(f"w{number}")
        watcher.subscribe(wanted)
        watcher.raw.acknowledge(came := watcher.raw.sync())
        found = sorted(each.topic.removeprefix(play.topic("")) for each in came if isinstance(each, Publish))
        play.seen[wanted] = " ".join(repr(each) for each in found)


@scene()
def subscribed_again(play: Play) -> None:
    """A subscription that is made again gets the retained message again."""
    publisher, watcher = play.client("p"), play.client("w")
    publisher.publishes("t", b"m", 1, retain=True)
    watcher.subscribe("t")
    watcher.drains("first")
    watcher.subscribe("t", qos=0)
    watcher.drains("second")


@scene()
def overlapping_filters_of_one_packet(play: Play) -> None:
    """Each subscription gets the retained messages that it matches."""
    play.client("p").publishes("t", b"m", 0, retain=True)
    watcher = play.client("w")
    watcher.subscribe("t", "+")
    watcher.drains("both")


@scene(Version.V5)
def retain_handling(play: Play) -> None:
    """Retained messages come always, for new subscriptions only, or never."""
    play.client("p").publishes("t", b"m", 1, retain=True)
    for handling in (0, 1, 2):
        watcher = play.client(f"w{handling}")
        for round_ in ("first", "second"):
            watcher.subscribe(Subscription("t", 1, retain_handling=handling))
            watcher.drains(f"handling {handling}, {round_}")


@scene(Version.V5)
def retain_as_published(play: Play) -> None:
    """The flag is kept where the subscription asks for it."""
    publisher = play.client("p")
    for name, keep in (("kept", True), ("cleared", False)):
        watcher = play.client(name)
        watcher.subscribe(Subscription("t", 1, retain_as_published=keep))
        watcher.sees(f"{name}: subscribed")
        publisher.publishes("t", b"1", 1, retain=True)
        publisher.publishes("t", b"2", 1)
        watcher.drains(f"{name}: messages")
        publisher.publishes("t", b"", 1, retain=True)


@scene()
def retained_and_shared(play: Play) -> None:
    """A shared subscription gets no retained messages."""
    play.client("p").publishes("t", b"m", 1, retain=True)
    watcher = play.client("w")
    watcher.subscribe("$share/g/t")
    watcher.drains("nothing but the answer")


@scene()
def system_topics(play: Play) -> None:
    """The basics below $SYS are retained messages."""
    watcher = play.client("w")
    names = ("version", "uptime", "clients/connected", "clients/total", "retained messages/count")
    names = (*names, "subscriptions/count", "publish/messages/received", "publish/bytes/sent")
    for name in names:
        topic = f"$SYS/broker/{name}"
        watcher.raw.send(Subscribe(10, [Subscription(topic, 0)]))
        came = [each for each in watcher.raw.sync() if isinstance(each, Publish) and each.topic == topic]
        shown = []
        # Every few seconds all of them are sent again, this one too.
        for each in came[:1]:
            value = re.sub(r"\d+", "N", each.payload.decode())
            shown.append(f"{value if name != 'version' else 'name and N'}{' retained' if each.retain else ''}")
        play.seen[name] = " ".join(shown)


@scene()
def writing_below_sys(play: Play) -> None:
    """$SYS belongs to the broker."""
    watcher = play.client("w")
    watcher.raw.send(Subscribe(10, [Subscription("$SYS/broker/own/" + play.version.name, 0)]))
    watcher.sees("subscribed")
    play.client("p").publishes("=$SYS/broker/own/" + play.version.name, b"mine")
    watcher.sees("nothing came")


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
