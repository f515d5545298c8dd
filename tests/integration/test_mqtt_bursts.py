"""paho-mqtt, which on connect sends everything that it buffered at once, before a proxy with a broker behind it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, Publish, Version
from tests.integration.test_broker_bursts import KINDS, Client
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.mqttclient import RawClient
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port


class BurstTests(SynchronousTestCase):
    """More messages at once than the Receive Maximum of the proxy."""

    def sent_at_once(self, count: int, **listener: Any) -> None:
        """All are acknowledged over one connection and delivered once, in both versions with QoS 1 and 2."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        # The subscriber is slow where the machine is busy: beyond 1,000 messages the broker would drop some for it.
        broker = RunningBroker(limits={"queued": 10_000})
        stack.callback(broker.stop)
        broker.start()
        client = self.proxy(stack, broker.port, **listener)
        subscriber = Client(stack, broker.port, "all", KINDS[0][0], "t/#")
        eventually(lambda: subscriber.subscribed, what="a subscription")
        for number, (version, qos) in enumerate(KINDS, 1):
            messages = [(f"t/{number}", b"%d %d" % (number, each), qos) for each in range(count)]
            publisher = Client(stack, name=f"p{number}", version=version, buffered=messages, **client)
            eventually(lambda publisher=publisher: publisher.acknowledged == count, what="all acknowledgements")
            eventually(lambda number=number: len(subscriber.came) == number * count, what="all messages")
            self.assertEqual((publisher.connected, publisher.refused), (1, []), (version, qos))
        self.assertEqual(subscriber.came.total(), len(KINDS) * count)

    def proxy(
        self, stack: ExitStack, broker: int, buffer: dict[str, Any] | None = None, **listener: Any
    ) -> dict[str, Any]:
        """Start a proxy before a broker; returns the arguments of its clients."""
        folder, port = short_folder(stack), free_port()
        entries = [entry("/ns/shop/sa/api"), entry("/ns/iot/sa/device")]
        authority = stack.enter_context(RunningAuthority(entries=entries))
        inbound = {"name": "iot", "protocol": "mqtt", "direction": "inbound", "listen": f"127.0.0.1:{port}"}
        stored = {"path": str(folder / "buffer" / "mqtt.db"), **(buffer or {})}
        proxy = RunningProxy(
            authority,
            "127.0.0.1:1",
            listeners=[{**inbound, "upstream": f"127.0.0.1:{broker}", **listener}],
            settings={"mqttBuffer": stored} if "ack" in listener else {},
        )
        stack.callback(proxy.stop)
        proxy.start()
        return {"port": port, "tls": Credentials.fetch(authority, folder / "id", "/ns/iot/sa/device").context()}

    def test_recorded(self) -> None:
        """Through a listener that signs receipts."""
        self.sent_at_once(300, notarization="signRequest")

    def test_stored(self) -> None:
        """Through a listener that stores messages, more than it takes at once."""
        self.sent_at_once(1500, ack="middleware")

    def test_stored_and_recorded(self) -> None:
        """Through one that does both."""
        self.sent_at_once(1500, ack="middleware", notarization="signRequest")

    def test_full_buffer(self) -> None:
        """A client of MQTT 3.1.1 that is closed for a full buffer has the acknowledgements of all that was stored."""
        for more in ({}, {"notarization": "signRequest"}):
            stack = ExitStack()
            self.addCleanup(stack.close)
            client = self.proxy(stack, free_port(), buffer={"sessionMessages": 300}, ack="middleware", **more)
            raw = RawClient(client["port"], Version.V311, tls=client["tls"].wrap_socket)
            stack.callback(raw.close)
            self.assertEqual(raw.connect("c", clean_start=False).code, 0)
            raw.send(*(Publish("t", b"%d" % each, 1 + each % 2, packet_id=each + 1) for each in range(400)))  # type: ignore[arg-type]
            answers = [each for each in raw.until_end() if isinstance(each, Acknowledgement)]
            self.assertEqual({each.packet_id for each in answers}, set(range(1, 301)), more)
