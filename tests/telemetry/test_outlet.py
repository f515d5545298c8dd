"""The way of lines out of the process: in order, whole, and never in the way of the process."""

from __future__ import annotations

import fcntl
import os
import threading

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.outlet import Outlet

#: The smallest buffer of a pipe.
PIPE = 4096


def missing(count: int) -> bytes:
    """Say how many lines are missing."""
    return b"missing %d\n" % count


class OutletTests(SynchronousTestCase):
    """An outlet and a reader at the other end of a pipe."""

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

    def outlet(self, limit: int = 1000) -> Outlet:
        """An outlet that tries again at once."""
        return Outlet(self.writer, missing, limit=limit, retry=0.01)

    def read(self, lines: int) -> list[bytes]:
        """Read that many lines."""
        data = b""
        while data.count(b"\n") < lines:
            data += os.read(self.reader, 65536)
        self.assertTrue(data.endswith(b"\n"))
        return data.splitlines()

    def test_order(self) -> None:
        """Lines come out as they went in, before and after the thread begins."""
        outlet = self.outlet()
        outlet.write(b"one\n")
        self.assertEqual([b"one"], self.read(1))
        outlet.start()
        outlet.start()
        for number in range(50):
            outlet.write(b"%d\n" % number)
        self.assertTrue(outlet.flush(10))
        self.assertEqual([b"%d" % number for number in range(50)], self.read(50))

    def test_reader_stops(self) -> None:
        """A pipe that is full holds nobody up; what does not fit is counted, told in its place, and all goes on."""
        os.write(self.writer, b"-" * (PIPE - 1) + b"\n")
        outlet = self.outlet(limit=1000)
        outlet.start()
        line = b"x" * 99 + b"\n"
        for _number in range(200):
            outlet.write(line)
        dropped = outlet.dropped
        self.assertGreater(dropped, 100)
        self.assertFalse(outlet.flush(0.05))
        _filler, *got = self.read(200 - dropped + 2)
        self.assertEqual([line.strip()] * (200 - dropped) + [b"missing %d" % dropped], got)
        outlet.write(b"later\n")
        self.assertTrue(outlet.flush(10))
        self.assertEqual([b"later"], self.read(1))
        self.assertEqual(0, outlet.dropped)

    def test_limit(self) -> None:
        """As many octets wait as the limit says, and not one more; after the first that did not fit none is taken."""
        outlet = Outlet(os.open("/dev/full", os.O_WRONLY), missing, limit=35)
        self.addCleanup(os.close, outlet._descriptor)
        for expected in (0, 0, 0, 0, 1, 2):
            # The first one is in the writer's hand, not in the queue.
            outlet.write(b"123456789\n")
            self.assertEqual(expected, outlet.dropped)
        outlet.write(b"1\n")
        self.assertEqual(3, outlet.dropped)

    def test_disk_is_full(self) -> None:
        """What a full disk refuses waits; where there is room again nothing is missing or cut."""
        outlet = self.outlet()
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        outlet._descriptor = full
        outlet.write(b"one\n")
        outlet.write(b"two\n")
        self.assertFalse(outlet.flush())
        outlet._descriptor = self.writer
        self.assertTrue(outlet.flush())
        self.assertEqual([b"one", b"two"], self.read(2))

    def test_nobody_reads_any_more(self) -> None:
        """A closed pipe raises nothing; further lines are counted."""
        os.close(self.reader)
        self.reader = -1
        outlet = self.outlet(limit=50)
        for _number in range(20):
            outlet.write(b"123456789\n")
        self.assertEqual(14, outlet.dropped)
        self.assertFalse(outlet.flush())

    @given(st.lists(st.integers(1, 6000), min_size=1, max_size=12))
    def test_no_line_is_cut(self, sizes: list[int]) -> None:
        """Lines that fit into no pipe at once, through one that does not block, come out whole."""
        os.set_blocking(self.writer, False)
        outlet = Outlet(self.writer, missing, limit=10**6)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.extend(self.read(len(sizes))))
        reader.start()
        lines = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
        for line in lines:
            outlet.write(line + b"\n")
        while not outlet.flush():
            pass
        reader.join(60)
        self.assertEqual(lines, got)

    def test_a_line_within_a_line(self) -> None:
        """What is logged while a line is being written, as by an object that is collected then, comes after it."""
        inner: list[bytes] = [b"inner\n"]

        def telling(count: int) -> bytes:
            while inner:
                outlet.write(inner.pop())
            return missing(count)

        outlet = Outlet(self.writer, telling, limit=20)
        outlet.write(b"x" * 30 + b"\n")
        self.assertEqual([b"missing 1", b"inner"], self.read(2))
