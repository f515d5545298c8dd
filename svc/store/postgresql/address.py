"""
The address of a PostgreSQL database: one URL without a secret.

Fails closed: a server on another machine must be verified, and a password is refused in what is shown to users.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

SCHEME: Final = "postgresql://"
MAX_LENGTH: Final = 2048
MAX_HOSTS: Final = 8
_VERIFIED: Final = ("verify-ca", "verify-full")
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", *_VERIFIED)
#: The parameters of the URL; timeouts, keep-alives and session settings are those of ``session``.
_PARAMETERS: Final = frozenset(
    (
        *("channel_binding", "gssencmode", "host", "krbsrvname", "passfile", "port", "require_auth", "service"),
        *("sslcert", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert"),
        *("ssl_min_protocol_version", "target_session_attrs", "user"),
    )
)
_SECRETS: Final = frozenset({"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"})
_PRINTABLE: Final = re.compile(r"[!-~]+\Z")
_ESCAPED: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*\Z")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")

_SHAPE: Final = "postgresql://user@host:5432/name?sslmode=verify-full&sslrootcert=/path, or ?host=/folder of a socket"
_SHOWN_TO_USERS: Final = (
    "no password here: this file and /config are shown to people; name a passfile (?passfile=/path or PGPASSFILE),"
    " a service, or a client certificate (sslcert, sslkey)"
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """
    A database that can be named in logs.

    Args:
        parameters: of the client library, without a secret; the library never parses the URL a second time.
        name: hosts, ports and database, for errors and logs.
    """

    parameters: Mapping[str, str]
    name: str

    @classmethod
    def parse(cls, text: str) -> DatabaseAddress:
        """
        Parse ``postgresql://[user@]host[:port][,host[:port]…]/name[?parameter=value&…]``.

        Raises:
            ValueError: its text says what was expected and repeats nothing of the URL.
        """
        rest = text.removeprefix(SCHEME)
        if rest == text or len(text) > MAX_LENGTH or not _PRINTABLE.match(text) or not _ESCAPED.match(text):
            raise ValueError(_SHAPE)
        if "#" in text:
            raise ValueError("no # in the URL; written %23 where a name has one")
        place, _, query = rest.partition("?")
        authority, slash, database = place.partition("/")
        account, _, hosts = authority.rpartition("@")
        parameters = _parameters(query)
        if ":" in account or _SECRETS & parameters.keys():
            raise ValueError(_SHOWN_TO_USERS)
        if "@" in account or (account and "user" in parameters):
            raise ValueError("one user, before the host or as a parameter")
        if not slash or not database or "/" in database:
            raise ValueError("the name of a database behind the host: " + _SHAPE)
        named = _hosts(hosts, parameters)
        _check_protection(named, parameters)
        given = {**parameters, "dbname": _plain(database)}
        if named:
            given |= {"host": ",".join(host for host, _port in named), "port": ",".join(port for _host, port in named)}
        if account:
            given["user"] = _plain(account)
        shown = ",".join(_shown(each) for each in named) or parameters["service"]
        return cls(given, f"{shown}/{given['dbname']}")


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        name = _plain(key)
        if not equals or name in found:
            raise ValueError("each parameter once, as name=value")
        if name not in _PARAMETERS and name not in _SECRETS:
            raise ValueError(f"parameters among {', '.join(sorted(_PARAMETERS))}")
        found[name] = _plain(value)
    if found.get("sslmode", "prefer") not in _SSL_MODES:
        raise ValueError(f"sslmode {', '.join(_SSL_MODES[:-1])} or {_SSL_MODES[-1]}")
    return found


def _hosts(hosts: str, parameters: dict[str, str]) -> list[tuple[str, str]]:
    if hosts and ("host" in parameters or "port" in parameters):
        raise ValueError("the host either before the name of the database or as a parameter, not both")
    if hosts:
        pairs = [_host_and_port(each) for each in hosts.split(",")]
    else:
        ports = parameters.get("port", "").split(",")
        names = [each for each in parameters.get("host", "").split(",") if each]
        if len(ports) not in (1, len(names)):
            raise ValueError("one port for all hosts, or one for each")
        pairs = [(name, ports[number % len(ports)]) for number, name in enumerate(names)]
    if not pairs and "service" not in parameters:
        raise ValueError("a host, the folder of a socket (?host=/run/postgresql) or a service: " + _SHAPE)
    if len(pairs) > MAX_HOSTS:
        raise ValueError(f"at most {MAX_HOSTS} hosts")
    for host, port in pairs:
        if not host or (port and (not _PORT.match(port) or int(port) > 65535)):
            raise ValueError("hosts with ports up to 65535: " + _SHAPE)
    return pairs


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            bracket = ""
        if not bracket or (port and not port.startswith(":")):
            raise ValueError("an IPv6 address in brackets")
        return host, port[1:]
    host, _, port = text.partition(":")
    name = _plain(host)
    if "," in name:
        raise ValueError("no comma in the name of a host")
    return name, port


def _check_protection(hosts: list[tuple[str, str]], parameters: dict[str, str]) -> None:
    """Over a network the server must be verified, since it receives the receipts of all clients."""
    if parameters.get("sslmode") in _VERIFIED:
        return
    # A service file may name any address.
    if "service" in parameters or not all(_is_local(host) for host, _port in hosts):
        raise ValueError(
            "sslmode=verify-full (or verify-ca) and sslrootcert, since the server is on another machine"
            " or named by a service"
        )


def _is_local(host: str) -> bool:
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(pair: tuple[str, str]) -> str:
    host, port = pair
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown


def _plain(text: str) -> str:
    try:
        plain = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("UTF-8 behind each %") from error
    if not plain.isprintable():
        raise ValueError("no control characters")
    return plain
