"""Several responses on one upstream connection, one after another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import End, Event, Excess, MessageLimits, MessageRefused, ResponseHead, ResponseParser
from tests.wire.reading import comparable, cut, merged, names, octets, read_response, refusal, response

FIVE = b"Content-Length: 5"
CHUNKED = b"Transfer-Encoding: chunked"

#: Method and bytes of responses after which the connection can be used again.
ANSWERS = {
    "a length": (b"GET", response(fields=[FIVE], body=b"hello")),
    "no length": (b"GET", response(fields=[b"Content-Length: 0"])),
    "a body of line ends": (b"GET", response(fields=[FIVE], body=b"\r\n\r\n\n")),
    "chunks": (b"POST", response(fields=[CHUNKED], body=b"5;a\r\nhello\r\n0\r\n\r\n")),
    "trailers": (b"GET", response(fields=[CHUNKED], body=b"0\r\nX: a\r\n\r\n")),
    "HEAD with a length": (b"HEAD", response(fields=[FIVE])),
    "HEAD that leaves the length open": (b"HEAD", response()),
    "HEAD with chunks": (b"HEAD", response(fields=[CHUNKED])),
    "HEAD without a length": (b"HEAD", response(fields=[b"Content-Length: 0"])),
    "204": (b"DELETE", response(b"HTTP/1.1 204 No Content")),
    "304": (b"GET", response(b"HTTP/1.1 304 Not Modified", [FIVE])),
    "304 to HEAD": (b"HEAD", response(b"HTTP/1.1 304 Not Modified", [CHUNKED])),
    "after 1xx": (b"GET", response(b"HTTP/1.1 103 Early", [b"A: b"]) + response(fields=[FIVE], body=b"hello")),
    "version 1.0": (b"GET", response(b"HTTP/1.0 200 OK", [FIVE, b"Connection: keep-alive"], b"hello")),
}


def one_by_one(answers: list[tuple[bytes, list[bytes]]]) -> list[list[Event]]:
    """Read the reads of each response with one parser."""
    parser: ResponseParser | None = None
    read = []
    for method, reads in answers:
        if parser is None:
            parser = ResponseParser(method)
        else:
            parser.expect(method)
        read.append(merged([event for data in reads for event in parser.feed(data)]))
    return read


class ResponseSequenceTests(SynchronousTestCase):
    """One parser reads all responses of a connection."""

    def test_every_response_after_every_other(self) -> None:
        """The events are those of a new parser, whatever was read before."""
        for before, first in ANSWERS.items():
            for name, second in ANSWERS.items():
                for split in (lambda data: [data], octets):
                    events = one_by_one([(first[0], split(first[1])), (second[0], split(second[1]))])
                    self.assertEqual(events[1], read_response(second[1], method=second[0]), (before, name))
                    self.assertIsInstance(events[1][-1], End)

    def test_excess_after_the_second(self) -> None:
        """Bytes after the second response are excess, as after the first."""
        for before, first in ANSWERS.items():
            for name, second in ANSWERS.items():
                for excess in (b"\r\n", b"x", b"0\r\n\r\n"):
                    for reads in ([second[1] + excess], octets(second[1] + excess), [second[1], excess]):
                        events = one_by_one([(first[0], [first[1]]), (second[0], reads)])[1]
                        self.assertEqual(events[-1], Excess(), (before, name, excess))

    def test_line_ends_in_front(self) -> None:
        """Line ends in front of the second response are refused as in front of the first."""
        for name, (method, data) in ANSWERS.items():
            events = one_by_one([(method, [data]), (b"GET", [b"\r\n" + response()])])[1]
            self.assertEqual(refusal(events), ("malformed_message", 400), name)

    def test_started(self) -> None:
        """The property is reset for the next response."""
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[FIVE], body=b"hello"))
        parser.expect(b"GET")
        self.assertFalse(parser.started)
        parser.feed(b"H")
        self.assertTrue(parser.started)

    def test_limits_of_each_response(self) -> None:
        """Octets, fields and interim responses are counted anew for each response."""
        one = response(b"HTTP/1.1 103 E", [b"X: " + b"a" * 200]) * 16
        one += response(fields=[FIVE, b"X: " + b"a" * 200], body=b"hello")
        parser = ResponseParser(b"GET", MessageLimits(head=260, fields=2))
        for _ in range(5):
            self.assertEqual(names(parser.feed(one)), ["Interim"] * 16 + ["ResponseHead", "body", "End"])
            parser.expect(b"GET")

    def test_an_upgrade_later(self) -> None:
        """101 is accepted only where the current request asked for an upgrade."""
        granted = response(b"HTTP/1.1 101 S", [b"Connection: upgrade", b"Upgrade: x"], b"rest")
        for _, (method, data) in ANSWERS.items():
            parser = ResponseParser(method)
            parser.feed(data)
            parser.expect(b"GET", upgrade=True)
            self.assertEqual(names(parser.feed(granted)), ["ResponseHead", "End"])
            self.assertEqual((parser.rest, parser.closed), (b"rest", True))
            parser = ResponseParser(method, upgrade=True)
            parser.feed(data)
            parser.expect(b"GET")
            self.assertEqual(names(parser.feed(granted)), ["malformed_message"])

    def test_expect_before_the_end(self) -> None:
        """Expecting the next response before the end of the current one is a defect of the caller."""
        parser = ResponseParser(b"GET")
        self.assertRaises(ValueError, parser.expect, b"GET")
        parser.feed(response(fields=[FIVE], body=b"hell"))
        self.assertRaises(ValueError, parser.expect, b"GET")

    def test_closed_by_excess(self) -> None:
        """No response is read after excess."""
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[FIVE], body=b"hello!"))
        parser.expect(b"GET")
        self.assertEqual((parser.closed, parser.feed(response()), parser.feed_eof()), (True, [], []))

    @given(
        st.lists(st.tuples(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 150), max_size=4)), max_size=4),
        st.binary(max_size=30) | st.sampled_from([response(fields=[FIVE], body=b"hello!"), response(fields=[CHUNKED])]),
        st.lists(st.integers(0, 60), max_size=4),
    )
    def test_any_responses(self, chosen: list[tuple[str, list[int]]], last: bytes, positions: list[int]) -> None:
        """Earlier responses and the split into reads do not change the events of the last response."""
        answers = [(ANSWERS[name][0], cut(ANSWERS[name][1], at)) for name, at in chosen]
        events = one_by_one([*answers, (b"GET", cut(last, positions))])[-1]
        self.assertEqual(comparable(events), comparable(read_response(last)))
        self.assertLessEqual(sum(isinstance(event, ResponseHead | MessageRefused) for event in events), 2)
