"""
The body of a request while it is sent: its frames, its digest, and a bounded part of it.

Owns the framing of a streamed body (RFC 9112 section 7.1) and that it has the length that was announced.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IConsumer
from twisted.python.failure import Failure
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer
from zope.interface import implementer

from svc.client.errors import RequestInvalid
from svc.notary.beginnings import Beginnings, KeptOctets
from svc.notary.evidence import MAX_BODY
from svc.notary.exchange import BodySummary, prefix_digests


@implementer(IConsumer)
class RequestStream:
    """
    A body that a producer writes while it is sent.

    Of a server that responds before it has read everything, a receipt attests a beginning of the body.

    Args:
        producer: writes the body.
        keep: how many octets of its beginning are kept for evidence files.

    Attributes:
        progress: called for each piece.
    """

    def __init__(self, producer: IBodyProducer, keep: int = MAX_BODY) -> None:
        self._producer = producer
        self.length: int | None = None if producer.length is UNKNOWN_LENGTH else int(producer.length)
        self._keep = keep
        self._beginning = bytearray()
        self._digest = hashlib.sha256()
        self._beginnings = Beginnings(KeptOctets())
        self._size = 0
        self._transport: Any = None
        self._sent: Deferred[None] = Deferred()
        self.complete = False
        self.progress: Callable[[], None] = lambda: None

    @property
    def beginning(self) -> bytes:
        """The octets that were kept."""
        return bytes(self._beginning)

    def summary(self) -> BodySummary:
        """Describe what was sent."""
        return BodySummary(self._size, self._digest.digest(), self.complete)

    def prefix(self, size: int) -> bytes | None:
        """The SHA-256 of the first octets that were sent; None where it is not known, or there are fewer."""
        if size <= len(self._beginning):
            return prefix_digests(self._beginning)(size)
        return self._beginnings.digest(size)

    def send(self, transport: Any) -> Deferred[None]:
        """
        Let the producer write to a transport, once.

        Returns:
            Fires when everything is written; fails with the error of the producer, or with ``RequestInvalid`` where it
            writes more or less than the length that was announced; never fires after :meth:`stop`.
        """
        self._transport = transport
        transport.registerProducer(self._producer, True)
        maybeDeferred(self._producer.startProducing, self).addCallbacks(lambda _: self._finish(), self._fail)
        return self._sent

    def write(self, data: bytes) -> None:
        """Send a piece; see ``IConsumer.write``."""
        if not data or self._transport is None:
            return
        if self.length is not None and self._size + len(data) > self.length:
            self.stop()
            self._sent.errback(self._wrong_length("more"))
            return
        self.progress()
        self._beginnings.add(self._size, self._digest, data)
        self._size += len(data)
        self._digest.update(data)
        self._beginning += data[: self._keep - len(self._beginning)]
        self._transport.write(bytes(data) if self.length is not None else b"%x\r\n%b\r\n" % (len(data), data))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Nothing: the producer of the body is registered with the transport already."""

    def unregisterProducer(self) -> None:
        """Nothing, likewise."""

    def stop(self) -> None:
        """Stop the producer: the server has responded, or the connection is lost."""
        if self._detach() is not None:
            self._producer.stopProducing()

    def _detach(self) -> Any:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.unregisterProducer()
        return transport

    def _finish(self) -> None:
        transport = self._detach()
        if transport is None:
            return
        if self.length is not None and self._size < self.length:
            self._sent.errback(self._wrong_length("less"))
            return
        self.complete = True
        if self.length is None:
            transport.write(b"0\r\n\r\n")
        self._sent.callback(None)

    def _fail(self, failure: Failure) -> None:
        if self._detach() is not None:
            self._sent.errback(failure)

    def _wrong_length(self, found: str) -> Failure:
        return Failure(
            RequestInvalid(
                f"the body of the request has {found} octets than the {self.length} of its length",
                "a producer that does not know its length has twisted.web.iweb.UNKNOWN_LENGTH",
            )
        )


@implementer(IBodyProducer)
class IterableBody:
    """Writes the pieces of an asynchronous iterable, each when the transport has room."""

    length: Any = UNKNOWN_LENGTH

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces
        self._room: Deferred[None] | None = None
        self._writing: Deferred[None] | None = None
        self._stopped = False

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """See ``IBodyProducer.startProducing``."""
        self._writing = Deferred.fromCoroutine(self._write(consumer))
        return self._writing

    async def _write(self, consumer: IConsumer) -> None:
        try:
            async for piece in self._pieces:
                consumer.write(piece)
                if self._room is not None:
                    await self._room
                if self._stopped:
                    return
        finally:
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()

    def pauseProducing(self) -> None:
        """See ``IPushProducer.pauseProducing``."""
        if self._room is None:
            self._room = Deferred()

    def resumeProducing(self) -> None:
        """See ``IPushProducer.resumeProducing``."""
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def stopProducing(self) -> None:
        """See ``IProducer.stopProducing``."""
        self._stopped = True
        if self._writing is not None:
            self._writing.addErrback(lambda _failure: None)
            self._writing.cancel()
