"""
Which nonces a database may hold, so that a new one needs no look-up there.

A Bloom filter: what it rules out was never added; what it does not rule out has to be looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Nonces for which there is room at least; 128 KiB.
MIN_CAPACITY: Final = 65_536
#: With so many bits for each nonce and so many of them set, one in 400 that were never added is not ruled out.
_BITS: Final = 16
_SET: Final = 4


class NonceFilter:
    """Nonces of clients; there is room for ``capacity`` of them."""

    def __init__(self, capacity: int) -> None:
        size = 1 << (max(capacity, MIN_CAPACITY) * _BITS - 1).bit_length()
        self.capacity = size // _BITS
        self._mask = size - 1
        self._bits = bytearray(size // 8)
        self._room = self.capacity

    @property
    def full(self) -> bool:
        """Whether more were added than there is room for; ever fewer are then ruled out."""
        return self._room < 0

    def add(self, client: str, nonce: str) -> None:
        """Add one; what may have been added before takes no more room."""
        self._room -= self.rules_out(client, nonce)
        for place in self._places(client, nonce):
            self._bits[place >> 3] |= 1 << (place & 7)

    def rules_out(self, client: str, nonce: str) -> bool:
        """Whether it was certainly not added."""
        return not all(self._bits[place >> 3] >> (place & 7) & 1 for place in self._places(client, nonce))

    def _places(self, client: str, nonce: str) -> Iterator[int]:
        # Keyed by the interpreter at random, so that no client can choose nonces that fill it.
        digest = hash((client, nonce))
        first, step = digest & 0xFFFFFFFF, (digest >> 32) | 1
        return (first + number * step & self._mask for number in range(_SET))
