"""Forwarded messages: heads, framing, and the end of a response that waits for its record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.proxy.errors import NotaryRate, NotaryUnavailable, RequestRefused, UpstreamTimeout
from svc.proxy.http.answers import answer, own_head, problem_body, problem_fields
from svc.proxy.http.recorder import Recorder
from svc.proxy.http.response import Framing, ResponseWriter, interim_head
from svc.proxy.http.upstream_request import request_head
from svc.strictjson import loads_object
from svc.wire.fields import Field
from svc.wire.http1 import End, Event, Interim, RequestHead, RequestParser, ResponseHead, ResponseParser
from tests.proxy.records.test_notarizer import GENERATION
from tests.proxy.rig import BASE

LINES = b"X-Forwarded-Client-Cert: URI=a\r\n"


def requested(octets: bytes) -> RequestHead:
    """Parse the head of a request."""
    head = RequestParser().feed(octets)[0]
    assert isinstance(head, RequestHead), head
    return head


def request(method: str = "GET", version: str = "1.1") -> RequestHead:
    """Create a plain request head."""
    return requested(b"%b / HTTP/%b\r\nHost: api\r\n\r\n" % (method.encode(), version.encode()))


def split(octets: bytes, cuts: list[int]) -> list[bytes]:
    """Split octets at the cuts."""
    places = sorted({cut % (len(octets) + 1) for cut in cuts})
    edges = [0, *places, len(octets)]
    return [octets[start:end] for start, end in pairwise(edges) if end > start]


@dataclass
class Answer:
    """A response of the application."""

    status: int
    body: bytes
    framing: str
    fields: list[Field]
    trailers: list[Field]
    cuts: list[int] = field(default_factory=list)

    def octets(self) -> bytes:
        """Return the octets that the application sends."""
        lines = b"".join(b"%b: %b\r\n" % each for each in self.fields)
        body = self.body
        if self.framing == "length":
            lines += b"Content-Length: %d\r\n" % len(body)
        elif self.framing == "chunked":
            lines += b"Transfer-Encoding: chunked\r\n"
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in split(body, self.cuts))
            body = chunks + b"0\r\n" + b"".join(b"%b: %b\r\n" % each for each in self.trailers) + b"\r\n"
        return b"HTTP/1.1 %d Word\r\n%b\r\n%b" % (self.status, lines, body)

    def bodiless(self, method: str) -> bool:
        """Return whether no body follows the head."""
        return method == "HEAD" or self.status in (204, 304)


def read(method: str, octets: bytes, cuts: list[int] | None = None) -> list[Event]:
    """Parse a response to its end."""
    parser = ResponseParser(method.encode())
    events: list[Event] = []
    for piece in split(octets, cuts or []):
        events += parser.feed(piece)
    return events + parser.feed_eof(clean=True)


def body_of(events: list[Event]) -> bytes:
    """Return the octets of a body."""
    return b"".join(event for event in events if isinstance(event, bytes))


NAMES = st.sampled_from([b"X-A", b"x-b", b"ETag", b"Cache-Control"])
VALUES = st.binary(max_size=12).map(lambda octets: bytes(33 + each % 90 for each in octets))
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
ANSWERS = st.builds(
    Answer,
    status=st.sampled_from([200, 206, 302, 404, 500, 204, 304]),
    body=st.binary(max_size=60),
    framing=st.sampled_from(["length", "chunked", "close"]),
    fields=FIELDS,
    trailers=FIELDS,
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
METHODS = st.sampled_from(["GET", "HEAD", "POST"])
VERSIONS = st.sampled_from(["1.0", "1.1"])


class Written:
    """A response that went through the writer."""

    def __init__(
        self, source: Answer, method: str, version: str, *, close: bool, recorded: bool, cuts: list[int]
    ) -> None:
        head = request(method, version)
        self.recorder = (
            Recorder(Level.SIGN_REQUEST, None, None, GENERATION.server, None, head, BASE) if recorded else None
        )
        octets = source.octets()
        if source.bodiless(method):
            octets = octets[: octets.index(b"\r\n\r\n") + 4]
        self.sent = b""
        for event in read(method, octets, cuts):
            if isinstance(event, ResponseHead):
                self.writer = ResponseWriter(head, event, close=close, added=b"Added: 1\r\n", recorder=self.recorder)
                self.sent += self.writer.first
            elif isinstance(event, bytes):
                self.sent += self.writer.body(event)
            elif isinstance(event, End):
                self.sent += self.writer.end(event.trailers)
        self.held = self.writer.held


class ResponseWriterTests(SynchronousTestCase):
    """From the application's response to the client's."""

    def written(self, source: Answer, method: str, version: str, **options: bool) -> Written:
        """Write a response that arrives in one piece."""
        return Written(
            source,
            method,
            version,
            close=options.get("close", False),
            recorded=options.get("recorded", False),
            cuts=[],
        )

    @given(ANSWERS, METHODS, VERSIONS, st.booleans(), st.booleans(), st.lists(st.integers(0, 200), max_size=5))
    @example(Answer(204, b"", "length", [], []), "GET", "1.1", False, True, [])
    def test_same_message(
        self, source: Answer, method: str, version: str, close: bool, recorded: bool, cuts: list[int]
    ) -> None:
        """For any framing, version and split: the sent and the withheld octets form the same message."""
        if source.status == 204:
            source.framing, source.body = "close", b""
        written = Written(source, method, version, close=close, recorded=recorded, cuts=cuts)
        events = read(method, written.sent + written.held)
        head, end = events[0], events[-1]
        assert isinstance(head, ResponseHead) and isinstance(end, End), events
        self.assertEqual((head.status, head.phrase), (source.status, b"Word"))
        body = b"" if source.bodiless(method) else source.body
        self.assertEqual(body_of(events), body)
        kept = source.framing == "chunked" and version == "1.1" and not source.bodiless(method)
        self.assertEqual(end.trailers, source.trailers if kept else [])
        for each in (*source.fields, (b"Added", b"1")):
            self.assertIn(each, head.fields)
        self.assertEqual((b"Connection", b"close") in head.fields, written.writer.close)
        self.assertTrue(written.writer.close or not close)

    @given(ANSWERS, METHODS, VERSIONS, st.booleans(), st.lists(st.integers(0, 200), max_size=5))
    def test_end_is_withheld(self, source: Answer, method: str, version: str, close: bool, cuts: list[int]) -> None:
        """Before the release no client can take the response as complete; only its end is withheld."""
        if source.status == 204:
            source.framing, source.body = "close", b""
        written = Written(source, method, version, close=close, recorded=True, cuts=cuts)
        parser = ResponseParser(method.encode())
        early = parser.feed(written.sent)
        self.assertNotIn(End, [type(event) for event in early])
        framing = written.writer._framing
        if framing is Framing.CLOSE:
            self.assertEqual(written.held, b"")
            self.assertTrue(written.writer.close)
        else:
            self.assertNotEqual(written.held, b"")
            self.assertIn(End, [type(event) for event in parser.feed(written.held)])
        if framing is Framing.NONE:
            self.assertEqual(written.sent, b"")
        elif framing is Framing.LENGTH:
            self.assertEqual((body_of(early), len(written.held)), (source.body[:-1], 1))
        else:
            self.assertEqual(body_of(early), source.body)

    @given(ANSWERS, METHODS, VERSIONS, st.lists(st.integers(0, 200), max_size=5))
    def test_recorded(self, source: Answer, method: str, version: str, cuts: list[int]) -> None:
        """The record has what the client receives: status, fields, digest and trailers."""
        if source.status == 204:
            source.framing, source.body = "close", b""
        written = Written(source, method, version, close=False, recorded=True, cuts=cuts)
        assert written.recorder is not None
        exchange = written.recorder.exchange("AAAAAAAAAAAAAAAAAAAAAA", ExchangeOutcome.COMPLETE, BASE)
        body = b"" if source.bodiless(method) else source.body
        self.assertEqual(exchange.status, source.status)
        seen = exchange.response_body
        self.assertEqual((seen.size, seen.sha256, seen.complete), (len(body), hashlib.sha256(body).digest(), True))
        events = read(method, written.sent + written.held)
        head, end = events[0], events[-1]
        assert isinstance(head, ResponseHead) and isinstance(end, End)
        self.assertEqual(list(exchange.response_trailers), end.trailers)
        for each in exchange.response_headers:
            self.assertIn(each, head.fields)
        self.assertEqual([each for each in source.fields if each not in exchange.response_headers], [])

    def test_without_a_record_nothing_is_withheld(self) -> None:
        """A response that is not recorded is sent as it arrives."""
        for framing in ("length", "chunked", "close"):
            written = self.written(Answer(200, b"body", framing, [], []), "GET", "1.1")
            self.assertEqual(written.held, b"")

    def test_old_client(self) -> None:
        """An HTTP/1.0 client gets no chunks, and ``Connection`` states whether the connection stays open."""
        chunked = self.written(Answer(200, b"body", "chunked", [], [(b"X-A", b"1")]), "GET", "1.0")
        self.assertEqual(chunked.sent, b"HTTP/1.1 200 Word\r\nAdded: 1\r\nConnection: close\r\n\r\nbody")
        self.assertTrue(chunked.writer.close)
        length = self.written(Answer(200, b"body", "length", [], []), "GET", "1.0")
        self.assertEqual(
            length.sent,
            b"HTTP/1.1 200 Word\r\nContent-Length: 4\r\nAdded: 1\r\nConnection: keep-alive\r\n\r\nbody",
        )

    def test_unknown_length(self) -> None:
        """A response that ends with its connection is chunked, so that closing the connection is up to the proxy."""
        written = self.written(Answer(200, b"body", "close", [], []), "GET", "1.1")
        self.assertEqual(
            written.sent,
            b"HTTP/1.1 200 Word\r\nAdded: 1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        )
        self.assertFalse(written.writer.close)

    def test_head_keeps_its_length(self) -> None:
        """The response to HEAD has the length of the body, but no body."""
        written = self.written(Answer(200, b"body", "length", [], []), "HEAD", "1.1")
        self.assertEqual(written.sent, b"HTTP/1.1 200 Word\r\nContent-Length: 4\r\nAdded: 1\r\n\r\n")

    def test_trailers_are_filtered(self) -> None:
        """Framing, hop-by-hop and reserved trailers are neither sent nor recorded."""
        trailers = [
            (b"Svc-Workload-ID", b"forged"),
            (b"Content-Type", b"text/html"),
            (b"X-A", b"1"),
            (b"Svc_Nonce", b"x"),
        ]
        written = self.written(Answer(200, b"body", "chunked", [], trailers), "GET", "1.1", recorded=True)
        self.assertEqual(written.held, b"0\r\nX-A: 1\r\n\r\n")
        assert written.recorder is not None
        self.assertEqual(written.recorder.response_trailers, [(b"X-A", b"1")])

    def test_granted_upgrade(self) -> None:
        """A response that grants an upgrade keeps its two fields and is withheld as a whole."""
        octets = b"HTTP/1.1 101 S\r\nConnection: upgrade, x-hop\r\nX-Hop: 1\r\nUpgrade: websocket\r\nA: b\r\n\r\n"
        head = requested(b"GET / HTTP/1.1\r\nHost: api\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        [granted, _end] = ResponseParser(b"GET", upgrade=True).feed(octets)
        assert isinstance(granted, ResponseHead)
        writer = ResponseWriter(head, granted, close=False, added=b"", recorder=None)
        expected = b"HTTP/1.1 101 S\r\nA: b\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        self.assertEqual((writer.first, writer.held), (expected, b""))
        recorder = Recorder(Level.LOG_REQUEST, None, None, GENERATION.server, None, head, BASE)
        writer = ResponseWriter(head, granted, close=False, added=b"", recorder=recorder)
        self.assertEqual((writer.first, writer.held), (b"", expected))

    def test_clock_set_back_during_an_exchange(self) -> None:
        """If the clock is set back, the recorded end is not before the start."""
        head = requested(b"GET / HTTP/1.1\r\nHost: api\r\n\r\n")
        recorder = Recorder(Level.LOG_REQUEST, None, None, GENERATION.server, None, head, BASE)
        for hours, expected in ((-1, BASE), (1, BASE + timedelta(hours=1))):
            seen = recorder.exchange("jti", ExchangeOutcome.COMPLETE, BASE + timedelta(hours=hours))
            self.assertEqual((BASE, expected), (seen.received, seen.completed))

    def test_interim(self) -> None:
        """An interim response loses hop-by-hop and reserved fields."""
        [interim] = ResponseParser(b"GET").feed(
            b"HTTP/1.1 103 Early\r\nLink: </a>\r\nConnection: x-hop\r\nX-Hop: 1\r\nSvc-Workload-ID: forged\r\n\r\n"
        )
        assert isinstance(interim, Interim)
        self.assertEqual(interim_head(interim.head), b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n")


class RequestHeadTests(SynchronousTestCase):
    """From the client's request to the next hop."""

    @given(
        st.sampled_from([b"GET", b"POST", b"DELETE"]),
        st.sampled_from([b"/", b"/a%2Fb?c=d&e", b"/%00..//x"]),
        FIELDS,
        st.sampled_from([b"", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"]),
        st.booleans(),
        VERSIONS,
    )
    def test_same_request(
        self, method: bytes, target: bytes, fields: list[Field], framing: bytes, close: bool, version: str
    ) -> None:
        """Method, target, Host, fields and framing are forwarded unchanged; the proxy's lines are added after them."""
        if version == "1.0" and b"chunked" in framing:
            framing = b""
        lines = b"".join(b"%b: %b\r\n" % each for each in fields)
        connection = b"Connection: close\r\n" if close else b""
        octets = b"%b %b HTTP/%b\r\nHost: api:81\r\n%b%b%b\r\n" % (
            method,
            target,
            version.encode(),
            lines,
            framing,
            connection,
        )
        head = requested(octets)
        again = requested(request_head(head, LINES))
        self.assertEqual(
            (again.method, again.target, again.host, again.length, again.chunked, again.version),
            (method, target, b"api:81", head.length, head.chunked, "1.1"),
        )
        self.assertTrue(again.keep_alive)
        added = [(b"X-Forwarded-Client-Cert", b"URI=a")]
        named = [each for each in again.fields if each[0].lower() not in (b"content-length", b"transfer-encoding")]
        self.assertEqual(named, [(b"Host", b"api:81"), *fields, *added])

    @given(FIELDS, st.sampled_from([b"Host", b"HOST", b"hOst"]), st.sampled_from([b"pay.example", b"[::1]:8443"]))
    def test_other_host(self, fields: list[Field], spelling: bytes, host: bytes) -> None:
        """Another Host takes the place of the one that was sent; everything else stays."""
        lines = b"".join(b"%b: %b\r\n" % each for each in fields)
        octets = b"GET /a?host=api HTTP/1.1\r\nA: 1\r\n%b: api:81\r\n%bhost-x: host: api\r\n\r\n" % (spelling, lines)
        again = requested(request_head(requested(octets), LINES, host))
        self.assertEqual((again.target, again.host), (b"/a?host=api", host))
        added = [(b"host-x", b"host: api"), (b"X-Forwarded-Client-Cert", b"URI=a")]
        self.assertEqual(again.fields, [(b"A", b"1"), (spelling, host), *fields, *added])

    def test_other_authority(self) -> None:
        """A target in absolute form gets the other authority too, or the peer would refuse it; ``*`` stays."""
        for target, expected in (
            (b"http://API:81/a?b=http://api:81/", b"http://pay.example/a?b=http://api:81/"),
            (b"HTTPS://api:81", b"HTTPS://pay.example"),
            (b"https://api:81?x", b"https://pay.example?x"),
            (b"*", b"*"),
            (b"/http://api:81/", b"/http://api:81/"),
        ):
            method = b"OPTIONS" if target == b"*" else b"GET"
            head = requested(b"%b %b HTTP/1.1\r\nHost: api:81\r\n\r\n" % (method, target))
            again = requested(request_head(head, b"", b"pay.example"))
            self.assertEqual((again.target, again.host), (expected, b"pay.example"))
        head = requested(b"GET http://api:80/a HTTP/1.1\r\nHost: api\r\n\r\n")
        self.assertEqual(b"http://pay.example/a", requested(request_head(head, b"", b"pay.example")).target)

    def test_other_host_beside_max_forwards(self) -> None:
        """A decremented Max-Forwards stays decremented."""
        head = requested(b"OPTIONS / HTTP/1.1\r\nMax-Forwards: 3\r\nHost: api\r\nConnection: x\r\nX: 1\r\n\r\n")
        expected = b"OPTIONS / HTTP/1.1\r\nMax-Forwards: 2\r\nHost: pay\r\n\r\n"
        self.assertEqual(request_head(head, b"", b"pay"), expected)

    def sent(self, lines: bytes) -> bytes:
        """Return the forwarded fields."""
        head = requested(b"GET / HTTP/1.1\r\nHost: api\r\n%b\r\n" % lines)
        return request_head(head, b"").partition(b"Host: api\r\n")[2]

    def test_te_trailers(self) -> None:
        """``TE: trailers`` is set anew for the next hop only if ``Connection`` names it."""
        renewed = b"TE: trailers\r\nConnection: te\r\n\r\n"
        for lines in (
            b"Connection: TE\r\nTE: trailers\r\n",
            b"Connection: te\r\nTE: gzip;q=0.5, Trailers\r\n",
            b"Connection: te\r\nTE: gzip\r\nTE: trailers;q=1\r\n",
        ):
            self.assertEqual(self.sent(lines), renewed)
        for lines in (b"TE: trailers\r\n", b"Connection: te\r\nTE: gzip\r\n", b"Connection: te\r\nTE: xtrailers\r\n"):
            self.assertEqual(self.sent(lines), b"\r\n")

    def test_upgrade(self) -> None:
        """An upgrade request is sent anew with all the protocols it names."""
        self.assertEqual(
            self.sent(b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        )


class AnswerTests(SynchronousTestCase):
    """The proxy's own responses."""

    def test_whole(self) -> None:
        """A response is a valid message, with its body unless the request was HEAD."""
        for head_only, body in ((False, b"text"), (True, b"")):
            octets = answer(404, [(b"A", b"b")], b"text", head_only=head_only, lines=b"Connection: close\r\n")
            events = read("HEAD" if head_only else "GET", octets)
            head = events[0]
            assert isinstance(head, ResponseHead)
            self.assertEqual((head.status, head.phrase, head.length), (404, b"Not Found", 4))
            self.assertEqual((head.keep_alive, body_of(events)), (False, body))

    def test_problem(self) -> None:
        """A problem has its reason and whether to retry; text from the peer is not repeated."""
        body = loads_object(problem_body(UpstreamTimeout(upstream="the application", seconds=60)))
        self.assertEqual(body["code"], "upstream_timeout")
        self.assertNotIn(b"60", problem_body(UpstreamTimeout(upstream="the application", seconds=60)))
        self.assertIs(body["retryable"], True)

    def test_problem_fields(self) -> None:
        """429 and 503 have ``Retry-After``."""
        self.assertEqual(problem_fields(RequestRefused("not_found")), [(b"Content-Type", b"application/problem+json")])
        for error, seconds in ((NotaryRate(what="", retry_after=17), b"17"), (NotaryUnavailable(), b"1")):
            self.assertEqual(dict(problem_fields(error))[b"Retry-After"], seconds)
        self.assertNotIn(b"Retry-After", dict(problem_fields(UpstreamTimeout(upstream="the application", seconds=60))))

    def test_own_head(self) -> None:
        """The head of an own response is parsed as one of the application; a status without a name has a phrase too."""
        for status, phrase in ((503, b"Service Unavailable"), (599, b"Error")):
            head = own_head(status, [(b"A", b"b")], 4)
            self.assertEqual((head.status, head.phrase, head.length, head.chunked), (status, phrase, 4, False))
            writer = ResponseWriter(request(), head, close=False, added=b"", recorder=None)
            self.assertEqual(writer.first, b"HTTP/1.1 %d %b\r\nA: b\r\nContent-Length: 4\r\n\r\n" % (status, phrase))
