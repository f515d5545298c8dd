"""MQTT.js, a client for Node.js, as a process that is told what to do."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SkipTest

from tests.peers.independent_clients import Credentials
from tests.peers.programs import find
from tests.peers.waiting import PATIENCE, TOP

_SCRIPT: Final = Path(__file__).with_name("mqttjs") / "client.js"


def modules() -> Path:
    """
    Find MQTT.js.

    Returns:
        The folder ``node_modules``.

    Raises:
        SkipTest: it has not been installed.
    """
    asked = [str(TOP / "bin" / "tools"), "--check", "mqttjs"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        raise SkipTest("MQTT.js is missing: bin/tools mqttjs installs it, with Node.js 18 or newer and npm")
    return Path(found) / "node_modules"


class MqttJs:
    """
    One client.

    Args:
        stack: ends it.
        port: of the listener, on loopback.
        version: ``4`` for MQTT 3.1.1, or ``5``.
        credentials: for mutual TLS; None connects without TLS.
        options: further ones of ``mqtt.connect``.
    """

    def __init__(
        self, stack: ExitStack, port: int, version: int, credentials: Credentials | None, **options: Any
    ) -> None:
        self._process = subprocess.Popen(
            [find("node"), str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NODE_PATH": str(modules())},
        )
        stack.callback(self._end)
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        #: Events that came while another one was waited for.
        self._early: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        files = None
        if credentials is not None:
            named = {"roots": credentials.roots, "certificate": credentials.certificate, "key": credentials.key}
            files = {name: str(path) for name, path in named.items()}
        self.do("connect", tls=files, options={"port": port, "protocolVersion": version, **options})

    def do(self, command: str, **members: Any) -> None:
        """
        Give a command.

        Args:
            command: one of ``client.js``.
            members: its members.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **members}) + "\n")
        self._process.stdin.flush()

    def event(self, *names: str) -> dict[str, Any]:
        """
        Take the next event of these names; others are kept.

        Args:
            names: such as ``message``.

        Returns:
            The event.

        Raises:
            AssertionError: none came in time.
        """
        for position, each in enumerate(self._early):
            if each["event"] in names:
                return self._early.pop(position)
        while True:
            try:
                found = self._events.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no {names} came, but {self._early[-5:]}") from None
            if found["event"] in names:
                return found
            self._early.append(found)

    def subscribes(self, topic: str, qos: int = 2) -> list[int]:
        """
        Subscribe, and wait for SUBACK.

        Args:
            topic: the filter.
            qos: the highest one.

        Returns:
            What was granted.
        """
        self.do("subscribe", topic=topic, options={"qos": qos})
        granted: list[int] = self.event("subscribe")["granted"]
        return granted

    def publish(self, number: int, topic: str, payload: str, qos: int, **options: Any) -> None:
        """
        Publish without waiting for the acknowledgement.

        Args:
            number: by which the event ``publish`` names it.
            topic: its topic.
            payload: its payload.
            qos: its quality of service.
            options: further ones of ``publish``.
        """
        self.do("publish", number=number, topic=topic, payload=payload, options={"qos": qos, **options})

    def published(self, count: int) -> list[dict[str, Any]]:
        """
        Wait until so many messages are acknowledged.

        Args:
            count: how many.

        Returns:
            Their events.
        """
        return [self.event("publish") for _ in range(count)]

    def messages(self, count: int) -> list[tuple[str, int]]:
        """
        Take messages.

        Args:
            count: how many.

        Returns:
            Payload and quality of service of each.
        """
        return [(each["payload"], each["qos"]) for each in (self.event("message") for _ in range(count))]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE)
        self._reader.join()
