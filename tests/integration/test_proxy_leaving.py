"""SIGUSR1: a proxy that is about to end while its clients go on sending."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.naming import NOTARY_PATH
from tests.integration.test_probes import answer
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    return SimpleNamespace(
        authority=authority,
        application=f"127.0.0.1:{webapp.start(stack)}",
        credentials=Credentials.fetch(authority, short_folder(stack)),
    )


SHARED = Shared(_make)


class Sender(threading.Thread):
    """
    A client that sends one request after the other, and connects again when a response says that it has to.

    Attributes:
        answered: the time of each response.
        asked: the time of each response that ended its connection.
        failures: what went wrong.
        closed: when the port was closed.
    """

    def __init__(self, port: int, credentials: Credentials, *, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._port, self._credentials, self._pause = port, credentials, pause
        self.answered: list[float] = []
        self.asked: list[float] = []
        self.failures: list[str] = []
        self.closed: float | None = None

    def run(self) -> None:
        while self.closed is None:
            try:
                connection = RawConnection(self._port, self._credentials)
            except OSError:
                # Nothing was sent: the port was closed, or was being closed with this connection in its queue.
                self.closed = time.monotonic()
                return
            with connection:
                self._send(connection)

    def _send(self, connection: RawConnection) -> None:
        while True:
            try:
                response = connection.request("/bytes/100")
            except Exception as error:  # noqa: BLE001 (whatever it is, a request was lost)
                self.failures.append(repr(error))
                return
            now = time.monotonic()
            self.answered.append(now)
            if response.status != 200:
                self.failures.append(f"status {response.status}")
            if response.get("connection") == "close":
                self.asked.append(now)
                return
            time.sleep(self._pause)


class LeavingTests(SynchronousTestCase):
    """A proxy in a pod that is deleted."""

    def setUp(self) -> None:
        found = SHARED.get()
        self.probes = free_port()
        settings = {"drainDelay": "2s", "probesAddr": f"127.0.0.1:{self.probes}"}
        self.proxy = RunningProxy(found.authority, found.application, settings=settings).start()
        self.addCleanup(self.proxy.stop)
        self.senders = [Sender(self.proxy.port, found.credentials, pause=0.02 * number) for number in range(3)]
        for each in self.senders:
            each.start()
        eventually(lambda: all(len(each.answered) > 5 for each in self.senders), what="answers")
        self.assertEqual([], [each.asked for each in self.senders if each.asked])

    def leave(self) -> float:
        """Send the signal; gives the time before it."""
        began = time.monotonic()
        self.proxy.signal(signal.SIGUSR1)
        return began

    def check(self, began: float) -> None:
        """Nothing is lost, each client was asked to leave, the port closes after the delay, the status is 0."""
        self.assertEqual(0, self.proxy.wait())
        for each in self.senders:
            each.join(60)
            self.assertEqual([], each.failures)
            self.assertTrue(each.asked)
            assert each.closed is not None
            self.assertGreaterEqual(each.closed - began, 2.0)
            self.assertGreater(len([at for at in each.answered if at > each.asked[0]]), 0)
        [finished] = self.proxy.records("svc.proxy.drain.finished")
        self.assertEqual("success", finished["event"]["outcome"])
        self.assertEqual({"connections_cut": 0, "records_lost": 0}, finished["attributes"])
        [started] = self.proxy.records("svc.proxy.drain.started")
        self.assertEqual(2.0, started["attributes"]["delay"])
        self.assertEqual(1, len(self.proxy.records("svc.process.stopped")))

    def test_alone(self) -> None:
        """The process ends by itself; it is not ready from the signal on."""
        began = self.leave()
        eventually(lambda: answer(self.probes, "/readyz")[0] == 503, what="the end of readiness")
        self.assertEqual(200, answer(self.probes, "/livez")[0])
        self.check(began)

    def test_what_proves_a_response(self) -> None:
        """A client that verifies gets statement and receipt on the connection of its response, which ends then."""
        began = self.leave()
        eventually(lambda: any(each.asked for each in self.senders), what="the end of readiness")
        with RawConnection(self.proxy.port, SHARED.get().credentials) as connection:
            first = connection.request("/bytes/100", fields="Svc-Notarization-Level: signRequest\r\n")
            paths = (f"{NOTARY_PATH}/v1/statements/current", first.get("svc-receipt-location"))
            answers = [first, *(connection.request(path) for path in paths)]  # type: ignore[arg-type]
            self.assertEqual([200] * 3, [each.status for each in answers])
            self.assertEqual([None, None, "close"], [each.get("connection") for each in answers])
        self.check(began)

    def test_with_sigterm(self) -> None:
        """A kubelet sends SIGTERM right behind it, which takes nothing of the delay away."""
        began = self.leave()
        self.proxy.signal(signal.SIGTERM)
        self.check(began)

    def test_sigterm_alone(self) -> None:
        """On a plain machine SIGTERM closes the port at once."""
        self.proxy.signal(signal.SIGTERM)
        self.assertEqual(0, self.proxy.wait())
        [started], [closed] = (
            self.proxy.records(f"svc.proxy.{event}") for event in ("drain.started", "listener.closed")
        )
        self.assertNotIn("delay", started["attributes"])
        began, ended = (datetime.fromisoformat(each["timestamp"]) for each in (started, closed))
        self.assertLess((ended - began).total_seconds(), 1.0)
