"""Upstreams that stall, reset and flood, each at every moment, behind an inbound and an outbound listener."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection, Response
from tests.peers.proxy import RunningProxy
from tests.peers.stalling import StallingServer
from tests.peers.waiting import Shared, eventually, free_port

ID = "spiffe://example.org/ns/shop/sa/api"
#: The listener of the request: the inbound one, the same with a signed receipt, the outbound one.
WAYS = ("inbound", "signed", "outbound")
SIGNED = "Svc-Notarization-Level: signRequest\r\n"
#: Long enough for a server in threads of a busy test.
TIMEOUTS = {"connect": "10s", "response": "1500ms", "stream": "2s", "idleUpstream": "3s"}


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    credentials = Credentials.fetch(authority, short_folder(stack))
    inbound, outbound, out_port = StallingServer(stack), StallingServer(stack, credentials), free_port()
    out = {
        "name": "out",
        "protocol": "http",
        "direction": "outbound",
        "listen": f"127.0.0.1:{out_port}",
        "upstream": f"127.0.0.1:{outbound.port}",
        "peer": ID,
        "timeouts": TIMEOUTS,
    }
    proxy = RunningProxy(
        authority, f"127.0.0.1:{inbound.port}", listener={"timeouts": TIMEOUTS, "notarization": "none"}, listeners=[out]
    )
    stack.enter_context(proxy)
    return SimpleNamespace(
        proxy=proxy,
        credentials=credentials,
        servers={"inbound": inbound, "signed": inbound, "outbound": outbound},
        ports={"inbound": proxy.port, "signed": proxy.port, "outbound": out_port},
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        self._before = self.proxy.descriptors()
        self.addCleanup(self._assert_nothing_left)

    def connect(self, way: str) -> RawConnection:
        """Connect to a listener."""
        connection = RawConnection(self.found.ports[way], None if way == "outbound" else self.found.credentials, 60.0)
        self.addCleanup(connection.close)
        return connection

    def server(self, way: str) -> StallingServer:
        """The upstream behind it."""
        found: StallingServer = self.found.servers[way]
        return found

    def ask(self, way: str, what: str, **keys: Any) -> Response:
        """Ask for something on a connection of its own."""
        fields = SIGNED if way == "signed" else ""
        with self.connect(way) as connection:
            return connection.request(f"/{what}", fields=fields, **keys)

    def assert_problem(self, answer: Response, status: int, code: str, what: str) -> None:
        """The answer is the proxy's own."""
        self.assertEqual((status, code), (answer.status, json.loads(answer.body)["code"]), what)

    def assert_logged(self, reason: str) -> None:
        """The reason is in the log."""
        eventually(lambda: reason in self.logged(), what=f"{reason} in the log")

    def logged(self, *events: str) -> list[str]:
        """Return the log records about upstreams, or of other events."""
        events = events or ("svc.proxy.upstream.failed", "svc.proxy.upstream.misbehaved")
        return [each["detail_reason"] for each in self.proxy.records() if each["event"]["name"] in events]

    def _assert_nothing_left(self) -> None:
        """No connection of a client or to an upstream stays, and nothing unforeseen happened."""
        proxy = self.proxy
        eventually(lambda: proxy.metric("svc_proxy_active_connections") == 0, 60, "that no client is there")
        for server in (self.server("inbound"), self.server("outbound")):
            eventually(lambda server=server: server.connections == 0, 60, "that no upstream connection is open")
        eventually(lambda: proxy.descriptors() <= self._before, 60, f"{self._before} descriptors")
        self.assertEqual([], proxy.records("svc.runtime.failure"))
        self.assertEqual("", proxy.errors)


def at_once(call: Callable[[str, str], None], ways: Sequence[str], kinds: Sequence[str]) -> None:
    """Call with each way and kind in a thread of its own, since each spends its time waiting."""
    pairs = list(product(ways, kinds))
    with ThreadPoolExecutor(len(pairs)) as threads:
        for done in [threads.submit(call, *pair) for pair in pairs]:
            done.result()


class StallTests(_Case):
    """The application stops sending."""

    def test_before_the_answer(self) -> None:
        """Nothing, or half a head, is 504 after ``timeouts.response``; the client's connection can be used again."""

        def stall(way: str, what: str) -> None:
            connection = self.connect(way)
            if what.startswith("used"):
                self.assertEqual(b"first", connection.request(f"/{what}").body)
            began = time.monotonic()
            answer = connection.request(f"/{what.removeprefix('used/')}", fields=SIGNED if way == "signed" else "")
            self.assert_problem(answer, 504, "upstream_timeout", f"{way} {what}")
            self.assertGreater(time.monotonic() - began, 1.0)
            self.assertLess(time.monotonic() - began, 30)
            self.assertEqual(b"normal", connection.request("/normal").body)
            connection.close()

        at_once(stall, WAYS, ("silence", "silent_in_head"))
        # One after the other: a pooled connection that waits for its second request may serve any client.
        for way in WAYS:
            stall(way, "used/silence")
        self.assert_logged("upstream_timeout")

    def test_in_the_answer(self) -> None:
        """Once the head is on its way, a stall of ``timeouts.stream`` breaks the connection: half is never whole."""

        def stall(way: str, what: str) -> None:
            began = time.monotonic()
            with self.assertRaises(Ended, msg=f"{way} {what}"):
                self.ask(way, what)
            self.assertGreater(time.monotonic() - began, 1.5)
            self.assertLess(time.monotonic() - began, 30)

        at_once(stall, WAYS, ("silent_after_head", "silent_in_body", "silent_in_chunk"))

    def test_no_second_try(self) -> None:
        """A request on a kept connection that stalls is not sent again: it may have been carried out."""
        for way in WAYS:
            server = self.server(way)
            before = server.seen["GET", "silence"]
            with self.connect(way) as connection:
                connection.request("/used/silence")
                self.assert_problem(connection.request("/any"), 504, "upstream_timeout", way)
            self.assertEqual(before + 1, server.seen["GET", "silence"])


class ResetTests(_Case):
    """The application resets its connection."""

    def test_at_accept(self) -> None:
        """Before anything was read: 502, for a connection that was made, or for one that was not quite made."""
        for way in WAYS:
            self.server(way).reset_next = True
            answer = self.ask(way, "normal")
            code = json.loads(answer.body)["code"]
            self.assertEqual(502, answer.status)
            self.assertIn(
                code, ("upstream_unreachable",) if way == "outbound" else ("upstream_unreachable", "upstream_closed")
            )
            self.assert_logged(code)

    def test_in_the_answer(self) -> None:
        """Before the head is whole: 502. After it the client's connection breaks, whatever framed the body."""
        for way in WAYS:
            self.assert_problem(self.ask(way, "reset"), 502, "upstream_closed", way)
            self.assert_problem(self.ask(way, "reset_in_head"), 502, "upstream_malformed", way)
            for what in ("reset_after_head", "reset_in_body", "reset_in_endless"):
                with self.assertRaises(Ended, msg=f"{way} {what}"):
                    self.ask(way, what)

    def test_no_framing(self) -> None:
        """A client of HTTP/1.0, whose answer ends with the connection, gets a reset: no close_notify and no FIN."""
        for way in WAYS:
            fields = SIGNED if way == "signed" else ""
            for what in ("reset_in_endless", "reset_in_chunk"):
                with self.connect(way) as connection:
                    connection.send(f"GET /{what} HTTP/1.0\r\nHost: test\r\n{fields}\r\n".encode())
                    if isinstance(connection.socket, ssl.SSLSocket):
                        # The standard library takes the end of TCP for the end of the stream unless told otherwise.
                        connection.socket.suppress_ragged_eofs = False  # type: ignore[attr-defined]
                    got = b""
                    with self.assertRaises((ConnectionResetError, ssl.SSLEOFError), msg=f"{way} {what}"):
                        while data := connection.socket.recv(4096):
                            got += data
                    self.assertIn(got.partition(b"\r\n\r\n")[2], (b"", b"half."))

    def test_kept_connection(self) -> None:
        """One that ends when it is used again costs a GET nothing; anything else is 502 and never sent twice."""
        for way in WAYS:
            server = self.server(way)
            for what in ("reset", "close"):
                with self.connect(way) as connection:
                    self.assertEqual(b"first", connection.request(f"/used/{what}").body)
                    self.assertEqual(b"normal", connection.request("/normal").body, f"{way} {what}")
                for method, body in (("POST", b"once"), ("POST", b""), ("DELETE", b"")):
                    before = server.seen[method, "normal"], server.seen[method, what]
                    with self.connect(way) as connection:
                        # The pool may hold the connection of the last turn.
                        self.assertEqual(b"first", self._used(connection, what))
                        answer = connection.request("/normal", method=method, body=body)
                    self.assert_problem(answer, 502, "upstream_closed", f"{way} {what} {method}")
                    after = server.seen[method, "normal"], server.seen[method, what]
                    self.assertEqual((before[0], before[1] + 1), after)

    def _used(self, connection: RawConnection, what: str) -> bytes:
        body = connection.request(f"/used/{what}").body
        while body == b"normal":
            body = connection.request(f"/used/{what}").body
        return body


class FloodTests(_Case):
    """The response never ends."""

    def setUp(self) -> None:
        super().setUp()
        self._memory, _most = self.proxy.memory()

    def tearDown(self) -> None:
        """No flood was kept: what a few connections may buffer, and no more."""
        self.assertLess(self.proxy.memory()[0] - self._memory, 8.0)

    def test_heads(self) -> None:
        """A head, a field and interim answers without end are 502 within ``limits.head``."""
        for way in WAYS:
            for what in ("endless_head", "endless_field", "endless_interim"):
                answer = self.ask(way, what)
                self.assert_problem(answer, 502, "upstream_malformed", f"{way} {what}")
                self.assertLess(len(answer.interim), 100)
        self.assert_logged("upstream_malformed")

    def test_framing(self) -> None:
        """Behind the head an extension or trailers without end break the connection by their size, not their time."""
        # Further records of the same client within a second are only counted.
        time.sleep(1.1)
        before = self.logged()
        for way in WAYS:
            for what in ("endless_extension", "endless_trailers"):
                with self.assertRaises(Ended, msg=f"{way} {what}"):
                    self.ask(way, what)
        found = eventually(lambda: self.logged()[len(before) :], what="a record of it")
        self.assertEqual({"upstream_malformed"}, set(found))

    def test_more_than_announced(self) -> None:
        """The client gets the announced response; the excess is dropped, and the next response is the right one."""
        for way in WAYS:
            with self.connect(way) as connection:
                for _turn in range(3):
                    self.assertEqual(b"0123456789", connection.request("/ten_times").body)
                    self.assertEqual(b"normal", connection.request("/normal").body)

    def test_client_that_does_not_read(self) -> None:
        """An endless body is not read from its source while the client does not read, and ends with the client."""
        for way in WAYS:
            connection = self.connect(way)
            fields = SIGNED if way == "signed" else ""
            connection.send(f"GET /endless_body HTTP/1.1\r\nHost: test\r\n{fields}\r\n".encode())
            self.assertEqual(b"HTTP/1.1 200 OK", connection.line())
            time.sleep(0.5)
            self.assertLess(self.proxy.memory()[0] - self._memory, 8.0)
            connection.close()

    def test_client_that_never_reads(self) -> None:
        """A client that reads nothing is cut after ``timeouts.stream``; the log names the client as the cause."""
        connection, before = self.connect("inbound"), self.logged()
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(b"GET /endless_body HTTP/1.1\r\nHost: test\r\n\r\n")
        eventually(lambda: self.server("inbound").connections == 0, 60, "the end of the upstream connection")
        eventually(lambda: "answer_not_taken" in self.logged("svc.proxy.request.rejected"), 60, "the reason in the log")
        self.assertEqual(before, self.logged())

    def test_answer_before_the_end_of_the_request(self) -> None:
        """The response of an upstream that reads no more is forwarded while the client still sends 20 MB."""
        for way in WAYS:
            connection, began = self.connect(way), time.monotonic()
            fields = SIGNED if way == "signed" else ""
            connection.send(f"POST /early HTTP/1.1\r\nHost: test\r\nContent-Length: 20000000\r\n{fields}\r\n".encode())
            connection.send(bytes(200_000))
            answer = connection.read()
            self.assertEqual((200, b"early", "close"), (answer.status, answer.body, answer.get("connection")))
            self.assertLess(time.monotonic() - began, 30)
            connection.close()
