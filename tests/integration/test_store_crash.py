"""A killed process loses no acknowledged record."""

from __future__ import annotations

import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from svc.store.sqlite import SqliteStore
from tests.store.doubles import InlineLane, InlineReactor, receipt

ROUNDS = 6


class CrashTests(SynchronousTestCase):
    """A writing process is killed in the middle, again and again, on one database."""

    def test_kill_loses_nothing_acknowledged(self) -> None:
        """After each SIGKILL every acknowledged record is found whole, and the database opens without repair."""
        path = os.path.abspath(os.path.join(self.mktemp(), "notary.db"))
        acknowledged: list[str] = []
        for number in range(ROUNDS):
            told = self._killed_after(path, number, 40 * (number + 1))
            self.assertGreaterEqual(len(told), 40 * (number + 1))
            acknowledged += told
            self._check(path, acknowledged)

    def _killed_after(self, path: str, number: int, count: int) -> list[str]:
        command = [sys.executable, "-m", "tests.integration.store_writer", "endless", path, f"round{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            told: list[str] = []
            for line in process.stdout:
                told.append(line.decode().strip())
                if len(told) == count:
                    process.kill()
            return told

    def _check(self, path: str, acknowledged: list[str]) -> None:
        store = SqliteStore(path, reactor=InlineReactor(), reserve_size=256 * 1024, lanes=InlineLane)
        store.init()
        for name in acknowledged:
            expected = receipt(name, nonce=name, filler="x" * 4096)
            self.assertEqual(expected, self.successResultOf(store.get_receipt(name)), name)
        self.successResultOf(store.close())
