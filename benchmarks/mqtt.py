"""
What is measured of brokers, in rounds as in :mod:`benchmarks.measure`: each round measures each broker once at
everything. Medians of the rounds make the rows.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.brokers import Brokers
from benchmarks.measure import resident
from benchmarks.mqttload import MqttLoad, MqttLoadGenerator
from benchmarks.peers import Device
from benchmarks.rows import Row, less_is_better, more_is_better

#: What is set for messages with QoS 1, for each CPU second.
_MUST: Final = {"mosquitto": 0.35, "amqtt": 3.0}
_MESSAGES: Final = "messages/CPU s"


@dataclass(frozen=True, slots=True)
class MqttExtent:
    """
    How long a run takes.

    Args:
        rounds: how often everything is measured.
        seconds: how long each measurement counts.
        warm: seconds before that.
        subscribers: how many get each message of the fan-out.
        idle: how many idle clients memory is measured with.
    """

    rounds: int
    seconds: float
    warm: float
    subscribers: int
    idle: int


MQTT_FULL: Final = MqttExtent(rounds=5, seconds=0.6, warm=0.2, subscribers=1000, idle=10_000)
MQTT_QUICK: Final = MqttExtent(rounds=1, seconds=0.15, warm=0.1, subscribers=100, idle=500)


class MqttMeasurement:
    """
    One run.

    Args:
        brokers: starts the brokers.
        load: the load generator.
        extent: how long it takes.
        say: prints progress.
        environments: where that of amqtt is kept; None leaves amqtt out.
    """

    def __init__(
        self,
        brokers: Brokers,
        load: MqttLoadGenerator,
        extent: MqttExtent,
        say: Callable[[str], None],
        environments: Path | None = None,
    ) -> None:
        self._brokers = brokers
        self._load = load
        self._extent = extent
        self._say = say
        self._environments = environments
        self._figures: dict[tuple[str, str], list[float]] = defaultdict(list)

    def run(self) -> list[Row]:
        """
        Measure everything.

        Returns:
            The rows.
        """
        memory = self._memory()
        ours, mosquitto = self._brokers.ours(), self._brokers.mosquitto()
        amqtt = None if self._environments is None else self._brokers.amqtt(self._environments, self._say)
        for number in range(self._extent.rounds):
            self._say(f"MQTT, round {number + 1} of {self._extent.rounds}")
            for name, load in self._loads().items():
                for broker in (mosquitto, ours):
                    self._figures[name, broker.name].append(self._load.run(load, broker))
            if amqtt is not None:
                self._figures["QoS 1", amqtt.name].append(self._load.run(self._loads()["QoS 1"], amqtt))
        return [*self._rows(), *memory]

    def _loads(self) -> dict[str, MqttLoad]:
        extent = self._extent
        seconds, warm = extent.seconds, extent.warm
        loads = {f"QoS {qos}": MqttLoad("flow", seconds, warm, qos=qos) for qos in (0, 1, 2)}
        loads["fan-out"] = MqttLoad("flow", seconds, warm, clients=extent.subscribers, window=4)
        loads["connects"] = MqttLoad("connects", seconds, warm, clients=8)
        return loads

    def _memory(self) -> list[Row]:
        """Idle clients, each kind in a fresh process that has served a little."""
        self._say(f"memory with {self._extent.idle} idle MQTT clients")
        sizes = [self._idle_size(broker) / 1e3 for broker in (self._brokers.ours(), self._brokers.mosquitto())]
        self._brokers.stop()
        return [less_is_better("MQTT idle client", "mosquitto", sizes[:1], sizes[1:], "KB RSS", None)]

    def _idle_size(self, broker: Device) -> float:
        self._load.run(self._loads()["connects"], broker)
        before = resident(broker.pid)
        with self._load.idle(broker, self._extent.idle):
            time.sleep(0.5)
            return max(resident(broker.pid) - before, 1) / self._extent.idle

    def _rows(self) -> list[Row]:
        figures = self._figures

        def row(metric: str, what: str, peer: str, unit: str, must: float | None = None) -> Row:
            return more_is_better(metric, peer, figures[what, "ours"], figures[what, peer], unit, must)

        rows = [
            row("MQTT QoS 0", "QoS 0", "mosquitto", _MESSAGES),
            row("MQTT QoS 1", "QoS 1", "mosquitto", _MESSAGES, _MUST["mosquitto"]),
            row("MQTT QoS 2", "QoS 2", "mosquitto", _MESSAGES),
        ]
        if figures["QoS 1", "amqtt"]:
            rows.append(row("MQTT QoS 1", "QoS 1", "amqtt", _MESSAGES, _MUST["amqtt"]))
        fan_out = f"MQTT fan-out 1:{self._extent.subscribers}"
        return [
            *rows,
            row(fan_out, "fan-out", "mosquitto", "deliveries/CPU s"),
            row("MQTT connections", "connects", "mosquitto", "connections/CPU s"),
        ]
