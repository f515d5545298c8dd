"""
A hunt for one thing: an answer that reaches another request.

Clients pipeline, abort and reset at random while the application answers early, late, twice, half or not at all. Every
request has a name; whatever comes back as its response must carry that name and no other.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import misbehaving_application
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection, Response
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import PATIENCE, eventually, free_port, rounds

SEED = int(os.environ.get("SVC_TEST_SEED", "20261121"))
CLIENTS = 12
SECONDS = rounds(4, 120)
#: The time limit until a slow machine has run enough requests.
MOST_SECONDS = 120.0
ENOUGH_OWN, ENOUGH_PROXYS = 500, 25
#: The behaviours of the application, with their weights.
MANNERS = {
    "normal": 40,
    "chunked": 12,
    "interim": 6,
    "early": 6,
    "early_close": 3,
    "close": 3,
    "reset": 3,
    "half": 3,
    "half_reset": 3,
    "half_head": 3,
    "until_close": 4,
    "late": 0.3,
    "excess": 4,
    "closing": 6,
    "garbage": 2,
    "two_lengths": 2,
}
#: After these the proxy may answer instead of the application.
FAULTY = {"close", "reset", "half", "half_head", "half_reset", "late", "garbage", "two_lengths"}
LEVELS = ("", "", "", "workload", "logRequest", "signRequest")


@dataclass
class Planned:
    """
    A request.

    Args:
        name: its name.
        manner: what the application is to do.
        method: its method.
        data: its octets.
        lines: lines of the answer's body.
    """

    name: str
    manner: str
    method: str
    data: bytes
    lines: int


@dataclass
class Bag:
    """
    What a client brought home.

    Args:
        own: answers of the application with the right name.
        proxys: answers that the proxy gave itself.
        lost: requests whose connection ended first.
        wrong: everything that must not be.
    """

    own: int = 0
    proxys: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)


class Hunter:
    """
    One client.

    Args:
        number: makes its names and its choices.
        port: where it connects.
        credentials: for mutual TLS, or None for the plain outbound listener.
    """

    def __init__(self, number: int, port: int, credentials: Credentials | None) -> None:
        self._random = random.Random(SEED * 1000 + number)
        self._label = f"c{number}"
        self._port = port
        self._tls = credentials.context() if credentials is not None else None
        self._count = 0
        self._pending = ""
        self.bag = Bag()

    def hunt(self, over: Callable[[], bool]) -> Bag:
        """
        Send and compare.

        Args:
            over: says when it is the end.

        Returns:
            What it found.
        """
        while not over() and not self.bag.wrong:
            try:
                with RawConnection(self._port, self._tls, PATIENCE) as connection:
                    self._connection(connection)
            except TimeoutError:
                self.bag.wrong.append(f"no answer and no end for {PATIENCE:g} s: {self._pending}")
            except OSError:
                self.bag.lost += 1
        return self.bag

    def _connection(self, connection: RawConnection) -> None:
        for _turn in range(self._random.randrange(1, 12)):
            burst = [self._plan() for _ in range(self._random.choice((1, 1, 1, 2, 3, 6)))]
            data = b"".join(each.data for each in burst)
            self._pending = " ".join(f"{each.method} {each.manner} {each.name}" for each in burst)
            fate = self._random.random()
            if fate < 0.06:
                connection.send(data[: self._random.randrange(len(data) + 1)])
                time.sleep(self._random.choice((0.0, 0.002)))
                return connection.reset() if self._random.random() < 0.5 else connection.close()
            self._send(connection, data)
            if fate < 0.12:
                connection.exactly(self._random.randrange(1, 40))
                return connection.reset() if self._random.random() < 0.5 else connection.close()
            for position, planned in enumerate(burst):
                try:
                    answer = connection.read(planned.method)
                except Ended:
                    self.bag.lost += len(burst) - position
                    return None
                self._verify(planned, answer)
                if answer.get("connection") == "close":
                    self._rest(connection, planned)
                    return None
        return None

    def _send(self, connection: RawConnection, data: bytes) -> None:
        if self._random.random() < 0.3:
            cut = self._random.randrange(1, len(data))
            connection.send(data[:cut])
            time.sleep(0.001)
            data = data[cut:]
        connection.send(data)

    def _rest(self, connection: RawConnection, planned: Planned) -> None:
        rest = connection.rest()
        if rest:
            self.bag.wrong.append(f"{rest[:200]!r} follows the last answer, that of {planned.name} {planned.manner}")

    def _plan(self) -> Planned:
        self._count += 1
        choose = self._random
        name, lines = f"{self._label}-{self._count}", choose.choice((1, 3, 50, 3000))
        manner = choose.choices(list(MANNERS), list(MANNERS.values()))[0]
        lines = min(lines, 50) if manner == "excess" else lines
        method = choose.choice(("GET", "GET", "POST", "PUT", "HEAD"))
        # Outbound, a nonce is looked up first: a request that is aborted meanwhile is counted, and has no record.
        level = choose.choice(LEVELS if self._tls else LEVELS[:4])
        fields = f"X-Request-Id: {name}\r\n" + (f"Svc-Notarization-Level: {level}\r\n" if level else "")
        body = misbehaving_application.content(name, choose.choice((0, 1, 400))) if method in ("POST", "PUT") else b""
        if body and choose.random() < 0.5:
            fields += "Transfer-Encoding: chunked\r\n"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        elif method in ("POST", "PUT"):
            fields += f"Content-Length: {len(body)}\r\n"
        head = f"{method} /{manner}/{lines} HTTP/1.1\r\nHost: hunt\r\n{fields}\r\n".encode()
        return Planned(name, manner, method, head + body, lines)

    def _verify(self, planned: Planned, answer: Response) -> None:
        name = answer.get("x-request-id")
        what = f"{planned.method} {planned.manner} {planned.name}"
        if name is None:
            if answer.status < 400 or answer.get("content-type") != "application/problem+json":
                self.bag.wrong.append(f"{what} was answered without a name: {answer.status} {answer.fields}")
            elif planned.manner not in FAULTY and not _closed_in_the_pool(planned, answer):
                self.bag.wrong.append(f"{what} needed no help: {answer.status} {answer.body!r}")
            self.bag.proxys += 1
            return
        wanted = b"" if planned.method == "HEAD" else misbehaving_application.content(planned.name, planned.lines)
        if name != planned.name or answer.body != wanted:
            self.bag.wrong.append(f"{what} got the answer of {name}: {answer.status} {answer.body[:80]!r}")
        self.bag.own += 1


def _closed_in_the_pool(planned: Planned, answer: Response) -> bool:
    """A kept connection that the application closes just now fails a request that must not be sent twice."""
    return planned.method in ("POST", "PUT") and json.loads(answer.body)["code"] == "upstream_closed"


def _own(bags: Sequence[Bag]) -> int:
    return sum(bag.own for bag in bags)


def _proxys(bags: Sequence[Bag]) -> int:
    return sum(bag.proxys for bag in bags)


class HuntTests(SynchronousTestCase):
    """Twelve clients, inbound and outbound."""

    def test_no_foreign_answer(self) -> None:
        """No answer ever belongs to another request; afterwards nothing is left open and nothing is broken."""
        with ExitStack() as stack:
            authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
            upstream, outbound = f"127.0.0.1:{misbehaving_application.start(stack)}", free_port()
            timeouts = {"response": "5s", "stream": "20s", "idleUpstream": "2s"}
            proxy = RunningProxy(authority, upstream, listener={"timeouts": timeouts, "notarization": "none"})
            proxy.config["listeners"].append(
                {
                    "name": "out",
                    "protocol": "http",
                    "direction": "outbound",
                    "listen": f"127.0.0.1:{outbound}",
                    "upstream": f"127.0.0.1:{proxy.port}",
                    "peer": "spiffe://example.org/ns/shop/sa/api",
                    "timeouts": {"idleUpstream": "1s"},
                }
            )
            stack.enter_context(proxy)
            credentials = Credentials.fetch(authority, short_folder(stack))
            hunters = [
                Hunter(number, outbound if number % 4 == 3 else proxy.port, None if number % 4 == 3 else credentials)
                for number in range(CLIENTS)
            ]
            began, bags = time.monotonic(), [hunter.bag for hunter in hunters]

            def over() -> bool:
                enough = _own(bags) > ENOUGH_OWN and _proxys(bags) > ENOUGH_PROXYS
                return time.monotonic() - began > (SECONDS if enough else MOST_SECONDS)

            with ThreadPoolExecutor(CLIENTS) as threads:
                list(threads.map(lambda hunter: hunter.hunt(over), hunters))
            hint = f"SVC_TEST_SEED={SEED}"
            self.assertEqual([], [each for bag in bags for each in bag.wrong][:5], hint)
            self.assertGreater(_own(bags), ENOUGH_OWN, hint)
            self.assertGreater(_proxys(bags), ENOUGH_PROXYS, hint)
            self._assert_sound(proxy, credentials)

    def _assert_sound(self, proxy: RunningProxy, credentials: Credentials) -> None:
        eventually(lambda: proxy.metric("svc_proxy_active_connections") == 0, 60, "that all connections are closed")
        self.assertEqual([], proxy.records("svc.runtime.failure"))
        self.assertEqual("", proxy.errors)
        self.assertTrue(proxy.is_ready())
        self.assertEqual(0, proxy.metric("svc_proxy_notary_records_total", result="error"))
        levels = sum(proxy.metric("svc_proxy_notary_level_total", level=each) for each in ("logRequest", "signRequest"))
        eventually(
            lambda: proxy.metric("svc_proxy_notary_records_total", result="success") == levels,
            60,
            f"a record of each of {levels:g} recorded exchanges",
        )
        with RawConnection(proxy.port, credentials) as connection:
            answer = connection.request("/normal/3", fields="X-Request-Id: last\r\n")
        self.assertEqual((200, misbehaving_application.content("last", 3)), (answer.status, answer.body))

    def test_unasked_answer(self) -> None:
        """Octets that an application sends on a pooled connection reach no client."""
        with ExitStack() as stack:
            authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
            proxy = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{misbehaving_application.start(stack)}"))
            credentials = Credentials.fetch(authority, short_folder(stack))
            with RawConnection(proxy.port, credentials) as connection:
                for turn, manner in enumerate(("unasked", "normal", "excess", "normal", "unasked", "normal")):
                    answer = connection.request(f"/{manner}/2", fields=f"X-Request-Id: r{turn}\r\n")
                    self.assertEqual(
                        (200, misbehaving_application.content(f"r{turn}", 2)), (answer.status, answer.body)
                    )
                    if manner == "unasked":
                        time.sleep(3.0)  # The application sends after 0.2 s, a busy one later.
