"""The process itself: its configuration, start, errors at the start, and exit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection, Response
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually
from tests.telemetry.schema import defects


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    return SimpleNamespace(
        authority=authority,
        application=f"127.0.0.1:{webapp.start(stack)}",
        credentials=Credentials.fetch(authority, short_folder(stack)),
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.authority: RunningAuthority = found.authority
        self.credentials: Credentials = found.credentials
        self.application: str = found.application

    def proxy(self, **options: Any) -> RunningProxy:
        """A proxy that ends with the test."""
        proxy = RunningProxy(self.authority, self.application, **options)
        self.addCleanup(proxy.stop)
        return proxy

    def assert_only_records(self, proxy: RunningProxy) -> list[dict[str, Any]]:
        """Standard output holds valid records and nothing else, standard error nothing."""
        records = [json.loads(line) for line in proxy.log.splitlines()]
        for record in records:
            self.assertEqual([], defects(record), record)
        self.assertEqual("", proxy.errors)
        return records


class ConfigurationTests(_Case):
    """``--check-config``."""

    def check(self, proxy: RunningProxy) -> subprocess.CompletedProcess[str]:
        """Run it on the file alone."""
        proxy.write_config()
        command = proxy.command("--check-config", "--offline")
        return subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, env=environment(), cwd=proxy.folder
        )

    def test_valid(self) -> None:
        """A valid file is reported as valid; nothing is opened for that."""
        proxy = self.proxy(settings={"spiffeSocketPath": "unix:///no/such.sock"})
        ran = self.check(proxy)
        self.assertEqual((0, f"{proxy.config_path} is valid\n", ""), (ran.returncode, ran.stdout, ran.stderr))
        self.assertFalse((proxy.folder / "notary.db").exists())

    def test_every_problem(self) -> None:
        """All defects are reported at once, each in a line with its key, its value and what was expected."""
        proxy = self.proxy(listener={"notarization": "always", "upstrem": "x"}, settings={"drainTimeout": "5"})
        proxy.config["listeners"].append({"name": "later", "protocol": "amqp", "direction": "inbound"})
        ran = self.check(proxy)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        lines = ran.stderr.splitlines()
        self.assertEqual([], [line for line in lines if not line.startswith(f"svc: {proxy.config_path}: ")])
        for key, value, expected in (
            ("listeners[0].notarization", "always", "signRequest"),
            ("listeners[0].upstrem", "", ""),
            ("listeners[1].protocol", "amqp", "http"),
            ("drainTimeout", "5", "10s"),
        ):
            found = [line for line in lines if f" {key}" in line and value in line and expected in line]
            self.assertEqual(1, len(found), (key, lines))

    def test_unreadable(self) -> None:
        """No file, and no YAML, are a line and a hint each."""
        proxy = self.proxy()
        proxy.config_path = proxy.folder / "broken.yaml"
        command = proxy.command("--check-config")
        for content in (None, "listeners: [\n"):
            if content is not None:
                proxy.config_path.write_text(content)
            ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=environment())
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            line, hint = ran.stderr.splitlines()
            self.assertIn("broken.yaml", line)
            self.assertTrue(hint.startswith("     check "), hint)

    def test_start_with_problems(self) -> None:
        """A proxy with a bad configuration does not start."""
        proxy = self.proxy(listener={"notarization": "always"})
        proxy.launch()
        self.assertEqual(1, proxy.wait())
        self.assertIn("listeners[0].notarization", proxy.errors)
        self.assertNotIn("Traceback", proxy.errors)


class StartTests(_Case):
    """Failures of the start."""

    def failed(self, proxy: RunningProxy, reason: str) -> dict[str, Any]:
        """Assert that it ends with status 1 and one record of the reason; return the record."""
        proxy.launch()
        self.assertEqual(1, proxy.wait())
        records = self.assert_only_records(proxy)
        [error] = [each for each in records if each["event"]["name"] == "svc.process.start_failed"]
        self.assertEqual(("ERROR", reason), (error["severity"], error["detail_reason"]))
        return error

    def test_port_taken(self) -> None:
        """A taken port is reported with its address and the listener's name."""
        proxy = self.proxy()
        with socket.create_server(("127.0.0.1", proxy.port)):
            error = self.failed(proxy, "listen_failed")
        self.assertIn(f"127.0.0.1:{proxy.port}", error["message"])
        self.assertIn("web", error["message"])
        self.assertIn("in use", error["message"])

    def test_operators_port_taken(self) -> None:
        """So is a taken port of the metrics or the operator's pages."""
        for name in ("metrics_port", "admin_port"):
            proxy = self.proxy()
            port = getattr(proxy, name)
            with socket.create_server(("127.0.0.1", port)):
                error = self.failed(proxy, "listen_failed")
            self.assertIn(f"127.0.0.1:{port}", error["message"])

    def test_no_workload_api(self) -> None:
        """Without a Workload API the proxy fails after ``startTimeout`` and reports what is missing."""
        proxy = self.proxy(settings={"spiffeSocketPath": "unix:///no/such.sock", "startTimeout": "2s"})
        began = time.monotonic()
        error = self.failed(proxy, "workload_api_unavailable")
        self.assertLess(time.monotonic() - began, 45)
        self.assertIn("/no/such.sock", error["message"])
        self.assertIn("svc-authority", error["detail"])

    def test_no_identity(self) -> None:
        """A Workload API that has no identity for the process has its own error."""
        with RunningAuthority(entries=[entry("/ns/shop/sa/api", executable="/bin/true")]) as strict:
            settings = {"spiffeSocketPath": strict.address, "startTimeout": "2s"}
            error = self.failed(self.proxy(settings=settings), "workload_api_unavailable")
        self.assertIn("no identity", error["message"])

    def test_database_unusable(self) -> None:
        """A database that cannot be opened ends the start."""
        proxy = self.proxy()
        (proxy.folder / "file").touch()
        proxy.config["notary"]["path"] = str(proxy.folder / "file" / "notary.db")
        error = self.failed(proxy, "notary_unavailable")
        self.assertIn(str(proxy.folder / "file"), error["message"])


class EndTests(_Case):
    """SIGTERM."""

    def test_drain(self) -> None:
        """Running exchanges end whole and recorded, new connections are refused, the status is 0."""
        proxy = self.proxy(settings={"drainTimeout": "60s"}).start()
        nonce = new_nonce(os.urandom(16))
        notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
        got: list[Response] = []

        def client() -> None:
            with RawConnection(proxy.port, self.credentials) as connection:
                got.append(connection.request("/drip/20/0.1", fields=notary_fields))

        with RawConnection(proxy.port, self.credentials) as idle:
            idle.request("/bytes/1")
            thread = threading.Thread(target=client)
            thread.start()
            eventually(lambda: proxy.metric("svc_proxy_notary_level_total", level="signRequest") == 1)
            proxy.signal(signal.SIGTERM)
            eventually(lambda: not _accepts(proxy.port), 60, "that the port is closed")
            self.assertTrue(idle.ended())
            thread.join(60)
        self.assertEqual([b"." * 20], [each.body for each in got])
        self.assertEqual(0, proxy.wait())
        records = self.assert_only_records(proxy)
        names = [each["event"]["name"] for each in records]
        for name in ("svc.proxy.drain.started", "svc.proxy.drain.finished", "svc.process.stopped"):
            self.assertEqual(1, names.count(name), name)
        finished = next(each for each in records if each["event"]["name"] == "svc.proxy.drain.finished")
        self.assertEqual("success", finished["event"]["outcome"])
        proxy.start()
        with RawConnection(proxy.port, self.credentials) as connection:
            found = connection.request(f"/.well-known/svc-notary/v1/receipts/by-request/{nonce}")
        self.assertEqual(200, found.status)

    def test_drain_ends_in_time(self) -> None:
        """An exchange that does not end is cut when the drain time is over; the status is still 0."""
        proxy = self.proxy(settings={"drainTimeout": "1s"}).start()
        with RawConnection(proxy.port, self.credentials) as connection:
            connection.send(b"GET /drip/900/0.1 HTTP/1.1\r\nHost: test\r\n\r\n")
            connection.exactly(10)
            began = time.monotonic()
            proxy.signal(signal.SIGTERM)
            self.assertLess(connection.rest().count(b"."), 600)
            self.assertEqual(0, proxy.wait())
        self.assertLess(time.monotonic() - began, 60)
        finished = proxy.records("svc.proxy.drain.finished")
        self.assertEqual(["failure"], [each["event"]["outcome"] for each in finished])
        self.assertEqual(1, finished[0]["attributes"]["connections_cut"])

    def test_while_starting(self) -> None:
        """A proxy that still waits for its credentials ends at once."""
        proxy = self.proxy(settings={"spiffeSocketPath": "unix:///no/such.sock", "startTimeout": "60s"}).launch()
        eventually(lambda: proxy.page("/readyz")[0] == 503, 60, "the operator's pages")
        proxy.signal(signal.SIGTERM)
        self.assertEqual(0, proxy.wait(60))
        self.assert_only_records(proxy)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
