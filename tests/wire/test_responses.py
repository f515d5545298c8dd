"""Which responses are accepted, and where they end."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import End, Excess, Interim, ResponseHead, ResponseParser
from tests.wire.reading import names, octets, read_response, refusal, response

MALFORMED = "malformed_message"
CHUNKED = b"Transfer-Encoding: chunked"
FIVE = b"Content-Length: 5"
OK = b"HTTP/1.1 200 OK"

REFUSED = {
    "another protocol": (response(b"RTSP/1.0 200 OK"), MALFORMED),
    "a protocol of streams": (response(b"ICY 200 OK"), MALFORMED),
    "lower-case HTTP": (response(b"http/1.1 200 OK"), MALFORMED),
    "a line end in front": (b"\r\n" + response(), MALFORMED),
    "LF in front": (b"\n" + response(), MALFORMED),
    "a space in front": (b" " + response(), MALFORMED),
    "HTTP/0.9": (response(b"HTTP/0.9 200 OK"), "version_refused"),
    "HTTP/1.2": (response(b"HTTP/1.2 200 OK"), "version_refused"),
    "HTTP/2.0": (response(b"HTTP/2.0 200 OK"), "version_refused"),
    "status 0": (response(b"HTTP/1.1 000 x"), MALFORMED),
    "status 99": (response(b"HTTP/1.1 099 x"), MALFORMED),
    "two digits": (response(b"HTTP/1.1 99 x"), MALFORMED),
    "status 600": (response(b"HTTP/1.1 600 x"), MALFORMED),
    "status 999": (response(b"HTTP/1.1 999 x"), MALFORMED),
    "status 1000": (response(b"HTTP/1.1 1000 x"), MALFORMED),
    "a negative status": (response(b"HTTP/1.1 -20 x"), MALFORMED),
    "a letter in the status": (response(b"HTTP/1.1 2o0 x"), MALFORMED),
    "two spaces before the status": (response(b"HTTP/1.1  200 OK"), MALFORMED),
    "a tab before the status": (response(b"HTTP/1.1\t200 OK"), MALFORMED),
    "a tab after the status": (response(b"HTTP/1.1 200\tOK"), MALFORMED),
    "a letter after the status": (response(b"HTTP/1.1 200OK"), MALFORMED),
    "NUL in the phrase": (response(b"HTTP/1.1 200 O\x00K"), MALFORMED),
    "ESC in the phrase": (response(b"HTTP/1.1 200 \x1b[31m"), MALFORMED),
    "CR in the phrase": (response(b"HTTP/1.1 200 O\rK"), MALFORMED),
    "bare LF after the status line": (b"HTTP/1.1 200 OK\nX: a\r\n\r\n", MALFORMED),
    "bare LF after a field": (response(fields=[b"X: a\nY: b"]), MALFORMED),
    "obs-fold": (response(fields=[b"X: a", b" b"]), MALFORMED),
    "a space before the colon": (response(fields=[b"X : a"]), MALFORMED),
    "NUL in a value": (response(fields=[b"X: \x00"]), MALFORMED),
    "two lengths": (response(fields=[FIVE, FIVE]), MALFORMED),
    "a length and chunks": (response(fields=[FIVE, CHUNKED]), MALFORMED),
    "chunks and a length": (response(fields=[CHUNKED, FIVE]), MALFORMED),
    "a length with a leading zero": (response(fields=[b"Content-Length: 05"]), "field_refused"),
    "a length beyond 63 bits": (response(fields=[b"Content-Length: 9223372036854775808"]), "field_refused"),
    "a length with an underscored name": (response(fields=[b"Content_Length: 5"]), "field_refused"),
    "another coding": (response(fields=[b"Transfer-Encoding: gzip"]), "transfer_coding_refused"),
    "another coding, then chunked": (response(fields=[b"Transfer-Encoding: gzip, chunked"]), "transfer_coding_refused"),
    "chunked, then identity": (response(fields=[b"Transfer-Encoding: chunked, identity"]), "transfer_coding_refused"),
    "a coding in front of a tab": (response(fields=[b"Transfer-Encoding: chunked\t"]), "transfer_coding_refused"),
    "chunks in version 1.0": (response(b"HTTP/1.0 200 OK", [CHUNKED]), "transfer_coding_refused"),
    "Svc-* twice": (response(fields=[b"Svc-Workload-ID: a", b"svc_workload_id: b"]), "field_refused"),
    "Connection names a reserved field": (response(fields=[b"Connection: svc-workload-id"]), "field_refused"),
    "a length with an unknown 1xx": (response(b"HTTP/1.1 199 X", [FIVE]), "field_refused"),
    "chunks with an unknown 1xx": (response(b"HTTP/1.1 104 X", [CHUNKED]), "field_refused"),
    "a status above 599": (response(b"HTTP/1.1 600 X", [FIVE]), MALFORMED),
    "101 that was not asked for": (
        response(b"HTTP/1.1 101 Switching Protocols", [b"Connection: upgrade", b"Upgrade: x"]),
        MALFORMED,
    ),
}


class RefusedResponseTests(SynchronousTestCase):
    """Which responses are refused."""

    def test_heads(self) -> None:
        """An ambiguous or malformed head is the last event, whole or octet by octet."""
        expected = {name: error for name, (_, error) in REFUSED.items()}
        for split in (lambda data: [data], octets):
            read = {name: refusal(read_response(*split(data))) for name, (data, _) in REFUSED.items()}
            self.assertEqual({name: found and found[0] for name, found in read.items()}, expected)

    def test_no_head_comes_out(self) -> None:
        """A refused head gives no other event."""
        for name, (data, _) in REFUSED.items():
            self.assertEqual(len(read_response(data + b"hello")), 1, name)

    def test_chunks(self) -> None:
        """A defect between chunks ends the response with it."""
        for body in (b"x", b"5\nhello\r\n", b"5\r\nhelloXX", b"-1\r\n", b"0\r\nX : a\r\n\r\n"):
            events = read_response(response(fields=[CHUNKED], body=body))
            self.assertEqual(names(events)[-1], "malformed_message", body)

    def test_started(self) -> None:
        """The first octet starts a response, also one that is refused."""
        for data in (b"H", b"x"):
            parser = ResponseParser(b"GET")
            self.assertFalse(parser.started)
            parser.feed(b"")
            self.assertFalse(parser.started)
            parser.feed(data)
            self.assertTrue(parser.started)


class ResponseTests(SynchronousTestCase):
    """Where a response ends (RFC 9112 section 6.3)."""

    def check(self, data: bytes, expected: list[str], *, method: bytes = b"GET", eof: bool = False) -> ResponseHead:
        """Compare the kinds of events, whole and octet by octet, and return the head."""
        for reads in ([data], octets(data)):
            events = read_response(*reads, method=method, eof=eof)
            self.assertEqual(names(events), expected)
        return next(event for event in events if isinstance(event, ResponseHead))

    def test_a_length(self) -> None:
        """The body has the length of Content-Length."""
        head = self.check(response(fields=[FIVE, b"X: \ta "], body=b"hello"), ["ResponseHead", "body", "End"])
        self.assertEqual((head.status, head.phrase, head.version, head.length), (200, b"OK", "1.1", 5))
        self.assertEqual((head.keep_alive, head.until_close, head.chunked), (True, False, False))
        self.assertEqual(head.values(b"x"), [b"a"])

    def test_chunks_with_trailers(self) -> None:
        """Chunk lines are removed; trailers come with the end."""
        data = response(fields=[CHUNKED], body=b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nSvc-A: b\r\n\r\n")
        _head, body, end = read_response(data)
        self.assertEqual((body, end), (b"hello!", End([(b"Svc-A", b"b")])))
        self.assertTrue(self.check(data, ["ResponseHead", "body", "End"]).chunked)

    def test_head_requests(self) -> None:
        """The response to HEAD ends with its head, whatever that says about a body."""
        for fields in ([FIVE], [CHUNKED], []):
            head = self.check(response(fields=fields), ["ResponseHead", "End"], method=b"HEAD")
            self.assertFalse(head.until_close)

    def test_responses_without_a_body(self) -> None:
        """204 and 304 end with their heads, 304 also where it says how long the body would have been."""
        self.check(response(b"HTTP/1.1 204 No Content"), ["ResponseHead", "End"])
        self.check(response(b"HTTP/1.1 204 No Content", [b"Content-Length: 0"]), ["ResponseHead", "End"])
        self.check(response(b"HTTP/1.1 304 Not Modified"), ["ResponseHead", "End"])
        self.assertEqual(self.check(response(b"HTTP/1.1 304 Not Modified", [FIVE]), ["ResponseHead", "End"]).length, 5)
        self.check(response(b"HTTP/1.1 304 Not Modified", [CHUNKED]), ["ResponseHead", "End"])

    def test_framing_that_is_ignored(self) -> None:
        """
        A length or chunks of 204 and 1xx are not forwarded, and the connection is not used again (RFC 9110 section
        8.6).
        """
        for field in (FIVE, CHUNKED, b"content-LENGTH: 5"):
            head = self.check(response(b"HTTP/1.1 204 No Content", [field, b"X: y"]), ["ResponseHead", "End"])
            self.assertEqual((head.length, head.chunked, head.keep_alive), (None, False, False))
            self.assertEqual(head.end_to_end_lines, b"X: y\r\n")
            body = b"5\r\nhello\r\n0\r\n\r\n" if field == CHUNKED else b"hello"
            data = response(b"HTTP/1.1 204 No Content", [field], body)
            self.check(data, ["ResponseHead", "End", "Excess"])
            for line in (b"HTTP/1.1 100 Continue", b"HTTP/1.1 102 Processing", b"HTTP/1.1 103 Early Hints"):
                data = response(line, [field, b"X: y"]) + response(fields=[FIVE], body=b"hello")
                self.assertFalse(self.check(data, ["Interim", "ResponseHead", "body", "End"]).keep_alive)
                interim = read_response(data)[0]
                assert isinstance(interim, Interim)
                self.assertEqual(interim.head.end_to_end_lines, b"X: y\r\n")

    def test_length_of_zero(self) -> None:
        """So it is with a length of 0, after which the connection goes on."""
        head = self.check(
            response(b"HTTP/1.1 204 No Content", [b"Content-Length: 0", b"X: y"]), ["ResponseHead", "End"]
        )
        self.assertEqual((head.keep_alive, head.end_to_end), (True, [(b"X", b"y")]))
        data = response(b"HTTP/1.1 199 X", [b"Content-Length: 0"]) + response(fields=[FIVE], body=b"hello")
        interim = read_response(data)[0]
        assert isinstance(interim, Interim)
        self.assertEqual(interim.head.end_to_end_lines, b"")
        self.assertTrue(self.check(data, ["Interim", "ResponseHead", "body", "End"]).keep_alive)

    def test_interim_response_that_closes(self) -> None:
        """A 1xx may say that the connection ends: it does with the final response, which is read."""
        early = response(b"HTTP/1.1 103 Early Hints", [b"Connection: close", b"Link: a"])
        for first in (early, response(b"HTTP/1.0 100 Continue"), early + response(b"HTTP/1.1 103 E")):
            data = first + response(fields=[FIVE], body=b"hello")
            kinds = ["Interim"] * (names(read_response(first)).count("Interim")) + ["ResponseHead", "body", "End"]
            self.assertFalse(self.check(data, kinds).keep_alive)
            self.check(data + b"x", [*kinds, "Excess"])
            self.check(data + data, [*kinds, "Excess"])

    def test_unknown_status(self) -> None:
        """One of 100 to 599 is read by its class (RFC 9110 section 15)."""
        for status in (299, 399, 499, 599):
            head = self.check(response(b"HTTP/1.1 %d X" % status, [FIVE], b"hello"), ["ResponseHead", "body", "End"])
            self.assertEqual(head.status, status)
        self.check(
            response(b"HTTP/1.1 199 X") + response(fields=[FIVE], body=b"hello"),
            ["Interim", "ResponseHead", "body", "End"],
        )

    def test_no_phrase(self) -> None:
        """A status line without a reason phrase is one, with and without the space."""
        for line in (b"HTTP/1.1 200 ", b"HTTP/1.1 200"):
            self.assertEqual(self.check(response(line, [FIVE], b"hello"), ["ResponseHead", "body", "End"]).phrase, b"")

    def test_phrases(self) -> None:
        """A phrase may have spaces, tabs and obs-text."""
        head = self.check(response(b"HTTP/1.1 299 \ta \xff", [FIVE], b"hello"), ["ResponseHead", "body", "End"])
        self.assertEqual((head.status, head.phrase), (299, b"\ta \xff"))

    def test_interim_responses(self) -> None:
        """Several 1xx may precede the response."""
        early = response(b"HTTP/1.1 103 Early Hints", [b"Link: a"])
        data = response(b"HTTP/1.1 100 Continue") + early + early + response(fields=[FIVE], body=b"hello")
        events = read_response(data)
        self.assertEqual([event.head.status for event in events if isinstance(event, Interim)], [100, 103, 103])
        head = self.check(data, ["Interim"] * 3 + ["ResponseHead", "body", "End"])
        self.assertEqual(head.fields, [(b"Content-Length", b"5")])
        self.check(early + response(fields=[FIVE]), ["Interim", "ResponseHead", "End"], method=b"HEAD")

    def test_until_close(self) -> None:
        """Without length and chunks the end of the connection ends the body."""
        head = self.check(response(body=b"hello"), ["ResponseHead", "body"])
        self.assertEqual((head.until_close, head.keep_alive), (True, False))
        self.check(response(body=b"hello"), ["ResponseHead", "body", "End"], eof=True)
        self.check(response(), ["ResponseHead", "End"], eof=True)
        self.check(response(b"HTTP/1.0 200 OK", body=b"hello\r\n"), ["ResponseHead", "body", "End"], eof=True)

    def test_a_reset_ends_no_body(self) -> None:
        """A body until the end of the connection is truncated where the connection was not closed in order."""
        parser = ResponseParser(b"GET")
        parser.feed(response(body=b"hello"))
        self.assertEqual(refusal(parser.feed_eof(clean=False)), ("truncated", 400))

    def test_truncated(self) -> None:
        """The end of the connection in the middle of any other response is a defect."""
        for data in (
            b"",
            b"HTT",
            OK,
            response(b"HTTP/1.1 100 Continue"),
            response(fields=[FIVE]),
            response(fields=[FIVE], body=b"hell"),
            response(fields=[CHUNKED], body=b"5\r\nhello\r\n"),
            response(fields=[CHUNKED], body=b"5\r\nhello\r\n0\r\nX: a\r\n"),
        ):
            parser = ResponseParser(b"GET")
            parser.feed(data)
            self.assertEqual(refusal(parser.feed_eof()), ("truncated", 400), data)
            self.assertEqual((parser.feed_eof(), parser.feed(response())), ([], []))

    def test_nothing_ends_twice(self) -> None:
        """The end of the connection after a response is no event."""
        self.check(response(fields=[FIVE], body=b"hello"), ["ResponseHead", "body", "End"], eof=True)

    def test_keep_alive(self) -> None:
        """The connection goes on where version and options say so."""
        for line, options, keep_alive in (
            (b"HTTP/1.1 200 OK", b"", True),
            (b"HTTP/1.1 200 OK", b"close", False),
            (b"HTTP/1.0 200 OK", b"", False),
            (b"HTTP/1.0 200 OK", b"keep-alive", True),
            (b"HTTP/1.0 200 OK", b"keep-alive, close", False),
        ):
            head = read_response(response(line, [FIVE, b"Connection: " + options]))[0]
            assert isinstance(head, ResponseHead)
            self.assertIs(head.keep_alive, keep_alive, (line, options))


class ExcessTests(SynchronousTestCase):
    """Octets after a response make the connection unusable."""

    def test_any_octet(self) -> None:
        """Whatever follows is one event, in the same read, in the next, and octet by octet."""
        ends = {
            "a length": (response(fields=[FIVE], body=b"hello"), b"GET"),
            "a body that ends a line": (response(fields=[FIVE], body=b"hi\r\n\n"), b"GET"),
            "a body of line ends": (response(fields=[FIVE], body=b"\r\n\r\n\n"), b"GET"),
            "a body with empty lines": (response(fields=[FIVE], body=b"a\r\n\r\n"), b"GET"),
            "no length": (response(fields=[b"Content-Length: 0"]), b"GET"),
            "no phrase": (response(b"HTTP/1.1 204"), b"GET"),
            "an empty value": (response(b"HTTP/1.1 204 x", [b"X:"]), b"GET"),
            "chunks": (response(fields=[CHUNKED], body=b"2\r\n\r\n\r\n0\r\n\r\n"), b"GET"),
            "trailers": (response(fields=[CHUNKED], body=b"0\r\nX: a\r\n\r\n"), b"GET"),
            "HEAD with a length": (response(fields=[FIVE]), b"HEAD"),
            "HEAD with chunks": (response(fields=[CHUNKED]), b"HEAD"),
            "the last of a connection": (response(fields=[FIVE, b"Connection: close"], body=b"hello"), b"GET"),
            "after 1xx": (response(b"HTTP/1.1 100 C") + response(fields=[FIVE], body=b"\r\n\r\n\r"), b"GET"),
        }
        more = (
            b"\r\n",
            b"\n",
            b"\r",
            b"\r\n\r\n",
            b"\x00",
            b"5",
            b"5\r\n",
            b"hello",
            b"0\r\nX: a\r\n\r\n",
            response(fields=[FIVE], body=b"hello"),
        )
        for name, (data, method) in ends.items():
            complete = read_response(data, method=method)
            self.assertEqual(names(complete)[-1], "End", name)
            self.assertEqual(read_response(*octets(data), method=method), complete, name)
            for excess in more:
                for reads in (
                    [data + excess],
                    [data, excess],
                    octets(data + excess),
                    [data[:-1], data[-1:] + excess],
                    [data[:-3], data[-3:] + excess],
                ):
                    events = read_response(*reads, method=method, eof=True)
                    self.assertEqual(events, [*complete, Excess()], (name, excess, reads))

    def test_the_last_word(self) -> None:
        """No event follows excess."""
        parser = ResponseParser(b"GET")
        parser.feed(response(fields=[FIVE], body=b"helloX"))
        self.assertEqual((parser.closed, parser.feed(b"Y"), parser.feed_eof()), (True, [], []))


class UpgradeTests(SynchronousTestCase):
    """Responses to a request for another protocol."""

    def test_granted(self) -> None:
        """101 ends with its head; what follows is returned unchanged."""
        data = response(b"HTTP/1.1 101 Switching Protocols", [b"Connection: Upgrade", b"Upgrade: x"])
        for reads in ([data + b"\r\nHTTP/"], [data[:30], data[30:] + b"\r\nHTTP/"]):
            parser = ResponseParser(b"GET", upgrade=True)
            events = [event for read in reads for event in parser.feed(read)]
            self.assertEqual(names(events), ["ResponseHead", "End"])
            self.assertEqual((parser.rest, parser.closed), (b"\r\nHTTP/", True))
            self.assertTrue(isinstance(events[0], ResponseHead) and events[0].upgrade)

    def test_refused(self) -> None:
        """101 needs both fields, and cannot have a body."""
        for fields in (
            [],
            [b"Upgrade: x"],
            [b"Connection: upgrade"],
            [b"Connection: upgrade", b"Upgrade:"],
            [b"Proxy-Connection: upgrade", b"Upgrade: x"],
            [b"Connection: upgrade", b"Upgrade: x", FIVE],
        ):
            data = response(b"HTTP/1.1 101 Switching Protocols", fields, b"hello")
            events = read_response(data, upgrade=True)
            self.assertEqual((len(events), refusal(events) is not None), (1, True), fields)

    def test_not_granted(self) -> None:
        """Another status is an ordinary response, also with an Upgrade field."""
        data = response(b"HTTP/1.1 426 Upgrade Required", [b"Connection: upgrade", b"Upgrade: x", FIVE], b"hello")
        events = read_response(data, upgrade=True)
        self.assertEqual(names(events), ["ResponseHead", "body", "End"])
        self.assertFalse(isinstance(events[0], ResponseHead) and events[0].upgrade)

    def test_interim_before_101(self) -> None:
        """103 may come in front of 101."""
        data = response(b"HTTP/1.1 101 S", [b"Connection: upgrade", b"Upgrade: x"], b"rest")
        parser = ResponseParser(b"GET", upgrade=True)
        self.assertEqual(names(parser.feed(response(b"HTTP/1.1 103 E") + data)), ["Interim", "ResponseHead", "End"])
        self.assertEqual(parser.rest, b"rest")
