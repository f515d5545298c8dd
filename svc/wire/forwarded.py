"""
The ``Forwarded`` field by which a proxy describes its client to an application (RFC 7239).

Writes values and reads none: what another proxy wrote is never evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.wire.fields import is_token

#: A node without an address (RFC 7239 section 6.2).
UNKNOWN: Final = b"unknown"


def node(host: str | None, port: int | None) -> bytes:
    """
    Write the address of a connection as a node identifier (RFC 7239 section 6).

    Args:
        host: an IP address; its zone is left out, for which there is no syntax. None where there is no address.
        port: the TCP port, or None.
    """
    if not host:
        return UNKNOWN
    address = host.partition("%")[0]
    name = f"[{address}]" if ":" in address else address
    return (name if port is None else f"{name}:{port}").encode("ascii")


def obfuscated(name: str) -> bytes:
    """Write a name of letters, digits, ``.``, ``_`` and ``-`` as an obfuscated identifier (RFC 7239 section 6.3)."""
    return b"_" + name.encode("ascii")


@dataclass(frozen=True, slots=True)
class ForwardedHop:
    """
    One connection that requests take, from a client to a proxy.

    Args:
        client: the node that sends them.
        by: the node that receives them.
        proto: ``https`` or ``http``.
    """

    client: bytes
    by: bytes
    proto: bytes

    def value(self, host: bytes) -> bytes:
        """Return the value of ``Forwarded`` for a request with this valid Host, or none (RFC 7239 section 4)."""
        pairs = ((b"for", self.client), (b"by", self.by), (b"host", host), (b"proto", self.proto))
        # Neither nodes nor hosts contain what would need a backslash in a quoted string.
        return b";".join(
            [b"%b=%b" % (name, text if is_token(text) else b'"%b"' % text) for name, text in pairs if text]
        )
