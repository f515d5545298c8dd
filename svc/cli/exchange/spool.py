"""
The body of an answer, kept back until it is verified.

Owns where it lies (1 MiB in memory, more in a file without a name), its digest and its limit. Knows nothing of HTTP.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import Final

from svc.cli.exchange.errors import BodyTooLarge, SpoolFailed
from svc.notary.exchange import BodySeen

IN_MEMORY: Final = 1024 * 1024
_PIECE: Final = 128 * 1024


class Spool:
    """
    Collects octets and gives them back.

    Args:
        limit: the most octets accepted.
        in_memory: how many stay in memory before a file takes them.
    """

    def __init__(self, limit: int, in_memory: int = IN_MEMORY) -> None:
        self._limit = limit
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory)  # noqa: SIM115 - closed by close()
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """
        Add octets.

        Args:
            data: the next piece.

        Raises:
            BodyTooLarge: beyond the limit; nothing of the piece is kept.
            SpoolFailed: the file cannot take it.
        """
        if self.size + len(data) > self._limit:
            raise BodyTooLarge(limit=self._limit)
        try:
            self._file.write(data)
        except OSError as error:
            raise SpoolFailed(detail=(error.strerror or str(error)).lower()) from error
        self._digest.update(data)
        self.size += len(data)

    def seen(self) -> BodySeen:
        """
        Describe what was collected.

        Returns:
            Size and digest, as complete.
        """
        return BodySeen(self.size, self._digest.digest())

    def pieces(self, at_most: int | None = None) -> Iterator[bytes]:
        """
        Read from the beginning.

        Args:
            at_most: how many octets; all by default.

        Yields:
            The octets in pieces.
        """
        self._file.seek(0)
        left = self.size if at_most is None else min(at_most, self.size)
        while left > 0:
            piece = self._file.read(min(_PIECE, left))
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Give the memory or the file back."""
        self._file.close()
