"""paho-mqtt, which on reconnect resends everything that it buffered at once, before a broker that was killed."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from twisted.trial.unittest import SynchronousTestCase

from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.mosquitto import RunningMosquitto
from tests.peers.waiting import eventually

#: Five times the Receive Maximum of the broker.
MESSAGES = 500
#: When so many are acknowledged, the broker is killed once more.
SOME = 50
Kinds = Sequence[tuple[paho.MQTTProtocolVersion, int]]
#: Versions, and the QoS of what is published.
KINDS: Kinds = [(version, qos) for version in (paho.MQTTv311, paho.MQTTv5) for qos in (1, 2)]
#: Packet Identifier not found (MQTT 5.0, section 2.4).
_IDENTIFIER_NOT_FOUND = 0x92


class Client:
    """
    A client of paho-mqtt with a session that lasts, which reconnects by itself.

    Args:
        stack: ends it.
        port: the broker's.
        name: its identifier.
        version: which MQTT it uses.
        topic: what it subscribes to with QoS 2; nothing where it is empty.
        buffered: what it has published before it connects.
        tls: for its connections.

    Attributes:
        refused: reason codes of messages that the broker did not accept.
        came: how often each payload came.
    """

    def __init__(
        self,
        stack: ExitStack,
        port: int,
        name: str,
        version: paho.MQTTProtocolVersion,
        topic: str = "",
        *,
        buffered: Sequence[tuple[str, bytes, int]] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.acknowledged = 0
        self.connected = 0
        self.subscribed = False
        self.refused: list[Any] = []
        self.came: Counter[bytes] = Counter()
        self._topic = topic
        v5 = version == paho.MQTTv5
        session: dict[str, Any] = {} if v5 else {"clean_session": False}
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=version, **session)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *_arguments: setattr(self, "subscribed", True)
        self.client.on_publish = self._on_publish
        self.client.on_message = lambda _client, _data, message: self.came.update([message.payload])  # type: ignore[list-item]
        if tls is not None:
            self.client.tls_set_context(tls)
            self.client.tls_insecure_set(True)
        for each in buffered:
            self.client.publish(*each)
        more: dict[str, Any] = {}
        if v5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            more = {"clean_start": False, "properties": properties}
        self.client.connect("127.0.0.1", port, keepalive=10, **more)
        self.client.loop_start()
        stack.callback(self.client.loop_stop)
        stack.callback(self.client.disconnect)

    def _on_connect(self, *_arguments: Any) -> None:
        self.connected += 1
        if self._topic:
            self.client.subscribe(self._topic, 2)

    def _on_publish(self, _client: Any, _data: Any, _identifier: int, reason: Any, _properties: Any) -> None:
        self.acknowledged += 1
        # A PUBREL whose PUBCOMP was lost with the broker: no error during recovery (MQTT 5.0, section 3.7.2.1).
        if reason is not None and reason.is_failure and reason.value != _IDENTIFIER_NOT_FOUND:
            self.refused.append(reason)


class Crowd:
    """
    A publisher and a subscriber for each version and QoS.

    Args:
        stack: ends them.
        broker: where they connect.
        kinds: the versions and QoS.
    """

    def __init__(self, stack: ExitStack, broker: RunningBroker | RunningMosquitto, kinds: Kinds = KINDS) -> None:
        self.kinds = kinds
        self.publishers, self.subscribers = [], []
        for version, qos in kinds:
            name = f"{version}-{qos}"
            self.subscribers.append(Client(stack, broker.port, f"s{name}", version, f"t/{name}"))
            self.publishers.append(Client(stack, broker.port, f"p{name}", version))
        eventually(lambda: all(each.subscribed for each in self.subscribers), what="subscriptions")
        eventually(lambda: all(each.client.is_connected() for each in self.publishers), what="publishers")

    def publish_offline(self) -> None:
        """Buffer messages in clients that have no connection."""
        eventually(lambda: not any(each.client.is_connected() for each in self.publishers), what="lost connections")
        for (version, qos), each in zip(self.kinds, self.publishers, strict=True):
            for number in range(MESSAGES):
                each.client.publish(f"t/{version}-{qos}", b"%d" % number, qos)

    def finish(self) -> list[tuple[int, int]]:
        """Wait until all is acknowledged and delivered; return each publisher's connections and what was received."""
        whole = [MESSAGES] * len(self.kinds)
        eventually(lambda: [each.acknowledged for each in self.publishers] == whole, what="all acknowledgements")
        assert not any(each.refused for each in self.publishers), [each.refused[:1] for each in self.publishers]
        eventually(lambda: [len(each.came) for each in self.subscribers] == whole, what="all messages")
        came = [each.came.total() for each in self.subscribers]
        return list(zip([each.connected for each in self.publishers], came, strict=True))


class BurstTests(SynchronousTestCase):
    """Five hundred messages that were published while no broker was there."""

    def setUp(self) -> None:
        """Make what is ended at the end."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def broker(self) -> RunningBroker:
        """Start a broker with a database."""
        path = short_folder(self.stack) / "kept" / "broker.db"
        broker = RunningBroker(persistence={"path": str(path)})
        self.stack.callback(broker.stop)
        return broker.start()

    def test_buffered_while_offline(self) -> None:
        """After kill -9 all are acknowledged over one connection, and each is delivered once."""
        broker = self.broker()
        crowd = Crowd(self.stack, broker)
        broker.kill()
        crowd.publish_offline()
        broker.start()
        self.assertEqual(crowd.finish(), [(2, MESSAGES)] * len(KINDS))
        self.assertEqual(broker.metric("svc_broker_refusals_total", reason="mqtt_receive_maximum"), 0)

    def test_like_mosquitto(self) -> None:
        """Mosquitto does the same with QoS 1; of a burst with QoS 2, 2.0.11 acknowledges all and delivers a part."""
        folder = f"{short_folder(self.stack)}/"
        broker = RunningMosquitto(self.stack, {"persistence": "true", "persistence_location": folder}).start()
        crowd = Crowd(self.stack, broker, [each for each in KINDS if each[1] == 1])
        # It writes its output only when it ends.
        broker.stop()
        crowd.publish_offline()
        broker.start()
        self.assertEqual(crowd.finish(), [(2, MESSAGES)] * 2)

    def test_killed_in_between(self) -> None:
        """After another kill during the burst nothing is lost, and QoS 2 messages are delivered exactly once."""
        broker = self.broker()
        crowd = Crowd(self.stack, broker)
        broker.kill()
        crowd.publish_offline()
        broker.start()
        eventually(lambda: any(each.acknowledged >= SOME for each in crowd.publishers), what="some acknowledgements")
        broker.kill()
        broker.start()
        for (_version, qos), (_connected, came) in zip(KINDS, crowd.finish(), strict=True):
            self.assertTrue(came == MESSAGES or qos == 1)
