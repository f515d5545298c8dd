"""The notary database of a running proxy is damaged, or does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
from contextlib import ExitStack, closing

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.faulty_disk import Breakable, later, seconds_of
from tests.peers.independent_clients import Ended
from tests.peers.waiting import eventually


class DamageTestCase(SynchronousTestCase):
    """One proxy."""

    def setUp(self) -> None:
        """A proxy that serves, with receipts in its database."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.proxy = Breakable(self.stack)
        self.proxy.serve()
        for _number in range(8):
            self.assertEqual(200, self.proxy.ask("signRequest").status)

    def end(self) -> None:
        """Stop the proxy in order, so that everything is in the database."""
        self.assertEqual(0, self.proxy.halt())

    def overwrite(self, start: int) -> None:
        """Destroy the database from an octet on."""
        size = os.path.getsize(self.proxy.database)
        with self.proxy.database.open("r+b") as file:
            file.seek(start)
            file.write(random.Random(start).randbytes(size - start))

    def refused_in_time(self) -> None:
        """Records are refused before the application gets the request; all else is served."""
        asked = len(self.proxy.application.asked)
        for level in ("logRequest", "signRequest"):
            answer = self.proxy.ask(level)
            self.assertEqual((503, "notary_unavailable"), (answer.status, json.loads(answer.body)["code"]))
        self.assertEqual(asked, len(self.proxy.application.asked))
        self.assertEqual(200, self.proxy.ask("workload").status)
        self.assertEqual(0.0, self.proxy.metric("svc_proxy_notary_writable"))


class DamageTests(DamageTestCase):
    """Octets are destroyed."""

    def test_at_the_start(self) -> None:
        """The start fails once and reports both paths; the next one creates a new database; the old file is kept."""
        proxy = self.proxy
        self.end()
        self.overwrite(4096)
        before = proxy.database.read_bytes()
        self.assertEqual(1, proxy.launch().wait())
        [logged] = proxy.records("svc.store.set_aside")
        self.assertEqual(("ERROR", "audit"), (logged["severity"], logged["event"]["category"]))
        aside = logged["attributes"]["aside"]
        self.assertEqual(str(proxy.database), logged["attributes"]["path"])
        self.assertTrue(aside.startswith(f"{proxy.database}.corrupt-2"))
        [failed] = proxy.records("svc.process.start_failed")
        self.assertEqual("store_corrupt", failed["detail_reason"])
        self.assertIn(aside, failed["message"])
        self.assertIn("docs/operations.md", failed["detail"])
        self.assertFalse(proxy.database.exists())
        old, proxy.acknowledged = proxy.acknowledged, []
        proxy.serve()
        self.assertEqual(200, proxy.ask("signRequest").status)
        self.assertEqual([], proxy.lost())
        [remaining] = eventually(lambda: proxy.records("svc.store.lies_aside"))
        self.assertEqual({"databases": 1, "newest": aside}, remaining["attributes"])
        proxy.acknowledged = old
        self.assertEqual(old, proxy.lost())
        with open(aside, "rb") as file:
            self.assertEqual(before, file.read())

    def test_in_use(self) -> None:
        """Damage under a running proxy ends the records and nothing else; the next start sets the database aside."""
        proxy = self.proxy
        self.end()
        proxy.serve()
        self.overwrite(4096)
        with contextlib.suppress(Ended):
            proxy.ask("signRequest")
        eventually(lambda: proxy.records("svc.store.damaged"), 60, "a word of the damage")
        self.refused_in_time()
        self.assertGreaterEqual(proxy.errors_counted(), 1.0)
        self.assertEqual(
            (False, "notary_unavailable"), tuple(proxy.readiness()["store"][key] for key in ("ok", "reason"))
        )
        self.end()
        self.assertEqual(1, len(proxy.records("svc.store.damaged")))
        self.assertEqual(1, proxy.launch().wait())
        self.assertEqual(1, len(proxy.records("svc.store.set_aside")))


class HangingTests(DamageTestCase):
    """A commit that does not finish, since another process holds the lock of the database."""

    def test_commit_that_hangs(self) -> None:
        """The exchange is cut within the commit timeout; the store recovers when the lock is released."""
        proxy = self.proxy
        broken: list[Exception] = []

        def ask() -> None:
            try:
                proxy.ask("signRequest")
            except Ended as error:
                broken.append(error)

        with closing(sqlite3.connect(proxy.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            errors = proxy.errors_counted()
            waiting = later(ask)
            self.assertLess(seconds_of(lambda: waiting.join(60)), 45)
            self.assertEqual(1, len(broken))
            self.assertGreater(proxy.errors_counted(), errors)
            self.refused_in_time()
            self.assertEqual([], proxy.lost())
            other.execute("ROLLBACK")
        eventually(lambda: proxy.readiness()["store"]["ok"], 60, "a store that takes records")
        self.assertEqual(200, proxy.ask("signRequest").status)
        self.assertEqual([], proxy.lost())
