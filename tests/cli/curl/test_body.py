"""Tests of keeping a body back."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.body import BufferedBody
from tests.refusals import assert_refused


class BufferedBodyTests(SynchronousTestCase):
    """Storing and reading."""

    @given(st.lists(st.binary(max_size=20), max_size=10), st.integers(0, 40))
    def test_round_trip(self, pieces: list[bytes], in_memory: int) -> None:
        """Pieces are read complete and in order, from memory or a file, any number of times."""
        body = BufferedBody(1000, in_memory)
        for piece in pieces:
            body.got_body(piece)
        whole = b"".join(pieces)
        for _again in range(2):
            self.assertEqual(b"".join(body.pieces()), whole)
        self.assertEqual(b"".join(body.pieces(7)), whole[:7])
        seen = body.seen()
        self.assertEqual((seen.size, seen.sha256, seen.complete), (len(whole), hashlib.sha256(whole).digest(), True))
        body.close()

    def test_limit(self) -> None:
        """A body of the limit is accepted, one octet more is not, and nothing of that piece is kept."""
        body = BufferedBody(4)
        body.got_body(b"abcd")
        error = assert_refused(self, "body_too_large", body.got_body, b"e")
        self.assertEqual((error.evidence, body.size), ({"limit": 4}, 4))
        body.close()
