"""The fast path gives the same events as llhttp, whatever comes before and after."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from re import _parser as parser  # type: ignore[attr-defined]

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.fields import encode_fields
from svc.wire.http1 import (
    Event,
    Head,
    MessageLimits,
    RequestHead,
    RequestParser,
    ResponseHead,
    ResponseParser,
    fast_path,
    requests,
    responses,
)
from tests.peers.waiting import rounds


class SlowRequests(RequestParser):
    """Reads everything with llhttp."""

    def _read_fast(self, data: bytes) -> RequestHead | None:
        return None


class SlowResponses(ResponseParser):
    """Reads everything with llhttp."""

    def _read_fast(self, data: bytes) -> list[Event] | None:
        return None


NAMES = st.sampled_from(
    [b"Accept", b"X-A", b"x_b", b"Cookie", b"Host", b"host", b"Connection", b"Content-Length", b"Transfer-Encoding"]
    + [
        b"Max-Forwards",
        b"Upgrade",
        b"Svc-Notarization-Level",
        b"TE",
        b"Keep-Alive",
        b"Expect",
        b"Content_Length",
        b"X-Forwarded-Client-Cert",
        b"X-Forwarded-For",
        b"x_real_ip",
    ]
) | st.binary(max_size=3)
VALUES = st.sampled_from(
    [b"a", b"keep-alive", b"Keep-Alive", b"close", b"0", b"3", b"03", b"+3", b"chunked", b"api.example:8443", b"[::1]"]
    + [
        b"a b",
        b"a\tb",
        b" a",
        b"a ",
        b"",
        b"\xff",
        b"a\x00",
        b"a\x7f",
        b"signRequest",
        b"websocket",
        b"x" * 40,
        b"a: b: c",
    ]
) | st.binary(max_size=4)

COLONS = st.sampled_from([b": "] * 12 + [b":", b":  ", b" : ", b":\t"])
ENDS = st.sampled_from([b"\r\n"] * 15 + [b"\n", b"\r", b"\r\n "])
FIELDS = st.lists(st.tuples(NAMES, COLONS, VALUES, ENDS).map(b"".join), max_size=5).map(b"".join)
METHODS = st.sampled_from(
    [b"GET"] * 4 + [b"HEAD", b"DELETE", b"OPTIONS", b"POST", b"get", b"TRACE", b"PRI", b"CONNECT"]
)
TARGETS = st.sampled_from(
    [b"/"] * 3 + [b"/a?b=c&d=%20", b"*", b"http://h/x", b"/a#b", b"/a b", b"/\xff", b'/"', b"/a\\b", b"//", b"/{}", b""]
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"RTSP/1.0"])
BLANKS = st.sampled_from([b" "] * 12 + [b"  ", b"\t", b" \t", b""])
EMPTY_LINES = st.sampled_from([b""] * 12 + [b"\r\n", b"\r", b"\n", b"\r\n\r\n", b" "])
HOSTS = st.sampled_from([b"Host: h\r\n"] * 8 + [b"", b"Host: h\r\nHost: h\r\n", b"Host: a b\r\n", b"Host: h:99999\r\n"])
BODIES = st.sampled_from(
    [b""] * 6
    + [
        b"abc",
        b"abc\r",
        b"abc\r\n",
        b"abc\r\n\r\n",
        b"\r\n\r\n",
        b"ab\r",
        b"G",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"\r\n",
        b"\r",
        b"\n",
    ]
)


def request() -> st.SearchStrategy[bytes]:
    """Generate valid and nearly valid requests."""
    line = st.tuples(METHODS, BLANKS, TARGETS, BLANKS, VERSIONS, st.just(b"\r\n")).map(b"".join)
    return st.tuples(EMPTY_LINES, line, HOSTS, FIELDS, st.just(b"\r\n"), BODIES).map(b"".join)


def response() -> st.SearchStrategy[bytes]:
    """Generate valid and nearly valid responses."""
    status = st.sampled_from([b"200 OK"] * 6 + [b"204 No Content", b"304 Not Modified", b"404 Not Found", b"500 "])
    odd = st.sampled_from([b"200 Made up", b"100 Continue", b"101 Switching Protocols", b"600 X", b"20 X", b"200 \x01"])
    line = st.tuples(VERSIONS, st.just(b" "), status | odd, st.just(b"\r\n")).map(b"".join)
    lengths = st.sampled_from(
        [b"Content-Length: 3\r\n"] * 6 + [b"", b"Content-Length: 0\r\n", b"Content-Length: 3\r\n" * 2]
    )
    bodies = st.sampled_from([b"abc"] * 6 + [b"", b"ab", b"abcd", b"abc\r\n", b"\r\n\r"])
    return st.tuples(line, lengths, FIELDS, st.just(b"\r\n"), bodies).map(b"".join)


@st.composite
def cut_requests(draw: st.DrawFn) -> list[bytes]:
    """Generate reads that end where a request does, or anywhere."""
    reads = draw(st.lists(request() | st.just(COMMON), min_size=1, max_size=4))
    if draw(st.booleans()):
        octets = b"".join(reads)
        cuts = sorted(draw(st.lists(st.integers(0, len(octets)), max_size=3)))
        reads = [octets[begin:end] for begin, end in itertools.pairwise([0, *cuts, len(octets)])]
        reads.append(COMMON)
    return reads


COMMON = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
UNCOMMON = b"GET / HTTP/1.1\r\nHost:h\r\n\r\n"


def shown(events: list[Event]) -> list[str]:
    """Return the events as comparable text."""
    return [repr(each) for each in events]


def forwarded(events: list[Event]) -> list[bytes]:
    """Return the lines of each head that are forwarded."""
    return [each.end_to_end_lines for each in events if isinstance(each, Head)]


class AgreementTests(SynchronousTestCase):
    """The fast path compared with llhttp."""

    def same_lines(self, events: list[Event]) -> None:
        """Check that cached lines are those that would be written."""
        for each in events:
            if isinstance(each, Head) and each.cached_lines is not None and getattr(each, "max_forwards", None) is None:
                self.assertEqual(each.cached_lines, encode_fields(each.end_to_end))

    @settings(max_examples=rounds(150, 6000), deadline=None)
    @given(cut_requests(), st.booleans(), st.booleans())
    @example([COMMON, b"\r\n" + COMMON, COMMON], False, True)
    @example([b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\n\r\n", COMMON, COMMON], False, True)
    @example([b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\r\n\r\n", COMMON, UNCOMMON], False, True)
    @example([COMMON + b"\r", COMMON, UNCOMMON, COMMON], False, True)
    @example([COMMON + b"\n", COMMON], False, True)
    @example([b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", COMMON], False, True)
    @example([b"OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 1\r\n\r\n", COMMON], False, True)
    @example([COMMON + b"\r", b"\n" + UNCOMMON, COMMON], False, True)
    @example([b"GET /", COMMON, COMMON], False, True)
    @example([UNCOMMON + b"GET /", COMMON, COMMON], False, True)
    @example([b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", COMMON], False, True)
    def test_requests(self, reads: list[bytes], small: bool, drop: bool) -> None:
        """Any requests in any order give the same events, the limits included."""
        limits = MessageLimits(head=90, fields=3) if small else MessageLimits()
        fast, slow = RequestParser(limits, drop_forwarding=drop), SlowRequests(limits, drop_forwarding=drop)
        for data in reads:
            events, expected = fast.feed(data), slow.feed(data)
            self.assertEqual(shown(events), shown(expected))
            self.assertEqual(forwarded(events), forwarded(expected))
            self.assertEqual((fast.closed, fast.in_head), (slow.closed, slow.in_head))
            self.same_lines(events)

    @settings(max_examples=rounds(150, 6000), deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from([b"GET", b"GET", b"HEAD"]), response()), min_size=1, max_size=4),
        st.booleans(),
    )
    def test_responses(self, answers: list[tuple[bytes, bytes]], small: bool) -> None:
        """Any responses on one connection give the same events and the same state of the connection."""
        limits = MessageLimits(head=90, fields=3) if small else MessageLimits()
        fast: ResponseParser | None = None
        slow: ResponseParser | None = None
        for method, data in answers:
            if fast is None or slow is None:
                fast, slow = ResponseParser(method, limits), SlowResponses(method, limits)
            else:
                fast.expect(method)
                slow.expect(method)
            events = fast.feed(data)
            self.assertEqual(shown(events), shown(slow.feed(data)))
            self.assertEqual((fast.closed, fast.started, fast._ended), (slow.closed, slow.started, slow._ended))
            self.same_lines(events)
            self.assertEqual(shown(fast.feed(b"x")), shown(slow.feed(b"x")))
            if fast.closed or not fast._ended:
                return

    @settings(max_examples=rounds(125, 5000), deadline=None)
    @given(response(), st.booleans())
    def test_ends(self, data: bytes, clean: bool) -> None:
        """The end of the connection after a response gives the same events."""
        fast, slow = ResponseParser(b"GET"), SlowResponses(b"GET")
        self.assertEqual(shown(fast.feed(data)), shown(slow.feed(data)))
        self.assertEqual(shown(fast.feed_eof(clean=clean)), shown(slow.feed_eof(clean=clean)))


class FastPathTests(SynchronousTestCase):
    """Common messages take the fast path; otherwise the comparison would prove nothing."""

    def test_common(self) -> None:
        """What browsers, curl, Go and nginx send takes the fast path, also when it differs from the last message."""
        requests = RequestParser()
        for number in range(3):
            data = b"GET /a?b=%d HTTP/1.1\r\nHost: h:8443\r\nUser-Agent: x\r\nConnection: keep-alive\r\n\r\n" % number
            head = requests._read_fast(data)
            assert isinstance(head, RequestHead)
            self.assertEqual((head.host, head.options), (b"h:8443", frozenset({b"keep-alive"})))
            self.assertEqual(head.cached_lines, b"Host: h:8443\r\nUser-Agent: x\r\n")
        for drop, kept in ((True, b""), (False, b"X-Forwarded-For: a\r\n")):
            head = RequestParser(drop_forwarding=drop)._read_fast(
                b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: a\r\n\r\n"
            )
            assert isinstance(head, RequestHead)
            self.assertEqual(head.cached_lines, b"Host: h\r\n" + kept)
        answer = ResponseParser(b"GET")._read_fast(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        assert answer is not None and isinstance(answer[0], ResponseHead)
        self.assertEqual(answer[1], b"hi")

    def test_limits(self) -> None:
        """The limits of fields and octets are exactly those of llhttp."""
        data = b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n"
        for limits, expected in (
            (MessageLimits(head=len(data)), 2),
            (MessageLimits(head=len(data) - 1), 1),
            (MessageLimits(fields=2), 2),
            (MessageLimits(fields=1), 1),
        ):
            for each in (RequestParser(limits), SlowRequests(limits)):
                self.assertEqual(len(each.feed(data)), expected, limits)

    def test_linear(self) -> None:
        """A head costs one pass: every repetition is possessive, so nothing is matched twice."""
        patterns = (fast_path._LINES, fast_path._FIELD, requests._REQUEST, responses._RESPONSE)
        for pattern in patterns:
            repeats = [name for name in operations(parser.parse(pattern.pattern)) if name.endswith("_REPEAT")]
            self.assertTrue(repeats)
            self.assertEqual(set(repeats), {"POSSESSIVE_REPEAT"})


def operations(parsed: Iterable[object]) -> Iterator[str]:
    """Name all operations of a regular expression."""
    for each in parsed:
        if isinstance(each, tuple | list | parser.SubPattern):
            yield from operations(each)
        elif hasattr(each, "name"):
            yield str(each.name)
