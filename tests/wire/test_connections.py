"""Several requests on one connection: pipelining, the last request, upgrades."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import DEFAULT_MAX_HEAD, End, Event, RequestParser
from tests.wire.reading import heads, names, octets, read_requests, refusal, request

CHUNKED = b"Transfer-Encoding: chunked"
WEBSOCKET = [b"Connection: Upgrade", b"Upgrade: websocket"]
NEXT = request(b"GET /next HTTP/1.1")


def targets(events: list[Event]) -> list[bytes]:
    """Return the targets of the requests."""
    return [head.target for head in heads(events)]


class PipeliningTests(SynchronousTestCase):
    """Requests that follow one another without waiting for responses."""

    def test_requests_in_one_read(self) -> None:
        """Each request gives its own head, body and end."""
        data = (
            request(b"GET /1 HTTP/1.1")
            + request(b"POST /2 HTTP/1.1", [b"Content-Length: 5"], b"hello")
            + request(b"POST /3 HTTP/1.1", [CHUNKED], b"2\r\nhi\r\n0\r\nX: y\r\n\r\n")
            + request(b"GET /4 HTTP/1.1")
        )
        for reads in ([data], octets(data)):
            events = read_requests(*reads)
            self.assertEqual(targets(events), [b"/1", b"/2", b"/3", b"/4"])
            self.assertEqual([event for event in events if isinstance(event, bytes)], [b"hello", b"hi"])
            self.assertEqual([len(e.trailers) for e in events if isinstance(e, End)], [0, 0, 1, 0])

    def test_line_ends_between_requests(self) -> None:
        """Empty lines in front of a request are skipped (RFC 9112 section 2.2)."""
        data = request(b"POST /1 HTTP/1.1", [b"Content-Length: 5"], b"hello") + b"\r\n\r\n" + NEXT
        self.assertEqual(targets(read_requests(data)), [b"/1", b"/next"])

    def test_a_defect_after_requests(self) -> None:
        """Requests before a defect are read."""
        events = read_requests(request() + NEXT + b"get / HTTP/1.1\r\n\r\n" + NEXT)
        self.assertEqual(names(events), ["RequestHead", "End", "RequestHead", "End", "method_unknown"])

    def test_fields_do_not_leak(self) -> None:
        """A request has neither fields nor trailers of the one before."""
        first = request(b"POST /1 HTTP/1.1", [CHUNKED, b"X: y", b"Svc-A: b"], b"0\r\nZ: z\r\n\r\n")
        events = read_requests(first + NEXT)
        self.assertEqual((heads(events)[1].fields, heads(events)[1].reserved), ([(b"Host", b"a.example")], {}))
        self.assertEqual(events[-1], End([]))


class LastRequestTests(SynchronousTestCase):
    """Which request is the last one, and that nothing after it is read (RFC 9112 section 9.6)."""

    def check(self, line: bytes, fields: list[bytes], keep_alive: bool) -> None:
        """Compare ``keep_alive`` of a request and whether the next request is read."""
        data = request(line, fields) + NEXT
        for reads in ([data], octets(data), [request(line, fields), NEXT]):
            events = read_requests(*reads)
            self.assertEqual(heads(events)[0].keep_alive, keep_alive, fields)
            self.assertEqual(names(events), ["RequestHead", "End"] * (2 if keep_alive else 1), fields)

    def test_version_1_1(self) -> None:
        """HTTP/1.1 keeps the connection unless an option says close."""
        for options, keep_alive in (
            (b"", True),
            (b"keep-alive", True),
            (b"close", False),
            (b"CLOSE", False),
            (b"x,\tclose ,y", False),
            (b"keep-alive, close", False),
            (b",,close", False),
            (b"closed", True),
        ):
            self.check(b"GET / HTTP/1.1", [b"Connection: " + options], keep_alive)
        self.check(b"GET / HTTP/1.1", [b"Connection: close", b"Connection: keep-alive"], False)
        self.check(b"GET / HTTP/1.1", [b"Proxy-Connection: close"], False)

    def test_version_1_0(self) -> None:
        """HTTP/1.0 ends the connection unless an option says keep-alive and none says close."""
        for options, keep_alive in ((b"", False), (b"keep-alive", True), (b"keep-alive, close", False)):
            self.check(b"GET / HTTP/1.0", [b"Connection: " + options], keep_alive)

    def test_octets_after_the_last_request(self) -> None:
        """They are ignored, whatever they are, and the parser is closed."""
        for rest in (NEXT, b"\x00\xff", b"get / HTTP/1.1\r\n\r\n", b"\r\n"):
            for reads in (
                [request(fields=[b"Connection: close"]) + rest],
                [request(fields=[b"Connection: close"]), rest],
            ):
                self.assertEqual(names(read_requests(*reads)), ["RequestHead", "End"], rest)

    def test_the_body_of_the_last_request(self) -> None:
        """It is read to its end, and a defect in it is reported."""
        start = request(b"POST / HTTP/1.1", [b"Connection: close", CHUNKED])
        self.assertEqual(names(read_requests(start, b"1\r\na\r\n0\r\n\r\n", NEXT)), ["RequestHead", "body", "End"])
        self.assertEqual(names(read_requests(start, b"x", NEXT)), ["RequestHead", "malformed_message"])


class UpgradeTests(SynchronousTestCase):
    """Requests for another protocol (RFC 9110 section 7.8)."""

    def test_what_follows_is_held_back(self) -> None:
        """No event follows the end of such a request before resume or take_rest."""
        parser = RequestParser()
        events = parser.feed(request(fields=WEBSOCKET) + NEXT)
        self.assertEqual(names(events), ["RequestHead", "End"])
        self.assertTrue(heads(events)[0].upgrade)
        self.assertEqual(parser.feed(NEXT), [])
        self.assertFalse(parser.closed)

    def test_granted(self) -> None:
        """The bytes after the request are returned once, and the parser is closed."""
        for reads in (
            [request(fields=WEBSOCKET) + b"\x81\x05hello"],
            octets(request(fields=WEBSOCKET) + b"\x81\x05hello"),
        ):
            parser = RequestParser()
            for data in reads:
                parser.feed(data)
            self.assertEqual(parser.take_rest(), b"\x81\x05hello")
            self.assertEqual((parser.closed, parser.feed(NEXT), parser.take_rest()), (True, [], b""))

    def test_not_granted(self) -> None:
        """The octets after the request are read as requests."""
        parser = RequestParser()
        parser.feed(request(fields=WEBSOCKET) + NEXT[:20])
        self.assertEqual(parser.resume(), [])
        self.assertEqual(targets(parser.feed(NEXT[20:] + request(b"GET /last HTTP/1.1"))), [b"/next", b"/last"])

    def test_not_granted_twice(self) -> None:
        """A second request for an upgrade among them holds back again."""
        parser = RequestParser()
        parser.feed(request(fields=WEBSOCKET) + request(b"GET /2 HTTP/1.1", WEBSOCKET) + NEXT)
        self.assertEqual(targets(parser.resume()), [b"/2"])
        self.assertEqual(targets(parser.resume()), [b"/next"])
        self.assertEqual(parser.resume(), [])

    def test_not_granted_and_close(self) -> None:
        """Nothing after it is read where the request was the last one."""
        parser = RequestParser()
        parser.feed(request(fields=[b"Connection: upgrade, close", b"Upgrade: websocket"]) + NEXT)
        self.assertEqual((parser.resume(), parser.closed, parser.feed(NEXT)), ([], True, []))

    def test_resume_without_an_upgrade(self) -> None:
        """There is nothing to resume in the middle of other requests."""
        parser = RequestParser()
        parser.feed(request() + NEXT[:10])
        self.assertEqual(parser.resume(), [])
        self.assertEqual(targets(parser.feed(NEXT[10:])), [b"/next"])

    def test_refused(self) -> None:
        """An upgrade that llhttp and this parser could interpret differently is a defect."""
        field = ("field_refused", 400)
        rows: dict[str, tuple[bytes, tuple[str, int]]] = {
            "to nothing": (request(fields=[b"Connection: upgrade", b"Upgrade:"]), field),
            "to no token": (request(fields=[b"Connection: upgrade", b'Upgrade: "x"']), field),
            "to no token of a version": (request(fields=[b"Connection: upgrade", b"Upgrade: x/"]), field),
            "to an empty element of a list": (request(fields=[b"Connection: upgrade", b"Upgrade: x,"]), field),
        }
        smuggled = {name: data + NEXT for name, (data, _) in rows.items()}
        expected = {name: answer for name, (_, answer) in rows.items()}
        self.assertEqual({name: refusal(read_requests(data)) for name, data in smuggled.items()}, expected)
        self.assertEqual({name: refusal(read_requests(*octets(data))) for name, data in smuggled.items()}, expected)
        self.assertEqual([name for name, data in smuggled.items() if heads(read_requests(data))], [])

    def test_a_length_of_zero(self) -> None:
        """A request for another protocol may say that it has no body."""
        events = read_requests(request(fields=[*WEBSOCKET, b"Content-Length: 0"]))
        self.assertTrue(heads(events)[0].upgrade)

    def test_not_asked(self) -> None:
        """Without both fields there is no upgrade, and the next request is read at once."""
        for fields in (
            [b"Upgrade: websocket"],
            [b"Connection: upgrade"],
            [b"Proxy-Connection: upgrade", b"Upgrade: websocket"],
            [b"Connection: upgrades", b"Upgrade: websocket"],
        ):
            data = request(fields=fields) + NEXT
            for reads in ([data], octets(data)):
                events = read_requests(*reads)
                self.assertEqual(names(events), ["RequestHead", "End"] * 2, fields)
                self.assertFalse(heads(events)[0].upgrade)

    def test_to_http_again(self) -> None:
        """
        A request for HTTP in another form is ignored.

        Requests inside such a connection would come to the application without a decision about them.
        """
        for protocol in (b"h2c", b"H2C", b"websocket, h2c", b"HTTP/2.0", b"TLS/1.0", b"h3"):
            one = request(
                fields=[b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + protocol, b"HTTP2-Settings: A"]
            )
            for reads in ([one * 3 + NEXT], octets(one * 3 + NEXT), [one, one, one, NEXT]):
                events = read_requests(*reads)
                self.assertEqual([head.upgrade for head in heads(events)], [False] * 4, protocol)
                self.assertEqual(names(events), ["RequestHead", "End"] * 4)

    def test_with_a_body(self) -> None:
        """A request for another protocol that has a body is read like any other, to the end of its trailers."""
        for protocol in (b"h2c", b"websocket", b"TLS/1.0"):
            for options in ((b"Connection: Upgrade, HTTP2-Settings",), (b"Proxy-Connection: upgrade",)):
                fields = [*options, b"Upgrade: " + protocol]
                first = request(b"POST /1 HTTP/1.1", [*fields, b"Content-Length: 5"], b"hello")
                second = request(b"PUT /2 HTTP/1.1", [*fields, CHUNKED], b"2\r\nhi\r\n0\r\nX: y\r\n\r\n")
                data = first + second + first + NEXT
                for reads in ([data], octets(data), [first, second, first, NEXT]):
                    events = read_requests(*reads)
                    self.assertEqual(targets(events), [b"/1", b"/2", b"/1", b"/next"])
                    self.assertEqual([head.upgrade for head in heads(events)], [False] * 4)
                    bodies = [event for event in events if isinstance(event, bytes)]
                    self.assertEqual(bodies, [b"hello", b"hi", b"hello"])
                    trailers = [event.trailers for event in events if isinstance(event, End)]
                    self.assertEqual(trailers, [[], [(b"X", b"y")], [], []])

    def test_body_that_holds_a_request(self) -> None:
        """Neither the body of such a request nor a defect in it is taken for the next request."""
        fields = [b"Connection: Upgrade", b"Upgrade: h2c"]
        data = request(b"POST / HTTP/1.1", [*fields, b"Content-Length: %d" % len(NEXT)], NEXT)
        for reads in ([data], octets(data)):
            self.assertEqual(read_requests(*reads)[1:], [NEXT, End([])])
        data = request(b"POST / HTTP/1.1", [*fields, CHUNKED], NEXT)
        for reads in ([data], octets(data)):
            self.assertEqual(names(read_requests(*reads)), ["RequestHead", "malformed_message"])

    def test_with_a_body_and_close(self) -> None:
        """Nothing is read after the body of the last request."""
        last = request(fields=[b"Connection: upgrade, close", b"Upgrade: h2c", b"Content-Length: 5"], body=b"hello")
        for reads in ([last + NEXT], octets(last + NEXT), [last, NEXT]):
            self.assertEqual(names(read_requests(*reads)), ["RequestHead", "body", "End"])

    def test_trailers_with_a_body(self) -> None:
        """Trailers of such a request are limited and checked like those of others."""
        fields = [b"Connection: upgrade", b"Upgrade: h2c", CHUNKED]
        for trailer, reason in (
            (b"Connection: close", "field_refused"),
            (b"X: " + b"a" * DEFAULT_MAX_HEAD, "head_too_large"),
        ):
            data = request(b"POST / HTTP/1.1", fields, b"0\r\n" + trailer + b"\r\n\r\n")
            self.assertEqual(names(read_requests(data)), ["RequestHead", reason])

    def test_in_version_1_0(self) -> None:
        """A request of HTTP/1.0 has no upgrade (RFC 9110 section 7.8)."""
        fields = [b"Connection: upgrade, keep-alive", b"Upgrade: websocket"]
        one = request(b"GET / HTTP/1.0", fields)
        for reads in ([one + NEXT], octets(one + NEXT), [one, NEXT]):
            events = read_requests(*reads)
            self.assertEqual([head.upgrade for head in heads(events)], [False, False])

    def test_to_http_again_and_close(self) -> None:
        """Nothing after it is read where that request was the last one."""
        events = read_requests(request(fields=[b"Connection: upgrade, close", b"Upgrade: h2c"]) + NEXT)
        self.assertEqual(names(events), ["RequestHead", "End"])
