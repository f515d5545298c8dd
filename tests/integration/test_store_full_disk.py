"""A full disk costs no acknowledged record, and the store takes records again when there is room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.store.errors import StoreUnavailable
from svc.store.sqlite import SqliteStore
from tests.store.doubles import InlineReactor, InlineThread, RecordingObserver, receipt

RESERVE = 1024 * 1024


class FileSizeLimitTests(SynchronousTestCase):
    """The system's own limit on the size of a file replaces the full disk; needs no privilege."""

    def test_writes_refused_and_back(self) -> None:
        """Records are stored up to the limit, refused there, stored again above it; none acknowledged is missing."""
        path = os.path.abspath(os.path.join(self.mktemp(), "notary.db"))
        command = [sys.executable, "-m", "tests.integration.store_writer", "limited", path]
        ran = subprocess.run(command, capture_output=True, timeout=180, check=False)
        self.assertEqual((0, b""), (ran.returncode, ran.stderr))
        result = json.loads(ran.stdout)
        self.assertGreater(result["acknowledged"], 10)
        self.assertEqual("notary_unavailable", result["reason"])
        self.assertFalse(result["writableAtTheLimit"])
        # Emptying the log can free space, so the store may be writable in between; it is at the end, then closed.
        self.assertEqual([True, False], result["writable"][:2])
        self.assertEqual([True, False], result["writable"][-2:])
        self.assertEqual([], result["missing"])
        self.assertTrue(result["errors"])


class FullDiskTests(SynchronousTestCase):
    """A small file system in memory is filled to the last block; needs the right to mount."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", self.folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            os.rmdir(self.folder)
            raise SkipTest("this user may not mount a file system")
        self.addCleanup(self._unmount)
        self.clock = InlineReactor()
        self.observer = RecordingObserver()
        self.store = SqliteStore(
            os.path.join(self.folder, "notary.db"),
            reactor=self.clock,
            observer=self.observer,
            reserve_size=RESERVE,
            start_thread=InlineThread,
        )
        self.store.init()
        self.filler = os.path.join(self.folder, "filler")

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)
        os.rmdir(self.folder)

    def _fill(self) -> None:
        with open(self.filler, "ab", buffering=0) as file:
            while True:
                try:
                    file.write(b"\0" * 4096)
                except OSError:
                    return

    def _put(self, number: int) -> bool:
        put = self.store.put_receipt(receipt(f"r{number}", filler="x" * 4096))
        failures: list[object] = []
        put.addErrback(failures.append)
        return not failures

    def test_reserve_carries_what_runs(self) -> None:
        """On a full disk records in flight are stored in the reserve, and the store reports at once that it is full."""
        self._fill()
        stored = 0
        while self.store.writable:
            self.assertTrue(self._put(stored))
            stored += 1
        for number in range(stored, stored + 20):
            self.assertTrue(self._put(number), "the reserve has room for twenty more")
        stored += 20
        self.assertEqual(0, os.stat(f"{self.store.path}.reserve").st_blocks)
        for number in range(stored):
            self.assertIsNotNone(self.successResultOf(self.store.get_receipt(f"r{number}")))
        self.successResultOf(self.store.close())

    def test_writable_when_there_is_room(self) -> None:
        """Without room the retry changes nothing; with room the reserve is back and new records are accepted."""
        self._fill()
        stored = 0
        while self._put(stored):
            stored += 1
        refused = self.store.put_receipt(receipt("refused"))
        self.failureResultOf(refused, StoreUnavailable)
        self.assertFalse(self.store.writable)
        self.clock.advance(1)
        self.assertFalse(self.store.writable)
        os.unlink(self.filler)
        self.clock.advance(1)
        self.assertTrue(self.store.writable)
        self.assertGreaterEqual(os.stat(f"{self.store.path}.reserve").st_blocks * 512, RESERVE)
        self.assertTrue(self._put(100_000))
        for number in [*range(stored), 100_000]:
            self.assertIsNotNone(self.successResultOf(self.store.get_receipt(f"r{number}")))
        self.successResultOf(self.store.close())
