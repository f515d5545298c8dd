"""Limits of the records that one client can cause: it is held back beyond them, then refused and not forwarded."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, Pingreq, Pingresp, Publish, Subscribe, Subscription, Version
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port

LOG = "Svc-Notarization-Level: logRequest\r\n"
LARGE = LOG + f"X: {'x' * 30_000}\r\n"


class BudgetTests(SynchronousTestCase):
    """A proxy with small budgets."""

    def setUp(self) -> None:
        """Start nothing yet."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        self.application = webapp.start(self.stack)

    def connect(self, **notary: object) -> RawConnection:
        """Start the proxy and connect to it."""
        proxy = RunningProxy(self.authority, f"127.0.0.1:{self.application}", notary=notary)
        self.proxy = self.stack.enter_context(proxy)
        credentials = Credentials.fetch(self.authority, short_folder(self.stack))
        return self.stack.enter_context(RawConnection(self.proxy.port, credentials))

    def refused(self, connection: RawConnection, fields: str, most: int) -> tuple[int, int]:
        """Send requests until one is refused; returns how many were served and when the next one would be."""
        for served in range(most):
            answer = connection.request("/bytes/1", fields=fields)
            if answer.status == 429:
                self.assertEqual(json.loads(answer.body)["code"], "notary_rate")
                self.assertEqual(self.proxy.metric("svc_proxy_notary_records_total", result="success"), served)
                return served, int(answer.get("retry-after") or "")
            self.assertEqual(answer.status, 200)
        raise AssertionError(f"{most} requests were served")

    def test_octets(self) -> None:
        """Large records use the octets up, until the seconds of the refusal are over; other levels are served."""
        connection = self.connect(recordOctetsPerSecond="32KiB", recordOctetsBurst="1MiB", rateWait="0s")
        served, seconds = self.refused(connection, LARGE, 200)
        self.assertGreater(served, 20)
        self.assertEqual(connection.request("/bytes/1").status, 200)
        time.sleep(seconds)
        self.assertEqual(connection.request("/bytes/1", fields=LARGE).status, 200)

    def test_records(self) -> None:
        """Records without a signature have a rate too."""
        connection = self.connect(receiptsPerSecond=1, receiptsBurst=5, rateWait="0s")
        served, seconds = self.refused(connection, LOG, 100)
        self.assertGreaterEqual(served, 5)
        time.sleep(seconds)
        self.assertEqual(connection.request("/bytes/1", fields=LOG).status, 200)

    def test_held_back(self) -> None:
        """Clients that are faster than the rate are served at the rate; too many of them are refused after a time."""
        first = self.connect(receiptsPerSecond=20, receiptsBurst=5, rateWait="2s")
        credentials = Credentials.fetch(self.authority, short_folder(self.stack))
        others = [self.stack.enter_context(RawConnection(self.proxy.port, credentials)) for _ in range(5)]
        began = time.monotonic()
        for _ in range(10):
            for each in (first, *others):
                each.send(b"GET /bytes/1 HTTP/1.1\r\nHost: a\r\n" + LOG.encode() + b"\r\n")
            self.assertEqual({200}, {each.read().status for each in (first, *others)})
        # Sixty records, of which five at once.
        self.assertGreater(time.monotonic() - began, 2.5)
        crowd = [self.stack.enter_context(RawConnection(self.proxy.port, credentials)) for _ in range(60)]
        began = time.monotonic()
        for each in crowd:
            each.send(b"GET /bytes/1 HTTP/1.1\r\nHost: a\r\n" + LOG.encode() + b"\r\n")
        statuses = Counter(each.read().status for each in crowd)
        self.assertEqual({200, 429}, statuses.keys())
        self.assertGreater(statuses[200], 25)
        self.assertGreater(time.monotonic() - began, 1.5)
        self.assertGreater(self.proxy.metric("svc_proxy_notary_admissions_held_total", reason="rate"), 60)
        held = self.proxy.records("svc.notary.admissions_held")[0]
        self.assertEqual((credentials.spiffe_id, "rate"), (held["peer_spiffe_id"], held["attributes"]["reason"]))
        self.assertEqual(200, first.request("/bytes/1", fields=LOG).status)


class MessageTests(SynchronousTestCase):
    """The same of MQTT clients."""

    def test_held_back(self) -> None:
        """Three times what the rate allows at once: every message is recorded and arrives, whatever QoS and version."""
        with ExitStack() as stack:
            entries = [entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]
            authority = stack.enter_context(RunningAuthority(entries=entries))
            broker = RunningBroker()
            stack.callback(broker.stop)
            broker.start()
            iot, stored = free_port(), free_port()
            inbound = {"protocol": "mqtt", "direction": "inbound", "upstream": f"127.0.0.1:{broker.port}"}
            listeners = [
                {**inbound, "name": "iot", "listen": f"127.0.0.1:{iot}", "notarization": "logRequest"},
                {
                    **inbound,
                    "name": "stored",
                    "listen": f"127.0.0.1:{stored}",
                    "notarization": "logRequest",
                    "ack": "middleware",
                },
            ]
            proxy = RunningProxy(
                authority,
                "127.0.0.1:1",
                listeners=listeners,
                notary={"receiptsPerSecond": 100, "receiptsBurst": 50},
                settings={"mqttBuffer": {"path": str(short_folder(stack) / "buffer" / "mqtt.db")}},
            )
            stack.enter_context(proxy)
            tls = Credentials.fetch(authority, short_folder(stack), "/ns/iot/sa/device").context()
            reader = stack.enter_context(RawClient(broker.port))
            reader.connect("all")
            reader.send(Subscribe(1, [Subscription("t/#", 1)]))
            reader.receive()
            kinds = list(itertools.product((iot, stored), Version, (0, 1, 2)))
            for number, (port, version, qos) in enumerate(kinds):
                client = stack.enter_context(RawClient(port, version, tls=tls.wrap_socket))
                self.assertEqual(0, client.connect(f"c{number}").code)
                messages = [
                    Publish(f"t/{number}", b"%d" % each, qos, packet_id=each + 1 if qos else 0)  # type: ignore[arg-type]
                    for each in range(150)
                ]
                client.send(*messages, Pingreq())
                answers = [client.receive() for _ in range(151 if qos else 1)]
                self.assertIn(Pingresp(), answers)
                self.assertEqual(
                    [0] * (150 * bool(qos)), [each.code for each in answers if isinstance(each, Acknowledgement)]
                )
                arrived: list[bytes] = []
                while len(arrived) < 150:
                    delivered = reader.receive()
                    assert isinstance(delivered, Publish), delivered
                    reader.acknowledge([delivered])
                    arrived.append(delivered.payload)
                self.assertEqual([b"%d" % each for each in range(150)], arrived, (port, version, qos))
            labels = {"result": "success", "protocol": "mqtt"}
            written = len(kinds) * 150
            eventually(lambda: proxy.metric("svc_proxy_notary_records_total", **labels) == written, what="all records")
