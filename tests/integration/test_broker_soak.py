"""
The broker in the long run: clients that come and go, and as many idle ones as its listener takes.

``SVC_SOAK_SECONDS`` says how long the first of these takes: a second by default, an hour with ``bin/test --long``.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from contextlib import ExitStack
from itertools import count

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Properties,
    Publish,
    QoS,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
    encode,
)
from tests.peers.broker import RunningBroker
from tests.peers.mqttclient import RawClient
from tests.peers.waiting import eventually, rounds

SECONDS = float(os.environ.get("SVC_SOAK_SECONDS", rounds(1, 3600)))
#: Rounds before memory is compared: caches have what they will have, and the allocator its pools.
WARM = 40
#: Clients of one round, and the sessions that are taken up again from round to round.
CROWD, LASTING = 20, 5
#: What memory may grow by for each client that came. 50 to 70 were measured, half a MiB in all, whatever the number of
#: clients; one node of a tree of topics that stays takes 200, a session or a connection 3,000.
LEFT_OCTETS = 150
#: The default of ``listeners[].connections``.
MOST = 10_000
#: What an idle client may take, sockets aside: 4.1 KiB were measured, and an allocator may need half as much again.
IDLE_OCTETS = 6 * 1024


class SoakTests(SynchronousTestCase):
    """Publishers and subscribers that connect and disconnect."""

    def setUp(self) -> None:
        """Start a broker."""
        self.broker = RunningBroker()
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self._numbers = count()

    def test_nothing_is_left(self) -> None:
        """Clients connect and disconnect, in order and not: memory is stable, and no state is left at the end."""
        descriptors, retained = self.broker.descriptors(), self.broker.metric("svc_broker_retained_messages")
        for _ in range(WARM):
            self._round()
        before, clients, begin = self.broker.memory()[0], 0, time.monotonic()
        # On a slow machine it takes longer, so that the bound on memory always means something.
        while time.monotonic() - begin < SECONDS or clients < 6000:
            clients += self._round()
        self._end_lasting()
        eventually(lambda: self.broker.descriptors() <= descriptors, 60, f"{descriptors} open descriptors")
        eventually(lambda: self.broker.metric("svc_broker_sessions") == 0, 60, "the end of all sessions")
        self.assertEqual(self.broker.metric("svc_broker_connections_active"), 0)
        self.assertEqual(self.broker.metric("svc_broker_subscriptions"), 0)
        self.assertEqual(self.broker.metric("svc_broker_retained_messages"), retained)
        grown = (self.broker.memory()[0] - before) * 1024 * 1024
        self.assertLess(grown / clients, LEFT_OCTETS, f"{grown:.0f} octets after {clients} clients")

    def _round(self) -> int:
        """Connect many clients, exchange messages and close; returns how many they were."""
        names = [f"soak-{next(self._numbers)}" for _ in range(CROWD)]
        with ExitStack() as stack:
            crowd = [self._come(stack, name, index) for index, name in enumerate(names)]
            # Each waits until all have subscribed, and then until all have published.
            earlier = [client.sync() for client in crowd]
            for index, client in enumerate(crowd):
                self._say(client, names, index)
            received = [[*first, *client.sync()] for first, client in zip(earlier, crowd, strict=True)]
            for index, client in enumerate(crowd):
                self._receive(client, [*received[index], *client.sync()], names, index)
                self._go(client, index)
        return CROWD

    def _come(self, stack: ExitStack, name: str, index: int) -> RawClient:
        """Connect and subscribe; the first few take up their session of the round before."""
        version = Version.V5 if index % 2 else Version.V311
        client = stack.enter_context(RawClient(self.broker.port, version))
        will = Will(f"wills/{name}", b"gone", 1) if index % 3 == 0 else None
        if index < LASTING:
            more = Properties(session_expiry=3600) if version is Version.V5 else Properties()
            client.connect(f"lasting-{index}", clean_start=False, will=will, properties=more)
            client.acknowledge(client.sync())
        else:
            client.connect(name, will=will)
        filters = [
            Subscription(f"to/{name}/+", 2),
            Subscription("wills/#", 1),
            Subscription(f"$share/g/all/{index}", 1),
        ]
        client.send(Subscribe(1, filters))
        return client

    def _say(self, client: RawClient, names: list[str], index: int) -> None:
        """Publish to another client with each quality of service, and set and clear a retained message."""
        to = f"to/{names[(index + 1) % CROWD]}/x"
        levels: tuple[QoS, ...] = (0, 1, 2)
        client.send(*(Publish(to, b"x" * 500, qos, packet_id=qos and qos + 10) for qos in levels))
        client.send(*(Publish(f"kept/{names[index]}", each, 0, retain=True) for each in (b"x", b"")))

    def _receive(self, client: RawClient, came: list[Packet], names: list[str], index: int) -> None:
        """Verify what was received; every other client leaves it unacknowledged."""
        messages = [each for each in came if isinstance(each, Publish) and each.topic == f"to/{names[index]}/x"]
        self.assertEqual([each.qos for each in messages], [0, 1, 2])
        if index % 2:
            client.acknowledge(came)
        if index < LASTING:
            # A message that is not released would be the same one in the next round.
            client.send(Acknowledgement(PacketType.PUBREL, 12))
        # The names of the next round differ: persistent sessions must not gather subscriptions without bound.
        client.send(Unsubscribe(2, [f"to/{names[index]}/+"]))

    def _go(self, client: RawClient, index: int) -> None:
        """Disconnect in order, abruptly, in the middle of a packet, or with invalid octets."""
        if index % 4 == 0:
            client.send(Disconnect())
        elif index % 4 == 1:
            client.octets(encode(Publish("to/nobody", b"x" * 200), client.version, "client")[:50])
        elif index % 4 == 2:
            client.octets(b"\x00\x00")

    def _end_lasting(self) -> None:
        """Resume the persistent sessions once more, to end them."""
        for index in range(LASTING):
            with RawClient(self.broker.port, Version.V5) as client:
                client.connect(f"lasting-{index}")
                client.send(Disconnect())


class IdleTests(SynchronousTestCase):
    """As many clients as one listener takes by default."""

    def setUp(self) -> None:
        """Start a broker that may have that many descriptors, or skip."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = MOST + 500
        if soft < needed:
            if hard != resource.RLIM_INFINITY and hard < needed:
                raise SkipTest(f"needs {needed} descriptors a process: ulimit -Hn {needed}")
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.broker = RunningBroker()
        self.broker.start()
        self.addCleanup(self.broker.stop)

    def test_ten_thousand(self) -> None:
        """Ten thousand idle clients use a bounded amount of memory; one more is refused, and all can disconnect."""
        before, descriptors = self.broker.memory()[0], self.broker.descriptors()
        with ExitStack() as stack:
            idle = [self._idle(stack, number) for number in range(MOST)]
            self.assertEqual(self.broker.metric("svc_broker_connections_active"), MOST)
            self.assertLess((self.broker.memory()[0] - before) * 1024 * 1024 / MOST, IDLE_OCTETS)
            one_more = stack.enter_context(RawClient(self.broker.port))
            self.assertEqual(one_more.until_end(), [])
            idle.pop().close()
            eventually(lambda: self.broker.metric("svc_broker_connections_active") == MOST - 1, 60, "the end of one")
            stack.enter_context(RawClient(self.broker.port)).connect("late")
        eventually(lambda: self.broker.descriptors() <= descriptors, 60, f"{descriptors} open descriptors")
        self.assertEqual(self.broker.metric("svc_broker_sessions"), 0)

    def _idle(self, stack: ExitStack, number: int) -> socket.socket:
        client = stack.enter_context(socket.create_connection(("127.0.0.1", self.broker.port), timeout=60))
        client.sendall(encode(Connect(f"idle-{number}", Version.V311), Version.V311, "client"))
        self.assertEqual(client.recv(4), b"\x20\x02\x00\x00")
        return client
