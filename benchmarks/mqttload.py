"""
The load generator for brokers: built from ``mqttload.c`` once, run for each measurement.

Owns its command line and its results. Independent of the broker behind the port.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.load import CLASSICAL, IdleConnections, LoadFailed, build
from benchmarks.peers import Device

SOURCE: Final = Path(__file__).with_name("mqttload.c")
#: Messages on their way at a time; Mosquitto's default for one client, so that nothing waits in a queue of either.
WINDOW: Final = 20


@dataclass(frozen=True, slots=True)
class MqttLoad:
    """
    One kind of load.

    Args:
        mode: ``flow`` from one publisher to all clients, or ``connects``.
        qos: the quality of service of messages and subscriptions.
        clients: how many subscribe, or connect.
        window: messages on their way at a time.
        seconds: how long is counted.
        warm: seconds before that.
    """

    mode: str
    seconds: float
    warm: float
    qos: int = 0
    clients: int = 1
    window: int = WINDOW


class MqttLoadGenerator:
    """
    The built program.

    Args:
        folder: where the program goes.
        credentials: the folder with ``chain.pem``, ``key.pem`` and ``roots.pem`` of clients with TLS.

    Raises:
        LoadFailed: it does not build.
    """

    def __init__(self, folder: Path, credentials: Path) -> None:
        self._program = build(SOURCE, folder)
        self._credentials = credentials

    def run(self, load: MqttLoad, broker: Device, *behind: Device) -> float:
        """
        Measure.

        Args:
            load: what to do.
            broker: to whom, or a proxy before it.
            behind: whose CPU time counts, too.

        Returns:
            Deliveries, or connections, for each second of CPU time.

        Raises:
            LoadFailed: it did not run to its end, or an octet that came back was wrong.
        """
        command = [str(self._program), "--port", str(broker.port), "--mode", load.mode]
        for each in (broker, *behind):
            command += ["--watch", str(each.pid)]
        if broker.tls:
            command += ["--tls", str(self._credentials), "--groups", CLASSICAL]
        command += ["--qos", str(load.qos), "--clients", str(load.clients), "--window", str(load.window)]
        command += ["--seconds", str(load.seconds), "--warm", str(load.warm)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=load.seconds + 90
        )
        if done.returncode != 0:
            raise LoadFailed(what=f"{broker.name}: {done.stderr.strip() or f'status {done.returncode}'}")
        result = json.loads(done.stdout)
        if not result["count"]:
            raise LoadFailed(what=f"{broker.name}: nothing was delivered")
        return float(result["count"] / result["cpu"])

    def idle(self, broker: Device, clients: int) -> IdleConnections:
        """
        Connect clients that say nothing more.

        Args:
            broker: to whom.
            clients: how many.

        Returns:
            The clients, all of them accepted.

        Raises:
            LoadFailed: they were not all accepted.
        """
        command = [str(self._program), "--port", str(broker.port), "--mode", "idle", "--clients", str(clients)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = process.stdout.readline() if process.stdout is not None else ""
        if not ready:
            raise LoadFailed(what=f"{broker.name}: {clients} clients were not accepted, status {process.wait()}")
        return IdleConnections(process)
