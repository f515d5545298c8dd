"""Where a peer can be reached: a host and a port, which nobody signs and which are a hint alone."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

#: RFC 1035, section 2.3.4, without the dot at the end.
MAX_NAME: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")


@dataclass(frozen=True)
class Endpoint:
    """
    Made by :meth:`parse`.

    Attributes:
        host: a DNS name in lower case, or an IP address without brackets.
        port: 1 to 65535, None where it is not given.
    """

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """
        Read ``host``, ``host:port``, ``[IPv6]`` or ``[IPv6]:port``.

        Raises:
            ValueError: its text says what is wrong.
        """
        host, port = text, None
        if not text.endswith("]") and ":" in text:
            host, _colon, number = text.rpartition(":")
            if not _PORT.match(number) or int(number) > 65535:
                raise ValueError("the port is no number of 1 to 65535")
            port = int(number)
        if host.startswith("["):
            return cls(_ipv6(host), port)
        name = host.lower()
        if not name or len(name) > MAX_NAME or not all(_LABEL.match(label) for label in name.split(".")):
            raise ValueError("the host is no DNS name and no IP address")
        if name.rpartition(".")[2].isdigit():
            return cls(str(_address(name, ipaddress.IPv4Address)), port)
        return cls(name, port)

    def with_port(self, port: int) -> Endpoint:
        """Return the same, with a port where none is given."""
        return self if self.port is not None else Endpoint(self.host, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def _ipv6(host: str) -> str:
    if not host.endswith("]") or "%" in host:
        raise ValueError("the host is no IPv6 address in brackets")
    return str(_address(host[1:-1], ipaddress.IPv6Address))


def _address(
    text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError("the host is no IP address") from error
