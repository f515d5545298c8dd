"""The pages for scrapers and operators, through a whole HTTP server without a network."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from prometheus_client import CollectorRegistry, Counter, Histogram
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from svc.errors import SvcError
from svc.telemetry.admin import admin_root
from svc.telemetry.events import Event
from svc.telemetry.health import PROXY_CONDITIONS, ConditionUnknown, Health
from svc.telemetry.server import (
    IDLE_SECONDS,
    LIFETIME,
    MAX_BODY,
    MAX_CONNECTIONS,
    AddressInvalid,
    HttpService,
    PagesFailed,
    metrics_service,
    parse_listen_address,
)

START = datetime(2026, 11, 21, tzinfo=UTC)


class StoreBroken(SvcError):
    """the store {path} is broken"""

    reason = "notary_unavailable"


class PageCase(SynchronousTestCase):
    """Speaks HTTP to a service."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()

    def started(self, service: HttpService) -> Any:
        service.startService()
        self.addCleanup(service.stopService)
        return self.reactor.tcpServers[-1][1]

    def connect(self, factory: Any) -> StringTransport:
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000))
        transport = StringTransport()
        protocol.makeConnection(transport)
        transport.protocol = protocol  # type: ignore[attr-defined]
        return transport

    def ask(self, factory: Any, request: str, *, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        transport = self.connect(factory)
        transport.protocol.dataReceived(request.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)  # type: ignore[attr-defined]
        self.reactor.advance(0)
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
        self.factory = self.started(metrics_service(":9092", registry, reactor=self.reactor))

    def test_plain_text(self) -> None:
        """Without a wish the page is Prometheus text, with no series but those that were asked for."""
        status, headers, page = self.ask(self.factory, "GET /metrics HTTP/1.1\nHost: a")
        self.assertEqual((200, True), (status, headers["content-type"].startswith("text/plain")))
        self.assertIn(b"svc_test_things_total 1.0\n", page)
        self.assertIn(b"svc_test_seconds_count 1.0\n", page)
        self.assertNotIn(b"_created", page)

    def test_open_metrics(self) -> None:
        """A scraper that asks for OpenMetrics gets it, ended as the format demands."""
        request = "GET /metrics HTTP/1.1\nHost: a\nAccept: application/openmetrics-text; version=1.0.0"
        _status, headers, page = self.ask(self.factory, request)
        self.assertTrue(headers["content-type"].startswith("application/openmetrics-text"))
        self.assertTrue(page.endswith(b"# EOF\n"))
        self.assertNotIn(b"_created", page)

    def test_odd_accept(self) -> None:
        """An Accept that cannot be read costs nobody the page."""
        for accept in ("application/openmetrics-text; version=x.y", "text/plain; version=", ";;,,=", "a" * 3000):
            status, _headers, page = self.ask(self.factory, f"GET /metrics HTTP/1.1\nHost: a\nAccept: {accept}")
            self.assertEqual((200, True), (status, b"svc_test_things_total" in page), accept)

    def test_other_paths_and_methods(self) -> None:
        """There is one page, to be read only."""
        self.assertEqual(404, self.ask(self.factory, "GET / HTTP/1.1\nHost: a")[0])
        self.assertEqual(405, self.ask(self.factory, "POST /metrics HTTP/1.1\nHost: a\nContent-Length: 0")[0])


class LimitTests(PageCase):
    """A page server cannot be made to hold much."""

    def setUp(self) -> None:
        super().setUp()
        self.service = HttpService("127.0.0.1:9902", Resource(), reactor=self.reactor)
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
            self.assertEqual(expected, self.ask(self.factory, request, body=body)[0], headers)

    def test_connections(self) -> None:
        """As many connections as the limit says are served; the next is closed, and room returns."""
        transports = [self.connect(self.factory) for _number in range(MAX_CONNECTIONS)]
        self.assertIsNone(self.factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000)))
        transports[0].protocol.connectionLost()  # type: ignore[attr-defined]
        self.assertIsNotNone(self.factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000)))

    def test_silent_connections(self) -> None:
        """A connection that says nothing is closed after the idle time."""
        transport = self.connect(self.factory)
        self.reactor.advance(IDLE_SECONDS - 1)
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_slow_connections(self) -> None:
        """A connection that keeps sending a head for ever is ended when its life is over."""
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
        self.assertIsNone(self.service.address)


class AddressTests(PageCase):
    """How addresses are spelled."""

    def test_spellings(self) -> None:
        """Host and port, port alone, IPv6 in brackets; 0 and nothing disable."""
        for text, expected in (
            ("127.0.0.1:9902", ("127.0.0.1", 9902)),
            (":9092", ("", 9092)),
            ("[::1]:9092", ("::1", 9092)),
            ("localhost:0", ("localhost", 0)),
            ("0", None),
            ("", None),
        ):
            self.assertEqual(expected, parse_listen_address(text), text)

    def test_refused(self) -> None:
        """Anything else is refused with the text in the sentence."""
        for text in ("9092", "a:b", "::1:9092", ":65536", ":", "a b:1", "host:1\n", "[x]:1"):
            error = self.assertRaises(AddressInvalid, parse_listen_address, text)
            self.assertEqual("address_invalid", error.reason)

    def test_disabled_service(self) -> None:
        """A disabled address opens no port."""
        for text in ("0", ""):
            service = metrics_service(text, CollectorRegistry(), reactor=self.reactor)
            service.startService()
            self.assertEqual([], self.reactor.tcpServers)
            self.assertIsNone(service.address)
            self.successResultOf(service.stopService())

    def test_taken(self) -> None:
        """A port that cannot be had is told as one, with the keys to change; nothing is to be closed then."""

        class Taken(MemoryReactorClock):
            def listenTCP(self, port: int, *arguments: object, **named: object) -> NoReturn:
                raise CannotListenError("127.0.0.1", port, OSError(98, "Address already in use"))

        service = HttpService("127.0.0.1:9902", Resource(), reactor=Taken())
        error = self.assertRaises(PagesFailed, service.startService)
        self.assertEqual(
            "the address 127.0.0.1:9902 for metrics or administration cannot be had: Address already in use", str(error)
        )
        self.assertIn("adminAddr", error.advice())
        self.assertFalse(service.running)
        self.successResultOf(service.stopService())


class AdminPageTests(PageCase):
    """``/livez``, ``/readyz``, ``/drain``, ``/config``."""

    def setUp(self) -> None:
        super().setUp()
        self.health = Health(("credentials", "store", "pqIssuer"), optional=("pqIssuer",), now=lambda: START)
        self.drains = 0
        root = admin_root(self.health, drain=self.drain, config=lambda: {"trustDomain": "example.org"})
        self.factory = self.started(HttpService("127.0.0.1:9902", root, reactor=self.reactor))

    def drain(self) -> None:
        self.drains += 1
        self.health.drain()

    def test_live(self) -> None:
        """A turning reactor is alive, whatever the conditions say."""
        status, _headers, page = self.ask(self.factory, "GET /livez HTTP/1.1\nHost: a")
        self.assertEqual((200, {"live": True}), (status, json.loads(page)))

    def test_not_ready(self) -> None:
        """Until every required condition holds the answer is 503 and names each with its reason."""
        self.health.holds("credentials", "not renewed")
        self.health.fails_with("store", StoreBroken(path="notary.db"))
        status, headers, page = self.ask(self.factory, "GET /readyz HTTP/1.1\nHost: a")
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
        status, _headers, page = self.ask(self.factory, "GET /readyz HTTP/1.1\nHost: a")
        self.assertEqual((200, True), (status, json.loads(page)["ready"]))

    def test_drain_leaves_an_audit_record(self) -> None:
        """Who asked for it is told once; who was refused, ever more seldom."""
        told: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(told.append)
        self.addCleanup(globalLogPublisher.removeObserver, told.append)
        request = "POST /drain HTTP/1.1\nHost: a\nContent-Length: 0"
        for _number in range(5):
            self.ask(self.factory, f"{request}\nOrigin: http://evil.example")
        for _number in range(2):
            self.ask(self.factory, request)
        records = [each for each in told if each.get("svc_event") is Event.ADMIN_DRAIN]
        self.assertEqual(["failure"] * 3 + [None], [each["svc_fields"].get("outcome") for each in records])
        self.assertEqual([1, 2, 4, None], [each["svc_attributes"].get("attempts") for each in records])
        self.assertEqual({"192.168.1.1"}, {each["svc_attributes"]["source.address"] for each in records})

    def test_drain(self) -> None:
        """POST drains; GET does not, nor does what a browser sends for another site."""
        self.assertEqual(405, self.ask(self.factory, "GET /drain HTTP/1.1\nHost: a")[0])
        for header in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
            request = f"POST /drain HTTP/1.1\nHost: a\n{header}\nContent-Length: 0"
            self.assertEqual(403, self.ask(self.factory, request)[0])
        self.assertEqual(0, self.drains)
        self.assertEqual(202, self.ask(self.factory, "POST /drain HTTP/1.1\nHost: a\nContent-Length: 0")[0])
        self.assertEqual((1, True), (self.drains, self.health.draining))

    def test_config(self) -> None:
        """The configuration is shown as given."""
        _status, _headers, page = self.ask(self.factory, "GET /config HTTP/1.1\nHost: a")
        self.assertEqual({"trustDomain": "example.org"}, json.loads(page))

    def test_pages_that_nobody_offers(self) -> None:
        """Without a drain or a configuration to show there are no such pages."""
        factory = self.started(HttpService("127.0.0.1:9903", admin_root(self.health), reactor=self.reactor))
        for path in ("/drain", "/config"):
            self.assertEqual(404, self.ask(factory, f"GET {path} HTTP/1.1\nHost: a")[0])


class HealthTests(SynchronousTestCase):
    """Named conditions."""

    def setUp(self) -> None:
        self.now = START
        self.changes: list[bool] = []
        self.health = Health(("a", "b"), now=lambda: self.now, changed=self.changes.append)

    def test_starts_unready(self) -> None:
        """Nothing holds until someone says so."""
        self.assertFalse(self.health.ready)
        self.assertEqual(["not_yet_known"] * 2, [condition.reason for condition in self.health.conditions])

    def test_changes_are_told_once(self) -> None:
        """Readiness is told when it changes, not at each condition."""
        self.health.holds("a")
        self.health.holds("b")
        self.health.holds("b")
        self.health.fails("a", "gone")
        self.health.fails("b", "gone")
        self.assertEqual([True, False], self.changes)

    def test_since(self) -> None:
        """A condition keeps the time of its last change."""
        self.health.fails("a", "first")
        self.now += timedelta(seconds=5)
        self.health.fails("a", "second")
        self.assertEqual(START, self.health.conditions[0].since)
        self.health.holds("a")
        self.assertEqual(self.now, self.health.conditions[0].since)

    def test_drain_is_final(self) -> None:
        """After a drain has begun nothing makes the process ready again."""
        for name in ("a", "b"):
            self.health.holds(name)
        self.health.drain()
        self.health.holds("a")
        self.assertFalse(self.health.ready)
        self.assertEqual([True, False], self.changes)

    def test_optional_conditions(self) -> None:
        """A condition that is not required is shown only, until the configuration makes it necessary."""
        health = Health(("a", "b"), optional=("b",), now=lambda: self.now, changed=self.changes.append)
        health.holds("a")
        self.assertEqual((True, [True]), (health.ready, self.changes))
        health.require("b", True)
        self.assertEqual((False, ("b",)), (health.ready, tuple(each.name for each in health.failing)))
        health.require("b", False)
        self.assertEqual([True, False, True], self.changes)

    def test_unknown_names(self) -> None:
        """A condition that was not announced is an error, not a new condition."""
        self.assertRaises(ConditionUnknown, self.health.holds, "c")
        self.assertRaises(ConditionUnknown, self.health.condition, "c")
        self.assertRaises(ConditionUnknown, self.health.require, "c", True)
        self.assertEqual(2, len(self.health.conditions))
        self.assertEqual(("credentials", "store", "listeners", "pqIssuer"), PROXY_CONDITIONS)
