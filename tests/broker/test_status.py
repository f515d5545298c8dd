"""What a broker reports of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.internet.task import Clock

from svc.broker.broker import Broker
from svc.broker.config import BrokerSettings
from svc.broker.reports import BrokerReports, BrokerStoreReports
from svc.broker.status import broker_members, broker_totals
from svc.process.history import Totals
from svc.process.status import ListenerStatus, StoreStatus
from svc.settings import parse
from svc.telemetry.health import Health
from svc.testing.ca import TestAuthority
from svc.wire.mqtt import Connect, Publish, Subscribe, Subscription
from tests.broker.test_connection import ConnectionCase, Wire

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FILE = "listeners: [{name: local, listen: '127.0.0.1:1883'}, {name: closed, listen: '127.0.0.1:1884'}]"


class StatusTests(ConnectionCase):
    """A broker with two clients."""

    def setUp(self) -> None:
        super().setUp()
        self.reports = BrokerReports(Clock())
        self.settings = parse(FILE, BrokerSettings)
        self.wires = [Wire(self.broker), Wire(self.broker)]
        for number, wire in enumerate(self.wires):
            wire.sends(Connect(f"client-{number}"))
        self.wires[0].sends(Subscribe(1, [Subscription("a")]))
        self.wires[1].sends(Publish("a", b"x"), Publish("a", b"y", retain=True))

    def members(self, broker: Broker | None, **more: Any) -> dict[str, Any]:
        """Describe a broker."""
        given = {"svid": None, "addresses": {"local": "127.0.0.1:41883"}, "certificates": (), "store": None}
        return broker_members(self.settings, broker, **{**given, **more})

    def test_totals(self) -> None:
        """Messages, drops, connections and denials are those of the metrics, with refused handshakes."""
        self.broker.hub.statistics.denied["publish"] += 2
        self.broker.hub.statistics.refused["mqtt_connect_timeout"] += 1
        self.reports.connection_refused("connection_limit", "192.0.2.1:9")
        denials = {"mqtt_not_authorized": 2, "mqtt_connect_timeout": 1, "connection_limit": 1}
        totals = broker_totals(self.broker, self.reports)
        self.assertEqual(Totals(refusals=4, received=2, sent=2, dropped=0, connections=2, denials=denials), totals)

    def test_totals_before_the_broker(self) -> None:
        """While the database is read all counters are there, at zero."""
        expected = Totals(refusals=0, received=0, sent=0, dropped=0, connections=0)
        self.assertEqual(expected, broker_totals(None, self.reports))

    def test_members(self) -> None:
        """Clients, sessions, messages and listeners are described; a listener that is not open by its configuration."""
        certificate = datetime(2027, 1, 1, tzinfo=UTC)
        members = self.members(self.broker, certificates=[("local", certificate)])
        self.assertEqual((2, 2, 0), tuple(members[name] for name in ("clients", "sessions", "queued")))
        self.assertEqual(len(self.broker.hub.retained), members["retained"])
        local, closed = members["listeners"]
        self.assertEqual(ListenerStatus("closed", "mqtt", "inbound", "127.0.0.1:1884"), closed)
        self.assertEqual(
            ("127.0.0.1:41883", None, certificate), (local.listen, local.peers, local.certificate_not_after)
        )
        self.assertEqual(0, local.connections)

    def test_before_the_broker(self) -> None:
        """While the database is read its state is described, and the own identity."""
        health = Health(("store",), now=lambda: NOW)
        svid = TestAuthority("prod.example", now=NOW).svid("/broker")
        members = self.members(None, store=BrokerStoreReports(health, "broker.db"), svid=svid)
        self.assertEqual(StoreStatus("broker.db", False, "", 0), members["store"])
        [identity] = members["identities"]
        self.assertEqual(
            ("spiffe://prod.example/broker", svid.chain_not_after), (identity.spiffe_id, identity.not_after)
        )
        self.assertNotIn("clients", members)
