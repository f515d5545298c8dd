"""Clients and an application that send what takes long to handle, and how long another client waits beside them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

#: Seconds. Promised are 0.05 on an idle machine; where each read was handled in one turn it took 0.3 to 2.6.
LONGEST = 0.2
REQUESTS = 30
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNK = b"1\r\na\r\n"
POLICY = """\
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: shop}
spec:
  authorization:
    rules: [{name: shop, from: [{namespaces: [shop]}]}]
"""


class SmallChunks:
    """An application whose responses are chunks of one octet, without end."""

    def __init__(self, stack: ExitStack) -> None:
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listening.accept()[:1], daemon=True).start()

    @staticmethod
    def _serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(CHUNK * 20000)


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    names = ("/ns/shop/sa/api", "/ns/shop/sa/web", "/ns/other/sa/flood")
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names]))
    (folder / "policy.yaml").write_text(POLICY)
    chunks = {"name": "chunks", "protocol": "http", "direction": "inbound", "listen": f"127.0.0.1:{free_port()}"}
    chunks["upstream"] = f"127.0.0.1:{SmallChunks(stack).port}"
    settings = {"policy": {"default": "deny", "files": [str(folder / "policy.yaml")]}}
    upstream = f"127.0.0.1:{webapp.start(stack)}"
    proxy = stack.enter_context(RunningProxy(authority, upstream, settings=settings, listeners=[chunks]))
    web, flood = (Credentials.fetch(authority, folder / name[-3:], name).context() for name in names[1:])
    return SimpleNamespace(proxy=proxy, web=web, flood=flood, chunks=int(chunks["listen"].partition(":")[2]))


SHARED = Shared(_make)


class Flood:
    """Writes octets on connections of its own, again and again, and reads what comes."""

    def __init__(self, connections: list[RawConnection], octets: bytes) -> None:
        self._connections = connections
        self._octets = octets
        self._ended = False
        self.received = 0
        self._threads = [threading.Thread(target=self._run, args=[each], daemon=True) for each in connections]

    def __enter__(self) -> Flood:
        for each in self._threads:
            each.start()
        return self

    def _run(self, connection: RawConnection) -> None:
        connection.socket.setblocking(False)
        unsent = b""
        while not self._ended:
            unsent = unsent or self._octets
            moved = 0
            with contextlib.suppress(OSError):
                moved = connection.socket.send(unsent)
                unsent = unsent[moved:]
            with contextlib.suppress(OSError):
                part = len(connection.socket.recv(1 << 20))
                self.received += part
                moved += part
            if not moved:
                time.sleep(0.001)

    def __exit__(self, *_error: object) -> None:
        self._ended = True
        for thread, each in zip(self._threads, self._connections, strict=True):
            thread.join()
            each.close()


class TurnTests(SynchronousTestCase):
    """One client that asks once at a time."""

    def setUp(self) -> None:
        self.rig = SHARED.get()

    def assert_served(self, flood: Flood, moving: Callable[[], float]) -> None:
        """Each request of a series is answered soon; a busy machine gets another series."""
        client = RawConnection(self.rig.proxy.port, self.rig.web)
        self.addCleanup(client.close)
        client.request("/status/200")

        def series() -> bool:
            before, times = moving(), []
            for _ in range(REQUESTS):
                began = time.monotonic()
                self.assertEqual(client.request("/status/200").status, 200)
                times.append(time.monotonic() - began)
            return max(times) < LONGEST and moving() > before

        with flood:
            eventually(lambda: moving() > 0, what="a flood")
            eventually(series, what="a series of requests that are answered soon")

    def test_refused_requests(self) -> None:
        """Requests that are refused, in reads as large as they get, on some connections."""
        connections = [RawConnection(self.rig.proxy.port, self.rig.flood) for _ in range(4)]
        self.assertEqual(connections[0].request("/").status, 403)
        flood = Flood(connections, GET * 5000)
        self.assert_served(flood, lambda: flood.received)

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
        self.assert_served(flood, lambda: flood.received)
