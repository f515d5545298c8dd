"""
The PROXY protocol, version 2: what a load balancer says about a connection before the connection speaks.

A codec without I/O. Owns the binary header; version 1, which is text without a length, is refused. TLVs are skipped.
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
#: Addresses take at most 216 octets; the rest is for TLVs, of which load balancers send a few hundred octets.
DEFAULT_MAX_LENGTH: Final = 4096

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21


class ProxyHeaderInvalid(RemoteProtocolError):
    """the connection does not begin with a PROXY protocol version 2 header: {defect}"""

    reason = "proxy_header_invalid"
    hint = "does the load balancer in front send version 2, and does nobody else connect here?"


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """
    What the header says.

    Args:
        source: address and port of the client; None where the load balancer speaks for itself or names no TCP address.
    """

    source: tuple[str, int] | None


class ProxyHeaderParser:
    """
    Reads one header, however it is split.

    Args:
        max_length: octets behind the fixed part that are accepted.
    """

    def __init__(self, max_length: int = DEFAULT_MAX_LENGTH) -> None:
        self._max_length = max_length
        self._buffer = b""

    def feed(self, data: bytes) -> tuple[ProxyHeader, bytes] | None:
        """
        Read more octets.

        Args:
            data: what came.

        Returns:
            The header and the octets behind it, or None while it is not complete.

        Raises:
            ProxyHeaderInvalid: this is no such header, or it is too long.
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
    if family == _TCP4:
        size, ports = 4, 8
    elif family == _TCP6:
        size, ports = 16, 32
    else:
        return None
    if len(block) < ports + 4:
        raise ProxyHeaderInvalid(defect="its addresses are cut short")
    (port,) = struct.unpack_from("!H", block, ports)
    return str(ipaddress.ip_address(block[:size])), port
