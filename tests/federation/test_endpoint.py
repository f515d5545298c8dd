"""Endpoints: a host, and perhaps a port."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.federation.endpoint import MAX_NAME, Endpoint

LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,10}[a-z0-9_])?", fullmatch=True)
HOSTS = (
    st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(lambda name: not name.rpartition(".")[2].isdigit())
    | st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(lambda found: found.compressed).filter(lambda text: "%" not in text)
)
ENDPOINTS = st.builds(Endpoint, HOSTS, st.none() | st.integers(1, 65535))


class EndpointTests(SynchronousTestCase):
    """Reading and writing."""

    def test_forms(self) -> None:
        """What is read, and how it is written."""
        longest = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
        self.assertEqual(len(longest), MAX_NAME)
        for text, host, port in (
            ("m2m.example.org", "m2m.example.org", None),
            ("m2m.example.org:31443", "m2m.example.org", 31443),
            ("localhost:1", "localhost", 1),
            ("192.0.2.1:65535", "192.0.2.1", 65535),
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:443", "2001:db8::1", 443),
            (longest, longest, None),
        ):
            found = Endpoint.parse(text)
            self.assertEqual((found.host, found.port, str(found)), (host, port, text))
        self.assertEqual(str(Endpoint.parse("M2M.Example.ORG")), "m2m.example.org")
        self.assertEqual(str(Endpoint.parse("[2001:DB8:0::1]")), "[2001:db8::1]")

    def test_refused(self) -> None:
        """What is no endpoint."""
        for text in (
            *("", ":443", "a:", "a:0", "a:65536", "a:+1", "a:0443", "a b", "a..b", "a.", "-a", "a-", "ü", "a@b", "a/b"),
            *("https://a", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", "::1", "[::1", "::1]", "[]", "[1.2.3.4]"),
            *("[fe80::1%1]", "[::1]443", "[::1]x:443", "a" * 64, "a." * 127 + "a", "a\n", "a:1\n", "a:\u0661"),
        ):
            self.assertRaises(ValueError, Endpoint.parse, text)

    @given(ENDPOINTS)
    def test_round_trip(self, endpoint: Endpoint) -> None:
        """What is written is read back to an equal endpoint."""
        self.assertEqual(Endpoint.parse(str(endpoint)), endpoint)

    @given(st.text(max_size=40) | st.text("a1.:[]-", max_size=20))
    def test_any_text(self, text: str) -> None:
        """Any text is read, or refused with ValueError."""
        try:
            found = Endpoint.parse(text)
        except ValueError:
            return
        self.assertEqual(Endpoint.parse(str(found)), found)
