"""Log records of exchanges by a real process, each once, and the audit chain of access attempts."""

from __future__ import annotations

import io
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from svc.telemetry import audit
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

COUNT = 4
ID = "spiffe://example.org/ns/shop/sa/api"


class _Case(SynchronousTestCase):
    settings: Mapping[str, Any]

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
        application = f"127.0.0.1:{webapp.start(stack)}"
        self.proxy = stack.enter_context(RunningProxy(authority, application, settings=self.settings))
        self.credentials = Credentials.fetch(authority, short_folder(stack))


class AuditTests(_Case):
    """A proxy that audits every access attempt, and serves one identity only."""

    settings: Mapping[str, Any] = {"auditLog": "all", "policy": {"default": "deny", "allow": [ID]}}

    def audited(self, name: str) -> list[dict[str, Any]]:
        """Return the audit records of an event."""
        records = self.proxy.records(name)
        self.assertEqual({"audit"}, {each["event"]["category"] for each in records} | {"audit"})
        return records

    def reload(self, **settings: Any) -> None:
        """Reload another configuration."""
        before = len(self.proxy.records("svc.config.reloaded"))
        self.proxy.config.update(settings)
        self.proxy.write_config()
        self.proxy.signal(signal.SIGHUP)
        eventually(lambda: len(self.proxy.records("svc.config.reloaded")) > before, what="the end of the reload")

    def test_access_attempts(self) -> None:
        """Recorded exchanges, refused connections and denied requests form one complete chain, across reloads."""
        with RawConnection(self.proxy.port, self.credentials) as connection:
            sign = "Svc-Notarization-Level: signRequest\r\n"
            self.assertEqual(200, connection.request("/bytes/1?token=hunter2", fields=sign).status)
            self.assertEqual(200, connection.request("/bytes/2").status)
        with RawConnection(self.proxy.port) as plain:
            plain.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            plain.rest()
        self.reload(policy={"default": "deny"}, auditLog="denials")
        with RawConnection(self.proxy.port, self.credentials) as connection:
            for _turn in range(5):
                self.assertEqual(403, connection.request("/secret/path?token=hunter2").status)
        self.reload(auditLog="off")
        with RawConnection(self.proxy.port, self.credentials) as connection:
            self.assertEqual(403, connection.request("/unwatched").status)
        self.assertEqual(0, self.proxy.halt())
        [recorded] = self.audited("svc.proxy.access.recorded")
        self.assertEqual((ID, "/bytes/1"), (recorded["user"], recorded["attributes"]["url.path"]))
        self.assertEqual(43, len(recorded["attributes"]["receipt_id"]))
        refused, *denied = self.audited("svc.proxy.access.denied")
        self.assertEqual("handshake_failed", refused["detail_reason"])
        self.assertNotIn("user", refused)
        self.assertEqual({(ID, "/secret/path", 403)}, {self.attempt(each) for each in denied})
        suppressed = sum(each["attributes"]["suppressed"] for each in self.audited("svc.proxy.access.suppressed"))
        self.assertEqual(5, len(denied) + suppressed)
        loaded = [each["attributes"]["changed"] for each in self.audited("svc.config.loaded")]
        self.assertEqual(["auditLog, policy", "auditLog"], loaded)
        operational = self.proxy.records("svc.config.reloaded")
        self.assertEqual(["operational"] * 2, [each["event"]["category"] for each in operational])
        self.assertNotIn("hunter2", self.proxy.log)
        out = io.StringIO()
        self.assertEqual(0, audit.main([str(self.proxy.log_path)], out), out.getvalue())

    @staticmethod
    def attempt(record: dict[str, Any]) -> tuple[Any, ...]:
        """Check that each record has the client, what it asked for, and the result."""
        attributes = record["attributes"]
        return record["user"], attributes["url.path"], attributes["http.response.status_code"]


#: Answers with fifteen octets of known length.
ANSWER = "/bytes/15"


class AccessLogTests(_Case):
    """One proxy with a log of paths."""

    settings: Mapping[str, Any] = {"accessLog": "path"}

    def served(self, path: str) -> list[dict[str, Any]]:
        """Return the records of exchanges with a path."""
        records = self.proxy.records("svc.proxy.request.served")
        return [each for each in records if each["attributes"].get("url.path") == path]

    def outcomes(self) -> dict[str, str]:
        """Return the outcome that the database has for each record."""
        path = Path(self.proxy.config["notary"]["path"])
        with closing(sqlite3.connect(path, timeout=60)) as database:
            return dict(database.execute("SELECT id, outcome FROM receipt"))

    def post(self, number: int) -> RawConnection:
        """Stream a POST whose record is signed, up to the end of the request."""
        connection = RawConnection(self.proxy.port, self.credentials)
        self.addCleanup(connection.close)
        head = f"POST {ANSWER}?token=hunter2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {new_nonce(bytes([number]) * 16)}\r\n\r\n"
        connection.send(f"{head}{fields}".encode())
        for _piece in range(3):
            connection.send(b"5\r\nhello\r\n")
        connection.send(b"0\r\n\r\n")
        return connection

    def test_clients_that_leave_in_the_commit(self) -> None:
        """Each exchange has one log record, which matches its receipt and names it, and one measured duration."""
        database = closing(sqlite3.connect(self.proxy.config["notary"]["path"], timeout=60, isolation_level=None))
        with database as locked:
            # While another process writes, no record becomes durable, and no response is released.
            locked.execute("BEGIN IMMEDIATE")
            for number in range(COUNT):
                connection = self.post(number)
                waiting = partial(self.proxy.metric, "svc_proxy_notary_signatures_waiting")
                eventually(lambda: waiting() == number + 1, what="a record that waits for its commit")  # noqa: B023
                connection.reset()
            eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), what="the end of all clients")
            self.assertEqual([], self.served(ANSWER))
            locked.execute("ROLLBACK")
        eventually(lambda: len(self.served(ANSWER)) == COUNT, what="a record for each exchange")
        outcomes = self.outcomes()
        for record in self.served(ANSWER):
            attributes = record["attributes"]
            self.assertEqual("complete", outcomes[attributes["receipt_id"]])
            self.assertEqual((15, 15), (attributes["request_octets"], attributes["response_octets"]))
            self.assertEqual(
                ("web", "inbound", "POST", 200, "complete", "signRequest", ID, "success"),
                (
                    attributes["listener"],
                    attributes["direction"],
                    attributes["http.request.method"],
                    attributes["http.response.status_code"],
                    attributes["outcome"],
                    attributes["level"],
                    record["peer_spiffe_id"],
                    record["event"]["outcome"],
                ),
            )
        durations = "svc_proxy_request_duration_seconds_count"
        self.assertEqual(COUNT, self.proxy.metric(durations, http_method="POST"))
        self.assertNotIn("hunter2", self.proxy.log)

    def test_every_end(self) -> None:
        """An aborted stream, an unreadable request, an upgrade and a look-up are logged too."""
        with RawConnection(self.proxy.port, self.credentials) as leaving:
            leaving.send(b"GET /drip/900/1 HTTP/1.1\r\nHost: a\r\n\r\n")
            leaving.line()
            leaving.reset()
        with RawConnection(self.proxy.port, self.credentials) as broken:
            broken.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
            self.assertEqual(400, broken.read().status)
        with RawConnection(self.proxy.port, self.credentials) as joined:
            answer = joined.request("/socket", fields="Connection: Upgrade\r\nUpgrade: chat\r\n")
            self.assertEqual(101, answer.status)
            joined.send(b"hello")
            self.assertEqual(b"hello", joined.exactly(5))
        with RawConnection(self.proxy.port, self.credentials) as asking:
            self.assertEqual(200, asking.request("/.well-known/svc-notary/v1/statements/current").status)

        def found() -> list[tuple[Any, ...]]:
            names = ("url.path", "http.response.status_code", "outcome", "notary_lookup")
            attributes = [each["attributes"] for each in self.proxy.records("svc.proxy.request.served")]
            return [tuple(each.get(name) for name in names) for each in attributes]

        expected = {
            ("/drip/900/1", 200, "client_aborted", None),
            (None, 400, "complete", None),
            ("/socket", 101, "upgraded", None),
            ("/.well-known/svc-notary/v1/statements/current", 200, "complete", True),
        }
        eventually(lambda: len(found()) >= len(expected), what="a record for each exchange")
        self.assertEqual(expected, set(found()))
        self.assertEqual(len(expected), len(found()))
        [socket] = self.served("/socket")
        self.assertEqual((5, 5), (socket["attributes"]["request_octets"], socket["attributes"]["response_octets"]))
