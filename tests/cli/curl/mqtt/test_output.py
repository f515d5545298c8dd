"""Tests of ``svc.cli.curl.mqtt.output`` on real pipes."""

from __future__ import annotations

import contextlib
import io
import os
import select
from typing import BinaryIO

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IWriteDescriptor
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.cli.curl.mqtt.output import PacedOutput
from svc.cli.errors import OutputFailed


class Writers:
    """The part of a reactor that watches descriptors for writing."""

    def __init__(self) -> None:
        self.watched: list[PacedOutput] = []

    def addWriter(self, writer: PacedOutput) -> None:
        """Watch."""
        self.watched.append(writer)

    def removeWriter(self, writer: PacedOutput) -> None:
        """Watch no longer."""
        if writer in self.watched:
            self.watched.remove(writer)


class PacedOutputTests(SynchronousTestCase):
    """Readers that are slow, gone or absent."""

    def setUp(self) -> None:
        self.reader, end = os.pipe()
        self.stream: BinaryIO = os.fdopen(end, "wb")
        self.writers = Writers()
        self.output = PacedOutput(self.stream, self.writers)
        self.addCleanup(self.close)
        self.addCleanup(lambda: os.close(self.reader) if self.reader >= 0 else None)

    def close(self) -> None:
        """Close the stream; what it still holds has no reader."""
        with contextlib.suppress(BrokenPipeError):
            self.stream.close()

    def write(self, data: bytes) -> Deferred[None]:
        """Begin to write."""
        return Deferred.fromCoroutine(self.output.write(data))

    def test_slow_reader(self) -> None:
        """What a full pipe does not take waits for the reader; nothing is lost, and the pipe stays blocking."""
        data = os.urandom(1024 * 1024)
        writing = self.write(data)
        received = b""
        while len(received) < len(data):
            if self.writers.watched and select.select([], [self.stream], [], 0)[1]:
                self.writers.watched[0].doWrite()
            received += os.read(self.reader, 65536)
        self.successResultOf(writing)
        self.assertEqual(data, received)
        self.assertEqual([], self.writers.watched)
        self.assertTrue(os.get_blocking(self.stream.fileno()))

    def test_fits(self) -> None:
        """What fits is written at once."""
        self.successResultOf(self.write(b"x" * select.PIPE_BUF))
        self.assertEqual(b"x" * select.PIPE_BUF, os.read(self.reader, 65536))

    def test_cancelled(self) -> None:
        """A writer that is cancelled no longer waits."""
        writing = self.write(bytes(1024 * 1024))
        self.assertEqual([self.output], self.writers.watched)
        writing.cancel()
        self.failureResultOf(writing, CancelledError)
        self.assertEqual([], self.writers.watched)

    def test_reader_ends(self) -> None:
        """A reader that is gone, before or while it is waited for, is reported."""
        writing = self.write(bytes(1024 * 1024))
        os.close(self.reader)
        self.reader = -1
        self.output.connectionLost(Failure(ConnectionLost()))
        for failed in (writing, self.write(b"x")):
            error = self.failureResultOf(failed, OutputFailed).value
            self.assertEqual("output_closed", error.reason)

    def test_full_disk(self) -> None:
        """A device without space is reported."""
        stream = open("/dev/full", "wb")  # noqa: SIM115 - its close fails
        output = PacedOutput(stream, self.writers)
        self.failureResultOf(Deferred.fromCoroutine(output.write(b"x")), OutputFailed)
        self.assertRaises(OSError, stream.close)

    def test_memory(self) -> None:
        """A stream without a descriptor takes everything."""
        stream = io.BytesIO()
        self.successResultOf(Deferred.fromCoroutine(PacedOutput(stream, self.writers).write(b"x" * 10000)))
        self.assertEqual(10000, len(stream.getvalue()))

    def test_interface(self) -> None:
        """The reactor can watch it."""
        verifyObject(IWriteDescriptor, self.output)
        self.assertEqual(self.stream.fileno(), self.output.fileno())
