"""
Sessions over any sequence of connections, subscriptions, messages, acknowledgements and congestion, beside a model.

The model says after each step exactly what every client is sent, in which order and with which flags. What happens over
a crash is a matter of :mod:`tests.broker.test_crashes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.hub import HubLimits
from svc.broker.session import SessionLimits
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Suback,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    matches,
)
from tests.broker.rig import Peer, Rig
from tests.peers.waiting import rounds

CLIENTS = {"a": Version.V5, "b": Version.V5, "old": Version.V311}
FILTERS = ("t/x", "t/+", "#", "u")
TOPICS = ("t/x", "t/y", "u")
QUEUED = 5
UNLIMITED = 65_535
#: One client is in the middle of it, so that much happens to it.
NAMES = st.sampled_from(["a", "a", "a", "b", "old"])
QOS = st.sampled_from([0, 1, 2])
RARELY, OFTEN = (st.sampled_from([each, each, each, each, not each]) for each in (False, True))
Sent = tuple[str, bytes, int, bool]


@dataclass
class Item:
    """A message on its way to a client."""

    payload: bytes
    qos: int
    released: bool = False


@dataclass
class Model:
    """
    What the standard says about one session.

    ``waiting`` was not sent, ``open`` was sent once and is not done; ``again`` is what of the latter was not sent on
    the connection of now.
    """

    persistent: bool = False
    online: bool = False
    congested: bool = False
    room: int = 0
    subscriptions: dict[str, int] = field(default_factory=dict)
    waiting: list[Item] = field(default_factory=list)
    open: list[Item] = field(default_factory=list)
    again: list[Item] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    def offered(self, topic: str, payload: bytes, qos: int) -> None:
        """A message was published."""
        granted = [each for wanted, each in self.subscriptions.items() if matches(wanted, topic)]
        if not granted:
            return
        lower = min(qos, max(granted))
        if not lower:
            if self.online and not self.congested:
                self.sent.append(("PUBLISH", payload, 0, False))
        elif len(self.waiting) + len(self.open) < QUEUED:
            self.waiting.append(Item(payload, lower))
            self.go_on()

    def go_on(self) -> None:
        """Send what may be sent, older messages first."""
        self.send(self.again, again=True)
        self.send(self.waiting, again=False)

    def send(self, items: list[Item], *, again: bool) -> None:
        """Send messages while there is room."""
        while items and self.online and not self.congested and self.room > 0:
            self.room -= 1
            item = items.pop(0)
            if not again:
                self.open.append(item)
            self.sent.append(("PUBLISH", item.payload, item.qos, again))

    def began(self, most: int) -> None:
        """A connection was made to a session that goes on."""
        self.online, self.congested = True, False
        self.room = most - sum(each.released for each in self.open)
        for item in self.open:
            if item.released:
                self.sent.append(("PUBREL", item.payload, 2, False))
            else:
                self.again.append(item)
                self.send(self.again, again=True)
        self.go_on()

    def ended(self) -> None:
        """The connection is over."""
        self.online, self.again = False, []

    def answered(self, item: Item) -> None:
        """The client sent the next acknowledgement that the message needs."""
        if item in self.again:
            self.again.remove(item)
            self.room -= 1
        if item.qos == 2 and not item.released:
            item.released = True
            self.sent.append(("PUBREL", item.payload, 2, False))
            return
        self.open.remove(item)
        self.room += 1
        self.go_on()


class Machine(RuleBasedStateMachine):
    """Three clients that come and go, and a publisher that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(limits=HubLimits(session=SessionLimits(queued=QUEUED)))
        self.publisher = self.rig.connect("publisher")
        self.models: dict[str, Model] = {}
        self.peers: dict[str, Peer] = {}
        self.identifiers: dict[str, dict[bytes, int]] = {name: {} for name in CLIENTS}
        self.count = 0

    @initialize()
    def everybody(self) -> None:
        """Two of them are there and want everything."""
        for name in ("a", "old"):
            self.connect(name, clean=False, persistent=True, most=2)
            self.subscribe(name, "#", 2)

    # What clients do.

    @rule(name=NAMES, clean=RARELY, persistent=OFTEN, most=st.sampled_from([1, 2, 3, UNLIMITED]))
    def connect(self, name: str, clean: bool, persistent: bool, most: int) -> None:
        """Connect, also where a connection is open already."""
        version, first = CLIENTS[name], self.peers.get(name)
        more: dict[str, Any] = {}
        if version is Version.V5:
            expiry = 1000 if persistent else None
            more = {"properties": Properties(session_expiry=expiry, receive_maximum=most if most < UNLIMITED else None)}
        else:
            persistent, most = not clean, UNLIMITED
        before = self.models.get(name)
        if before is not None and before.online and not before.persistent:
            # The first connection ends, and its session with it.
            before = None
        model = Model() if before is None or clean else before
        peer = self.rig.connect(name, version, read_answer=False, clean_start=clean, **more)
        answer = peer.got.pop(0)
        assert isinstance(answer, Connack)
        assert answer.session_present is (before is not None and not clean), answer
        if first is not None and first.client is not None:
            assert first.closed is ReasonCode.SESSION_TAKEN_OVER
            first.client.connection_lost()
        if model is not before:
            self.identifiers[name] = {}
        model.ended()
        model.persistent = persistent
        self.models[name], self.peers[name] = model, peer
        model.began(most)

    @rule(name=NAMES, polite=st.booleans())
    def leave(self, name: str, polite: bool) -> None:
        """End a connection."""
        peer = self.peers.pop(name, None)
        if peer is None:
            return
        if polite:
            peer.sends(Disconnect())
        else:
            peer.loses()
        self.models[name].ended()
        if not self.models[name].persistent:
            del self.models[name]

    @rule(name=NAMES, wanted=st.sampled_from(FILTERS), qos=QOS)
    def subscribe(self, name: str, wanted: str, qos: Any) -> None:
        """Subscribe, for the first time or again."""
        if name in self.peers:
            self.peers[name].got = self.own(
                name, self.peers[name].subscribes(Subscription(wanted, qos)), Suback(1, [qos])
            )
            self.models[name].subscriptions[wanted] = qos

    @rule(name=NAMES, wanted=st.sampled_from(FILTERS))
    def unsubscribe(self, name: str, wanted: str) -> None:
        """Unsubscribe; messages on their way stay on it."""
        if name in self.peers:
            there = self.models[name].subscriptions.pop(wanted, None) is not None
            codes = [0 if there else 0x11] if CLIENTS[name] is Version.V5 else []
            came = self.peers[name].sends(Unsubscribe(1, [wanted]))
            self.peers[name].got = self.own(name, came, Unsuback(1, codes))

    def own(self, name: str, came: list[Packet], expected: Packet) -> list[Packet]:
        """Take the answer to a request out of what came."""
        assert came[:1] == [expected], (name, came)
        return came[1:]

    @rule(topic=st.sampled_from(TOPICS), qualities=st.lists(QOS, min_size=1, max_size=4), again=st.booleans())
    def publish(self, topic: str, qualities: list[Any], again: bool) -> None:
        """Publish; with QoS 2 perhaps twice before the release, which is once."""
        for qos in qualities:
            self.publish_one(topic, qos, again)

    def publish_one(self, topic: str, qos: Any, again: bool) -> None:
        """Publish one message."""
        self.count += 1
        payload = b"%d" % self.count
        self.publisher.publishes(topic, payload, qos, 1)
        if qos == 2:
            if again:
                self.publisher.publishes(topic, payload, qos, 1, dup=True)
            self.publisher.answers(PacketType.PUBREL, 1)
        for model in self.models.values():
            model.offered(topic, payload, qos)

    @rule(name=NAMES, which=st.integers(0, QUEUED - 1))
    def acknowledge(self, name: str, which: int) -> None:
        """Acknowledge any message that was sent, also on an earlier connection."""
        model, peer = self.models.get(name), self.peers.get(name)
        if model is None or peer is None or which >= len(model.open):
            return
        item = model.open[which]
        kind = PacketType.PUBACK if item.qos == 1 else PacketType.PUBCOMP if item.released else PacketType.PUBREC
        peer.got = peer.answers(kind, self.identifiers[name][item.payload])
        model.answered(item)

    @rule(name=NAMES)
    def stop_reading(self, name: str) -> None:
        """A client reads nothing for a while."""
        if name in self.peers:
            self.peers[name].congested = self.models[name].congested = True

    @rule(name=NAMES)
    def read_on(self, name: str) -> None:
        """It reads again."""
        peer = self.peers.get(name)
        if peer is not None and peer.client is not None and peer.congested:
            peer.congested = self.models[name].congested = False
            peer.client.on_writable()
            self.models[name].go_on()

    # What must hold.

    @invariant()
    def everybody_was_sent_what_the_model_says(self) -> None:
        """Compare what came with the model."""
        for name, peer in self.peers.items():
            model = self.models[name]
            assert peer.closed is None, (name, peer.error)
            came = [self.read(name, each) for each in peer.take()]
            assert came == model.sent, f"{name} got {came}, not {model.sent}"
            model.sent = []

    def read(self, name: str, packet: Packet) -> Sent:
        """Write a packet as the model has it; identifiers are of one message each, and stay."""
        known = self.identifiers[name]
        if isinstance(packet, Publish):
            if packet.qos:
                if packet.dup:
                    assert known[packet.payload] == packet.packet_id
                used = {known[each.payload] for each in self.models[name].open if each.payload in known}
                assert packet.dup or packet.packet_id not in used - {0}, "an identifier in use"
                known[packet.payload] = packet.packet_id
            return ("PUBLISH", packet.payload, packet.qos, packet.dup)
        assert isinstance(packet, Acknowledgement), packet
        assert packet.type is PacketType.PUBREL, packet
        (payload,) = [each.payload for each in self.models[name].open if known.get(each.payload) == packet.packet_id]
        return ("PUBREL", payload, 2, False)

    @invariant()
    def nothing_else_is_held(self) -> None:
        """Sessions, subscriptions and what waits are those of the model."""
        hub = self.rig.hub
        assert set(hub.sessions) - {"publisher"} == set(self.models)
        assert len(hub.subscriptions) == sum(len(each.subscriptions) for each in self.models.values())
        for name, model in self.models.items():
            assert hub.sessions[name].waiting == len(model.waiting) + len(model.open)
        assert hub.statistics.connected == 1 + len(self.peers)


class ModelTests(SynchronousTestCase):
    """The machine."""

    def test_like_the_model(self) -> None:
        """Whatever clients do, each is sent what the model expects."""
        run_state_machine_as_test(
            Machine, settings=settings(max_examples=rounds(100, 2500), stateful_step_count=60, deadline=None)
        )
