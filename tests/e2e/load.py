"""
Sends POST requests and repeats none, half of them on new connections; prints a line of JSON each second.

    python3 load.py URL SPIFFE-ID WORKERS PAUSE

Runs in a pod, with what the image ``svc`` has. A line has the numbers of requests that succeeded on kept and on new
connections, and all errors.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import LoopingCall, deferLater, react
from twisted.web.client import readBody

from svc.embedding import Workload


class Load:
    """What was sent so far."""

    def __init__(self, reactor: Any, url: str, pause: float) -> None:
        self._reactor = reactor
        self._url = url
        self._pause = pause
        self.counts = {"kept": 0, "new": 0}
        self.errors: list[str] = []

    def show(self) -> None:
        """Print the numbers."""
        print(json.dumps({"at": time.time(), **self.counts, "errors": self.errors}), flush=True)

    async def send(self, kind: str, agent: Any) -> None:
        """Send one request after the other."""
        while True:
            try:
                response = await agent.start("POST", self._url, body=b"x")
                body = await readBody(response)
                if response.code == 200 and body.startswith(b"hello"):
                    self.counts[kind] += 1
                else:
                    self.errors.append(f"{time.time():.3f} {kind} {response.code} {body[:600]!r}")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed request
                self.errors.append(f"{time.time():.3f} {kind} {type(error).__name__}: {error}")
            await deferLater(self._reactor, self._pause, lambda: None)


async def main(reactor: Any, url: str, server: str, workers: str, pause: str) -> None:
    """Send until the process is killed."""
    workload = await Workload.open("unix:///spiffe-workload-api/agent.sock", reactor=reactor, withdrawal_grace="5m")
    load = Load(reactor, url, float(pause))
    LoopingCall(load.show).start(1.0)
    senders = []
    for kind, idle in (("kept", int(workers)), ("new", 0)):
        agent = workload.http_agent(expect=server, idle_per_host=idle)
        senders += [Deferred.fromCoroutine(load.send(kind, agent)) for _number in range(int(workers))]
    await gatherResults(senders)


if __name__ == "__main__":
    react(main, sys.argv[1:])
