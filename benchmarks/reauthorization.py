"""
What a change of policies costs with many open connections: CPU time of each, and the longest part of a reactor turn.

Owns the change: policies that permit the same client in another way, so that all connections stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from benchmarks.hybrid import cpu_seconds
from benchmarks.load import LoadGenerator
from benchmarks.peers import Device, Stage
from benchmarks.rows import Row, less_is_better

_EVENT: Final = "svc.proxy.connections.reauthorized"
_LOADED: Final = "svc.proxy.policy.loaded"
_POLICIES: Final = (
    {"default": "deny", "allow": ["spiffe://bench.example/*"]},
    {"default": "allow"},
)
#: 10,000 connections take a second of CPU time at most.
_CPU_BUDGET: Final = 100.0
_TURN_BUDGET: Final = 5.0
_LONGEST: Final = 60.0


def rows(stage: Stage, load: LoadGenerator, rounds: int, connections: int) -> list[Row]:
    """
    Measure changes of policies.

    Args:
        stage: starts our proxy.
        load: opens connections.
        rounds: how many changes.
        connections: how many are open.

    Returns:
        The rows.
    """
    device = stage.proxy()["none"]
    cpu: list[float] = []
    slices: list[float] = []
    # Reading the configuration is no part of it.
    reading = min(_cost(stage, device, number, _LOADED) for number in range(2))
    with load.idle(device.port, connections):
        for number in range(rounds):
            cpu.append(max(_cost(stage, device, number, _EVENT) - reading, 0.0) / connections * 1e6)
            summary = stage.records(device, _EVENT)[-1]
            if (summary["connections"], summary["refused"]) != (connections, 0):
                raise AssertionError(f"not all connections were decided on and permitted: {summary}")
            slices.append(summary["longest_slice_seconds"] * 1e3)
    stage.end(device)
    return [
        less_is_better("policy change, open connection", "budget", cpu, [_CPU_BUDGET], "us CPU/connection", 1.0),
        less_is_better("policy change, longest part of a turn", "budget", slices, [_TURN_BUDGET], "ms", 1.0),
    ]


def _cost(stage: Stage, device: Device, number: int, until: str) -> float:
    """CPU seconds of a change of the policies, until an event is logged once more."""
    before, began = len(stage.records(device, until)), cpu_seconds(device.pid)
    stage.reload(device, policy=_POLICIES[number % len(_POLICIES)])
    _wait(lambda: len(stage.records(device, until)) > before)
    return cpu_seconds(device.pid) - began


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _LONGEST
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the proxy did not apply other policies")
        time.sleep(0.02)
