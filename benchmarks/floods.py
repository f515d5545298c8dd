"""
How long an honest client waits, at worst, beside another one that sends what takes long to handle.

Owns the floods, each in a process of its own, and the proxy that they meet. The client asks for one thing at a time.
"""

from __future__ import annotations

import multiprocessing
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.brokers import Brokers
from benchmarks.configurations import REFUSED, SMALL
from benchmarks.hybrid import cpu_seconds
from benchmarks.peers import Device, Stage
from benchmarks.rows import Row, less_is_better
from svc.wire.mqtt import Connack, Connect, Version, encode
from tests.peers.flood import EndlessSender, Flood
from tests.peers.independent_clients import RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.mqttfloods import deep_subscriptions, octets_of, pings, refused_messages, releases

_BUDGET: Final = 50.0
#: Part of the time for which our proxy has to be busy, on however busy a machine: less is no flood.
_LEAST_BUSY: Final = 0.1
#: Seconds of a flood before its effect is measured.
_WARM: Final = 0.3
_FORKED: Final = multiprocessing.get_context("fork")
_CONNECT: Final = octets_of([Connect("flood")])
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class _Flood:
    """
    What a client of a flood sends.

    Args:
        listener: where.
        beginning: once on each connection.
        octets: again and again, made in the process of the flood; none where a server sends them.
        connections: how many.
    """

    listener: str
    beginning: bytes
    octets: Callable[[], bytes]
    connections: int = 4


_CHUNKS: Final = b"1\r\na\r\n" * 20_000
_HTTP: Final = {
    "refused requests": _Flood("http", b"", lambda: f"GET {REFUSED} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 2000),
    "chunks of a request": _Flood("sink", b"POST / HTTP/1.1\r\nHost: a\r\n" + _CHUNKED, lambda: _CHUNKS),
    "chunks of a response": _Flood("chunks", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", bytes),
}
_MQTT: Final = {
    "PINGREQ": _Flood("mqtt", _CONNECT, pings, 1),
    "refused PUBLISH": _Flood("mqtt", _CONNECT, refused_messages, 1),
    "deep SUBSCRIBE": _Flood("mqtt", _CONNECT, deep_subscriptions, 1),
    "PUBREL of a broker": _Flood("releases", _CONNECT, bytes),
}
#: What servers answer, and then send without end; one that sends nothing reads without end.
_SERVERS: Final[dict[str, tuple[bytes, Callable[[], bytes]]]] = {
    "sink": (b"", bytes),
    "chunks": (b"HTTP/1.1 200 OK\r\n" + _CHUNKED, lambda: _CHUNKS),
    "releases": (encode(Connack(), Version.V5, "server"), releases),
}


def rows(stage: Stage, brokers: Brokers, rounds: int, seconds: float) -> list[Row]:
    """
    Measure the wait beside each flood.

    Args:
        stage: starts our proxy; its authority and application run.
        brokers: starts our broker.
        rounds: how often.
        seconds: how long the client asks in each.

    Returns:
        The rows: the longest wait of each round, the median of the rounds.
    """
    context = _context(stage.credentials)
    worst: dict[str, list[float]] = {}
    with _child(_serve) as servers:
        upstreams = {"mqtt": brokers.ours().port, **servers.recv()}
        devices = stage.flooded_proxy(upstreams)
        for _ in range(rounds):
            for name, flood in {**_HTTP, **_MQTT}.items():
                ask = _http_client(devices, context) if name in _HTTP else _mqtt_client(devices, context)
                with _child(_run, flood, devices[flood.listener].port, context) as flooding:
                    flooding.recv()
                    before = cpu_seconds(devices["http"].pid)
                    longest = _longest(ask, seconds)
                    busy = cpu_seconds(devices["http"].pid) - before
                if busy < _LEAST_BUSY * seconds:
                    raise AssertionError(f"{name}: the proxy was busy for {busy:.2f} s of {seconds:.2f} s")
                worst.setdefault(name, []).append(longest * 1e3)
        stage.end(devices["http"])
    return [
        less_is_better(f"beside {name}, longest wait", "budget", each, [_BUDGET], "ms", 1.0)
        for name, each in worst.items()
    ]


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "roots.pem")
    context.load_cert_chain(folder / "chain.pem", folder / "key.pem")
    return context


def _http_client(devices: dict[str, Device], context: ssl.SSLContext) -> Callable[[], object]:
    connection = RawConnection(devices["http"].port, context)

    def ask() -> None:
        if (status := connection.request(SMALL).status) != 200:
            raise AssertionError(f"the client got {status}")

    return ask


def _mqtt_client(devices: dict[str, Device], context: ssl.SSLContext) -> Callable[[], object]:
    client = RawClient(devices["mqtt"].port, tls=context.wrap_socket)
    client.connect("honest")
    return client.sync


def _longest(ask: Callable[[], object], seconds: float) -> float:
    longest, end = 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        ask()
        longest = max(longest, time.monotonic() - began)
    return longest


@contextmanager
def _child(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    ours, theirs = _FORKED.Pipe()
    process = _FORKED.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _serve(parent: Connection) -> None:
    """Run the servers that floods need, and tell their ports."""
    with ExitStack() as stack:
        parent.send({name: EndlessSender(stack, answer, octets()).port for name, (answer, octets) in _SERVERS.items()})
        parent.recv()


def _run(parent: Connection, flood: _Flood, port: int, context: ssl.SSLContext) -> None:
    """Send a flood, and tell the parent once it is under way."""
    connections = [RawConnection(port, context) for _ in range(flood.connections)]
    for each in connections:
        each.send(flood.beginning)
    with Flood(connections, flood.octets()):
        time.sleep(_WARM)
        parent.send(None)
        parent.recv()
