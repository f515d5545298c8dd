"""
The brokers that are measured, with MQTT over plain TCP: ours, Mosquitto, and amqtt with ``--all``.

Owns their processes and configurations. All of them accept anybody, keep nothing on disk, and log no connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.extras import environment
from benchmarks.peers import START_SECONDS, Device, program, twistd
from svc.quickstart.processes import Running, answers_tcp, free_port

#: More than any run has.
_MOST_CONNECTIONS: Final = 20_000


class Brokers:
    """
    The processes of one run, in one folder.

    Args:
        folder: where their files lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[Running] = []

    def stop(self) -> None:
        """End all of them, the last first."""
        for each in reversed(self._processes):
            each.end()
        self._processes = []

    def ours(self) -> Device:
        """
        Start our broker.

        Returns:
            The device.
        """
        port = free_port()
        listener = {"name": "plain", "listen": f"127.0.0.1:{port}", "connections": _MOST_CONNECTIONS}
        settings = {"metricsAddr": "", "adminAddr": "", "listeners": [listener]}
        config = self._write(f"broker-{port}.yaml", json.dumps(settings))
        return self._start("ours", port, [*twistd(), "svc-broker", "--config", str(config)])

    def mosquitto(self) -> Device:
        """
        Start Mosquitto.

        Returns:
            The device.
        """
        port = free_port()
        lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true", "log_type error"]
        # Started by root, it changes to another user unless configured otherwise.
        lines += ["connection_messages false", *(["user root"] if os.geteuid() == 0 else [])]
        config = self._write(f"mosquitto-{port}.conf", "\n".join(lines) + "\n")
        return self._start("mosquitto", port, [program("mosquitto"), "-c", str(config)])

    def amqtt(self, environments: Path, say: Callable[[str], None]) -> Device | None:
        """
        Start amqtt.

        Args:
            environments: where environments are kept, one for each package.
            say: prints progress.

        Returns:
            The device, or None where the package cannot be installed.
        """
        python = environment("amqtt", environments / "amqtt", say)
        if python is None:
            return None
        port = free_port()
        script = Path(__file__).with_name("amqttbroker.py")
        return self._start("amqtt", port, [str(python), str(script), str(port)])

    def _start(self, name: str, port: int, command: list[str]) -> Device:
        running = Running.start(f"{name}-{port}", command, self._folder)
        self._processes.append(running)
        running.wait_until(lambda: answers_tcp(port), START_SECONDS)
        return Device(name, port, running.pid, tls=False)

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path
