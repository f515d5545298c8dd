"""PROXY protocol headers, version 2."""

from __future__ import annotations

import ipaddress
import struct

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.proxyprotocol import (
    DEFAULT_MAX_LENGTH,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderInvalid,
    ProxyHeaderParser,
)


def header(command: int = 0x21, family: int = 0x11, block: bytes = b"", *, length: int | None = None) -> bytes:
    """A header as a load balancer writes it."""
    return SIGNATURE + struct.pack("!BBH", command, family, len(block) if length is None else length) + block


def block(source: str, port: int, tlv: bytes = b"") -> bytes:
    """The addresses of a TCP connection."""
    packed = ipaddress.ip_address(source).packed
    return packed + packed + struct.pack("!HH", port, 443) + tlv


def tlv_of(value: bytes) -> bytes:
    """A TLV, or none for nothing."""
    return b"\x04" + struct.pack("!H", len(value)) + value if value else b""


class ProxyHeaderTests(SynchronousTestCase):
    """Valid and invalid headers."""

    def check_refused(self, data: bytes, words: str) -> None:
        """Check that the header is refused with this defect."""
        error = self.assertRaises(ProxyHeaderInvalid, ProxyHeaderParser().feed, data)
        self.assertIn(words, str(error))

    def test_tcp4(self) -> None:
        """The client's address and the bytes after the header are returned."""
        found = ProxyHeaderParser().feed(header(block=block("192.0.2.7", 4711)) + b"rest")
        self.assertEqual(found, (ProxyHeader(("192.0.2.7", 4711)), b"rest"))

    def test_tcp6_with_tlvs(self) -> None:
        """TLVs after the addresses are skipped."""
        found = ProxyHeaderParser().feed(header(family=0x21, block=block("2001:db8::7", 1, b"\x20\x00\x01x")))
        self.assertEqual(found, (ProxyHeader(("2001:db8::7", 1)), b""))

    def test_mapped_ipv4(self) -> None:
        """A client with an IPv4-mapped IPv6 address in the header has its IPv4 address."""
        found = ProxyHeaderParser().feed(header(family=0x21, block=block("::ffff:192.0.2.7", 4711)))
        self.assertEqual(found, (ProxyHeader(("192.0.2.7", 4711)), b""))

    def test_local_and_other_families(self) -> None:
        """A health check of the load balancer, and addresses that are no TCP, name no client."""
        for data in (header(0x20, 0x00), header(0x20, 0x11, block("192.0.2.7", 1)), header(0x21, 0x31, bytes(216))):
            self.assertEqual(ProxyHeaderParser().feed(data), (ProxyHeader(None), b""))

    def test_not_version_2(self) -> None:
        """Version 1, TLS without a header, unknown versions and commands are refused at their first wrong octet."""
        self.check_refused(b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n", "signature")
        self.check_refused(b"\x16\x03\x01", "signature")
        self.check_refused(header(0x11), "version or command")
        self.check_refused(header(0x22), "version or command")
        self.check_refused(header(block=b"short"), "cut short")

    def test_families(self) -> None:
        """Every family that is not defined is refused; the others name a client where they are TCP."""
        for family in range(256):
            data = header(0x21, family, bytes(216))
            if family >> 4 > 3 or family & 15 > 2:
                self.check_refused(data, f"address family 0x{family:02x} is unknown")
                # A health check says nothing by its family.
                self.assertEqual(ProxyHeaderParser().feed(header(0x20, family)), (ProxyHeader(None), b""))
        for family, size in ((0x11, 12), (0x12, 12), (0x21, 36), (0x22, 36), (0x31, 216), (0x32, 216)):
            self.check_refused(header(0x21, family, bytes(size - 1)), "cut short")
            found = ProxyHeaderParser().feed(header(0x21, family, bytes(size)))
            assert found is not None
            self.assertEqual(found[0].source is not None, family in (0x11, 0x21))
        for family in (0x00, 0x01, 0x02, 0x10, 0x20, 0x30):
            self.assertEqual(ProxyHeaderParser().feed(header(0x21, family, b"\xff")), (ProxyHeader(None), b""))

    def test_tlvs(self) -> None:
        """TLVs fill the rest of the header; one that is cut short or reaches beyond it is refused."""
        for tlvs, words in (
            (b"\x04\x00\x00", None),
            (b"\x04\x00\x01a\x05\x00\x02ab", None),
            (b"\x04", "a TLV is cut short"),
            (b"\x04\x00", "a TLV is cut short"),
            (b"\x04\x00\x01", "a TLV reaches beyond"),
            (b"\x04\x00\x01a\x05\xff\xffa", "a TLV reaches beyond"),
        ):
            data = header(block=block("192.0.2.7", 1, tlvs))
            if words is None:
                self.assertIsNotNone(ProxyHeaderParser().feed(data))
            else:
                self.check_refused(data + b"\x00" * 70_000, words)

    def test_every_octet_of_the_signature(self) -> None:
        """One wrong octet in front of or inside the signature is refused when it comes, not later."""
        whole = header(block=block("192.0.2.7", 1))
        for at in range(12):
            self.check_refused(whole[:at] + bytes([whole[at] ^ 1]), "signature")
        for garbage in (b"\r\n", b"\x00", b" ", whole[:1]):
            self.check_refused(garbage + whole, "signature")

    def test_length(self) -> None:
        """The longest accepted header passes, one octet more is refused before it is here."""
        whole = header(0x20, 0, bytes(DEFAULT_MAX_LENGTH))
        self.assertEqual(ProxyHeaderParser().feed(whole), (ProxyHeader(None), b""))
        self.check_refused(header(0x20, 0, length=DEFAULT_MAX_LENGTH + 1), "longer than")

    @given(
        st.ip_addresses(), st.integers(0, 65535), st.binary(max_size=40).map(tlv_of), st.binary(max_size=40), st.data()
    )
    def test_any_split(
        self,
        source: ipaddress.IPv4Address | ipaddress.IPv6Address,
        port: int,
        tlv: bytes,
        rest: bytes,
        data: st.DataObject,
    ) -> None:
        """However the octets come, the same is read, and not before the header is whole."""
        family = 0x11 if source.version == 4 else 0x21
        head = header(family=family, block=block(str(source), port, tlv))
        whole = head + rest
        cut = data.draw(st.integers(0, len(whole)))
        parser = ProxyHeaderParser()
        found = parser.feed(whole[:cut])
        self.assertEqual(found is None, cut < len(head))
        if found is None:
            found = parser.feed(whole[cut:])
            read = getattr(source, "ipv4_mapped", None) or source
            self.assertEqual(found, (ProxyHeader((str(read), port)), rest))

    @given(st.binary(max_size=64))
    def test_any_octets(self, data: bytes) -> None:
        """Anything gives a header, nothing yet, or the typed error."""
        try:
            found = ProxyHeaderParser().feed(data)
        except ProxyHeaderInvalid:
            return
        self.assertTrue(found is None or isinstance(found[0], ProxyHeader))
