"""
What a receipt needs to know of one exchange, gathered while the octets stream by.

Owns the running digests. Never holds a body.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from svc.notary.exchange import (
    BodySummary,
    ExchangeOutcome,
    Peer,
    RecordedExchange,
    TlsFacts,
    octets_as_text,
    split_target,
)
from svc.notary.level import Level
from svc.wire.fields import Field
from svc.wire.http1 import RequestHead


class BodyDigest:
    """The SHA-256 and size of a body that streams by."""

    __slots__ = ("_hash", "complete", "size")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0
        self.complete = False

    def update(self, data: bytes) -> None:
        """
        Take the next octets.

        Args:
            data: octets of the content, chunk lines removed.
        """
        self._hash.update(data)
        self.size += len(data)

    def seen(self) -> BodySummary:
        """
        Say what was seen so far.

        Returns:
            Size, digest and whether it was the whole.
        """
        return BodySummary(self.size, self._hash.digest(), self.complete)


class Recorder:
    """
    Gathers one exchange.

    Args:
        level: ``logRequest`` or ``signRequest``.
        nonce: the client's nonce, or None.
        client: the verified client.
        server: the identity that answers.
        tls: what the connection agreed on.
        head: the request.
        received: when its head was complete.
    """

    __slots__ = (
        "_client",
        "_head",
        "_level",
        "_nonce",
        "_received",
        "_server",
        "_tls",
        "request",
        "request_trailers",
        "response",
        "response_fields",
        "response_trailers",
        "status",
    )

    def __init__(
        self,
        level: Level,
        nonce: str | None,
        client: Peer | None,
        server: Peer,
        tls: TlsFacts | None,
        head: RequestHead,
        received: datetime,
    ) -> None:
        self._level = level
        self._nonce = nonce
        self._client = client
        self._server = server
        self._tls = tls
        self._head = head
        self._received = received
        self.request = BodyDigest()
        self.request_trailers: list[Field] = []
        self.response = BodyDigest()
        self.response_fields: list[Field] = []
        self.response_trailers: list[Field] = []
        self.status: int | None = None

    def exchange(self, jti: str, outcome: ExchangeOutcome, completed: datetime) -> RecordedExchange:
        """
        Sum up.

        Args:
            jti: the identifier of the exchange.
            outcome: how the exchange ended.
            completed: when.

        Returns:
            The exchange as the notary records it.
        """
        head = self._head
        path, query = split_target(head.target)
        return RecordedExchange(
            level=self._level,
            nonce=self._nonce,
            jti=jti,
            client=self._client,
            server=self._server,
            tls=self._tls,
            method=octets_as_text(head.method),
            scheme="https" if self._tls is not None else "http",
            authority=octets_as_text(head.host),
            path=path,
            query=query,
            version=head.version,
            request_headers=tuple(head.fields),
            request_body=self.request.seen(),
            request_trailers=tuple(self.request_trailers),
            status=self.status,
            response_headers=tuple(self.response_fields),
            response_body=self.response.seen(),
            response_trailers=tuple(self.response_trailers),
            received=self._received,
            # The clock may have been set back meanwhile: nothing ends before it began.
            completed=max(completed, self._received),
            outcome=outcome,
        )
