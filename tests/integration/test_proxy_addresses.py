"""The addresses that a proxy listens at: both families, and the error of a second proxy on the host."""

from __future__ import annotations

import urllib.request
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    credentials = Credentials.fetch(authority, short_folder(stack))
    return SimpleNamespace(authority=authority, application=f"127.0.0.1:{webapp.start(stack)}", credentials=credentials)


SHARED = Shared(_make)


class AddressTests(SynchronousTestCase):
    """One proxy whose addresses have no host."""

    def test_both_families(self) -> None:
        """Listener, metrics and pages answer at 127.0.0.1 and at ::1; a denied IPv4 client has its IPv4 address."""
        shared = SHARED.get()
        port, pages, metrics = free_port(), free_port(), free_port()
        proxy = RunningProxy(
            shared.authority,
            shared.application,
            listener={"listen": f":{port}"},
            settings={"policy": {"default": "deny"}, "adminAddr": f":{pages}", "metricsAddr": f":{metrics}"},
        )
        self.addCleanup(proxy.stop)
        proxy.admin_port, proxy.metrics_port, proxy.port = pages, metrics, port
        proxy.start()
        for host, shown in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
            with RawConnection(port, shared.credentials, host=host) as connection:
                self.assertEqual(403, connection.request("/").status)
            for number, page in ((pages, "readyz"), (metrics, "metrics")):
                with urllib.request.urlopen(f"http://{shown}:{number}/{page}", timeout=60) as answer:
                    self.assertEqual(200, answer.status)
            eventually(
                lambda host=host: [
                    each
                    for each in proxy.records("svc.proxy.request.denied")
                    if each["attributes"]["source.address"] == host
                ],
                what=f"a denial of {host}",
            )
        [opened] = proxy.records("svc.proxy.listener.opened")
        self.assertEqual(f"[::]:{port}", opened["attributes"]["address"])
        self.assertNotIn("starting on", proxy.log)
        self.assertEqual([], [each for each in proxy.log.splitlines() if "::ffff:" in each])
