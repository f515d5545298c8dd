"""TCP listeners under floods and slow clients: who is closed, who is served, and what it costs in memory."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.octets import Octets
from tests.peers.partner import DOMAIN, Partner
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port, rounds

FULL = 40
WAITING = 16
#: Clients that do not read, and more than the sockets of the kernel between application and client take, for each.
STALLED = 50
BODY = 64 << 20
#: KiB for each of them, beside the 40 of an idle connection.
MOST_STALLED = 400


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    partner = Partner(folder / "partner.pem")
    names = ("/ns/shop/sa/api", "/ns/shop/sa/a", "/ns/shop/sa/b")
    federated = {"federatesWith": [{"trustDomain": DOMAIN, "bundleFile": str(partner.path)}]}
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names], settings=federated))
    octets = Octets(stack)
    port, roomy = free_port(), free_port()
    listener = {"protocol": "tcp", "direction": "inbound", "upstream": f"127.0.0.1:{octets.port}"}
    limits = {"connections": FULL, "waiting": WAITING}
    full = {**listener, "name": "full", "listen": f"127.0.0.1:{port}", "limits": limits}
    wide = {**listener, "name": "wide", "listen": f"127.0.0.1:{roomy}"}
    proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{octets.port}", listeners=[full, wide]))
    a, b = (Credentials.fetch(authority, folder / name[-1], name) for name in names[1:])
    refused = Credentials.of(partner.svid("/refused"), folder / "refused", a.roots)
    contexts = {"a": a.context(), "b": b.context(), "refused": refused.context()}
    return SimpleNamespace(proxy=proxy, octets=octets, port=port, roomy=roomy, **contexts)


SHARED = Shared(_make)


class FloodTests(SynchronousTestCase):
    """Connections of one listener, up to its limit and beyond."""

    def setUp(self) -> None:
        self.rig = SHARED.get()
        self.proxy: RunningProxy = self.rig.proxy
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), what="the end of all connections")

    def tearDown(self) -> None:
        """Close what the application holds."""
        for each in self.rig.octets.held:
            each.close()
        self.rig.octets.held.clear()

    def hold(self, context: ssl.SSLContext, count: int) -> list[RawConnection]:
        """Open connections, one after the other, that the application keeps open."""
        connections = []
        for _number in range(count):
            connection = RawConnection(self.rig.port, context)
            self.addCleanup(connection.close)
            before = len(self.rig.octets.held)
            connection.send(b"hold")
            eventually(lambda before=before: len(self.rig.octets.held) > before, what="the application's connection")
            connections.append(connection)
        return connections

    def assert_served(self, context: ssl.SSLContext, port: int = 0) -> None:
        """A new client gets an answer."""
        with RawConnection(port or self.rig.port, context) as connection:
            connection.send(b"get 5")
            self.assertEqual(5, len(connection.rest()))

    def open_of(self, connections: list[RawConnection]) -> int:
        """How many have not ended; there is nothing to read in any."""
        count = 0
        for each in connections:
            each.socket.settimeout(0)
            try:
                self.assertFalse(each.socket.recv(1))
            except ssl.SSLWantReadError:
                count += 1
            except OSError:
                pass
        return count

    def closed(self, cause: str) -> float:
        """How many connections were closed for a cause."""
        return self.proxy.metric("svc_proxy_connections_closed_total", protocol="tcp", cause=cause)

    def test_one_holds_all(self) -> None:
        """An identity that holds all slots loses its longest idle ones to another identity, and gets no more itself."""
        evicted, limited = self.closed("evicted_idle"), self.closed("connection_limit")
        many = self.hold(self.rig.a, FULL)
        with RawConnection(self.rig.port, self.rig.a) as further:
            self.assertTrue(further.ended())
        self.hold(self.rig.b, 3)
        eventually(lambda: self.closed("evicted_idle") == evicted + 3)
        self.assertEqual(FULL - 3, self.open_of(many))
        self.assertEqual(limited + 1, self.closed("connection_limit"))

        def logged() -> set[tuple[str, str]]:
            records = self.proxy.records("svc.proxy.connection.evicted")
            return {(each["detail_reason"], each["peer_spiffe_id"]) for each in records}

        peer = "spiffe://example.org/ns/shop/sa/a"
        eventually(lambda: logged() == {("evicted_idle", peer), ("connection_limit", peer)})

    def test_octet_now_and_then(self) -> None:
        """Connections that are never idle for long keep another identity out no more than others do."""
        many = self.hold(self.rig.a, FULL)
        for _number in range(3):
            for each in many:
                with contextlib.suppress(OSError):
                    each.send(b".")
            self.assert_served(self.rig.b)

    def test_half_closed(self) -> None:
        """The same with clients that have ended their stream and stay."""
        for each in self.hold(self.rig.a, FULL):
            each.socket.settimeout(0)
            self.assertRaises(ssl.SSLWantReadError, each.socket.unwrap)  # type: ignore[attr-defined]
        self.assert_served(self.rig.b)

    def test_silent(self) -> None:
        """TCP connections that begin no handshake keep nobody out, even where all slots are taken."""
        many = self.hold(self.rig.a, FULL)
        before = self.closed("waiting_limit")
        for _number in range(3 * WAITING):
            silent = socket.create_connection(("127.0.0.1", self.rig.port), 60)
            self.addCleanup(silent.close)
        eventually(lambda: self.closed("waiting_limit") >= before + 2 * WAITING)
        self.assert_served(self.rig.b)
        self.assertEqual(FULL - 1, self.open_of(many))

    def test_refused_identity(self) -> None:
        """A refused identity takes no slot, and its connections never reach the application."""
        many = self.hold(self.rig.a, FULL - 1)
        before, accepted = self.closed("policy_deny"), self.rig.octets.accepted
        flood = rounds(100, 2_000)
        for _number in range(flood):
            # The proxy may drop the connection while its last octets of the handshake are on their way.
            with contextlib.suppress(OSError), RawConnection(self.rig.port, self.rig.refused) as refused:
                self.assertTrue(refused.ended())
        self.assertEqual(accepted, self.rig.octets.accepted)
        eventually(lambda: self.closed("policy_deny") == before + flood)
        self.assert_served(self.rig.b)
        self.assertEqual(FULL - 1, self.open_of(many))

    def test_clients_that_do_not_read(self) -> None:
        """Each costs about what its buffers hold, others are served, and the memory is returned."""
        clients = []
        for _number in range(STALLED):
            connection = RawConnection(self.rig.roomy, self.rig.a)
            self.addCleanup(connection.close)
            clients.append(connection)
        idle, _most = self.proxy.memory()
        for each in clients:
            each.send(b"get %d" % BODY)
        self.settled()
        stalled, _most = self.proxy.memory()
        self.assertLess((stalled - idle) * 1024 / STALLED, MOST_STALLED)
        self.assert_served(self.rig.b, self.rig.roomy)

    def test_application_that_does_not_read(self) -> None:
        """The same in the other direction: what the application does not take is not read from the client."""
        clients = [RawConnection(self.rig.roomy, self.rig.a) for _number in range(STALLED)]
        for each in clients:
            self.addCleanup(each.close)
            each.send(b"hold")
        eventually(lambda: len(self.rig.octets.held) == STALLED, what="the application's connections")
        idle, _most = self.proxy.memory()
        octets = bytes(1 << 20)
        for each in clients:
            each.socket.settimeout(0)
            with contextlib.suppress(ssl.SSLWantWriteError):
                for _ in range(BODY >> 20):
                    each.socket.send(octets)
                self.fail("the proxy has read a body that nobody takes")
        self.settled()
        stalled, _most = self.proxy.memory()
        self.assertLess((stalled - idle) * 1024 / STALLED, MOST_STALLED)
        self.assert_served(self.rig.b, self.rig.roomy)

    def settled(self) -> None:
        """Wait until the memory of the proxy grows no more."""
        before = -1.0
        while (now := self.proxy.memory()[0]) > before:
            before = now
            time.sleep(1.0)  # Nothing reports when all buffers are full.
