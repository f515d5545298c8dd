"""
Which proxy a request goes through: ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, in either case of letters.

They mean what they mean to kubectl, Helm and container runtimes: ``NO_PROXY`` lists hosts (with their subdomains),
``.domain`` (subdomains alone), addresses, networks, each with a port or without, or ``*``; this machine never goes
through a proxy.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from svc.install.registry.errors import RegistryError


@dataclass(frozen=True, slots=True)
class Proxy:
    """
    An HTTP proxy.

    Attributes:
        host: its name or address.
        port: its port.
        authorization: the value of ``Proxy-Authorization``; empty for none.
    """

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def choose_proxy(environment: Mapping[str, str], scheme: str, host: str, port: int) -> Proxy | None:
    """
    Choose the proxy of a request.

    Args:
        environment: the variables.
        scheme: ``http`` or ``https``.
        host: without brackets.
        port: of the server.

    Returns:
        The proxy, or None for a direct connection.

    Raises:
        RegistryError: the variable names a proxy that cannot be used.
    """
    variable, text = _variable(environment, f"{scheme}_proxy")
    if not text or _is_local(host):
        return None
    _, excluded = _variable(environment, "no_proxy")
    if any(_matches(each.strip().lower(), host.lower(), port) for each in excluded.split(",")):
        return None
    return _parsed(variable, text)


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    for each in (name.upper(), name):
        if text := environment.get(each, "").strip():
            return each, text
    return name.upper(), ""


def _parsed(variable: str, text: str) -> Proxy:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port or 80
        host = url.hostname
    except ValueError:
        raise RegistryError("registry_proxy_invalid", variable=variable, defect="it is not a URL") from None
    if url.scheme != "http" or not host:
        defect = "its scheme must be http" if host else "it names no host"
        raise RegistryError("registry_proxy_invalid", variable=variable, defect=defect)
    authorization = ""
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(host, port, authorization)


def _is_local(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _matches(pattern: str, host: str, port: int) -> bool:
    if pattern == "*":
        return True
    address = _address(host)
    if "/" in pattern:
        try:
            return address is not None and address in ipaddress.ip_network(pattern, strict=False)
        except ValueError:
            return False
    name, wanted_port = _without_port(pattern)
    if not name or wanted_port not in ("", str(port)):
        return False
    if address is not None:
        return _address(name) == address
    if name.startswith((".", "*.")):
        return host.endswith(name.removeprefix("*"))
    return host == name or host.endswith(f".{name}")


def _without_port(pattern: str) -> tuple[str, str]:
    if pattern.startswith("["):
        name, _, rest = pattern[1:].partition("]")
        return name, rest.removeprefix(":")
    if pattern.count(":") == 1:
        name, _, port = pattern.partition(":")
        return name, port
    return pattern, ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
