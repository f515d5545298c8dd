"""Requests that may wait for a change: ``Prefer: wait=SECONDS`` (RFC 7240 section 4.3)."""

from __future__ import annotations

import re
from typing import Final

from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource

#: Seconds that a request waits at most.
MAX_WAIT: Final = 50.0
_WAIT: Final = re.compile(rb"(?:\A|[\s,;])wait=([0-9]{1,6})(?:[\s,;]|\Z)", re.IGNORECASE)


class WaitingPages(Resource):
    """
    Pages whose requests may wait.

    Attributes:
        released: nobody is to wait any more.
    """

    isLeaf = True
    released = False

    async def run(self) -> None:
        """Do what goes on beside requests, until cancelled."""

    def release(self) -> None:
        """Let nobody wait any more, and close connections with their next answer: another replica goes on with them."""
        self.released = True


def single_header(request: BareRequest, name: bytes) -> bytes:
    """The last value of a field; empty where there is none."""
    values = request.requestHeaders.getRawHeaders(name)
    return values[-1] if values else b""


def preferred_wait(request: BareRequest) -> float:
    """The seconds that a client would wait; 0 where it does not say so."""
    match = _WAIT.search(single_header(request, b"prefer"))
    return 0.0 if match is None else float(match[1])


def close_after(request: BareRequest) -> None:
    """End the connection with this answer."""
    request.channel.persistent = False
    request.setHeader(b"connection", b"close")
