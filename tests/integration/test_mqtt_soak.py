"""
MQTT listeners in the long run: clients of every kind come and go, and nothing of them stays.

``SVC_SOAK_SECONDS`` says how long this takes after the warm-up: seconds by default, an hour with ``bin/test --long``.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import ExitStack, closing
from itertools import count, product

from twisted.trial.unittest import SynchronousTestCase

from svc.naming import PROPERTY_RECEIPT_ID
from svc.sqlite.database import WAL_SIZE_LIMIT
from svc.wire.mqtt import Acknowledgement, Disconnect, PacketType, Publish, QoS, Version, Will, encode
from tests.integration.mqtt_rig import BUFFERED, LISTENERS, VERSIONS, MqttRig, Traffic, connect
from tests.peers.conforming_client import ConformingClient
from tests.peers.mqttclient import RawClient
from tests.peers.reconnecting_clients import ReconnectingClients
from tests.peers.waiting import eventually, rounds

SECONDS = float(os.environ.get("SVC_SOAK_SECONDS", rounds(4, 3600)))
#: Rounds before memory is compared. SQLite fills its caches, 2 MiB for each of its connections, and the allocator its
#: pools; after 250 rounds, which are 95,000 messages, it went up and down within 4 MiB.
WARM = rounds(10, 300)
#: Rounds at least, however slow the machine is, so that the bound on memory means something.
ROUNDS = rounds(10, 600)
#: What memory may grow by for each client that came. The long form finds 20 octets a message; the short one only
#: a connection or session that stays, since it still warms up.
LEFT_OCTETS = rounds(16 * 1024, 200)
#: The database of the buffer with everything that is under way at once; 0.13 MiB were measured.
MOST_BUFFER = 1024 * 1024
#: What a receipt takes in the notary database, whose retention keeps all of them; 3,000 octets were measured.
RECEIPT_OCTETS = 5000
#: Listeners that put the identifier of a receipt into acknowledgements of MQTT 5.0.
WITH_RECEIPT = ("signed", "pair")
QUALITIES: tuple[QoS, ...] = (0, 1, 2)
#: Messages of each client that stays, in each round.
MESSAGES = 12


class SoakTests(SynchronousTestCase):
    """Clients of each version at each kind of listener."""

    def setUp(self) -> None:
        """Start all of it, with clients that keep their sessions and one that gets every message."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.rig = MqttRig(self.stack)
        self.random = random.Random(3)
        self.traffic = Traffic()
        self.numbers = count()
        self.lasting = [self.rig.clients(name, *self._lasting(name)) for name in LISTENERS]
        for swarm in self.lasting:
            connect(swarm, self, "t/{}")
        self.all = ConformingClient("all")
        self.observer = self.rig.clients("", self.all)
        connect(self.observer, self, "t/#")

    def _lasting(self, listener: str) -> list[ConformingClient]:
        return [ConformingClient(f"{listener}-{version.value}", version) for version in VERSIONS]

    def test_nothing_is_left(self) -> None:
        """Messages are neither lost, duplicated nor reordered; memory, descriptors and the buffer stay as they are."""
        proxy = self.rig.proxy
        for _ in range(WARM):
            self.round()
        before, descriptors, (octets, receipts) = proxy.memory()[0], proxy.descriptors(), self.recorded()
        clients, done, begin = 0, 0, time.monotonic()
        while time.monotonic() - begin < SECONDS or done < ROUNDS:
            clients += self.round()
            done += 1
            self.assertLess(self.rig.buffer.stat().st_size, MOST_BUFFER)
            for log in (self.rig.buffer, self.rig.notary):
                self.assertLess(log.with_name(f"{log.name}-wal").stat().st_size, WAL_SIZE_LIMIT, log.name)
        eventually(lambda: proxy.descriptors() <= descriptors, 60, f"{descriptors} open descriptors")
        # Sessions of clients that stay are all that is in the buffer.
        eventually(lambda: self.buffered() == (2 * len(BUFFERED), 0, 0), 60, "an empty buffer")
        octets_now, receipts_now = self.recorded()
        self.assertGreater(receipts_now - receipts, clients)
        self.assertLess((octets_now - octets) / (receipts_now - receipts), RECEIPT_OCTETS)
        grown = (proxy.memory()[0] - before) * 1024 * 1024
        self.assertLess(grown / clients, LEFT_OCTETS, f"{grown:.0f} octets after {clients} clients")

    def recorded(self) -> tuple[int, float]:
        """Octets of the notary database, and the number of records in it."""
        size = sum(
            each.stat().st_size for each in self.rig.notary.parent.glob("notary.db*") if each.suffix != ".reserve"
        )
        return size, self.rig.proxy.metric("svc_proxy_notary_records_total")

    def buffered(self) -> tuple[int, ...]:
        """Count sessions, messages, and packet identifiers of QoS 2 in the buffer."""
        with closing(sqlite3.connect(f"file:{self.rig.buffer}?mode=ro", uri=True)) as database:
            tables = ("session", "message", "received")
            return tuple(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)

    def round(self) -> int:
        """Clients connect, exchange messages and leave; returns how many they were."""
        kinds = list(product(LISTENERS, VERSIONS, range(4)))
        with ExitStack() as stack:
            crowd = [self._come(stack, *each) for each in kinds]
            for swarm in self.lasting:
                self._publish_lasting(swarm)
            for client, (listener, version, kind) in zip(crowd, kinds, strict=True):
                self._complete(client, listener in WITH_RECEIPT and version is Version.V5)
                self._leave(client, kind)
        for swarm in self.lasting:
            # In the middle of what is under way; they resume their sessions.
            swarm.go_on(self.random.random() * 0.01)
            swarm.close()
        for swarm in self.lasting:
            self._complete_lasting(swarm)
        self.assertTrue(self.observer.go_on(60, lambda: self.traffic.arrived(self.all)), "messages are missing")
        eventually(lambda: self.rig.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        # By now duplicates have arrived.
        self.observer.go_on(0.01)
        self.traffic.verify(self, self.all)
        self.all.delivered.clear()
        self.traffic.forget()
        return len(crowd)

    def _come(self, stack: ExitStack, listener: str, version: Version, kind: int) -> RawClient:
        """Connect, some with a will, and publish with each QoS."""
        name = f"c{next(self.numbers)}"
        client = stack.enter_context(RawClient(self.rig.ports[listener], version, tls=self.rig.tls(listener)))
        will = None
        if kind % 2:
            payload = self.traffic.payload(f"will of {name}", 1, 50)
            will = Will(f"t/{name}", payload, 1)
        self.assertEqual(0, client.connect(name, will=will).code)
        for number in range(2):
            for qos in QUALITIES:
                payload = self.traffic.payload(name, qos, self.random.randrange(1000))
                client.send(Publish(f"t/{name}", payload, qos, packet_id=qos and 10 * number + qos))
        return client

    def _complete(self, client: RawClient, receipts: bool) -> None:
        """Take the acknowledgements of the messages of :meth:`_come`."""
        complete = 0
        while complete < 4:
            packet = client.receive()
            assert isinstance(packet, Acknowledgement), packet
            self.assertEqual(0, packet.code)
            if packet.type is PacketType.PUBREC:
                client.send(Acknowledgement(PacketType.PUBREL, packet.packet_id))
            else:
                complete += 1
            if packet.type is not PacketType.PUBCOMP:
                self.assertEqual(receipts, PROPERTY_RECEIPT_ID in dict(packet.properties.user))

    def _leave(self, client: RawClient, kind: int) -> None:
        """Leave with DISCONNECT, in the middle of a packet, without a word, or with octets that are no packet."""
        if kind == 0:
            client.send(Disconnect())
        elif kind == 1:
            client.octets(encode(Publish("t/nobody", bytes(200)), client.version, "client")[:50])
        elif kind == 3:
            client.octets(b"\x00\x00")
        client.close()

    def _publish_lasting(self, swarm: ReconnectingClients) -> None:
        for name, client in swarm.clients.items():
            for number in range(MESSAGES):
                qos = QUALITIES[1 + number % 2]
                payload = self.traffic.payload(name, qos, self.random.randrange(1000), repeated=True)
                swarm.says(name, client.publish(f"t/{name}", payload, qos))

    def _complete_lasting(self, swarm: ReconnectingClients) -> None:
        """Let clients finish what they sent, and receive it, over their new connections."""
        clients = swarm.clients
        done = lambda: all(each.connected and not each.unfinished for each in clients.values())  # noqa: E731
        self.assertTrue(swarm.go_on(60, done), {each.client_id: each.unfinished for each in clients.values()})
        for name, client in clients.items():
            self.assertTrue(swarm.go_on(60, lambda: self.traffic.arrived(client, {name})), name)  # noqa: B023
            self.traffic.verify(self, client, {name})
            client.delivered.clear()
            client.acknowledged.clear()
            client.sent_again.clear()
