"""
One scene of clients before one broker, and what they saw.

A scene is a function that takes a :class:`Play`. It notes what clients see under a label for each step; what does not
matter (assigned names, the scene's own topic prefix) is written in one way for all brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from tests.peers.mqttclient import RawClient

BOTH = (Version.V311, Version.V5)
#: What CONNACK says of a broker's size; shown where a scene asks for it.
SIZES = ("server_keep_alive", "receive_maximum", "topic_alias_maximum", "maximum_packet_size")


@dataclass(frozen=True)
class Scene:
    """
    A scene and the versions that it is played in.

    Args:
        act: what the clients do.
        versions: the versions.
    """

    act: Callable[[Play], None]
    versions: tuple[Version, ...]

    @property
    def name(self) -> str:
        """How the scene is called."""
        return self.act.__name__

    def played(self, port: int, version: Version) -> dict[str, str]:
        """
        Play it before a broker.

        Args:
            port: the broker's.
            version: the version of MQTT of the clients.

        Returns:
            What they saw, by step.
        """
        with ExitStack() as stack:
            play = Play(stack, port, version, self.name)
            self.act(play)
        return play.seen


def scene(*versions: Version) -> Callable[[Callable[[Play], None]], Scene]:
    """
    Make a function a scene.

    Args:
        versions: the versions that it is played in; both by default.

    Returns:
        What decorates the function.
    """
    return lambda act: Scene(act, versions or BOTH)


class Client:
    """
    A client of a scene: what tests say often, in few words.

    Args:
        play: the scene.
        raw: the connection.
    """

    def __init__(self, play: Play, raw: RawClient) -> None:
        self.raw = raw
        self._play = play

    def subscribe(self, *wanted: str | Subscription, qos: Any = 2, **properties: Any) -> None:
        """Subscribe to topics of the scene; what is answered comes with the next :meth:`sees`."""
        made = [
            Subscription(self._play.topic(each), qos)
            if isinstance(each, str)
            else Subscription(self._play.topic(each.filter), *_options(each))
            for each in wanted
        ]
        self.raw.send(Subscribe(10, made, Properties(**properties)))

    def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe from topics of the scene."""
        self.raw.send(Unsubscribe(11, [self._play.topic(each) for each in filters]))

    def publish(
        self, topic: str, payload: bytes = b"m", qos: Any = 0, packet_id: int = 0, *, retain: bool = False, **more: Any
    ) -> None:
        """Send one PUBLISH; further arguments are ``dup`` and properties."""
        dup = more.pop("dup", False)
        full = self._play.topic(topic) if topic else ""
        self.raw.send(Publish(full, payload, qos, retain, dup, packet_id or (1 if qos else 0), Properties(**more)))

    def publishes(self, topic: str, payload: bytes = b"m", qos: Any = 0, **more: Any) -> list[Packet]:
        """Publish with all packets that it takes, and be sure that the broker has taken it; give what was answered."""
        self.publish(topic, payload, qos, **more)
        came = self.raw.sync()
        if qos == 2:
            self.answer(PacketType.PUBREL, more.get("packet_id", 1))
            came += self.raw.sync()
        return came

    def answer(self, kind: PacketType, packet_id: int, code: int = 0) -> None:
        """Send an acknowledgement."""
        self.raw.send(Acknowledgement(kind, packet_id, code))  # type: ignore[arg-type]

    def sees(self, step: str, *, sort: bool = False) -> None:
        """Note what came; nothing is acknowledged."""
        self._play.note(step, self.raw.sync(), ended=self.raw.ended, sort=sort)

    def drains(self, step: str, *, sort: bool = False) -> None:
        """Note what came, and what came for its acknowledgement, until nothing comes any more."""
        came: list[Packet] = []
        while new := self.raw.sync():
            came += new
            self.raw.acknowledge(new)
        self._play.note(step, came, ended=self.raw.ended, sort=sort)

    def quits(self, code: int = 0, **properties: Any) -> None:
        """Send DISCONNECT, and wait until the broker has processed it."""
        self.raw.send(Disconnect(code, Properties(**properties)))
        self.raw.until_end()
        self.raw.close()

    def vanishes(self) -> None:
        """Break the connection without a word."""
        self.raw.close()


class Play:
    """
    A scene that is being played.

    Args:
        stack: closes the connections.
        port: the broker's.
        version: the version of MQTT of clients by default.
        name: of the scene; keeps topics and clients of scenes apart.
    """

    def __init__(self, stack: ExitStack, port: int, version: Version, name: str) -> None:
        self.version = version
        self.v5 = version is Version.V5
        self.seen: dict[str, str] = {}
        self._stack = stack
        self._port = port
        self._prefix = f"{name}-{version.name}"

    def topic(self, topic: str) -> str:
        """Put a topic or filter, shared or not, below the scene's own; one that begins with $SYS stays."""
        if topic.startswith("$share/"):
            _, group, inner = topic.split("/", 2)
            return f"$share/{group}/{self.topic(inner)}"
        if topic.startswith("="):
            return topic[1:]
        return f"{self._prefix}/{topic}"

    def identifier(self, name: str) -> str:
        """Make a client identifier of the scene's own."""
        return f"{self._prefix}-{name}" if name else ""

    def opened(self, version: Version | None = None) -> RawClient:
        """Open a connection and send nothing."""
        return self._stack.enter_context(RawClient(self._port, version or self.version))

    def client(self, name: str = "c", *, step: str = "", version: Version | None = None, **more: Any) -> Client:
        """Connect a client; its CONNACK is noted where a step is named."""
        raw = self.opened(version)
        answer = raw.connect(self.identifier(name), **more)
        if step:
            self.note(step, [answer], ended=raw.ended)
        return Client(self, raw)

    def lasting(self, name: str = "c", *, step: str = "", seconds: int = 100, **more: Any) -> Client:
        """Connect a client whose session outlives the connection."""
        if self.v5:
            more["properties"] = Properties(session_expiry=seconds)
        return self.client(name, step=step, clean_start=False, **more)

    def note(self, step: str, packets: Iterable[Packet], *, ended: bool = False, sort: bool = False) -> None:
        """Note what a client saw."""
        assert step not in self.seen, step
        shown = [self._shown(each) for each in packets if not self._foreign(each)]
        if sort:
            shown.sort()
        self.seen[step] = "; ".join([*shown, *(["closed"] if ended else [])]) or "nothing"

    def named(self, packet: Publish) -> str:
        """Say by what a message names its topic."""
        alias = packet.properties.topic_alias
        words = [packet.topic.removeprefix(f"{self._prefix}/")] if packet.topic else []
        return " ".join([*words, *([f"alias {alias}"] if alias is not None else [])])

    def _foreign(self, packet: Packet) -> bool:
        """Whether it is a message of another scene, which a filter such as # catches."""
        return isinstance(packet, Publish) and not packet.topic.startswith("$SYS/") and self._prefix not in packet.topic

    def _shown(self, packet: Packet) -> str:
        words = [packet.type.name]
        if isinstance(packet, Publish):
            words += [packet.topic.removeprefix(f"{self._prefix}/"), _payload(packet.payload)]
            words += [f"QoS {packet.qos} id {packet.packet_id}"] if packet.qos else []
            words += [word for word, is_set in (("retain", packet.retain), ("DUP", packet.dup)) if is_set]
        elif isinstance(packet, Connack):
            words += ["session present"] if packet.session_present else []
            words += [f"0x{packet.code:02x}"]
        elif isinstance(packet, Suback | Unsuback):
            words += [f"0x{code:02x}" for code in packet.codes]
        elif isinstance(packet, Acknowledgement):
            words += [f"id {packet.packet_id}"] + ([f"0x{packet.code:02x}"] if packet.code else [])
        elif isinstance(packet, Disconnect):
            words += [f"0x{packet.code:02x}"]
        return " ".join([*words, *self._properties(packet)])

    def _properties(self, packet: Packet) -> list[str]:
        properties = getattr(packet, "properties", Properties())
        shown = []
        for each in fields(properties):
            value = getattr(properties, each.name)
            if value is None or value == () or each.name in SIZES:
                continue
            if each.name in ("assigned_client_id", "reason_string"):
                value = "..."
            shown.append(f"{each.name}={str(value).replace(self._prefix + '/', '')}")
        return shown


def sizes(answer: Connack) -> str:
    """Write what CONNACK says of a broker's size."""
    return ", ".join(f"{name}={getattr(answer.properties, name)}" for name in SIZES)


def _options(each: Subscription) -> tuple[Any, ...]:
    return each.qos, each.no_local, each.retain_as_published, each.retain_handling


def _payload(payload: bytes) -> str:
    return repr(payload.decode("latin-1")) if len(payload) <= 20 else f"{len(payload)} octets"
