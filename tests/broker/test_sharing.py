"""The memory of all queues, which identities share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AllowAll
from svc.broker.hub import HubLimits
from svc.broker.message import Message
from svc.broker.sharing import LargestShare, QueueRoom
from svc.wire.mqtt import Acknowledgement, PacketType, Properties
from tests.broker.rig import Rig

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
ONE, OTHER = "spiffe://prod.example/one", "spiffe://prod.example/other"
SIZE = Message("a/", b"m").size


class QueueRoomTests(SynchronousTestCase):
    """The room alone."""

    def test_bounds(self) -> None:
        """Who has most gets none of the last tenth, others get some, and nobody gets more than there is."""
        room = QueueRoom(100)
        self.assertTrue(room.fits("one", 100))
        self.assertFalse(room.fits("one", 101))
        room.take("one", 90)
        self.assertTrue(room.fits("one", 1))
        room.take("one", 1)
        self.assertFalse(room.fits("one", 1))
        self.assertTrue(room.fits("other", 9))
        self.assertFalse(room.fits("other", 10))

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100))))
    def test_most(self, taken: list[tuple[str, int]]) -> None:
        """Who has most is found; who gave all back is forgotten, and the room is as before."""
        room, model = QueueRoom(1000), Counter[str]()
        for owner, octets in taken:
            room.take(owner, octets)
            model[owner] += octets
        self.assertEqual(room.most().octets, max(model.values(), default=0))
        self.assertEqual(model[room.most().owner], room.most().octets)
        for owner, octets in taken:
            room.take(owner, -octets)
        self.assertEqual((room.most(), room._held), (LargestShare("", 0), {}))
        self.assertTrue(room.fits("a", 1000))


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
