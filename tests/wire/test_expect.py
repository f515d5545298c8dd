"""One response parser for all the answers of a connection."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import End, Event, Excess, Interim, Refused, ResponseHead, ResponseParser

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: 1\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
AFTER_INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
TO_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
TO_HEAD_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TO_HEAD_OPEN = b"HTTP/1.1 200 OK\r\n\r\n"

ANSWERS = [
    (b"GET", PLAIN),
    (b"GET", CHUNKED),
    (b"GET", EMPTY),
    (b"GET", AFTER_INTERIM),
    (b"HEAD", TO_HEAD),
    (b"HEAD", TO_HEAD_CHUNKED),
    (b"HEAD", TO_HEAD_OPEN),
]


class ExpectTests(SynchronousTestCase):
    """What one answer leaves behind does not reach the next."""

    @given(st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=6))
    def test_like_a_fresh_parser(self, answers: list[tuple[bytes, bytes]]) -> None:
        """Each answer gives the same events as from a parser that has read nothing before."""
        parser: ResponseParser | None = None
        for method, octets in answers:
            if parser is None:
                parser = ResponseParser(method)
            else:
                parser.expect(method)
            self.assertFalse(parser.begun)
            self.assertEqual(parser.feed(octets), ResponseParser(method).feed(octets))
            self.assertTrue(parser.begun)

    def test_an_old_wish_is_no_wish(self) -> None:
        """Another protocol is granted only where the current request asked for it."""
        parser = ResponseParser(b"GET", upgrade=True)
        self.assertIs(type(parser.feed(PLAIN)[-1]), End)
        parser.expect(b"GET")
        events = parser.feed(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        self.assertEqual([type(each) for each in events], [Refused])

    def test_excess_closes_for_good(self) -> None:
        """Octets behind an answer are never read as the next one."""
        parser = ResponseParser(b"GET")
        self.assertIs(type(parser.feed(PLAIN + PLAIN)[-1]), Excess)
        parser.expect(b"GET")
        self.assertEqual(parser.feed(PLAIN), [])

    def test_not_before_the_end(self) -> None:
        """Asking for the next answer in the middle of one is a defect of the caller."""
        parser = ResponseParser(b"GET")
        for piece in (PLAIN[:30], PLAIN[30:-1]):
            parser.feed(piece)
            self.assertRaises(ValueError, parser.expect, b"GET")
        self.assertIs(type(parser.feed(PLAIN[-1:])[-1]), End)
        parser.expect(b"GET")

    def test_limits_hold_for_each(self) -> None:
        """Interim answers are counted anew for each request."""
        parser = ResponseParser(b"GET")
        interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        kinds: list[type[Event]] = []
        for _ in range(3):
            kinds = [type(each) for each in parser.feed(interim * 16 + PLAIN)]
            self.assertEqual(kinds, [*[Interim] * 16, ResponseHead, bytes, End])
            parser.expect(b"GET")
