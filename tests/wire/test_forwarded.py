"""The ``Forwarded`` field against the grammar of RFC 7239."""

from __future__ import annotations

import ipaddress
import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.forwarded import UNKNOWN, ForwardedHop, node, obfuscated
from svc.wire.http1 import MessageRefused, RequestParser

# RFC 7239 section 4, with token and quoted-string of RFC 9110 section 5.6; a value has no white space around "=".
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
PAIR = rb"(%b)=(%b|%b)" % (TOKEN, TOKEN, QUOTED)
ELEMENT = re.compile(rb"%b(?:;%b)*\Z" % (PAIR, PAIR))
# Section 6: node = nodename [ ":" node-port ].
OBFUSCATED = rb"_[A-Za-z0-9._\-]+"
NODE = re.compile(
    rb"(?:(?P<v4>[0-9.]+)|\[(?P<v6>[0-9A-Fa-f:.]+)\]|unknown|%b)(?::(?P<port>[0-9]{1,5}|%b))?\Z"
    % (OBFUSCATED, OBFUSCATED)
)
PORTS = st.integers(0, 65535)
#: What may stand in Host; the parser decides.
HOSTS = st.one_of(
    st.text("abXY09._~!$&'()*+,;=%-:", min_size=1, max_size=12).map(str.encode),
    st.ip_addresses(v=6).map(lambda address: b"[%b]:8443" % str(address).encode()),
    st.sampled_from([b"api.example", b"api.example:8443", b"[::1]", b"a,b;c=d", b"a%2Fb", b"(a)'b'"]),
)


def pairs(value: bytes) -> dict[bytes, bytes]:
    """Read one element as the grammar says; quoted values without their marks and backslashes."""
    assert ELEMENT.match(value), value
    found = re.findall(PAIR, value)
    texts = {name.lower(): re.sub(rb"\\(.)", rb"\1", text[1:-1]) if text[:1] == b'"' else text for name, text in found}
    assert len(texts) == len(found), "a parameter must not occur twice"
    return texts


def is_valid_host(host: bytes) -> bool:
    """Whether the proxy accepts a request with this Host."""
    [event, *_rest] = RequestParser().feed(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
    return not isinstance(event, MessageRefused)


class NodeTests(SynchronousTestCase):
    """Node identifiers (RFC 7239 section 6)."""

    @given(st.ip_addresses(), st.none() | PORTS)
    def test_addresses(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None) -> None:
        """Address and port are read back; IPv6 is in brackets."""
        found = NODE.match(node(str(address), port))
        assert found is not None
        text = found["v4"] if address.version == 4 else found["v6"]
        self.assertEqual(ipaddress.ip_address(text.decode()), address)
        self.assertEqual(found["port"], None if port is None else str(port).encode())

    def test_zone(self) -> None:
        """The zone of a link-local address is left out: the syntax has none."""
        self.assertEqual(node("fe80::1%eth0", 1), b"[fe80::1]:1")

    def test_no_address(self) -> None:
        """Without an address, as on a socket, the node is unknown."""
        self.assertEqual((node(None, None), node("", 1), UNKNOWN), (b"unknown", b"unknown", b"unknown"))

    @given(st.text("abXY09._-", max_size=62).map("w".__add__))
    def test_names(self, name: str) -> None:
        """Every name of a listener gives an obfuscated identifier, which needs no quotation marks."""
        self.assertRegex(obfuscated(name), rb"\A" + OBFUSCATED + rb"\Z")
        self.assertIn(b"by=_%b;" % name.encode(), ForwardedHop(UNKNOWN, obfuscated(name), b"https").value(b"a"))


class ElementTests(SynchronousTestCase):
    """One element (RFC 7239 section 4)."""

    def test_examples(self) -> None:
        """What is a token stands bare, the rest in quotation marks."""
        hop = ForwardedHop(node("192.0.2.43", 47011), obfuscated("web"), b"https")
        self.assertEqual(hop.value(b"api.example"), b'for="192.0.2.43:47011";by=_web;host=api.example;proto=https')
        hop = ForwardedHop(node("2001:db8:cafe::17", 4711), obfuscated("web"), b"https")
        self.assertEqual(
            hop.value(b"api.example:8443"),
            b'for="[2001:db8:cafe::17]:4711";by=_web;host="api.example:8443";proto=https',
        )
        self.assertEqual(
            ForwardedHop(UNKNOWN, obfuscated("web"), b"https").value(b"a"), b"for=unknown;by=_web;host=a;proto=https"
        )

    @given(st.none() | st.ip_addresses().map(str), PORTS, HOSTS.filter(is_valid_host))
    def test_any_request(self, address: str | None, port: int, host: bytes) -> None:
        """Whatever Host the proxy accepts, the value follows the grammar and every parameter is read back."""
        client = node(address, port)
        found = pairs(ForwardedHop(client, b"_web", b"https").value(host))
        self.assertEqual(found, {b"for": client, b"by": b"_web", b"host": host, b"proto": b"https"})
        self.assertIsNotNone(NODE.match(found[b"for"]))
