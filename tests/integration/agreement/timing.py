"""Scenes that take time: keep alive, expiry, delays. They are played at once, so that they take it once."""

from __future__ import annotations

import time

from svc.wire.mqtt import Properties, Publish, Version, Will
from tests.integration.agreement.play import Play, scene

V5 = Version.V5


@scene()
def keep_alive(play: Play) -> None:
    """A client that sends nothing is cut after one and a half times its keep alive; one that pings is not."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    began = time.monotonic()
    silent = play.client("silent", keep_alive=1, will=Will(play.topic("will"), b"gone"))
    # Much longer than it pings: a busy machine suspends it for a while.
    alive = play.client("alive", keep_alive=10)
    alive_until = time.monotonic() + 16
    while not silent.raw.ended and time.monotonic() < began + 60:
        alive.raw.sync()
        try:
            came = silent.raw.until_end(0.5)
        except TimeoutError:
            continue
        play.note("silent", came, ended=silent.raw.ended)
        # Mosquitto counts whole seconds, so it may disconnect the client up to half a second before 1.5 s have passed.
        play.seen["not before its keep alive"] = str(time.monotonic() - began >= 1.0)
    while time.monotonic() < alive_until:
        alive.raw.sync()
        time.sleep(0.5)
    alive.sees("alive")
    watcher.drains("its will")


@scene(V5)
def session_ends(play: Play) -> None:
    """A session ends when it is over."""
    for seconds in (1, 600):
        client = play.lasting(f"c{seconds}", seconds=seconds)
        client.subscribe("t")
        client.raw.sync()
        client.vanishes()
    time.sleep(6)
    for seconds in (1, 600):
        play.lasting(f"c{seconds}", seconds=seconds, step=f"{seconds} s")


@scene(V5)
def will_delay(play: Play) -> None:
    """A will waits for its delay, and no longer than its session lasts."""
    watcher = play.client("w")
    watcher.subscribe("will/#")
    watcher.sees("subscribed")

    def will(name: str, delay: int) -> Will:
        return Will(play.topic(f"will/{name}"), b"gone", properties=Properties(will_delay=delay))

    play.lasting("waits", will=will("waits", 8)).vanishes()
    play.lasting("back", will=will("back", 8)).vanishes()
    play.lasting("short", seconds=5, will=will("short", 60)).vanishes()
    play.client("none", will=will("none", 60)).vanishes()
    time.sleep(0.5)
    watcher.drains("at once: a session that ends with its connection")
    play.lasting("back", step="back in time")
    time.sleep(14)
    watcher.drains("later", sort=True)


@scene(V5)
def message_expiry(play: Play) -> None:
    """A message that waits too long is not sent; another one says how long it is still of use."""
    away = play.lasting("s")
    away.subscribe("t")
    away.sees("subscribed")
    away.vanishes()
    publisher = play.client("p")
    publisher.publishes("t", b"short", 1, message_expiry=1)
    publisher.publishes("t", b"long", 1, message_expiry=1000)
    publisher.publishes("t", b"for ever", 1)
    time.sleep(3)
    back = play.lasting("s")
    shown = []
    for each in back.raw.sync():
        if isinstance(each, Publish):
            left = each.properties.message_expiry
            shown.append(f"{each.payload.decode()}: {'counted down' if left in range(900, 999) else left}")
    play.seen["after three seconds"] = ", ".join(shown)


@scene(V5)
def retained_expiry(play: Play) -> None:
    """A retained message is of use for its time, counted down."""
    publisher = play.client("p")
    publisher.publishes("short", b"m", 1, retain=True, message_expiry=1)
    publisher.publishes("long", b"m", 1, retain=True, message_expiry=1000)
    time.sleep(3)
    late = play.client("l")
    late.subscribe("#")
    shown = []
    for each in late.raw.sync():
        if isinstance(each, Publish):
            left = each.properties.message_expiry
            shown.append(
                f"{each.topic.removeprefix(play.topic(''))}: {'counted down' if left in range(900, 999) else left}"
            )
    play.seen["after three seconds"] = ", ".join(shown)


@scene(V5)
def expiry_at_once(play: Play) -> None:
    """An expiry interval of 0."""
    client, publisher = play.client(), play.client("p")
    client.subscribe("t")
    client.sees("subscribed")
    publisher.publishes("t", b"m", 1, message_expiry=0)
    client.drains("to who is there")
    away = play.lasting("a")
    away.subscribe("u")
    away.raw.sync()
    away.vanishes()
    publisher.publishes("u", b"m", 1, message_expiry=0)
    time.sleep(2)
    play.lasting("a").drains("to who was away")


@scene()
def session_of_mqtt_311(play: Play) -> None:
    """A session without a clean start is there after some seconds, whatever the version has for it."""
    play.lasting("c", seconds=1000).vanishes()
    time.sleep(2)
    play.lasting("c", step="back")


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
