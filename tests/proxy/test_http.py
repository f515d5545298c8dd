"""HTTP requests through one listener, in memory."""

from __future__ import annotations

import gc
import weakref

from twisted.internet.error import ConnectionRefusedError as TwistedRefused
from twisted.internet.error import TimeoutError as TwistedTimeout
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.level import Level
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import AUTHORITY, Rig, lose

GET = b"GET /a HTTP/1.1\r\nHost: api\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class ForwardingTests(SynchronousTestCase):
    """What the application and the client receive."""

    def setUp(self) -> None:
        """Create an inbound listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def test_request_and_response(self) -> None:
        """A request is forwarded with the caller's identity; its response is returned unchanged."""
        self.client.dataReceived(GET)
        sent = self.rig.upstream()[1].take()
        self.assertTrue(sent.startswith(b"GET /a HTTP/1.1\r\nHost: api\r\nX-Forwarded-Client-Cert: By=spiffe://prod"))
        self.assertIn(b";URI=spiffe://prod.example/ns/web/sa/fe\r\n", sent)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)
        self.assertEqual(self.rig.reporter.served, [(b"GET", 200)])

    def test_nothing_is_left_to_the_garbage_collector(self) -> None:
        """An exchange is freed by reference counting when it ends, whichever side ends it."""
        self.addCleanup(gc.enable)
        gc.disable()
        for end in (
            lambda rig, client: rig.respond(OK),
            lambda rig, client: rig.lose_upstream(),
            lambda rig, client: lose(client),
        ):
            rig = Rig()
            client, _wire = rig.client()
            client.dataReceived(GET)
            exchange = weakref.ref(client._exchange)
            self.assertIsNotNone(exchange())
            end(rig, client)
            self.assertIsNone(exchange())

    def test_upstream_connection_is_used_again(self) -> None:
        """Two consecutive requests share a connection to the application."""
        for _ in range(2):
            self.client.dataReceived(GET)
            self.rig.respond(OK)
        self.assertEqual(len(self.rig.endpoint.connections), 1)
        self.assertEqual(self.wire.take(), OK * 2)

    def test_reserved_and_hop_by_hop_fields_stay_here(self) -> None:
        """Neither side can send reserved or hop-by-hop fields through the proxy."""
        self.client.dataReceived(
            b"GET / HTTP/1.1\r\nHost: api\r\nConnection: x-hop\r\nX-Hop: 1\r\nX_Forwarded_Client_Cert: URI=evil\r\n"
            b"Svc_Receipt_Location: /x\r\nKeep-Alive: 1\r\nA: b\r\n\r\n"
        )
        sent = self.rig.upstream()[1].take()
        for gone in (b"X-Hop", b"evil", b"Svc", b"Keep-Alive"):
            self.assertNotIn(gone, sent)
        self.assertIn(b"A: b\r\n", sent)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nSvc-Workload-ID: forged\r\nContent-Length: 0\r\nB: c\r\n\r\n")
        self.assertEqual(self.wire.take(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nB: c\r\n\r\n")

    def test_chunked_both_ways_with_trailers(self) -> None:
        """Chunks are decoded and encoded anew; trailers pass the same filter as heads."""
        self.client.dataReceived(
            b"POST / HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;x=y\r\nabc\r\n0\r\nT: 1\r\nSvc-X: 2\r\n\r\n"
        )
        self.assertTrue(self.rig.upstream()[1].take().endswith(b"\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n"))
        self.rig.respond(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nok\r\n0\r\nU: 3\r\nSvc-Y: 4\r\nContent-Type: x\r\n\r\n"
        )
        self.assertEqual(
            self.wire.take(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nU: 3\r\n\r\n"
        )

    def test_fields_that_describe_the_client(self) -> None:
        """What a client claims of itself is not forwarded, in no spelling and no trailer; what the proxy says is."""
        forged = b"".join(
            b"%b: evil\r\n" % name
            for name in (
                *(b"X-Forwarded-Proto", b"x_forwarded_proto", b"X-FORWARDED-FOR", b"X.Forwarded.Host", b"Forwarded"),
                *(b"X_Real_IP", b"Client_Cert", b"X-Forwarded_Client-Cert", b"True-Client-IP"),
            )
        )
        for connection in (b"", b"Connection: x-forwarded-proto, forwarded\r\n", b"Connection: keep-alive\r\n"):
            self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\n%b%bA: b\r\n\r\n" % (forged, connection))
            sent = self.rig.upstream()[1].take()
            self.assertNotIn(b"evil", sent)
            self.assertTrue(
                sent.startswith(b"GET / HTTP/1.1\r\nHost: api\r\nA: b\r\nX-Forwarded-Client-Cert: By="), sent
            )
            self.assertTrue(sent.endswith(b"/sa/fe\r\nX-Forwarded-Proto: https\r\n\r\n"), sent)
            self.rig.respond(OK)
        self.client.dataReceived(
            b"POST / HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: 1\r\n%b\r\n" % forged
        )
        self.assertTrue(self.rig.upstream()[1].take().endswith(b"\r\n\r\n0\r\nT: 1\r\n\r\n"))

    def test_forwarded(self) -> None:
        """Where asked for, ``Forwarded`` replaces the client's; an upgrade gets it too."""
        rig = Rig(forwarded=True)
        client, _wire = rig.client()
        upgrade = b"Upgrade: websocket\r\nConnection: upgrade\r\n"
        client.dataReceived(b"GET / HTTP/1.1\r\nHost: api:81\r\nForwarded: for=evil\r\n%b\r\n" % upgrade)
        sent = rig.upstream()[1].take()
        self.assertNotIn(b"evil", sent)
        peer = _wire.getPeer()
        expected = f'Forwarded: for="{peer.host}:{peer.port}";by=_web;host="api:81";proto=https\r\n'
        self.assertIn(b"\r\nX-Forwarded-Proto: https\r\n" + expected.encode(), sent)
        self.assertEqual(sent.lower().count(b"forwarded:"), 1)

    def test_max_forwards(self) -> None:
        """Max-Forwards of TRACE and OPTIONS is decremented; at zero the proxy answers itself."""
        for method in (b"OPTIONS", b"TRACE"):
            for hops, left in ((b"1", b"0"), (b"12", b"11")):
                self.client.dataReceived(b"%b / HTTP/1.1\r\nHost: api\r\nMax-Forwards: %b\r\n\r\n" % (method, hops))
                self.assertIn(b"\r\nMax-Forwards: %b\r\n" % left, self.rig.upstream()[1].take())
                self.rig.respond(OK)
                self.assertEqual(self.wire.take(), OK)
        for request, start in (
            (b"OPTIONS / HTTP/1.1\r\nHost: api\r\nMax-Forwards: 0\r\nCookie: a\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
            (b"OPTIONS * HTTP/1.1\r\nHost: api\r\nMax-Forwards: 00\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
            (b"TRACE / HTTP/1.1\r\nHost: api\r\nMax-Forwards: 0\r\nCookie: a\r\n\r\n", b"HTTP/1.1 405 "),
        ):
            self.client.dataReceived(request)
            out = self.wire.take()
            self.assertTrue(out.startswith(start), out)
            self.assertNotIn(b"Cookie", out)
            if b" 405 " in start:
                self.assertIn(b"\r\nAllow: OPTIONS\r\n", out)
                self.assertIn(b'"code":"trace_ended"', out)
            else:
                self.assertIn(b"\r\nContent-Length: 0\r\n", out)
        self.assertEqual(self.rig.upstream()[1].take(), b"")
        self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nMax-Forwards: 0\r\n\r\n")
        self.assertIn(b"\r\nMax-Forwards: 0\r\n", self.rig.upstream()[1].take())

    def test_max_forwards_needs_authorization(self) -> None:
        """The policy is evaluated before the proxy answers a request itself."""
        rig = Rig(policies=admit_nobody())
        client, wire = rig.client()
        client.dataReceived(b"OPTIONS / HTTP/1.1\r\nHost: api\r\nMax-Forwards: 0\r\n\r\n")
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 403 "))

    def test_head_request(self) -> None:
        """The response to HEAD has a Content-Length, but no body is awaited."""
        self.client.dataReceived(b"HEAD / HTTP/1.1\r\nHost: api\r\n\r\n")
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
        self.assertEqual(self.wire.take(), b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)
        self.assertEqual(len(self.rig.endpoint.connections), 1)

    def test_until_close_response_becomes_chunked(self) -> None:
        """A body that ends with the upstream connection is chunked for HTTP/1.1 and closed after for HTTP/1.0."""
        self.client.dataReceived(GET)
        self.rig.respond(b"HTTP/1.0 200 OK\r\n\r\nab")
        self.rig.lose_upstream()
        self.assertEqual(self.wire.take(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
        old, wire = self.rig.client()
        old.dataReceived(b"GET / HTTP/1.0\r\nHost: api\r\n\r\n")
        self.rig.respond(b"HTTP/1.0 200 OK\r\n\r\nab")
        self.rig.lose_upstream()
        self.assertEqual(wire.take(), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab")
        self.assertTrue(wire.disconnecting)

    def test_until_close_response_that_is_reset_is_no_response(self) -> None:
        """A reset does not end a body: the client's connection is aborted, so the response does not look complete."""
        self.client.dataReceived(GET)
        self.rig.respond(b"HTTP/1.0 200 OK\r\n\r\nab")
        self.rig.lose_upstream(clean=False)
        self.assertTrue(self.wire.aborted)
        self.assertNotIn(b"0\r\n\r\n", self.wire.take())

    def test_keep_alive_of_http_1_0(self) -> None:
        """An HTTP/1.0 client that asks for keep-alive keeps its connection."""
        self.client.dataReceived(b"GET / HTTP/1.0\r\nHost: api\r\nConnection: keep-alive\r\n\r\n")
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        self.assertFalse(self.wire.disconnecting)

    def test_http_1_0_without_host(self) -> None:
        """A health check without Host is answered; the application gets the upstream's own, or that of the target."""
        for line, host in (
            (b"GET /healthz HTTP/1.0", b"localhost"),
            (b"GET http://shop.example/healthz HTTP/1.0", b"shop.example"),
        ):
            client, wire = self.rig.client()
            client.dataReceived(line + b"\r\nUser-Agent: check\r\n\r\n")
            sent = self.rig.upstream()[1].take()
            self.assertEqual(1, sent.lower().count(b"host: "))
            target = line.split(b" ")[1]
            self.assertTrue(
                sent.startswith(b"GET %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: check\r\n" % (target, host)), sent
            )
            self.assertIn(b"X-Forwarded-Client-Cert: ", sent)
            self.rig.respond(OK)
            self.assertTrue(wire.take().endswith(b"ok"))

    def test_http_1_0_without_host_and_forwarded(self) -> None:
        """``Forwarded`` names no host then, and the caller all the same."""
        rig = Rig(forwarded=True)
        client, _wire = rig.client()
        client.dataReceived(b"GET / HTTP/1.0\r\n\r\n")
        sent = rig.upstream()[1].take()
        self.assertIn(b"\r\nForwarded: for=", sent)
        self.assertNotIn(b"host=", sent)
        self.assertIn(b"X-Forwarded-Client-Cert: ", sent)

    def test_http_1_0_without_host_outbound(self) -> None:
        """``host`` of an outbound listener is that of a request without one, too."""
        rig = Rig(inbound=False, host=b"api.example")
        client, _wire = rig.client()
        client.dataReceived(b"GET / HTTP/1.0\r\n\r\n")
        self.assertTrue(rig.upstream()[1].take().startswith(b"GET / HTTP/1.1\r\nHost: api.example\r\n"))

    def test_interim_responses(self) -> None:
        """100 and 103 are forwarded, without reserved fields, and only to HTTP/1.1 clients."""
        self.client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        self.assertIn(b"Expect: 100-continue\r\n", self.rig.upstream()[1].take())
        self.rig.respond(b"HTTP/1.1 100 Continue\r\nSvc-Workload-ID: x\r\n\r\n")
        self.assertEqual(self.wire.take(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.client.dataReceived(b"hi")
        self.assertEqual(self.rig.upstream()[1].take(), b"hi")
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)

    def test_responses_with_wrong_framing(self) -> None:
        """What an application says about bodies that do not exist is not passed on; its connection is not kept."""
        for given, expected in (
            (b"HTTP/1.1 103 E\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" + OK, b"HTTP/1.1 103 E\r\n\r\n" + OK),
            (b"HTTP/1.1 204 N\r\nContent-Length: 5\r\n\r\n", b"HTTP/1.1 204 N\r\n\r\n"),
            (b"HTTP/1.1 204 N\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 204 N\r\n\r\n"),
            (b"HTTP/1.1 599 X\r\nConnection: close\r\n\r\n", b"HTTP/1.1 599 X\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ):
            self.client.dataReceived(GET)
            self.rig.respond(given)
            self.assertEqual(self.wire.take(), expected)
            self.rig.lose_upstream()
            self.wire.clear()
            self.assertEqual(self.rig.pool.idle_count, 0, given)

    def test_websocket_passes_after_authorization(self) -> None:
        """After a granted upgrade octets pass both ways; closing one side closes the other."""
        self.client.dataReceived(
            b"GET /ws HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: k\r\n\r\n"
        )
        self.assertIn(b"Connection: upgrade\r\nUpgrade: websocket\r\n", self.rig.upstream()[1].take())
        self.rig.respond(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello")
        head, _, rest = self.wire.take().partition(b"\r\n\r\n")
        self.assertIn(b"Upgrade: websocket", head)
        self.assertEqual(rest, b"hello")
        self.client.dataReceived(b"frame")
        self.assertEqual(self.rig.upstream()[1].take(), b"frame")
        self.rig.respond(b"more")
        self.assertEqual(self.wire.take(), b"more")
        self.rig.lose_upstream()
        self.assertTrue(self.wire.disconnecting)

    def test_upgrade_that_is_not_granted(self) -> None:
        """If no upgrade is granted the connection stays HTTP, and octets after the request are parsed as HTTP."""
        self.client.dataReceived(
            b"GET /ws HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + GET
        )
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)
        self.assertTrue(self.rig.upstream()[1].take().endswith(b"\r\n\r\n"))
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)

    def test_upgrade_with_a_body(self) -> None:
        """A request with a body that asks for HTTP/2, as ``curl --http2 -d`` does, is forwarded without the upgrade."""
        self.client.dataReceived(
            b"POST /a HTTP/1.1\r\nHost: api\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nContent-Length: 5\r\n\r\nhello" + GET
        )
        sent = self.rig.upstream()[1].take()
        self.assertTrue(sent.startswith(b"POST /a HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n"))
        self.assertTrue(sent.endswith(b"\r\n\r\nhello"))
        self.assertNotIn(b"pgrade", sent)
        self.assertNotIn(b"HTTP2", sent)
        self.rig.respond(OK)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK + OK)

    def test_101_without_request_is_malformed(self) -> None:
        """A 101 response without an upgrade request is malformed."""
        self.client.dataReceived(GET)
        self.rig.respond(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: y\r\n\r\n")
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 502 "))

    def test_te_trailers(self) -> None:
        """``TE: trailers`` of a client is set anew for the next hop."""
        self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nConnection: TE\r\nTE: trailers\r\n\r\n")
        self.assertIn(b"TE: trailers\r\nConnection: te\r\n", self.rig.upstream()[1].take())


class PipeliningTests(SynchronousTestCase):
    """Requests that arrive before the previous response is complete."""

    def setUp(self) -> None:
        """Create an inbound listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def test_requests_wait_for_their_turn(self) -> None:
        """The second request is forwarded after the response to the first; reading pauses meanwhile."""
        self.client.dataReceived(GET + b"GET /b HTTP/1.1\r\nHost: api\r\n\r\n")
        self.assertEqual(self.rig.upstream()[1].take().count(b"GET "), 1)
        self.assertTrue(self.wire.paused)
        self.rig.respond(OK)
        self.assertIn(b"GET /b ", self.rig.upstream()[1].take())
        self.assertFalse(self.wire.paused)
        self.rig.respond(OK.replace(b"ok", b"bb"))
        self.assertEqual(self.wire.take(), OK + OK.replace(b"ok", b"bb"))

    def test_malformed_second_request(self) -> None:
        """A valid request is answered before the malformed one after it is refused."""
        self.client.dataReceived(GET + b"GET /b HTTP/1.1\r\n\r\n")
        self.rig.respond(OK)
        out = self.wire.take()
        self.assertTrue(out.startswith(OK))
        self.assertIn(b"HTTP/1.1 400 ", out)
        self.assertTrue(self.wire.disconnecting)

    def test_many_denied_requests_in_one_read(self) -> None:
        """The proxy's own responses are sent in order and without recursion."""
        rig = Rig(policies=admit_nobody())
        client, wire = rig.client()
        client.dataReceived(GET * 500)
        self.assertEqual(wire.take().count(b"HTTP/1.1 403 "), 500)
        self.assertEqual(rig.endpoint.connections, [])


class BacklogTests(SynchronousTestCase):
    """A client that sends requests and does not read the responses."""

    def setUp(self) -> None:
        """Create a client with two more requests pending while its first response is unsent."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()
        self.client.dataReceived(GET * 3)
        self.wire.unsent = 200_000
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000))

    def test_next_request_waits_until_the_answer_is_taken(self) -> None:
        """The next request waits until the unsent response is drained; the rest then follows in order."""
        upstream = self.rig.upstream()[1]
        self.assertEqual(upstream.take().count(b"GET "), 1)
        self.assertTrue(self.wire.paused)
        self.client.dataReceived(GET)
        self.assertEqual(upstream.take(), b"")
        self.wire.unsent = 0
        assert self.wire.producer is not None
        self.wire.producer.resumeProducing()
        for _ in range(3):
            self.assertEqual(upstream.take().count(b"GET "), 1)
            self.rig.respond(OK)
        self.assertTrue(self.wire.take().endswith(OK * 3))
        self.assertIsNone(self.wire.producer)
        self.assertFalse(self.wire.paused)

    def test_ends_when_nothing_is_taken(self) -> None:
        """The idle time limit closes the connection, and the transport can close."""
        self.rig.sweep(59)
        self.assertFalse(self.wire.disconnecting)
        self.rig.sweep(1)
        self.assertTrue(self.wire.disconnecting)
        self.assertIsNone(self.wire.producer)

    def test_lost(self) -> None:
        """A client that disconnects leaves no state behind."""
        assert self.wire.producer is not None
        self.wire.producer.stopProducing()
        lose(self.client)
        self.rig.sweep(60)
        self.assertEqual(self.rig.open, set())
        self.assertEqual(self.rig.upstream()[1].take().count(b"GET "), 1)


class UpstreamFailureTests(SynchronousTestCase):
    """Failures of the application as a client sees them."""

    def setUp(self) -> None:
        """Create an inbound listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def test_refused(self) -> None:
        """A refused upstream connection gives 502 with the reason."""
        self.rig.endpoint.refuse = TwistedRefused()
        self.client.dataReceived(GET)
        out = self.wire.take()
        self.assertTrue(out.startswith(b"HTTP/1.1 502 Bad Gateway\r\n"))
        self.assertIn(b'"code":"upstream_unreachable"', out)
        self.assertEqual(self.rig.reporter.failures, ["upstream_unreachable"])

    def test_connect_timeout(self) -> None:
        """A connect timeout gives 504."""
        self.rig.endpoint.refuse = TwistedTimeout()
        self.client.dataReceived(GET)
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 504 "))

    def test_slow(self) -> None:
        """An upstream timeout gives 504, and the late response is dropped."""
        self.client.dataReceived(GET)
        self.rig.sweep(59.0)
        self.assertEqual(self.wire.take(), b"")
        self.rig.sweep(1.0)
        self.assertTrue(self.wire.take().startswith(b"HTTP/1.1 504 "))
        self.assertTrue(self.rig.upstream()[1].aborted)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), b"")

    def test_closed_before_answer(self) -> None:
        """A new upstream connection that closes without a response gives 502."""
        self.client.dataReceived(GET)
        self.rig.lose_upstream()
        self.assertIn(b'"code":"upstream_closed"', self.wire.take())

    def test_stale_pooled_connection_is_retried_once(self) -> None:
        """A GET on a pooled connection that is already closed is sent again on a new connection."""
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        self.wire.take()
        self.client.dataReceived(GET)
        self.rig.lose_upstream()
        self.assertEqual(len(self.rig.endpoint.connections), 2)
        self.assertTrue(self.rig.upstream()[1].take().startswith(b"GET /a "))
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)

    def test_post_is_never_sent_twice(self) -> None:
        """A request that may have had an effect is not repeated."""
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        self.wire.take()
        self.client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 1\r\n\r\nx")
        self.rig.lose_upstream()
        self.assertEqual(len(self.rig.endpoint.connections), 1)
        self.assertIn(b"502", self.wire.take())

    def test_malformed_answer(self) -> None:
        """A response with two different lengths gives 502."""
        self.client.dataReceived(GET)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok")
        self.assertIn(b'"code":"upstream_malformed"', self.wire.take())
        self.assertTrue(self.rig.upstream()[1].aborted)

    def test_truncated_response(self) -> None:
        """If the upstream response is truncated, the client's response is aborted."""
        self.client.dataReceived(GET)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        self.rig.lose_upstream()
        self.assertTrue(self.wire.aborted)

    def test_octets_behind_the_response_end_the_connection(self) -> None:
        """Octets after a response are never taken as the next response; the connection is closed."""
        self.client.dataReceived(GET)
        self.rig.respond(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        self.assertEqual(self.wire.take(), OK)
        self.client.dataReceived(GET)
        self.assertEqual(len(self.rig.endpoint.connections), 2)
        self.rig.respond(OK)
        self.assertEqual(self.wire.take(), OK)

    def test_octets_on_an_idle_connection(self) -> None:
        """An application that sends octets on an idle connection has its connection closed."""
        self.client.dataReceived(GET)
        self.rig.respond(OK)
        self.rig.respond(OK)
        self.assertTrue(self.rig.upstream()[1].aborted)

    def test_early_answer(self) -> None:
        """A response before the end of the request is delivered; then both connections are closed."""
        self.client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 10\r\n\r\nhalf")
        self.rig.respond(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        self.assertEqual(self.wire.take(), b"HTTP/1.1 413 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        self.assertTrue(self.wire.disconnecting)
        self.assertTrue(self.rig.upstream()[1].aborted)
        self.client.dataReceived(b"rest")
        self.rig.sweep(5.0)
        self.assertFalse(self.wire.aborted)


class ClientFailureTests(SynchronousTestCase):
    """Failures of the client."""

    def test_abort_drops_the_upstream_connection(self) -> None:
        """The response for a client that disconnected is never sent to another client."""
        rig = Rig()
        client, _ = rig.client()
        client.dataReceived(GET)
        lose(client)
        self.assertTrue(rig.upstream()[1].aborted)
        other, wire = rig.client()
        other.dataReceived(GET)
        self.assertEqual(len(rig.endpoint.connections), 2)
        rig.respond(OK)
        self.assertEqual(wire.take(), OK)

    def test_abort_while_connecting(self) -> None:
        """A connection that is established after its exchange ended is pooled."""
        rig = Rig()
        rig.endpoint.manual = True
        client, _ = rig.client()
        client.dataReceived(GET)
        lose(client)
        self.assertEqual(rig.pool.open_count, 0)

    def test_body_waits_for_the_connection(self) -> None:
        """While the upstream connects, reading pauses and no octets are lost."""
        rig = Rig()
        rig.endpoint.manual = True
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 4\r\n\r\nab")
        self.assertTrue(wire.paused)
        rig.endpoint.complete()
        self.assertFalse(wire.paused)
        client.dataReceived(b"cd")
        self.assertTrue(rig.upstream()[1].take().endswith(b"\r\n\r\nabcd"))

    def test_back_pressure_both_ways(self) -> None:
        """The slower side limits the faster one."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 9\r\n\r\nab")
        upstream_wire = rig.upstream()[1]
        upstream_wire.producer.pauseProducing()
        self.assertTrue(wire.paused)
        upstream_wire.producer.resumeProducing()
        self.assertFalse(wire.paused)
        client.dataReceived(b"cdefghi")
        rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        wire.producer.pauseProducing()
        self.assertTrue(upstream_wire.paused)
        rig.respond(b"cdefghi")
        self.assertFalse(upstream_wire.paused)
        self.assertIsNone(wire.producer)

    def test_slow_head_is_answered_408(self) -> None:
        """A head that arrives too slowly is refused after the header time limit, counted from its first octet."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(b"GET / HT")
        rig.sweep(9.5)
        client.dataReceived(b"TP")
        self.assertEqual(wire.take(), b"")
        rig.sweep(0.5)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 408 "))
        self.assertTrue(wire.disconnecting)

    def test_half_a_head_behind_a_long_exchange(self) -> None:
        """The time limit of a head that arrives during an exchange counts from the end of the exchange."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(GET + b"GET /b HT")
        rig.sweep(30)
        rig.respond(OK)
        rig.sweep(9.5)
        self.assertEqual(wire.take(), OK)
        rig.sweep(0.5)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 408 "))

    def test_idle_connection_is_closed(self) -> None:
        """A connection without traffic for a minute is closed."""
        rig = Rig()
        _, wire = rig.client()
        rig.sweep(59.0)
        self.assertFalse(wire.disconnecting)
        rig.sweep(1.0)
        self.assertTrue(wire.disconnecting)

    def test_stalled_body_is_answered_408(self) -> None:
        """A body that stops arriving gives 408."""
        rig = Rig(timeouts=TimeoutSettings(stream="20s"))  # type: ignore[arg-type]
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 9\r\n\r\nab")
        rig.sweep(20.0)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 408 "))
        self.assertTrue(rig.upstream()[1].aborted)

    def test_slow_side_is_named(self) -> None:
        """When a body stalls, the reason names the side that does not read: the client or the application."""
        rig = Rig(timeouts=TimeoutSettings(stream="20s"))  # type: ignore[arg-type]
        client, wire = rig.client()
        client.dataReceived(GET)
        rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        wire.producer.pauseProducing()
        rig.sweep(19.5)
        self.assertEqual((wire.aborted, rig.reporter.failures), (False, []))
        rig.sweep(0.5)
        self.assertEqual((wire.aborted, rig.reporter.failures), (True, ["answer_not_taken"]))
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 9\r\n\r\nab")
        rig.upstream()[1].producer.pauseProducing()
        rig.sweep(20.0)
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 504 "))
        self.assertEqual(rig.reporter.failures[1:], ["upstream_timeout"])

    def test_side_that_has_read_all_is_not_named(self) -> None:
        """A client that has read everything is not blamed when the application stops sending."""
        rig = Rig(timeouts=TimeoutSettings(stream="20s"))  # type: ignore[arg-type]
        client, wire = rig.client()
        client.dataReceived(GET)
        rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
        wire.producer.pauseProducing()
        wire.producer.resumeProducing()
        rig.sweep(20.0)
        self.assertEqual((wire.aborted, rig.reporter.failures), (True, ["upstream_timeout"]))

    def test_body_limit(self) -> None:
        """A body at the limit is accepted; one octet more gives 413, by declared length or by chunks."""
        rig = Rig(limits=LimitSettings(body="4B"))  # type: ignore[arg-type]
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 4\r\n\r\nabcd")
        rig.respond(OK)
        self.assertEqual(wire.take(), OK)
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n\r\n")
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 413 "))
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n")
        self.assertEqual(wire.take(), b"")
        client.dataReceived(b"1\r\ne\r\n")
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 413 "))

    def test_malformed_request(self) -> None:
        """A request that is not HTTP gives 400 and a close; no upstream connection is opened."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(b"GET / HTTP/1.1\r\nHost : api\r\n\r\n")
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 400 "))
        self.assertTrue(wire.disconnecting)
        self.assertEqual(rig.endpoint.connections, [])

    def test_malformed_body_aborts(self) -> None:
        """A body with invalid framing aborts both connections."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab")
        client.dataReceived(b"cdXX")
        self.assertTrue(wire.aborted)
        self.assertTrue(rig.upstream()[1].aborted)

    def test_foreign_domain_is_403(self) -> None:
        """The default policy admits only the own trust domain; the response has the reason and the workload."""
        rig = Rig()
        client, wire = rig.client(AUTHORITY.svid("/x"))
        client.dataReceived(GET)
        self.assertEqual(len(rig.endpoint.connections), 1)
        denying = Rig(policies=admit_nobody())
        client, wire = denying.client()
        client.dataReceived(GET)
        out = wire.take()
        self.assertTrue(out.startswith(b"HTTP/1.1 403 "))
        self.assertIn(b'"code":"policy_deny"', out)
        self.assertIn(b"Svc-Workload-ID: " + denying.credentials.statement.id.encode(), out)
        self.assertEqual(denying.reporter.denials, [("policy_deny", "spiffe://prod.example/ns/web/sa/fe")])
        self.assertEqual(denying.endpoint.connections, [])


class OutboundTests(SynchronousTestCase):
    """The outbound listener: plain clients, and a peer's proxy upstream."""

    def test_levels_are_sent_anew_and_responses_stripped(self) -> None:
        """The requested level is sent with a fresh nonce; the peer's reserved fields are removed from the response."""
        rig = Rig(inbound=False)
        client, wire = rig.client()
        client.dataReceived(
            b"GET / HTTP/1.1\r\nHost: pay\r\nSvc-Notarization-Level: signRequest\r\n"
            b"Svc-Notary-Nonce: AAAAAAAAAAAAAAAAAAAAAA\r\n\r\n"
        )
        sent = rig.upstream()[1].take()
        self.assertIn(b"Svc-Notarization-Level: signRequest\r\n", sent)
        self.assertIn(b"Svc-Notary-Nonce: ", sent)
        self.assertNotIn(b"AAAAAAAAAAAAAAAAAAAAAA", sent)
        self.assertNotIn(b"X-Forwarded-Client-Cert", sent)
        rig.respond(b"HTTP/1.1 200 OK\r\nSvc-Workload-ID: x\r\nSvc-Receipt-Location: /y\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(wire.take(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def test_fields_of_the_application(self) -> None:
        """What the own application says of its clients is forwarded, except the field that names verified ones."""
        rig = Rig(inbound=False)
        client, _wire = rig.client()
        own = b"X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Real-IP: a\r\n"
        client.dataReceived(b"GET / HTTP/1.1\r\nHost: pay\r\n%bX-Forwarded-Client-Cert: URI=a\r\n\r\n" % own)
        self.assertEqual(rig.upstream()[1].take(), b"GET / HTTP/1.1\r\nHost: pay\r\n%b\r\n" % own)

    def test_host(self) -> None:
        """Host stays as the application sent it, unless the listener has one; the peer's proxy reads that one."""
        for host, expected in ((None, b"127.0.0.1:18443"), (b"pay.bank:8443", b"pay.bank:8443")):
            rig = Rig(inbound=False, host=host)
            client, _wire = rig.client()
            ask = b"Svc-Notarization-Level: workload\r\n"
            for target in (b"/a", b"http://127.0.0.1:18443/a"):
                client.dataReceived(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:18443\r\n%b\r\n" % (target, ask))
                sent = rig.upstream()[1].take()
                rig.respond(OK)
                there = Rig()
                other, _other_wire = there.client()
                other.dataReceived(sent)
                arrived = there.upstream()[1].take()
                self.assertTrue(
                    arrived.startswith(
                        b"GET %b HTTP/1.1\r\nHost: %b\r\nX-" % (target.replace(b"127.0.0.1:18443", expected), expected)
                    ),
                    arrived,
                )

    def test_reserved_path_is_not_served(self) -> None:
        """An outbound listener does not serve the reserved path itself."""
        rig = Rig(inbound=False)
        client, wire = rig.client()
        client.dataReceived(b"GET /.well-known/svc-notary HTTP/1.1\r\nHost: pay\r\n\r\n")
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 404 "))
        self.assertEqual(rig.endpoint.connections, [])

    def test_lingering_after_an_early_answer(self) -> None:
        """After an early response a sending client is read for a limited time, longer while it takes the response."""
        rig = Rig(inbound=False)
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: pay\r\nContent-Length: 10\r\n\r\nhalf")
        rig.respond(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        client.dataReceived(b"rest")
        wire.unsent = 2
        rig.sweep(3.0)
        wire.unsent = 1
        rig.sweep(3.0)
        self.assertFalse(wire.aborted)
        rig.sweep(3.0)
        self.assertTrue(wire.aborted)

    def test_level_demanded_by_the_listener(self) -> None:
        """The level of a listener applies without a header of the client."""
        rig = Rig(demanded=Level.WORKLOAD)
        client, wire = rig.client()
        client.dataReceived(GET)
        rig.respond(OK)
        self.assertIn(b"Svc-Notarization-Level: workload\r\n", wire.take())


class SlowUpstreamTests(SynchronousTestCase):
    """An application that reads slowly and then disconnects."""

    def test_client_is_read_again(self) -> None:
        """A pause caused by the application ends with its connection, so that the next request is read."""
        rig = Rig()
        client, wire = rig.client()
        client.dataReceived(b"POST / HTTP/1.1\r\nHost: api\r\nContent-Length: 4\r\n\r\nab")
        rig.upstream()[1].producer.pauseProducing()
        self.assertTrue(wire.paused)
        rig.lose_upstream()
        self.assertTrue(wire.take().startswith(b"HTTP/1.1 502 "))
        self.assertFalse(wire.paused)
