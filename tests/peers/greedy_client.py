"""
A client that sends what it can on many connections, in a process of its own.

::

    with GreedyClient(proxy.port, credentials, connections=128) as greedy:
        ...
    greedy.statuses, greedy.median
"""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Final

from tests.peers.independent_clients import Credentials

_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class GreedyClient:
    """
    The process, from the time when all its connections are open and each had an answer.

    Args:
        port: of the server, on loopback.
        credentials: for mutual TLS.
        connections: how many, each with one request at a time.

    Attributes:
        statuses: how many answers had which status, when it has ended.
        median: seconds from a request to its whole answer, in the median.
    """

    def __init__(self, port: int, credentials: Credentials, connections: int) -> None:
        files = [str(each) for each in (credentials.certificate, credentials.key)]
        command = [sys.executable, "-m", "tests.peers.greedy_client", str(port), str(connections), *files]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.statuses: dict[int, int] = {}
        self.median = 0.0

    def __enter__(self) -> GreedyClient:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise AssertionError(f"the client ended with status {self._process.wait()}")
        return self

    def __exit__(self, *_error: object) -> None:
        output, _ = self._process.communicate(timeout=60)
        found = json.loads(output)
        self.statuses = {int(status): count for status, count in found["statuses"].items()}
        self.median = found["median"]


class _Load:
    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context
        self.ended = False
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)
        await self._exchange(*streams)
        return streams

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not self.ended:
            began = time.monotonic()
            self.statuses[await self._exchange(reader, writer)] += 1
            self.times.append(time.monotonic() - began)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(_REQUEST)
        start, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(each for each in fields if each.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        return int(start.split()[1])


async def _main(port: str, connections: str, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Who the server is plays no part here.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    load = _Load(int(port), context)
    opened = [await load.connect() for _ in range(int(connections))]
    running = [asyncio.create_task(load.run(*each)) for each in opened]
    sys.stdout.write("ready\n")
    sys.stdout.flush()

    def wait_for_end() -> None:
        sys.stdin.read()
        load.ended = True

    threading.Thread(target=wait_for_end, daemon=True).start()
    await asyncio.gather(*running)
    json.dump({"statuses": load.statuses, "median": statistics.median(load.times)}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
