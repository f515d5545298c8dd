"""
What happens to an answer while it arrives.

Owns the two ways: kept back until it is verified, or passed on at once where no verification is required. Knows nothing
of verification.
"""

from __future__ import annotations

import hashlib

from svc.cli.exchange.spool import Spool
from svc.cli.output import Console
from svc.errors import printable
from svc.notary.exchange import BodySeen
from svc.wire.fields import Field
from svc.wire.http1 import ResponseHead


class KeepingReceiver:
    """
    Keeps the body back.

    Args:
        spool: takes it.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def got_head(self, head: ResponseHead) -> None:
        """The head is kept with the answer."""

    def got_body(self, data: bytes) -> None:
        """Keep a piece."""
        self.spool.write(data)

    def seen(self) -> BodySeen:
        """Size and digest of the body."""
        return self.spool.seen()


class PassingReceiver:
    """
    Passes the answer on to standard output while it arrives.

    Args:
        console: the standard streams.
        show_headers: whether the head is printed.
        silent: whether the body is left out.
    """

    def __init__(self, console: Console, *, show_headers: bool, silent: bool) -> None:
        self._console = console
        self._show_headers = show_headers
        self._silent = silent
        self._digest = hashlib.sha256()
        self._size = 0

    def got_head(self, head: ResponseHead) -> None:
        """Print the head where it was asked for."""
        if self._show_headers:
            self._console.write(head_text(head, escape=self._console.terminal))
            self._console.flush()

    def got_body(self, data: bytes) -> None:
        """Print a piece."""
        self._digest.update(data)
        self._size += len(data)
        if not self._silent:
            self._console.write(data)
            self._console.flush()

    def seen(self) -> BodySeen:
        """Size and digest of the body."""
        return BodySeen(self._size, self._digest.digest())


def head_text(head: ResponseHead, *, escape: bool) -> bytes:
    """
    Write the head of an answer for standard output.

    Args:
        head: the head.
        escape: whether what could move the cursor of a terminal is escaped; what goes into a file stays as it came.

    Returns:
        The status line, the fields and an empty line.
    """
    lines = [b"HTTP/%b %d %b" % (head.version.encode("ascii"), head.status, head.phrase)]
    lines += [_line(field) for field in head.fields]
    if escape:
        lines = [printable(line.decode("utf-8", "backslashreplace"), 65536).encode("utf-8") for line in lines]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _line(field: Field) -> bytes:
    return b"%b: %b" % field
