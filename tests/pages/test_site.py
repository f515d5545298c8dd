"""The pages for scrapers and operators, through a whole HTTP server without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NoReturn

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from svc.errors import SvcError
from svc.pages.elements import Table
from svc.pages.listening import ListenFailed
from svc.pages.site import (
    IDLE_SECONDS,
    LIFETIME,
    MAX_BODY,
    MAX_CONNECTIONS,
    PAGE_SECONDS,
    HttpService,
)
from svc.process.admin import OperatorPages, admin_root, names_process
from svc.process.history import Totals
from svc.process.metrics import accepted_format, metrics_root
from svc.process.monitor import Monitor
from svc.settings import HostPort
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.health import Health

START = datetime(2026, 11, 21, tzinfo=UTC)
METRICS = HostPort("", 9092)
ADMIN = HostPort("127.0.0.1", 9902)


class StoreBroken(SvcError):
    """the store {path} is broken"""

    reason = "notary_unavailable"


class PageCase(SynchronousTestCase):
    """Sends HTTP requests to a service in memory."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()

    def started(self, service: HttpService) -> Any:
        service.startService()
        self.addCleanup(service.stopService)
        return self.reactor.tcpServers[-1][1]

    def connect(self, factory: Any, host: str = "192.168.1.1") -> StringTransport:
        address = IPv4Address("TCP", host, 40000)
        protocol = factory.buildProtocol(address)
        transport = StringTransport(peerAddress=address)
        protocol.makeConnection(transport)
        transport.protocol = protocol  # type: ignore[attr-defined]
        return transport

    def request(self, factory: Any, request: str, *, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        transport = self.connect(factory)
        transport.protocol.dataReceived(request.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)  # type: ignore[attr-defined]
        self.reactor.advance(0)
        if not transport.value():
            # The page was made less than a second ago.
            self.reactor.advance(PAGE_SECONDS)
        head, _empty, content = transport.value().partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers, content


class MetricsPageTests(PageCase):
    """``/metrics``."""

    def setUp(self) -> None:
        super().setUp()
        registry = CollectorRegistry()
        Counter("svc_test_things", "Things.", registry=registry).inc()
        Histogram("svc_test_seconds", "Seconds.", registry=registry).observe(1)
        self.factory = self.started(HttpService(METRICS, metrics_root(registry), reactor=self.reactor))

    def test_plain_text(self) -> None:
        """Without an Accept header the page is Prometheus text, with no series but those that were asked for."""
        status, headers, page = self.request(self.factory, "GET /metrics HTTP/1.1\nHost: a")
        self.assertEqual((200, True), (status, headers["content-type"].startswith("text/plain")))
        self.assertIn(b"svc_test_things_total 1.0\n", page)
        self.assertIn(b"svc_test_seconds_count 1.0\n", page)
        self.assertNotIn(b"_created", page)

    def test_open_metrics(self) -> None:
        """A scraper that asks for OpenMetrics gets it, ended as the format demands."""
        request = "GET /metrics HTTP/1.1\nHost: a\nAccept: application/openmetrics-text; version=1.0.0"
        _status, headers, page = self.request(self.factory, request)
        self.assertTrue(headers["content-type"].startswith("application/openmetrics-text"))
        self.assertTrue(page.endswith(b"# EOF\n"))
        self.assertNotIn(b"_created", page)

    def test_formats(self) -> None:
        """The page has the format and the version that the scraper names with the largest weight, else 0.0.4."""
        prometheus = (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
        )
        plain, newer = "text/plain; version=0.0.4", "text/plain; version=1.0.0"
        for accept, expected in (
            ("", plain),
            ("*/*", plain),
            ("text/plain", plain),
            ("text/plain;version=0.0.4", plain),
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", plain),
            ('TEXT/PLAIN; Version="1.0.0"', newer),
            ("text/plain;version=0.0.4;q=0.4, text/plain;version=1.0.0;q=0.5", newer),
            ("text/plain;version=7", plain),
            ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
            ("application/openmetrics-text; version=0.0.1", plain),
            ("application/openmetrics-text; version=1.0.0; q=0", plain),
            ("application/openmetrics-text; q=0.2, text/plain; q=0.3", plain),
            ("application/openmetrics-text; q=7", plain),
            (prometheus, "application/openmetrics-text; version=1.0.0"),
        ):
            self.assertEqual(f"{expected}; charset=utf-8", accepted_format(accept), accept)
            field = f"\nAccept: {accept}" if accept else ""
            _status, headers, page = self.request(self.factory, f"GET /metrics HTTP/1.1\nHost: a{field}")
            self.assertEqual(f"{expected}; charset=utf-8", headers["content-type"])
            self.assertEqual("openmetrics" in expected, page.endswith(b"# EOF\n"))
            self.reactor.advance(PAGE_SECONDS)

    def test_odd_accept(self) -> None:
        """An Accept that cannot be read costs nobody the page."""
        for accept in ("application/openmetrics-text; version=x.y", "text/plain; version=", ";;,,=", "a" * 3000):
            status, _headers, page = self.request(self.factory, f"GET /metrics HTTP/1.1\nHost: a\nAccept: {accept}")
            self.assertEqual((200, True), (status, b"svc_test_things_total" in page), accept)

    def test_other_paths_and_methods(self) -> None:
        """There is one page, to be read only."""
        self.assertEqual(404, self.request(self.factory, "GET / HTTP/1.1\nHost: a")[0])
        self.assertEqual(405, self.request(self.factory, "POST /metrics HTTP/1.1\nHost: a\nContent-Length: 0")[0])


class Thing(Collector):
    """A metric whose value says how often it was read."""

    reads = 0
    broken = False

    def collect(self) -> Iterable[Metric]:
        """Count."""
        if self.broken:
            raise ValueError("a defect")
        self.reads += 1
        return [GaugeMetricFamily("svc_test_reads", "Reads.", value=self.reads)]


class FloodTests(PageCase):
    """Many requests for a page."""

    GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"

    def setUp(self) -> None:
        super().setUp()
        registry = CollectorRegistry()
        self.thing = Thing()
        self.factory = self.started(HttpService(METRICS, metrics_root(registry), reactor=self.reactor))
        registry.register(self.thing)
        self.thing.reads = 0

    def send(self, transport: StringTransport, data: bytes) -> bytes:
        """Send octets; return what was answered since."""
        transport.clear()
        transport.protocol.dataReceived(data)  # type: ignore[attr-defined]
        return transport.value()

    def test_many_at_once(self) -> None:
        """Of requests that come at once the first is answered, and the connection is closed."""
        transport = self.connect(self.factory)
        answered = self.send(transport, self.GET * 2000)
        self.assertEqual((1, 1), (answered.count(b"HTTP/1.1 200 "), self.thing.reads))
        self.assertTrue(transport.disconnecting)

    def test_many_at_once_with_bodies(self) -> None:
        """So it is where each has a body."""
        request = b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
        for number in (1, 2, 2000):
            transport = self.connect(self.factory)
            self.assertEqual(1, self.send(transport, request * number).count(b"HTTP/1.1 404 "))
            self.assertEqual(number > 1, transport.disconnecting)

    def test_one_after_the_other(self) -> None:
        """A client that waits for each answer keeps its connection; head and body may come in parts."""
        transport = self.connect(self.factory)
        for _number in range(3):
            self.reactor.advance(PAGE_SECONDS)
            for part in (self.GET[:9], self.GET[9:]):
                answered = self.send(transport, part)
            self.assertEqual(1, answered.count(b"HTTP/1.1 200 "))
        self.assertFalse(transport.disconnecting)

    def test_while_one_is_answered(self) -> None:
        """What comes while a request waits for its answer is not read, and the connection is closed behind that."""
        transport = self.connect(self.factory)
        self.send(transport, self.GET)
        self.send(transport, self.GET)
        self.send(transport, self.GET * 100)
        self.assertEqual(b"", transport.value())
        self.reactor.advance(PAGE_SECONDS)
        self.assertEqual(1, transport.value().count(b"HTTP/1.1 200 "))
        self.assertTrue(transport.disconnecting)
        self.assertEqual(2, self.thing.reads)

    def test_page_is_made_once_a_second(self) -> None:
        """Requests within a second of the last page get the next one, which is made when the second is over."""
        first, *others = [self.connect(self.factory) for _number in range(MAX_CONNECTIONS)]
        self.assertIn(b"svc_test_reads 1.0", self.send(first, self.GET))
        for each in others:
            self.assertEqual(b"", self.send(each, self.GET))
        self.reactor.advance(PAGE_SECONDS - 0.001)
        self.assertEqual(1, self.thing.reads)
        others[0].protocol.connectionLost()  # type: ignore[attr-defined]
        self.reactor.advance(0.001)
        for each in others[1:]:
            self.assertIn(b"svc_test_reads 2.0", each.value())
        self.assertEqual((b"", 2), (others[0].value(), self.thing.reads))
        self.reactor.pump([PAGE_SECONDS] * 2)
        self.assertIn(b"svc_test_reads 3.0", self.send(first, self.GET))

    def test_half_closed(self) -> None:
        """A client that ends its stream behind its request (``nc -N``) gets the page, also where it has to wait."""
        self.send(self.connect(self.factory), self.GET)
        transport = self.connect(self.factory)
        self.assertEqual(b"", self.send(transport, self.GET))
        IHalfCloseableProtocol(transport.protocol).readConnectionLost()  # type: ignore[attr-defined]
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(PAGE_SECONDS)
        self.assertEqual(1, transport.value().count(b"HTTP/1.1 200 "))
        self.assertTrue(transport.disconnecting)
        idle = self.connect(self.factory)
        IHalfCloseableProtocol(idle.protocol).readConnectionLost()  # type: ignore[attr-defined]
        self.assertTrue(idle.disconnecting)

    def test_unread(self) -> None:
        """A client that does not read what it has asked for is not read either."""
        transport = self.connect(self.factory)
        transport.producer.pauseProducing()
        self.assertEqual("paused", transport.producerState)
        transport.producer.resumeProducing()
        self.assertEqual("producing", transport.producerState)

    def test_page_that_cannot_be_made(self) -> None:
        """All who wait get 500; the next page is made as ever."""
        self.thing.broken = True
        status, _headers, _page = self.request(self.factory, "GET /metrics HTTP/1.1\nHost: a")
        self.assertEqual((500, 1), (status, len(self.flushLoggedErrors(ValueError))))
        self.thing.broken = False
        self.assertEqual(200, self.request(self.factory, "GET /metrics HTTP/1.1\nHost: a")[0])


class LimitTests(PageCase):
    """A page server cannot be made to hold much."""

    def setUp(self) -> None:
        super().setUp()
        self.service = HttpService(ADMIN, Resource(), reactor=self.reactor)
        self.factory = self.started(self.service)

    def test_bodies(self) -> None:
        """A body at the limit is taken, one octet more or one of unknown length is refused at once."""
        for headers, body, expected in (
            (f"Content-Length: {MAX_BODY}", b"x" * MAX_BODY, 404),
            (f"Content-Length: {MAX_BODY + 1}", b"", 413),
            (f"Content-Length: {MAX_BODY + 1}", b"x" * (MAX_BODY + 1), 413),
            ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n", 413),
        ):
            request = f"POST / HTTP/1.1\nHost: a\n{headers}"
            self.assertEqual(expected, self.request(self.factory, request, body=body)[0], headers)

    def test_connections(self) -> None:
        """As many as the limit says are open; for one more, the oldest of the address with most is closed."""
        other = self.connect(self.factory, "192.0.2.1")
        transports = [self.connect(self.factory) for _number in range(MAX_CONNECTIONS - 1)]
        self.assertFalse(any(each.disconnecting for each in (other, *transports)))
        late = self.connect(self.factory, "192.0.2.2")
        self.assertEqual([True, *[False] * (MAX_CONNECTIONS - 2)], [each.disconnected for each in transports])
        self.assertFalse(other.disconnected or late.disconnected)
        late.protocol.connectionLost()  # type: ignore[attr-defined]
        self.connect(self.factory)
        self.assertFalse(transports[1].disconnected)

    def test_silent_connections(self) -> None:
        """A connection that says nothing is closed after the idle time."""
        transport = self.connect(self.factory)
        self.reactor.advance(IDLE_SECONDS - 1)
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_slow_connections(self) -> None:
        """A connection that keeps sending a head is closed at the end of its lifetime."""
        transport = self.connect(self.factory)
        transport.protocol.dataReceived(b"GET / HTTP/1.1\r\nX: ")  # type: ignore[attr-defined]
        for _turn in range(int(LIFETIME / 10) - 1):
            self.reactor.advance(10)
            transport.protocol.dataReceived(b"x")  # type: ignore[attr-defined]
        self.assertFalse(transport.disconnected or transport.disconnecting)
        self.reactor.advance(10)
        self.assertTrue(transport.disconnected or transport.disconnecting)

    def test_stop_closes(self) -> None:
        """A stopped service has no port, no connection and no timer of a connection."""
        transport = self.connect(self.factory)
        self.successResultOf(self.service.stopService())
        self.assertTrue(transport.disconnected or transport.disconnecting)
        self.assertIsNone(self.service.bound)


class PortTests(PageCase):
    """Opening the port."""

    def test_disabled_service(self) -> None:
        """Without an address no port is opened."""
        service = HttpService(None, Resource(), reactor=self.reactor)
        service.startService()
        self.assertEqual([], self.reactor.tcpServers)
        self.assertIsNone(service.bound)
        self.successResultOf(service.stopService())

    def test_taken(self) -> None:
        """A port that is taken raises an error that names the key to change; the service does not run."""

        class Taken(MemoryReactorClock):
            def listenTCP(self, port: int, *arguments: object, **named: object) -> NoReturn:
                raise CannotListenError("127.0.0.1", port, OSError(98, "Address already in use"))

        service = HttpService(ADMIN, Resource(), reactor=Taken(), key="adminAddr (the default)")
        error = self.assertRaises(ListenFailed, service.startService)
        self.assertEqual(
            "adminAddr (the default) cannot be opened at 127.0.0.1:9902: Address already in use", str(error)
        )
        self.assertIn("choose another one in adminAddr (the default)", error.hint)
        self.assertFalse(service.running)
        self.successResultOf(service.stopService())


class AdminPageTests(PageCase):
    """``/livez``, ``/readyz``, ``/drain``, ``/config``."""

    def setUp(self) -> None:
        super().setUp()
        self.health = Health(("credentials", "store", "pqIssuer"), optional=("pqIssuer",), now=lambda: START)
        self.drains = 0
        root = admin_root(self.health, drain=self.drain, config=lambda: {"trustDomain": "example.org"})
        self.factory = self.started(HttpService(ADMIN, root, reactor=self.reactor))

    def drain(self) -> None:
        self.drains += 1
        self.health.drain()

    def test_live(self) -> None:
        """While the reactor runs the answer is 200, whatever the conditions."""
        status, _headers, page = self.request(self.factory, "GET /livez HTTP/1.1\nHost: a")
        self.assertEqual((200, {"live": True}), (status, json.loads(page)))

    def test_not_ready(self) -> None:
        """Until every required condition holds the answer is 503 and names each with its reason."""
        self.health.holds("credentials", "not renewed")
        self.health.fails_with("store", StoreBroken(path="notary.db"))
        status, headers, page = self.request(self.factory, "GET /readyz HTTP/1.1\nHost: a")
        expected = {
            "ready": False,
            "draining": False,
            "conditions": [
                {
                    "name": "credentials",
                    "ok": True,
                    "required": True,
                    "since": "2026-11-21T00:00:00.000000Z",
                    "message": "not renewed",
                },
                {
                    "name": "store",
                    "ok": False,
                    "required": True,
                    "since": "2026-11-21T00:00:00.000000Z",
                    "reason": "notary_unavailable",
                    "message": "the store notary.db is broken",
                },
                {
                    "name": "pqIssuer",
                    "ok": False,
                    "required": False,
                    "since": "2026-11-21T00:00:00.000000Z",
                    "reason": "not_yet_known",
                },
            ],
        }
        self.assertEqual((503, "application/json", expected), (status, headers["content-type"], json.loads(page)))

    def test_ready(self) -> None:
        """With every required condition the answer is 200, whatever the others say."""
        self.health.holds("credentials")
        self.health.holds("store")
        status, _headers, page = self.request(self.factory, "GET /readyz HTTP/1.1\nHost: a")
        self.assertEqual((200, True), (status, json.loads(page)["ready"]))

    def test_drain_leaves_an_audit_record(self) -> None:
        """The request that starts a drain is logged once; refused ones the first, second, fourth ... time."""
        logged = self.enterContext(capturedLogs())
        request = "POST /drain HTTP/1.1\nHost: a\nContent-Length: 0"
        for _number in range(5):
            self.request(self.factory, f"{request}\nOrigin: http://evil.example")
        for _number in range(2):
            self.request(self.factory, request)
        records = [each for each in logged if each.get("svc_event") is DaemonEvent.ADMIN_DRAIN]
        self.assertEqual(["failure"] * 3 + [None], [each["svc_fields"].get("outcome") for each in records])
        self.assertEqual([1, 2, 4, None], [each["svc_attributes"].get("attempts") for each in records])
        self.assertEqual({"192.168.1.1"}, {each["svc_attributes"]["source.address"] for each in records})

    def test_drain(self) -> None:
        """POST starts a drain; GET does not, nor does a request that a browser sends for another site."""
        self.assertEqual(405, self.request(self.factory, "GET /drain HTTP/1.1\nHost: a")[0])
        for header in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
            request = f"POST /drain HTTP/1.1\nHost: a\n{header}\nContent-Length: 0"
            self.assertEqual(403, self.request(self.factory, request)[0])
        self.assertEqual(0, self.drains)
        self.assertEqual(202, self.request(self.factory, "POST /drain HTTP/1.1\nHost: a\nContent-Length: 0")[0])
        self.assertEqual((1, True), (self.drains, self.health.draining))

    def test_config(self) -> None:
        """The configuration is shown as given."""
        _status, _headers, page = self.request(self.factory, "GET /config HTTP/1.1\nHost: 127.0.0.1:9902")
        self.assertEqual({"trustDomain": "example.org"}, json.loads(page))

    def test_optional_pages(self) -> None:
        """Without a drain or a configuration to show there are no such pages."""
        factory = self.started(HttpService(ADMIN, admin_root(self.health), reactor=self.reactor))
        for path in ("/drain", "/config", "/status", "/"):
            self.assertEqual(404, self.request(factory, f"GET {path} HTTP/1.1\nHost: 127.0.0.1")[0])


class HostTests(SynchronousTestCase):
    """:func:`names_process`."""

    def test_hosts(self) -> None:
        """An address, localhost or the configured host names the process, with any port; nothing else does."""
        for address, host, expected in (
            (ADMIN, "127.0.0.1:9902", True),
            (ADMIN, "192.0.2.1", True),
            (ADMIN, "[::1]:9902", True),
            (ADMIN, "[::1]", True),
            (ADMIN, "localhost", True),
            (ADMIN, "LOCALHOST:1", True),
            (ADMIN, "evil.example:9902", False),
            (ADMIN, "localhost.evil.example", False),
            (ADMIN, "127.0.0.1.evil.example", False),
            (ADMIN, "127.1", False),
            (ADMIN, "2130706433", False),
            (ADMIN, "user@127.0.0.1", False),
            (ADMIN, "", False),
            (ADMIN, None, False),
            (HostPort("Proxy.internal", 1), "proxy.INTERNAL:9902", True),
            (HostPort("", 1), "", False),
            (None, "localhost", True),
        ):
            self.assertEqual(expected, names_process(host, address), (address, host))

    @given(st.text())
    def test_any_text(self, host: str) -> None:
        """Any text is answered with yes or no."""
        self.assertIn(names_process(host, ADMIN), (True, False))


class OperatorPageTests(PageCase):
    """The web page and ``/status``."""

    def setUp(self) -> None:
        super().setUp()
        self.health = Health(("store",), now=lambda: START)
        self.tables: list[Table] = []
        self.monitor = Monitor("proxy", self.health, clock=self.reactor, now=lambda: START, read=Totals)

        async def tables() -> list[Table]:
            if not self.tables:
                raise ValueError("a defect")
            return self.tables

        self.tables = [Table("More", note="said here")]
        operators = OperatorPages(self.monitor.status, self.monitor.history, ADMIN, tables, {b"more": Resource()})
        root = admin_root(self.health, config=dict, operators=operators)
        self.factory = self.started(HttpService(ADMIN, root, reactor=self.reactor))

    def get(self, path: str, host: str = "127.0.0.1:9902") -> tuple[int, dict[str, str], bytes]:
        return self.request(self.factory, f"GET {path} HTTP/1.1\nHost: {host}")

    def test_status(self) -> None:
        """``/status`` is the document."""
        status, headers, page = self.get("/status")
        self.assertEqual((200, "application/json"), (status, headers["content-type"]))
        self.assertEqual(("svc.status/1", "proxy"), (json.loads(page)["schema"], json.loads(page)["process"]))

    def test_page(self) -> None:
        """The page has the document and what the process adds; the browser is told to run, load and keep nothing."""
        status, headers, page = self.get("/")
        self.assertEqual((200, "text/html; charset=utf-8"), (status, headers["content-type"]))
        self.assertIn(b"said here", page)
        self.assertNotIn(b'content="10"', self.get("/?pause")[2])
        policy = headers["content-security-policy"]
        for expected in ("default-src 'none'", "style-src 'sha256-", "frame-ancestors 'none'", "form-action 'none'"):
            self.assertIn(expected, policy)
        for name, value in (
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "deny"),
            ("cache-control", "no-store"),
        ):
            self.assertEqual(value, headers[name])
        self.assertNotIn("set-cookie", headers)

    def test_other_hosts(self) -> None:
        """A request by a name that is not the operator's is refused, but for the pages that probes read."""
        for path in ("/", "/status", "/config", "/more"):
            status, _headers, page = self.get(path, "evil.example:9902")
            self.assertEqual((421, "host_unknown"), (status, json.loads(page)["reason"]), path)
        self.assertEqual((200, 503), (self.get("/livez", "probe.svc")[0], self.get("/readyz", "probe.svc")[0]))

    def test_parts_of_other_pages(self) -> None:
        """No page of another origin makes this process describe itself by loading parts; links and own pages may."""

        def get(path: str, site: str, dest: str) -> int:
            fields = f"Host: 127.0.0.1:9902\nSec-Fetch-Site: {site}\nSec-Fetch-Dest: {dest}"
            return self.request(self.factory, f"GET {path} HTTP/1.1\n{fields}")[0]

        for path in ("/", "/status", "/config"):
            for site in ("cross-site", "same-site"):
                for dest in ("image", "iframe", "empty"):
                    self.assertEqual(403, get(path, site, dest), (path, site, dest))
                self.assertEqual(200, get(path, site, "document"), (path, site))
            for site in ("same-origin", "none"):
                self.assertEqual(200, get(path, site, "empty"), (path, site))

    def test_methods(self) -> None:
        """The pages are only read; HEAD has the header alone."""
        for path in ("/", "/status", "/config"):
            request = f"POST {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 0"
            self.assertEqual(405, self.request(self.factory, request)[0], path)
            status, headers, page = self.request(self.factory, f"HEAD {path} HTTP/1.1\nHost: 127.0.0.1")
            self.assertEqual((200, b""), (status, page), path)
            self.assertGreater(int(headers["content-length"]), 0)

    def test_defect(self) -> None:
        """A page that cannot be made is answered with 500, and the log says why."""
        self.tables = []
        status, _headers, page = self.get("/")
        self.assertEqual((500, True), (status, b"could not be made" in page))
        self.assertEqual(1, len(self.flushLoggedErrors(ValueError)))
