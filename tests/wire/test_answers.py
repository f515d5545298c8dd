"""Several answers on one upstream connection, one at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.errors import MalformedMessage
from svc.wire.http1 import End, Event, Excess, Limits, Refused, ResponseHead, ResponseParser
from tests.wire.reading import comparable, cut, merged, names, octets, read_response, refusal, response

FIVE = b"Content-Length: 5"
CHUNKED = b"Transfer-Encoding: chunked"

#: Method and octets of answers after which the connection goes on.
ANSWERS = {
    "a length": (b"GET", response(fields=[FIVE], body=b"hello")),
    "no length": (b"GET", response(fields=[b"Content-Length: 0"])),
    "a body of line ends": (b"GET", response(fields=[FIVE], body=b"\r\n\r\n\n")),
    "chunks": (b"POST", response(fields=[CHUNKED], body=b"5;a\r\nhello\r\n0\r\n\r\n")),
    "trailers": (b"GET", response(fields=[CHUNKED], body=b"0\r\nX: a\r\n\r\n")),
    "HEAD with a length": (b"HEAD", response(fields=[FIVE])),
    "HEAD with chunks": (b"HEAD", response(fields=[CHUNKED])),
    "HEAD without a length": (b"HEAD", response(fields=[b"Content-Length: 0"])),
    "204": (b"DELETE", response(b"HTTP/1.1 204 No Content")),
    "304": (b"GET", response(b"HTTP/1.1 304 Not Modified", [FIVE])),
    "304 to HEAD": (b"HEAD", response(b"HTTP/1.1 304 Not Modified", [CHUNKED])),
    "behind 1xx": (b"GET", response(b"HTTP/1.1 103 Early", [b"A: b"]) + response(fields=[FIVE], body=b"hello")),
    "version 1.0": (b"GET", response(b"HTTP/1.0 200 OK", [FIVE, b"Connection: keep-alive"], b"hello")),
}


def one_by_one(answers: list[tuple[bytes, list[bytes]]]) -> list[list[Event]]:
    """Read the reads of each answer with one parser."""
    parser: ResponseParser | None = None
    read = []
    for method, reads in answers:
        if parser is None:
            parser = ResponseParser(method)
        else:
            parser.expect(method)
        read.append(merged([event for data in reads for event in parser.feed(data)]))
    return read


class AnswersTests(SynchronousTestCase):
    """One parser for all answers of a connection."""

    def test_every_answer_behind_every_other(self) -> None:
        """An answer is read as by a new parser, whatever was read before it."""
        for before, first in ANSWERS.items():
            for name, second in ANSWERS.items():
                for split in (lambda data: [data], octets):
                    events = one_by_one([(first[0], split(first[1])), (second[0], split(second[1]))])
                    self.assertEqual(events[1], read_response(second[1], method=second[0]), (before, name))
                    self.assertIsInstance(events[1][-1], End)

    def test_excess_behind_the_second(self) -> None:
        """What follows the second answer is excess as it is behind the first."""
        for before, first in ANSWERS.items():
            for name, second in ANSWERS.items():
                for excess in (b"\r\n", b"x", b"0\r\n\r\n"):
                    for reads in ([second[1] + excess], octets(second[1] + excess), [second[1], excess]):
                        events = one_by_one([(first[0], [first[1]]), (second[0], reads)])[1]
                        self.assertEqual(events[-1], Excess(), (before, name, excess))

    def test_what_belongs_to_no_answer(self) -> None:
        """Line ends in front of the second answer are refused as in front of the first."""
        for name, (method, data) in ANSWERS.items():
            events = one_by_one([(method, [data]), (b"GET", [b"\r\n" + response()])])[1]
            self.assertEqual(refusal(events), (MalformedMessage, 400), name)

    def test_begun(self) -> None:
        """Of the next answer no octet has come."""
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[FIVE], body=b"hello"))
        parser.expect(b"GET")
        self.assertFalse(parser.begun)
        parser.feed(b"H")
        self.assertTrue(parser.begun)

    def test_limits_start_again(self) -> None:
        """Each answer has all that one may use: octets, fields, interim responses."""
        one = response(b"HTTP/1.1 103 E", [b"X: " + b"a" * 200]) * 16
        one += response(fields=[FIVE, b"X: " + b"a" * 200], body=b"hello")
        parser = ResponseParser(b"GET", Limits(head=260, fields=2))
        for _ in range(5):
            self.assertEqual(names(parser.feed(one)), ["Interim"] * 16 + ["ResponseHead", "body", "End"])
            parser.expect(b"GET")

    def test_an_upgrade_later(self) -> None:
        """The wish for another protocol belongs to its own request."""
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
            self.assertEqual(names(parser.feed(granted)), ["MalformedMessage"])

    def test_not_in_the_middle(self) -> None:
        """To go on before the end is a defect of the caller."""
        parser = ResponseParser(b"GET")
        self.assertRaises(ValueError, parser.expect, b"GET")
        parser.feed(response(fields=[FIVE], body=b"hell"))
        self.assertRaises(ValueError, parser.expect, b"GET")

    def test_closed_for_good(self) -> None:
        """Behind excess no answer is read."""
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[FIVE], body=b"hello!"))
        parser.expect(b"GET")
        self.assertEqual((parser.closed, parser.feed(response()), parser.feed_eof()), (True, [], []))

    @given(
        st.lists(st.tuples(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 150), max_size=4)), max_size=4),
        st.binary(max_size=30) | st.sampled_from([response(fields=[FIVE], body=b"hello!"), response(fields=[CHUNKED])]),
        st.lists(st.integers(0, 60), max_size=4),
    )
    def test_any_answers(self, chosen: list[tuple[str, list[int]]], last: bytes, places: list[int]) -> None:
        """Neither the answers before nor the reads matter to the last one, whatever it is."""
        answers = [(ANSWERS[name][0], cut(ANSWERS[name][1], at)) for name, at in chosen]
        events = one_by_one([*answers, (b"GET", cut(last, places))])[-1]
        self.assertEqual(comparable(events), comparable(read_response(last)))
        self.assertLessEqual(sum(isinstance(event, ResponseHead | Refused) for event in events), 2)
