"""Tests of parsing URLs."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.client.errors import RequestInvalid
from svc.client.target import BrokerTarget, Target
from svc.envelope.ids import printed_id
from svc.notary.access import receipt_path, statement_path
from svc.strictjson import b64u_encode


class TargetTests(SynchronousTestCase):
    """The parts of a URL."""

    def check(self, url: str, host: str, port: int, authority: str, path: str) -> None:
        target = Target.parse(url)
        self.assertEqual((target.host, target.port, target.authority, target.path), (host, port, authority, path), url)

    def test_parts(self) -> None:
        """Host, port, authority and target are taken as typed; a default port is not in the authority."""
        self.check("https://api.test", "api.test", 443, "api.test", "/")
        self.check("http://api.test:80/", "api.test", 80, "api.test", "/")
        self.check("HTTPS://Api.Test:8443/A?b=C#frag", "Api.Test", 8443, "Api.Test:8443", "/A?b=C")
        self.check("https://api.test?x", "api.test", 443, "api.test", "/?x")
        self.check("https://api.test:/", "api.test", 443, "api.test", "/")
        self.check("https://127.0.0.1:1/", "127.0.0.1", 1, "127.0.0.1:1", "/")
        self.check("https://[::1]:8443/x", "::1", 8443, "[::1]:8443", "/x")
        self.check("https://[::1]", "::1", 443, "[::1]", "/")
        self.check("https://localhost.:443/", "localhost.", 443, "localhost.", "/")

    def test_zones(self) -> None:
        """The zone of an address is connected to and not sent (RFC 6874); it may follow %25."""
        self.check("https://[fe80::1%eth0]/x", "fe80::1%eth0", 443, "[fe80::1]", "/x")
        self.check("https://[fe80::1%25eth0]:8443/", "fe80::1%eth0", 8443, "[fe80::1]:8443", "/")
        self.check("https://[fe80::1%25]/", "fe80::1%25", 443, "[fe80::1]", "/")
        for zone in ("", " ", "a b", "ä", "\0", "a%b", "a" * 65):
            self.assertRaises(RequestInvalid, Target.parse, f"https://[fe80::1%{zone}]/")

    def test_path_is_left_alone(self) -> None:
        """Dot segments, empty segments and percent escapes are sent as typed; a bare question mark stays."""
        self.check("https://a/x/../y//%2e?", "a", 443, "a", "/x/../y//%2e?")

    def test_beyond_ascii(self) -> None:
        """Other characters are percent-encoded as UTF-8, names become A-labels."""
        self.check(
            "https://bücher.example/ä?ö", "xn--bcher-kva.example", 443, "xn--bcher-kva.example", "/%C3%A4?%C3%B6"
        )

    def test_server_name(self) -> None:
        """An IP address is never sent as server name."""
        self.assertEqual(Target.parse("https://api.test/").server_name, "api.test")
        self.assertIsNone(Target.parse("https://127.0.0.1/").server_name)
        self.assertIsNone(Target.parse("https://[::1]/").server_name)
        self.assertEqual(Target.parse("https://[::1]:8/").server, "[::1]:8")

    def test_refused(self) -> None:
        """Unsupported URLs are refused."""
        for url in (
            "",
            "api.test",
            "//api.test",
            "https:/api.test",
            "https://",
            "https:///x",
            "https://:443/",
            "https://a:65536/",
            "https://a:0/",
            "https://a:x/",
            "https://a:٣/",
            "https://[::1/",
            "https://[::1]x/",
            "https://[1.2.3.4]/",
            "https://1.2.3/",
            "https://a..b/",
            "https://-a/",
            "https://a b/",
            "https://a/ b",
            "https://a/\r\nx",
            "https://a/\x7f",
            "https://user@a/",
            "https://a\\b/",
            "file:///etc/passwd",
            "mqtt://a:1883",
            f"https://{'a' * 64}/",
        ):
            self.assertRaises(RequestInvalid, Target.parse, url)

    @given(st.binary(min_size=32, max_size=32), st.sampled_from([receipt_path, statement_path]))
    def test_printed_identifiers(self, octets: bytes, path_of: Callable[[str], str]) -> None:
        """An identifier in a path of the notary may be pasted from a report, a header or a claim."""
        identifier = b64u_encode(octets)
        for text in (identifier, printed_id(identifier), printed_id(identifier).rstrip("=")):
            self.assertEqual(Target.parse(f"https://api.test{path_of(text)}#x").path, path_of(identifier))

    def test_other_paths_are_left_alone(self) -> None:
        """A path without a complete identifier of the notary is sent as it was typed."""
        printed = printed_id(b64u_encode(b"\xff" * 32))
        for path in (
            f"{receipt_path(printed)}?x",
            receipt_path(printed[:-2]),
            receipt_path(f"by-request/{printed}"),
            f"/receipts/{printed}",
            statement_path("current"),
        ):
            self.assertEqual(Target.parse(f"https://api.test{path}").path, path)

    @given(st.text(max_size=30))
    def test_any_text(self, text: str) -> None:
        """Any text is refused as usage, or its target is safe to send."""
        for url in (text, f"https://{text}", f"https://a/{text}"):
            try:
                target = Target.parse(url)
            except RequestInvalid:
                continue
            for part in (target.path, target.authority):
                self.assertTrue(part.isascii() and part.isprintable() and " " not in part)
            self.assertTrue(target.path.startswith("/"))
            self.assertNotIn("#", target.path)
            self.assertTrue(0 < target.port < 65536)


class BrokerTargetTests(SynchronousTestCase):
    """URLs of brokers."""

    def test_parts(self) -> None:
        """Scheme, host, port and credentials; those are percent-decoded."""
        for url, expected in (
            ("mqtt://a.test:1883", BrokerTarget(False, "a.test", 1883)),
            ("MQTTS://a.test:8883/", BrokerTarget(True, "a.test", 8883)),
            ("mqtts://[::1]:1", BrokerTarget(True, "::1", 1)),
            ("mqtt://u@a:1", BrokerTarget(False, "a", 1, "u")),
            ("mqtt://u:@a:1", BrokerTarget(False, "a", 1, "u", b"")),
            ("mqtt://%C3%BC:p%2Fw%FF@a:1", BrokerTarget(False, "a", 1, "ü", b"p/w\xff")),
            ("mqtt://u:p@q:r@a:1", BrokerTarget(False, "a", 1, "u", b"p@q:r")),
        ):
            self.assertEqual(expected, BrokerTarget.parse(url))
        self.assertEqual("[::1]:1", BrokerTarget.parse("mqtt://[::1]:1").server)

    def test_no_port(self) -> None:
        """A URL without a port, with an empty or an impossible one is refused."""
        for url in ("mqtt://a", "mqtt://a:", "mqtts://[::1]", "mqtts://u:p@a", "mqtt://a:0", "mqtt://a:65536"):
            self.assertRaises(RequestInvalid, BrokerTarget.parse, url)
        error = self.assertRaises(RequestInvalid, BrokerTarget.parse, "mqtt://a")
        self.assertEqual("mqtt://a names no port", str(error))

    def test_secrets_are_not_shown(self) -> None:
        """No error and no representation has a password, however the URL is mistaken."""
        for url in (
            "mqtt://u:secret@a",
            "mqtt://u:secret/x@a:1",
            "mqtt://u:x?secret@a:1",
            "mqtt://u:x#secret@a:1",
            "mqtt://u:secret@a:1/topic",
            "mqtt://u:secret@:1",
            "mqtt://u:secret@[::1",
            "mqtt://u:secret@a:x",
            "mqtt://%FF:secret@a:1",
        ):
            error = self.assertRaises(RequestInvalid, BrokerTarget.parse, url)
            self.assertNotIn("secret", f"{error} {error.hint}")
        self.assertNotIn("secret", repr(BrokerTarget.parse("mqtt://u:secret@a:1")))
