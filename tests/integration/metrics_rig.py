"""
What the tests of metrics share: series and claims to move them, and one proxy whose listeners can do everything.

A test states with :func:`moves` which series its event moves, and by how much; the page of the real process is read
before and after it. What the tests of all modules claim together is compared with the page in ``test_metrics_events``.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import misbehaving_application, webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.partner import DOMAIN, Partner, PeerServer
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, NotInTime, Shared, eventually, free_port

Series = tuple[str, frozenset[tuple[str, str]]]
ID = "spiffe://example.org/ns/shop/sa/api"
#: For the sweep of connections, and what it takes to be seen.
SOON = PATIENCE


def series(name: str, **labels: str) -> Series:
    """
    Name a series.

    Args:
        name: of the family, without ``svc_proxy_``; a histogram includes all its samples.
        labels: its labels.

    Returns:
        The series.
    """
    return f"svc_proxy_{name}", frozenset(labels.items())


def page(proxy: RunningProxy) -> dict[Series, float]:
    """
    Scrape.

    Args:
        proxy: a running proxy.

    Returns:
        Every series with its value, except for those of the process; of a histogram the number of its observations.
    """
    found: dict[Series, float] = {}
    for name, labels, value in proxy.samples():
        if name.endswith("_count"):
            name = name.removesuffix("_count")
        elif name.endswith(("_bucket", "_sum")) or name.startswith("process_"):
            continue
        found[name, frozenset(labels.items())] = value
    return found


def moves(*claimed: Series, by: float | None = 1.0) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """
    Claim that the event of a test moves series of the proxy that the test case names.

    Args:
        claimed: the series.
        by: how much exactly; None for any amount above 0.

    Returns:
        A decorator of test methods.
    """

    def decorate(test: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(test)
        def wrapper(self: Any) -> None:
            before = page(self.scraped)
            test(self)

            def wrong() -> dict[Series, float]:
                after = page(self.scraped)
                deltas = {each: after.get(each, 0.0) - before.get(each, 0.0) for each in claimed}
                return {each: d for each, d in deltas.items() if (d <= 0 if by is None else d != by)}

            with suppress(NotInTime):
                eventually(lambda: not wrong(), SOON)
            self.assertEqual({}, wrong(), f"each should have moved by {by}")

        wrapper.__dict__["claims"] = frozenset(claimed) | getattr(test, "claims", frozenset())
        return wrapper

    return decorate


def claims(modules: Iterable[Any]) -> set[Series]:
    """
    Gather what tests claim.

    Args:
        modules: with test cases.

    Returns:
        All series that they move.
    """
    found: set[Series] = set()
    for module in modules:
        for case in vars(module).values():
            if isinstance(case, type) and case.__module__ == module.__name__:
                for member in vars(case).values():
                    found |= getattr(member, "claims", frozenset())
    return found


class Application:
    """
    A server that keeps what it reads, and answers each request with the same octets; a body ends with ``hello``.

    Args:
        answer: what it says.
        stays: whether it keeps the connection afterwards.
    """

    def __init__(self, answer: bytes, *, stays: bool) -> None:
        self.received = b""
        self._answer, self._stays = answer, stays
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                with plain:
                    while data := plain.recv(65536):
                        self.received += data
                        if data.endswith((b"\r\n\r\n", b"hello")):
                            plain.sendall(self._answer)
                            if not self._stays:
                                break


def inbound(name: str, upstream: int, **keys: Any) -> dict[str, Any]:
    """
    Write an inbound listener.

    Args:
        name: its name.
        upstream: the port of its application.
        keys: further keys.

    Returns:
        Its configuration.
    """
    port = free_port()
    listener = {"name": name, "protocol": "http", "direction": "inbound", "listen": f"127.0.0.1:{port}"}
    return {**listener, "upstream": f"127.0.0.1:{upstream}", **keys}


def outbound(name: str, upstream: int, **keys: Any) -> dict[str, Any]:
    """
    Write an outbound listener to the partner, which makes a new connection for every request.

    Args:
        name: its name.
        upstream: the port of the peer.
        keys: further keys.

    Returns:
        Its configuration.
    """
    peer = {"direction": "outbound", "peer": f"spiffe://{DOMAIN}/api", "limits": {"idleUpstream": 0}}
    return {**inbound(name, upstream), **peer, "timeouts": {"handshake": "3s"}, **keys}


def port_of(listener: Mapping[str, Any]) -> int:
    """
    The port of a listener.

    Args:
        listener: its configuration.

    Returns:
        Its port.
    """
    return int(listener["listen"].rpartition(":")[2])


def world(stack: ExitStack) -> SimpleNamespace:
    """
    Start an authority that federates with the partner, and what goes with it.

    Args:
        stack: ends everything.

    Returns:
        The authority, the partner and a folder.
    """
    folder = short_folder(stack)
    partner = Partner(folder / "partner.pem")
    federated = {"federatesWith": [{"trustDomain": DOMAIN, "bundleFile": str(partner.path)}]}
    entries = [entry("/ns/shop/sa/api"), entry("/ns/shop/sa/web")]
    authority = stack.enter_context(RunningAuthority(entries=entries, settings=federated))
    return SimpleNamespace(folder=folder, partner=partner, authority=authority)


def _make(stack: ExitStack) -> Any:
    found = world(stack)
    application = webapp.start(stack)
    found.peer = PeerServer(found.partner.svid())
    found.counting = Application(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", stays=True)
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"
    found.leaving = Application(upgrade, stays=False)
    found.upgraded = Application(upgrade, stays=True)
    for each in (found.peer, found.counting, found.leaving, found.upgraded):
        stack.callback(each.close)
    short = {"handshake": "3s", "header": "2s", "idle": "2s", "stream": "2s"}
    listeners = [
        inbound("tight", application, timeouts=short),
        inbound("few", application, limits={"connections": 1}),
        inbound("slow", application, limits={"handshakes": 1}),
        inbound("quiet", application, limits={"waiting": 1}),
        inbound("pq", application, keyExchange="require"),
        inbound("balanced", application, proxyProtocol="v2", timeouts=short),
        inbound("misbehaving", misbehaving_application.start(stack)),
        inbound("absent", free_port()),
        inbound("counting", found.counting.port),
        inbound("leaving", found.leaving.port),
        inbound("upgraded", found.upgraded.port),
        outbound("out", found.peer.port),
        outbound("outpq", found.peer.port, keyExchange="require"),
        outbound("gone", free_port()),
        outbound("foreign", found.peer.port, peer=f"spiffe://{DOMAIN}/somebody-else"),
    ]
    found.ports = {each["name"]: port_of(each) for each in listeners}
    rate = {"receiptsPerSecond": 1, "receiptsBurst": 2, "rateWait": "0s"}
    found.proxy = stack.enter_context(
        RunningProxy(found.authority, f"127.0.0.1:{application}", listeners=listeners, notary=rate)
    )
    found.ports["web"] = found.proxy.port
    found.web = Credentials.fetch(found.authority, found.folder / "web", "/ns/shop/sa/web")
    return found


SHARED = Shared(_make)


class EventCase(SynchronousTestCase):
    """Events of the shared proxy; each begins when nothing is left of the one before."""

    def setUp(self) -> None:
        self.found = SHARED.get()
        self.proxy: RunningProxy = self.found.proxy
        self.scraped = self.proxy
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), SOON, "the end of all connections")

    def connect(self, listener: str) -> RawConnection:
        """Connect to a listener: as a workload of the own trust domain, plainly where it is outbound."""
        plain = listener in ("out", "outpq", "gone", "foreign")
        connection = RawConnection(self.found.ports[listener], None if plain else self.found.web)
        self.addCleanup(connection.close)
        return connection

    def partner(self, path: str, **knobs: Any) -> ssl.SSLContext:
        """A client of the partner's trust domain, which is verified and then denied by policy."""
        folder = self.found.folder / path.strip("/")
        return Credentials.of(self.found.partner.svid(path, **knobs), folder, self.found.web.roots).context()

    def plain(self, listener: str, data: bytes = b"") -> socket.socket:
        """Connect without TLS and send something."""
        connection = socket.create_connection(("127.0.0.1", self.found.ports[listener]), timeout=SOON)
        self.addCleanup(connection.close)
        if data:
            connection.sendall(data)
        return connection
