"""The log writer: lines are whole and in order, and the process never waits."""

from __future__ import annotations

import fcntl
import os
import threading

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.log_writer import LogWriter

#: The smallest buffer of a pipe.
PIPE = 4096


def missing(count: int) -> bytes:
    """Say how many lines are missing."""
    return b"missing %d\n" % count


class LogWriterTests(SynchronousTestCase):
    """A log writer and a reader at the other end of a pipe."""

    def setUp(self) -> None:
        """A pipe with little room."""
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE)
        self.addCleanup(self._close)

    def _close(self) -> None:
        # The reader first: it ends a thread that waits for room.
        for descriptor in (self.reader, self.writer):
            if descriptor >= 0:
                os.close(descriptor)

    def log_writer(self, limit: int = 1000) -> LogWriter:
        """A log writer that retries at once."""
        return LogWriter(self.writer, missing, limit=limit, retry=0.01)

    def read(self, lines: int) -> list[bytes]:
        """Read that many lines."""
        data = b""
        while data.count(b"\n") < lines:
            data += os.read(self.reader, 65536)
        self.assertTrue(data.endswith(b"\n"))
        return data.splitlines()

    def test_order(self) -> None:
        """Lines come out as they went in, before and after the thread begins."""
        log_writer = self.log_writer()
        log_writer.write(b"one\n")
        self.assertEqual([b"one"], self.read(1))
        log_writer.start()
        log_writer.start()
        for number in range(50):
            log_writer.write(b"%d\n" % number)
        self.assertTrue(log_writer.flush(10))
        self.assertEqual([b"%d" % number for number in range(50)], self.read(50))

    def test_reader_stops(self) -> None:
        """A full pipe does not block the caller; lines that do not fit are counted and reported."""
        os.write(self.writer, b"-" * (PIPE - 1) + b"\n")
        log_writer = self.log_writer(limit=1000)
        log_writer.start()
        line = b"x" * 99 + b"\n"
        for _number in range(200):
            log_writer.write(line)
        dropped = log_writer.dropped
        self.assertGreater(dropped, 100)
        self.assertFalse(log_writer.flush(0.05))
        _filler, *got = self.read(200 - dropped + 2)
        self.assertEqual([line.strip()] * (200 - dropped) + [b"missing %d" % dropped], got)
        log_writer.write(b"later\n")
        self.assertTrue(log_writer.flush(10))
        self.assertEqual([b"later"], self.read(1))
        self.assertEqual(0, log_writer.dropped)

    def test_limit(self) -> None:
        """As many octets wait as the limit says, and not one more; after the first that did not fit none is taken."""
        log_writer = LogWriter(os.open("/dev/full", os.O_WRONLY), missing, limit=35)
        self.addCleanup(os.close, log_writer._descriptor)
        for expected in (0, 0, 0, 0, 1, 2):
            # The first one is in the writer's hand, not in the queue.
            log_writer.write(b"123456789\n")
            self.assertEqual(expected, log_writer.dropped)
        log_writer.write(b"1\n")
        self.assertEqual(3, log_writer.dropped)

    def test_disk_is_full(self) -> None:
        """What a full disk refuses waits; where there is room again nothing is missing or cut."""
        log_writer = self.log_writer()
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        log_writer._descriptor = full
        log_writer.write(b"one\n")
        log_writer.write(b"two\n")
        self.assertFalse(log_writer.flush())
        log_writer._descriptor = self.writer
        self.assertTrue(log_writer.flush())
        self.assertEqual([b"one", b"two"], self.read(2))

    def test_closed_reader(self) -> None:
        """A closed pipe raises nothing; further lines are counted."""
        os.close(self.reader)
        self.reader = -1
        log_writer = self.log_writer(limit=50)
        for _number in range(20):
            log_writer.write(b"123456789\n")
        self.assertEqual(14, log_writer.dropped)
        self.assertFalse(log_writer.flush())

    @given(st.lists(st.integers(1, 6000), min_size=1, max_size=12))
    def test_no_line_is_cut(self, sizes: list[int]) -> None:
        """Lines that fit into no pipe at once, through one that does not block, come out whole."""
        os.set_blocking(self.writer, False)
        log_writer = LogWriter(self.writer, missing, limit=10**6)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.extend(self.read(len(sizes))))
        reader.start()
        lines = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
        for line in lines:
            log_writer.write(line + b"\n")
        while not log_writer.flush():
            pass
        reader.join(60)
        self.assertEqual(lines, got)

    def test_a_line_within_a_line(self) -> None:
        """What is logged while a line is being written, as by an object that is collected then, comes after it."""
        inner: list[bytes] = [b"inner\n"]

        def report(count: int) -> bytes:
            while inner:
                log_writer.write(inner.pop())
            return missing(count)

        log_writer = LogWriter(self.writer, report, limit=20)
        log_writer.write(b"x" * 30 + b"\n")
        self.assertEqual([b"missing 1", b"inner"], self.read(2))
