"""The disk under the broker's database hangs: pages still respond, the process ends, nothing acknowledged is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, PacketType, Properties, Publish, Subscribe, Subscription
from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.hanging_disk import HangingDisk
from tests.peers.mqttclient import RawClient
from tests.peers.waiting import eventually

LASTING: dict[str, Any] = {"clean_start": False, "properties": Properties(session_expiry=3600)}
SECRET = "a/topic/of/somebody"
#: The ten seconds of the product, and what a busy machine adds.
BOUND = 20.0

EMBEDDING = """
import sys
from twisted.internet import defer, task
from svc.broker import Broker, AllowAll, open_journal
from svc.broker.message import Message

async def main(reactor):
    make = lambda journal, recovered: Broker(reactor, AllowAll(), journal=journal, recovered=recovered)
    journal, broker = await open_journal(sys.argv[1], make, reactor=reactor)
    print("opened", flush=True)
    sys.stdin.readline()
    broker.publish("t", b"m", 1, retain=True)
    try:
        await journal.close()
    except Exception as error:
        print(type(error).__name__, flush=True)

task.react(lambda reactor: defer.Deferred.fromCoroutine(main(reactor)))
"""


class HangingBroker(RunningBroker):
    """A broker on a disk that can hang."""

    executed = True

    def __init__(self, stack: ExitStack, **settings: Any) -> None:
        folder = short_folder(stack)
        self.disk = HangingDisk(stack, folder)
        super().__init__(persistence={"path": str(folder / "kept" / "broker.db")}, settings=settings)
        stack.callback(self.stop)
        stack.callback(self.disk.go_on)

    def command(self, *options: str) -> list[str]:
        """Start it there."""
        return self.disk.command(super().command(*options))


class HangingCase(SynchronousTestCase):
    """One broker."""

    def setUp(self) -> None:
        """Create a broker that is not started."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def broker(self, **settings: Any) -> HangingBroker:
        """Make it."""
        return HangingBroker(self.stack, **settings)

    def terminated(self, broker: RunningBroker) -> tuple[int, float]:
        """End it as an operator does; return its status and the seconds that it took."""
        began = time.monotonic()
        broker.signal(signal.SIGTERM)
        status = broker.wait(BOUND * 2)
        return status, time.monotonic() - began


class EndTests(HangingCase):
    """The stop of the process."""

    def test_bounded(self) -> None:
        """SIGTERM ends the process within the commit time limit, with status 1 and a report of what is not durable."""
        broker = self.broker()
        broker.start()
        publisher = self.stack.enter_context(RawClient(broker.port))
        publisher.connect("p")
        with RawClient(broker.port) as away:
            away.connect("s", **LASTING)
            away.send(Subscribe(1, [Subscription(SECRET, 1)]))
            away.receive()
        publisher.send(Publish(SECRET, b"safe", 1, packet_id=1))
        self.assertEqual(publisher.receive(), Acknowledgement(PacketType.PUBACK, 1))
        broker.disk.hang()
        publisher.send(Publish(SECRET, b"unsafe", 1, packet_id=2))
        eventually(lambda: broker.disk.waiting, 60, "a commit that hangs")
        began = time.monotonic()
        broker.signal(signal.SIGTERM)
        eventually(lambda: broker.readiness()["listeners"]["reason"] == "draining", 60, "an end that has begun")
        self.assertEqual(broker.page("/livez")[0], 200)
        self.assertEqual(broker.wait(BOUND * 2), 1)
        self.assertLess(time.monotonic() - began, BOUND)
        self.assert_failed_close_logged(broker)
        broker.disk.go_on()
        broker.start()
        with RawClient(broker.port) as back:
            self.assertTrue(back.connect("s", **LASTING).session_present)
            self.assertIn(b"safe", [each.payload for each in back.sync() if isinstance(each, Publish)])

    def assert_failed_close_logged(self, broker: RunningBroker) -> None:
        """The log reports the failed close and the pending operations, and contains no topic."""
        (left,) = broker.records("svc.broker.store.left_behind")
        self.assertGreaterEqual(left["attributes"]["operations"], 2)
        self.assertGreater(left["attributes"]["octets"], len(b"unsafe"))
        (failed,) = broker.records("svc.broker.store.failed")
        self.assertEqual(failed["attributes"]["op"], "close")
        self.assertIn("was not closed within 10.0 s", failed["detail"])
        self.assertEqual(broker.records("svc.broker.store.closed"), [])
        self.assertEqual(len(broker.records("svc.process.stopped")), 1)
        self.assertNotIn(SECRET, broker.log)

    def test_of_a_program_that_embeds(self) -> None:
        """The end of the journal fails, and the interpreter does not wait for its thread."""
        folder = short_folder(self.stack)
        disk = HangingDisk(self.stack, folder)
        command = disk.command([sys.executable, "-c", EMBEDDING, str(folder / "kept" / "broker.db")])
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
        ) as process:
            self.stack.callback(process.kill)
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "opened\n")
            disk.hang()
            began = time.monotonic()
            output, _ = process.communicate("go on\n", timeout=BOUND * 2)
            self.assertLess(time.monotonic() - began, BOUND)
        self.assertEqual((output, process.returncode), ("JournalStuck\n", 0))


class StartTests(HangingCase):
    """The start of the process."""

    def launched(self, **settings: Any) -> HangingBroker:
        """Start a broker whose disk hangs from the beginning."""
        broker = self.broker(**settings)
        broker.disk.hang()
        broker.launch()
        eventually(lambda: broker.disk.waiting and broker.page("/livez")[0] == 200, 60, "pages, and a start that hangs")
        status, _page = broker.page("/readyz")
        store = broker.readiness()["store"]
        self.assertEqual((status, store["ok"], store["reason"]), (503, False, "starting"))
        return broker

    def test_given_up(self) -> None:
        """A disk that does not respond within ``startTimeout`` ends the start with status 1 and the reason."""
        broker = self.launched(startTimeout="8s")
        self.assertEqual(broker.wait(BOUND * 2), 1)
        (failed,) = broker.records("svc.process.start_failed")
        self.assertEqual(failed["detail_reason"], "mqtt_store_late")
        self.assertIn("could not start: the broker's database", failed["message"])
        self.assertIn("did not respond within", failed["message"])
        broker.disk.go_on()
        broker.start()

    def test_well_again(self) -> None:
        """A slow disk is not a failure: the broker starts."""
        broker = self.launched()
        broker.disk.go_on()
        eventually(broker.is_ready, 60, "a broker that is ready")
        self.assertTrue(broker.readiness()["store"]["ok"])
        self.assertEqual(self.terminated(broker)[0], 0)

    def test_ended_meanwhile(self) -> None:
        """SIGTERM while the database is opened ends in order: the thread closes it, and the status is 0."""
        broker = self.launched()
        broker.signal(signal.SIGTERM)
        eventually(lambda: broker.readiness()["listeners"]["reason"] == "draining", 60, "an end that has begun")
        broker.disk.go_on()
        self.assertEqual(broker.wait(BOUND * 2), 0)
        self.assertEqual(len(broker.records("svc.process.stopped")), 1)
        names = {each["event"]["name"] for each in broker.records()}
        self.assertEqual(names & {"svc.broker.store.opened", "svc.process.start_failed"}, set())
        broker.start()

    def test_ended_while_it_hangs(self) -> None:
        """If the disk keeps hanging, SIGTERM ends the process within the time limit of a commit, with status 1."""
        broker = self.launched()
        status, seconds = self.terminated(broker)
        self.assertEqual(status, 1)
        self.assertLess(seconds, BOUND)
        (failed,) = broker.records("svc.broker.store.failed")
        self.assertEqual(failed["attributes"]["op"], "close")
