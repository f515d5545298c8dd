"""The memory of all queues, which identities share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll
from svc.broker.hub import HubLimits
from svc.broker.message import Message
from svc.wire.mqtt import Acknowledgement, PacketType, Properties
from tests.broker.rig import Rig

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
ONE, OTHER = "spiffe://prod.example/one", "spiffe://prod.example/other"
SIZE = Message("a/", b"m").size


class QueueTests(SynchronousTestCase):
    """The queues of a broker with room for 20 messages."""

    def setUp(self) -> None:
        self.rig = Rig(AllowAll(), limits=HubLimits(queued_octets=20 * SIZE))
        for name in ("a", "b"):
            self.subscriber(name, ONE)
        self.publisher = self.rig.connect("p", who=OTHER)

    def subscriber(self, name: str, who: str) -> None:
        """Connect a client that subscribes and goes away."""
        peer = self.rig.connect(name, who=who, **LASTING)
        peer.subscribes(f"{name}/#")
        peer.loses()

    def publishes(self, name: str, count: int) -> None:
        """Publish messages to the subscriber of this name."""
        for _ in range(count):
            self.publisher.publishes(f"{name}/", b"m", 1)

    def waiting(self) -> dict[str, int]:
        """How many messages wait for each session; what is counted is what the sessions have."""
        sessions = self.rig.hub.sessions.values()
        held = Counter[str]()
        for each in sessions:
            held[each.owner] += each._octets
        self.assertEqual(self.rig.hub._queue_room._held, +held)
        return {each.client_id: each.waiting for each in sessions if each.waiting}

    def test_shared(self) -> None:
        """All sessions of one identity together have nearly all; another one gets a part; both are counted."""
        self.subscriber("c", "spiffe://prod.example/third")
        self.publishes("a", 12)
        self.publishes("b", 12)
        self.publishes("c", 1)
        self.assertEqual(self.waiting(), {"a": 12, "b": 7, "c": 1})
        self.assertEqual(self.rig.hub.statistics.drops, {"queues_full": 5})

    def test_given_back(self) -> None:
        """Acknowledged messages, and those of sessions that ended, take no room."""
        self.publishes("a", 12)
        self.publishes("b", 12)
        back = self.rig.connect("a", who=ONE, **LASTING)
        for each in back.messages[:6]:
            back.sends(Acknowledgement(PacketType.PUBACK, each.packet_id))
        self.assertEqual(self.waiting(), {"a": 6, "b": 7})
        self.publishes("b", 12)
        self.assertEqual(self.waiting(), {"a": 6, "b": 13})
        self.rig.hub.end_session(self.rig.hub.sessions["b"])
        self.assertEqual(self.waiting(), {"a": 6})
        back.loses()
        self.rig.passes(3600)
        self.assertEqual(self.waiting(), {})

    def test_expired(self) -> None:
        """Messages of the session that have expired make room."""
        for _ in range(19):
            self.publisher.publishes("a/", b"m", 1, properties=Properties(message_expiry=10))
        self.rig.passes(20)
        self.publishes("a", 1)
        self.assertEqual(self.waiting(), {"a": 1})
