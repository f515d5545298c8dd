"""Tests of what is sent."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.request import DataUnreadable, curl_request, parse_header, read_data
from svc.cli.errors import UsageRefused
from svc.cli.flags import DataPiece
from svc.client.errors import RequestInvalid
from svc.client.request import Request, artifact_request
from svc.client.target import Target
from svc.notary.level import Level
from svc.wire.http1 import End, RequestHead, RequestParser
from tests.cli.doubles import MemoryContext, NotaryServer, default_world, run_svc
from tests.refusals import assert_refused

NONCE = "AAECAwQFBgcICQoLDA0ODw"
LINES = b"a=1\r\nb\0=2\n"


def built(*, method: str = "GET", headers: tuple[str, ...] = (), data: str = "") -> Request:
    return curl_request(
        Target.parse("https://api.test:8443/p?q"),
        method=method,
        headers=headers,
        body=os.fsencode(data),
        level=Level.SIGN_REQUEST,
        nonce=NONCE,
    )


def on_the_wire(request: Request) -> tuple[RequestHead, bytes]:
    """Read a request as the strict parser of a proxy does."""
    events = RequestParser().feed(request.encoded())
    head = events[0]
    assert isinstance(head, RequestHead) and isinstance(events[-1], End), events
    return head, b"".join(event for event in events if isinstance(event, bytes))


class RequestTests(SynchronousTestCase):
    """The rules of -X, -d and -H."""

    def test_plain_get(self) -> None:
        """A GET has Host, the level, the nonce and no body."""
        head, body = on_the_wire(built())
        self.assertEqual((head.method, head.target, head.host, body), (b"GET", b"/p?q", b"api.test:8443", b""))
        self.assertEqual(head.values(b"svc-notarization-level"), [b"signRequest"])
        self.assertEqual(head.values(b"svc-notary-nonce"), [NONCE.encode()])
        self.assertEqual((head.values(b"accept"), head.length), ([b"*/*"], None))

    def test_method(self) -> None:
        """Data turns GET into POST, also where GET was given, and does not change another method."""
        self.assertEqual(built(data="x").method, "POST")
        self.assertEqual(built(data="x", method="PUT").method, "PUT")
        self.assertEqual(built(data="", method="GET").method, "GET")
        self.assertEqual(built(data="x", method="get").method, "get")

    def test_empty_body(self) -> None:
        """A POST without data announces its empty body; a DELETE does not."""
        self.assertEqual(on_the_wire(built(method="POST"))[0].length, 0)
        self.assertIsNone(on_the_wire(built(method="DELETE"))[0].length)

    def test_content_type(self) -> None:
        """A JSON object or array gets a content type unless one was given; other data gets none."""
        for data, expected in (
            ('{"a": 1}', [b"application/json"]),
            (" [1]\n", [b"application/json"]),
            ("1", []),
            ('"text"', []),
            ("a=1&b=2", []),
            ("@file", []),
            ("[" * 100000, []),
        ):
            self.assertEqual(on_the_wire(built(data=data))[0].values(b"content-type"), expected, data[:10])
        head, _body = on_the_wire(built(data="{}", headers=("content-TYPE: text/plain",)))
        self.assertEqual(head.values(b"content-type"), [b"text/plain"])

    def test_body(self) -> None:
        """The body is sent octet for octet."""
        self.assertEqual(on_the_wire(built(data="@a\udcff ü\n"))[1], b"@a\xff \xc3\xbc\n")

    def test_headers(self) -> None:
        """Headers go out in order, with duplicates; they replace the defaults."""
        head, _body = on_the_wire(built(headers=("X-A: 1", "X-A:2", "Accept: text/html", "User-Agent: me", "X-E:")))
        self.assertEqual(head.values(b"x-a"), [b"1", b"2"])
        self.assertEqual((head.values(b"accept"), head.values(b"user-agent")), ([b"text/html"], [b"me"]))
        self.assertEqual(head.values(b"x-e"), [b""])

    def test_host(self) -> None:
        """A Host of the user's replaces ours, is the first field, and is the authority of the exchange."""
        request = built(headers=("X-A: 1", "Host: other:1"))
        self.assertEqual((request.fields[0], request.authority), ((b"Host", b"other:1"), "other:1"))
        self.assertEqual(on_the_wire(request)[0].host, b"other:1")

    def test_refused_headers(self) -> None:
        """Headers that frame the message, are reserved for the proxy or break a line are refused."""
        for text in (
            "no colon",
            ": value",
            "na me: x",
            "n\x00: x",
            "X: a\r\nY: b",
            "X: a\nb",
            "X: \x00",
            "X: \x7f",
            "Content-Length: 1",
            "transfer-encoding: chunked",
            "Connection: close",
            "Upgrade: h2c",
            "TE: trailers",
            "Expect: 100-continue",
            "Svc-Notary-Nonce: x",
            "svc_notarization_level: none",
            "X-Forwarded-Client-Cert: x",
            "X_Forwarded_Client_Cert: x",
            "Host: a/b",
        ):
            self.assertRaises((UsageRefused, RequestInvalid), parse_header, text)

    @given(st.text(max_size=12), st.text(max_size=12))
    def test_any_header(self, name: str, value: str) -> None:
        """Whatever is typed is refused as usage, or read back by the strict parser as exactly one field."""
        try:
            request = built(headers=(f"{name}:{value}",))
        except RequestInvalid:
            return
        except UnicodeEncodeError:
            return  # no argument of a process holds such text
        head, _body = on_the_wire(request)
        self.assertEqual(head.fields, list(request.fields))

    @given(st.text(max_size=8))
    def test_any_method(self, method: str) -> None:
        """Whatever is typed as method is refused as usage or sent as it is."""
        try:
            request = built(method=method)
        except RequestInvalid:
            return
        self.assertTrue(request.encoded().startswith(method.encode() + b" /p?q HTTP/1.1\r\n"))

    def test_artifact(self) -> None:
        """The request for an artifact has the Host of the exchange and no reserved field."""
        events = RequestParser().feed(artifact_request("b:1", "/.well-known/x"))
        head = events[0]
        assert isinstance(head, RequestHead)
        self.assertEqual((head.method, head.target, head.host), (b"GET", b"/.well-known/x", b"b:1"))
        self.assertFalse([name for name, _value in head.fields if name.lower().startswith(b"svc-")])

    def test_json_depth(self) -> None:
        """Nested JSON is still JSON."""
        data = json.dumps({"a": [{"b": None}]})
        self.assertEqual(on_the_wire(built(data=data))[0].values(b"content-type"), [b"application/json"])


class DataTests(SynchronousTestCase):
    """Files, standard input, and text."""

    def setUp(self) -> None:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "body"
        self.path.write_bytes(LINES)

    def read(self, *pieces: tuple[str, str], stdin: bytes | None = None, limit: int = 100) -> bytes:
        return read_data([DataPiece(*piece) for piece in pieces], None if stdin is None else io.BytesIO(stdin), limit)

    def test_file(self) -> None:
        """-d leaves line ends and NUL out of a file, --data-binary sends it unchanged, --data-raw reads none."""
        self.assertEqual(self.read(("--data", f"@{self.path}")), b"a=1b=2")
        self.assertEqual(self.read(("--data-binary", f"@{self.path}")), LINES)
        self.assertEqual(self.read(("--data-raw", "@file")), b"@file")

    def test_standard_input(self) -> None:
        """@- is standard input."""
        self.assertEqual(self.read(("--data", "@-"), stdin=LINES), b"a=1b=2")
        self.assertEqual(self.read(("--data-binary", "@-"), stdin=LINES), LINES)

    def test_text(self) -> None:
        """Text is sent octet for octet, line ends included; several are joined in order, an empty first one is none."""
        self.assertEqual(self.read(("--data", "a\udcff \u00fc\r\n")), b"a\xff \xc3\xbc\r\n")
        pieces = (("--data", "a=1"), ("--data-raw", "@b"), ("--data-binary", "c"), ("--data", ""))
        self.assertEqual(self.read(*pieces), b"a=1&@b&c&")
        self.assertEqual(self.read(("--data", ""), ("--data", "a")), b"a")
        self.assertEqual(self.read(), b"")

    def test_unreadable(self) -> None:
        """An unreadable file is named, with a hint."""
        for text, path, detail in (
            ("@/proc/nonexistent/file", "/proc/nonexistent/file", "no such file or directory"),
            (f"@{self.path.parent}", str(self.path.parent), "is a directory"),
            ("@-", "standard input", "it is closed"),
        ):
            error = self.assertRaises(DataUnreadable, self.read, ("--data", text))
            self.assertEqual(str(error), f"{path} cannot be read: {detail}")
            self.assertIn("--data-raw sends text that begins with @", error.hint)

    def test_limit(self) -> None:
        """The body has a limit: at it everything is sent, one octet beyond nothing."""
        size = len(LINES)
        self.assertEqual(self.read(("--data-binary", f"@{self.path}"), limit=size), LINES)
        for pieces in ([("--data-binary", f"@{self.path}")], [("--data", "a=1"), ("--data-raw", "b=2345")]):
            assert_refused(self, "data_too_large", self.read, *pieces, limit=size - 1)
        assert_refused(self, "data_too_large", self.read, ("--data", "@/dev/zero"))

    def test_command_line(self) -> None:
        """The flags of a command line make one body, in their order whatever flag each is."""
        server = NotaryServer(default_world())
        words = ("-da=1", "--data-binary", f"@{self.path}", "--data-raw=@x", "--data", "@-", "-d", "b=2")
        ran = run_svc("curl", "-s", *words, "https://api.test/", context=MemoryContext(server), stdin=b"in\n")
        self.assertEqual(ran.status, 0, ran.stderr)
        self.assertEqual(server.bodies[0], b"a=1&" + LINES + b"&@x&in&b=2")
        self.assertEqual(server.seen[0].method, b"POST")

    def test_missing_file_sends_nothing(self) -> None:
        """A file that is missing ends the command before anything is sent."""
        server = NotaryServer(default_world())
        ran = run_svc("curl", "-d", "@no-such-file", "https://api.test/", context=MemoryContext(server))
        self.assertEqual((ran.status, ran.stdout, server.seen), (1, b"", []))
        self.assertEqual(
            ran.stderr,
            "svc: no-such-file cannot be read: no such file or directory (file_unreadable)\n"
            "     --data @FILE sends the content of a file, as with curl; --data-raw sends text that begins with @\n",
        )

    @given(
        st.lists(st.tuples(st.sampled_from(["--data", "--data-raw", "--data-binary"]), st.text("a@&=-\n", max_size=4)))
    )
    def test_joined(self, pieces: list[tuple[str, str]]) -> None:
        """Text without @ at its beginning is sent as it is, joined by &."""
        pieces = [(flag, f"x{text}") for flag, text in pieces]
        self.assertEqual(self.read(*pieces, limit=10**6), "&".join(text for _flag, text in pieces).encode())
