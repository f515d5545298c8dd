"""What requests move: durations by method, levels, records, and what is held back from the log; and that no peer can
add a series."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Callable

from tests.integration.metrics_rig import ID, SOON, EventCase, Series, moves, page, series, world
from tests.peers.partner import attempt
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import answers, eventually

#: Whose fault a denial was.
DENIALS = ("svid_invalid", "policy_deny", "handshake", "limit", "request", "upstream", "notary")
REGISTERED = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")
#: Methods that are known to the parser and registered elsewhere, or nowhere.
FOREIGN = ("PROPFIND", "MKCOL", "LOCK", "REPORT", "PURGE", "SEARCH", "M-SEARCH", "LINK", "QUERY", "SUBSCRIBE")
HOSTILE = ("get", "Get", "GETT", "X" * 1000, 'A"}', "A\\", 'A{b="c"} 1', "\xff\xfe", "svc_proxy_x", "", "CONNECT")


def duration(method: str) -> Series:
    """The histogram of a method."""
    return series("request_duration_seconds", protocol="http", http_method=method)


def level(name: str) -> Series:
    """The counter of a level."""
    return series("notary_level_total", level=name)


def held_back(reason: str) -> Series:
    """The counter of denials that were not logged."""
    return series("denial_logs_suppressed_total", reason=reason)


class MethodTests(EventCase):
    """Durations."""

    @moves(*(duration(method) for method in REGISTERED))
    @moves(duration("other"), by=2)
    def test_methods(self) -> None:
        """Each registered method has its own; all others share one, whether proxy or application answers."""
        with self.connect("web") as connection:
            for method in (*REGISTERED, "PROPFIND"):
                connection.request("/bytes/1", method=method)
        with self.connect("absent") as connection:
            self.assertEqual(502, connection.request("/", method="MKCOL").status)

    @moves(series("notary_lookup_duration_seconds"), by=2)
    @moves(duration("GET"), by=0)
    def test_lookups(self) -> None:
        """Requests that the notary answers itself are none of the application's."""
        with self.connect("web") as connection:
            for path, status in (("v1/statements/current", 200), ("v1/receipts/by-request/" + "A" * 22, 404)):
                self.assertEqual(status, connection.request(f"/.well-known/svc-notary/{path}").status)


class NotaryTests(EventCase):
    """Levels and records."""

    @moves(level("workload"), level("logRequest"), level("signRequest"))
    @moves(series("notary_records_total", protocol="http", result="success"), by=2)
    @moves(series("notary_commit_duration_seconds"), by=None)
    def test_levels(self) -> None:
        """Each level is counted where it is in force; the two upper ones write a record."""
        time.sleep(2.0)  # One record a second is allowed, two at once, and a test before may just have had them.
        with self.connect("web") as connection:
            for name in ("workload", "logRequest", "signRequest"):
                answer = connection.request("/bytes/1", fields=f"Svc-Notarization-Level: {name}\r\n")
                self.assertEqual((200, name), (answer.status, answer.get("svc-notarization-level")))

    def test_svid(self) -> None:
        """One series has the expiry of the proxy's own SVID; there is none for peers."""
        attempt(self.found.ports["web"], self.found.partner.svid("/who-else"))
        [(labels, value)] = [
            (labels, value) for (name, labels), value in page(self.proxy).items() if name.endswith("_not_after_seconds")
        ]
        self.assertEqual({("spiffe_id", ID)}, labels)
        self.assertTrue(time.time() + 3000 < value <= time.time() + 3600, value)

    test_svid.claims = {series("svid_not_after_seconds", spiffe_id=ID)}  # type: ignore[attr-defined]


class HeldBackTests(EventCase):
    """Denials that are counted but not logged, by whose fault they were."""

    def ask(self, listener: str, request: bytes) -> bytes:
        """Send octets to a listener and read until it closes."""
        with self.connect(listener) as connection:
            connection.send(request)
            return connection.rest()

    def over_the_limit(self) -> None:
        """One connection more than may be open; the test uses the only one."""
        with contextlib.suppress(ConnectionResetError):
            self.plain("few").recv(100)

    def over_the_rate(self) -> None:
        """More records than one identity may cause."""
        with self.connect("web") as connection:
            for _turn in range(4):
                connection.request("/bytes/1", fields="Svc-Notarization-Level: signRequest\r\n")

    @moves(*(held_back(whose) for whose in DENIALS), by=None)
    def test_floods(self) -> None:
        """Repeated denials within a second are logged once, the others are counted by the kind of denial."""
        web, expired, foreign = (
            self.found.ports["web"],
            self.found.partner.wrong()["expired"],
            self.found.partner.svid(),
        )
        absent = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        acts: dict[str, Callable[[], object]] = {
            "svid_invalid": lambda: attempt(web, expired),
            "policy_deny": lambda: self.assertIn(b" 403 ", attempt(web, foreign)),
            "handshake": lambda: self.plain("web", b"GET / HTTP/1.1\r\n\r\n").recv(100),
            "limit": self.over_the_limit,
            "request": lambda: self.assertIn(b" 400 ", self.ask("web", b"GET / HTTP/1.1\r\n\r\n")),
            "upstream": lambda: self.assertIn(b" 502 ", self.ask("absent", absent)),
            "notary": self.over_the_rate,
        }
        self.assertEqual(set(DENIALS), set(acts))
        before = page(self.proxy)
        with self.connect("few") as holding:
            holding.send(b"GET /drip/900/1 HTTP/1.1\r\nHost: a\r\n\r\n")
            holding.line()
            for whose, act in acts.items():

                def flooded(whose: str = whose, act: Callable[[], object] = act) -> bool:
                    for _turn in range(3):
                        act()
                    return page(self.proxy)[held_back(whose)] > before[held_back(whose)]

                # On a busy machine three may take more than a second.
                eventually(flooded, what=f"a flood for {whose}")


class HostileTests(EventCase):
    """Peers that try to add series."""

    def test_nothing_adds_a_series(self) -> None:
        """Made-up methods, levels, identities, groups and broken TLS: the page has as many series as before."""
        before, samples = set(page(self.proxy)), len(self.proxy.samples())
        ports, partner = self.found.ports, self.found.partner
        for number, method in enumerate((*HOSTILE, *FOREIGN, *(f"M{number}" for number in range(50)))):
            with contextlib.suppress(OSError), self.connect("web") as connection:
                connection.send(
                    f"{method} /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1")
                )
                connection.rest()
        with self.connect("web") as connection:
            for number in range(50):
                fields = f"Svc-Notarization-Level: level{number}\r\nSvc-Notary-Nonce: {number}\r\n"
                self.assertEqual(400, connection.request(f"/{number}", fields=fields).status)
        for number in range(20):
            self.assertIn(b" 403 ", attempt(ports["web"], partner.svid(f"/made-up/{number}")))
            attempt(ports["web"], partner.svid(uris=(f"spiffe://foreign{number}.example/a",)))
            attempt(ports["web"], partner.svid(), alpn=[b"x%d" % number])
            self.plain("web", b"%d\r\n\r\n" % number).recv(100)
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), SOON)
        self.assertEqual((before, samples), (set(page(self.proxy)), len(self.proxy.samples())))
        self.assertLess(samples, 500)


class PageTests(EventCase):
    """The page itself."""

    def fetch(self, accept: str) -> tuple[str, str]:
        """Its type and text."""
        url = f"http://127.0.0.1:{self.proxy.metrics_port}/metrics"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    def test_formats(self) -> None:
        """Prometheus text, or OpenMetrics if it is requested; neither has creation times of series."""
        for accept, kind, end in (
            ("*/*", "text/plain", ""),
            (
                "application/openmetrics-text; version=1.0.0; q=0.8, text/plain; q=0.5",
                "application/openmetrics",
                "# EOF\n",
            ),
        ):
            content_type, text = self.fetch(accept)
            self.assertTrue(content_type.startswith(kind), content_type)
            self.assertTrue(text.endswith(end))
            self.assertNotIn("_created", text)
            self.assertIn('svc_proxy_connections_total{direction="inbound",protocol="http",result="success"}', text)

    def test_disabled(self) -> None:
        """With ``0`` or nothing as the address there is no listener, and the proxy serves all the same."""
        with contextlib.ExitStack() as stack:
            found = world(stack)
            proxies = []
            for address in ("0", ""):
                proxy = RunningProxy(found.authority, "127.0.0.1:9", settings={"metricsAddr": address})
                stack.callback(proxy.stop)
                proxies.append(proxy.launch())
            for proxy in proxies:
                eventually(proxy.is_ready, 60)
                self.assertEqual((True, False), (answers(proxy.port), answers(proxy.metrics_port)))
