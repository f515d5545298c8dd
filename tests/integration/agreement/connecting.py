"""Scenes: how connections begin and end, and what outlives them."""

from __future__ import annotations

from svc.wire.mqtt import Auth, Connack, Connect, Properties, Publish, Version, Will
from tests.integration.agreement.play import Play, scene, sizes
from tests.wire.mqtt.building import connect as connect_octets
from tests.wire.mqtt.building import text


@scene()
def clean_start(play: Play) -> None:
    """A session that was not to last is gone with its connection."""
    first = play.client(step="first")
    first.subscribe("t")
    first.sees("subscribed")
    first.quits()
    again = play.client(step="again", clean_start=False)
    play.client("p").publishes("t")
    again.sees("its subscription is gone")


@scene()
def session_present(play: Play) -> None:
    """A persistent session is resumed, with its subscriptions and the messages queued meanwhile."""
    first = play.lasting(step="first")
    first.subscribe("t")
    first.sees("subscribed")
    first.vanishes()
    publisher = play.client("p")
    publisher.publishes("t", b"0", 0)
    publisher.publishes("t", b"1", 1)
    publisher.publishes("t", b"2", 2)
    again = play.lasting(step="again")
    again.drains("what waited")
    publisher.publishes("t", b"3", 1)
    again.drains("what comes now")


@scene()
def clean_start_ends_a_session(play: Play) -> None:
    """A clean start ends the session that was there."""
    first = play.lasting(step="first")
    first.subscribe("t")
    first.sees("subscribed")
    first.quits()
    again = play.client(step="clean")
    play.client("p").publishes("t", b"1", 1)
    again.sees("nothing left")
    again.quits()
    play.lasting(step="and it is not there later")


@scene()
def takeover(play: Play) -> None:
    """A second connection of a client ends the first."""
    first = play.lasting(step="first")
    first.subscribe("t")
    first.sees("subscribed")
    second = play.lasting(step="second")
    play.note("the first sees", first.raw.until_end(), ended=first.raw.ended)
    play.client("p").publishes("t", b"1", 1)
    second.drains("the second has the subscription")


@scene()
def takeover_with_clean_start(play: Play) -> None:
    """A second connection that starts clean ends the first and its session."""
    first = play.lasting(step="first")
    first.subscribe("t")
    first.sees("subscribed")
    second = play.client(step="second")
    play.note("the first sees", first.raw.until_end(), ended=first.raw.ended)
    play.client("p").publishes("t", b"1", 1)
    second.drains("no subscription")


@scene()
def takeover_and_will(play: Play) -> None:
    """The will of a connection that is taken over is published, unless it is delayed and the session continues."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    play.lasting(will=Will(play.topic("will"), b"first"))
    play.lasting()
    watcher.drains("the will")


@scene(Version.V5)
def takeover_and_delayed_will(play: Play) -> None:
    """A will with a delay is not published if its session continues in time."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    play.lasting(will=Will(play.topic("will"), b"late", properties=Properties(will_delay=60)))
    play.lasting()
    watcher.drains("no will")


@scene(Version.V5)
def takeover_and_end_of_session(play: Play) -> None:
    """A clean start ends the session, for which a will with a delay waited."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    play.lasting(will=Will(play.topic("will"), b"late", properties=Properties(will_delay=60)))
    play.client()
    watcher.drains("the will")


@scene()
def empty_client_id(play: Play) -> None:
    """Without an identifier and with a clean start a client is admitted; with MQTT 5.0 it receives its identifier."""
    play.client("", step="clean")
    raw = play.opened()
    raw.send(Connect("", play.version, clean_start=False))
    answer = raw.receive()
    assert isinstance(answer, Connack)
    play.note("not clean", [answer, *(raw.until_end() if answer.code else [])], ended=raw.ended)


@scene()
def reported_limits(play: Play) -> None:
    """The limits that CONNACK reports."""
    for keep_alive in (0, 60, 65535):
        answer = play.opened().connect(play.identifier(f"c{keep_alive}"), keep_alive=keep_alive)
        play.seen[f"keep alive {keep_alive}"] = sizes(answer)


@scene()
def long_client_id(play: Play) -> None:
    """Identifiers beyond 23 characters, with any character."""
    play.client("x" * 100, step="100 letters")
    play.client("ö €/+#", step="other characters")


@scene()
def names_without_authentication(play: Play) -> None:
    """User name and password are of no use and no harm."""
    play.client(step="both", username="u", password=b"p")
    play.client("n", step="user name", username="u")


@scene(Version.V5)
def password_alone(play: Play) -> None:
    """MQTT 5.0 allows a password without a user name."""
    play.client(step="password", password=b"p")


@scene(Version.V311)
def refused_versions(play: Play) -> None:
    """Another protocol level is refused with return code 1."""
    for name, level in (("MQTT", 3), ("MQTT", 6), ("MQTT", 0), ("MQTT", 0x84), ("MQIsdp", 3), ("MQIsdp", 4)):
        raw = play.opened()
        raw.octets(connect_octets(level, 2, text("old"), name=name.encode()))
        answer = raw.receive()
        came = [] if answer is None else [answer]
        if answer is not None and answer.code:
            came += raw.until_end()
        play.note(f"{name} level {level}", came, ended=raw.ended)


@scene()
def second_connect(play: Play) -> None:
    """A second CONNECT ends the connection."""
    client = play.client(step="first")
    client.raw.send(Connect(play.identifier("c"), play.version))
    play.note("second", client.raw.until_end(), ended=client.raw.ended)


@scene()
def first_is_not_connect(play: Play) -> None:
    """A client that does not begin with CONNECT gets no answer."""
    for what, octets in (
        ("PINGREQ", b"\xc0\x00"),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        ("TLS", b"\x16\x03\x01\x02\x00"),
    ):
        raw = play.opened()
        raw.octets(octets)
        play.note(what, raw.until_end(), ended=raw.ended)


@scene()
def will_by_kind_of_end(play: Play) -> None:
    """A broken connection and a protocol error publish the will, DISCONNECT does not."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    will = Will(play.topic("will"), b"gone", 1)
    play.client("a", will=will).vanishes()
    play.client("p").publishes("will", b"barrier", 1)
    watcher.raw.acknowledge([first := watcher.raw.receive()])  # type: ignore[list-item]
    watcher.raw.acknowledge([second := watcher.raw.receive()])  # type: ignore[list-item]
    play.note("broken", [first, second], sort=True)  # type: ignore[list-item]
    play.client("b", will=will).quits()
    watcher.drains("disconnect")
    broken = play.client("d", will=will)
    broken.raw.octets(b"\x36\x04\x00\x01t\x00")
    broken.raw.until_end()
    watcher.drains("protocol error")


@scene(Version.V5)
def will_by_reason(play: Play) -> None:
    """DISCONNECT with a reason other than 0 leaves the will."""
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.sees("subscribed")
    for code in (0x00, 0x04, 0x80, 0x99):
        play.client("c", will=Will(play.topic("will"), b"%02x" % code)).quits(code)
        watcher.drains(f"reason 0x{code:02x}")


@scene()
def will_retained(play: Play) -> None:
    """A will may be retained, with its QoS."""
    will = Will(play.topic("will"), b"gone", 2, retain=True)
    broken = play.client(will=will)
    broken.raw.octets(b"\x36\x04\x00\x01t\x00")
    broken.raw.until_end()
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.drains("later")


@scene(Version.V5)
def will_properties(play: Play) -> None:
    """The properties of a will are sent with its message, except for the delay."""
    properties = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x00\x01",
        will_delay=0,
        user=(("b", "1"), ("a", "2"), ("b", "3")),
    )
    broken = play.client(will=Will(play.topic("will"), b"gone", 1, retain=True, properties=properties))
    broken.raw.octets(b"\x36\x04\x00\x01t\x00")
    broken.raw.until_end()
    watcher = play.client("w")
    watcher.subscribe("will")
    watcher.drains("later")


@scene(Version.V5)
def enhanced_authentication(play: Play) -> None:
    """No broker here offers enhanced authentication: CONNECT with a method is refused, AUTH ends the connection."""
    raw = play.opened()
    raw.send(Connect("c", properties=Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"x")))
    play.note("method", raw.until_end(), ended=raw.ended)
    client = play.client()
    client.raw.send(Auth(0x18, Properties(authentication_method="SCRAM-SHA-256")))
    play.note("AUTH", client.raw.until_end(), ended=client.raw.ended)
    other = play.client("d")
    other.raw.send(Auth(0x19, Properties(authentication_method="SCRAM-SHA-256")))
    play.note("re-authentication", other.raw.until_end(), ended=other.raw.ended)


@scene(Version.V5)
def session_expiry_at_the_end(play: Play) -> None:
    """DISCONNECT may change how long a session lasts, but not make one last that was to end."""
    play.lasting("a").quits(session_expiry=0)
    play.lasting("a", step="ended by DISCONNECT")
    play.lasting("b", seconds=1).quits(session_expiry=100)
    play.lasting("b", step="prolonged")
    short = play.client("d")
    short.raw.octets(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x64")
    play.note("cannot be kept", short.raw.until_end(), ended=short.raw.ended)


@scene(Version.V5)
def reported_session_expiry(play: Play) -> None:
    """A broker that keeps sessions for less than was requested reports it in CONNACK."""
    for seconds in (0, 1, 3600, 0xFFFFFFFE, 0xFFFFFFFF):
        play.lasting(f"c{seconds}", seconds=seconds, step=f"{seconds} s")


@scene()
def octets_behind_disconnect(play: Play) -> None:
    """Packets after DISCONNECT are ignored."""
    watcher = play.client("w")
    watcher.subscribe("t")
    watcher.sees("subscribed")
    client = play.client()
    late = b"\x30" + bytes((3 + len(play.topic("t")) + play.v5,)) + text(play.topic("t"))
    client.raw.octets(b"\xe0\x00" + late + (b"\x00" if play.v5 else b"") + b"m")
    client.raw.until_end()
    watcher.sees("nothing")


@scene()
def everything_in_one_piece(play: Play) -> None:
    """A client need not wait for CONNACK [MQTT-3.1.4-5, in MQTT 3.1.1 MQTT-3.1.4-5]."""
    client = play.opened()
    client.send(Connect(play.identifier("c"), play.version, will=None), Publish(play.topic("t"), b"1", 1, packet_id=5))
    first = client.receive()
    assert isinstance(first, Connack)
    play.note("answers", [first, *client.sync()], ended=client.ended)


SCENES = [each for each in list(globals().values()) if hasattr(each, "played")]
