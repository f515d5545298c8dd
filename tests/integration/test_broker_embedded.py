"""docs/broker.md as a reader follows it: the shortest configuration, and the program that embeds a broker."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from paho.mqtt import client as paho
from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials
from tests.peers.programs import find, run
from tests.peers.waiting import TOP, Shared, answers, end_process, eventually, free_port

PAGE = (TOP / "docs" / "broker.md").read_text()
OWN = "/ns/demo/sa/greeter"


def reader(stack: ExitStack, port: int, topic_filter: str) -> queue.Queue[tuple[str, bytes]]:
    """Subscribe as a local client; messages are put into the queue."""
    found: queue.Queue[tuple[str, bytes]] = queue.Queue()
    granted: queue.Queue[Any] = queue.Queue()
    client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, "reader", protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: found.put((message.topic, message.payload))
    client.on_subscribe = lambda _client, _data, _id, codes, _properties: granted.put(codes)
    client.connect("127.0.0.1", port)
    client.loop_start()
    stack.callback(client.loop_stop)
    stack.callback(client.disconnect)
    client.subscribe(topic_filter, 1)
    assert not granted.get(timeout=60)[0].is_failure
    return found


class Program:
    """
    An authority and ``docs/examples/brokered.py``.

    Args:
        stack: ends both.
    """

    def __init__(self, stack: ExitStack) -> None:
        folder = short_folder(stack)
        authority = stack.enter_context(RunningAuthority("prod.example.org", entries=[entry(OWN)], folder=folder))
        self.credentials = Credentials.fetch(authority, folder / "id", OWN)
        self.tls, self.local = free_port(), free_port()
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(TOP / "docs" / "examples" / "brokered.py"), authority.address),
                *(f"127.0.0.1:{self.tls}", f"127.0.0.1:{self.local}"),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(self.end)
        for port in (self.tls, self.local):
            eventually(partial(answers, port), 60, str(port))

    def end(self) -> int:
        """End it as an operator does."""
        return end_process(self.process)


PROGRAM = Shared(Program)


class EmbeddedTests(SynchronousTestCase):
    """The program that is a broker as well."""

    def setUp(self) -> None:
        """Let it run."""
        self.program: Program = PROGRAM.get()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def published(self, topic: str, version: paho.MQTTProtocolVersion = paho.MQTTv5) -> Any:
        """Publish by identity with QoS 1; return the broker's response."""
        codes: list[Any] = []
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "device", protocol=version)
        client.tls_set_context(self.program.credentials.context())
        client.on_publish = lambda _client, _data, _id, code, _properties: codes.append(code)
        client.connect("127.0.0.1", self.program.tls)
        client.loop_start()
        try:
            client.publish(topic, b"on", 1)
            eventually(lambda: bool(codes), 60, f"PUBACK of {topic}")
        finally:
            client.disconnect()
            client.loop_stop()
        return codes[0]

    def test_what_the_program_publishes(self) -> None:
        """The time is published to a local client, retained and every second."""
        port = str(self.program.local)
        found = run([find("mosquitto_sub"), "-p", port, "-t", "time", "-F", "%r %p", "-C", "2", "-W", "60"])
        moment = rb"\d{4}-\d\d-\d\dT[\d:.]+\+00:00\n"
        self.assertRegex(found.stdout, rb"\A1 " + moment + rb"0 " + moment + rb"\Z")

    def test_by_identity(self) -> None:
        """A client with an SVID publishes what the rules allow, and a local client receives it; nothing else passes."""
        found = reader(self.stack, self.program.local, "devices/#")
        self.assertTrue(self.published("devices/7/secret").is_failure)
        self.assertFalse(self.published("devices/7/state").is_failure)
        self.assertEqual(found.get(timeout=60), ("devices/7/state", b"on"))

    def test_without_identity(self) -> None:
        """A local client may not publish, nor subscribe to everything; without an SVID there is no TLS connection."""
        port = str(self.program.local)
        ran = run([find("mosquitto_pub"), "-p", port, "-V", "5", "-q", "1", "-t", "time", "-m", "x"])
        self.assertIn(b"Not authorized", ran.stderr + ran.stdout)
        everything = run([find("mosquitto_sub"), "-p", port, "-t", "#", "-W", "60"])
        self.assertIn(b"All subscription requests were denied", everything.stderr + everything.stdout)
        roots = self.program.credentials.roots
        foreign = run(
            [
                *(find("mosquitto_pub"), "-p", str(self.program.tls), "--cafile", roots, "--insecure"),
                *("-q", "1", "-t", "devices/7/state", "-m", "x"),
            ]
        )
        self.assertNotEqual(foreign.returncode, 0)

    def test_it_ends_in_order(self) -> None:
        """SIGTERM ends the program with status 0."""
        self.assertEqual(PROGRAM.get().end(), 0)
        Shared.end()


class StartTests(SynchronousTestCase):
    """The process."""

    def test_three_commands(self) -> None:
        """The shortest configuration of the page returns exactly the output of its third command."""
        written = re.search(r"printf '(listeners: .*?)\\n' > broker\.yaml", PAGE)
        third = re.search(r"^\$ (mosquitto_pub -t .*)\n(.*)\n", PAGE, re.MULTILINE)
        assert written is not None and third is not None
        find("mosquitto_pub")
        with ExitStack() as stack:
            broker = RunningBroker()
            listeners = written[1].replace("127.0.0.1:1883", f"127.0.0.1:{broker.port}")
            self.assertNotEqual(listeners, written[1])
            broker.config.update(strictyaml.loads(listeners))  # type: ignore[call-overload]
            broker.start()
            stack.callback(broker.stop)
            command = third[1].replace("mosquitto_pub", f"mosquitto_pub -p {broker.port}", 1)
            command = command.replace("mosquitto_sub", f"mosquitto_sub -p {broker.port} -W 60", 1)
            found = run(["/bin/sh", "-c", command])
            self.assertEqual((found.returncode, found.stdout.decode()), (0, f"{third[2]}\n"), found.stderr)
            self.assertEqual(broker.page("/livez")[0], 200)
            # There is nothing to drain: a page that confirms a drain and does nothing would mislead.
            with self.assertRaises(HTTPError) as refused:
                urlopen(f"http://127.0.0.1:{broker.admin_port}/drain", data=b"", timeout=60)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()
