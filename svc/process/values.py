"""Types of configuration values that several daemons share: identities, sockets, addresses, durations, names."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from svc.identity import TrustDomain
from svc.identity.matchers import parse_matcher
from svc.naming import DEFAULT_NAMESPACE
from svc.settings import (
    ADDRESS_PATTERN,
    DURATION_PATTERN,
    Duration,
    HostPort,
    Items,
    ValueFormat,
    format_duration,
    text_format,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")


def _trust_domain(text: str) -> str:
    _check_parses(TrustDomain.parse, text, "the name of a trust domain, such as prod.example.org")
    return text


def _matcher(text: str) -> str:
    _check_parses(parse_matcher, text, "a SPIFFE ID, or spiffe://domain/path/* or spiffe://domain/*")
    return text


def _check_parses(parse: Callable[[str], object], text: str, expected: str) -> None:
    try:
        parse(text)
    except Exception as error:
        raise ValueError(expected) from error


def _socket(text: str) -> str:
    if not text.startswith("unix:///") or len(text) < 9:
        raise ValueError("unix:/// and the absolute path of a socket")
    return text


def parse_upstream(value: object) -> HostPort | str:
    """Parse ``host:port`` or ``unix:///path``; the text of a ``ValueError`` says what was expected."""
    if isinstance(value, str) and value.startswith("unix:"):
        return _socket(value)
    address = HostPort.parse(value)
    if not address.host or not address.port:
        raise ValueError("an address host:port, or unix:/// and the absolute path of a socket")
    return address


def _remote(value: object) -> HostPort:
    address = HostPort.parse(value)
    if not address.host or not address.port:
        raise ValueError("an address host:port that can be reached from elsewhere")
    return address


def parse_optional_address(value: object) -> HostPort | None:
    """Parse an address; ``"0"`` and the empty text disable a listener. The text of a ``ValueError`` says the rest."""
    if value in ("", "0", 0) and not isinstance(value, bool | float):
        return None
    return HostPort.parse(value)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("a duration above 0s")
    return value


def _alpn(value: str) -> str:
    if not re.fullmatch(r"[!-~]{1,255}", value):
        raise ValueError("a name of an application protocol (ALPN) such as h2: at most 255 characters, no space")
    return value


def _name(value: str) -> str:
    if _NAME.match(value) is None:
        raise ValueError("a name of at most 63 letters, digits, dots, hyphens and underscores, no mark in front")
    return value


def _check_path(text: str) -> str:
    if not text:
        raise ValueError("a path of a file")
    return text


def _user(value: object) -> int:
    return _number(value, "user", lambda name: pwd.getpwnam(name).pw_uid)


def _group(value: object) -> int:
    return _number(value, "group", lambda name: grp.getgrnam(name).gr_gid)


def _number(value: object, kind: str, look_up: Callable[[str], int]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 - 1:
        return value
    if isinstance(value, str):
        try:
            return look_up(value)
        except KeyError as error:
            raise ValueError(f"the name of an existing {kind}, or its number") from error
    raise ValueError(f"the name of an existing {kind}, or its number")


def _absolute(value: object) -> str:
    if isinstance(value, str) and os.path.isabs(value) and "\0" not in value:
        return value
    raise ValueError("an absolute path")


SOCKET_PATTERN: Final = "^unix:///.+$"
_NUMBER: Final = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 2**32 - 2}]}
_MATCHER_PATTERN: Final = "^spiffe://[a-z0-9._-]+(/.*)?$"

TrustDomainText = Annotated[str, AfterValidator(_trust_domain), text_format("trust domain", "^[a-z0-9._-]{1,255}$")]
MatcherText = Annotated[str, AfterValidator(_matcher), text_format("matcher", _MATCHER_PATTERN)]
SocketText = Annotated[str, AfterValidator(_socket), text_format("socket", SOCKET_PATTERN)]
Upstream = Annotated[
    HostPort | str,
    BeforeValidator(parse_upstream),
    text_format("`host:port` or socket", f"{SOCKET_PATTERN}|{ADDRESS_PATTERN}"),
]
RemoteAddress = Annotated[HostPort, BeforeValidator(_remote), text_format("`host:port`", ADDRESS_PATTERN)]
OptionalAddress = Annotated[
    HostPort | None,
    BeforeValidator(parse_optional_address),
    ValueFormat(
        'address, or `"0"` or `""` for none',
        {"anyOf": [{"type": "string", "pattern": f"^0?$|{ADDRESS_PATTERN}"}, {"const": 0}]},
        lambda address: str(address or "0"),
    ),
]
Wait = Annotated[
    Duration, AfterValidator(_positive), text_format("duration above 0s", DURATION_PATTERN, format_duration)
]
FilePath = Annotated[str, AfterValidator(_check_path), text_format("path", "^.+$")]
AlpnName = Annotated[str, AfterValidator(_alpn), text_format("name", "^[!-~]{1,255}$")]
ListenerName = Annotated[str, AfterValidator(_name), text_format("name", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
AbsolutePath = Annotated[str, BeforeValidator(_absolute), text_format("absolute path", "^/.*$")]
Uid = Annotated[int, BeforeValidator(_user), ValueFormat("user, name or number", _NUMBER)]
Gid = Annotated[int, BeforeValidator(_group), ValueFormat("group, name or number", _NUMBER)]

#: The name of a namespace of Kubernetes, a label of RFC 1123.
NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
#: Where Secrets with licenses are looked for.
LicenseNamespaces = Annotated[Items[NamespaceName], Field(min_length=1, max_length=16)]
LICENSE_NAMESPACES: Final = (DEFAULT_NAMESPACE,)
