"""Metrics of client connections: results, the gauge, octets, and every cause of a close, over a real proxy."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from datetime import UTC, datetime, timedelta

from svc.testing.ca import TestAuthority
from tests.integration.metrics_rig import SOON, EventCase, Series, moves, page, series, world
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.partner import attempt
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

STATEMENT = b"GET /.well-known/svc-notary/v1/statements/current HTTP/1.1\r\nHost: a\r\n\r\n"
#: The signature of the PROXY protocol, version 2, and a header that says "local".
LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"


def closed(cause: str) -> Series:
    """The counter of a cause."""
    return series("connections_closed_total", protocol="http", cause=cause)


def result(direction: str, word: str) -> Series:
    """The counter of a result."""
    return series("connections_total", protocol="http", direction=direction, result=word)


def active(direction: str) -> Series:
    """The gauge of open connections."""
    return series("active_connections", protocol="http", direction=direction)


class ResultTests(EventCase):
    """The result of a connection, and when it is counted."""

    @moves(
        result("inbound", "success"),
        series("auth_decisions_total", protocol="http", role="server", result="allowed", reason="ok"),
        closed("client"),
    )
    def test_accepted(self) -> None:
        """A connection whose first request is let in is a success, long before it ends."""
        before = page(self.proxy)[result("inbound", "success")]
        with self.connect("web") as connection:
            self.assertEqual(200, connection.request("/bytes/1").status)
            self.assertEqual(before + 1, page(self.proxy)[result("inbound", "success")])

    @moves(result("inbound", "auth_failed"), closed("client"))
    @moves(
        series("auth_decisions_total", protocol="http", role="server", result="denied", reason="policy_deny"),
        by=2,
    )
    def test_denied(self) -> None:
        """A connection that the policy denies is a refusal at its first request; each request is a decision."""
        before = page(self.proxy)[result("inbound", "auth_failed")]
        with RawConnection(self.found.ports["web"], self.partner("/denied")) as connection:
            for _turn in range(2):
                self.assertEqual(403, connection.request("/bytes/1").status)
            self.assertEqual(before + 1, page(self.proxy)[result("inbound", "auth_failed")])

    @moves(active("inbound"), active("outbound"), by=0)
    def test_open_connections(self) -> None:
        """The gauge has the number of open connections, and is zero again when they are closed."""
        for direction, listener in (("inbound", "web"), ("outbound", "out")):
            before = page(self.proxy)[active(direction)]
            connections = [self.connect(listener) for _number in range(3)]
            for connection in connections:
                self.assertEqual(200, connection.request("/bytes/1").status)
            self.assertEqual((0, 3), (before, page(self.proxy)[active(direction)]))
            for connection in connections:
                connection.close()
            eventually(lambda: not page(self.proxy)[active(direction)], SOON)  # noqa: B023


class CauseTests(EventCase):
    """Causes of the end of a connection."""

    @moves(closed("served"))
    def test_served(self) -> None:
        """The client asked for the end after its answer."""
        with self.connect("web") as connection:
            connection.request("/bytes/1", fields="Connection: close\r\n")
            self.assertTrue(connection.ended())

    @moves(closed("application"))
    def test_application(self) -> None:
        """The application ends the connection that it took over."""
        with self.connect("leaving") as connection:
            answer = connection.request("/", fields="Connection: Upgrade\r\nUpgrade: chat\r\n")
            self.assertEqual(101, answer.status)
            self.assertTrue(connection.ended())

    @moves(closed("client"), by=2)
    def test_client(self) -> None:
        """The client closes: in order, and by a reset in the middle of a response."""
        with self.connect("web") as connection:
            connection.request("/bytes/1")
        running = self.connect("web")
        running.send(b"GET /drip/5/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        running.line()
        running.reset()

    @moves(closed("idle"))
    def test_idle(self) -> None:
        """Nothing happens for the listener's time."""
        with self.connect("tight") as connection:
            connection.request("/bytes/1")
            self.assertTrue(connection.ended())

    @moves(closed("timeout"), by=3)
    def test_timeout(self) -> None:
        """A head, a body and an answer that do not go on."""
        for beginning, status in (
            (b"GET /bytes/1 HTTP/1.1\r\nHo", b"408"),
            (b"POST /digest HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx", b"408"),
            (b"GET /drip/3/9 HTTP/1.1\r\nHost: a\r\n\r\n", b"200"),
        ):
            with self.connect("tight") as connection:
                connection.send(beginning)
                self.assertIn(status, connection.rest(), beginning)

    @moves(closed("protocol"))
    def test_protocol(self) -> None:
        """The client sends no valid HTTP."""
        with self.connect("web") as connection:
            connection.send(b"GET / HTTP/1.1\r\n\r\n")
            self.assertIn(b" 400 ", connection.rest())

    @moves(closed("server_aborted"))
    def test_server_aborted(self) -> None:
        """The application breaks its answer off, so the client's is broken off too."""
        with self.connect("misbehaving") as connection:
            connection.send(b"GET /half/1000 HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\r\n\r\n")
            self.assertIn(b" 200 ", connection.rest())

    @moves(closed("connection_limit"), result("inbound", "error"))
    def test_connection_limit(self) -> None:
        """One more connection than the listener may have, while all of them are in use."""
        with self.connect("few") as connection:
            connection.send(b"GET /slow/2 HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assert_cut(self.plain("few"))
            self.assertEqual(200, connection.read().status)

    @moves(closed("evicted_unpermitted"))
    def test_evicted_unpermitted(self) -> None:
        """A listener is full of a client that the policy refuses, and another one connects."""
        with RawConnection(self.found.ports["few"], self.partner("/holding")) as holding:
            self.assertEqual(403, holding.request("/").status)
            with self.connect("few") as connection:
                self.assertEqual(200, connection.request("/bytes/1").status)
            self.assertTrue(holding.ended())

    @moves(closed("evicted_idle"))
    def test_evicted_idle(self) -> None:
        """A listener is full with an idle client, and another client connects."""
        with self.connect("few") as idle:
            self.assertEqual(200, idle.request("/bytes/1").status)
            with self.connect("few") as connection:
                self.assertEqual(200, connection.request("/bytes/1").status)
            self.assertTrue(idle.ended())

    @moves(closed("handshake_limit"), closed("handshake"))
    @moves(result("inbound", "error"), by=2)
    def test_handshake_limit(self) -> None:
        """One more handshake than may run at once; the one that ran is given up."""
        waiting = self.plain("slow", b"\x16")
        self.assert_cut(self.plain("slow", b"\x16"))
        waiting.close()

    @moves(closed("waiting_limit"), closed("handshake"))
    @moves(result("inbound", "error"), by=2)
    def test_waiting_limit(self) -> None:
        """One more client that sends nothing than may wait: the one before is evicted; the last one times out."""
        first = self.plain("quiet")
        last = self.plain("quiet")
        self.assert_cut(first)
        last.close()

    @moves(closed("proxy_header_invalid"), closed("proxy_header_timeout"))
    @moves(result("inbound", "error"), by=2)
    def test_proxy_header(self) -> None:
        """Behind a load balancer: a connection without its header, and one that never sends it."""
        self.assert_cut(self.plain("balanced", b"\x16\x03\x01\x00\x05hello"))
        self.assert_cut(self.plain("balanced", LOCAL[:8]))

    @moves(closed("peer_expired"))
    def test_peer_expired(self) -> None:
        """The client's SVID ends while its connection is open."""
        ends = datetime.now(UTC) + timedelta(seconds=8)
        with RawConnection(self.found.ports["web"], self.partner("/brief", not_after=ends)) as connection:
            self.assertEqual(403, connection.request("/").status)
            self.assertTrue(connection.ended())

    @moves(
        closed("reauthorization"),
        series("auth_decisions_total", protocol="http", role="server", result="denied", reason="svid_invalid"),
    )
    def test_reauthorization(self) -> None:
        """The root that vouched for the client leaves the bundle."""
        partner, other = self.found.partner, TestAuthority("partner.example", now=self.found.partner.now)
        with RawConnection(self.found.ports["web"], self.partner("/revoked")) as connection:
            self.assertEqual(403, connection.request("/").status)
            # The next test finds the partner's root restored.
            self.addCleanup(eventually, self.trusted, SOON, "that the partner is trusted")
            self.addCleanup(partner.publish, partner.root.certificate, partner.misplaced.leaf)
            partner.publish(other.certificate)
            self.assertTrue(connection.ended())

    def test_drain(self) -> None:
        """An operator drains the proxy while a connection waits for its next request."""
        found = self.found
        with RunningProxy(found.authority, "127.0.0.1:9") as proxy, RawConnection(proxy.port, found.web) as connection:
            self.assertEqual(502, connection.request("/").status)
            request = urllib.request.Request(f"http://127.0.0.1:{proxy.admin_port}/drain", method="POST")
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.assertEqual(202, answer.status)
            self.assertTrue(connection.ended())
            eventually(lambda: page(proxy)[closed("drain")] == 1, SOON)

    test_drain.claims = {closed("drain")}  # type: ignore[attr-defined]

    def test_identity_withdrawn(self) -> None:
        """The authority has no entry for the proxy any more, so its identity is withdrawn and connections close."""
        with contextlib.ExitStack() as stack:
            found = world(stack)
            proxy = RunningProxy(found.authority, "127.0.0.1:9", settings={"withdrawalGrace": "500ms"})
            stack.enter_context(proxy)
            credentials = Credentials.fetch(found.authority, found.folder / "id")
            with RawConnection(proxy.port, credentials) as connection:
                self.assertEqual(502, connection.request("/").status)
                found.authority.config["entries"] = [{"spiffeID": "spiffe://example.org/other", "uid": 65533}]
                found.authority.write_config()
                self.assertTrue(connection.ended())
            eventually(lambda: page(proxy)[closed("identity_withdrawn")] == 1, SOON)

    test_identity_withdrawn.claims = {closed("identity_withdrawn")}  # type: ignore[attr-defined]

    def trusted(self) -> bool:
        """Whether the partner's workloads are verified."""
        return bool(attempt(self.found.ports["web"], self.found.partner.svid()))

    def assert_cut(self, connection: socket.socket) -> None:
        """The other side drops the connection without a TLS close."""
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(b"", connection.recv(100))


class OctetTests(EventCase):
    """Application octets: what clients sent, TLS removed, and what backends got, before TLS."""

    HEAD = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
    CHUNKED = b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nabcd\r\n0\r\nT: u\r\n\r\n"

    def octets(self) -> tuple[float, float]:
        """Return the counted octets: received, sent."""
        names = ("bytes_received_total", "bytes_sent_total")
        found = page(self.proxy)
        received, sent = (found[series(name, protocol="http")] for name in names)
        return received, sent

    @moves(series("bytes_received_total", protocol="http"), series("bytes_sent_total", protocol="http"), by=None)
    def test_inbound(self) -> None:
        """Heads, chunk lines, bodies and trailers as the client wrote them, and as the application got them."""
        application = self.found.counting
        before, got = self.octets(), len(application.received)
        sent = [
            self.HEAD + b"hello",
            self.CHUNKED,
            b"GET /.well-known/svc-notary/v1/statements/current HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
        with self.connect("counting") as connection:
            for data in sent:
                connection.send(data)
                connection.read()
        arrived = application.received[got:]
        # The application's half: other heads, and nothing of what the notary answered itself.
        self.assertIn(b"X-Forwarded-Client-Cert", arrived)
        self.assertNotIn(b"well-known", arrived)
        self.assert_octets(before, len(b"".join(sent)), len(arrived))

    @moves(series("bytes_received_total", protocol="http"), series("bytes_sent_total", protocol="http"), by=None)
    def test_outbound(self) -> None:
        """Return what the application wrote, and what the peer read inside TLS."""
        peer = self.found.peer
        before, got = self.octets(), peer.received
        notary_fields = b"GET /x HTTP/1.1\r\nHost: a\r\nSvc-Notarization-Level: signRequest\r\n\r\n"
        with self.connect("out") as connection:
            connection.send(notary_fields)
            self.assertEqual(200, connection.read().status)
        # The request for a level is sent on with a nonce, so more is sent than was received.
        self.assertGreater(peer.received - got, len(notary_fields))
        self.assert_octets(before, len(notary_fields), peer.received - got)

    @moves(series("bytes_received_total", protocol="http"), series("bytes_sent_total", protocol="http"), by=None)
    def test_upgraded(self) -> None:
        """After an upgrade every octet counts."""
        application = self.found.upgraded
        before, got = self.octets(), len(application.received)
        head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"
        with self.connect("upgraded") as connection:
            connection.send(head)
            self.assertEqual(101, connection.read().status)
            connection.send(b"x" * 70_000)
            eventually(lambda: application.received.count(b"x") >= 70_000, SOON)
        self.assert_octets(before, len(head) + 70_000, len(application.received) - got)

    @moves(series("bytes_received_total", protocol="http"), by=None)
    def test_what_stands_before_tls(self) -> None:
        """Neither the header of a load balancer nor TLS itself counts."""
        before = self.octets()
        plain = self.plain("balanced", LOCAL)
        with self.found.web.context().wrap_socket(plain) as tls:
            tls.sendall(STATEMENT)
            self.assertIn(b"200 OK", tls.recv(1000))
        self.assert_octets(before, len(STATEMENT), 0)

    def assert_octets(self, before: tuple[float, float], received: int, sent: int) -> None:
        """Exactly so many more are counted, and it stays so."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.octets() == (before[0] + received, before[1] + sent), SOON)
        time.sleep(0.6)
        now = self.octets()
        self.assertEqual((received, sent), (now[0] - before[0], now[1] - before[1]))
