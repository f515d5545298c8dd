"""Tests of :mod:`svc.notary.exchange`."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import (
    EMPTY_BODY,
    BodySummary,
    carries_no_body,
    octets_as_text,
    prefix_digests,
    recorded_headers,
    split_target,
)

NAMES = st.one_of(
    st.sampled_from(
        [b"Host", b"Connection", b"TE", b"Svc-X", b"svc_y", b"Upgrade", b"Content-Length", b"X-A", b"x-a", b"Trailer"]
    ),
    st.binary(min_size=1, max_size=8),
)
VALUES = st.one_of(st.binary(max_size=12), st.sampled_from([b"x-a", b"close, X-A", b" \tpadded\t ", b"caf\xe9"]))
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=12)
NEVER = {
    "host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip


class RecordedHeadersTests(SynchronousTestCase):
    """One rule turns raw headers into the receipt's list."""

    def test_left_out(self) -> None:
        """Hop-by-hop headers, Host and reserved ones are left out; content-length stays."""
        raw = [(name.title().encode(), b"v") for name in sorted(NEVER)]
        raw += [(b"Svc-Workload-ID", b"v"), (b"SVC_NOTARY_NONCE", b"v"), (b"Content-Length", b"3"), (b"Svcx", b"v")]
        self.assertEqual((("content-length", "3"), ("svcx", "v")), recorded_headers(raw))

    def test_named_by_connection(self) -> None:
        """What any Connection header names is left out, in any case and order."""
        raw = [(b"X-Hop", b"1"), (b"Connection", b"close , x-hop"), (b"X-Keep", b"2"), (b"CONNECTION", b"X-Other")]
        raw.append((b"x-other", b"3"))
        self.assertEqual((("x-keep", "2"),), recorded_headers(raw))

    def test_exact_octets(self) -> None:
        """Each octet is one character, SP and HTAB are trimmed at both ends only, order and duplicates stay."""
        raw = [(b"X-B", b" \tcaf\xe9  x\t "), (b"X-A", b""), (b"X-B", b"\x0btwo")]
        self.assertEqual((("x-b", "caf\xe9  x"), ("x-a", ""), ("x-b", "\x0btwo")), recorded_headers(raw))

    @given(HEADERS)
    def test_properties(self, raw: list[tuple[bytes, bytes]]) -> None:
        """Nothing forbidden stays, nothing is invented, order is kept, and a second pass changes nothing."""
        found = recorded_headers(raw)
        left = iter((octets_as_text(name.lower()), octets_as_text(value.strip(b" \t"))) for name, value in raw)
        for name, value in found:
            self.assertNotIn(name, NEVER)
            self.assertFalse(name.replace("_", "-").startswith("svc-"))
            self.assertIn((name, value), left)
        again = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found]
        self.assertEqual(found, recorded_headers(again))

    @given(HEADERS)
    def test_forwarded_or_not(self, raw: list[tuple[bytes, bytes]]) -> None:
        """Additional hop-by-hop headers do not change the list."""
        added = [*raw, (b"Keep-Alive", b"timeout=5"), (b"Svc-Workload-ID", b"id"), (b"Transfer-Encoding", b"chunked")]
        self.assertEqual(recorded_headers(raw), recorded_headers(added))


class SplitTargetTests(SynchronousTestCase):
    """The target is split at the first question mark, which stays with the query."""

    def test_split(self) -> None:
        """No query is empty, a bare one is a question mark, further marks belong to it."""
        for raw, expected in (
            (b"/a", ("/a", "")),
            (b"/a?", ("/a", "?")),
            (b"/a?b?c", ("/a", "?b?c")),
            (b"/%C3\xe9?\xff", ("/%C3\xe9", "?\xff")),
            (b"*", ("*", "")),
        ):
            self.assertEqual(expected, split_target(raw))

    @given(st.binary(max_size=40))
    def test_round_trip(self, raw: bytes) -> None:
        """Path and query together are the octets of the target."""
        path, query = split_target(raw)
        self.assertEqual(raw, (path + query).encode("latin-1"))
        self.assertNotIn("?", path)


class BodyTests(SynchronousTestCase):
    """Bodies are summarized by size and digest."""

    def test_no_body(self) -> None:
        """Answers to HEAD and 1xx, 204, 304 have none; others may."""
        bodiless = [("HEAD", 200), ("GET", 101), ("GET", 204), ("POST", 304)]
        self.assertTrue(all(carries_no_body(method, status) for method, status in bodiless))
        self.assertFalse(any(carries_no_body("GET", status) for status in (200, 206, 404, 500)))

    def test_empty(self) -> None:
        """No body is the digest of nothing."""
        self.assertEqual(BodySummary(0, hashlib.sha256(b"").digest(), True), EMPTY_BODY)

    def test_prefix(self) -> None:
        """The digest of a prefix exists up to the whole body and not beyond."""
        prefix = prefix_digests(b"abc")
        self.assertEqual(hashlib.sha256(b"ab").digest(), prefix(2))
        self.assertEqual(hashlib.sha256(b"abc").digest(), prefix(3))
        self.assertIsNone(prefix(4))
        self.assertIsNone(prefix(-1))
