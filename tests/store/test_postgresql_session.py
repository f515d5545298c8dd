"""PostgreSQL sessions without a server: time limits, messages for operators, the delay before the next attempt."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from twisted.trial.unittest import SynchronousTestCase

from svc.store.errors import DatabaseUnavailable, StoreError
from svc.store.postgresql.address import DatabaseAddress
from svc.store.postgresql.session import AnswerMissing, PostgresSession, bounded, check_server, conninfo, server_message
from svc.store.postgresql.store import RETRY_FIRST, RETRY_LEAST, RETRY_MOST, PostgresStore
from tests.refusals import assert_refused
from tests.store.doubles import InlineReactor, InlineThread, RecordingObserver

ADDRESS = DatabaseAddress.parse("postgresql:///notary?host=/nowhere")


class BoundedTests(SynchronousTestCase):
    """Time limits of waits for the server."""

    def asking(self, times: int) -> Generator[str, str, str]:
        replies: list[str] = []
        while len(replies) < times:
            replies.append((yield f"wait {len(replies)}"))
        return " ".join(replies)

    def test_answer_in_time(self) -> None:
        """Before the limit all values, and the result, pass unchanged in both directions."""
        bound = bounded(self.asking(2), time.monotonic() + 60)
        self.assertEqual(["wait 0", "wait 1"], [next(bound), bound.send("a")])
        self.assertEqual("a b", self.assertRaises(StopIteration, bound.send, "b").value)

    def test_too_late(self) -> None:
        """After the limit the generator fails with AnswerMissing when it is resumed."""
        bound = bounded(self.asking(2), time.monotonic() - 1)
        next(bound)
        self.assertRaises(AnswerMissing, bound.send, "")

    def test_failure(self) -> None:
        """Exceptions of the library are not changed."""

        def failing() -> Generator[str, str, None]:
            yield "wait"
            raise psycopg.DataError("no")

        bound = bounded(failing(), time.monotonic() + 60)
        next(bound)
        self.assertRaises(psycopg.DataError, bound.send, "")


class MessageTests(SynchronousTestCase):
    """Messages for operators."""

    def test_first_line(self) -> None:
        """One line, without control characters, of bounded length."""
        self.assertEqual("a\\x1bb", server_message(psycopg.OperationalError("a\x1bb\nsecond line")))
        self.assertLess(len(server_message(psycopg.OperationalError("x" * 5000))), 250)

    def test_unsafe(self) -> None:
        """A server without fsync is refused for writing and accepted for reading."""
        assert_refused(self, "store_unsafe", check_server, "db/n", (150000, "off", False, "on"), durable=True)
        self.assertEqual("off", check_server("db/n", (150000, "off", True, "on"), durable=False))

    def test_standby(self) -> None:
        """A standby is refused for writing."""
        self.assertRaises(
            psycopg.errors.ReadOnlySqlTransaction, check_server, "db/n", (150000, "on", True, "on"), durable=True
        )


class ConninfoTests(SynchronousTestCase):
    """The connection parameters."""

    def test_environment_is_ignored(self) -> None:
        """With explicit hosts no address of the environment replaces them; a verified service has its own."""
        verified = "sslmode=verify-full&sslrootcert=/ca.pem"
        for url, hostaddr in (
            ("postgresql://localhost/n", ""),
            ("postgresql:///n?host=/run/postgresql", ""),
            (f"postgresql://db.example/n?{verified}", ""),
            (f"postgresql:///n?service=notary&{verified}", None),
        ):
            given = conninfo_to_dict(conninfo(DatabaseAddress.parse(url)))
            self.assertEqual(given.get("hostaddr"), hostaddr, url)


class OpeningTests(SynchronousTestCase):
    """The store before it has a session."""

    def make(self, jitter: float = 1.0, error: Exception | None = None) -> PostgresStore:
        def refusing() -> PostgresSession:
            raise error or psycopg.OperationalError("not there")

        self.observer = RecordingObserver()
        return PostgresStore(
            ADDRESS,
            reactor=InlineReactor(),
            observer=self.observer,
            jitter=lambda: jitter,
            write_connect=refusing,
            start_thread=InlineThread,
        )

    def test_refused(self) -> None:
        """Errors of the server and of the library become one error of the store, with address and message."""
        error: Any = self.assertRaises(DatabaseUnavailable, self.make().init)
        self.assertEqual(("/nowhere/notary", "not there"), (error.path, error.detail))
        self.assertEqual([("init", "db")], self.observer.errors)

    def test_error_of_the_store(self) -> None:
        """An error of the store is not changed."""
        unsafe = StoreError("store_unsafe", path="db/n", detail="fsync = off")
        self.assertIs(unsafe, self.assertRaises(StoreError, self.make(error=unsafe).init))

    def test_spans(self) -> None:
        """The delay is a random part of a span that doubles up to its limit, never zero."""
        spans = [self.make()._retry_delay(attempt) for attempt in (0, 1, 2, 6, 7, 10**6)]
        self.assertEqual([RETRY_FIRST, RETRY_FIRST * 2, RETRY_FIRST * 4, RETRY_MOST, RETRY_MOST, RETRY_MOST], spans)
        self.assertEqual(RETRY_MOST / 2, self.make(0.5)._retry_delay(20))
        self.assertEqual(RETRY_LEAST, self.make(0.0)._retry_delay(20))
