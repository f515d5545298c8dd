"""Tests of what is sent."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import UsageRefused
from svc.cli.exchange.request import Request, artifact_request, parse_header, plan_request
from svc.cli.exchange.target import Target
from svc.notary.level import Level
from svc.wire.http1 import End, RequestHead, RequestParser

NONCE = "AAECAwQFBgcICQoLDA0ODw"


def planned(*, method: str = "GET", headers: tuple[str, ...] = (), data: str = "") -> Request:
    return plan_request(
        Target.parse("https://api.test:8443/p?q"),
        method=method,
        headers=headers,
        data=data,
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
        head, body = on_the_wire(planned())
        self.assertEqual((head.method, head.target, head.host, body), (b"GET", b"/p?q", b"api.test:8443", b""))
        self.assertEqual(head.values(b"svc-notarization-level"), [b"signRequest"])
        self.assertEqual(head.values(b"svc-notary-nonce"), [NONCE.encode()])
        self.assertEqual((head.values(b"accept"), head.length), ([b"*/*"], None))

    def test_method(self) -> None:
        """Data turns GET into POST, also where GET was given, and leaves another method alone."""
        self.assertEqual(planned(data="x").method, "POST")
        self.assertEqual(planned(data="x", method="PUT").method, "PUT")
        self.assertEqual(planned(data="", method="GET").method, "GET")
        self.assertEqual(planned(data="x", method="get").method, "get")

    def test_empty_body(self) -> None:
        """A POST without data announces its empty body; a DELETE does not."""
        self.assertEqual(on_the_wire(planned(method="POST"))[0].length, 0)
        self.assertIsNone(on_the_wire(planned(method="DELETE"))[0].length)

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
            self.assertEqual(on_the_wire(planned(data=data))[0].values(b"content-type"), expected, data[:10])
        head, _body = on_the_wire(planned(data="{}", headers=("content-TYPE: text/plain",)))
        self.assertEqual(head.values(b"content-type"), [b"text/plain"])

    def test_data_is_literal(self) -> None:
        """Data is sent octet for octet, an @ included."""
        self.assertEqual(on_the_wire(planned(data="@a\udcff ü\n"))[1], b"@a\xff \xc3\xbc\n")

    def test_headers(self) -> None:
        """Headers go out in order, with duplicates; own defaults give way."""
        head, _body = on_the_wire(planned(headers=("X-A: 1", "X-A:2", "Accept: text/html", "User-Agent: me", "X-E:")))
        self.assertEqual(head.values(b"x-a"), [b"1", b"2"])
        self.assertEqual((head.values(b"accept"), head.values(b"user-agent")), ([b"text/html"], [b"me"]))
        self.assertEqual(head.values(b"x-e"), [b""])

    def test_host(self) -> None:
        """A Host of the user's replaces ours, stands first, and is the authority of the exchange."""
        request = planned(headers=("X-A: 1", "Host: other:1"))
        self.assertEqual((request.fields[0], request.authority), ((b"Host", b"other:1"), "other:1"))
        self.assertEqual(on_the_wire(request)[0].host, b"other:1")

    def test_refused_headers(self) -> None:
        """Headers that frame the message, speak for the proxy or break a line are refused."""
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
            self.assertRaises(UsageRefused, parse_header, text)

    @given(st.text(max_size=12), st.text(max_size=12))
    def test_any_header(self, name: str, value: str) -> None:
        """Whatever is typed is refused as usage, or read back by the strict parser as exactly one field."""
        try:
            request = planned(headers=(f"{name}:{value}",))
        except UsageRefused:
            return
        except UnicodeEncodeError:
            return  # no argument of a process holds such text
        head, _body = on_the_wire(request)
        self.assertEqual(head.fields, list(request.fields))

    @given(st.text(max_size=8))
    def test_any_method(self, method: str) -> None:
        """Whatever is typed as method is refused as usage or sent as it is."""
        try:
            request = planned(method=method)
        except UsageRefused:
            return
        self.assertTrue(request.encoded().startswith(method.encode() + b" /p?q HTTP/1.1\r\n"))

    def test_artifact(self) -> None:
        """The request for an artefact has the Host of the exchange and no reserved field."""
        events = RequestParser().feed(artifact_request(Target.parse("https://a/"), "b:1", "/.well-known/x"))
        head = events[0]
        assert isinstance(head, RequestHead)
        self.assertEqual((head.method, head.target, head.host), (b"GET", b"/.well-known/x", b"b:1"))
        self.assertFalse([name for name, _value in head.fields if name.lower().startswith(b"svc-")])

    def test_json_depth(self) -> None:
        """Nested JSON is still JSON."""
        data = json.dumps({"a": [{"b": None}]})
        self.assertEqual(on_the_wire(planned(data=data))[0].values(b"content-type"), [b"application/json"])
