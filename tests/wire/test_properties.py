"""Properties of all inputs: no exception, the same events for any split, a round trip of valid messages."""

from __future__ import annotations

import string
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import End, Event, Excess, MessageRefused, RequestHead, RequestParser, ResponseHead, ResponseParser
from tests.wire.reading import comparable, cut, merged, read_requests, read_response

Field = tuple[bytes, bytes]

TOKEN_OCTETS = string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~"
VISIBLE = bytes(range(0x21, 0x7F)) + bytes(range(0x80, 0x100))
PATH = "abcXYZ019-._~!$&'()*+,;=:@%/?"

METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"PROPFIND", b"QUERY"])
TARGETS = st.text(PATH, max_size=30).map(lambda text: b"/" + text.encode("ascii"))
NAMES = st.text(TOKEN_OCTETS, min_size=1, max_size=12).map(lambda text: b"X-" + text.encode("ascii"))
INNER = st.lists(st.sampled_from([*VISIBLE, 0x20, 0x09]), max_size=20).map(bytes)
VALUES = INNER.map(lambda value: value.strip(b" \t"))
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
SPACE = st.text(" \t", max_size=3).map(str.encode)
BODIES = st.none() | st.binary(max_size=60) | st.lists(st.binary(min_size=1, max_size=20), max_size=4)
POSITIONS = st.lists(st.integers(0, 600), max_size=12)
#: Octets that come near to a message more often than any octets do.
PIECES = st.sampled_from(
    b"\r\n|\n|\r| |\t|:|\x00|\xff|0|5|5\r\nhello\r\n|0\r\n\r\n|hello|\r\n\r\n|;a=b|GET |/| HTTP/1.1\r\n|X|X: a\r\n|"
    b"GET / HTTP/1.1\r\n|POST /a HTTP/1.0\r\n|OPTIONS * HTTP/1.1\r\n|GET / HTTP/2.0\r\n|PRI * HTTP/2.0|"
    b"HTTP/1.1 200 OK\r\n|HTTP/1.1 100 Continue\r\n|HTTP/1.0 204 x\r\n|HTTP/1.1 101 x\r\n|Host: a\r\n|Host: b\r\n|"
    b"Content-Length: 5\r\n|Content-Length: 0\r\n|Content-Length:\r\n|Svc-A: b\r\n|Connection: close\r\n|"
    b"Transfer-Encoding: chunked\r\n|Transfer-Encoding: gzip\r\n|Transfer-Encoding: chunked\t\r\n|Upgrade: h2c\r\n|"
    b"Connection: upgrade\r\n|Proxy-Connection: upgrade\r\n|Upgrade: websocket\r\n".split(b"|")
)
NEAR = st.lists(PIECES | st.binary(max_size=5), max_size=20).map(b"".join)
OCTETS = st.binary(max_size=200) | NEAR


@dataclass(frozen=True)
class Message:
    """A generated message: its values and its bytes."""

    start: tuple[bytes, ...]
    fields: list[Field]
    body: bytes
    trailers: list[Field]
    octets: bytes


def written(fields: list[Field], spaces: list[tuple[bytes, bytes]]) -> bytes:
    """Write fields with white space around their values, one by one; plainly where no white space is left."""
    around = [*spaces, *[(b" ", b"")] * len(fields)]
    return b"".join(
        name + b":" + before + value + after + b"\r\n"
        for (name, value), (before, after) in zip(fields, around, strict=False)
    )


@st.composite
def messages(draw: st.DrawFn, request: bool) -> Message:
    """Generate a valid message with explicit framing."""
    fields, trailers, body = draw(FIELDS), draw(FIELDS), draw(BODIES)
    if request:
        start: tuple[bytes, ...] = (draw(METHODS), draw(TARGETS))
        line = b"%b %b HTTP/1.1\r\n" % start
        fields = [*fields, (b"Host", b"a.example:8443")]
    else:
        start = (b"%d" % draw(st.integers(200, 599).filter(lambda status: status not in (204, 304))), draw(INNER))
        line = b"HTTP/1.1 %b %b\r\n" % start
        body = body or b""
    content = b""
    if isinstance(body, bytes):
        fields, trailers, content = [*fields, (b"content-length", b"%d" % len(body))], [], body
    elif body is None:
        trailers = []
    else:
        # In front of a tab the coding would be refused, so it follows the fields that get white space.
        fields = [*fields, *[(b"X", b"")] * 3, (b"Transfer-Encoding", b"chunked")]
        content = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body)
        content += b"0\r\n" + written(trailers, []) + b"\r\n"
    head = line + written(fields, draw(st.lists(st.tuples(SPACE, SPACE), max_size=3))) + b"\r\n"
    plain = body if isinstance(body, bytes) else b"".join(body or [])
    return Message(start, fields, plain, trailers, head + content)


REQUESTS = st.lists(messages(True), min_size=1, max_size=3)
RESPONSES = messages(False)


class RequestPropertyTests(SynchronousTestCase):
    """Any bytes of a client."""

    @given(st.lists(OCTETS, max_size=5))
    def test_any_octets(self, reads: list[bytes]) -> None:
        """Any octets give events and at most one defect, which is the last event; nothing is raised."""
        parser = RequestParser()
        events = [event for data in reads for event in parser.feed(data)]
        self.assertNotIn(MessageRefused, [type(event) for event in events[:-1]])
        self.assert_in_order(events)
        if events and isinstance(events[-1], MessageRefused):
            self.assertTrue(parser.closed)
            self.assertIn(events[-1].error.http_status, (400, 431, 501, 505))
            self.assertNotIn("{", str(events[-1].error))
            self.assertEqual(parser.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), [])

    def assert_in_order(self, events: list[Event]) -> None:
        """Check for a head, as many octets as it announced, an end, and so on."""
        head: RequestHead | None = None
        octets = 0
        for event in events:
            if isinstance(event, MessageRefused):
                continue
            self.assertEqual(head is None, isinstance(event, RequestHead))
            if isinstance(event, RequestHead):
                head, octets = event, 0
            elif isinstance(event, bytes):
                octets += len(event)
                self.assertTrue(head is not None and (head.chunked or octets <= (head.length or 0)))
            else:
                self.assertIsInstance(event, End)
                self.assertTrue(head is not None and (head.chunked or octets == (head.length or 0)))
                head = None

    @given(OCTETS, POSITIONS)
    @example(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nX", [60])
    def test_any_split_of_any_octets(self, data: bytes, positions: list[int]) -> None:
        """The split into reads does not change the events."""
        self.assertEqual(comparable(read_requests(*cut(data, positions))), comparable(read_requests(data)))

    @given(REQUESTS, POSITIONS, OCTETS)
    def test_any_split_of_requests(self, requests: list[Message], positions: list[int], rest: bytes) -> None:
        """The same with valid requests in front."""
        data = b"".join(message.octets for message in requests) + rest
        self.assertEqual(comparable(read_requests(*cut(data, positions))), comparable(read_requests(data)))

    @given(REQUESTS, POSITIONS)
    def test_round_trip(self, requests: list[Message], positions: list[int]) -> None:
        """Method, target, fields, body and trailers of each request are read as they were written."""
        events = read_requests(*cut(b"".join(message.octets for message in requests), positions))
        for message in requests:
            head = events.pop(0)
            assert isinstance(head, RequestHead), head
            self.assertEqual(((head.method, head.target), head.fields), (message.start, message.fields))
            self.assertEqual(head.host, b"a.example:8443")
            body = events.pop(0) if message.body else b""
            self.assertEqual((body, events.pop(0)), (message.body, End(message.trailers)))
            self.assertEqual(head.has_body, head.chunked or bool(message.body))
        self.assertEqual(events, [])

    @given(OCTETS)
    def test_after_an_upgrade(self, rest: bytes) -> None:
        """Held back bytes are read by resume as without the upgrade, or returned unchanged by take_rest."""
        asking = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
        going_on, giving_up = RequestParser(), RequestParser()
        self.assertEqual(len(going_on.feed(asking + rest)), 2)
        self.assertEqual(comparable(going_on.resume()), comparable(read_requests(rest)))
        giving_up.feed(asking + rest)
        self.assertEqual(giving_up.take_rest(), rest)


class ResponsePropertyTests(SynchronousTestCase):
    """Any bytes of an upstream connection."""

    @given(st.lists(OCTETS, max_size=5), st.sampled_from([b"GET", b"HEAD", b"POST"]), st.booleans(), st.booleans())
    def test_any_octets(self, reads: list[bytes], method: bytes, upgrade: bool, clean: bool) -> None:
        """Any octets give one response or one defect and nothing after it; nothing is raised."""
        parser = ResponseParser(method, upgrade=upgrade)
        events = [event for data in reads for event in parser.feed(data)]
        events += parser.feed_eof(clean=clean)
        kinds = [type(event) for event in merged(events)]
        self.assertNotIn(MessageRefused, kinds[:-1])
        self.assertLessEqual(kinds.count(End) + kinds.count(MessageRefused), 1)
        self.assertLessEqual(kinds.count(ResponseHead), 1)
        if Excess in kinds:
            self.assertEqual(kinds[-2:], [End, Excess])
        self.assert_framed(merged(events), method)
        if kinds and kinds[-1] in (End, MessageRefused):
            self.assertEqual(parser.feed_eof(), [])
        if ResponseHead in kinds and MessageRefused not in kinds:
            self.assertIn(End, kinds)

    def assert_framed(self, events: list[Event], method: bytes) -> None:
        """Check that the body has the announced length."""
        heads = [event for event in events if isinstance(event, ResponseHead)]
        octets = sum(len(event) for event in events if isinstance(event, bytes))
        if not heads or method == b"HEAD" or heads[0].status in (101, 204, 304):
            self.assertEqual(octets, 0)
        elif not (heads[0].chunked or heads[0].until_close):
            complete = End in [type(event) for event in events]
            self.assertTrue(octets == heads[0].length if complete else octets < (heads[0].length or 0))

    @given(OCTETS, POSITIONS, st.sampled_from([b"GET", b"HEAD"]), st.booleans())
    @example(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\r\n", [45], b"GET", False)
    def test_any_split_of_any_octets(self, data: bytes, positions: list[int], method: bytes, upgrade: bool) -> None:
        """The split into reads does not change the events."""
        whole = read_response(data, method=method, upgrade=upgrade, eof=True)
        split = read_response(*cut(data, positions), method=method, upgrade=upgrade, eof=True)
        self.assertEqual(comparable(split), comparable(whole))

    @given(RESPONSES, POSITIONS, OCTETS, st.sampled_from([b"GET", b"HEAD"]))
    def test_any_split_of_a_response(self, message: Message, positions: list[int], rest: bytes, method: bytes) -> None:
        """The same with a valid response in front; anything after it is excess."""
        data = message.octets + rest
        whole = comparable(read_response(data, method=method))
        self.assertEqual(comparable(read_response(*cut(data, positions), method=method)), whole)
        if rest:
            self.assertEqual(whole[-1], Excess())

    @given(RESPONSES, POSITIONS)
    def test_round_trip(self, message: Message, positions: list[int]) -> None:
        """Status, phrase, fields, body and trailers are read as they were written."""
        events = read_response(*cut(message.octets, positions))
        head = events.pop(0)
        assert isinstance(head, ResponseHead), head
        self.assertEqual((b"%d" % head.status, head.phrase, head.fields), (*message.start, message.fields))
        body = events.pop(0) if message.body else b""
        self.assertEqual((body, events), (message.body, [End(message.trailers)]))
