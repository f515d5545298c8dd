"""
The PROXY protocol, version 2: the client address that a load balancer sends in front of a connection.

Version 1, which is text without a length, is refused. TLVs are skipped, but they must fill the header exactly.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from svc.wire.errors import RemoteProtocolError

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: The fixed part: signature, version and command, family, length.
FIXED: Final = 16
#: Addresses have at most 216 octets; the rest is for TLVs, of which load balancers send a few hundred octets.
DEFAULT_MAX_LENGTH: Final = 4096

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
#: Octets of the addresses and ports of each defined family: unspecified, IPv4, IPv6, Unix.
_ADDRESS_SIZES: Final = (0, 12, 36, 216)
_MAX_TRANSPORT: Final = 2
_TLV_HEADER: Final = 3


class ProxyHeaderInvalid(RemoteProtocolError):
    """the connection does not begin with a PROXY protocol version 2 header: {defect}"""

    reason = "proxy_header_invalid"
    hint = "let the load balancer send version 2, and let no other client connect to this address"


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """
    A complete header.

    Args:
        source: address and port of the client; None for a connection of the load balancer itself and for other
            families than TCP.
    """

    source: tuple[str, int] | None


class ProxyHeaderParser:
    """
    Reads the header of one connection, however it is split into reads.

    Args:
        max_length: octets that may follow the fixed part.
    """

    def __init__(self, max_length: int = DEFAULT_MAX_LENGTH) -> None:
        self._max_length = max_length
        self._buffer = b""

    def feed(self, data: bytes) -> tuple[ProxyHeader, bytes] | None:
        """
        Read more bytes.

        Args:
            data: what was received.

        Returns:
            The header and the bytes that follow it, or None while it is incomplete.

        Raises:
            ProxyHeaderInvalid: this is not such a header, or it is too long.
        """
        self._buffer += data
        head = self._buffer
        if not head.startswith(SIGNATURE[: len(head)]):
            raise ProxyHeaderInvalid(defect="it has another signature")
        if len(head) < FIXED:
            return None
        command, family, length = struct.unpack_from("!BBH", head, len(SIGNATURE))
        if command not in (_LOCAL, _PROXY):
            raise ProxyHeaderInvalid(defect="its version or command is unknown")
        if length > self._max_length:
            raise ProxyHeaderInvalid(defect=f"it is longer than {self._max_length} octets")
        end = FIXED + length
        if len(head) < end:
            return None
        source = _source(family, head[FIXED:end]) if command == _PROXY else None
        return ProxyHeader(source), head[end:]


def _source(family: int, block: bytes) -> tuple[str, int] | None:
    """Return the client; None for defined families other than TCP, an error for undefined ones."""
    if family >> 4 >= len(_ADDRESS_SIZES) or family & 0x0F > _MAX_TRANSPORT:
        raise ProxyHeaderInvalid(defect=f"its address family 0x{family:02x} is unknown")
    if not family & 0xF0 or not family & 0x0F:
        # The content of such a header is undefined and must be skipped.
        return None
    size = _ADDRESS_SIZES[family >> 4]
    if len(block) < size:
        raise ProxyHeaderInvalid(defect="its addresses are cut short")
    _check_tlvs(block, size)
    if family not in (_TCP4, _TCP6):
        return None
    ports = size - 4
    (port,) = struct.unpack_from("!H", block, ports)
    address = ipaddress.ip_address(block[: ports // 2])
    # A load balancer whose socket takes both families names its IPv4 clients like this (RFC 4291, section 2.5.5.2).
    return str(getattr(address, "ipv4_mapped", None) or address), port


def _check_tlvs(block: bytes, begin: int) -> None:
    while begin < len(block):
        if begin + _TLV_HEADER > len(block):
            raise ProxyHeaderInvalid(defect="a TLV is cut short")
        (length,) = struct.unpack_from("!H", block, begin + 1)
        begin += _TLV_HEADER + length
    if begin > len(block):
        raise ProxyHeaderInvalid(defect="a TLV reaches beyond the header")
