"""Two proxies with one identity share one notary on a PostgreSQL server: whichever is asked, it is the same notary."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.integration.test_store_postgresql import EMPTY
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection, Response
from tests.peers.postgresql import RunningPostgres
from tests.peers.proxy import RunningProxy
from tests.peers.receipt_verifier import ReceiptVerifier, says
from tests.peers.waiting import Shared, eventually, rounds

RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"
KILLS = rounds(6, 20)


@dataclass
class World:
    """Base class of these tests."""

    server: RunningPostgres
    authority: RunningAuthority
    application: int
    credentials: Credentials
    verifier: ReceiptVerifier


def _world(stack: ExitStack) -> World:
    server = RunningPostgres(stack)
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    credentials = Credentials.fetch(authority, short_folder(stack))
    return World(server, authority, webapp.start(stack), credentials, ReceiptVerifier(authority))


WORLD = Shared(_world)


def notary_fields(nonce: str, level: str = "signRequest") -> str:
    """The fields that ask for a receipt."""
    return f"Svc-Notarization-Level: {level}\r\nSvc-Notary-Nonce: {nonce}\r\n"


def fresh() -> str:
    """A nonce."""
    return new_nonce(os.urandom(16))


class ReplicaCase(SynchronousTestCase):
    """An empty database, and proxies on it that end with the test."""

    def setUp(self) -> None:
        """Nothing runs yet."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.world: World = WORLD.get()
        self.server = self.world.server
        self.server.admin(EMPTY)

    def proxy(self) -> RunningProxy:
        """A proxy that is not started; the server is verified, the password in a file."""
        upstream = f"127.0.0.1:{self.world.application}"
        notary = {"database": self.server.url(tls=True), "path": None}
        proxy = RunningProxy(self.world.authority, upstream, notary=notary)
        self.stack.callback(proxy.stop)
        return proxy

    def connect(self, proxy: RunningProxy) -> RawConnection:
        """Connect to a proxy."""
        return self.stack.enter_context(RawConnection(proxy.port, self.world.credentials))

    def later(self, proxy: RunningProxy, target: str, nonce: str) -> tuple[threading.Thread, list[Response | OSError]]:
        """Ask in a thread of its own."""
        found: list[Response | OSError] = []

        def ask() -> None:
            try:
                with RawConnection(proxy.port, self.world.credentials) as connection:
                    found.append(connection.request(target, fields=notary_fields(nonce)))
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        return thread, found


class NotaryTests(ReplicaCase):
    """Both run in order."""

    def test_one_notary(self) -> None:
        """A receipt of one verifies when the other serves it, and a nonce of one is used at both, while it runs too."""
        first, second = self.proxy().launch(), self.proxy().launch()
        for proxy in (first, second):
            eventually(proxy.is_ready, 60, "readiness")
        one, other = self.connect(first), self.connect(second)
        nonce = fresh()
        answer = one.request("/bytes/911", fields=notary_fields(nonce))
        self.assertEqual(200, answer.status)
        claims = self.world.verifier.receipt(other, nonce)
        assert claims is not None
        self.assertTrue(says(claims, 200, answer.body))
        replay = other.request("/bytes/1", fields=notary_fields(nonce))
        self.assertEqual((409, "replayed"), (replay.status, json.loads(replay.body)["code"]))
        self._while_it_runs(first, other)
        self._nothing_secret(first)

    def _while_it_runs(self, first: RunningProxy, other: RawConnection) -> None:
        nonce = fresh()
        thread, found = self.later(first, "/slow/6", nonce)
        pending = eventually(
            lambda: _unless(404, other.request(RECEIPTS + nonce)), 60, "the nonce at the other replica"
        )
        self.assertEqual((202, "receipt_pending"), (pending.status, json.loads(pending.body)["code"]))
        self.assertEqual("1", pending.get("retry-after"))
        replay = other.request("/bytes/1", fields=notary_fields(nonce))
        self.assertEqual((409, "replayed"), (replay.status, json.loads(replay.body)["code"]))
        thread.join(60)
        [answer] = found
        assert isinstance(answer, Response)
        self.assertEqual(200, answer.status)
        self.assertIsNotNone(self.world.verifier.receipt(other, nonce))

    def _nothing_secret(self, proxy: RunningProxy) -> None:
        status, shown = proxy.page("/config")
        self.assertEqual((200, self.server.url(tls=True)), (status, shown["notary"]["database"]))
        self.assertNotIn("secret-of-the-role", proxy.log + proxy.errors + json.dumps(shown))

    def test_killed_replica_keeps_no_nonce(self) -> None:
        """Nonces reserved by a killed replica are free at the other at once; none of its exchanges is pending."""
        first, second = self.proxy().launch(), self.proxy().launch()
        for proxy in (first, second):
            eventually(proxy.is_ready, 60, "readiness")
        other, nonce = self.connect(second), fresh()
        thread, found = self.later(first, "/slow/60", nonce)
        eventually(lambda: other.request(RECEIPTS + nonce).status == 202, 60, "the nonce at the other replica")
        first.kill()
        thread.join(60)
        self.assertIsInstance(found[0], OSError)
        eventually(lambda: other.request(RECEIPTS + nonce).status == 404, 60, "nothing pending")
        self.assertEqual(200, other.request("/bytes/1", fields=notary_fields(nonce)).status)

    def test_server_goes_and_comes(self) -> None:
        """While the server is away what needs a record gets 503 before it is forwarded; no restart is needed after."""
        proxy = self.proxy().start()
        connection, nonce = self.connect(proxy), fresh()
        thread, found = self.later(proxy, "/slow/10", nonce)
        eventually(lambda: connection.request(RECEIPTS + nonce).status == 202, 60, "the exchange")
        self.server.kill()
        eventually(lambda: not proxy.readiness()["store"]["ok"], 60, "it to detect that")
        time.sleep(2.0)  # Octets reach the counter twice a second.
        sent = proxy.metric("svc_proxy_bytes_sent_total")
        for level in ("signRequest", "logRequest"):
            refused = connection.request("/bytes/1", fields=notary_fields(fresh(), level))
            self.assertEqual((503, "notary_unavailable"), (refused.status, json.loads(refused.body)["code"]))
            self.assertIsNotNone(refused.get("retry-after"))
        time.sleep(2.0)
        self.assertEqual(sent, proxy.metric("svc_proxy_bytes_sent_total"))
        self.assertEqual(202, connection.request(RECEIPTS + nonce).status)
        self.assertEqual(503, connection.request(RECEIPTS + fresh()).status)
        self.assertEqual(200, connection.request("/bytes/1").status)
        self.assertEqual("notary_unavailable", proxy.readiness()["store"]["reason"])
        self.server.start()
        eventually(lambda: proxy.readiness()["store"]["ok"], 60, "a store that takes records")
        thread.join(60)
        # Its application answered while the server was away: the exchange waited for its record.
        [answer] = found
        assert isinstance(answer, Response)
        self.assertEqual(200, answer.status)
        # Readings have a session of their own, which is made anew at most twice a second.
        eventually(lambda: connection.request(RECEIPTS + nonce).status == 200, 60, "a store that is read")
        self.assertIsNotNone(self.world.verifier.receipt(connection, nonce))
        self.assertEqual(200, connection.request("/bytes/1", fields=notary_fields(fresh())).status)


def _unless(status: int, answer: Response) -> Response | None:
    return None if answer.status == status else answer


class KillTests(ReplicaCase):
    """kill -9 of one replica under load, again and again, while the other runs on."""

    def test_nothing_complete_is_lost(self) -> None:
        """After each kill the other replica serves the receipt of every response that a client saw complete."""
        victim, witness = self.proxy(), self.proxy().start()
        asked = self.connect(witness)
        moments = random.Random(19)
        total = 0
        for number in range(KILLS):
            victim.launch()
            complete: list[tuple[str, bytes]] = []
            threads = [
                threading.Thread(target=self._client, args=(victim, number * 4 + each, complete), daemon=True)
                for each in range(12)
            ]
            for thread in threads:
                thread.start()
            eventually(lambda: len(complete) >= 4, 60, "some signed answers")  # noqa: B023
            time.sleep(moments.uniform(0.0, 0.05))
            self.assertEqual(-9, victim.kill())
            for thread in threads:
                thread.join(60)
            for nonce, body in complete:
                claims = self.world.verifier.receipt(asked, nonce)
                assert claims is not None, nonce
                self.assertTrue(says(claims, 200, body), nonce)
            total += len(complete)
        self.assertGreaterEqual(total, KILLS * 4)
        self.assertTrue(witness.is_ready())
        counts = self.server.admin("SELECT count(*) FROM svc_notary.receipt WHERE batch IS NOT NULL GROUP BY batch")
        self.assertGreater(max(count for (count,) in counts), 1, "receipts that were signed together")
        self.assertEqual([(len(counts),)], self.server.admin("SELECT count(*) FROM svc_notary.receipt_batch"))

    def _client(self, proxy: RunningProxy, number: int, complete: list[tuple[str, bytes]]) -> None:
        connection = eventually(lambda: self._connected(proxy), 60, "a connection")
        with connection:
            try:
                while True:
                    nonce, size = fresh(), (1, 911, 70_000)[(number + len(complete)) % 3]
                    answer = connection.request(
                        f"/{('bytes', 'chunked')[number % 2]}/{size}", fields=notary_fields(nonce)
                    )
                    complete.append((nonce, answer.body))
            except (OSError, Ended):
                return

    def _connected(self, proxy: RunningProxy) -> RawConnection | None:
        try:
            return RawConnection(proxy.port, self.world.credentials)
        except OSError:
            return None
