"""Tests of ``svc.transport.addresses``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.transport.addresses import TcpAddress, UnixAddress, parse_address
from svc.transport.errors import AddressInvalid


class ParseAddressTests(SynchronousTestCase):
    """Tests of ``parse_address``."""

    def test_accepted_forms(self) -> None:
        """Every documented form gives its value."""
        for text, expected in {
            "127.0.0.1:8443": TcpAddress("127.0.0.1", 8443),
            "tcp:127.0.0.1:8443": TcpAddress("127.0.0.1", 8443),
            "api.example.org:443": TcpAddress("api.example.org", 443),
            "tcp:api.example.org:443": TcpAddress("api.example.org", 443),
            "pay.bank:0": TcpAddress("pay.bank", 0),
            "web_1:65535": TcpAddress("web_1", 65535),
            "[::1]:8443": TcpAddress("::1", 8443),
            "tcp:[2001:db8::1]:1": TcpAddress("2001:db8::1", 1),
            "[fe80::1%eth0.7]:1": TcpAddress("fe80::1%eth0.7", 1),
            f"[fe80::1%{'a' * 64}]:1": TcpAddress(f"fe80::1%{'a' * 64}", 1),
            ":9092": TcpAddress("", 9092),
            "tcp:8080": TcpAddress("tcp", 8080),
            "unix:///run/svc/pq.sock": UnixAddress("/run/svc/pq.sock"),
            "unix:/run/svc/pq.sock": UnixAddress("/run/svc/pq.sock"),
        }.items():
            with self.subTest(text):
                self.assertEqual(parse_address(text), expected)

    def test_refused_forms_name_the_expected_ones(self) -> None:
        """Everything else is refused with the text and what was expected."""
        for text in (
            "",
            "host",
            "host:",
            "host:port",
            "host:65536",
            "host:-1",
            "host:+80",
            "host:８０",
            "host: 80",
            "::1:80",
            "[::1]",
            "[127.0.0.1]:80",
            "[x]:80",
            "[fe80::1%]:80",
            "[fe80::1%\0]:80",
            "[fe80::1%ä]:80",
            f"[fe80::1%{'a' * 65}]:1",
            "ho st:80",
            "host/path:80",
            "http://host:80",
            "256.1.1.1:80",
            "1.2.3:80",
            "-a:80",
            "a..b:80",
            "unix:relative",
            "unix://host/path",
            "unix:///" + "x" * 107,
            "unix:///a\0b",
            "x" * 64 + ":80",
        ):
            with self.subTest(text):
                error = self.assertRaises(AddressInvalid, parse_address, text)
                self.assertEqual(error.reason, "address_invalid")
                self.assertIn("expected", str(error))

    def test_server_name_is_never_an_ip_literal(self) -> None:
        """RFC 6066, section 3: literal IPv4 and IPv6 addresses are not permitted in the name."""
        self.assertEqual(TcpAddress("api.example.org", 1).server_name, "api.example.org")
        for host in ("127.0.0.1", "::1", ""):
            self.assertIsNone(TcpAddress(host, 1).server_name)

    def test_written_form_parses_again(self) -> None:
        """str() of an address is an accepted form of the same address."""
        for address in (TcpAddress("h", 1), TcpAddress("::1", 2), TcpAddress("", 3), UnixAddress("/a b")):
            self.assertEqual(parse_address(str(address)), address)

    @given(st.text(max_size=40))
    def test_any_text_is_an_address_or_a_typed_error(self, text: str) -> None:
        """No text raises anything else, and what is accepted survives being written."""
        try:
            address = parse_address(text)
        except AddressInvalid:
            return
        self.assertEqual(parse_address(str(address)), address)
