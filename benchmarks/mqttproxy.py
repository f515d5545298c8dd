"""
What is measured of our proxy before a broker, in rounds as in :mod:`benchmarks.measure`: the same messages pass through
it and through haproxy, which relays octets. Both terminate mutual TLS, and both have the same Mosquitto behind them,
whose CPU time counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from benchmarks.brokers import Brokers
from benchmarks.mqtt import MqttExtent
from benchmarks.mqttload import WINDOW, MqttLoad, MqttLoadGenerator
from benchmarks.peers import MQTT_LEVELS, Stage
from benchmarks.rows import Row, more_is_better

_CONNECTIONS: Final = "connections"
#: Quality of service and messages in flight, and what is set for the ratio.
_FLOWS: Final = {(0, WINDOW): None, (1, WINDOW): 0.8, (1, 1): 0.45, (2, WINDOW): None}


class MqttProxyMeasurement:
    """
    One run.

    Args:
        stage: starts the proxies.
        brokers: starts the broker.
        load: the load generator.
        extent: how long it takes.
        say: prints progress.
    """

    def __init__(
        self,
        stage: Stage,
        brokers: Brokers,
        load: MqttLoadGenerator,
        extent: MqttExtent,
        say: Callable[[str], None],
    ) -> None:
        self._stage = stage
        self._brokers = brokers
        self._load = load
        self._extent = extent
        self._say = say

    def run(self) -> list[Row]:
        """
        Measure everything.

        Returns:
            The rows.
        """
        mosquitto = self._brokers.mosquitto()
        devices = [self._stage.haproxy_tcp(mosquitto.port), *self._stage.mqtt_proxy(mosquitto).values()]
        figures: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number in range(self._extent.rounds):
            self._say(f"MQTT through the proxy, round {number + 1} of {self._extent.rounds}")
            for what, load in self._loads().items():
                for device in devices:
                    figures[what, device.name].append(self._load.run(load, device, mosquitto))
        return [self._row(figures, what, level) for level in MQTT_LEVELS for what in self._loads()]

    def _loads(self) -> dict[str, MqttLoad]:
        seconds, warm = self._extent.seconds, self._extent.warm
        flows = [MqttLoad("flow", seconds, warm, qos=qos, window=window) for qos, window in _FLOWS]
        return {
            **{f"QoS {each.qos}, {each.window} in flight": each for each in flows},
            _CONNECTIONS: MqttLoad("connects", seconds, warm, clients=8),
        }

    def _row(self, figures: dict[tuple[str, str], list[float]], what: str, level: str) -> Row:
        load, connects = self._loads()[what], what == _CONNECTIONS
        must = None if connects or level != "none" else _FLOWS[load.qos, load.window]
        unit = "connections/CPU s" if connects else "messages/CPU s"
        name = f"MQTT proxy {what}" if level == "none" else f"MQTT proxy {level}, {what}"
        ours, theirs = figures[what, f"ours, {level}"], figures[what, "haproxy tcp"]
        return more_is_better(name, "haproxy tcp", ours, theirs, unit, must)
