"""
The digests of beginnings of a body that streams: a server that answers early attests what it has read.

What was sent and not read is on the way, so that such a beginning ends among the octets that were sent last. These are
kept, with the state of the hash before them; nothing else is.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any, Final

#: Octets of one body that are kept: more than the buffers of two kernels on the way hold (4 MiB and 6 MiB in Linux).
MAX_KEPT: Final = 16 * 1024 * 1024
#: Octets of all bodies that one owner sends, which are kept together.
MAX_KEPT_TOGETHER: Final = 64 * 1024 * 1024
#: Octets between two states; the last of these pieces is kept in any case.
PIECE: Final = 64 * 1024


class KeptOctets:
    """How many octets of running bodies are kept together; beyond ``limit`` each keeps less of its own."""

    def __init__(self, limit: int = MAX_KEPT_TOGETHER) -> None:
        self.limit = limit
        self.used = 0


class Beginnings:
    """
    The beginnings of one body that ends among its last octets.

    Args:
        together: counts what is kept, until this object is gone.
        limit: octets that are kept of this body.
    """

    __slots__ = ("_kept", "_limit", "_pieces", "_together")

    def __init__(self, together: KeptOctets, limit: int = MAX_KEPT) -> None:
        self._together = together
        self._limit = limit
        #: Where each piece begins, the state of the hash before it, and its octets.
        self._pieces: deque[tuple[int, Any, bytearray]] = deque()
        self._kept = 0

    def __del__(self) -> None:
        self._together.used -= self._kept

    def add(self, size: int, state: Any, data: bytes) -> None:
        """
        Add the next octets.

        Args:
            size: how many octets are before them.
            state: the SHA-256 of those, which may be None where there are none.
        """
        pieces, together = self._pieces, self._together
        if not pieces or len(pieces[-1][2]) >= PIECE:
            pieces.append((size, None if state is None else state.copy(), bytearray()))
        pieces[-1][2].extend(data)
        self._kept += len(data)
        together.used += len(data)
        while len(pieces) > 1 and (self._kept > self._limit or together.used > together.limit):
            dropped = len(pieces.popleft()[2])
            self._kept -= dropped
            together.used -= dropped

    def digest(self, size: int) -> bytes | None:
        """Return the SHA-256 of the first octets; None where it is not known any more, or there are fewer."""
        for begin, state, octets in self._pieces:
            if begin <= size <= begin + len(octets):
                found = hashlib.sha256() if state is None else state.copy()
                found.update(octets[: size - begin])
                digest: bytes = found.digest()
                return digest
        return None
