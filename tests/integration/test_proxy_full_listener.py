"""A listener whose connections are all taken: who is closed for a new client, and who is not."""

from __future__ import annotations

import resource
import socketserver
import ssl
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.metrics_rig import inbound, port_of
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.partner import DOMAIN, Partner
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, rounds

FULL = 40
#: Of the MQTT listener; it accepts as many more, for their handshakes.
FEW = 4
#: Of MQTT 3.1.1, with the client identifier ``abc``, and its answers.
CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc"
ACCEPTED, REFUSED = b"\x20\x02\x00\x00", b"\x20\x02\x00\x05"
#: What one front end holds on a listener that is not full.
MANY = rounds(500, 3_000)


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    partner = Partner(folder / "partner.pem")
    names = ("/ns/shop/sa/api", "/ns/shop/sa/a", "/ns/shop/sa/b")
    federated = {"federatesWith": [{"trustDomain": DOMAIN, "bundleFile": str(partner.path)}]}
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names], settings=federated))
    application = webapp.start(stack)
    listener = inbound("full", application, limits={"connections": FULL}, timeouts={"idle": "5m"})
    roomy = inbound("roomy", application, limits={"connections": MANY + 1}, timeouts={"idle": "5m"})
    few = {"connections": FEW, "handshakes": FEW}
    mqtt = inbound("mqtt", _broker(stack), protocol="mqtt", limits=few, timeouts={"handshake": "1m"})
    proxy = RunningProxy(authority, f"127.0.0.1:{application}", listeners=[listener, roomy, mqtt])
    stack.enter_context(proxy)
    a, b = (Credentials.fetch(authority, folder / name[-1], name) for name in names[1:])
    refused = Credentials.of(partner.svid("/refused"), folder / "refused", a.roots)
    contexts = {"a": a.context(), "b": b.context(), "refused": refused.context()}
    return SimpleNamespace(proxy=proxy, full=port_of(listener), roomy=port_of(roomy), mqtt=port_of(mqtt), **contexts)


def _broker(stack: ExitStack) -> int:
    """Start a broker that accepts every client and reads nothing else; return its port."""

    class Accepting(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(4096):
                self.request.sendall(ACCEPTED)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Accepting)
    server.daemon_threads = True
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


SHARED = Shared(_make)


class FullListenerTests(SynchronousTestCase):
    """Connections of one listener, up to its limit and beyond."""

    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), what="the end of all connections")

    def open(self, context: ssl.SSLContext, count: int = 1, port: int = 0, status: int = 200) -> list[RawConnection]:
        """Open connections with one answered request each."""
        connections = []
        for _number in range(count):
            connection = RawConnection(port or self.found.full, context)
            self.addCleanup(connection.close)
            self.assertEqual(status, connection.request("/bytes/1").status)
            connections.append(connection)
        return connections

    def closed(self, cause: str) -> float:
        """How many connections were closed for a cause."""
        return self.proxy.metric("svc_proxy_connections_closed_total", cause=cause)

    def test_refused_identity(self) -> None:
        """Connections of a refused identity keep no other client out; the longest idle one is evicted."""
        before = self.closed("evicted_unpermitted")
        [honest] = self.open(self.found.a)
        refused = self.open(self.found.refused, FULL - 1, status=403)
        for number in range(5):
            self.open(self.found.b)
            self.assertTrue(refused[number].ended())
        self.assertEqual(200, honest.request("/bytes/1").status)
        self.assertEqual(403, refused[-1].request("/bytes/1").status)
        eventually(lambda: self.closed("evicted_unpermitted") == before + 5)
        [*_, record] = eventually(lambda: self.proxy.records("svc.proxy.connection.evicted"))
        self.assertEqual("evicted_unpermitted", record["detail_reason"])
        self.assertEqual(f"spiffe://{DOMAIN}/refused", record["peer_spiffe_id"])

    def test_refused_and_never_closing(self) -> None:
        """So it is where they have refused requests with a body outstanding, and ignore the close of the proxy."""
        for _number in range(FULL):
            connection = RawConnection(self.found.full, self.found.refused)
            self.addCleanup(connection.close)
            connection.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
            self.assertEqual(403, connection.read().status)
        self.open(self.found.a, 3)

    def test_one_holds_most(self) -> None:
        """Where all were permitted, the identity with most connections loses its longest idle ones."""
        before = self.closed("evicted_idle")
        few = self.open(self.found.b, 3)
        many = self.open(self.found.a, FULL - 3)
        self.open(self.found.b, 5)
        self.assertEqual([True] * 5, [each.ended() for each in many[:5]])
        for each in (*few, *many[5:]):
            self.assertEqual(200, each.request("/bytes/1").status)
        eventually(lambda: self.closed("evicted_idle") == before + 5)

    def test_running_exchanges(self) -> None:
        """A running exchange is never cut for a new client, which is refused while no connection is idle."""
        before = self.closed("connection_limit")
        running = [RawConnection(self.found.full, self.found.a) for _number in range(FULL)]
        for each in running:
            self.addCleanup(each.close)
            each.send(b"GET /slow/8 HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertRaises(OSError, RawConnection, self.found.full, self.found.b)
        for each in running:
            self.assertEqual(200, each.read().status)
        self.assertEqual(before + 1, self.closed("connection_limit"))
        self.open(self.found.b)

    def test_refused_identity_and_mqtt(self) -> None:
        """Nor do MQTT clients that send no CONNECT, or one that is refused, and that ignore the close of the proxy."""
        context = self.found.refused
        for connects in (False, True):
            for _turn in range(4 * FEW):
                for _number in range(2):
                    connection = RawConnection(self.found.mqtt, context)
                    self.addCleanup(connection.close)
                    if connects:
                        connection.send(CONNECT)
                        self.assertEqual(REFUSED, connection.exactly(4))
                with RawConnection(self.found.mqtt, self.found.a) as honest:
                    honest.send(CONNECT)
                    self.assertEqual(ACCEPTED, honest.exactly(4))
        self.assertLessEqual(self.proxy.metric("svc_proxy_active_connections", protocol="mqtt"), 2 * FEW)

    def test_front_end(self) -> None:
        """One identity holds as many connections as the listener has, one less than full, and keeps all of them."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * MANY)), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        front = self.open(self.found.a, MANY, self.found.roomy)
        self.open(self.found.b, 1, self.found.roomy)
        for each in front:
            self.assertEqual(200, each.request("/bytes/1").status)
