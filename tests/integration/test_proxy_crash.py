"""
The proxy is killed, a thousand times and where it hurts: a response that a client received completely has its receipt.

SIGKILL loses what a process holds, not what it gave to the kernel; what a machine without power loses is SQLite's
promise (``synchronous=FULL``) and is not tested here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from svc.proxy.records.release_points import ReleasePoint
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection, Response
from tests.peers.proxy import RunningProxy
from tests.peers.receipt_verifier import ReceiptVerifier, says
from tests.peers.waiting import PATIENCE, NotInTime, Shared, eventually, rounds

#: How often each test kills a proxy: 1,180 times together in the whole form.
AT_EACH_STEP = rounds(18, 190)
TOGETHER = rounds(20, 140)
AT_ANY_MOMENT = rounds(12, 80)
WHILE_IT_STARTS = rounds(24, 200)
#: At once, so that receipts are signed together.
CLIENTS = 12


@dataclass
class Asked:
    """
    One exchange of a client that is about to lose its proxy.

    Args:
        level: the level that it asks for.
        method: its method.
        target: its path.
        status: what the application answers.
        body: with what content.
        nonce: its nonce.
    """

    level: str
    method: str
    target: str
    status: int
    body: bytes
    nonce: str
    #: Whether the client saw the response to its end.
    complete: bool = False
    #: Whether there must be a record; None where either is right.
    recorded: bool | None = None

    def send(self, connection: RawConnection) -> None:
        """Send the request."""
        content = b"x" * 700 if self.method == "POST" else b""
        framing = f"Content-Length: {len(content)}\r\n" if content else ""
        notary_fields = f"Svc-Notarization-Level: {self.level}\r\nSvc-Notary-Nonce: {self.nonce}\r\n"
        head = f"{self.method} {self.target} HTTP/1.1\r\nHost: test\r\n{framing}{notary_fields}\r\n"
        connection.send(head.encode() + content)

    def read(self, connection: RawConnection) -> Response:
        """
        Read the response to its end.

        Raises:
            OSError: it broke off.
        """
        answer = connection.read(self.method)
        if (answer.status, answer.body) != (self.status, self.body):
            raise AssertionError(f"{self.target} was answered {answer.status} with {len(answer.body)} octets")
        self.complete = self.recorded = True
        return answer

    def run(self, connection: RawConnection) -> None:
        """Send and read."""
        self.send(connection)
        self.read(connection)


WITH_BODY = (
    ("GET", "/bytes/{0}", 200, webapp.octets),
    ("GET", "/chunked/{0}", 200, webapp.octets),
    ("POST", "/echo", 200, lambda _size: b"x" * 700),
)
WITHOUT_BODY = (
    ("HEAD", "/bytes/{0}", 200, lambda _size: b""),
    ("GET", "/status/204", 204, lambda _size: b""),
    ("POST", "/status/304", 304, lambda _size: b""),
)
LEVELS = ("signRequest", "signRequest", "logRequest")


def questions(number: int, kinds: Sequence[tuple[str, str, int, Callable[[int], bytes]]]) -> Iterator[Asked]:
    """
    Make exchanges without end, of every kind, size and level in turn.

    Args:
        number: where to begin.
        kinds: which kinds.

    Yields:
        Exchanges.
    """
    for turn in itertools.count(number):
        method, target, status, body = kinds[turn % len(kinds)]
        # One octet, one piece, several reads of the proxy.
        size = (1, 911, 70_000)[turn // 3 % 3]
        nonce = new_nonce(os.urandom(16))
        yield Asked(LEVELS[turn // 2 % 3], method, target.format(size), status, body(size), nonce)


@dataclass
class World:
    """Base class of the rounds."""

    authority: RunningAuthority
    application: int
    credentials: Credentials
    verifier: ReceiptVerifier


def _world(stack: ExitStack) -> World:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    credentials = Credentials.fetch(authority, short_folder(stack))
    return World(authority, webapp.start(stack), credentials, ReceiptVerifier(authority))


WORLD = Shared(_world)


class KillTestCase(SynchronousTestCase):
    """One database, and one proxy after the other on it."""

    def setUp(self) -> None:
        """A folder with a configuration, nothing that runs."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.world: World = WORLD.get()
        self.proxy = RunningProxy(self.world.authority, f"127.0.0.1:{self.world.application}")
        self.stack.callback(self.proxy.stop)
        self.database = self.proxy.folder / "notary.db"
        self.tls = self.world.credentials.context()
        self.past: list[Asked] = []
        self.unverified: list[Asked] = []
        self.batches = 0
        self.kills = 0

    def start(self, step: ReleasePoint | None = None, after: int = 1) -> None:
        """Start the next proxy on the same database."""
        self.proxy.launch(None if step is None else (step.value, after))

    def connect(self, seconds: float = PATIENCE) -> RawConnection:
        """Connect, as soon as the proxy listens."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return RawConnection(self.proxy.port, self.tls, 60.0)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise NotInTime(f"{error}: {self.proxy.log[-2000:]}") from error
                time.sleep(0.002)

    def kill(self) -> None:
        """Kill the proxy."""
        self.assertEqual(-9, self.proxy.kill(), self.proxy.log[-2000:])
        self.kills += 1

    def verify(self, connection: RawConnection) -> None:
        """Look for the receipts of the rounds before, on the proxy that runs now; their nonces are not good again."""
        unverified, self.unverified = self.unverified, []
        replayed = False
        for asked in unverified:
            claims = self.world.verifier.receipt(connection, asked.nonce)
            if asked.level == "logRequest":
                self.assertIsNone(claims)
            elif asked.recorded is not None:
                self.assertEqual(asked.recorded, claims is not None, asked)
            if claims is not None:
                asked.recorded = True
                self.assertTrue(says(claims, asked.status, asked.body), asked)
            if asked.recorded and not replayed:
                replayed = True
                notary_fields = f"Svc-Notarization-Level: {asked.level}\r\nSvc-Notary-Nonce: {asked.nonce}\r\n"
                self.assertEqual(409, connection.request("/bytes/1", fields=notary_fields).status)
        self.past += unverified

    def close_the_books(self, *, kills: int, least: int) -> None:
        """
        Verify the last round, then the whole database; assert the number of kills and of complete responses.
        """
        self.assertEqual(kills, self.kills)
        self.start()
        with self.connect() as connection:
            self.verify(connection)
        self.assertEqual(0, self.proxy.halt())
        self.assertEqual([], [line for line in self.proxy.log.splitlines() if '"severity":"ERROR"' in line])
        with closing(sqlite3.connect(self.database)) as database:
            self.assertEqual([("ok",)], database.execute("PRAGMA integrity_check").fetchall())
            nonces = [nonce for (nonce,) in database.execute("SELECT nonce FROM receipt")]
            batches = {number for (number,) in database.execute("SELECT id FROM receipt_batch")}
            used = {
                number for (number,) in database.execute("SELECT DISTINCT batch FROM receipt") if number is not None
            }
            self.assertEqual(used, batches, "no batch without its receipts, and none of those without it")
            self.batches = len(batches)
        self.assertEqual(len(nonces), len(set(nonces)))
        stored = set(nonces)
        for asked in self.past:
            if asked.recorded is not None:
                self.assertEqual(asked.recorded, asked.nonce in stored, asked)
        self.assertLessEqual(stored, {asked.nonce for asked in self.past})
        self.assertGreater(sum(asked.complete for asked in self.past), least)


class StepTests(KillTestCase):
    """One client; the proxy is killed exactly at one step of its first, second or third exchange."""

    def _rounds(
        self, step: ReleasePoint, *, recorded: bool, kinds: Sequence[tuple[str, str, int, Callable[[int], bytes]]]
    ) -> None:
        lost: str | None = None
        for number in range(AT_EACH_STEP):
            after = 1 + number % 3
            self.start(step, after)
            with self.connect() as connection:
                self.verify(connection)
                *before, last = itertools.islice(questions(number, kinds), after)
                if lost is not None:
                    # A request without a record has not used up its nonce.
                    (before or [last])[0].nonce = lost
                for asked in before:
                    asked.run(connection)
                last.send(connection)
                self.proxy.wait_until_stopped()
                self.kill()
                with contextlib.suppress(Ended):
                    last.read(connection)
            if step is not ReleasePoint.LAST_BYTE_WRITTEN:
                self.assertFalse(last.complete, "the end of the response was released too early")
            last.recorded = recorded
            lost = None if recorded else last.nonce
            self.unverified += [*before, last] if recorded else before
        self.close_the_books(kills=AT_EACH_STEP, least=AT_EACH_STEP // 2)

    def test_head_withheld(self) -> None:
        """Killed while the head of a response without body waits: nothing was seen, nothing is recorded."""
        self._rounds(ReleasePoint.HEAD_WITHHELD, recorded=False, kinds=WITHOUT_BODY)

    def test_receipt_signed(self) -> None:
        """Killed between signature and commit: the response lacks its end, no record is found, the nonce is good."""
        self._rounds(ReleasePoint.RECEIPT_SIGNED, recorded=False, kinds=WITH_BODY + WITHOUT_BODY)

    def test_receipt_committed(self) -> None:
        """Killed between commit and last octet: the response lacks its end, the whole record is found."""
        self._rounds(ReleasePoint.RECEIPT_COMMITTED, recorded=True, kinds=WITH_BODY + WITHOUT_BODY)

    def test_last_byte_written(self) -> None:
        """Killed when the last octet was written, sent or not: the whole record is found."""
        self._rounds(ReleasePoint.LAST_BYTE_WRITTEN, recorded=True, kinds=WITH_BODY + WITHOUT_BODY)


class _Client(threading.Thread):
    """Asks until its connection breaks, and remembers everything."""

    def __init__(self, port: int, tls: ssl.SSLContext, number: int) -> None:
        super().__init__(daemon=True)
        self._port, self._tls = port, tls
        self._questions = questions(number, WITH_BODY + WITHOUT_BODY)
        self.asked: list[Asked] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        """Ask."""
        try:
            with RawConnection(self._port, self._tls, 60.0) as connection:
                for asked in self._questions:
                    self.asked.append(asked)
                    asked.run(connection)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001 (reported by the test)
            self.failure = error


class LoadTests(KillTestCase):
    """Several clients at once."""

    def _round(self, number: int, when: Callable[[], object]) -> None:
        with self.connect() as connection:
            self.verify(connection)
        clients = [_Client(self.proxy.port, self.tls, number * 7 + turn * 5) for turn in range(CLIENTS)]
        for client in clients:
            client.start()
        if number % 4 == 3:
            # So that something is seen complete on a busy machine too.
            eventually(lambda: any(asked.complete for client in clients for asked in client.asked))
        when()
        self.kill()
        for client in clients:
            client.join(60)
            self.assertIsNone(client.failure)
            self.unverified += client.asked

    def test_at_a_step_under_load(self) -> None:
        """Killed at a step of one exchange while others are at other steps: what was seen complete is found."""
        for number in range(TOGETHER):
            step = tuple(ReleasePoint)[number % 4]
            self.start(step, 2 + number // 4 % 5)
            self._round(number, self.proxy.wait_until_stopped)
        # Fewer where more of the clients wait for one commit.
        self.close_the_books(kills=TOGETHER, least=TOGETHER)
        self.assertGreater(self.batches, 0)

    def test_at_any_moment(self) -> None:
        """After kill -9 at a random moment the record of every complete response is found."""
        moments = random.Random(20261121)
        for number in range(AT_ANY_MOMENT):
            self.start()
            self._round(number, lambda: time.sleep(moments.uniform(0.0, 0.08)))
        self.close_the_books(kills=AT_ANY_MOMENT, least=AT_ANY_MOMENT // 5)
        self.assertGreater(self.batches, 0)


class StartTests(KillTestCase):
    """The proxy is killed before it serves."""

    def test_while_it_starts(self) -> None:
        """Killed while it makes or opens its database: the next start opens it and stores in it."""
        moments = random.Random(20261121)
        for number in range(WHILE_IT_STARTS):
            if number % 4 == 0:
                # As if for the first time, or as after a database that was taken away.
                for suffix in ("", "-wal", "-shm", "-journal", ".reserve")[: 5 if number % 8 else 4]:
                    Path(f"{self.database}{suffix}").unlink(missing_ok=True)
            self.start()
            time.sleep(moments.uniform(0.0, 0.06))
            self.kill()
        self.start()
        with self.connect() as connection:
            for asked in itertools.islice(questions(0, WITH_BODY), 3):
                asked.run(connection)
                self.unverified.append(asked)
        self.kill()
        self.close_the_books(kills=WHILE_IT_STARTS + 1, least=2)
