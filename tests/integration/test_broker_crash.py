"""The broker is killed, or its disk is full: no acknowledged message is lost, no QoS 2 message is duplicated."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    PacketType,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
)
from tests.peers.broker import RunningBroker
from tests.peers.conforming_client import ConformingClient
from tests.peers.faulty_disk import fill, memory_disk
from tests.peers.folders import short_folder
from tests.peers.mqttclient import RawClient
from tests.peers.reconnecting_clients import ReconnectingClients
from tests.peers.waiting import eventually, rounds

KILLS = rounds(6, 50)
#: Messages of one publisher that are not finished; the Receive Maximum of the broker is 100.
WINDOW = 40
PUBLISHERS = {"p5": Version.V5, "p3": Version.V311}
#: Client identifier to protocol level and the quality of service that it subscribes with.
SUBSCRIBERS = {"s2": (Version.V5, 2), "s1": (Version.V5, 1), "old2": (Version.V311, 2)}
LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}


class Case(SynchronousTestCase):
    """A broker with persistence."""

    def setUp(self) -> None:
        """Create the stack that ends everything."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def broker(self, folder: Path | None = None, **settings: str) -> RunningBroker:
        """Make a broker, with its database in a folder."""
        path = (folder or short_folder(self.stack)) / "kept" / "broker.db"
        broker = RunningBroker(persistence={"path": str(path)}, settings=settings)
        self.stack.callback(broker.stop)
        return broker


class KillTests(Case):
    """kill -9 under load."""

    def setUp(self) -> None:
        """Publishers and subscribers."""
        super().setUp()
        clients = [ConformingClient(name, version) for name, version in PUBLISHERS.items()]
        clients += [ConformingClient(name, version) for name, (version, _qos) in SUBSCRIBERS.items()]
        self.running = self.broker(metricsAddr="", adminAddr="")
        self.swarm = ReconnectingClients(self.running.port, clients)
        self.stack.callback(self.swarm.close)
        self.random = random.Random(7)
        self.sent: dict[bytes, int] = {}

    def test_nothing_acknowledged_is_lost(self) -> None:
        """Over fifty kills every acknowledged message reaches every subscriber, those with QoS 2 exactly once."""
        self.running.launch()
        self.subscribe()
        acknowledged = 0
        for _kill in range(KILLS):
            before = self.acknowledged()
            # Killed at an arbitrary moment.
            self.load(20 + self.random.randrange(60), self.random.random() * 0.03)
            self.running.kill()
            self.swarm.drain()
            self.assertGreater(self.acknowledged(), before)
            acknowledged = self.acknowledged()
            self.running.launch()
        self.finish()
        self.assertGreater(acknowledged, KILLS * 20)
        self.verify()

    def subscribe(self) -> None:
        """Subscribe, and wait for the SUBACK."""
        self.assertTrue(self.swarm.go_on(60, lambda: all(each.connected for each in self.swarm.clients.values())))
        for name, (_version, qos) in SUBSCRIBERS.items():
            self.swarm.says(name, self.swarm[name].subscribe(Subscription("t/#", qos)))  # type: ignore[arg-type]
        self.assertTrue(self.swarm.go_on(60, lambda: all(self.swarm[name].subscribed for name in SUBSCRIBERS)))

    def load(self, messages: int, longer: float) -> None:
        """Publish until so many more messages are acknowledged, and a little longer."""
        goal = self.acknowledged() + messages
        went_on = self.swarm.go_on(60, lambda: self.publish() or self.acknowledged() >= goal)
        self.assertTrue(went_on, f"no progress: {self.running.log[-2000:]}{self.running.errors[-2000:]}")
        self.swarm.go_on(longer, self.publish)

    def publish(self) -> None:
        """Keep the window of each publisher full."""
        for name in PUBLISHERS:
            client = self.swarm[name]
            while client.connected and len(client.unfinished) < WINDOW:
                payload = b"%d " % len(self.sent) + bytes(self.random.randrange(300))
                qos = self.random.choice((1, 2))
                self.sent[payload] = qos
                self.swarm.says(name, client.publish(f"t/{name}", payload, qos))  # type: ignore[arg-type]

    def acknowledged(self) -> int:
        """Count the messages acknowledged to publishers."""
        return sum(len(self.swarm[name].acknowledged) for name in PUBLISHERS)

    def finish(self) -> None:
        """Continue until no message is in flight."""
        clients = self.swarm.clients.values()
        done = lambda: all(each.connected and not each.unfinished for each in clients)  # noqa: E731
        self.assertTrue(self.swarm.go_on(60, done), [each.unfinished for each in clients])
        names = [self.swarm[name] for name in SUBSCRIBERS]
        self.swarm.go_on(
            60, lambda: all(set(self.sent) <= {payload for payload, _ in each.delivered} for each in names)
        )
        # By now all duplicates have arrived.
        self.swarm.go_on(1.0)

    def verify(self) -> None:
        """Compare the acknowledged messages with the received ones."""
        safe = {payload for name in PUBLISHERS for payload in self.swarm[name].acknowledged}
        self.assertEqual(safe, set(self.sent))
        for client in self.swarm.clients.values():
            self.assertEqual((client.broken, client.refused), ([], []))
        for name, (_version, qos) in SUBSCRIBERS.items():
            counted = Counter(payload for payload, _qos in self.swarm[name].delivered)
            self.assertEqual(safe - set(counted), set(), f"lost to {name}")
            twice = [payload for payload, times in counted.items() if times > 1 and min(qos, self.sent[payload]) == 2]
            self.assertEqual(twice, [], f"twice to {name}")


class StartTests(Case):
    """What is recovered by a start."""

    def test_kept_over_an_orderly_end(self) -> None:
        """Retained messages, sessions and their queues survive SIGTERM; a session without expiry does not."""
        broker = self.broker().start()
        with ExitStack() as stack:
            subscriber, fleeting, publisher = (stack.enter_context(RawClient(broker.port)) for _ in range(3))
            subscriber.connect("s", **LASTING)
            fleeting.connect("f")
            publisher.connect("p")
            for each in (subscriber, fleeting):
                self.subscribed(each, "t")
            subscriber.close()
            publisher.send(Publish("t", b"kept", 1, True, packet_id=1))
            self.assertEqual(publisher.receive(), Acknowledgement(PacketType.PUBACK, 1))
            self.assertEqual(broker.halt(), 0)
        self.assertEqual(len(broker.records("svc.broker.store.closed")), 1)
        broker.start()
        (opened,) = eventually(lambda: broker.records("svc.broker.store.opened")[1:])
        self.assertEqual((opened["attributes"]["sessions"], opened["attributes"]["retained"]), (1, 1))
        with RawClient(broker.port) as back:
            self.assertTrue(back.connect("s", **LASTING).session_present)
            (message,) = back.sync()
            self.assertEqual((message.payload, message.qos), (b"kept", 1))
        self.assertTrue(broker.readiness()["store"]["ok"])

    def subscribed(self, client: RawClient, topic: str) -> None:
        """Subscribe and wait for the answer."""
        client.send(Subscribe(1, [Subscription(topic, 2)]))
        client.receive()

    def test_second_broker(self) -> None:
        """A second broker on the same database does not start, and reports the reason."""
        folder = short_folder(self.stack)
        self.broker(folder).start()
        second = self.broker(folder).launch()
        self.assertEqual(second.wait(), 1)
        (failed,) = second.records("svc.process.start_failed")
        self.assertEqual(failed["detail_reason"], "store_in_use")
        self.assertIn("persistence.path", failed["detail"])


class FullDiskTests(Case):
    """A small disk in memory."""

    def test_full_and_back(self) -> None:
        """On a full disk only durable messages are acknowledged, new ones are refused, and it recovers by itself."""
        disk = memory_disk(self.stack)
        broker = self.broker(disk).start()
        with RawClient(broker.port) as away:
            away.connect("s", **LASTING)
            away.send(ConformingClient("s").subscribe(Subscription("t", 1)))
            away.receive()
        publisher = self.stack.enter_context(RawClient(broker.port))
        publisher.connect("p")
        old = self.stack.enter_context(RawClient(broker.port, Version.V311))
        old.connect("old")
        filler = fill(disk)
        safe, refused = self.publish(publisher, 400)
        self.assertGreater(refused, 0)
        self.assertFalse(broker.readiness()["store"]["ok"])
        self.assertEqual(broker.readiness()["store"]["reason"], "mqtt_store_unavailable")
        self.assertTrue(broker.is_ready())
        # A thread writes them.
        names = ("svc.broker.store.refuses", "svc.broker.store.failed")
        eventually(lambda: all(broker.records(name) for name in names))
        logged = [each for name in names for each in broker.records(name)]
        for each in logged:
            self.assertEqual(str(disk / "kept" / "broker.db"), each["attributes"]["path"])
            self.assertRegex(each["detail"], r"disk full, \d+ octets free on its file system")
        self.assertGreater(broker.metric("svc_broker_store_errors_total"), 0)
        self.assertEqual(broker.metric("svc_broker_store_accepting"), 0)
        old.send(Publish("t", b"x", 1, packet_id=1))
        self.assertIsNone(old.receive())
        with RawClient(broker.port) as lasting:
            refusal = lasting.connect("q", **LASTING)
            self.assertEqual(refusal, Connack(False, ReasonCode.SERVER_UNAVAILABLE))
        with RawClient(broker.port) as fleeting:
            self.assertEqual(fleeting.connect("fleeting").code, 0)
        filler.unlink()
        eventually(lambda: broker.readiness()["store"]["ok"], 60, "a database that takes messages again")
        more, refused = self.publish(publisher, 10)
        self.assertEqual((len(more), refused), (10, 0))

        def stored() -> list[str]:
            return [each["event"]["name"] for each in broker.records() if "broker.store" in each["event"]["name"]]

        eventually(lambda: stored()[-1] == "svc.broker.store.accepts", what="the record of it")
        names = stored()
        self.assertEqual(names[0], "svc.broker.store.opened")
        self.assertLessEqual({"svc.broker.store.failed", "svc.broker.store.refuses"}, set(names))
        broker.kill()
        broker.start()
        with RawClient(broker.port) as back:
            back.connect("s", **LASTING)
            got = [each.payload for each in back.sync() if isinstance(each, Publish)]
        self.assertEqual(got, [*safe, *more])

    def publish(self, client: RawClient, count: int) -> tuple[list[bytes], int]:
        """Publish messages of 4 KiB one after the other; return those that were accepted, and how many were not."""
        taken: list[bytes] = []
        refused = 0
        for number in range(1, count + 1):
            payload = b"%d " % number + bytes(4096)
            client.send(Publish("t", payload, 1, packet_id=number))
            answer = client.receive()
            assert isinstance(answer, Acknowledgement)
            if answer.code < 0x80:
                taken.append(payload)
            else:
                self.assertEqual(answer.code, ReasonCode.QUOTA_EXCEEDED)
                refused += 1
                if refused == 20:
                    break
        return taken, refused
