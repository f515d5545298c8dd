"""A process that stores and forwards is killed at every step: nothing acknowledged is lost, QoS 2 is never doubled."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Packet, Version
from tests.integration.buffer_forwarder import STEPS, dump, load
from tests.peers.waiting import rounds
from tests.proxy.mqtt.stored.forwarding_model import RELAYED, ModelBroker, ModelClient

#: Messages of each process.
MESSAGES = 12


class KilledProcess:
    """One process between the client and the broker of the test."""

    def __init__(self, path: str, client: ModelClient, broker: ModelBroker, step: str, count: int) -> None:
        self.client, self.broker = client, broker
        command = [sys.executable, "-m", "tests.integration.buffer_forwarder", path, step, str(count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.queued: int | None = None

    def run(self, messages: list[tuple[bytes, int, str]]) -> int:
        """Publish, and let everything happen until the process dies or nothing is left; returns its status."""
        assert self._process.stdout is not None and self._process.stdin is not None
        for line in self._process.stdout:
            self._happened(*load(line.strip()), messages)
            if self.client.answered and not messages and not self.client.unacked:
                if self.queued == 0:
                    self._process.stdin.close()
                    break
                self._tell("queued")
        status = self._process.wait(60)
        self._process.stdout.close()
        if self.broker.connect is not None:
            self.broker.close(None)
        self.client.connected = self.client.answered = False
        return status

    def _happened(self, word: str, value: Any, messages: list[tuple[bytes, int, str]]) -> None:
        if word == "opened":
            self._tell("client_connected", self.client.connect(clean=False))
        elif word == "connect":
            self._tell("upstream_connected", self.broker.open(value))
        elif word == "broker":
            for packet in self.broker.got(value):
                self._tell("upstream_packet", packet)
        elif word == "close broker" and self.broker.connect is not None:
            self.broker.close(value)
        elif word == "client":
            self._client_sends(self.client.got(value))
            while self.client.answered and messages and len(self.client.unacked) < 8:
                payload, qos, topic = messages.pop(0)
                self._client_sends([self.client.publish(payload, qos, topic)])
        elif word == "queued":
            self.queued = value
        elif word == "close client":
            raise AssertionError(f"the client was closed: {value}")

    def _client_sends(self, packets: list[Packet]) -> None:
        for packet in packets:
            self._tell("client_packet", packet)

    def _tell(self, word: str, value: Any = None) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(dump(word, value) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # It was killed; what it sent before is read.
            return


class BufferCrashTests(SynchronousTestCase):
    """A process is killed again and again on one database."""

    def test_killed_at_every_step(self) -> None:
        """After kills at each step, soon or late, no message is missing, and none with QoS 2 is there twice."""
        path = os.path.abspath(os.path.join(self.mktemp(), "buffer.db"))
        client, broker = ModelClient(Version.V5), ModelBroker()
        chance = random.Random(7)
        sent: dict[bytes, int] = {}
        killed: Counter[str] = Counter()
        for number in range(rounds(len(STEPS), 20 * len(STEPS))):
            step = STEPS[number % len(STEPS)]
            messages = []
            for message in range(MESSAGES):
                payload = b"%d-%d" % (number, message)
                sent[payload] = chance.choice((1, 2, 2))
                topic = f"{RELAYED}t" if chance.random() < 0.3 else "t"
                messages.append((payload, sent[payload], topic))
            status = KilledProcess(path, client, broker, step, chance.randrange(1, 9)).run(messages)
            killed[step] += status == -9
            self.assertIn(status, (-9, 0), step)
            # Messages that were not sent before the kill never were.
            for payload, _qos, _topic in messages:
                del sent[payload]
        self.assertEqual(0, KilledProcess(path, client, broker, "-", 1).run([]))
        delivered = Counter(payload for payload, _qos in broker.delivered)
        self.assertEqual([], [payload for payload in client.acknowledged if not delivered[payload]])
        self.assertEqual([], [payload for payload in sent if not delivered[payload]])
        self.assertEqual([], [payload for payload, qos in sent.items() if qos == 2 and delivered[payload] != 1])
        self.assertGreater(sum(killed.values()), len(STEPS) // 2)
        self.assertGreater(len(sent), len(STEPS) * 2)
