"""What a proxy reports of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from svc.process.status import ListenerStatus
from svc.proxy.observers import NotaryStoreReports
from svc.proxy.records.room import RoomReport
from svc.proxy.status import proxy_members
from svc.telemetry.health import Health
from tests.proxy.rig import BASE, OWN
from tests.proxy.test_listeners import GET, TWO, ListenersTestCase


class StatusTests(ListenersTestCase):
    """Two listeners of one proxy, one with clients."""

    def setUp(self) -> None:
        super().setUp()
        self.successResultOf(self.open())
        self.clients = [self.made.connect("web")[0] for _number in range(2)]
        self.rig = self.made.rigs["web"]

    def members(self) -> dict[str, Any]:
        """Describe the proxy."""
        health = Health(("store",), now=lambda: BASE)
        proxy: Any = SimpleNamespace(stored=None, settings=TWO, listeners=self.group)
        rotation: Any = SimpleNamespace(valid=(self.rig.credentials,))
        reports = NotaryStoreReports(self.rig.metrics, health, "notary.db")
        reports.committed(3, 0.001)
        reports.room_measured(RoomReport(5, 7, 1.234))
        return proxy_members(proxy, rotation, self.rig.store, reports)

    def listeners(self) -> tuple[ListenerStatus, ...]:
        """Describe the listeners."""
        return cast("tuple[ListenerStatus, ...]", self.members()["listeners"])

    def test_open_listeners(self) -> None:
        """Connections and the identities behind them are counted now, requests and refusals since the start."""
        self.clients[0].dataReceived(GET)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.rig.context.metrics.denied_policy.inc()
        web, pay = self.listeners()
        self.assertEqual(("web", "127.0.0.1:8443", "127.0.0.1:8080"), (web.name, web.listen, web.upstream))
        self.assertEqual((2, 1, 1, 1), (web.connections, web.peers, web.requests, web.refusals))
        self.assertEqual((0, 0, 0, 0), (pay.connections, pay.peers, pay.requests, pay.refusals))

    def test_draining_listeners(self) -> None:
        """A listener that takes no connections any more still has those that are open."""
        self.stop()
        web, _pay = self.listeners()
        self.assertEqual(("127.0.0.1:8443", 2, 1), (web.listen, web.connections, web.peers))
        self.lose(self.clients[0])
        self.assertEqual(1, self.listeners()[0].connections)

    def test_identity_and_store(self) -> None:
        """The credentials are described with their ends, and the database with what was written."""
        members = self.members()
        [identity] = members["identities"]
        credentials = self.rig.credentials
        self.assertEqual((str(OWN.spiffe_id), credentials.close_at), (identity.spiffe_id, identity.serves_until))
        self.assertEqual((credentials.statement.id, None), (identity.statement_id, identity.pq_not_after))
        self.assertEqual((5, 7, 1.23), tuple(vars(members["store"])[n] for n in ("octets", "room", "room_days")))
        self.assertEqual(
            ("notary.db", True, 3), tuple(vars(members["store"])[n] for n in ("path", "writable", "records"))
        )
