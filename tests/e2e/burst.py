"""
Asks for receipts of many requests at once, and prints the results of each round as a line of JSON.

    python3 burst.py SOCKET URL SPIFFE-ID REQUESTS ROUNDS

Runs in a pod, with what the image ``svc`` has. A line has the number of each status, and of each error by its text.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react
from twisted.web.client import readBody

from svc.embedding import Workload


async def result(agent: Any, url: str) -> str:
    """Send one request; gives the status of its verified response, or the error."""
    try:
        response = await agent.start("GET", url)
        await readBody(response)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed request
        return f"{type(error).__name__}: {error}"
    return str(response.code)


async def main(reactor: Any, socket: str, url: str, server: str, requests: str, rounds: str) -> None:
    """Send all rounds, one after the other."""
    workload = await Workload.open(socket, reactor=reactor)
    count = int(requests)
    agent = workload.http_agent(expect=server, notarization="signRequest", max_requests=count, idle_per_host=count)
    for _round in range(int(rounds)):
        results = await gatherResults([Deferred.fromCoroutine(result(agent, url)) for _number in range(count)])
        print(json.dumps(Counter(results)), flush=True)


if __name__ == "__main__":
    react(main, sys.argv[1:])
