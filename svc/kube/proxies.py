"""Which proxy leads to a server, by the environment: the rules of Go's ``golang.org/x/net/http/httpproxy``."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_Address = IPv4Address | IPv6Address


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """
    Return the URL of the proxy for a server, empty for none.

    A loopback address, ``localhost`` and what ``NO_PROXY`` names have none. ``NO_PROXY`` is a list of hosts with their
    subdomains, of subdomains alone (``.example.org``, ``*.example.org``), of IP addresses, each of these with or
    without a port, of ranges (``10.0.0.0/8``), or ``*``. A variable in upper case wins over that in lower case.

    Args:
        server: a URL with ``http`` or ``https`` and a host.
    """
    split = urlsplit(server)
    proxy = _variable(f"{split.scheme}_proxy", environment)
    host = (split.hostname or "").lower()
    port = split.port or {"http": 80, "https": 443}[split.scheme]
    if not proxy or host == "localhost":
        return ""
    address = _address(host)
    if address is not None and address.is_loopback:
        return ""
    excepted = (each.strip().lower() for each in _variable("no_proxy", environment).split(","))
    if any(_matches(entry, host, address, str(port)) for entry in excepted if entry):
        return ""
    parts = urlsplit(proxy)
    return proxy if parts.scheme and parts.netloc else f"http://{proxy}"


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _address(text: str) -> _Address | None:
    """Read an address; an IPv4 address that is mapped into IPv6 is the same as that address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _matches(entry: str, host: str, address: _Address | None, port: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only = _host_and_port(entry)
    if not name or (only and only != port):
        return False
    excepted = _address(name)
    if excepted is not None:
        return excepted == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _host_and_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        host, bracket, port = entry[1:].partition("]:")
        return (host, port) if bracket else (entry, "")
    if entry.count(":") == 1:
        host, _colon, port = entry.partition(":")
        return host, port
    return entry, ""
