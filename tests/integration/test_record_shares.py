"""
Two identities that want signed records: one sends what it can, the other a steady few.

The short form takes seconds; with ``bin/test --long`` the greedy identity goes on for a minute in each test.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, Publish
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.greedy_client import GreedyClient
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.nginx import RunningNginx
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port, rounds

SECONDS = float(rounds(6, 60))
#: Requests a second of the steady identity, each on its own connection in turn.
RATE, CONNECTIONS = 50, 8
GREEDY_CONNECTIONS = 192
GREEDY = "/ns/shop/sa/gateway"
HELD = "svc_proxy_notary_admissions_held_total"
WAITING = "svc_proxy_notary_admissions_waiting"
#: What the steady identity may wait in the median, of what the greedy one does: both would be equal in one queue by
#: arrival. On two cores it was a fifth.
MOST_OF_GREEDY = 0.6
#: Seconds, since `notary.rateWait` refuses after five.
LONGEST = 5.0


def _make(stack: ExitStack) -> Any:
    names = ("/ns/shop/sa/api", GREEDY, "/ns/shop/sa/web", "/ns/iot/sa/device")
    authority = stack.enter_context(RunningAuthority(entries=[entry(each) for each in names]))
    broker = RunningBroker()
    stack.callback(broker.stop)
    broker.start()
    application = RunningNginx(stack, free_port())
    application.put("index.html", b"x" * 200)
    port = free_port()
    iot = {"name": "iot", "protocol": "mqtt", "direction": "inbound", "notarization": "signRequest"}
    iot |= {"listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{broker.port}"}
    signed = {"notarization": "signRequest"}
    upstream = f"127.0.0.1:{application.port}"
    proxy = stack.enter_context(RunningProxy(authority, upstream, listener=signed, listeners=[iot]))
    greedy, web, device = (Credentials.fetch(authority, short_folder(stack), each) for each in names[1:])
    return SimpleNamespace(proxy=proxy, mqtt=port, greedy=greedy, web=web, device=device)


SHARED = Shared(_make)


class SteadyClients:
    """Clients that take turns, so that together they ask at a rate, whatever a single one waits."""

    def __init__(self, asks: list[Callable[[], object]]) -> None:
        self._asks = asks
        self.times: list[float] = []
        self.answers: list[object] = []

    def run(self, seconds: float) -> None:
        """Ask for so long."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._run, args=(ask, end, number)) for number, ask in enumerate(self._asks)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def _run(self, ask: Callable[[], object], end: float, number: int) -> None:
        interval = len(self._asks) / RATE
        due = time.monotonic() + number / RATE
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            self.answers.append(ask())
            self.times.append(time.monotonic() - began)
            due = max(due + interval, time.monotonic())

    @property
    def median(self) -> float:
        """Seconds of an answer."""
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 answers came."""
        return statistics.quantiles(self.times, n=100)[98]


class ShareTests(SynchronousTestCase):
    """Nobody is refused, and the steady identity does not wait in the queue of the greedy one."""

    log = Logger()

    def setUp(self) -> None:
        self.rig = SHARED.get()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    @contextlib.contextmanager
    def greedy(self) -> Iterator[GreedyClient]:
        """The greedy identity, whose answers are all good."""
        with GreedyClient(self.rig.proxy.port, self.rig.greedy, GREEDY_CONNECTIONS) as found:
            yield found
        self.assertEqual({200}, found.statuses.keys())

    def assert_shared(self, asks: list[Callable[[], object]], good: object) -> None:
        """All are answered well, alone and beside the greedy identity, and soon."""
        alone, beside = SteadyClients(asks), SteadyClients(asks)
        alone.run(SECONDS / 3)
        held = self.rig.proxy.metric(HELD, reason="place")
        with self.greedy() as greedy:
            waiting: list[float] = []
            watch = threading.Timer(SECONDS / 2, lambda: waiting.append(self.rig.proxy.metric(WAITING)))
            watch.start()
            beside.run(SECONDS)
            watch.join()
        self.assertEqual({good}, {*alone.answers, *beside.answers})
        figures = (
            f"alone p50 {alone.median * 1e3:.1f} ms, p99 {alone.p99 * 1e3:.1f}; "
            f"beside p50 {beside.median * 1e3:.1f}, p99 {beside.p99 * 1e3:.1f}, {beside.p99 / alone.p99:.1f} times; "
            f"greedy p50 {greedy.median * 1e3:.1f}, {greedy.statuses[200] / SECONDS:.0f}/s"
        )
        print(figures)
        self.assertLess(beside.median, MOST_OF_GREEDY * greedy.median, figures)
        self.assertLess(beside.p99, LONGEST, figures)
        self.assertGreater(self.rig.proxy.metric(HELD, reason="place"), held)
        self.assertGreater(waiting[0], 0)
        eventually(lambda: self.rig.proxy.metric(WAITING) == 0, what="that nobody waits")
        named = {each["peer_spiffe_id"] for each in self.rig.proxy.records("svc.notary.admissions_held")}
        self.assertEqual({self.rig.greedy.spiffe_id}, named)

    def test_requests(self) -> None:
        """Both send requests."""
        context = self.rig.web.context()
        clients = [self.stack.enter_context(RawConnection(self.rig.proxy.port, context)) for _ in range(CONNECTIONS)]

        def asking(client: RawConnection) -> Callable[[], object]:
            return lambda: client.request("/").status

        self.assert_shared([asking(each) for each in clients], 200)

    def test_messages(self) -> None:
        """The steady one publishes messages beside the other's requests."""
        tls = self.rig.device.context().wrap_socket
        clients = [self.stack.enter_context(RawClient(self.rig.mqtt, tls=tls)) for _ in range(CONNECTIONS)]

        def publishing(client: RawClient) -> Callable[[], object]:
            def publish() -> object:
                client.send(Publish("t/a", b"x", 1, packet_id=1))
                answer = client.receive()
                return answer.code if isinstance(answer, Acknowledgement) else answer

            return publish

        for number, each in enumerate(clients):
            self.assertEqual(0, each.connect(f"c{number}").code)
        # The broker has no subscriber for them, and says so.
        self.assert_shared([publishing(each) for each in clients], 0x10)
