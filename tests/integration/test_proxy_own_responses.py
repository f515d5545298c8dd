"""The proxy's own responses: for failing applications, for limits, for the policy, and on its own path."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection, Response
from tests.peers.nginx import RunningNginx
from tests.peers.programs import find, run
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"
ID = "spiffe://example.org/ns/shop/sa/api"


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(
        RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/shop/sa/web"), entry("/ns/shop/sa/other")])
    )
    application = webapp.start(stack)
    # A listener whose queue is full: further connections are neither accepted nor refused.
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    address = silent.getsockname()
    for _number in range(3):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(address)
    ports = {name: free_port() for name in ("absent", "silent", "tight", "out")}
    inbound = {"protocol": "http", "direction": "inbound"}
    outbound = {"protocol": "http", "direction": "outbound", "peer": "spiffe://example.org/ns/shop/sa/somebody"}
    listeners: list[dict[str, Any]] = [
        {**inbound, "name": "absent", "upstream": f"127.0.0.1:{free_port()}"},
        {**inbound, "name": "silent", "upstream": f"127.0.0.1:{address[1]}", "timeouts": {"connect": "500ms"}},
        {
            **inbound,
            "name": "tight",
            "upstream": f"127.0.0.1:{application}",
            "timeouts": {"response": "2s", "header": "3s", "idle": "3s", "stream": "3s"},
            "limits": {"head": "2KiB", "fields": 10, "body": "1MiB"},
        },
        {**outbound, "name": "out", "upstream": f"127.0.0.1:{ports['absent']}"},
    ]
    for listener in listeners:
        listener["listen"] = f"127.0.0.1:{ports[listener['name']]}"
    proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{application}", listeners=listeners))
    folder = short_folder(stack)
    return SimpleNamespace(
        authority=authority,
        proxy=proxy,
        ports={**ports, "web": proxy.port},
        application=application,
        folder=folder,
        web=Credentials.fetch(authority, folder / "web", "/ns/shop/sa/web"),
        other=Credentials.fetch(authority, folder / "other", "/ns/shop/sa/other"),
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy

    def connect(self, listener: str, credentials: Credentials | None = None) -> RawConnection:
        """Connect to a listener."""
        plain = listener == "out"
        connection = RawConnection(self.found.ports[listener], None if plain else credentials or self.found.web)
        self.addCleanup(connection.close)
        return connection

    def assert_problem(self, answer: Response, status: int, code: str) -> None:
        """The answer is the proxy's own."""
        self.assertEqual("application/problem+json", answer.get("content-type"))
        self.assertEqual((status, code), (answer.status, json.loads(answer.body)["code"]))


class ApplicationTests(_Case):
    """Applications that cannot be used."""

    def test_unreachable(self) -> None:
        """Refused is 502, silent is 504 within the limit; the client's connection can be used again."""
        for listener, status, code in (
            ("absent", 502, "upstream_unreachable"),
            ("silent", 504, "upstream_timeout"),
        ):
            connection, began = self.connect(listener), time.monotonic()
            for _turn in range(2):
                self.assert_problem(connection.request("/bytes/1"), status, code)
            self.assertLess(time.monotonic() - began, 15)
        reasons = {"upstream_unreachable", "upstream_timeout"}
        eventually(lambda: reasons <= {each["detail_reason"] for each in self.failures()}, what="both in the log")

    def failures(self) -> list[dict[str, Any]]:
        """Return the log records about applications."""
        return self.proxy.records("svc.proxy.upstream.failed")

    def test_slow(self) -> None:
        """An application that does not respond in time gives 504; its late response is dropped."""
        connection = self.connect("tight")
        self.assert_problem(connection.request("/slow/4"), 504, "upstream_timeout")
        self.assertEqual(webapp.octets(7), connection.request("/bytes/7").body)

    def test_stalled(self) -> None:
        """One that stops in the middle of its answer breaks the client's connection: half is never passed for whole."""
        connection = self.connect("tight")
        connection.send(b"GET /drip/3/60 HTTP/1.1\r\nHost: test\r\n\r\n")
        began = time.monotonic()
        head, _, body = connection.rest().partition(b"\r\n\r\n")
        self.assertIn(b"Content-Length: 3", head)
        self.assertEqual(b".", body)
        self.assertLess(time.monotonic() - began, 45)

    def test_wrong_identity(self) -> None:
        """A peer that is not the configured one is 502 outbound, and the reason is logged."""
        self.assert_problem(self.connect("out").request("/bytes/1"), 502, "upstream_identity_refused")
        [logged] = eventually(
            lambda: [each for each in self.failures() if each["detail_reason"] == "identity_unexpected"]
        )
        self.assertIn(ID, logged["detail"])
        self.assertEqual("upstream_identity_refused", logged["attributes"]["code"])
        [denied] = [each for each in self.proxy.records("svc.proxy.auth.denied") if "expected_spiffe_id" in str(each)]
        self.assertEqual(("policy_deny", ID), (denied["reason"], denied["peer_spiffe_id"]))
        failures = self.proxy.metric("svc_proxy_tls_handshake_failures_total", role="client")
        self.assertEqual(1, failures)

    def test_early_refusal_of_an_upload(self) -> None:
        """
        A client that is still sending 50 MB receives the response of the application that refused them, with the real
        nginx.
        """
        with ExitStack() as stack:
            nginx = RunningNginx(stack, 1)
            proxy = stack.enter_context(RunningProxy(self.found.authority, f"127.0.0.1:{nginx.port}"))
            upload = self.found.folder / "upload"
            upload.write_bytes(bytes(50_000_000))
            command = [find("curl"), "--silent", "--show-error", *self.found.web.for_curl(), "--header", "Expect:"]
            ran = run([*command, "--data-binary", f"@{upload}", "--write-out", "%{http_code}", f"{proxy.url}/refuse"])
        self.assertEqual((0, b"too much for me\n413", b""), (ran.returncode, ran.stdout, ran.stderr))


class LimitTests(_Case):
    """Requests that a client may not send."""

    def test_heads(self) -> None:
        """Too large a head and too many fields are 431, and the connection ends."""
        for fields, code in (("X: " + "y" * 3000 + "\r\n", "head_too_large"), ("X: y\r\n" * 11, "too_many_fields")):
            connection = self.connect("tight")
            self.assert_problem(connection.request("/bytes/1", fields=fields), 431, code)
            self.assertTrue(connection.ended())

    def test_bodies(self) -> None:
        """Too large a body is 413: by its announced length before anything is forwarded, else where it exceeds."""
        connection = self.connect("tight")
        connection.send(b"POST /digest HTTP/1.1\r\nHost: test\r\nContent-Length: 1048577\r\n\r\n")
        self.assert_problem(connection.read(), 413, "body_too_large")
        connection = self.connect("tight")
        connection.send(b"POST /digest HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _number in range(17):
            connection.send(b"10000\r\n" + bytes(65536) + b"\r\n")
        self.assert_problem(connection.read(), 413, "body_too_large")
        whole = self.connect("tight").request("/digest", method="POST", body=bytes(1048576))
        self.assertEqual(1048576, json.loads(whole.body)["size"])

    def test_times(self) -> None:
        """A head that never ends is 408 after its time; a connection without requests is closed after its own."""
        connection, began = self.connect("tight"), time.monotonic()
        connection.send(b"GET /bytes/1 HTTP/1.1\r\nHo")
        self.assert_problem(connection.read(), 408, "request_timeout")
        idle = self.connect("tight")
        idle.request("/bytes/1")
        self.assertTrue(idle.ended())
        self.assertLess(time.monotonic() - began, 45)

    def test_no_http(self) -> None:
        """An ambiguous request gives 400 and is never forwarded."""
        before = self.proxy.metric("svc_proxy_notary_level_total", level="workload")
        for octets in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\n\n",
        ):
            connection = self.connect("web")
            connection.send(octets)
            answer = connection.read()
            self.assertEqual((400, "close"), (answer.status, answer.get("connection")), octets)
            self.assertTrue(connection.ended())
        self.assertEqual(before, self.proxy.metric("svc_proxy_notary_level_total", level="workload"))


class PolicyTests(_Case):
    """Which clients are admitted."""

    def test_deny(self) -> None:
        """With nothing allowed a verified client gets 403, counted and logged; the notary still answers it."""
        proxy = RunningProxy(
            self.found.authority, f"127.0.0.1:{self.found.application}", settings={"policy": {"default": "deny"}}
        )
        with proxy, RawConnection(proxy.port, self.found.web) as connection:
            answer = connection.request("/bytes/1")
            self.assert_problem(answer, 403, "policy_deny")
            self.assertEqual(43, len(answer.get("svc-workload-id") or ""))
            self.assertEqual(200, connection.request("/.well-known/svc-notary/v1/statements/current").status)
            denied = {"result": "denied", "reason": "policy_deny", "role": "server"}
            self.assertEqual(1, proxy.metric("svc_proxy_auth_decisions_total", **denied))
            [logged] = eventually(lambda: proxy.records("svc.proxy.request.denied"))
            self.assertEqual(("policy_deny", self.found.web.spiffe_id), (logged["reason"], logged["peer_spiffe_id"]))
            self.assertEqual([], proxy.records("svc.proxy.policy.default_allow"))

    def test_allow_is_warned_of(self) -> None:
        """A policy that allows every identity is logged once."""
        self.assertEqual(200, self.connect("web").request("/bytes/1").status)
        self.assertEqual(1, len(self.proxy.records("svc.proxy.policy.default_allow")))


class NotaryTests(_Case):
    """The notary's own path."""

    def ask(self, connection: RawConnection, target: str, nonce: str) -> Response:
        """Ask for a signed answer."""
        notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
        return connection.request(target, fields=notary_fields)

    def test_pending(self) -> None:
        """While the exchange runs its receipt is 202 with a time to wait; then it is there."""
        nonce = new_nonce(os.urandom(16))
        thread = threading.Thread(target=self.ask, args=(self.connect("web"), "/drip/50/0.1", nonce))
        thread.start()
        connection = self.connect("web")
        pending = eventually(
            lambda: (found := connection.request(RECEIPTS + nonce)).status != 404 and found, 60, "that it has begun"
        )
        self.assertEqual((202, "1"), (pending.status, pending.get("retry-after")))
        thread.join(60)
        self.assertEqual(200, connection.request(RECEIPTS + nonce).status)

    def test_whose(self) -> None:
        """A receipt is for its client and its workload; for anybody else there is none."""
        nonce = new_nonce(os.urandom(16))
        mine = self.connect("web")
        self.ask(mine, "/bytes/3", nonce)
        receipt = mine.request(RECEIPTS + nonce)
        self.assertEqual(200, receipt.status)
        others = self.connect("web", self.found.other)
        self.assert_problem(others.request(RECEIPTS + nonce), 404, "not_found")
        receipt_path = "/.well-known/svc-notary/v1/receipts/" + (receipt.get("etag") or "").strip('"')
        self.assertEqual(200, mine.request(receipt_path).status)
        self.assert_problem(others.request(receipt_path), 404, "not_found")

    def test_replay(self) -> None:
        """A nonce serves one request of an identity; another identity may have the same."""
        nonce = new_nonce(os.urandom(16))
        connection = self.connect("web")
        self.assertEqual(200, self.ask(connection, "/bytes/3", nonce).status)
        self.assert_problem(self.ask(connection, "/bytes/3", nonce), 409, "replayed")
        self.assertEqual(200, self.ask(self.connect("web", self.found.other), "/bytes/3", nonce).status)

    def test_application_cannot_serve_it(self) -> None:
        """No spelling of the path reaches the application."""
        for path in (
            "/.well-known/svc-notary/no-such-thing",
            "/.well-known/%73vc-notary/v1/statements/x",
            "/a/../.well-known/svc-notary/x",
            "//.well-known/svc-notary",
        ):
            answer = self.connect("web").request(path)
            self.assertNotIn(b"there is no such page", answer.body, path)
