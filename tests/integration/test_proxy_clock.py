"""The clock of the machine is set by an hour, forward and back, while authority and proxy run under load."""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.clock import SetClock
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"
HOUR, YEAR = 3600, 365 * 86400
#: The right time again after each error of the clock, and from one error to the other.
STEPS = (HOUR, 0, -HOUR, HOUR, 0)


class Asker(threading.Thread):
    """Asks on one connection all the time, about a hundred times a second."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._connection = RawConnection(port, context)
        self._over = threading.Event()
        self.good = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Send requests until stopped, or until one fails."""
        try:
            while not self._over.wait(0.01) and not self.failures:
                answer = self._connection.request("/bytes/10")
                if (answer.status, answer.body, answer.get("connection")) != (200, webapp.octets(10), None):
                    self.failures.append(f"{answer}")
                self.good += 1
        except (OSError, Ended) as error:
            self.failures.append(repr(error))
        self._connection.close()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self.join(60)


class _Case(SynchronousTestCase):
    life = "6h"

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)
        self.clock = SetClock(self.folder)
        application = webapp.start(self.stack)
        with self.clock.for_children():
            self.authority = self.stack.enter_context(
                RunningAuthority(entries=[entry("/ns/shop/sa/api")], ttl=self.life)
            )
            timeouts = {"response": "5s"}
            self.proxy = RunningProxy(
                self.authority,
                f"127.0.0.1:{application}",
                listener={"timeouts": timeouts},
                notary={"retention": "90d"},
            )
            self.stack.enter_context(self.proxy)

    def credentials(self) -> ssl.SSLContext:
        """Fetch new credentials. The clock of this process is right, so it cannot verify the server's certificate."""
        context = Credentials.fetch(self.authority, self.folder / "id").context()
        context.verify_mode = ssl.CERT_NONE
        return context

    def is_served(self) -> bool:
        """Ask on a new connection with new credentials."""
        try:
            with RawConnection(self.proxy.port, self.credentials()) as connection:
                return connection.request("/bytes/10").status == 200
        except (OSError, Ended):
            return False

    def receipt_times(self, connection: RawConnection, nonce: str) -> tuple[str, str]:
        """Fetch a receipt and read when the exchange began and ended."""
        payload = json.loads(connection.request(RECEIPTS + nonce).body)["payload"]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["svc"]
        return claims["time"]["received"], claims["time"]["completed"]

    def cpu(self) -> float:
        """Seconds of processor time of authority and proxy."""
        found = 0
        for process in (self.authority.process, self.proxy.process):
            assert process is not None
            words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found += int(words[11]) + int(words[12])
        return found / 100

    def is_calm(self) -> bool:
        """Whether authority and proxy together left a processor to others for a while, in a second."""
        began, busy = time.monotonic(), self.cpu()
        time.sleep(1.0)
        return self.cpu() - busy < 0.9 * (time.monotonic() - began)

    def assert_step_logged(self, seconds: int, turn: int) -> None:
        """Both processes log by how much the clock was set, once for each step."""
        for running in (self.authority, self.proxy):
            logged: Any = eventually(
                lambda running=running: running.records("svc.runtime.clock_stepped")[turn:],
                60,
                f"the record of a step of {seconds} s",
            )
            self.assertEqual([seconds], [round(each["attributes"]["seconds"]) for each in logged])

    def assert_sound(self) -> None:
        """Nothing unforeseen happened."""
        self.assertEqual([], self.proxy.records("svc.runtime.failure"))
        self.assertEqual([], self.authority.records("svc.runtime.failure"))
        self.assertEqual("", self.proxy.errors)


class LongLifeTests(_Case):
    """SVIDs that outlive the error of the clock."""

    def test_no_visible_effect(self) -> None:
        """
        No kept connection, wait or deadline is disturbed, new clients are served within seconds, no receipt is wrong.

        And a start with a clock that is a year ahead forgets no record. One test, since starting costs most.
        """
        self._step()
        self._wait_and_start_again()

    def _step(self) -> None:
        asker = Asker(self.proxy.port, self.credentials())
        asker.start()
        idle = RawConnection(self.proxy.port, self.credentials())
        self.addCleanup(idle.close)
        idle.request("/bytes/10")
        before = 0
        for turn, offset in enumerate(STEPS):
            with RawConnection(self.proxy.port, self.credentials()) as slow:
                nonce = new_nonce(os.urandom(16))
                notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
                slow.send(f"GET /slow/1 HTTP/1.1\r\nHost: test\r\n{notary_fields}\r\n".encode())
                time.sleep(0.3)
                self.clock.set(offset)
                # A request that runs during the step is answered, and its receipt does not end before it begins.
                self.assertEqual(b"at last\n", slow.read().body)
                received, completed = self.receipt_times(slow, nonce)
                self.assertLessEqual(received, completed)
            self.assert_step_logged(offset - before, turn)
            eventually(self.is_served, 60, "that a new client is served")
            self.assertEqual([], asker.failures)
            # The processes do what they are asked for, and neither turns in vain.
            eventually(self.is_calm, what="a second in which neither process was busy all the time")
            before = offset
        asker.stop()
        self.assertEqual([], asker.failures)
        self.assertGreater(asker.good, 300)
        self.assertEqual(200, idle.request("/bytes/10").status)
        for cause in ("idle", "timeout", "reauthorization", "peer_expired", "credentials_expired"):
            self.assertEqual(0, self.proxy.metric("svc_proxy_connections_closed_total", cause=cause), cause)
        self.assertTrue(self.proxy.is_ready())
        self.assert_sound()

    def _wait_and_start_again(self) -> None:
        nonce = new_nonce(os.urandom(16))
        with RawConnection(self.proxy.port, self.credentials()) as connection:
            notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
            connection.request("/bytes/10", fields=notary_fields)
            self.clock.set(-HOUR)
            time.sleep(0.2)
            began = time.monotonic()
            self.assertEqual(504, connection.request("/slow/60").status)
            self.assertLess(time.monotonic() - began, 45)
        self.proxy.halt()
        self.clock.set(YEAR)
        with self.clock.for_children():
            self.proxy.start()
        self.clock.set(0)
        eventually(self.is_served, 60, "that a new client is served")
        with RawConnection(self.proxy.port, self.credentials()) as connection:
            self.assertEqual(200, connection.request(RECEIPTS + nonce).status)
        self.assertEqual([], self.proxy.records("svc.store.pruned"))
        self.assert_sound()


class ShortLifeTests(_Case):
    """SVIDs that are valid for ten minutes."""

    life = "10m"

    def test_expired_and_renewed(self) -> None:
        """Expired connections are cut and refused; new credentials arrive at once, and again at the correct time."""
        old = self.credentials()
        with RawConnection(self.proxy.port, old) as kept:
            kept.request("/bytes/10")
            self.clock.set(HOUR)
            self.assertTrue(kept.ended())
        logged = eventually(lambda: self._refused(old), 60, "the refusal")  # type: ignore[arg-type]
        self.assertEqual("expired", logged[-1]["detail_reason"])
        for turn, (before, offset) in enumerate(zip((0, *STEPS), STEPS, strict=False)):
            self.clock.set(offset)
            eventually(self.is_served, 60, f"service after a step to {offset}")
            eventually(self.proxy.is_ready, 60, f"readiness after a step to {offset}")
            self.assert_step_logged(offset - before, turn)
        self.assert_sound()

    def _refused(self, old: Credentials) -> list[dict[str, Any]]:
        """Try once more; returns the records of it. While the proxy has no credentials, there are none."""
        with self.assertRaises(OSError), RawConnection(self.proxy.port, old) as refused:
            refused.request("/bytes/10")
        return self.proxy.records("svc.proxy.auth.denied")
