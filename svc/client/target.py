"""
The URL of a request or of a broker: which URLs are accepted, and what of them is sent (RFC 3986, RFC 9110 section 4.2).

The path is sent as it was typed, dot segments included; characters outside ASCII are percent-encoded, a name outside
ASCII becomes its A-labels. An identifier in a path of the notary may be spelled as any report prints it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from svc.client.errors import RequestInvalid
from svc.envelope.ids import IdMalformed, parse_typed_id
from svc.notary.access import receipt_path, statement_path
from svc.transport.addresses import is_ip_literal

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)\Z")
_ASCII: Final = "".join(chr(code) for code in range(0x21, 0x7F))
_MAX_NAME: Final = 253
_ZONE: Final = re.compile(r"%25(?=.)")


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
        return _server(self.host, self.port)

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse a URL; its fragment is left out, as it is never sent."""
        match = _SCHEME.match(url)
        if match is None:
            raise RequestInvalid(f'"{url}" is not a whole URL', "begin it with https:// or http://")
        scheme = match[1].lower()
        if scheme not in _PORTS:
            raise RequestInvalid(f"the scheme {scheme} is not supported", "https:// and http:// work")
        rest = url[match.end() :].partition("#")[0]
        cut = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
        authority, path = rest[:cut], rest[cut:]
        if "@" in authority:
            raise RequestInvalid("the URL carries a user name", "credentials go into the header Authorization")
        host, port = _host_and_port(authority, url)
        # A zone means something on this machine only (RFC 6874 section 4).
        shown = f"[{host.partition('%')[0]}]" if ":" in host else host
        if port not in (0, _PORTS[scheme]):
            shown = f"{shown}:{port}"
        return cls(scheme, host, port or _PORTS[scheme], shown, _path(path, url))


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """
    A broker and the credentials for it.

    Args:
        secure: whether the connection is TLS.
        host: as in :class:`Target`.
        username: None where the URL has none, as ``password``.
    """

    secure: bool
    host: str
    port: int
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)

    @property
    def server(self) -> str:
        """Host and port for people."""
        return _server(self.host, self.port)

    @classmethod
    def parse(cls, url: str) -> BrokerTarget:
        """
        Parse ``mqtt://[user[:password]@]host:port``, or the same with ``mqtts``; the port is required.

        No error shows user name or password.
        """
        scheme, _separator, rest = url.partition("://")
        cut = min((at for mark in "/?#" if (at := rest.find(mark)) >= 0), default=len(rest))
        credentials, given, authority = rest[:cut].rpartition("@")
        if "@" in rest[cut:]:
            raise RequestInvalid(
                "the user name or password of the URL holds /, ? or #", "write them as %2F, %3F and %23"
            )
        shown = f"{scheme}://{authority}"
        if rest[cut:] not in ("", "/"):
            raise RequestInvalid(
                f"{shown} has a path or a query, and artifacts have fixed topics",
                f"write {shown}; SVC_ARTIFACT_PREFIX names another prefix of the topics",
            )
        host, port = _host_and_port(authority, shown)
        if not port:
            raise RequestInvalid(f"{shown} names no port", "brokers mostly listen at 1883, with TLS at 8883")
        username, colon, password = credentials.partition(":")
        return cls(
            scheme.lower() == "mqtts",
            host,
            port,
            _username(unquote_to_bytes(username)) if given else None,
            unquote_to_bytes(password) if colon else None,
        )


def _username(octets: bytes) -> str:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestInvalid(
            "the user name of the URL is not UTF-8", "write other characters as %XX of UTF-8"
        ) from error


def _server(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_and_port(authority: str, url: str) -> tuple[str, int]:
    """Split host and port; the port is 0 where none is given."""
    scheme = url.partition("://")[0].lower()
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        # RFC 6874 section 2 writes a zone behind %25; most people write %.
        host = _ZONE.sub("%", host, count=1)
        if not bracket or (rest and not rest.startswith(":")) or not is_ip_literal(host) or ":" not in host:
            raise RequestInvalid(f'the host of "{url}" is no IPv6 address in brackets', f"write {scheme}://[::1]:8443")
        port_text = rest.removeprefix(":")
    else:
        host, _colon, port_text = authority.partition(":")
        host = _name(host, url, scheme)
    if not port_text:
        return host, 0
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 0 < int(port_text) < 65536):
        raise RequestInvalid(f'"{port_text}" is no port', "a port is a number from 1 to 65535")
    return host, int(port_text)


def _name(host: str, url: str, scheme: str) -> str:
    if not host:
        raise RequestInvalid(f'"{url}" names no host', f"write {scheme}://host:port")
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
