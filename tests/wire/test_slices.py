"""Reads in slices: the events of a whole read, found a few lines at a time."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import SLICE_LINES, SLICE_OCTETS, Event, Excess, RequestParser, ResponseParser
from svc.wire.http1.parser import Parser
from tests.wire.reading import comparable, cut, request, response
from tests.wire.test_properties import NEAR, OCTETS, POSITIONS, Message, messages

CHUNK = b"1\r\na\r\n"
LAST = b"0\r\n\r\n"


def slices(parser: Parser, *reads: bytes) -> list[list[Event]]:
    """Feed each read in slices; returns the events of each slice."""
    result = []
    for data in reads:
        begin = 0
        while begin < len(data):
            events, end = parser.feed_slice(data, begin)
            assert end > begin, "each slice goes on"
            result.append(events)
            begin = end
    return result


def joined(parts: Iterable[list[Event]]) -> list[Event]:
    """All events."""
    return [event for part in parts for event in part]


class SameEventsTests(SynchronousTestCase):
    """Slices change no event."""

    @given(st.lists(messages(True), min_size=1, max_size=40), NEAR, POSITIONS)
    def test_requests(self, requests: list[Message], rest: bytes, positions: list[int]) -> None:
        """Pipelined requests, and what follows them."""
        data = b"".join(each.octets for each in requests) + rest
        whole = RequestParser().feed(data)
        self.assertEqual(comparable(joined(slices(RequestParser(), *cut(data, positions)))), comparable(whole))

    @given(messages(False), NEAR, POSITIONS, st.sampled_from([b"GET", b"HEAD"]))
    def test_responses(self, message: Message, rest: bytes, positions: list[int], method: bytes) -> None:
        """A response, and what follows it."""
        data = message.octets + rest
        self.assert_same_response(data, positions, method)

    @given(OCTETS.map(lambda data: data * 20), POSITIONS, st.booleans())
    @example(b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n" + b"\n" * 400, [], True)
    @example(b"HTTP/1.1 200 x\r\n\r\n" + b"\n" * 400, [], False)
    def test_any_octets(self, data: bytes, positions: list[int], upgrade: bool) -> None:
        """Any octets, as requests and as a response."""
        whole = RequestParser().feed(data)
        self.assertEqual(comparable(joined(slices(RequestParser(), *cut(data, positions)))), comparable(whole))
        self.assert_same_response(data, positions, b"GET", upgrade=upgrade)

    def assert_same_response(self, data: bytes, positions: list[int], method: bytes, *, upgrade: bool = False) -> None:
        """Compare events and what is left, until the parser is closed."""
        whole, parser = (ResponseParser(method, upgrade=upgrade) for _ in range(2))
        reads = cut(data, positions)
        expected = [event for each in reads for event in whole.feed(each)]
        events = joined(slices(parser, *reads))
        self.assertEqual(comparable(events), comparable(expected))
        self.assertEqual((parser.closed, parser.rest), (whole.closed, whole.rest))


class SizeTests(SynchronousTestCase):
    """How much one slice reads."""

    def assert_small(self, parser: Parser, data: bytes) -> list[list[Event]]:
        """The number of events of each slice is bounded, and the slices are not smaller than they must be."""
        parts = slices(parser, data)
        self.assertLessEqual(max(map(len, parts)), SLICE_LINES + 2)
        self.assertLess(len(parts), len(data) // (SLICE_LINES - 1) + 2)
        return parts

    def test_chunks_of_one_octet(self) -> None:
        """A chunk takes two lines."""
        head = [b"Transfer-Encoding: chunked"]
        requests = request(b"POST / HTTP/1.1", head, CHUNK * 20000 + LAST)
        self.assertGreater(len(self.assert_small(RequestParser(), requests)), 20000 * 2 // SLICE_LINES)
        self.assertGreater(
            len(self.assert_small(ResponseParser(b"GET"), response(fields=head, body=CHUNK * 20000 + LAST))),
            20000 * 2 // SLICE_LINES,
        )

    def test_small_requests(self) -> None:
        """A request takes three lines at least."""
        self.assertGreater(len(self.assert_small(RequestParser(), request() * 4000)), 4000 * 3 // SLICE_LINES)

    def test_line_ends_alone(self) -> None:
        """The worst body for the search of a slice."""
        head = [b"Transfer-Encoding: chunked"]
        self.assert_small(ResponseParser(b"GET"), response(fields=head, body=b"\r\n" * 50000))
        self.assert_small(RequestParser(), b"\r\n" * 50000)

    def test_one_slice(self) -> None:
        """Bodies of known length or to the end of the connection, and known chunks, are one slice."""
        body, length, chunked = b"\r\n" * 50000, [b"Content-Length: 100000"], [b"Transfer-Encoding: chunked"]
        post = b"POST / HTTP/1.1"
        chunk = b"186a0\r\n" + body
        for parser, reads in (
            (RequestParser(), (request(post, length), body)),
            (RequestParser(), (request(post, chunked), b"186a0\r\n", body)),
            (ResponseParser(b"GET"), (response(fields=length), body)),
            (ResponseParser(b"GET"), (response(fields=length, body=body),)),
            (ResponseParser(b"GET"), (response(), body)),
            (ResponseParser(b"GET"), (response(fields=chunked), chunk + b"\r\n" + chunk)),
            (ResponseParser(b"GET"), (response(fields=chunked, body=b"1\r\na\r\n18"), b"6a0\r\n" + body)),
            (ResponseParser(b"GET"), (response(fields=chunked, body=b"7d0\r\n" + b"\n" * 2000 + b"\r\n" + LAST),)),
        ):
            self.assertEqual(len(slices(parser, *reads)), len(reads), reads)

    def test_chunks_that_are_not_followed(self) -> None:
        """Behind an interim response, and behind a head in two small reads, slices end after lines."""
        chunk = b"186a0\r\n" + b"\r\n" * 50000
        for reads in (
            [response(b"HTTP/1.1 103 Early") + response(fields=[b"Transfer-Encoding: chunked"], body=b"1\r\na\r\n")],
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r", b"\n\r\n1\r\na\r\n"],
        ):
            parser = ResponseParser(b"GET")
            for each in reads:
                parser.feed(each)
            self.assertGreater(len(slices(parser, chunk)), 50000 // SLICE_LINES)

    def test_bounds(self) -> None:
        """A slice has at most so many lines."""
        for lines, count in ((SLICE_LINES, 1), (SLICE_LINES + 1, 2)):
            data = b"\r\n" * lines
            self.assertEqual(len(slices(RequestParser(), data[:-1])), count, lines)

    def test_nothing_is_left_behind_a_response(self) -> None:
        """What follows the end of a response in the same read is excess, also where the slice ends with it."""
        message = response(fields=[b"Transfer-Encoding: chunked"], body=CHUNK * 62 + LAST)
        self.assertEqual(message.count(b"\n"), SLICE_LINES + 1)
        for fill in range(200):
            data = message + b"HTTP/1.1 200 OK\r\n" * fill
            events = joined(slices(ResponseParser(b"GET"), data))
            self.assertEqual(type(events[-1]) is Excess, bool(fill), fill)


class ThresholdTests(SynchronousTestCase):
    """Reads that are not cut."""

    def test_cost_of_a_small_read(self) -> None:
        """A read that connections take as one slice has no more events than a few slices."""
        data = (CHUNK * SLICE_OCTETS)[:SLICE_OCTETS]
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[b"Transfer-Encoding: chunked"]))
        self.assertLess(len(parser.feed(data)), 2 * SLICE_LINES)
