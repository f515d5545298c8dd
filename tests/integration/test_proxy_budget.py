"""Limits of the records that one client can cause: requests beyond them are refused and not forwarded."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy

LOG = "Svc-Notarization-Level: logRequest\r\n"
LARGE = LOG + f"X: {'x' * 30_000}\r\n"


class BudgetTests(SynchronousTestCase):
    """A proxy with small budgets."""

    def setUp(self) -> None:
        """Start nothing yet."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        self.application = webapp.start(self.stack)

    def connect(self, **notary: object) -> RawConnection:
        """Start the proxy and connect to it."""
        proxy = RunningProxy(self.authority, f"127.0.0.1:{self.application}", notary=notary)
        self.proxy = self.stack.enter_context(proxy)
        credentials = Credentials.fetch(self.authority, short_folder(self.stack))
        return self.stack.enter_context(RawConnection(self.proxy.port, credentials))

    def refused(self, connection: RawConnection, fields: str, most: int) -> tuple[int, int]:
        """Send requests until one is refused; returns how many were served and when the next one would be."""
        for served in range(most):
            answer = connection.request("/bytes/1", fields=fields)
            if answer.status == 429:
                self.assertEqual(json.loads(answer.body)["code"], "notary_rate")
                self.assertEqual(self.proxy.metric("svc_proxy_notary_records_total", result="success"), served)
                return served, int(answer.get("retry-after") or "")
            self.assertEqual(answer.status, 200)
        raise AssertionError(f"{most} requests were served")

    def test_octets(self) -> None:
        """Large records use the octets up, until the seconds of the refusal are over; other levels are served."""
        connection = self.connect(recordOctetsPerSecond="32KiB", recordOctetsBurst="1MiB")
        served, seconds = self.refused(connection, LARGE, 200)
        self.assertGreater(served, 20)
        self.assertEqual(connection.request("/bytes/1").status, 200)
        time.sleep(seconds)
        self.assertEqual(connection.request("/bytes/1", fields=LARGE).status, 200)

    def test_records(self) -> None:
        """Records without a signature have a rate too."""
        connection = self.connect(receiptsPerSecond=1, receiptsBurst=5)
        served, seconds = self.refused(connection, LOG, 100)
        self.assertGreaterEqual(served, 5)
        time.sleep(seconds)
        self.assertEqual(connection.request("/bytes/1", fields=LOG).status, 200)
