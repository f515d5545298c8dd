"""Clients and an application that send what takes long to handle, and how long another client waits beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.flood import EndlessSender, Flood
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, free_port

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNK = b"1\r\na\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
POLICY = """\
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: shop}
spec:
  authorization:
    rules: [{name: shop, from: [{namespaces: [shop]}]}]
"""


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    names = ("/ns/shop/sa/api", "/ns/shop/sa/web", "/ns/other/sa/flood")
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names]))
    (folder / "policy.yaml").write_text(POLICY)
    chunks = {"name": "chunks", "protocol": "http", "direction": "inbound", "listen": f"127.0.0.1:{free_port()}"}
    chunks["upstream"] = f"127.0.0.1:{EndlessSender(stack, CHUNKED, CHUNK * 20000).port}"
    settings = {"policy": {"default": "deny", "files": [str(folder / "policy.yaml")]}}
    upstream = f"127.0.0.1:{webapp.start(stack)}"
    proxy = stack.enter_context(RunningProxy(authority, upstream, settings=settings, listeners=[chunks]))
    web, flood = (Credentials.fetch(authority, folder / name[-3:], name).context() for name in names[1:])
    return SimpleNamespace(proxy=proxy, web=web, flood=flood, chunks=int(chunks["listen"].partition(":")[2]))


SHARED = Shared(_make)


class TurnTests(SynchronousTestCase):
    """One client that asks once at a time."""

    def setUp(self) -> None:
        self.rig = SHARED.get()

    def assert_served(self, flood: Flood, moving: Callable[[], float] | None = None) -> None:
        """A client of the application is answered soon."""
        client = RawConnection(self.rig.proxy.port, self.rig.web)
        self.addCleanup(client.close)
        client.request("/status/200")

        def ask() -> None:
            self.assertEqual(client.request("/status/200").status, 200)

        flood.assert_served(ask, moving)

    def test_refused_requests(self) -> None:
        """Requests that are refused, in reads as large as they get, on some connections."""
        connections = [RawConnection(self.rig.proxy.port, self.rig.flood) for _ in range(4)]
        self.assertEqual(connections[0].request("/").status, 403)
        flood = Flood(connections, GET * 5000)
        self.assert_served(flood)

    def test_chunks_of_a_request(self) -> None:
        """A request in chunks of one octet."""
        connection = RawConnection(self.rig.proxy.port, self.rig.web)
        connection.send(b"POST /digest HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        flood = Flood([connection], CHUNK * 20000)
        self.assert_served(flood, lambda: self.rig.proxy.metric("svc_proxy_bytes_received_total"))

    def test_chunks_of_a_response(self) -> None:
        """Responses in chunks of one octet, on some connections."""
        connections = [RawConnection(self.rig.chunks, self.rig.web) for _ in range(4)]
        for each in connections:
            each.send(GET)
        flood = Flood(connections, b"")
        self.assert_served(flood)
