"""A killed process loses no acknowledged record."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from svc.store.sqlite import SqliteStore
from tests.store.doubles import InlineReactor, InlineThread, receipt

ROUNDS = 6


class CrashTests(SynchronousTestCase):
    """A writing process is killed in the middle, again and again, on one database."""

    def test_kill_loses_nothing_acknowledged(self) -> None:
        """After each SIGKILL every acknowledged record is found whole, and of each batch all records or none."""
        path = os.path.abspath(os.path.join(self.mktemp(), "notary.db"))
        acknowledged: list[str] = []
        for number in range(ROUNDS):
            printed = self._killed_after(path, number, 40 * (number + 1))
            self.assertGreaterEqual(len(printed), 40 * (number + 1))
            acknowledged += printed
            self._check(path, acknowledged)
        with closing(sqlite3.connect(path)) as database:
            batches = database.execute(
                "SELECT receipt_batch.id, count(receipt.id), max(inclusion) FROM receipt_batch"
                " LEFT JOIN receipt ON receipt.batch = receipt_batch.id GROUP BY receipt_batch.id"
            ).fetchall()
        self.assertGreater(max(count for _batch, count, _inclusion in batches), 1)
        for number, count, inclusion in batches:
            # The double writes the size of the batch, less one, into each inclusion.
            self.assertEqual(inclusion[1] + 1, count, number)

    def test_end_of_a_database_that_hangs(self) -> None:
        """While another process holds the lock, it ends within the commit timeout, with status 1; nothing is lost."""
        # SQLite itself waits for five seconds. A busy machine is asked again, one that waits so long waits each time.
        self.assertTrue(any(self._seconds_to_the_end() < 3.5 for _attempt in range(4)))

    def _seconds_to_the_end(self) -> float:
        path = os.path.abspath(os.path.join(self.mktemp(), "notary.db"))
        command = [sys.executable, "-m", "tests.integration.store_writer", "ending", path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            self.addCleanup(process.kill)
            self.assertEqual("r1 stored\n", process.stdout.readline())
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                began = time.monotonic()
                output, _ = process.communicate("end\n", timeout=120)
                seconds = time.monotonic() - began
        self.assertEqual(("r2 StoreLate\nclose StoreStuck\n", 1), (output, process.returncode))
        self._check(path, ["r1"])
        return seconds

    def _killed_after(self, path: str, number: int, count: int) -> list[str]:
        command = [sys.executable, "-m", "tests.integration.store_writer", "endless", path, f"round{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            printed: list[str] = []
            for line in process.stdout:
                printed.append(line.decode().strip())
                if len(printed) == count:
                    process.kill()
            return printed

    def _check(self, path: str, acknowledged: list[str]) -> None:
        store = SqliteStore(path, reactor=InlineReactor(), reserve_size=256 * 1024, start_thread=InlineThread)
        store.init()
        for name in acknowledged:
            expected = receipt(name, nonce=name, filler="x" * 4096)
            found = self.successResultOf(store.get_receipt(name))
            assert found is not None, name
            if found.batch is not None:
                expected = replace(expected, envelope=None, batch=found.batch, inclusion=found.inclusion)
            self.assertEqual(expected, found, name)
        self.successResultOf(store.close())
