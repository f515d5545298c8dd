"""
Addresses in configuration and arguments, parsed into values.

Names are not resolved here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from svc.transport.errors import AddressInvalid

EXPECTED: Final = "host:port, [ipv6]:port, tcp:host:port or unix:///absolute/path"
_PORT: Final = re.compile(r"[0-9]{1,5}\Z")
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")
#: Names of interfaces that a resolver takes as they are; ``ipaddress`` accepts any characters.
_ZONE: Final = re.compile(r"[A-Za-z0-9._~@:+-]{1,64}\Z")
_MAX_NAME: Final = 253
_MAX_UNIX_PATH: Final = 107


@dataclass(frozen=True)
class TcpAddress:
    """
    A TCP host and port.

    Attributes:
        host: a DNS name or an IP literal without brackets; empty means every interface (listening only).
        port: 0 to 65535; 0 lets the system choose (listening only).
    """

    host: str
    port: int

    @property
    def is_ip(self) -> bool:
        """Whether ``host`` is an IP literal."""
        return is_ip_literal(self.host)

    @property
    def server_name(self) -> str | None:
        """The name for TLS server name indication, which is never an IP literal (RFC 6066, section 3)."""
        return None if not self.host or self.is_ip else self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class UnixAddress:
    """A Unix domain socket; ``path`` is absolute."""

    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """
    Parse ``host:port``, ``[ipv6]:port``, ``:port`` (every interface), ``tcp:host:port`` or ``unix:///path``.

    Raises:
        AddressInvalid: with the text and the accepted forms.
    """
    if text.startswith("unix:"):
        return _parse_unix(text)
    rest = text.removeprefix("tcp:") if text.count(":") > 1 else text
    host, colon, port_text = rest.rpartition(":")
    if not colon or not _PORT.match(port_text) or int(port_text) > 65535:
        raise AddressInvalid(text=text, expected=EXPECTED)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not is_ip_literal(host) or ":" not in host:
            raise AddressInvalid(text=text, expected=EXPECTED)
    elif not _is_host(host):
        raise AddressInvalid(text=text, expected=EXPECTED)
    return TcpAddress(host, int(port_text))


def _parse_unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = path[2:]
    if not path.startswith("/") or "\0" in path or len(path.encode("utf-8", "surrogateescape")) > _MAX_UNIX_PATH:
        raise AddressInvalid(text=text, expected=f"unix:///absolute/path of at most {_MAX_UNIX_PATH} octets")
    return UnixAddress(path)


def is_ip_literal(host: str) -> bool:
    """Whether a host, without brackets, is an IPv4 or IPv6 address; that of a link may have a zone (RFC 4007)."""
    address, percent, zone = host.partition("%")
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return False
    return not percent or (version == 6 and _ZONE.match(zone) is not None)


def _is_host(host: str) -> bool:
    if not host:
        return True
    if ":" in host or len(host) > _MAX_NAME:
        return False
    labels = host.removesuffix(".").split(".")
    if labels[-1].isdigit():
        return is_ip_literal(host)
    return all(_LABEL.match(label) for label in labels)
