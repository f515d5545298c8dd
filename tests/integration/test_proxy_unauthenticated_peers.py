"""Clients that are not ours: who is refused, with which reason in the log and the metrics, and who is let in."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.testing.ca import TestAuthority
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.programs import find, run
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

NONCE = "AAECAwQFBgcICQoLDA0ODw"


def _make(stack: ExitStack) -> Any:
    find("curl")
    find("openssl")
    authority = stack.enter_context(
        RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/shop/sa/short", ttl="2s")])
    )
    application, strict = webapp.start(stack), free_port()
    listener = {
        "name": "strict",
        "protocol": "http",
        "direction": "inbound",
        "listen": f"127.0.0.1:{strict}",
        "upstream": f"127.0.0.1:{application}",
        "keyExchange": "require",
    }
    proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{application}", listeners=[listener]))
    folder = short_folder(stack)
    good = Credentials.fetch(authority, folder / "good")
    own, foreign = (TestAuthority(name, now=datetime.now(UTC)) for name in ("example.org", "foreign.example"))
    credentials = {
        "good": good,
        "expired": Credentials.fetch(authority, folder / "expired", "/ns/shop/sa/short"),
        "self-signed": Credentials.of(own.svid("/ns/shop/sa/api", self_signed=True), folder / "self", good.roots),
        "other CA": Credentials.of(own.svid("/ns/shop/sa/api"), folder / "other", good.roots),
        "foreign": Credentials.of(foreign.svid("/ns/shop/sa/api"), folder / "foreign", good.roots),
        "two names": Credentials.of(
            own.svid("/a", uris=("spiffe://example.org/a", "spiffe://example.org/b")), folder / "two", good.roots
        ),
    }
    time.sleep(2.1)  # The short-lived SVID runs out meanwhile.
    return SimpleNamespace(proxy=proxy, strict=strict, credentials=credentials)


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.strict: int = found.strict
        self.credentials: dict[str, Credentials] = found.credentials

    def curl(self, *options: str) -> bytes:
        """Run curl; it must fail. Return its output."""
        command = [find("curl"), "--silent", "--show-error", "--insecure", *options, f"{self.proxy.url}/bytes/3"]
        ran = run(command)
        self.assertNotEqual(0, ran.returncode)
        self.assertEqual(b"", ran.stdout)
        return ran.stderr

    def s_client(self, *options: str, port: int | None = None, data: bytes = b"") -> tuple[int, bytes, bytes]:
        """Let ``openssl s_client`` try with good credentials."""
        address = f"127.0.0.1:{port or self.proxy.port}"
        credentials = self.credentials["good"].for_openssl()
        command = [find("openssl"), "s_client", "-connect", address, "-brief", "-ign_eof", *credentials, *options]
        ran = run(command, data=data)
        return ran.returncode, ran.stdout, ran.stderr

    def refused(self) -> list[dict[str, Any]]:
        """The records of handshakes that failed: for who the peer is, or for another reason."""
        return [*self.proxy.records("svc.proxy.auth.denied"), *self.proxy.records("svc.proxy.handshake.failed")]

    def refusals(self, reason: str) -> tuple[float, float, float, int]:
        """Count what a refused handshake moves: its reason, connections by result, and log records."""
        proxy = self.proxy
        logged = [each for each in self.refused() if each["detail_reason"] == reason]
        return (
            proxy.metric("svc_proxy_tls_handshake_failures_total", role="server", reason=reason),
            proxy.metric("svc_proxy_connections_total", result="auth_failed"),
            proxy.metric("svc_proxy_connections_total", result="error"),
            len(logged),
        )

    def assert_moved(self, reason: str, before: tuple[float, float, float, int], *, auth: bool, alert: str) -> Any:
        """One refusal was counted and logged; returns its record."""
        wanted = (before[0] + 1, before[1] + auth, before[2] + (not auth), before[3] + 1)
        eventually(lambda: self.refusals(reason) == wanted, 60, f"one more {reason}, {wanted}")
        record = [each for each in self.refused() if each["detail_reason"] == reason][-1]
        self.assertEqual("svc.proxy.auth.denied" if auth else "svc.proxy.handshake.failed", record["event"]["name"])
        self.assertEqual("svid_invalid" if auth else None, record.get("reason"))
        self.assertEqual((alert, "server"), (record["attributes"]["tls.alert"], record["attributes"]["role"]))
        return record


class CredentialsTests(_Case):
    """The certificates that a client presents."""

    def test_refused(self) -> None:
        """No, a self-signed, another CA's, a foreign, a malformed, an expired certificate: each for its own reason."""
        for name, reason, alert in (
            (None, "certificate_missing", "certificate_required"),
            ("self-signed", "chain_untrusted", "unknown_ca"),
            ("foreign", "trust_domain_unknown", "unknown_ca"),
            ("expired", "expired", "certificate_expired"),
            ("two names", "too_many_uri_sans", "bad_certificate"),
        ):
            before = self.refusals(reason)
            denied = self.proxy.metric("svc_proxy_auth_decisions_total", result="denied", reason="svid_invalid")
            output = self.curl(*([] if name is None else self.credentials[name].for_curl()))
            self.assertIn(b"alert " + alert.replace("_", " ").encode(), output, name)
            record = self.assert_moved(reason, before, auth=True, alert=alert)
            self.assertEqual(name is not None, record.get("claimed_spiffe_id", "").startswith("spiffe://"), name)
            self.assertNotIn("peer_spiffe_id", record)
            after = self.proxy.metric("svc_proxy_auth_decisions_total", result="denied", reason="svid_invalid")
            self.assertEqual(denied + 1, after)

    def test_same_names_other_authority(self) -> None:
        """A certificate with a good SPIFFE ID of a CA with the very name of ours is not trusted."""
        time.sleep(1.1)  # One record a second for a reason and source.
        before = self.refusals("chain_untrusted")
        self.curl(*self.credentials["other CA"].for_curl())
        self.assert_moved("chain_untrusted", before, auth=True, alert="unknown_ca")

    def test_flood(self) -> None:
        """Forty refused clients of one address are all counted, and logged in a few records."""
        time.sleep(1.1)
        metric = ("svc_proxy_tls_handshake_failures_total", "certificate_missing")
        before, began = self.proxy.metric(metric[0], reason=metric[1]), time.monotonic()
        logged = len(self.refused())

        def client(_number: int) -> None:
            run([find("openssl"), "s_client", "-connect", f"127.0.0.1:{self.proxy.port}", "-brief"])

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(client, range(40)))
        eventually(lambda: self.proxy.metric(metric[0], reason=metric[1]) == before + 40, 60, "40 refusals")

        def all_logged() -> bool:
            records = self.proxy.records("svc.proxy.denials.suppressed")
            mine = [each["attributes"]["suppressed"] for each in records if each.get("detail_reason") == metric[1]]
            return sum(mine) + len(self.refused()) - logged == 40

        eventually(all_logged, 60, "records of all that was refused")
        # One a second; forty take a second or two, and longer on a busy machine.
        self.assertLess(len(self.refused()) - logged, 10 + time.monotonic() - began)
        time.sleep(1.1)  # One record a second for a reason and source: the next test wants its own.


class PageTests(_Case):
    """A stranger who asks for pages."""

    def test_flood(self) -> None:
        """2,000 requests for metrics on each of some connections delay no request, and take no memory."""
        flood = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 2000
        before, _most = self.proxy.memory()
        good = self.credentials["good"]
        with ThreadPoolExecutor(9) as threads, RawConnection(self.proxy.port, good) as client:
            asking = [threads.submit(self.ask, flood, port) for port in (self.proxy.metrics_port,) * 8]
            longest = 0.0
            while not all(each.done() for each in asking):
                began = time.monotonic()
                self.assertEqual(200, client.request("/bytes/3").status)
                longest = max(longest, time.monotonic() - began)
            self.assertTrue(all(each.result() for each in asking))
        # Without a limit the first of them alone takes 8 s.
        self.assertLess(longest, 4.0)
        self.assertLess(self.proxy.memory()[0] - before, 20.0)

    def ask(self, flood: bytes, port: int) -> bool:
        """Send requests, and read until the end of the connection; whether there was one answer or none."""
        with RawConnection(port) as connection:
            with contextlib.suppress(OSError):
                connection.send(flood)
            return connection.rest().count(b"HTTP/1.1 200 ") <= 1


class ProtocolTests(_Case):
    """The protocol of a client."""

    def test_tls_1_2(self) -> None:
        """TLS 1.2 is refused for every client."""
        for attempt in (
            lambda: self.curl(*self.credentials["good"].for_curl(), "--tls-max", "1.2"),
            lambda: self.s_client("-tls1_2")[2],
        ):
            time.sleep(1.1)
            before = self.refusals("handshake_failed")
            self.assertIn(b"alert protocol version", attempt())
            record = self.assert_moved("handshake_failed", before, auth=False, alert="protocol_version")
            self.assertEqual("unsupported protocol", record["detail"])

    def test_protocol_names(self) -> None:
        """A client that offers only HTTP/2 is refused; one that offers HTTP/1.1 too gets that."""
        before = self.refusals("alpn_refused")
        status, _, output = self.s_client("-alpn", "h2")
        self.assertEqual(1, status)
        self.assertIn(b"alert no application protocol", output)
        self.assert_moved("alpn_refused", before, auth=False, alert="no_application_protocol")
        request = b"GET /bytes/3 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        status, answer, _ = self.s_client("-alpn", "h2,http/1.1", data=request)
        self.assertEqual(0, status)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"))

    def test_no_tls(self) -> None:
        """A client with plain HTTP, or with random octets, gets no response and is counted."""
        for data in (b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", b"\0" * 400):
            errors = self.proxy.metric("svc_proxy_connections_total", result="error")
            with RawConnection(self.proxy.port) as connection:
                connection.send(data)
                self.assertNotIn(b"HTTP", connection.rest())
            eventually(lambda: self.proxy.metric("svc_proxy_connections_total", result="error") == errors + 1)  # noqa: B023
        words = {each["detail_reason"] for each in self.refused()}
        self.assertEqual([], [word for word in words if not word.replace("_", "").isalnum()])

    def test_post_quantum_required(self) -> None:
        """A classical client is refused where a post-quantum key exchange is required."""
        before = self.refusals("pq_required")
        status, _, output = self.s_client(port=self.strict)
        self.assertEqual(1, status)
        self.assertIn(b"alert handshake failure", output)
        self.assert_moved("pq_required", before, auth=False, alert="handshake_failure")


class GuestTests(_Case):
    """OpenSSL 3.0 with an SVID exported by py-spiffe is a client like any other."""

    def test_accepted(self) -> None:
        """A client is served over a classical group, and its receipt has that group."""
        connections = self.proxy.metric("svc_proxy_tls_connections_total", group="x25519", post_quantum="false")
        notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {NONCE}\r\n"
        receipt_path = f"/.well-known/svc-notary/v1/receipts/by-request/{NONCE}"
        requests = f"GET /bytes/3 HTTP/1.1\r\nHost: test\r\n{notary_fields}\r\n"
        requests += f"GET {receipt_path} HTTP/1.0\r\nHost: test\r\n\r\n"
        status, answers, output = self.s_client(data=requests.encode())
        self.assertEqual(0, status)
        self.assertIn(b"X25519", output)
        _, _, second = answers.partition(b"\r\n\r\n" + webapp.octets(3))
        head, _, body = second.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 OK\r\n"), answers)
        payload = json.loads(body)["payload"]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        self.assertEqual(("x25519", False), (claims["svc"]["tls"]["group"], claims["svc"]["tls"]["pq"]))
        self.assertEqual(self.credentials["good"].spiffe_id, claims["svc"]["client"]["spiffeID"])
        after = self.proxy.metric("svc_proxy_tls_connections_total", group="x25519", post_quantum="false")
        self.assertEqual(connections + 1, after)

    def test_curl(self) -> None:
        """Debian's curl with the same files gets its page, and the application learns who it is."""
        credentials = self.credentials["good"]
        ran = run([find("curl"), "--silent", *credentials.for_curl(), f"{self.proxy.url}/head"])
        self.assertEqual(0, ran.returncode, ran.stderr)
        fields = dict(json.loads(ran.stdout)["fields"])
        self.assertIn(f"URI={credentials.spiffe_id}", fields["X-Forwarded-Client-Cert"])

    def test_forged_fields(self) -> None:
        """Reserved fields that a client sends never reach the application."""
        with RawConnection(self.proxy.port, self.credentials["good"]) as connection:
            forged = "X-Forwarded-Client-Cert: URI=spiffe://example.org/admin\r\nX_Forwarded_Client_Cert: x\r\n"
            answer = connection.request("/head", fields=forged + "Svc-Workload-Id: x\r\nSvc_Other: x\r\n")
        fields = json.loads(answer.body)["fields"]
        names = [name.lower().replace("_", "-") for name, _ in fields]
        self.assertEqual(1, names.count("x-forwarded-client-cert"))
        self.assertEqual([], [name for name in names if name.startswith("svc-")])
        self.assertNotIn("admin", str(fields))
