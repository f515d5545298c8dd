"""The limits of a message: each at its value and one octet, field or response beyond."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import (
    MAX_INTERIM,
    End,
    Event,
    MessageLimits,
    MessageRefused,
    RequestParser,
    ResponseHead,
    ResponseParser,
)
from tests.wire.reading import cut, octets, read_requests, read_response, refusal, request, response

LIMIT = 400
LIMITS = MessageLimits(head=LIMIT, fields=10)
TOO_LARGE = ("head_too_large", 431)
CHUNKED = b"Transfer-Encoding: chunked"

UPGRADE = [b"Connection: upgrade", b"Upgrade: websocket"]


def filled(before: bytes, after: bytes, size: int) -> bytes:
    """Insert octets so that the result has this size."""
    return before + b"a" * (size - len(before) - len(after)) + after


#: Where a request head can be large: the octets before the filling and after it.
POSITIONS = {
    "in the target": (b"GET /", b" HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    "in an absolute target": (b"GET http://a.example/", b" HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    "in a name": (b"GET / HTTP/1.1\r\nHost: a.example\r\nX", b": a\r\n\r\n"),
    "in a value": (b"GET / HTTP/1.1\r\nHost: a.example\r\nX: ", b"\r\n\r\n"),
    "in the white space after a value": (b"GET / HTTP/1.1\r\nHost: a.example\r\nX: ", b" " * 100 + b"\r\n\r\n"),
    "in the first of two values": (b"GET / HTTP/1.1\r\nX: ", b"\r\nHost: a.example\r\n\r\n"),
    "with a long method": (b"MKCALENDAR /", b" HTTP/1.1\r\nHost: a.example\r\n\r\n"),
}

#: What is skipped without an event and grows in front of one.
ENDLESS = {
    "line ends in front of a request": (b"", b"\r\n"),
    "a target": (b"GET /", b"a"),
    "a name": (b"GET / HTTP/1.1\r\n", b"a"),
    "a value": (b"GET / HTTP/1.1\r\nX: a", b"a"),
    "the white space in front of a value": (b"GET / HTTP/1.1\r\nX:", b" "),
    "spaces in front of the target": (b"GET ", b" "),
    "spaces in front of the version": (b"GET / ", b" "),
    "fields": (b"GET / HTTP/1.1\r\n", b"X: a\r\n"),
    "zeros of a chunk size": (request(fields=[CHUNKED]), b"0"),
    "a chunk extension": (request(fields=[CHUNKED], body=b"5;a"), b"a"),
    "a chunk extension's value": (request(fields=[CHUNKED], body=b"5;a=b"), b"b"),
    "a quoted chunk extension": (request(fields=[CHUNKED], body=b'5;a="'), b"b"),
    "chunk extensions": (request(fields=[CHUNKED], body=b"5"), b";a"),
    "the name of a trailer": (request(fields=[CHUNKED], body=b"0\r\nX"), b"a"),
    "the value of a trailer": (request(fields=[CHUNKED], body=b"0\r\nX: a"), b"a"),
    "trailers": (request(fields=[CHUNKED], body=b"0\r\n"), b"X: a\r\n"),
    "octets after an upgrade": (request(fields=UPGRADE), b"a"),
}

ENDLESS_ANSWERS = {
    "a reason phrase": (b"HTTP/1.1 200 ", b"a"),
    "a name": (b"HTTP/1.1 200 OK\r\n", b"a"),
    "a value": (b"HTTP/1.1 200 OK\r\nX: a", b"a"),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
    "line ends after an interim response": (response(b"HTTP/1.1 100 Continue"), b"\r\n"),
    "a chunk extension": (response(fields=[CHUNKED], body=b"5;a"), b"a"),
    "the value of a trailer": (response(fields=[CHUNKED], body=b"0\r\nX: a"), b"a"),
}


def accepted_before_refusal(parser: RequestParser | ResponseParser, start: bytes, more: bytes) -> tuple[int, str]:
    """Feed ``more`` repeatedly; return how many octets were accepted and the reason of the refusal."""
    parser.feed(start)
    taken = 0
    while taken <= 4 * (LIMIT + len(more)):
        taken += len(more)
        for event in parser.feed(more):
            if isinstance(event, MessageRefused):
                return taken, event.error.reason
            raise AssertionError(f"an event where none can be: {event!r}")
    raise AssertionError("it never ends")


class HeadSizeTests(SynchronousTestCase):
    """The head of a request may have exactly as many octets as the limit says."""

    def check(self, size: int, expected: object) -> None:
        """Read a head of the size, filled at each position, whole, in two reads, and octet by octet."""
        for name, (before, after) in POSITIONS.items():
            data = filled(before, after, size)
            for reads in ([data], cut(data, [size // 2]), octets(data)):
                self.assertEqual(refusal(read_requests(*reads, limits=LIMITS)), expected, (name, len(reads)))

    def test_at_the_limit(self) -> None:
        """A head of exactly the limit is accepted, however it is filled and split."""
        self.check(LIMIT, None)

    def test_beyond_the_limit(self) -> None:
        """One octet more is refused."""
        self.check(LIMIT + 1, TOO_LARGE)

    def test_far_beyond_the_limit(self) -> None:
        """A multiple of the limit is refused before its end is received."""
        self.check(LIMIT * 3, TOO_LARGE)
        for before, _ in POSITIONS.values():
            self.assertEqual(refusal(read_requests(before + b"a" * 3 * LIMIT, b"a", limits=LIMITS)), TOO_LARGE)

    def test_each_request_has_its_own_limit(self) -> None:
        """Requests in one read are counted separately."""
        before, after = POSITIONS["in a value"]
        events = read_requests(filled(before, after, LIMIT) * 5, limits=LIMITS)
        self.assertEqual((len(events), refusal(events)), (10, None))

    def test_trailers(self) -> None:
        """Trailers, with the chunk line in front of them, count with the head of their message."""
        head = request(b"POST / HTTP/1.1", [CHUNKED, b"X: " + b"a" * 200])
        for size, expected in ((LIMIT, None), (LIMIT + 1, TOO_LARGE)):
            data = head + b"5\r\nhello" + filled(b"\r\n0\r\nX: ", b"\r\n\r\n", size - len(head))
            for reads in ([data], octets(data)):
                self.assertEqual(refusal(read_requests(*reads, limits=LIMITS)), expected, (size, len(reads)))

    def test_responses(self) -> None:
        """A response's head and trailers have the same limits."""
        for size, expected in ((LIMIT, None), (LIMIT + 1, TOO_LARGE)):
            for before, after in (
                (b"HTTP/1.1 200 ", b"\r\nContent-Length: 0\r\n\r\n"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ", b"\r\n\r\n"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX", b": a\r\n\r\n"),
            ):
                data = filled(before, after, size)
                for reads in ([data], octets(data)):
                    self.assertEqual(refusal(read_response(*reads, limits=LIMITS)), expected, (size, before))
            head = response(fields=[CHUNKED])
            data = head + b"5\r\nhello" + filled(b"\r\n0\r\nX: ", b"\r\n\r\n", size - len(head))
            for reads in ([data], octets(data)):
                self.assertEqual(refusal(read_response(*reads, limits=LIMITS)), expected, size)


class EndlessTests(SynchronousTestCase):
    """Input without an event is bounded by the limit and one read."""

    def test_requests(self) -> None:
        """Octets without an event end with a refusal, in small reads and in large ones."""
        for name, (start, more) in ENDLESS.items():
            for repeat in (1, 50, 1000):
                read = more * repeat
                taken, error = accepted_before_refusal(RequestParser(LIMITS), start, read)
                self.assertLessEqual(taken, LIMIT + 2 * len(read), (name, repeat))
                self.assertIn(error, ("head_too_large", "too_much_held_back"), name)

    def test_responses(self) -> None:
        """The same for upstream connections."""
        for name, (start, more) in ENDLESS_ANSWERS.items():
            for repeat in (1, 50, 1000):
                read = more * repeat
                taken, error = accepted_before_refusal(ResponseParser(b"GET", LIMITS), start, read)
                self.assertLessEqual(taken, LIMIT + 2 * len(read), (name, repeat))
                self.assertEqual(error, "head_too_large", name)

    def test_a_long_body_is_no_head(self) -> None:
        """Bodies of both framings pass in any number of octets."""
        for start in (request(fields=[b"Content-Length: 100000"]), request(fields=[CHUNKED], body=b"186a0\r\n")):
            parser = RequestParser(LIMITS)
            parser.feed(start)
            events: list[Event] = [event for _ in range(1000) for event in parser.feed(b"a" * 100)]
            self.assertEqual(b"".join(event for event in events if isinstance(event, bytes)), b"a" * 100000)

    def test_many_chunks_with_extensions(self) -> None:
        """The limit applies between two pieces of a body, not to the sum."""
        data = request(fields=[CHUNKED], body=(b"1;" + b"a" * 300 + b"\r\nx\r\n") * 20 + b"0\r\n\r\n")
        for reads in ([data], octets(data)):
            events = read_requests(*reads, limits=LIMITS)
            self.assertEqual(events[1:], [b"x" * 20, End([])])


class CountTests(SynchronousTestCase):
    """Fields and interim responses are counted."""

    def test_fields(self) -> None:
        """A head may have as many fields as the limit says, Host among them."""
        for count, expected in ((9, None), (10, ("too_many_fields", 431))):
            data = request(fields=[b"X: a"] * count)
            for reads in ([data], octets(data)):
                self.assertEqual(refusal(read_requests(*reads, limits=LIMITS)), expected)

    def test_trailers(self) -> None:
        """Trailers are counted with the head of their message."""
        for count, expected in ((4, None), (5, ("too_many_fields", 431))):
            trailers = b"0\r\n" + b"X: a\r\n" * count + b"\r\n"
            for reads in ([trailers], octets(trailers)):
                asked = read_requests(request(fields=[CHUNKED] + [b"X: a"] * 4), *reads, limits=LIMITS)
                answered = read_response(response(fields=[CHUNKED] + [b"X: a"] * 5), *reads, limits=LIMITS)
                self.assertEqual((refusal(asked), refusal(answered)), (expected, expected))

    def test_response_fields(self) -> None:
        """A response may have as many fields as the limit says."""
        for count, expected in ((10, None), (11, ("too_many_fields", 431))):
            data = response(fields=[b"X: a"] * count)
            self.assertEqual(refusal(read_response(data, limits=LIMITS)), expected)

    def test_interim_responses(self) -> None:
        """The number of 1xx before the final response is bounded; each head has its own limit."""
        one = response(b"HTTP/1.1 103 Early Hints", [b"Link: " + b"a" * 300])
        final = response(fields=[b"Content-Length: 0"])
        events = read_response(one * MAX_INTERIM + final, limits=LIMITS)
        self.assertEqual(len(events), MAX_INTERIM + 2)
        self.assertIsInstance(events[-2], ResponseHead)
        for reads in ([one * (MAX_INTERIM + 1)], octets(one * (MAX_INTERIM + 1))):
            self.assertEqual(refusal(read_response(*reads, limits=LIMITS)), ("too_many_interim", 400))

    def test_what_an_upgrade_holds_back(self) -> None:
        """Octets after a request for an upgrade are held back up to the limit."""
        start = request(fields=UPGRADE)
        for size, expected in ((LIMIT, None), (LIMIT + 1, ("too_much_held_back", 400))):
            for reads in ([start + b"a" * size], [start, *octets(b"a" * size)]):
                self.assertEqual(refusal(read_requests(*reads, limits=LIMITS)), expected)
