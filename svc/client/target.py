"""
The URL of a request: which URLs are accepted, and what of them is sent (RFC 3986, RFC 9110 section 4.2).

The path is sent as it was typed, dot segments included; characters outside ASCII are percent-encoded, a name outside
ASCII becomes its A-labels. An identifier in a path of the notary may be spelled as any report prints it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from svc.client.errors import RequestInvalid
from svc.notary.access import receipt_path, statement_path
from svc.notary.ids import IdMalformed, parse_typed_id
from svc.transport.addresses import is_ip_literal

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
_ASCII: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Target:
    """
    Server and path of a request.

    Args:
        scheme: ``http`` or ``https``.
        host: a DNS name in ASCII, or an IP address without brackets.
        port: 1 to 65535.
        authority: host and port as the Host field carries them.
        path: the request target: path and query; an identifier of the notary in its canonical spelling.
    """

    scheme: str
    host: str
    port: int
    authority: str
    path: str

    @property
    def secure(self) -> bool:
        """Whether the connection is mutual TLS."""
        return self.scheme == "https"

    @property
    def server_name(self) -> str | None:
        """The name for TLS, None for an IP address (RFC 6066 section 3)."""
        return None if is_ip_literal(self.host) else self.host

    @property
    def server(self) -> str:
        """Host and port for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse a URL; its fragment is left out, as it is never sent."""
        match = _SCHEME.match(url)
        if match is None:
            raise RequestInvalid(f'"{url}" is not a whole URL', "begin it with https:// or http://")
        scheme = match[1].lower()
        if scheme in ("mqtt", "mqtts"):
            raise RequestInvalid(f"{scheme}:// URLs are not supported by this version", "https:// and http:// work")
        if scheme not in _PORTS:
            raise RequestInvalid(f"the scheme {scheme} is not supported", "https:// and http:// work")
        rest = url[match.end() :].partition("#")[0]
        cut = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
        authority, path = rest[:cut], rest[cut:]
        if "@" in authority:
            raise RequestInvalid("the URL carries a user name", "credentials go into the header Authorization")
        host, port = _host_and_port(authority, url)
        shown = f"[{host}]" if ":" in host else host
        if port not in (0, _PORTS[scheme]):
            shown = f"{shown}:{port}"
        return cls(scheme, host, port or _PORTS[scheme], shown, _path(path, url))


def _host_and_port(authority: str, url: str) -> tuple[str, int]:
    """Split host and port; the port is 0 where none is given."""
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or not is_ip_literal(host) or ":" not in host:
            raise RequestInvalid(f'the host of "{url}" is no IPv6 address in brackets', "write https://[::1]:8443/")
        port_text = rest.removeprefix(":")
    else:
        host, _colon, port_text = authority.partition(":")
        host = _name(host, url)
    if not port_text:
        return host, 0
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 0 < int(port_text) < 65536):
        raise RequestInvalid(f'"{port_text}" is no port', "a port is a number from 1 to 65535")
    return host, int(port_text)


def _name(host: str, url: str) -> str:
    if not host:
        raise RequestInvalid(f'"{url}" names no host', "write https://host/path")
    if not host.isascii():
        host = _a_labels(host)
    labels = host.removesuffix(".").split(".")
    numeric = labels[-1].isdigit()
    if (
        len(host) > _MAX_NAME
        or (numeric and not is_ip_literal(host))
        or not all(_NAME.match(label) for label in labels)
    ):
        raise RequestInvalid(f'"{host}" is no host name', "a name has letters, digits, hyphens and dots")
    return host


def _a_labels(host: str) -> str:
    import idna

    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise RequestInvalid(f'"{host}" is no host name: {error}', "check its spelling") from error


def _path(path: str, url: str) -> str:
    if any(character.isspace() or ord(character) < 0x21 or ord(character) == 0x7F for character in path):
        raise RequestInvalid(f'"{url}" holds a blank or a control character', "write a blank as %20")
    for path_of in (receipt_path, statement_path):
        if path.startswith(path_of("")):
            with suppress(IdMalformed):  # the notary reports the defect of a malformed identifier
                return path_of(parse_typed_id(path.removeprefix(path_of(""))))
    encoded = quote(path, safe=_ASCII, encoding="utf-8", errors="surrogateescape")
    return encoded if encoded.startswith("/") else f"/{encoded}"
