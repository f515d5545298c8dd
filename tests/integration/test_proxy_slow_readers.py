"""Clients that request a large response and do not read it: the memory that each uses, and that it is freed."""

from __future__ import annotations

import time
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

CLIENTS = 100
#: More than the sockets of the kernel between application and client take.
BODY = 64 << 20
#: KiB for each, beside the 40 of its idle connection. It is about 170; with reads of 128 KiB that wait in three buffers
#: for each client it was 400.
MOST_STALLED = 280
#: MiB that may be left of all of them; it was 80.
MOST_LEFT = 30


class SlowReaderTests(SynchronousTestCase):
    """A crowd of them."""

    def test_memory(self) -> None:
        """Each holds about one read, and when all have left nearly everything is returned to the system."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}", listener={"notarization": "none"})
        stack.enter_context(proxy)
        context = Credentials.fetch(authority, short_folder(stack)).context()
        clients = [stack.enter_context(RawConnection(proxy.port, context)) for _number in range(CLIENTS)]
        idle, _most = proxy.memory()
        for each in clients:
            each.send(f"GET /bytes/{BODY} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        self.settled(proxy)
        stalled, _most = proxy.memory()
        self.assertLess((stalled - idle) * 1024 / CLIENTS, MOST_STALLED)
        for each in clients:
            each.close()
        eventually(lambda: proxy.metric("svc_proxy_active_connections") == 0, what="the end of all connections")
        eventually(lambda: proxy.memory()[0] - idle < MOST_LEFT, 90, "memory that is returned")

    def settled(self, proxy: RunningProxy) -> None:
        """
        Wait until nothing more is forwarded: the counter of received octets of the kernel's sockets does not change.
        """
        before = -1.0
        while (now := proxy.memory()[0]) > before:
            before = now
            time.sleep(1.0)  # Nothing reports when all buffers are full.
