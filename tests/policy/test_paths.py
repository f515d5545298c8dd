"""The one reading of a path, and patterns of paths and hosts."""

from __future__ import annotations

from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.policy.paths import HostPattern, PathPattern, PatternMalformed, RequestAmbiguous, plain_host, plain_path


class PlainPathTests(SynchronousTestCase):
    """Which request paths have one reading."""

    def test_plain(self) -> None:
        """Paths that every application reads alike, with percent-encoded octets of UTF-8 decoded."""
        for raw, path in (
            (b"/", "/"),
            (b"", "/"),
            (b"*", "*"),
            (b"/a/b", "/a/b"),
            (b"/a/", "/a/"),
            (b"/a%41", "/aA"),
            (b"/%7Euser", "/~user"),
            (b"/caf%C3%A9", "/caf\u00e9"),
            (b"/.well-known/x", "/.well-known/x"),
            (b"/a/.hidden", "/a/.hidden"),
            (b"/a/...", "/a/..."),
            (b"/a%20b", "/a b"),
        ):
            self.assertEqual(path, plain_path(raw), raw)

    def test_ambiguous(self) -> None:
        """Paths that applications read differently are refused, with what was found."""
        for raw, defect in (
            (b"//a", "a doubled slash"),
            (b"/a//b", "a doubled slash"),
            (b"/a%2Fb", "an encoded slash"),
            (b"/a%2fb", "an encoded slash"),
            (b"/a%5cb", "a backslash"),
            (b"/a\\b", "a backslash"),
            (b"/a/../b", "a dot segment"),
            (b"/a/%2e%2E/b", "a dot segment"),
            (b"/a/.", "a dot segment"),
            (b"/./a", "a dot segment"),
            (b"/a;b=c", "a parameter (;)"),
            (b"/a%3bb", "a parameter (;)"),
            (b"/a%252f", "an encoded percent sign"),
            (b"/a%00", "a control character"),
            (b"/a%0d%0a", "a control character"),
            (b"/a%3fb", "an encoded question mark"),
            (b"/a%23", "a number sign"),
            (b"/a%ff", "octets that are not UTF-8"),
            (b"/a%", "an incomplete percent-encoding"),
            (b"/a%4", "an incomplete percent-encoding"),
            (b"/a%zz", "an incomplete percent-encoding"),
            (b"a", "it does not begin with a slash"),
            (b"http://x/a", "it does not begin with a slash"),
        ):
            self.assertEqual(defect, self.assertRaises(RequestAmbiguous, plain_path, raw).defect, raw)

    @given(st.binary(max_size=40).map(lambda octets: b"/" + octets))
    def test_any_octets(self, raw: bytes) -> None:
        """Any octets are refused or read as a path that is plain, in its one spelling."""
        try:
            path = plain_path(raw)
        except RequestAmbiguous:
            return
        self.assertEqual(path, plain_path(quote(path, safe="/").encode()))
        self.assertEqual(path, unquote(raw.decode("latin-1"), encoding="latin-1").encode("latin-1").decode())
        self.assertNotIn("..", path.split("/"))


class PathPatternTests(SynchronousTestCase):
    """What patterns of paths match."""

    def test_matches(self) -> None:
        """One path, all below one, templates."""
        for text, path, matches in (
            ("/a", "/a", True),
            ("/a", "/a/", False),
            ("/a", "/A", False),
            ("/a/*", "/a/", True),
            ("/a/*", "/a/b/c", True),
            ("/a/*", "/a", False),
            ("/a/*", "/ab", False),
            ("/*", "/", True),
            ("/*", "*", False),
            ("/u/{id}", "/u/7", True),
            ("/u/{id}", "/u/", False),
            ("/u/{id}", "/u/7/8", False),
            ("/u/{id}/o/{n}", "/u/7/o/8", True),
            ("/{id}", "/x", True),
            ("/caf\u00e9", "/caf\u00e9", True),
        ):
            self.assertEqual(matches, PathPattern.parse(text).matches(path), (text, path))

    def test_malformed(self) -> None:
        """A pattern that could be meant otherwise is refused."""
        for text in ("", "a", "*", "/a*", "/a/*/b", "/a/**", "/a?b", "/{a", "/a{b}", "/{}", "/{a}/*", "/a//b", "/../a",
                     "/a%20b", "/a;b", "/a#", "/a\\b", "/" + "a" * 2048, "/\ud800"):  # fmt: skip
            self.assertRaises(PatternMalformed, PathPattern.parse, text)


class HostPatternTests(SynchronousTestCase):
    """Hosts without port, in lower case."""

    def test_plain_host(self) -> None:
        """Port, case and the dot of the root are no part of a host."""
        for authority, host in (
            ("Shop.Example:8443", "shop.example"),
            ("shop.example.", "shop.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.:80", "127.0.0.1"),
            ("255.249.199.99", "255.249.199.99"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[::FFFF:127.0.0.1]", "[::ffff:7f00:1]"),
            ("a_b.x-1.example", "a_b.x-1.example"),
            ("1.example", "1.example"),
            ("0x7f.example", "0x7f.example"),
        ):
            self.assertEqual(host, plain_host(authority))

    def test_ambiguous(self) -> None:
        """Hosts that readers take for another are refused, with what was found."""
        name = "an empty label, or a character that is in no name"
        address = "a number that is no IPv4 address of four decimal numbers"
        for authority, defect in (
            ("%61dmin.example.org", "a percent-encoding"),
            ("admin.example.org%00", "a percent-encoding"),
            ("[fe80::1%25eth0]", "a percent-encoding"),
            ("admin.example.org,x", name),
            ("x;admin.example.org", name),
            ("admin..example.org", name),
            ("admin.example.org..", name),
            (".example.org", name),
            (".", name),
            ("", "it is missing"),
            ("127.1", address),
            ("2130706433", address),
            ("0177.0.0.1", address),
            ("127.0.0.01", address),
            ("127.0.0.256", address),
            ("127.0.0.0.1", address),
            ("0x7F.0.0.0x1:80", address),
            ("x.0x", address),
            ("127.0.0.1..", name),
            ("[::1::]", "an IPv6 address that is none"),
        ):
            error = self.assertRaises(RequestAmbiguous, plain_host, authority)
            self.assertEqual(("host_ambiguous", defect), (error.reason, error.defect), authority)

    @given(st.text("aA0.x1:[]%-_f", max_size=20))
    def test_any_text(self, authority: str) -> None:
        """Any text is refused or has one reading, which is its own."""
        try:
            host = plain_host(authority)
        except RequestAmbiguous:
            return
        self.assertEqual(host, plain_host(host + ":80"))
        self.assertTrue(HostPattern(host).matches(host))

    def test_matches(self) -> None:
        """One host, or all names below one."""
        for text, host, matches in (
            ("shop.example", "shop.example", True),
            ("*.example", "shop.example", True),
            ("*.example", "a.b.example", True),
            ("*.example", "example", False),
            ("*.example", ".example", False),
            ("*.example", "badexample", False),
            ("[2001:db8::1]", "[2001:db8::1]", True),
            ("[2001:db8:0:0::1]", "[2001:db8::1]", True),
            ("127.0.0.1", "127.0.0.1", True),
        ):
            self.assertEqual(matches, HostPattern.parse(text).matches(host), (text, host))

    def test_malformed(self) -> None:
        """Upper case, ports and other wildcards are refused."""
        for text in ("", "Shop.example", "shop.example:80", "*", "a.*.b", "*example", "a..b", "-a", "a-", "a/b",
                     "127.1", "*.1", "[::1::]", "*.[::1]"):  # fmt: skip
            self.assertRaises(PatternMalformed, HostPattern.parse, text)
