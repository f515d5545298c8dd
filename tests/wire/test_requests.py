"""Which requests are accepted, row by row."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.http1 import End, RequestHead, RequestParser
from tests.wire.reading import heads, names, octets, read_requests, refusal, request

MALFORMED = ("malformed_message", 400)
FIELD = ("field_refused", 400)
HOST = ("host_invalid", 400)
TARGET = ("target_invalid", 400)
CODING = ("transfer_coding_refused", 501)
VERSION = ("version_refused", 505)
UNKNOWN = ("method_unknown", 501)

CHUNKED = b"Transfer-Encoding: chunked"

LINES = {
    "a tab between method and target": (b"GET\t/ HTTP/1.1", UNKNOWN),
    "a tab between target and version": (b"GET /\tHTTP/1.1", MALFORMED),
    "a space in front of the method": (b" GET / HTTP/1.1", UNKNOWN),
    "a space in the target": (b"GET /a b HTTP/1.1", MALFORMED),
    "a space after the version": (b"GET / HTTP/1.1 ", MALFORMED),
    "no target": (b"GET HTTP/1.1", MALFORMED),
    "two spaces after the method": (b"GET  / HTTP/1.1", MALFORMED),
    "two spaces after the target": (b"GET /  HTTP/1.1", MALFORMED),
    "two spaces twice": (b"GET  /  HTTP/1.0", MALFORMED),
    "many spaces after the target": (b"GET /" + b" " * 99 + b"HTTP/1.1", MALFORMED),
    "two spaces with a body": (b"POST /  HTTP/1.1\r\nContent-Length: 0", MALFORMED),
    "LF alone in front of the method": (b"\nGET / HTTP/1.1", MALFORMED),
    "CR alone in front of the method": (b"\rGET / HTTP/1.1", MALFORMED),
    "a line end and LF in front of the method": (b"\r\n\nGET / HTTP/1.1", MALFORMED),
    "two CRs in front of LF": (b"\r\r\nGET / HTTP/1.1", MALFORMED),
    "RTSP with a method of HTTP": (b"GET / RTSP/1.0", MALFORMED),
    "a space in the version": (b"GET / HTTP/ 1.1", MALFORMED),
    "a tab after the version": (b"GET / HTTP/1.1\t", MALFORMED),
    "NUL in the target": (b"GET /\x00 HTTP/1.1", MALFORMED),
    "a control character in the target": (b"GET /\x01 HTTP/1.1", MALFORMED),
    "VT in the target": (b"GET /\x0b HTTP/1.1", MALFORMED),
    "FF in the target": (b"GET /\x0c HTTP/1.1", MALFORMED),
    "DEL in the target": (b"GET /\x7f HTTP/1.1", MALFORMED),
    "an octet beyond ASCII in the target": (b"GET /\xff HTTP/1.1", MALFORMED),
    "CR alone after the version": (b"GET / HTTP/1.1\r", MALFORMED),
    "HTTP/0.9 by its form": (b"GET /", VERSION),
    "HTTP/0.9": (b"GET / HTTP/0.9", VERSION),
    "HTTP/1.2": (b"GET / HTTP/1.2", VERSION),
    "HTTP/2.0": (b"GET / HTTP/2.0", VERSION),
    "HTTP/3.0": (b"GET / HTTP/3.0", VERSION),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0", VERSION),
    "lower-case HTTP": (b"GET / http/1.1", MALFORMED),
    "two digits in the version": (b"GET / HTTP/1.01", MALFORMED),
    "CONNECT": (b"CONNECT a.example:80 HTTP/1.1", ("method_refused", 501)),
    "an unknown method": (b"BREW / HTTP/1.1", UNKNOWN),
    "a lower-case method": (b"get / HTTP/1.1", UNKNOWN),
    "a method of RTSP in RTSP": (b"DESCRIBE / RTSP/1.0", UNKNOWN),
    "a method of Icecast": (b"SOURCE / HTTP/1.1", UNKNOWN),
    "Icecast": (b"GET / ICE/1.0", MALFORMED),
    "a fragment": (b"GET /a#b HTTP/1.1", TARGET),
    "a fragment in absolute form": (b"GET http://a.example/#b HTTP/1.1", TARGET),
    "GET *": (b"GET * HTTP/1.1", TARGET),
    "OPTIONS **": (b"OPTIONS ** HTTP/1.1", TARGET),
    "another authority": (b"GET http://b.example/ HTTP/1.1", TARGET),
    "another port": (b"GET http://a.example:8080/ HTTP/1.1", TARGET),
    "user information": (b"GET http://u@a.example/ HTTP/1.1", TARGET),
    "no authority": (b"GET http:///a HTTP/1.1", TARGET),
    "another scheme": (b"GET ftp://a.example/ HTTP/1.1", TARGET),
    "a backslash in the authority": (b"GET http://a.example\\@b/ HTTP/1.1", MALFORMED),
    "neither path nor address": (b"GET a HTTP/1.1", MALFORMED),
}

HOSTS = {
    "missing": (b"", HOST),
    "twice": (b"Host: a.example\r\nHost: a.example\r\n", HOST),
    "twice, in another case": (b"Host: a.example\r\nhOST: b.example\r\n", HOST),
    "empty": (b"Host:\r\n", HOST),
    "white space inside": (b"Host: a b\r\n", HOST),
    "a comma list": (b"Host: a.example, b.example\r\n", HOST),
    "user information": (b"Host: u@a.example\r\n", HOST),
    "a path": (b"Host: a.example/b\r\n", HOST),
    "a port beyond 65535": (b"Host: a.example:65536\r\n", HOST),
    "a port that is no number": (b"Host: a.example:http\r\n", HOST),
    "two ports": (b"Host: a.example:1:2\r\n", HOST),
    "only a port": (b"Host: :80\r\n", HOST),
    "a broken escape": (b"Host: a%2\r\n", HOST),
    "an escape that is none": (b"Host: a%zz\r\n", HOST),
    "obs-text": (b"Host: \xffa\r\n", HOST),
    "IPv6 without brackets": (b"Host: ::1\r\n", HOST),
    "an open bracket": (b"Host: [::1\r\n", HOST),
    "no IPv6 address": (b"Host: [:::]\r\n", HOST),
    "an IPv6 zone": (b"Host: [fe80::1%25eth0]\r\n", HOST),
    "too long": (b"Host: " + b"a" * 262 + b"\r\n", HOST),
    "a name": (b"Host: a.example\r\n", None),
    "a name and port": (b"Host: a.example:65535\r\n", None),
    "an empty port": (b"Host: a.example:\r\n", None),
    "IPv4": (b"Host: 192.0.2.1:80\r\n", None),
    "IPv6": (b"Host: [2001:db8::1]:80\r\n", None),
    "an escape": (b"Host: a%2Eb\r\n", None),
    "white space around": (b"Host: \t a.example \t\r\n", None),
}

FIELDS = {
    "two lengths": ([b"Content-Length: 5", b"Content-Length: 6"], MALFORMED),
    "one length twice": ([b"Content-Length: 5", b"content-length: 5"], MALFORMED),
    "a length and chunks": ([b"Content-Length: 5", CHUNKED], MALFORMED),
    "chunks and a length": ([CHUNKED, b"Content-Length: 5"], MALFORMED),
    "a list of lengths": ([b"Content-Length: 5, 5"], MALFORMED),
    "lengths with a space": ([b"Content-Length: 5 5"], MALFORMED),
    "a length with a sign": ([b"Content-Length: +5"], MALFORMED),
    "a negative length": ([b"Content-Length: -5"], MALFORMED),
    "a hexadecimal length": ([b"Content-Length: 0x5"], MALFORMED),
    "a length with an underscore": ([b"Content-Length: 5_0"], MALFORMED),
    "an empty length": ([b"Content-Length: "], MALFORMED),
    "a length beyond 64 bits": ([b"Content-Length: 18446744073709551616"], MALFORMED),
    "a length beyond 63 bits": ([b"Content-Length: 9223372036854775808"], FIELD),
    "a length with a leading zero": ([b"Content-Length: 05"], FIELD),
    "two zeros for a length": ([b"Content-Length: 00"], FIELD),
    "a length of five thousand digits": ([b"Content-Length: " + b"0" * 5000 + b"5"], FIELD),
    "a length with an underscored name": ([b"Content_Length: 5"], FIELD),
    "a coding with an underscored name": ([b"Transfer_Encoding: chunked"], FIELD),
    "another coding": ([b"Transfer-Encoding: gzip"], CODING),
    "the identity coding": ([b"Transfer-Encoding: identity"], CODING),
    "another coding, then chunked": ([b"Transfer-Encoding: gzip, chunked"], CODING),
    "chunked, then another coding": ([b"Transfer-Encoding: chunked, gzip"], MALFORMED),
    "chunked twice in a list": ([b"Transfer-Encoding: chunked, chunked"], MALFORMED),
    "chunked twice in two fields": ([CHUNKED, CHUNKED], MALFORMED),
    "identity, then chunked, in two fields": ([b"Transfer-Encoding: identity", CHUNKED], CODING),
    "a quoted coding": ([b'Transfer-Encoding: "chunked"'], CODING),
    "a coding with a parameter": ([b"Transfer-Encoding: chunked;q=1"], CODING),
    "a coding after VT": ([b"Transfer-Encoding: \x0bchunked"], MALFORMED),
    "a coding after a comma": ([b"Transfer-Encoding: ,chunked"], CODING),
    "a coding in front of a tab": ([b"Transfer-Encoding: chunked\t"], CODING),
    "a coding in front of a space and a tab": ([b"Transfer-Encoding: chunked \t "], CODING),
    "an empty coding": ([b"Transfer-Encoding:"], MALFORMED),
    "bare LF after a field": ([b"X: a\nY: b"], MALFORMED),
    "CR inside a value": ([b"X: a\rb"], MALFORMED),
    "obs-fold with a space": ([b"X: a", b" b"], MALFORMED),
    "obs-fold with a tab": ([b"X: a", b"\tb"], MALFORMED),
    "obs-fold after an empty value": ([b"X:", b" b"], MALFORMED),
    "a space in front of the first name": ([b" X: a"], MALFORMED),
    "a space before the colon": ([b"X : a"], MALFORMED),
    "a space before the colon of a length": ([b"Content-Length : 5"], MALFORMED),
    "a tab before the colon": ([b"X\t: a"], MALFORMED),
    "no colon": ([b"X"], MALFORMED),
    "no name": ([b": a"], MALFORMED),
    "NUL in a name": ([b"X\x00: a"], MALFORMED),
    "obs-text in a name": ([b"X\xff: a"], MALFORMED),
    "a separator in a name": ([b"X(a): a"], MALFORMED),
    "NUL in a value": ([b"X: a\x00b"], MALFORMED),
    "VT in a value": ([b"X: a\x0bb"], MALFORMED),
    "FF in a value": ([b"X: a\x0c"], MALFORMED),
    "ESC in a value": ([b"X: \x1b[31m"], MALFORMED),
    "DEL in a value": ([b"X: \x7f"], MALFORMED),
    "Svc-* twice": ([b"Svc-Notary-Nonce: a", b"svc-notary-nonce: b"], FIELD),
    "Svc-* twice, once with underscores": ([b"Svc-Notary-Nonce: a", b"Svc_Notary_Nonce: b"], FIELD),
    "Connection names Host": ([b"Connection: host"], FIELD),
    "Connection names Content-Length": ([b"Connection: close, Content-Length"], FIELD),
    "Connection names Transfer-Encoding": ([b"Connection: transfer-encoding"], FIELD),
    "Connection names Content-Type": ([b"Connection: content-type"], FIELD),
    "Connection names Svc-*": ([b"Connection: Svc-Workload-ID"], FIELD),
    "Connection names Svc-* with underscores": ([b"Connection: svc_workload_id"], FIELD),
    "Connection names X-Forwarded-Client-Cert": ([b"Connection: X-Forwarded-Client-Cert"], FIELD),
    "the second Connection names Host": ([b"Connection: close", b"Connection: Host"], FIELD),
    "Connection is no list of names": ([b"Connection: close;now"], FIELD),
    "two words in Connection": ([b"Connection: close now"], FIELD),
}

ACCEPTED = {
    "no colon space": ([b"X:a"], (b"X", b"a")),
    "white space around a value": ([b"X: \t a b \t "], (b"X", b"a b")),
    "an empty value": ([b"X:"], (b"X", b"")),
    "a value of white space": ([b"X: \t "], (b"X", b"")),
    "obs-text in a value": ([b"X: \xff\x80"], (b"X", b"\xff\x80")),
    "a tab in a value": ([b"X: a\tb"], (b"X", b"a\tb")),
    "every mark that a name may have": ([b"x!#$%&'*+-.^_`|~9: a"], (b"x!#$%&'*+-.^_`|~9", b"a")),
    "a length with white space": ([b"Content-Length: \t0 \t"], (b"Content-Length", b"0")),
}

CHUNKS = {
    "an empty size": (b"\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a size with a sign": (b"+5\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a negative size": (b"-5\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a size with 0x": (b"0x5\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a size that is no number": (b"g\r\n", MALFORMED),
    "a space in front of the size": (b" 5\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a space after the size": (b"5 \r\nhello\r\n0\r\n\r\n", MALFORMED),
    "a size beyond 64 bits": (b"10000000000000005\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "bare LF after the size": (b"5\nhello\r\n0\r\n\r\n", MALFORMED),
    "bare CR after the size": (b"5\rhello\r\n0\r\n\r\n", MALFORMED),
    "bare LF after the data": (b"5\r\nhello\n0\r\n\r\n", MALFORMED),
    "data longer than its size": (b"5\r\nhelloXX0\r\n\r\n", MALFORMED),
    "data shorter than its size": (b"6\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "bare LF after the last size": (b"0\n\r\n", MALFORMED),
    "bare LF after the trailers": (b"0\r\nX: a\n\r\n", MALFORMED),
    "bare LF in an extension": (b"5;a\nhello\r\n0\r\n\r\n", MALFORMED),
    "bare LF in a quoted extension": (b'5;a="\n"\r\nhello\r\n0\r\n\r\n', MALFORMED),
    "CR inside an extension": (b"5;a\rb\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "NUL in an extension": (b"5;\x00\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "an empty extension": (b"5;\r\nhello\r\n0\r\n\r\n", MALFORMED),
    "obs-fold in trailers": (b"0\r\nX: a\r\n b\r\n\r\n", MALFORMED),
    "NUL in trailers": (b"0\r\nX: \x00\r\n\r\n", MALFORMED),
    "a length in trailers": (b"0\r\nContent-Length: 5\r\n\r\n", MALFORMED),
    "a coding in trailers": (b"0\r\nTransfer-Encoding: chunked\r\n\r\n", MALFORMED),
    "Connection in trailers": (b"0\r\nConnection: close\r\n\r\n", FIELD),
    "Proxy-Connection in trailers": (b"0\r\nProxy-Connection: close\r\n\r\n", FIELD),
    "a size with leading zeros": (b"0005\r\nhello\r\n000\r\n\r\n", None),
    "an upper-case size": (b"A\r\nhellohello\r\n0\r\n\r\n", None),
    "extensions": (b'5;a;b=c;d="e;\\""\r\nhello\r\n0;f=g\r\n\r\n', None),
    "trailers": (b"5\r\nhello\r\n0\r\nX: a\r\nHost: b\r\n\r\n", None),
}


class RequestTests(SynchronousTestCase):
    """Which requests are refused, with what response, and that the reads do not matter."""

    def check(self, cases: dict[str, tuple[bytes, object]]) -> None:
        """Compare the refusal of each row, read whole and octet by octet, with what the row expects."""
        expected = {name: answer for name, (_, answer) in cases.items()}
        self.assertEqual({name: refusal(read_requests(data)) for name, (data, _) in cases.items()}, expected)
        self.assertEqual({name: refusal(read_requests(*octets(data))) for name, (data, _) in cases.items()}, expected)

    def test_request_lines(self) -> None:
        """A request line that is not one method, one target and HTTP/1.0 or 1.1 is refused."""
        self.check({name: (request(line), answer) for name, (line, answer) in LINES.items()})

    def test_request_lines_after_other_requests(self) -> None:
        """The same holds for a request that follows another one, however that one ends and however they are cut."""
        before = {
            "no body": request(b"GET /first HTTP/1.1"),
            "a length": request(b"POST / HTTP/1.1", [b"Content-Length: 12"], b"\r\n\r\nG / H\r\n\r\n"[:12]),
            "chunks": request(b"POST / HTTP/1.1", [CHUNKED], b"c\r\n\r\n\r\nGET / \r\n\r\n0\r\n\r\n"),
            "trailers": request(b"POST / HTTP/1.1", [CHUNKED], b"0\r\nX: a\r\n\r\n"),
            "an upgrade that is not granted": request(fields=[b"Connection: upgrade", b"Upgrade: h2c"]),
        }
        good = request(b"GET /last HTTP/1.1")
        for name, first in before.items():
            for line, expected in (
                (b"GET  / HTTP/1.1", MALFORMED),
                (b"GET /  HTTP/1.1", MALFORMED),
                (b"PUT / HTTP/1.1", None),
            ):
                data = first + request(line) + good
                for reads in ([data], octets(data), *([data[:at], data[at:]] for at in range(1, len(data)))):
                    events = read_requests(*reads)
                    self.assertEqual(refusal(events), expected, (name, line, reads))
                    self.assertEqual(len(heads(events)), 3 if expected is None else 1, (name, line, reads))

    def test_line_ends_in_front_of_a_request(self) -> None:
        """Empty lines in front of a request are no part of it (RFC 9112 section 2.2), whole lines only."""
        for before, expected in ((b"\r\n", None), (b"\r\n\r\n", None), (b"\r\n\r", MALFORMED), (b"\n\r\n", MALFORMED)):
            data = request() + before + request()
            for reads in ([data], octets(data), [request() + before, request()], [request(), before, request()]):
                self.assertEqual(refusal(read_requests(*reads)), expected, (before, len(reads)))

    def test_max_forwards(self) -> None:
        """TRACE and OPTIONS lose one hop; others keep the field as it is (RFC 9110 section 7.6.2)."""
        for line, value, left, sent in (
            (b"OPTIONS / HTTP/1.1", b"3", 3, b"2"),
            (b"OPTIONS * HTTP/1.1", b"1", 1, b"0"),
            (b"TRACE / HTTP/1.1", b"0", 0, b"0"),
            (b"TRACE / HTTP/1.1", b"0012", 12, b"11"),
            (b"TRACE / HTTP/1.1", b"2147483648", 2**31 - 1, b"2147483646"),
            (b"TRACE / HTTP/1.1", b"9" * 5000, 2**31 - 1, b"2147483646"),
            (b"GET / HTTP/1.1", b"0", None, b"0"),
            (b"GET / HTTP/1.1", b"many", None, b"many"),
        ):
            head = heads(read_requests(request(line, [b"A: b", b"max-forwards: " + value])))[0]
            self.assertEqual(head.max_forwards, left, (line, value))
            self.assertEqual(head.values(b"max-forwards"), [value])
            self.assertEqual(head.end_to_end_lines, b"Host: a.example\r\nA: b\r\nmax-forwards: %b\r\n" % sent)
        self.assertIsNone(heads(read_requests(request(b"OPTIONS * HTTP/1.1")))[0].max_forwards)

    def test_max_forwards_that_is_no_number(self) -> None:
        """A count that two readers could read differently is refused for the methods that it bounds."""
        for fields in ([b"-1"], [b"+1"], [b"1.0"], [b"1, 2"], [b""], [b"0x1"], [b"1", b"2"], [b"\xb2"]):
            lines = [b"Max-Forwards: " + each for each in fields]
            for line in (b"TRACE / HTTP/1.1", b"OPTIONS * HTTP/1.1"):
                self.check({str(fields): (request(line, lines), FIELD)})

    def test_http_2_by_prior_knowledge(self) -> None:
        """The whole preface of HTTP/2 is refused as another version (RFC 9113 section 3.4)."""
        self.check({"preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VERSION)})

    def test_bare_line_feeds(self) -> None:
        """LF without CR ends no line of a head."""
        whole = request(fields=[b"X: a"])
        self.check(
            {
                f"line end {position}": (whole[:end] + whole[end + 1 :], MALFORMED)
                for position, end in enumerate(at for at in range(len(whole)) if whole[at : at + 1] == b"\r")
            }
        )

    def test_hosts(self) -> None:
        """Exactly one Host with a host by the grammar is needed (RFC 9112 section 3.2)."""
        self.check({name: (request(host=field), answer) for name, (field, answer) in HOSTS.items()})

    def test_authorities_that_are_equal(self) -> None:
        """The authority of a target is compared with Host by case and default port (RFC 9110 section 4.2.3)."""
        rows = {
            (b"http://a.example/", b"A.Example"): True,
            (b"HTTP://A.EXAMPLE:80/", b"a.example"): True,
            (b"http://a.example/", b"a.example:80"): True,
            (b"http://a.example:/?x", b"a.example:80"): True,
            (b"https://a.example:443", b"a.example"): True,
            (b"https://[::1]:443/", b"[::1]"): True,
            (b"http://a.example:443/", b"a.example"): False,
            (b"https://a.example:80/", b"a.example"): False,
            (b"http://a.example:8080/", b"a.example"): False,
            (b"http://a.example::80/", b"a.example"): False,
            (b"http://a.example::/", b"a.example"): False,
            (b"http://[::80/", b"[::"): False,
        }
        for (target, host), equal in rows.items():
            data = request(b"GET %b HTTP/1.1" % target, host=b"Host: %b\r\n" % host)
            for reads in ([data], octets(data)):
                self.assertEqual(refusal(read_requests(*reads)) is None, equal, (target, host))

    def test_host_in_version_1_0(self) -> None:
        """An HTTP/1.0 request needs no Host; one that is there is valid, and single."""
        for line, host in ((b"GET / HTTP/1.0", b""), (b"GET http://a.example:80/ HTTP/1.0", b"a.example:80")):
            data = request(line, host=b"")
            for reads in ([data], octets(data)):
                [head] = heads(read_requests(*reads))
                self.assertEqual((host, []), (head.host, head.fields))
        one = b"Host: a.example\r\n"
        self.check(
            {
                "1.1": (request(b"GET / HTTP/1.1", host=b""), HOST),
                "empty": (request(b"GET / HTTP/1.0", host=b"Host: \r\n"), HOST),
                "twice": (request(b"GET / HTTP/1.0", host=one + one), HOST),
                "a target without a host": (request(b"GET http:/// HTTP/1.0", host=b""), HOST),
                "a target with a user": (request(b"GET http://u@a.example/ HTTP/1.0", host=b""), HOST),
                "a target with an empty port": (request(b"GET http://[::/ HTTP/1.0", host=b""), HOST),
            }
        )

    def test_fields(self) -> None:
        """Fields that two readers could read differently are refused, also where a body is announced."""
        self.check({name: (request(fields=fields), answer) for name, (fields, answer) in FIELDS.items()})

    def test_no_event_comes_out_of_a_refused_head(self) -> None:
        """What follows a refused head is never read as a request."""
        smuggled = request(b"GET /smuggled HTTP/1.1")
        for name, (fields, _) in FIELDS.items():
            self.assertEqual(heads(read_requests(request(fields=fields, body=b"hello" + smuggled))), [], name)

    def test_field_values(self) -> None:
        """White space around a value is no part of it; white space inside is kept as sent."""
        read = {name: heads(read_requests(request(fields=fields)))[0].fields for name, (fields, _) in ACCEPTED.items()}
        self.assertEqual(read, {name: [(b"Host", b"a.example"), field] for name, (_, field) in ACCEPTED.items()})

    def test_chunks(self) -> None:
        """Chunks are read by the letter: sizes, line ends, extensions, trailers."""
        self.check(
            {name: (request(b"POST / HTTP/1.1", [CHUNKED], body), answer) for name, (body, answer) in CHUNKS.items()}
        )

    def test_chunked_in_version_1_0(self) -> None:
        """HTTP/1.0 has no chunks (RFC 9112 section 6.1)."""
        self.check({"1.0": (request(b"POST / HTTP/1.0", [CHUNKED], b"0\r\n\r\n"), CODING)})

    def test_no_event_after_a_refusal(self) -> None:
        """A closed parser gives no more events, whatever comes."""
        events = read_requests(request(b"get / HTTP/1.1"), request(), request())
        self.assertEqual(names(events), ["method_unknown"])


class AcceptedRequestTests(SynchronousTestCase):
    """What the events of an acceptable request hold."""

    def test_a_request_with_a_length(self) -> None:
        """Head, body and end come in this order, with the head's values."""
        head, body, end = read_requests(request(b"PUT /a?b=%20 HTTP/1.1", [b"Content-Length: 5", b"A: b"], b"hello"))
        assert isinstance(head, RequestHead)
        self.assertEqual((head.method, head.target, head.version), (b"PUT", b"/a?b=%20", "1.1"))
        self.assertEqual((head.host, head.length, head.chunked), (b"a.example", 5, False))
        self.assertEqual((head.keep_alive, head.has_body, head.upgrade), (True, True, False))
        self.assertEqual(head.values(b"a"), [b"b"])
        self.assertEqual((body, end), (b"hello", End([])))

    def test_the_largest_length(self) -> None:
        """A length that fits into 63 bits is taken."""
        head = heads(read_requests(request(fields=[b"Content-Length: 9223372036854775807"])))[0]
        self.assertEqual(head.length, 2**63 - 1)

    def test_a_length_of_zero_is_no_body(self) -> None:
        """The request ends with its head."""
        events = read_requests(request(fields=[b"Content-Length: 0"]))
        self.assertEqual(names(events), ["RequestHead", "End"])
        self.assertFalse(heads(events)[0].has_body)

    def test_chunks_and_trailers(self) -> None:
        """The body comes without chunk lines, trailers with their values stripped."""
        body = b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX: a \r\nY:\r\n\r\n"
        head, content, end = read_requests(request(b"POST / HTTP/1.1", [b"Transfer-Encoding: CHUNKED "], body))
        assert isinstance(head, RequestHead)
        self.assertEqual((head.chunked, head.has_body), (True, True))
        self.assertEqual((content, end), (b"hello world", End([(b"X", b"a"), (b"Y", b"")])))

    def test_targets(self) -> None:
        """The forms of RFC 9112 section 3.2 come out as they were sent."""
        targets = (
            b"/",
            b"//b/c",
            b"/%zz",
            b'/"<>\\^`{|}',
            b"http://a.example",
            b"HTTP://A.EXAMPLE/b?c",
            b"https://a.example?d",
        )
        for target in targets:
            head = heads(read_requests(request(b"GET " + target + b" HTTP/1.1")))[0]
            self.assertEqual(head.target, target)
        self.assertEqual(heads(read_requests(request(b"OPTIONS * HTTP/1.1")))[0].target, b"*")

    def test_leniency_that_moves_no_border(self) -> None:
        """
        What llhttp takes for one separator or skips gives the same request as the plain spelling.

        RFC 9112 section 2.2 allows this reading, and what goes on is written anew from the events.
        """
        plain = read_requests(request(b"GET /a HTTP/1.1"))
        self.assertEqual(read_requests(request(b"\r\nGET /a HTTP/1.1")), plain)

    def test_rest_after_an_upgrade_that_is_not_granted(self) -> None:
        """Half a request that waited for the response is gone on with, whatever comes next looks like."""
        for rest in (
            b"POST /",
            b"POST / HTTP/1.1\r\nHost: a\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n",
        ):
            parser = RequestParser()
            parser.feed(request(fields=[b"Connection: upgrade", b"Upgrade: websocket"]) + rest)
            parser.resume()
            self.assertEqual(heads(parser.feed(request(b"GET /hidden HTTP/1.1"))), [], rest)

    def test_own_fields(self) -> None:
        """The values of Svc-* fields are handed over by one spelling of their names."""
        fields = [b"Svc-Notary-Nonce: a", b"SVC_Notarization_Level: b", b"X-Forwarded-Client-Cert: c"]
        head = heads(read_requests(request(fields=fields)))[0]
        self.assertEqual(head.reserved, {b"svc-notary-nonce": b"a", b"svc-notarization-level": b"b"})
        self.assertEqual(heads(read_requests(request()))[0].reserved, {})

    def test_in_head(self) -> None:
        """``in_head`` is true from the first octet of a head to its empty line, also after another request."""
        parser = RequestParser()
        seen = [parser.in_head]
        for data in (
            b"\r\n",
            b"G",
            request()[1:],
            request(fields=[b"Content-Length: 2"]),
            b"xx" + b"GET",
            request()[3:],
        ):
            parser.feed(data)
            seen.append(parser.in_head)
        self.assertEqual(seen, [False, False, True, False, False, True, False])
