"""Connection load: clients that send nothing, and ten thousand that connect and close."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.connection_churn import HALF_HELLO, SilentConnections, crowd
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, rounds

WARM, MANY = 2_000, rounds(4_000, 10_000)
#: The most memory that each of them may use: less than anything that a connection owns.
LEFT_OCTETS = 420
#: Seconds in which a client is served that need not wait until silent ones are given up, which takes ten.
AT_ONCE = 6.0


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}", listener={"limits": {"connections": 3000}})
    stack.enter_context(proxy)
    return SimpleNamespace(proxy=proxy, credentials=Credentials.fetch(authority, short_folder(stack)))


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.credentials: Credentials = found.credentials

    def closed(self, cause: str) -> float:
        """How many connections were closed for a cause."""
        return self.proxy.metric("svc_proxy_connections_closed_total", cause=cause)

    def seconds_of(self, source: str) -> float:
        """Connect from an address, send a request, and return the seconds that it took."""
        context, began = self.credentials.context(), time.monotonic()
        plain = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=60, source_address=(source, 0))
        with context.wrap_socket(plain) as tls:
            tls.sendall(b"GET /bytes/10 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := tls.recv(65536):
                answer += data
        self.assertEqual(b"HTTP/1.1 200 ", answer[:13])
        return time.monotonic() - began

    def assert_nothing_left(self, descriptors: int) -> None:
        """Assert that all connections are closed."""
        eventually(lambda: self.proxy.descriptors() <= descriptors, 60, f"{descriptors} open descriptors")
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), what="no connection")


class SilenceTests(_Case):
    """Connections that do not finish their handshake."""

    def test_silent_connections(self) -> None:
        """While 2,000 connections send nothing a client is served at once, from another and from their own address."""
        before = self.proxy.descriptors()
        with SilentConnections(self.proxy.port, 2000):
            for source in ("127.0.0.2", "127.0.0.1"):
                self.assertLess(self.seconds_of(source), AT_ONCE)
            self.assertLess(self.proxy.descriptors(), before + 1024 + 50)
        self.assertGreater(self.closed("waiting_limit"), 900)
        eventually(lambda: self.proxy.records("svc.proxy.connection.refused"))
        self.assert_nothing_left(before)

    def test_stalled_handshakes(self) -> None:
        """Beside 2,000 that stop in the middle of their ClientHello a client from elsewhere is served at once."""
        before = self.proxy.descriptors()
        with SilentConnections(self.proxy.port, 2000, first=HALF_HELLO):
            self.assertLess(self.seconds_of("127.0.0.2"), AT_ONCE)
        self.assertGreater(self.closed("handshake_limit"), 0)
        self.assert_nothing_left(before)

    def test_listener_full_of_silence(self) -> None:
        """Where silence or stalled handshakes fill a listener, a client evicts the oldest one."""
        config = self.proxy.config["listeners"][0]
        config["limits"] = {"connections": 50}
        self.proxy.write_config()
        self.addCleanup(self._restore)
        self._reload()
        with SilentConnections(self.proxy.port, 60):
            for source in ("127.0.0.2", "127.0.0.1", "127.0.0.2"):
                self.assertLess(self.seconds_of(source), AT_ONCE)
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), what="no connection")
        with SilentConnections(self.proxy.port, 60, first=HALF_HELLO):
            # So long a handshake keeps its slot.
            time.sleep(1.5)
            self.assertLess(self.seconds_of("127.0.0.2"), AT_ONCE)

    def _restore(self) -> None:
        self.proxy.config["listeners"][0]["limits"] = {"connections": 3000}
        self.proxy.write_config()
        self._reload()

    def _reload(self) -> None:
        loaded = len(self.proxy.records("svc.config.loaded"))
        self.proxy.signal(signal.SIGHUP)
        eventually(lambda: len(self.proxy.records("svc.config.loaded")) > loaded, 60, "the reload")


class ChurnTests(_Case):
    """Thousands of connections."""

    def test_flat(self) -> None:
        """
        Whether they are served, reset or leave in the handshake: no descriptor stays, and no memory is lost.

        After the warm-up, which fills caches and pools, others may cost less than half a kilobyte each.
        """
        before = self.proxy.descriptors()
        self.assertEqual(WARM * 0.7, crowd(self.proxy.port, self.credentials, WARM)["served"])
        eventually(lambda: self.proxy.descriptors() <= before + 16, 60, "that the crowd is gone")
        warm, _most = self.proxy.memory()
        ends = crowd(self.proxy.port, self.credentials, MANY)
        self.assertEqual(
            {
                "served": MANY * 0.7,
                "reset_in_hello": MANY * 0.1,
                "left_without_a_word": MANY * 0.1,
                "reset_after_handshake": MANY * 0.1,
            },
            ends,
        )
        # A few connections to the application are kept.
        self.assert_nothing_left(before + 16)
        now, _most = self.proxy.memory()
        self.assertLess((now - warm) * 1024 * 1024 / MANY, LEFT_OCTETS, f"{warm:.1f} MiB grew to {now:.1f}")
        self.assertEqual([], self.proxy.records("svc.runtime.failure"))
        self.assertEqual("", self.proxy.errors)
