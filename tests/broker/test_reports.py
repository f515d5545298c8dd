"""Who is named in the log where the broker has no room."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from svc.broker.broker import Broker
from svc.broker.hub import HubLimits
from svc.broker.reports import BrokerReports
from svc.telemetry.events.broker import BrokerEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.wire.mqtt import Connack, Connect, Properties, Publish, ReasonCode, Subscribe, Subscription
from tests.broker.test_connection import EVERYBODY, Wire
from tests.proxy.parts import LogTestCase

OWNER = "anonymous "


class NamedTests(LogTestCase):
    """A client that takes all it can get."""

    def broker(self, **limits: Any) -> Broker:
        """Make a broker that reports to the log."""
        clock = self.clock = Clock()
        reports = BrokerReports(clock)
        self.addCleanup(reports.close)
        return Broker(clock, EVERYBODY, limits=HubLimits(**limits), reporter=reports, wall=clock.seconds)

    def test_sessions(self) -> None:
        """Who has most sessions is in the log, and not in the answer."""
        broker = self.broker(sessions=20)
        for each in range(19):
            Wire(broker).sends(Connect(f"c{each}"))
        self.assertEqual(Wire(broker).sends(Connect("more")), [Connack(code=ReasonCode.QUOTA_EXCEEDED)])
        fields = self.only(BrokerEvent.CLIENT_REFUSED).fields
        self.assertEqual(fields["detail_reason"], "mqtt_session_limit")
        self.assertIn(f"most, 19, by {OWNER}", fields["detail"])
        self.assertEqual(broker.hub.statistics.refused["mqtt_session_limit"], 1)

    def test_queues(self) -> None:
        """Who has most messages that wait is in the log; the message is dropped for its session, and counted."""
        broker = self.broker(queued_octets=20_000)
        away = Wire(broker)
        away.sends(Connect("away", clean_start=False, properties=Properties(session_expiry=60)))
        away.sends(Subscribe(1, [Subscription("t", 1)]))
        away.protocol.connectionLost()
        wire = Wire(broker)
        wire.sends(Connect("c"), *(Publish("t", b"m" * 5000, 1, packet_id=each) for each in range(1, 6)))
        record = self.only(BrokerEvent.NO_ROOM)
        self.assertEqual(record.fields["detail_reason"], "queues_full")
        self.assertEqual(
            record.attributes, {"owner": OWNER, "most": OWNER, "most_octets": broker.hub._queue_room.most()[1]}
        )
        self.assertEqual(broker.hub.statistics.drops, {"queues_full": 2})

    def test_retained(self) -> None:
        """Who has most retained messages is in the log once a second; the message is delivered and counted."""
        broker = self.broker(retained=20)
        wire = Wire(broker)
        wire.sends(Connect("c"), *(Publish(f"t/{each}", b"m", retain=True) for each in range(21)))
        record = self.only(BrokerEvent.NO_ROOM)
        self.assertEqual(record.fields["detail_reason"], "retained_full")
        octets = record.attributes.pop("most_octets")
        self.assertEqual(record.attributes, {"owner": OWNER, "most": OWNER, "most_messages": 19})
        self.assertGreater(octets, 19 * 500)
        self.clock.advance(1)
        self.assertEqual(self.only(ProxyEvent.DENIALS_SUPPRESSED).attributes["suppressed"], 1)
        self.assertEqual((len(broker.hub.retained), broker.hub.statistics.drops["retained_full"]), (19, 2))
