"""What hostile clients may make a broker hold, and what they may make everybody else wait for."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.broker.hub import HubLimits
from svc.broker.session import SessionLimits
from svc.wire.mqtt import Properties
from tests.broker.rig import Rig


class FullQueueTests(SynchronousTestCase):
    """What a full queue costs everybody else."""

    def test_looked_at_where_something_may_have_expired(self) -> None:
        """A message that finds no room is no reason to look through a queue in which nothing expires by now."""
        rig = Rig(limits=HubLimits(session=SessionLimits(queued=3)))
        away = rig.connect("away", clean_start=False, properties=Properties(session_expiry=3600))
        away.subscribes("t")
        away.loses()
        session = rig.hub.sessions["away"]
        publisher = rig.connect("publisher")
        publisher.publishes("t", b"stays", 1)
        for seconds in (10, 20):
            publisher.publishes("t", b"%d" % seconds, 1, properties=Properties(message_expiry=seconds))
        publisher.publishes("t", b"too many", 1)
        before = session._queued
        for now, payload, looked in ((5, b"too many", False), (10, b"first", True), (15, b"too many", False)):
            rig.clock.now = 1_800_000_000.0 + now
            publisher.publishes("t", payload, 1)
            self.assertIs(session._queued is not before, looked)
            before = session._queued
        self.assertEqual([each.message.payload for each in before], [b"stays", b"20", b"first"])
        self.assertEqual(rig.hub.statistics.drops, {"queue_full": 3, "expired": 1})
