"""Tests of keeping a body back."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.exchange.errors import BodyTooLarge
from svc.cli.exchange.spool import Spool


class SpoolTests(SynchronousTestCase):
    """What goes in comes out."""

    @given(st.lists(st.binary(max_size=20), max_size=10), st.integers(0, 40))
    def test_round_trip(self, pieces: list[bytes], in_memory: int) -> None:
        """Pieces come back whole and in order, wherever they lie, as often as one asks."""
        spool = Spool(1000, in_memory)
        for piece in pieces:
            spool.write(piece)
        whole = b"".join(pieces)
        for _again in range(2):
            self.assertEqual(b"".join(spool.pieces()), whole)
        self.assertEqual(b"".join(spool.pieces(7)), whole[:7])
        seen = spool.seen()
        self.assertEqual((seen.size, seen.sha256, seen.complete), (len(whole), hashlib.sha256(whole).digest(), True))
        spool.close()

    def test_limit(self) -> None:
        """The limit itself is accepted, one octet more is not, and nothing of that piece is kept."""
        spool = Spool(4)
        spool.write(b"abcd")
        error = self.assertRaises(BodyTooLarge, spool.write, b"e")
        self.assertEqual((error.evidence, spool.size), ({"limit": 4}, 4))
        spool.close()
