"""
The web page of ``adminAddr`` in a real browser, of a real proxy and a real broker.

The pictures in ``docs/images`` are made of an hour of invented values::

    SVC_SCREENSHOTS=1 bin/test tests.integration.test_admin_page
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.pages.elements import Link, Table
from svc.process.history import Sample
from svc.process.status import IdentityStatus, LastError, ListenerStatus, Rates, Status, StoreStatus
from svc.process.status_page import status_page
from svc.telemetry.health import Condition
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.chromium import Chromium, LoadedPage
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import TOP, Shared, eventually

#: Set it to have the pictures of the documentation written.
SCREENSHOTS = "SVC_SCREENSHOTS"
ID = "spiffe://example.org/ns/shop/sa/api"
SIGN = "Svc-Notarization-Level: signRequest\r\n"
RECEIPT = re.compile(r'href="(/receipts/[A-Za-z0-9_-]{43})"')


def _make(stack: ExitStack) -> Any:
    chromium = Chromium(stack)
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/web/sa/fe")]))
    application = f"127.0.0.1:{webapp.start(stack)}"
    policy = {"policy": {"default": "deny", "allow": [ID]}}
    proxy = stack.enter_context(RunningProxy(authority, application, settings=policy))
    broker = stack.enter_context(RunningBroker())
    allowed = Credentials.fetch(authority, short_folder(stack), "/ns/shop/sa/api")
    other = Credentials.fetch(authority, short_folder(stack), "/ns/web/sa/fe")
    with RawConnection(proxy.port, allowed) as connection:
        for number in range(1, 4):
            connection.request(f"/bytes/{number}", fields=SIGN)
        connection.request("/bytes/4")
    with RawConnection(proxy.port, other) as connection:
        connection.request("/%3Cscript%3E")
    with RawClient(broker.port) as client:
        client.connect("lamp")
    return SimpleNamespace(chromium=chromium, proxy=proxy, broker=broker)


SHARED = Shared(_make)


class AdminPageTests(SynchronousTestCase):
    """A proxy and a broker after some traffic."""

    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        self.broker: RunningBroker = self.found.broker

    def status(self, daemon: Any) -> dict[str, Any]:
        """Read the status document."""
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.admin_port}/status", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def load(self, path: str, daemon: Any) -> LoadedPage:
        """Load a page after the first sample; nothing may be refused by its policy, and nothing asked of others."""
        eventually(lambda: self.status(daemon).get("rates"), what="the first sample")
        page = self.found.chromium.load(f"http://127.0.0.1:{daemon.admin_port}{path}")
        self.assertEqual(([], set()), (page.console, page.hosts))
        return page

    def test_status_of_the_proxy(self) -> None:
        """The document counts what was served and refused, and names identity, listener and the last denial."""
        status = self.status(self.proxy)
        [listener], [identity] = status["listeners"], status["identities"]
        self.assertEqual(("web", "workload", "signRequest"), tuple(listener[n] for n in ("name", "level", "maxLevel")))
        self.assertEqual((5, 1), (listener["requests"], listener["refusals"]))
        self.assertEqual((ID, "hybrid"), (identity["spiffeID"], identity["profile"]))
        # Three receipts and the workload statement.
        self.assertEqual((4, True), (status["store"]["records"], status["store"]["writable"]))
        self.assertEqual("policy_deny", status["lastErrors"][0]["reason"])

    def test_page_of_the_proxy(self) -> None:
        """The page shows all of it, with plots; a path of a request makes no element."""
        page = self.load("/", self.proxy)
        for expected in (ID, ">web<", "svc.proxy.request.denied", ">policy_deny<", "GET", "/bytes/3", "✓ store"):
            self.assertIn(expected, page.dom)
        self.assertEqual(4, page.dom.count("<svg"))
        self.assertRegex(page.dom, r'<path class="a" d="M[0-9.]+ ')
        self.assertNotIn("<script", page.dom)
        self.assertEqual(3, len(RECEIPT.findall(page.dom)))

    def test_report_of_a_receipt(self) -> None:
        """Each receipt is verified by the proxy as by anybody; one that is not there is answered with 404."""
        [link, *_others] = RECEIPT.findall(self.load("/", self.proxy).dom)
        page = self.load(link, self.proxy)
        for expected in ("Verified", "/bytes/3", ID):
            self.assertIn(expected, page.dom)
        with self.assertRaises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{self.proxy.admin_port}/receipts/{'A' * 43}", timeout=60)
        missing.exception.close()
        self.assertEqual(404, missing.exception.code)

    def test_page_of_the_broker(self) -> None:
        """The broker's page shows its clients, sessions and messages."""
        page = self.load("/", self.broker)
        for expected in (">plain<", "Sessions", "Messages waiting", "Messages dropped", "Clients connected"):
            self.assertIn(expected, page.dom)
        self.assertEqual(4, page.dom.count("<svg"))

    def test_screenshots(self) -> None:
        """Pictures are made; those of the documentation where that is asked for."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        folder = TOP / "docs" / "images" if os.environ.get(SCREENSHOTS) else short_folder(stack)
        folder.mkdir(exist_ok=True)
        pages = short_folder(stack)
        (pages / "proxy.html").write_text(status_page(*_proxy_hour(), tables=[_receipts()]))
        (pages / "broker.html").write_text(status_page(*_broker_hour()))
        for name, page, width, height, dark in (
            ("admin-proxy-light", "proxy", 1120, 1400, False),
            ("admin-proxy-dark", "proxy", 1120, 1130, True),
            ("admin-proxy-phone", "proxy", 390, 1500, False),
            ("admin-broker", "broker", 1120, 900, False),
        ):
            path = folder / f"{name}.png"
            self.found.chromium.screenshot((pages / f"{page}.html").as_uri(), path, width, height, dark=dark)
            self.assertGreater(path.stat().st_size, 20_000, name)


# -- An hour of invented values ---------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 23, 9, 30, 4, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
API, FRONT = "spiffe://prod.example/ns/shop/sa/api", "spiffe://prod.example/ns/web/sa/front"


def _condition(name: str, reason: str = "", message: str = "", *, required: bool = True) -> Condition:
    return Condition(name, not reason, reason, message, NOW - 12 * MINUTE, required)


def _moments() -> Iterator[tuple[datetime, float, float, bool]]:
    """Give time, load, a random number and whether there is a burst for each sample; the same ones each time."""
    generator = random.Random(3)
    for number in range(360):
        burst = 250 < number < 258
        load = 60 + 30 * math.sin(number / 45) + 4 * generator.random() + (70 if burst else 0)
        yield NOW - timedelta(seconds=3600 - 10 * number), load, generator.random(), burst


def _proxy_hour() -> tuple[Status, list[Sample]]:
    samples = [
        Sample(at, Rates(10, load, 4.2 * burst, 0.4 * (chance < 0.02), 0.0021, 0.009 + load / 2e4), int(load / 5), {})
        for at, load, chance, burst in _moments()
    ]
    statements = ("pitC2T58IPzTO_MQHGP_nUvAsEi4kdbNoYh6S0NEK9U", "Iuhh5r2dA9XW0vVxpoUeb8xKrKud86mDruJzLObxguY")
    identities = tuple(
        IdentityStatus(API, NOW + left * MINUTE, NOW + (left - 1) * MINUTE, statement, "hybrid", NOW + left * MINUTE)
        for left, statement in zip((47, 5), statements, strict=True)
    )
    listeners = (
        ListenerStatus(
            *("web", "http", "inbound", "0.0.0.0:8443", "127.0.0.1:8080", "workload", "signRequest"),
            *(14, 5, 182_344, 92),
        ),
        ListenerStatus(
            *("bank", "http", "outbound", "127.0.0.1:8081", "bank.example:8443", "signRequest", "signRequest"),
            *(2, None, 912, 0),
        ),
    )
    issuer = _condition("pqIssuer", "pq_issuer_unavailable", "connection refused", required=False)
    status = Status(
        process="proxy",
        version="0.2.0",
        pid=4711,
        started=NOW - 3061 * MINUTE,
        now=NOW,
        ready=True,
        draining=False,
        trust_domain="prod.example",
        conditions=(*map(_condition, ("credentials", "workloadApi", "store", "listeners")), issuer),
        identities=identities,
        listeners=listeners,
        store=StoreStatus("/var/lib/svc/notary.db", True, "", 88_123),
        denials={"policy_deny": 71, "expired": 12, "handshake_failed": 9},
        last_errors=(
            LastError(
                NOW - MINUTE, "svc.proxy.request.denied", "policy_deny", "request denied: default deny", FRONT, 71
            ),
            LastError(
                NOW - 9 * MINUTE,
                *("svc.proxy.auth.denied", "expired", "the certificate ended at 09:12:40", "192.0.2.17:51244"),
                12,
            ),
            LastError(NOW - 12 * MINUTE, "svc.pq.issuer.unreachable", "pq_issuer_unavailable", "connection refused"),
        ),
    )
    return status, samples


def _receipts() -> Table:
    rows = [
        (
            f"2026-11-23 09:29:{59 - 7 * number}",
            FRONT,
            "GET",
            f"/orders/{17 + number}",
            "200",
            "complete",
            Link("Verify", "/"),
        )
        for number in range(3)
    ]
    return Table("Last receipts", ("Time (UTC)", "Client", "Method", "Path", "Status", "Outcome", "Report"), rows)


def _broker_hour() -> tuple[Status, list[Sample]]:
    samples = [
        Sample(at, Rates(10, refusals=0.0, received=load, sent=3 * load, dropped=2.0 * burst), int(90 + load / 9), {})
        for at, load, _chance, burst in _moments()
    ]
    status = Status(
        process="broker",
        version="0.2.0",
        pid=4712,
        started=NOW - 3061 * MINUTE,
        now=NOW,
        ready=True,
        draining=False,
        trust_domain="prod.example",
        conditions=tuple(map(_condition, ("credentials", "listeners", "workloadApi", "store"))),
        identities=(IdentityStatus(API.replace("api", "broker"), NOW + 52 * MINUTE, NOW + 52 * MINUTE),),
        listeners=(
            ListenerStatus("services", "mqtt", "inbound", "0.0.0.0:8883", connections=96, peers=93),
            ListenerStatus("local", "mqtt", "inbound", "127.0.0.1:1883", connections=3),
        ),
        store=StoreStatus("/var/lib/svc/broker.db", True, "", 40_122),
        clients=99,
        sessions=140,
        retained=1804,
        queued=12,
        denials={"mqtt_not_authorized": 4},
    )
    return status, samples
