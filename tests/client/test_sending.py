"""Tests of request bodies while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from io import BytesIO
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IConsumer
from twisted.internet.task import Clock, Cooperator
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import FileBodyProducer
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.client.errors import RequestInvalid
from svc.client.sending import IterableBody, RequestStream


@implementer(IBodyProducer)
class Producer:
    """Writes what a test says."""

    def __init__(self, length: Any = UNKNOWN_LENGTH) -> None:
        self.length = length
        self.done: Deferred[None] = Deferred()
        self.stopped = 0

    def startProducing(self, consumer: Any) -> Deferred[None]:
        self.consumer = consumer
        return self.done

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None:
        self.stopped += 1


class StreamTests(SynchronousTestCase):
    """Tests of ``RequestStream``."""

    def setUp(self) -> None:
        self.transport = StringTransport()

    def test_unknown_length(self) -> None:
        """A body of unknown length is sent in chunks; empty pieces, which would end it, are left out."""
        producer = Producer()
        stream = RequestStream(producer)
        verifyObject(IConsumer, stream)
        sending = stream.send(self.transport)
        self.assertIs(self.transport.producer, producer)
        for piece in (b"a" * 16, b"", b"b"):
            producer.consumer.write(piece)
        self.assertNoResult(sending)
        self.assertFalse(stream.summary().complete)
        producer.done.callback(None)
        self.successResultOf(sending)
        self.assertEqual(self.transport.value(), b"10\r\n" + b"a" * 16 + b"\r\n1\r\nb\r\n0\r\n\r\n")
        self.assertIsNone(self.transport.producer)
        summary = stream.summary()
        self.assertEqual(
            (summary.size, summary.sha256, summary.complete), (17, sha256(b"a" * 16 + b"b").digest(), True)
        )

    def test_known_length(self) -> None:
        """A body of known length is sent as it is, and must have that length."""
        for pieces, complete in (((b"ab", b"c"), True), ((b"ab",), False), ((b"ab", b"cd", b"e"), False)):
            self.setUp()
            producer = Producer(3)
            stream = RequestStream(producer)
            sending = stream.send(self.transport)
            for piece in pieces:
                producer.consumer.write(piece)
            if not producer.stopped:
                producer.done.callback(None)
            if complete:
                self.successResultOf(sending)
                self.assertEqual(self.transport.value(), b"abc")
            else:
                self.assertIn("than the 3 of its length", str(self.failureResultOf(sending, RequestInvalid).value))
            self.assertEqual(stream.complete, complete)
            self.assertIsNone(self.transport.producer)

    def test_bounded_beginning(self) -> None:
        """What is kept of the body is bounded, its digest is whole."""
        for size in (3, 4, 5):
            producer = Producer()
            stream = RequestStream(producer, keep=4)
            stream.send(StringTransport())
            for _ in range(size):
                producer.consumer.write(b"x")
            self.assertEqual(stream.beginning, b"x" * min(size, 4))
            self.assertEqual(stream.summary().sha256, sha256(b"x" * size).digest())

    def test_beginnings(self) -> None:
        """The digests of its beginnings are known beyond what is kept for evidence."""
        producer = Producer()
        stream = RequestStream(producer, keep=4)
        stream.send(StringTransport())
        for piece in (b"abc", b"def", b"gh"):
            producer.consumer.write(piece)
        for size in range(9):
            self.assertEqual(stream.prefix(size), sha256(b"abcdefgh"[:size]).digest(), size)
        self.assertEqual((stream.prefix(9), stream.prefix(-1)), (None, None))

    def test_producer_that_raises(self) -> None:
        """An error at the start fails the sending, and no producer keeps the transport open."""

        class Broken(Producer):
            def startProducing(self, consumer: Any) -> Deferred[None]:
                raise OSError("gone")

        sending = RequestStream(Broken()).send(self.transport)
        self.failureResultOf(sending, OSError)
        self.assertIsNone(self.transport.producer)

    def test_stopped(self) -> None:
        """A producer that is stopped writes no more, and nothing fires."""
        producer = Producer()
        stream = RequestStream(producer)
        sending = stream.send(self.transport)
        stream.stop()
        stream.stop()
        producer.consumer.write(b"late")
        producer.done.callback(None)
        self.assertEqual((producer.stopped, self.transport.value()), (1, b""))
        self.assertNoResult(sending)

    def test_producer_fails(self) -> None:
        """The error of a producer is that of the body."""
        producer = Producer()
        sending = RequestStream(producer).send(self.transport)
        producer.done.errback(OSError("gone"))
        self.failureResultOf(sending, OSError)

    def test_files(self) -> None:
        """Twisted's producer of a file has a length."""
        clock = Clock()
        cooperator = Cooperator(scheduler=lambda call: clock.callLater(0, call))
        stream = RequestStream(FileBodyProducer(BytesIO(b"content"), cooperator))
        self.assertEqual(stream.length, 7)
        sending = stream.send(self.transport)
        clock.pump([0] * 5)
        self.successResultOf(sending)
        self.assertEqual(self.transport.value(), b"content")


class IterableTests(SynchronousTestCase):
    """Tests of ``IterableBody``."""

    def setUp(self) -> None:
        self.transport = StringTransport()
        self.asked = 0
        self.closed = False

    async def pieces(self, count: int = 3) -> AsyncIterator[bytes]:
        try:
            for _ in range(count):
                self.asked += 1
                yield b"x"
        finally:
            self.closed = True

    def test_whole(self) -> None:
        """Every piece is sent, in chunks."""
        body = IterableBody(self.pieces())
        verifyObject(IBodyProducer, body)
        self.successResultOf(RequestStream(body).send(self.transport))
        self.assertEqual(self.transport.value(), b"1\r\nx\r\n" * 3 + b"0\r\n\r\n")

    def test_back_pressure(self) -> None:
        """While the transport is full no further piece is requested."""
        body = IterableBody(self.pieces())
        stream = RequestStream(body)
        body.pauseProducing()
        sending = stream.send(self.transport)
        self.assertEqual(self.asked, 1)
        body.resumeProducing()
        self.successResultOf(sending)
        self.assertEqual(self.asked, 3)

    def test_stopped_while_paused(self) -> None:
        """An iterable that has to wait for the transport is closed."""
        body = IterableBody(self.pieces())
        stream = RequestStream(body)
        body.pauseProducing()
        sending = stream.send(self.transport)
        stream.stop()
        self.assertNoResult(sending)
        self.assertEqual((self.asked, self.closed), (1, True))

    def test_error(self) -> None:
        """What the iterable raises is the error of the body; pieces must be octets."""

        async def broken() -> AsyncIterator[bytes]:
            yield b"a"
            raise OSError("gone")

        self.failureResultOf(RequestStream(IterableBody(broken())).send(self.transport), OSError)

    def test_stopped_while_it_waits(self) -> None:
        """An iterable that waits is cancelled."""
        waiting: Deferred[None] = Deferred()
        cancelled = []

        async def slow() -> AsyncIterator[bytes]:
            try:
                await waiting
            except CancelledError:
                cancelled.append(True)
                raise
            yield b"never"

        stream = RequestStream(IterableBody(slow()))
        sending = stream.send(self.transport)
        stream.stop()
        self.assertEqual(cancelled, [True])
        self.assertNoResult(sending)
        self.assertEqual(self.flushLoggedErrors(), [])
