"""The digests of beginnings of a body that streams."""

from __future__ import annotations

import gc
from hashlib import sha256
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.beginnings import PIECE, Beginnings, KeptOctets


class Body:
    """A body that is sent in pieces."""

    def __init__(self, together: KeptOctets, limit: int) -> None:
        self.beginnings = Beginnings(together, limit)
        self.octets = b""
        self._state: Any = None

    def send(self, data: bytes) -> None:
        """Send the next piece."""
        self.beginnings.add(len(self.octets), self._state, data)
        self._state = self._state or sha256()
        self._state.update(data)
        self.octets += data

    def known(self, size: int) -> bool:
        """Whether a beginning is known, which is then the right one."""
        digest = self.beginnings.digest(size)
        assert digest in (None, sha256(self.octets[:size]).digest()), size
        return digest is not None


class BeginningsTests(SynchronousTestCase):
    """What is known, and what is kept for it."""

    def test_small(self) -> None:
        """Of a body that is kept as a whole every beginning is known, and nothing beyond its end."""
        together = KeptOctets()
        body = Body(together, 10 * PIECE)
        self.assertFalse(body.known(0))
        body.send(b"abc")
        body.send(b"def")
        self.assertEqual([False, *[True] * 7, False], [body.known(size) for size in range(-1, 8)])
        self.assertEqual(6, together.used)

    def test_limit(self) -> None:
        """At the limit of one body it is whole, with one octet more its first piece is gone."""
        body = Body(KeptOctets(), 2 * PIECE)
        for _piece in range(2):
            body.send(bytes(PIECE))
        self.assertTrue(body.known(0))
        body.send(b"x")
        self.assertEqual(
            [False, False, True, True], [body.known(size) for size in (0, PIECE - 1, PIECE, 2 * PIECE + 1)]
        )

    def test_limit_together(self) -> None:
        """Beyond what all may keep each keeps less of its own, and at least its last piece; what is gone is free."""
        together = KeptOctets(3 * PIECE)
        first, second = Body(together, 10 * PIECE), Body(together, 10 * PIECE)
        for _piece in range(2):
            first.send(bytes(PIECE))
        second.send(bytes(PIECE))
        self.assertTrue(first.known(0))
        second.send(bytes(PIECE))
        self.assertEqual((True, False, True), (first.known(0), second.known(0), second.known(PIECE)))
        del first
        gc.collect()
        self.assertEqual(PIECE, together.used)
        second.send(bytes(PIECE))
        self.assertTrue(second.known(PIECE))

    @given(st.lists(st.integers(1, 2 * PIECE), max_size=8), st.integers(0, 4 * PIECE), st.data())
    def test_any_pieces(self, sizes: list[int], limit: int, data: st.DataObject) -> None:
        """A beginning that ends in the last octets is known, however the body was sent; what is kept is bounded."""
        together = KeptOctets()
        body = Body(together, limit)
        for number, size in enumerate(sizes):
            body.send(bytes([number]) * size)
            self.assertLessEqual(together.used, max(limit, 3 * PIECE))
        whole = len(body.octets)
        size = data.draw(st.integers(0, whole))
        known = body.known(size)
        if sizes and size > whole - max(sizes[-1], limit - 3 * PIECE):
            self.assertTrue(known)
